"""All credentials of a gateway: one for each auth config that somebody uses, kept over reloads
while it stays the same.

An auth config whose type is `per_server` has one for each server that refers to it: two servers at
one address may be two accounts. Where a server has none, and wants somebody to sign in, its
credentials stand under no name (`OWN`).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.auth import AUTHS, Auth
from mcpx.auth.credentials import Credentials, Purpose, signs_in
from mcpx.model.redaction import Redactor

if TYPE_CHECKING:
    from mcpx.auth.callback import Callback
    from mcpx.auth.shared import Shared
    from mcpx.auth.vault import Vault
    from mcpx.wire.fetch import Fetcher

OWN = ""
"""The name of what no auth config was written for."""

Key = tuple[str, tuple[str, str] | None]
"""Name of the auth config; name and URL of the server, where each has its own."""


class Ring:
    def __init__(
        self,
        environ: Mapping[str, str],
        state: Path | None,
        fetcher: "Callable[[], Fetcher]",
        changed: Callable[[Credentials], None] = lambda _: None,
        redactor: Redactor | None = None,
        shared: "Shared | None" = None,
    ) -> None:
        """`changed` hears when somebody has signed in or out, or has to; `redactor` of every secret
        that is got; `shared`: what is renewed for other replicas, too."""
        self._shared = shared
        self._redactor = redactor or Redactor()
        self._owners: dict[Credentials, object] = {}
        """As whose the redactor knows their secrets."""
        self._environ, self._state, self._fetcher, self._changed = environ, state, fetcher, changed
        self._kept: dict[Key, tuple[Auth, Credentials]] = {}
        self._replaced: list[Credentials] = []

    def of(self, name: str, auth: Auth, server: str = "", url: str | None = None) -> Credentials:
        """`server`, `url`: the server they are for."""
        own = auth.per_server and url is not None
        key: Key = (name, (server, url) if own and url is not None else None)
        kept = self._kept.get(key)
        if kept is None or kept[0] != auth:
            if kept is not None:
                self._replaced.append(kept[1])
            owner = object()
            purpose = Purpose(
                server if own else name,
                self._environ,
                self._fetcher,
                url,
                lambda: self._tell(key, auth),
                lambda: self.vault,
                lambda: self.callback,
                lambda secrets: self._redactor.learn(owner, secrets),
                self._shared,
            )
            kept = self._kept[key] = auth, auth.credentials(purpose)
            self._owners[kept[1]] = owner
        return kept[1]

    def known(self, name: str) -> list[Credentials]:
        """What was made of the auth config of this name so far."""
        return [credentials for (of, _), (_, credentials) in self._kept.items() if of == name]

    def own(self, server: str, url: str) -> Credentials | None:
        """Of a server that wants somebody to sign in, and has no auth config; None: this mcpx
        cannot."""
        part = AUTHS.get("oauth")
        return None if part is None else self.of(OWN, part(), server, url)

    def look_again(self) -> None:
        """Another replica has changed what is kept of sign-ins."""
        for _, credentials in list(self._kept.values()):
            if (sign_in := signs_in(credentials)) is not None:
                sign_in.look_again()

    def _tell(self, key: Key, auth: Auth) -> None:
        kept = self._kept.get(key)
        if kept is not None and kept[0] == auth:
            self._changed(kept[1])

    @cached_property
    def vault(self) -> "Vault":
        from mcpx.auth.vault import Vault

        return Vault(self._state, self._environ)

    @cached_property
    def callback(self) -> "Callback":
        from mcpx.auth.callback import Callback

        return Callback(lambda: self.vault)

    async def keep(
        self,
        auths: Mapping[str, Auth],
        servers: Collection[tuple[str, str]],
        used: Collection[object] = (),
    ) -> None:
        """Close what no configuration refers to any more, but for what is `used` until the next
        time: a call that runs may yet need a token. `servers`: their names and URLs."""
        gone = [
            key
            for key, (auth, _) in self._kept.items()
            if (key[0] != OWN and auths.get(key[0]) != auth)
            or (key[1] is not None and key[1] not in servers)
        ]
        replaced = [*self._replaced, *(self._kept.pop(key)[1] for key in gone)]
        self._replaced = [credentials for credentials in replaced if credentials in used]
        closing = [credentials for credentials in replaced if credentials not in used]
        await asyncio.gather(
            *(credentials.close() for credentials in closing)
        )  # each may take its time
        for credentials in closing:
            self._redactor.forget(self._owners.pop(credentials, None))

    async def close(self) -> None:
        await self.keep({}, ())
        if "callback" in vars(self):
            await self.callback.close()
