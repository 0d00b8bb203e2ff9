"""Signing in to a remote MCP server, by a person in a browser (OAuth 2.1)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.auth.credentials import Credentials, Purpose
from mcpx.model.kinds import Mistake, NonEmpty
from mcpx.wire.fields import one_line_mistakes, url_mistakes


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """A person signs in, in a browser; what that gives is kept and renewed."""

    type: ClassVar[str] = "oauth"
    per_server = True

    client_id: NonEmpty | None = None
    """Client id, where mcpx is registered by hand, or the address of a client id metadata document;
    absent: mcpx registers itself."""
    client_secret: NonEmpty | None = field(default=None, repr=False)
    """Client secret, where the registration has one."""
    issuer: NonEmpty | None = None
    """The authorization server that `client_secret` is for. Absent: the secret goes only to an
    authorization server on the host of the MCP server."""
    scope: str = ""
    """Scopes asked for, separated by spaces; absent: those the server says it needs."""

    def mistakes(self) -> Iterator[Mistake]:
        if self.client_secret is not None and self.client_id is None:
            yield Mistake(
                "a secret without the client it is of",
                ("client_secret",),
                "name its 'client_id'",
                "key",
            )
        if self.issuer is not None:
            yield from url_mistakes(self.issuer, "issuer")
        for key, value in (("client_id", self.client_id), ("scope", self.scope)):
            yield from one_line_mistakes(value or "", key)

    def credentials(self, purpose: Purpose) -> Credentials:
        from mcpx.auth.flow.session import OAuthCredentials  # who uses other types does without

        client = self.client_id or "", self.client_secret or ""
        return OAuthCredentials(purpose, *client, self.scope, self.issuer)
