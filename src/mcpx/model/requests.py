"""Which request of a client something belongs to: an id for people, and the trace it is part of
(W3C Trace Context).

Promise: an id is short, unique over processes, and tells nothing of other requests. A request that
goes well and that nobody follows never has one. `REQUEST` and `SPAN` belong to the task that
answers a request and to what it starts; they are set only while requests are followed (JSON logs,
audit, traces).
"""

import random
import re
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final

from mcpx.model.call import Caller, Json, as_object

_CLEAN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

_PARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})((?:-[!-~]{0,200})?)"
)
_MEMBER: Final = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
MOST_STATE: Final = 512
"""Characters of a `tracestate` that is handed on."""


def new_id() -> str:
    return f"{random.getrandbits(64):016x}"


class Trace:
    """What a peer says of the trace it is in."""

    __slots__ = ("sampled", "span_id", "state", "trace_id")

    def __init__(self, trace_id: str, span_id: str, sampled: bool, state: str = "") -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.sampled = sampled
        self.state = state
        """`tracestate`: other systems' own words on the trace, handed on."""

    @classmethod
    def read(cls, parent: Any, state: Any = None) -> "Trace | None":
        """None of what is malformed, as if it had not been there."""
        found = _PARENT.fullmatch(parent) if isinstance(parent, str) else None
        if found is None:
            return None
        version, trace_id, span_id, flags, more = found.groups()
        if (
            version == "ff"
            or (version == "00" and more)
            or not trace_id.strip("0")
            or not span_id.strip("0")
        ):
            return None
        return cls(trace_id, span_id, bool(int(flags, 16) & 1), _state(state))

    @classmethod
    def of(cls, params: Json) -> "Trace | None":
        """What a message of MCP says (SEP-414)."""
        meta = as_object(params.get("_meta"))
        return (
            cls.read(meta.get("traceparent"), meta.get("tracestate"))
            if "traceparent" in meta
            else None
        )

    @classmethod
    def of_headers(cls, parents: Sequence[str], states: Sequence[str]) -> "Trace | None":
        """What the headers of an HTTP request say; `tracestate` may stand in several."""
        return cls.read(parents[0], ",".join(states)) if len(parents) == 1 else None


def _state(text: Any) -> str:
    if not isinstance(text, str) or len(text) > MOST_STATE:
        return ""
    members = [member.strip(" \t") for member in text.split(",")]
    members = [member for member in members if member]
    return ",".join(members) if len(members) <= 32 and all(map(_MEMBER.fullmatch, members)) else ""


class Span(Trace):
    """A piece of work of our own in a trace. One that is not `sampled` is known to servers and told
    to nobody else."""

    __slots__ = ("above", "attributes", "began", "kind", "name", "parent_id", "remote", "since")

    def __init__(
        self,
        trace_id: str,
        span_id: str,
        sampled: bool,
        state: str = "",
        parent_id: str = "",
        remote: bool = False,
    ) -> None:
        super().__init__(trace_id, span_id, sampled, state)
        self.parent_id = parent_id
        self.remote = remote
        """Whether the parent is somebody else's."""
        self.above: Span | None = None
        """The span of ours that it is part of."""
        self.name = ""
        self.kind = 0
        self.began = self.since = 0
        """By the clock on the wall, and by the one that only runs; in nanoseconds."""
        self.attributes: list[bytes] = []
        """As they go out."""

    @property
    def parent(self) -> str:
        """As `traceparent` says it."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def told(self, params: Json) -> Json:
        """`params` for a server that goes on with the trace here."""
        meta: Any = params.get("_meta")
        if meta is not None and not isinstance(meta, dict):
            return params  # nothing that could be added to
        ours: Json = {**(meta or {}), "traceparent": self.parent}
        ours.pop("tracestate", None)
        if self.state:
            ours["tracestate"] = self.state
        return {**params, "_meta": ours}

    def headers(self) -> list[tuple[str, str]]:
        """The same for an HTTP request."""
        state = [("tracestate", self.state)] if self.state else []
        return [("traceparent", self.parent), *state]


class Request:
    """One request of a client that is being followed."""

    __slots__ = ("caller", "carrier", "given", "id", "over", "span", "trace_id")

    def __init__(self, wanted: str | None = None, carrier: str = "") -> None:
        """`wanted`: the id its client gave it."""
        own = None if wanted is None else clean(wanted)
        self.given = own is not None
        """The id is its client's own word."""
        self.id = new_id() if own is None else own
        self.carrier = carrier
        """`stdio`, `http`, `sse` or `websocket`."""
        self.caller: Caller | None = None
        """Who asks, once that is known."""
        self.over = False
        self.span: Span | None = None
        self.trace_id: str | None = None


def clean(wanted: str | None) -> str | None:
    """An id that somebody else made, if it is short and can stand anywhere."""
    return wanted if wanted is not None and _CLEAN.fullmatch(wanted) else None


REQUEST: Final[ContextVar[Request | None]] = ContextVar("request", default=None)
SPAN: Final[ContextVar[Span | None]] = ContextVar("span", default=None)
"""What servers are told to go on from."""


def answering() -> Json:
    """`extra` of a log line about the request that was being answered here."""
    return {"request": REQUEST.get()}


def identity() -> str:
    """The id of the request that is being answered here; a new one where nobody follows it."""
    request = REQUEST.get()
    return new_id() if request is None else request.id
