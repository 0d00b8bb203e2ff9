"""All credentials of a gateway: one for each auth config that somebody uses, kept over reloads while it stays the same.

An auth config whose type is `per_server` has one for each server that refers to it.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from mcpx.auth import Auth
from mcpx.auth.credentials import Credentials, Purpose
from mcpx.wire.fetch import Fetcher

Key = tuple[str, str | None]
"""Name of the auth config; URL of the server, where each has its own."""


class Ring:
    def __init__(self, environ: Mapping[str, str], state: Path | None, fetcher: Callable[[], Fetcher]) -> None:
        self._environ, self._state, self._fetcher = environ, state, fetcher
        self._kept: dict[Key, tuple[Auth, Credentials]] = {}

    def of(
        self,
        name: str,
        auth: Auth,
        server: str = "",
        url: str | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> Credentials:
        """`server`, `url`, `changed`: of the server they are for."""
        own = auth.per_server and url is not None
        key = (name, url if own else None)
        kept = self._kept.get(key)
        if kept is None or kept[0] != auth:
            user = server if own else name
            purpose = Purpose(user, self._environ, self._fetcher, self._state, url, changed)
            kept = self._kept[key] = auth, auth.credentials(purpose)
        return kept[1]

    async def keep(self, auths: Mapping[str, Auth], urls: Collection[str]) -> None:
        """Close what no configuration refers to any more; who still uses it goes on with what there is."""
        gone = [
            key for key, (auth, _) in self._kept.items() if auths.get(key[0]) != auth or key[1] not in {None, *urls}
        ]
        for key in gone:
            _, credentials = self._kept.pop(key)
            await credentials.close()

    async def close(self) -> None:
        await self.keep({}, ())
