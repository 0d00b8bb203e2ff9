"""An HTTP command at work: fills the request, proves us, sends, tries again where that is safe, and
reads the answer.

Promised: a request that may change something is sent again only when it certainly was not sent, or
when the server refused our proof (401, 403 with a challenge) and there is a fresh one. All of it,
pauses included, ends within `timeout`. What does not change from call to call is made once.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcpx.auth.credentials import Credentials, Pairs, Proof, Refusal
from mcpx.commands.parameters import names_in
from mcpx.commands.requests.answers import Reading, failure, read, selection
from mcpx.commands.requests.bodies import body_of
from mcpx.commands.requests.template import (
    Arguments,
    Path,
    Query,
    compiled,
    in_header,
    placeholders,
)
from mcpx.commands.work import Bench, CommandFailed, Progress, Resolved
from mcpx.model.call import Json
from mcpx.model.errors import Unproved
from mcpx.model.redaction import blotted, spellings
from mcpx.model.requests import SPAN
from mcpx.model.secret_rules import hide_secrets, learnable_secrets, map_texts
from mcpx.wire.address import LONGEST_TARGET
from mcpx.wire.exchange import retry_after
from mcpx.wire.fetch import Answer, Fetch, FetchFailed

if TYPE_CHECKING:
    from mcpx.commands.http import HttpRequest

AGAIN = frozenset({429, 502, 503, 504})
"""Statuses that are about this moment."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
ACCEPT = {
    "json": "application/json, */*;q=0.5",
    "xml": "application/xml, text/xml, */*;q=0.5",
    "text": "text/plain, */*;q=0.5",
}
HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers of a file that may go where a redirect leads; any other may be a secret."""
NOBODY = Proof()
STAND_IN = "mcpx-keeps-this-secret"
"""In the place of a secret until the request is put together: nothing encodes it."""
SHORTEST = 4
"""Characters of a secret that is masked wherever it stands."""

_SPLIT = re.compile(r"(?i)(https?://[^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)

Headers = tuple[tuple[str, str], ...]


def split(url: str) -> tuple[str, str, str] | None:
    """Origin, path and query of an address with placeholders; None where it is no address."""
    found = _SPLIT.fullmatch(url)
    return None if found is None else (found[1], found[2] or "/", found[3] or "")


class _Headers:
    """The lines of a request but for those of its proof."""

    def __init__(
        self, given: Mapping[str, str], usual: Mapping[str, str], pattern: re.Pattern[str]
    ) -> None:
        self._lines = [(name, compiled(value, pattern)) for name, value in given.items()]
        self._usual = dict(usual)
        plain = [(name, value) for name, value in self._lines if isinstance(value, str)]
        self._static = self._complete(plain) if len(plain) == len(self._lines) else None
        self._proved: tuple[Proof, Headers] | None = None

    def _complete(self, lines: Sequence[tuple[str, str]]) -> Headers:
        there = {name.lower() for name, _ in lines}
        return (
            *lines,
            *((name, value) for name, value in self._usual.items() if name.lower() not in there),
        )

    def fill(self, arguments: Arguments, proof: Proof) -> Headers:
        if self._static is None:
            return self._filled(arguments, proof)
        if not proof.headers:
            return self._static
        if self._proved is None or self._proved[0] is not proof:
            self._proved = proof, _with(proof, self._static)
        return self._proved[1]

    def _filled(self, arguments: Arguments, proof: Proof) -> Headers:
        lines: list[tuple[str, str]] = []
        own: set[str] = set()
        for name, value in self._lines:
            if isinstance(value, str):
                lines.append((name, value))
            elif value.exact is None or arguments.get(value.exact) is not None:
                lines.append((name, value.fill(arguments, in_header)))
                if value.given(arguments):
                    own.add(name.lower())
        return _with(proof, self._complete(lines), own)

    def names(self) -> frozenset[str]:
        return frozenset(name.lower() for name, _ in self._lines)


def _with(proof: Proof, lines: Headers, own: "set[str] | frozenset[str]" = frozenset()) -> Headers:
    """The lines and those of the proof, which win over all but what the caller gave himself
    (`own`)."""
    ours = [(name, value) for name, value in proof.headers if name.lower() not in own]
    replaced = {name.lower() for name, _ in ours}
    return (*((name, value) for name, value in lines if name.lower() not in replaced), *ours)


class HttpWork:
    def __init__(self, how: "HttpRequest", bench: Bench) -> None:
        schema = bench.schema
        names = names_in(schema)
        closed = schema.get("additionalProperties") is False
        pattern = placeholders(names, others=not closed)
        if not closed:  # what is an argument in the address is one in the body
            names = list(dict.fromkeys((*names, *how.placeholders)))
        parts = split(how.url)
        assert parts is not None, "an address that no configuration lets through"
        self._how = how
        self._origin = parts[0]
        self._path = Path(parts[1], pattern)
        self._query = Query.of_text(parts[2], pattern) + Query.of_pairs(how.params, pattern)
        content_type = next(
            (value for name, value in how.headers.items() if name.lower() == "content-type"), ""
        )
        self._body = body_of(how.body, how.body_format, content_type, names, how.method)
        usual = {"Accept": ACCEPT[how.response_format]}
        self._headers = _Headers(how.headers, usual, pattern)
        with_body = {**usual, "Content-Type": self._body.content_type}
        self._headers_with_body = _Headers(how.headers, with_body, pattern)
        self._private = self._headers.names() - HARMLESS
        self._reading = Reading(
            how.method, how.response_format, None if how.result is None else selection(how.result)
        )
        fields = {"url": how.url, "headers": how.headers, "params": how.params, "body": how.body}
        self._secrets = frozenset(learnable_secrets(fields))
        self._safe = how.method in SAFE
        self._fetcher = bench.fetcher
        self._credentials = bench.credentials

    async def run(self, arguments: Mapping[str, Any], progress: Progress | None) -> Json:
        clock = asyncio.get_running_loop().time
        ends = clock() + self._how.timeout
        credentials = self._credentials
        proof = (
            NOBODY
            if credentials is None
            else credentials.now() or await self._prove(credentials, ends)
        )
        fetch = self._fetcher().fetch
        tries, left, renewed = 0, self._how.timeout, False
        while True:
            try:
                answer = await fetch(self._request(arguments, proof, left))
            except FetchFailed as error:
                told, may_repeat = self._told(error)
                wait = None
            except ValueError:
                raise CommandFailed(
                    "the request cannot be sent: its address or a header is not possible"
                ) from None
            else:
                status = answer.status
                if 200 <= status < 300:
                    return await read(answer, self._reading)
                told = failure(answer, (*proof.secrets, *self._secrets))
                if credentials is not None and not renewed and (refusal := _refusal(answer)):
                    renewed = True
                    if await self._again(credentials, proof, refusal, ends):
                        proof = credentials.now() or await self._prove(credentials, ends)
                        left = max(ends - clock(), 0.001)
                        continue
                may_repeat = self._safe and status in AGAIN
                wait = retry_after(answer.headers) if may_repeat else None
            if not may_repeat or tries >= self._how.max_retries:
                raise told
            tries += 1
            pause = self._how.retry_delay * 2.0 ** min(tries - 1, 30) if wait is None else wait
            if pause >= ends - clock():
                raise _no_time(told, wait, self._how.timeout)
            if progress is not None:
                progress(tries, None, f"{str(told)[:200]}; trying again in {pause:.3g} s")
            await asyncio.sleep(pause)
            left = max(ends - clock(), 0.001)

    async def close(self) -> None:
        """Connections are the fetcher's, credentials the ring's."""

    def _request(self, arguments: Arguments, proof: Proof, timeout: float) -> Fetch:
        how = self._how
        query = self._query.fill(arguments, proof.query)
        target = self._path.fill(arguments)
        if query:
            target = f"{target}?{query}"
        if len(target) > LONGEST_TARGET:
            raise CommandFailed(
                f"the address would have {len(target):,} characters after the host; at most "
                f"{LONGEST_TARGET:,} are sent"
            )
        body = self._body.fill(arguments, proof.body)
        headers = self._headers if body is None else self._headers_with_body
        private = self._private
        if proof.headers:
            private = private.union(name.lower() for name, _ in proof.headers)
        lines = headers.fill(arguments, proof)
        if (span := SPAN.get()) is not None and not any(
            name.lower() == "traceparent" for name, _ in lines
        ):
            lines = (*lines, *span.headers())
        return Fetch(
            url=self._origin + target,
            method=how.method,
            headers=lines,
            body=body or b"",
            private=private,
            timeout=timeout,
            limit=how.max_response,
            allow_private=how.allow_private,
        )

    def resolved(self, arguments: Mapping[str, Any], mask: str) -> Resolved:
        """Nothing is fetched for it, no token either: of what proves us only the form is told."""
        try:
            request = self._request(arguments, self._disguised(), self._how.timeout)
        except ValueError:
            raise CommandFailed(
                "the request cannot be sent: its address or a header is not possible"
            ) from None
        known = spellings(self._secrets, SHORTEST)

        def masked(value: Any, *path: str) -> Any:
            return map_texts(
                hide_secrets(value, path, mask),
                lambda text: blotted(text, (*known, STAND_IN), mask),
            )

        headers = masked(dict(request.headers), "headers")
        return Resolved(
            method=request.method,
            url=masked(request.url, "url"),
            headers=headers,
            body=masked(request.body.decode("utf-8", "replace"), "body") if request.body else None,
        )

    def _disguised(self) -> Proof:
        credentials = self._credentials
        if credentials is None:
            return NOBODY
        proof = credentials.now() or Proof(headers=(("Authorization", "Bearer -"),))

        def hidden(pairs: Pairs) -> Pairs:
            return tuple((name, _disguise(value)) for name, value in pairs)

        return Proof(
            headers=hidden(proof.headers), query=hidden(proof.query), body=hidden(proof.body)
        )

    async def _prove(self, credentials: Credentials, ends: float) -> Proof:
        try:
            async with asyncio.timeout_at(ends):
                return await credentials.get()
        except Unproved as error:
            raise CommandFailed(error.reason) from None
        except TimeoutError:
            raise CommandFailed(
                f"timed out after {self._how.timeout:g} s, waiting for its credentials"
            ) from None

    async def _again(
        self, credentials: Credentials, proof: Proof, refusal: Refusal, ends: float
    ) -> bool:
        try:
            async with asyncio.timeout_at(ends):
                return await credentials.refused(proof, refusal)
        except Unproved as error:
            raise CommandFailed(error.reason) from None
        except TimeoutError:
            return False

    def _told(self, error: FetchFailed) -> tuple[CommandFailed, bool]:
        """What is said of it, and whether another try may fare better and do no harm."""
        said = str(error)
        if error.too_large:
            return CommandFailed(
                f"{said}; 'max_response' in the command's 'http' section sets the limit"
            ), False
        if error.forbidden and "'allow_private: true'" in said:
            said += " in the command's 'http' section"
        return CommandFailed(said), (self._safe or not error.sent) and not (
            error.forbidden or error.timed_out
        )


def _disguise(value: str) -> str:
    scheme, _, rest = value.partition(" ")
    return f"{scheme} {STAND_IN}" if rest and scheme.isalpha() else STAND_IN


def _refusal(answer: Answer) -> Refusal | None:
    challenge = answer.headers.get("www-authenticate") or ""
    if answer.status == 401 or (answer.status == 403 and challenge):
        return Refusal(answer.status, challenge)
    return None


def _no_time(told: CommandFailed, wait: float | None, timeout: float) -> CommandFailed:
    if wait is None:
        return CommandFailed(
            f"{told} (not tried again: what is left of its {timeout:g} s is too short)"
        )
    return CommandFailed(
        f"{told} (the server asks to wait {wait:,.0f} s, longer than what is left of the "
        f"command's {timeout:g} s)"
    )
