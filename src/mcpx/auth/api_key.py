"""One secret under a name, in a header, in the query or in the body."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from mcpx.auth.credentials import Credentials, Fixed, Proof, Purpose
from mcpx.model.kinds import Mistake, NonEmpty
from mcpx.wire.fields import header_name_mistakes, one_line_mistakes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One secret under a name."""

    type: ClassVar[str] = "api_key"
    per_server = False

    location: Literal["header", "query", "body"] = "header"
    """Where it is sent."""
    name: str
    """Name of the header or field."""
    value: NonEmpty = field(repr=False)
    """The key."""

    def mistakes(self) -> Iterator[Mistake]:
        if self.location == "header":
            yield from header_name_mistakes(self.name, "name")
        for key, value in (("name", self.name), ("value", self.value)):
            yield from one_line_mistakes(value, key)

    def credentials(self, purpose: Purpose) -> Credentials:
        pair = ((self.name, self.value),)
        match self.location:
            case "header":
                return Fixed(Proof(headers=pair))
            case "query":
                return Fixed(Proof(query=pair))
            case "body":
                return Fixed(Proof(body=pair))
