"""What tests of the sign-in share: credentials as a gateway makes them, and a request as a
transport makes it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from auth.authserver import AuthServer, open_as_browser
from mcpx.auth.callback import Callback
from mcpx.auth.credentials import Proof, Purpose, Refusal
from mcpx.auth.flow.session import OAuthCredentials
from mcpx.auth.oauth import OAuth
from mcpx.auth.vault import Vault
from mcpx.model.errors import Unproved
from mcpx.wire.fetch import Answer, Fetch, Fetcher

BOUND = 20.0
NOTHING = Proof()


class SignInUser:
    """The credentials of one gateway for one server, and the user who signs in."""

    def __init__(
        self, credentials: OAuthCredentials, fetcher: Fetcher, url: str, vault: Vault
    ) -> None:
        self.credentials, self.fetcher, self.url, self.vault = credentials, fetcher, url, vault
        self.told = 0

    async def post(self, proof: Proof, method: str = "tools/list") -> Answer:
        body = b'{"jsonrpc":"2.0","id":1,"method":"%s"}' % method.encode()
        headers = (*proof.headers, ("content-type", "application/json"))
        request = Fetch(
            url=self.url, method="POST", headers=headers, body=body, allow_private=True, redirects=0
        )
        return await self.fetcher.fetch(request)

    async def ask(self, method: str = "tools/list") -> int:
        """The status of a request as a server's links make it: without a proof while nobody has
        signed in, once more where that is worth it, and the user is asked where nothing else
        helps."""
        proof = await self._proof()
        answer = await self.post(proof, method)
        if answer.status in (401, 403):
            refusal = Refusal(answer.status, ", ".join(answer.headers.all("www-authenticate")))
            if await self._again(proof, refusal):
                return (await self.post(await self.credentials.get(), method)).status
            with suppress(Unproved):
                await self.credentials.begin(refusal)
        return answer.status

    async def _proof(self) -> Proof:
        try:
            return self.credentials.now() or await self.credentials.get()
        except Unproved as error:
            if not error.sign_in:
                raise
            return NOTHING

    async def _again(self, proof: Proof, refusal: Refusal) -> bool:
        if proof is NOTHING:
            return await self._proof() is not NOTHING
        return await self.credentials.refused(proof, refusal)

    async def open(self, url: str | None = None) -> tuple[int, str]:
        """Open the page to sign in at, and say yes."""
        where = url or self.credentials.auth_url
        assert where is not None, self.credentials.problem
        return await asyncio.to_thread(open_as_browser, where)

    async def sign_in(self) -> None:
        assert await self.ask() == 401
        status, page = await self.open()
        assert status == 200, page
        assert await self.ask() == 200


@asynccontextmanager
async def sign_in_user(
    url: str,
    folder: Path | None = None,
    fetcher: Callable[[], Fetcher] | None = None,
    **config: Any,
) -> AsyncIterator[SignInUser]:
    vault = Vault(folder, {"MCPX_KEY": "0" * 32})
    callback = Callback(lambda: vault)
    made = (fetcher or (lambda: Fetcher({})))()
    user: list[SignInUser] = []

    def changed() -> None:
        user[0].told += 1

    purpose = Purpose("guarded", {}, lambda: made, url, changed, lambda: vault, lambda: callback)
    credentials = OAuth(**config).credentials(purpose)
    assert isinstance(credentials, OAuthCredentials)
    user.append(SignInUser(credentials, made, url, vault))
    try:
        async with asyncio.timeout(BOUND):
            yield user[0]
    finally:
        await credentials.close()
        await callback.close()
        await made.close()


__all__ = ["AuthServer", "SignInUser", "sign_in_user"]
