"""A server over the HTTP+SSE transport of 2024-11-05."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Sse:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
