"""A configured HTTP request as a tool (SRC-3)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from mcpx.commands.work import Bench, Work
from mcpx.model.kinds import AuthRef, Count, Mistake, Pause, Seconds, Size
from mcpx.wire.fields import headers_mistakes


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """The request of an HTTP command; `{name}` stands for an argument."""

    type: ClassVar[str] = "http"

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] = "GET"
    """HTTP method."""
    url: str
    """Address; its scheme and host are fixed."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers to send."""
    params: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Query parameters."""
    body: Any = field(default=None, repr=False)
    """JSON to send, or text."""
    body_format: Literal["json", "form", "text"] | None = None
    """How the body is sent; absent: as `Content-Type` says, else text as it is and everything else as JSON."""
    auth: AuthRef | None = None
    """Name of the auth config used."""
    timeout: Seconds = 30.0
    """Seconds the request may take; `global.default_timeout` where it says nothing."""
    max_retries: Count = 3
    """Further tries of a request that changes nothing, when it fails on the way or the server asks for time."""
    retry_delay: Pause = 1.0
    """Seconds before the first of those tries; doubled each time."""
    response_format: Literal["json", "xml", "text"] = "json"
    """How the response is read."""
    result: str | None = None
    """What of the response is given to the caller: a JMESPath expression; absent: all of it."""
    max_response: Size = 10 * 2**20
    """Largest response taken, in bytes, unpacked."""
    allow_private: bool = False
    """Whether private, loopback and metadata addresses may be reached."""

    @property
    def reads_only(self) -> bool:
        return self.method in ("GET", "HEAD", "OPTIONS")

    def mistakes(self, parameters: Collection[str] | None) -> Iterator[Mistake]:
        yield from headers_mistakes(self.headers, "headers")

    def prepare(self, bench: Bench) -> Work:
        raise NotImplementedError
