"""A command at work: what it is given, and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcpx.auth.credentials import Credentials
from mcpx.model.call import Json
from mcpx.model.errors import McpxError
from mcpx.wire.fetch import Fetcher

Progress = Callable[[float, float | None, str | None], None]
"""How far it is, of how much, and in words."""


class CommandFailed(McpxError):
    """A command could not do what it was told; the words are for whoever called it. Caught where
    commands are called (`core.local`), which makes a tool error of it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a command finds around it."""

    name: str
    """The command's."""
    schema: Json
    """Of its arguments."""
    environ: Mapping[str, str]
    """The gateway's own environment."""
    fetcher: Callable[[], Fetcher]
    """The client for HTTP, shared by all; made when first needed."""
    credentials: Credentials | None = None
    """What `auth` refers to."""
    script_paths: tuple[str, ...] = ()
    """Folders that scripts may stand in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What one call would send or run, for people: what is known to be secret is masked."""

    method: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: str | None = field(default=None, repr=False)
    """What is sent, or goes to standard input; None: nothing."""
    argv: tuple[str, ...] | None = field(default=None, repr=False)
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Beside the small one that every process gets."""


class Resolves(Protocol):
    """Work that can tell what a call would do, without doing it."""

    def resolved(self, arguments: Mapping[str, Any], mask: str) -> Resolved:
        """`mask` stands where secrets would. Raises `CommandFailed`."""
        ...


class Work(Protocol):
    async def run(self, arguments: Mapping[str, Any], progress: Progress | None) -> Json:
        """The result of a tool, in the form of MCP. `arguments` are checked, and have their
        defaults; `progress` is None when nobody asked. Cancelled, it leaves nothing behind. Raises
        `CommandFailed`."""
        ...

    async def close(self) -> None:
        """Nobody calls it any more."""
        ...
