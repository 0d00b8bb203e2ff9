"""`Authorization: Basic …`"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.auth.credentials import Credentials, Fixed, Proof, Purpose
from mcpx.model.kinds import Mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicAuth:
    """`Authorization: Basic …`"""

    type: ClassVar[str] = "basic_auth"
    per_server = False

    username: str
    """User name."""
    password: str = field(repr=False)
    """Password."""

    def mistakes(self) -> Iterator[Mistake]:
        if ":" in self.username:
            yield Mistake("a user name cannot hold a colon here", ("username",))

    def credentials(self, purpose: Purpose) -> Credentials:
        pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return Fixed(Proof(headers=(("Authorization", f"Basic {pair}"),), also=(self.password,)))
