"""A configured HTTP request as a tool (SRC-3)."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from mcpx.commands.requests.bodies import body_mistakes
from mcpx.commands.requests.template import named_in, placeholders
from mcpx.commands.work import Bench, Work
from mcpx.model.kinds import AuthRef, Count, Mistake, Pause, Seconds, Size
from mcpx.wire.fields import headers_mistakes, url_mistakes

_ORIGIN = re.compile(r"(?is)(https?://[^/?#]*)(.*)")
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """The request of an HTTP command; `{name}` stands for an argument."""

    type: ClassVar[str] = "http"

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] = "GET"
    """HTTP method."""
    url: str = field(repr=False)
    """Address; its scheme and host are fixed."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers to send."""
    params: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Query parameters."""
    body: Any = field(default=None, repr=False)
    """JSON to send, or text."""
    body_format: Literal["json", "form", "text"] | None = None
    """How the body is sent; absent: as `Content-Type` says, else text as it is and everything else
    as JSON."""
    auth: AuthRef | None = None
    """Name of the auth config used."""
    timeout: Seconds = 30.0
    """Seconds the request may take; `global.default_timeout` where it says nothing."""
    max_retries: Count = 3
    """Further tries of a request that changes nothing, when it fails on the way or the server asks
    for time."""
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

    @property
    def placeholders(self) -> tuple[str, ...]:
        """What looks like a placeholder in address, parameters and headers, in this order."""
        texts = (self.url, *self.params.values(), *self.headers.values())
        return tuple(dict.fromkeys(name for text in texts for name in named_in(text)))

    def mistakes(self, parameters: Collection[str] | None) -> Iterator[Mistake]:
        # With none declared, they are what the placeholders say.
        names = parameters or ()
        pattern = placeholders(names, others=not parameters)
        yield from self._url_mistakes(pattern, names)
        for name in self.params:
            if pattern.search(name):
                yield Mistake(
                    "the name of a query parameter takes no placeholder", ("params", name), at="key"
                )
        for key, texts in (("params", self.params), ("headers", self.headers)):
            for name, text in texts.items():
                yield from _unknown(text, pattern, names, key, name)
        filled = {name: pattern.sub("", value) for name, value in self.headers.items()}
        yield from headers_mistakes(filled, "headers")
        content_type = next(
            (value for name, value in self.headers.items() if name.lower() == "content-type"), ""
        )
        yield from body_mistakes(
            self.body, self.body_format, content_type, placeholders(names), self.method
        )
        if self.result is not None:
            from mcpx.commands.requests.answers import result_mistakes

            yield from result_mistakes(self.result)

    def _url_mistakes(self, pattern: re.Pattern[str], names: Collection[str]) -> Iterator[Mistake]:
        found = _ORIGIN.fullmatch(self.url)
        if found is None:
            yield from url_mistakes(self.url, "url")
            return
        origin, rest = found.groups()
        if "{" in origin or "}" in origin:
            hint = (
                "a placeholder stands in the path or the query; what differs by machine is a ${VAR}"
            )
            yield Mistake(
                "scheme, host and port are fixed, and take no placeholder", ("url",), hint
            )
            return
        yield from url_mistakes(pattern.sub("x", self.url), "url")
        sent, _, fragment = rest.partition("#")
        if pattern.search(fragment):
            yield Mistake("a placeholder after '#', which is never sent", ("url",))
        unknown = list(_unknown(sent, pattern, names, "url"))
        yield from unknown
        if not unknown and re.search(r"[{}]", pattern.sub("", sent)):
            yield Mistake(
                "a brace that belongs to no placeholder", ("url",), "write %7B for {, %7D for }"
            )

    def prepare(self, bench: Bench) -> Work:
        from mcpx.commands.requests.sending import HttpWork

        return HttpWork(self, bench)


def _unknown(
    text: str, pattern: re.Pattern[str], names: Collection[str], *path: str
) -> Iterator[Mistake]:
    for name in named_in(pattern.sub(" ", text)):
        close: list[str] = []
        if len(name) <= _SHOWN:  # a typo has the length of the word
            from difflib import get_close_matches

            close = get_close_matches(
                name.lower(), {each.lower(): each for each in names}, n=1, cutoff=0.6
            )
        meant = next((each for each in names if close and each.lower() == close[0]), None)
        hint = f"did you mean {{{meant}}}?" if meant else "declare it in 'parameters'"
        yield Mistake(f"no parameter named '{name[:_SHOWN]}'", path, hint)
