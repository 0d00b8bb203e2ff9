"""What a user may set about surfaces, as they need it: the rest of the configuration is not their
business."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType

from mcpx.surfaces import Mode


@dataclass(frozen=True, slots=True)
class Rendering:
    """How what one server says is shown."""

    schema_format: str = "typescript"
    max_description_len: int | None = None
    value_format: str = "toon"
    toon_min_size: int = 3
    compact_json: bool = True
    """Whether JSON of several lines is data too; for the tools that read files it is switched
    off."""
    structured: bool = True
    """Whether results carry `structuredContent` beside the text."""
    result_limit: int = 16_000
    """Bytes of text from which a result is kept back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRule:
    """What `auto` shows to clients of a name."""

    client: str
    """Name of the client program (`clientInfo.name`); `*` stands for anything, case does not
    matter."""
    mode: Mode
    """What it is shown; any mode but `auto`."""
    reason: str = "a rule in the config"
    """Why; told in the log and the status."""

    def __post_init__(self) -> None:
        if self.mode == "auto":
            raise ValueError("auto cannot choose itself; say which of the other modes is meant")

    def matches(self, client: str) -> bool:
        return fnmatchcase(client.lower(), self.client.lower())


DEFERS = "it loads tools only when it needs them"
AUTO_RULES = (
    AutoRule(client="claude-code", mode="direct", reason=DEFERS),
    AutoRule(client="visual studio code*", mode="direct", reason=DEFERS),
)
"""Clients that are known to keep large menus away from the model by themselves."""


@dataclass(frozen=True, slots=True)
class Settings:
    common: Rendering = Rendering()
    servers: Mapping[str, Rendering] = field(default_factory=lambda: MappingProxyType({}))
    """Where a server says something of its own."""
    menu_budget: int = 2_000
    auto_budget: int = 10_000
    auto_direct_limit: int = 25_000
    auto_rules: tuple[AutoRule, ...] = ()
    """A user's own; they come before the built-in ones."""
    enable_search: bool = True
    enable_execute: bool = True
    enable_list_services: bool = True
    search_limit: int = 20

    def of(self, server: str) -> Rendering:
        return self.servers.get(server, self.common)


TOOL_PROXY = ("enable_search", "enable_execute", "enable_list_services", "search_limit")
"""The fields that say which tools `search` offers."""
