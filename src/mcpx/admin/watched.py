"""What this room needs of those that count, keep and know clients: the protocols behind the fields
of `Desk`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

from mcpx.model.call import Caller, Json

Range = Literal["15m", "1h", "24h", "7d"]


class Summary(Protocol):
    """What a server, or a tool, was called for."""

    @property
    def calls_per_minute(self) -> float: ...
    @property
    def calls(self) -> int: ...
    @property
    def errors(self) -> int: ...
    @property
    def p50_ms(self) -> float | None: ...
    @property
    def p95_ms(self) -> float | None: ...
    @property
    def last_call(self) -> float: ...


class Point(Protocol):
    @property
    def at(self) -> int: ...
    @property
    def calls(self) -> int: ...
    @property
    def errors(self) -> int: ...
    @property
    def p50_ms(self) -> float | None: ...
    @property
    def p95_ms(self) -> float | None: ...


class ClientKey(Protocol):
    """Who calls, in words that may be kept."""

    @property
    def name(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def profile(self) -> str | None: ...
    def __hash__(self) -> int: ...


class Client(Protocol):
    @property
    def key(self) -> ClientKey: ...
    @property
    def version(self) -> str | None: ...
    @property
    def protocol(self) -> str: ...
    @property
    def modern(self) -> bool: ...
    @property
    def calls_per_minute(self) -> float: ...
    @property
    def last_seen(self) -> float: ...


class Statistics(Protocol):
    """How much is called."""

    @property
    def since(self) -> float: ...
    @property
    def changes(self) -> int:
        """How often a client came that was not known."""
        ...

    def key_of(self, caller: Caller) -> ClientKey: ...

    def server(self, name: str) -> Summary | None: ...

    def tool(self, server: str, name: str) -> Summary | None: ...

    def points(self, range: Range, server: str | None = None) -> tuple[int, Sequence[Point]]: ...

    def minute(self) -> tuple[int, float | None]: ...

    def per_minute(self) -> dict[str, int]: ...

    def errors_last_hour(self) -> int: ...

    def clients(self) -> Sequence[Client]: ...


class Recording(Protocol):
    """The latest calls, with what was said in them while somebody looks."""

    def hear(self, listener: Callable[[int, int], None] | None) -> None:
        """`listener` is told the first and the last number of calls that can be told of from now
        on."""
        ...

    @property
    def last(self) -> int: ...

    def rows(self, after: int = 0, limit: int = 500) -> list[Json]: ...

    def told_rows(self, after: int) -> list[Json]:
        """For who hears of calls: without looking for more."""
        ...

    def failed(self) -> list[Json]:
        """Those that did not go well; asking for them is no look."""
        ...

    def detail(self, number: int) -> Json | None: ...

    def again(self, number: int) -> tuple[str, Json] | None: ...


class Lists(Protocol):
    client: str
    mode: str
    lists: int
    shown: int
    direct: int


class SavingsCount(Protocol):
    """What compact modes spared."""

    @property
    def since(self) -> float: ...
    @property
    def raw(self) -> int: ...
    @property
    def given(self) -> int: ...

    def lists(self) -> Sequence[Lists]: ...


class Audience(Protocol):
    """Clients that have a session."""

    @property
    def changes(self) -> int: ...

    def callers(self) -> Sequence[Caller]: ...


class Snippet(Protocol):
    @property
    def label(self) -> str: ...
    @property
    def language(self) -> Literal["json", "toml", "yaml", "shell", "text", "url"]: ...
    @property
    def text(self) -> str: ...
    @property
    def path(self) -> str | None: ...


class Program(Protocol):
    """A client program, and how it is connected."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def transport(self) -> Literal["http", "stdio"]: ...
    @property
    def why(self) -> str: ...
    @property
    def snippets(self) -> Sequence[Snippet]: ...
    @property
    def deeplink(self) -> str | None: ...
    @property
    def notes(self) -> Sequence[str]: ...

    def is_called(self, name: str) -> bool:
        """Whether it says this name of itself."""
        ...


class Programs(Protocol):
    def __call__(
        self, *, url: str | None, command: Sequence[str], token: bool
    ) -> Iterable[Program]:
        """`url`: where the gateway is found; `command`: what starts one over stdio; `token`: one
        has to be shown."""
        ...
