"""A server over a WebSocket."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Websocket:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
