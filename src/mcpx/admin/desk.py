"""Everything that the routes of the admin API work with.

`office` builds the `Desk`. This package does not import `front`, `clients`, and `imports`; the
protocols below state what it needs of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from mcpx.admin.errors import ApiError, plain
from mcpx.admin.trials import Trials
from mcpx.core.chronicle import Chronicle
from mcpx.core.gateway import Gateway
from mcpx.core.sign_ins import SignIns
from mcpx.core.store import ConfigStore
from mcpx.model.call import Caller
from mcpx.telemetry.call_log import RecordedCallLog
from mcpx.telemetry.call_statistics import CallStatistics
from mcpx.telemetry.token_savings import TokenSavings

T = TypeVar("T")


class StoredToken(Protocol):
    """A token of a client, without the token itself."""

    @property
    def name(self) -> str: ...
    @property
    def profile(self) -> str | None: ...
    @property
    def created(self) -> float: ...
    @property
    def expires(self) -> float | None: ...


class TokenStore(Protocol):
    """Tokens that were created, without those of the configuration. Its methods read and write a
    file: call them in a thread."""

    def read(self) -> Sequence[StoredToken]: ...
    def add(self, name: str, profile: str | None = None, expires: float | None = None) -> str:
        """Return a new token, which is shown only once. Raises KeyError if the name is taken."""
        ...

    def revoke(self, name: str) -> bool:
        """Return whether the token existed."""
        ...


class Audience(Protocol):
    """The clients that have a session."""

    @property
    def changes(self) -> int: ...
    def callers(self) -> Sequence[Caller]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The running gateway itself."""

    version: str
    transport: Literal["stdio", "http"]
    started: float
    """Seconds since 1970."""
    config: Path | None
    """The configuration's file or folder. None: the demo, which writes no file."""
    env: str | None = None
    """The environment overlay."""
    state: Path | None = None
    """The state folder."""
    url: str | None = None
    """The address for clients over HTTP."""
    admin_url: str | None = None
    launcher: Sequence[str] = ("mcpx",)
    """The command that starts this program from any folder."""


def _no_programs(**_: Any) -> Iterable[Any]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Desk:
    gateway: Gateway
    store: ConfigStore
    about: Callable[[], About]
    """A function, because addresses are known only after the ports are open."""
    programs: Callable[..., Iterable[Any]] = _no_programs
    """Client programs, and how each is connected (`clients.programs`)."""
    statistics: CallStatistics | None = None
    recording: RecordedCallLog | None = None
    savings: TokenSavings | None = None
    audience: Audience | None = None
    tokens: TokenStore | None = None
    """None if nothing may be written."""
    imports: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    """Importers of foreign descriptions, by kind."""
    watched: Chronicle | None = None
    """The server logs since before the servers started."""

    @cached_property
    def chronicle(self) -> Chronicle:
        return self.watched or Chronicle(self.gateway)

    @cached_property
    def sign_ins(self) -> SignIns:
        return SignIns(self.gateway)

    @cached_property
    def trials(self) -> Trials:
        return Trials(self.gateway)

    @property
    def counts(self) -> CallStatistics:
        """Raises ApiError if calls are not counted."""
        return _counted(self.statistics)

    @property
    def calls(self) -> RecordedCallLog:
        """Raises ApiError if calls are not counted."""
        return _counted(self.recording)

    @property
    def profiles(self) -> list[str]:
        return [profile.name for profile in self.gateway.generation.config.profiles]

    def check_profile(self, name: str | None, path: str = "profile") -> None:
        """Raises ApiError for a profile that does not exist."""
        if name is not None and name not in self.profiles:
            hint = f"there is {', '.join(self.profiles)}"[:500]
            if not self.profiles:
                hint = "there are no profiles"
            told = f"there is no profile {plain(name)[:200]!r}"
            raise ApiError(404, None, told, path, hint)


def _counted(counter: T | None) -> T:
    if counter is None:
        raise ApiError(503, None, "nothing is counted in this gateway")
    return counter
