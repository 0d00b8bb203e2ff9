"""Finding out which era a server speaks, without waiting long for one that does not say.

A program that downloads itself has more time until its first byte of output (`Deadline`, LIF-10).

A dual-era server does not announce itself: it answers whichever opening it is given. So the caller
names the openings to try, in order. A mute server costs `PROBE` seconds, not the whole time-out:
then the next opening is sent as well, and whichever is answered first with success decides.

"Not this era" and "not now" are told apart: a server that is busy (429, 503) is not asked anything
else, and an opening that failed only for now says nothing of the eras it speaks.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, cast

from mcpx.model.call import Json, as_object
from mcpx.model.errors import (
    METHOD_NOT_FOUND,
    SERVER_TIMEOUT,
    UNSUPPORTED_VERSION,
    RpcError,
    Unavailable,
)
from mcpx.wire import codec, era
from mcpx.wire.peer import Conversation

Era = Literal["modern", "older"]

PROBE = 1.5
"""Seconds a server may leave an opening unanswered before the other one is sent too."""

LONGEST_INSTRUCTIONS = 64 * 2**10
"""Characters of a server's instructions that are kept; clients are shown a few thousand of all
servers."""
LARGEST_ABOUT_ITSELF = 64 * 2**10
"""Bytes of what a server says about itself and its capabilities; of more only the outline is
kept."""
SHORTENED = 128
"""Keys of such an outline, and characters of each and of a text in it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are towards a server: the client behind us, or the gateway itself on a link that
    several share."""

    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    version: str = era.LATEST_OLDER


@dataclass(frozen=True, slots=True)
class Terms:
    """What was agreed on."""

    version: str
    modern: bool
    capabilities: Mapping[str, Any]
    instructions: str
    server: Mapping[str, Any]
    refused: frozenset[Era] = frozenset()
    """Eras the server was asked for first and certainly does not speak; one that only failed is not
    among them."""


BUSY = (429, 503)
_PASSED_OVER = RpcError(METHOD_NOT_FOUND, "left unanswered")


def is_refusal(error: RpcError) -> bool:
    """Whether a failed opening means "not this era", as against "not now" or "not without signing
    in"."""
    status = error.http_status
    if error.passing or status in (401, 403, 407):
        return False
    return not isinstance(error, Unavailable) or (status is not None and status >= 400)


class Deadline:
    """Time limit of a handshake: `start` seconds until the first byte of output, `timeout` from
    that byte on."""

    def __init__(self, start: float, timeout: float) -> None:
        self.start = start
        self.timeout = timeout
        self.has_output = False
        self._scope: asyncio.Timeout | None = None

    @asynccontextmanager
    async def applied(self) -> AsyncGenerator[None]:
        async with asyncio.timeout(self.timeout if self.has_output else self.start) as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    def output_began(self) -> None:
        self.has_output = True
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time() + self.timeout)

    def __str__(self) -> str:
        """The reason for the error after this deadline."""
        if self.has_output or self.start == self.timeout:
            return f"did not complete the handshake within {self.timeout:g} s"
        return (
            f"wrote nothing to standard output within {self.start:g} s of its start (start_timeout)"
        )


async def negotiate(
    name: str, talk: Conversation, openings: Sequence[Era], who: Identity, deadline: Deadline
) -> Terms:
    """Open a conversation by the first opening the server accepts. Raises what tells most of those
    that failed."""
    attempts: dict[asyncio.Task[Terms], Era] = {}
    failed: dict[Era, RpcError] = {}
    waiting = list(openings)
    try:
        async with deadline.applied():
            while waiting or attempts:
                if waiting:
                    opening = waiting.pop(0)
                    attempts[asyncio.create_task(_attempt(opening, talk, who))] = opening
                done, _ = await asyncio.wait(
                    attempts,
                    timeout=PROBE if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                accepted: Terms | None = None
                for task in done:
                    opening = attempts.pop(task)
                    error = task.exception()
                    if error is None:
                        # One sent before and left unanswered was passed over by the server.
                        mute = openings[: openings.index(opening)]
                        failed.update(
                            (era, _PASSED_OVER) for era in mute if era in attempts.values()
                        )
                        accepted = task.result()
                    elif isinstance(error, RpcError):
                        failed[opening] = error
                    else:
                        raise error
                if accepted is not None:
                    return _concluded(talk, accepted, failed)
                if any(error.http_status in BUSY for error in failed.values()):
                    waiting.clear()
    except TimeoutError:
        excuse: str = getattr(talk, "excuse", "")
        raise Unavailable(name, SERVER_TIMEOUT, f"{deadline}{excuse}") from None
    finally:
        for task in attempts:
            task.cancel()
        if attempts:
            await asyncio.wait(attempts)
    raise _most_telling(failed)


def _concluded(talk: Conversation, terms: Terms, failed: Mapping[Era, RpcError]) -> Terms:
    if not terms.modern:
        talk.notify("notifications/initialized", None)
    return replace(
        terms, refused=frozenset([era for era, error in failed.items() if is_refusal(error)])
    )


def _most_telling(failed: Mapping[Era, RpcError]) -> RpcError:
    """The handshake's own error, not that of the probe before it; unless the server knows no
    handshake, and the probe failed only for now or says which versions there are."""
    probe, handshake = failed.get("modern"), failed.get("older")
    if probe is None or handshake is None:
        return cast(RpcError, probe or handshake)
    told = handshake
    if handshake.code != UNSUPPORTED_VERSION or probe.passing:
        knows_none = handshake.code in (UNSUPPORTED_VERSION, METHOD_NOT_FOUND)
        if (
            knows_none
            and is_refusal(handshake)
            and (probe.passing or probe.code == UNSUPPORTED_VERSION)
        ):
            told = probe
    if isinstance(told, Unavailable):
        wishes = [
            e.retry_after
            for e in failed.values()
            if isinstance(e, Unavailable) and e.retry_after is not None
        ]
        told.retry_after = max(wishes, default=None)
    return told


def _supports_ours(data: Any) -> bool:
    supported: Any = as_object(data).get("supported")
    return isinstance(supported, list) and era.LATEST_MODERN in supported


def _attempt(opening: Era, talk: Conversation, who: Identity) -> Coroutine[Any, Any, Terms]:
    return _discover(talk, who) if opening == "modern" else _initialize(talk, who)


async def _discover(talk: Conversation, who: Identity) -> Terms:
    params = era.stamped({}, who.client, who.capabilities, None)
    try:
        result = await talk.request("server/discover", params)
    except RpcError as error:
        if error.code != UNSUPPORTED_VERSION or not _supports_ours(error.data):
            raise
        # It refused, and names the very version it was asked in: worth asking once more.
        result = await talk.request("server/discover", params)
    versions: Any = result.get("supportedVersions")
    if not isinstance(versions, list) or era.LATEST_MODERN not in versions:
        raise RpcError(UNSUPPORTED_VERSION, "the server offers no modern version we speak")
    return _terms(era.LATEST_MODERN, True, result, era.meta_of(result).get(era.SERVER_KEY))


async def _initialize(talk: Conversation, who: Identity) -> Terms:
    params: Json = {
        "protocolVersion": who.version,
        "capabilities": who.capabilities,
        "clientInfo": who.client,
    }
    result = await talk.request("initialize", params)
    version = result.get("protocolVersion")
    if version not in era.OLDER:
        raise RpcError(
            UNSUPPORTED_VERSION, f"the server answered with the unknown version {version!r}"
        )
    return _terms(version, False, result, result.get("serverInfo"))


def _terms(version: str, modern: bool, result: Json, server: Any) -> Terms:
    instructions = result.get("instructions")
    return Terms(
        version=version,
        modern=modern,
        capabilities=_bounded(as_object(result.get("capabilities"))),
        instructions=instructions[:LONGEST_INSTRUCTIONS] if isinstance(instructions, str) else "",
        server=_bounded(as_object(server)),
    )


def _bounded(told: Json) -> Json:
    """As it is, unless it is no end of it: then what is short, two levels deep."""
    try:
        if len(codec.dump(told)) <= LARGEST_ABOUT_ITSELF:
            return told
    except codec.Unencodable:
        pass
    return {
        key: _shortened(value)
        for key, value in islice(told.items(), SHORTENED)
        if len(key) <= SHORTENED
    }


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        inside = cast(Json, value)
        return {
            k: v
            for k, v in islice(inside.items(), SHORTENED)
            if len(k) <= SHORTENED and isinstance(v, bool)
        }
    return (
        value[:SHORTENED] if isinstance(value, str) else value if isinstance(value, bool) else None
    )
