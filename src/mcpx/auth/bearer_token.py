"""`Authorization: Bearer …`"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.auth.credentials import Credentials, Fixed, Proof, Purpose
from mcpx.model.kinds import Mistake, NonEmpty
from mcpx.wire.fields import one_line_mistakes


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """`Authorization: Bearer …`"""

    type: ClassVar[str] = "bearer_token"
    per_server = False

    token: NonEmpty = field(repr=False)
    """The token."""

    def mistakes(self) -> Iterator[Mistake]:
        yield from one_line_mistakes(self.token, "token")

    def credentials(self, purpose: Purpose) -> Credentials:
        return Fixed(Proof(headers=(("Authorization", f"Bearer {self.token}"),)))
