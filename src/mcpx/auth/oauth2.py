"""OAuth 2 client credentials: a token that is fetched, kept and renewed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.auth.credentials import Credentials, Purpose
from mcpx.model.kinds import Mistake, NonEmpty
from mcpx.wire.fields import url_mistakes


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """Client credentials; the token is fetched, kept and renewed."""

    type: ClassVar[str] = "oauth2"
    per_server: ClassVar[bool] = False

    client_id: str
    """Client id."""
    client_secret: NonEmpty = field(repr=False)
    """Client secret."""
    token_url: str
    """Where tokens are issued."""
    scope: str = ""
    """Scopes asked for, separated by spaces."""

    def mistakes(self) -> Iterator[Mistake]:
        yield from url_mistakes(self.token_url, "token_url")

    def credentials(self, purpose: Purpose) -> Credentials:
        raise NotImplementedError
