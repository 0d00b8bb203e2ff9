"""OBS-1: access tokens that are fetched at run time are secrets for the redactor."""

from collections.abc import Iterable

from auth.test_oauth2 import token
from kit.loop import run
from kit.protected_server import ProtectedServer
from mcpx.auth.credentials import Purpose
from mcpx.auth.oauth2 import OAuth2
from mcpx.model.redaction import Redactor
from mcpx.wire.fetch import Fetcher


def test_a_fetched_token_is_redacted_before_it_is_used() -> None:
    """OBS-1: no log line that is written from then on contains the token."""
    redactor, fetcher = Redactor(), Fetcher({})

    def learn(secrets: Iterable[str]) -> None:
        redactor.learn("auth", secrets)

    async def main(server: ProtectedServer) -> None:
        auth = OAuth2(client_id="client", client_secret=server.secret, token_url=server.token_url)
        made = auth.credentials(Purpose("api", {}, lambda: fetcher, learn=learn))
        try:
            fetched = token(await made.get())
            assert fetched in server.valid
            assert fetched not in redactor.redact(f"the server refused {fetched}")
        finally:
            await made.close()
            await fetcher.close()

    with ProtectedServer() as server:
        run(main(server))
