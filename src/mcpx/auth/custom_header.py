"""Headers of the user's own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.auth.credentials import Credentials, Fixed, Proof, Purpose
from mcpx.model.kinds import Mistake
from mcpx.wire.fields import headers_mistakes


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomHeader:
    """Headers of the user's own."""

    type: ClassVar[str] = "custom_header"
    per_server = False

    headers: Mapping[str, str] = field(repr=False)
    """Headers to send."""

    def mistakes(self) -> Iterator[Mistake]:
        yield from headers_mistakes(self.headers, "headers")

    def credentials(self, purpose: Purpose) -> Credentials:
        return Fixed(Proof(headers=tuple(self.headers.items())))
