"""What the routes of the admin API work with: the gateway, its configuration, and what stands in
neighbouring rooms.

Promise: a route reaches everything through the one `Desk`, which `app` puts together; this room
imports neither `front` nor `telemetry` nor `imports`, it names what it needs of them (the protocols
below).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from mcpx.admin.trials import Trials
from mcpx.admin.watched import Audience, Programs, Recording, SavingsCount, Statistics
from mcpx.core.chronicle import Chronicle
from mcpx.core.gateway import Gateway
from mcpx.core.sign_ins import SignIns
from mcpx.core.store import ConfigStore
from mcpx.model.call import Json


class StoredToken(Protocol):
    """A token that clients over the network show, without the token itself."""

    @property
    def name(self) -> str: ...

    @property
    def profile(self) -> str | None: ...

    @property
    def created(self) -> float: ...

    @property
    def expires(self) -> float | None: ...


class Tokens(Protocol):
    """Tokens that were made, not those that stand in the configuration. Touches files: never in the
    loop's thread."""

    def read(self) -> Sequence[StoredToken]: ...

    def add(self, name: str, profile: str | None = None, expires: float | None = None) -> str:
        """A new token, which is told this once. Raises KeyError for a name that there is
        already."""
        ...

    def revoke(self, name: str) -> bool:
        """Whether there was one."""
        ...


class Activity(Protocol):
    """The latest calls."""

    def look(self, after: int = 0, limit: int = 500) -> Json: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The running gateway itself."""

    version: str
    transport: Literal["stdio", "http"]
    started: float
    """Seconds since 1970."""
    config: Path | None
    """The configuration's file or folder; None is the demo, of which nothing is written."""
    env: str | None = None
    """The overlay that is laid over it."""
    state: Path | None = None
    """The folder for what is not configuration."""
    url: str | None = None
    """Where clients find it over HTTP."""
    admin_url: str | None = None
    """Where this API is found."""
    launcher: Sequence[str] = ("mcpx",)
    """What starts this program again, wherever somebody is."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    gateway: Gateway
    store: ConfigStore
    about: Callable[[], About]
    """Asked each time: addresses are known once somebody listens there."""
    activity: Activity | None = None
    statistics: Statistics | None = None
    recording: Recording | None = None
    savings: SavingsCount | None = None
    audience: Audience | None = None
    programs: Programs | None = None
    tokens: Tokens | None = None
    """None where nothing may be written."""
    imports: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    """What makes configuration of something else, by its kind."""

    watched: Chronicle | None = None
    """What happened to servers, by whoever was there before they started."""

    @cached_property
    def chronicle(self) -> Chronicle:
        """What happened to each server, as far back as somebody was there to see it."""
        return self.watched or Chronicle(self.gateway)

    @cached_property
    def sign_ins(self) -> SignIns:
        return SignIns(self.gateway)

    @cached_property
    def trials(self) -> Trials:
        return Trials(self.gateway)
