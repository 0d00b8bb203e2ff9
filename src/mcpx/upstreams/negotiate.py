"""Finding out which era a server speaks, without waiting long for one that does not say.

A dual-era server does not announce itself: it answers whichever opening it is given. So the caller names the
openings to try, in order. A mute server costs `PROBE` seconds, not the whole time-out: then the next opening is
sent as well, and whichever is answered first with success decides.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcpx.model.call import Json, as_object
from mcpx.model.errors import SERVER_GARBAGE, SERVER_TIMEOUT, UNSUPPORTED_VERSION, RpcError, Unavailable
from mcpx.wire import era
from mcpx.wire.peer import Conversation

Era = Literal["modern", "older"]

PROBE = 1.5
"""Seconds a server may leave an opening unanswered before the other one is sent too."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are towards a server: the client behind us, or the gateway itself on a link that several share."""

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


async def negotiate(name: str, talk: Conversation, openings: Sequence[Era], who: Identity, timeout: float) -> Terms:
    """Open a conversation by the first opening the server accepts. Raises what the last one was refused with."""
    attempts: dict[asyncio.Task[Terms], Era] = {}
    refused: Exception | None = None
    waiting = list(openings)
    try:
        async with asyncio.timeout(timeout):
            while waiting or attempts:
                if waiting:
                    opening = waiting.pop(0)
                    attempts[asyncio.create_task(_attempt(opening, talk, who))] = opening
                done, _ = await asyncio.wait(
                    attempts, timeout=PROBE if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    opening = attempts.pop(task)
                    error = task.exception()
                    if error is None:
                        terms = task.result()
                        if not terms.modern:
                            talk.notify("notifications/initialized", None)
                        return terms
                    if not isinstance(error, RpcError):
                        raise error
                    # The server's own "speak modern" tells more than the refusal of an older opening before it.
                    if refused is None or opening == openings[0] or _names_modern(error):
                        refused = error
    except TimeoutError:
        excuse: str = getattr(talk, "excuse", "")
        raise Unavailable(
            name, SERVER_TIMEOUT, f"did not complete the handshake within {timeout:g} s{excuse}"
        ) from None
    finally:
        for task in attempts:
            task.cancel()
        if attempts:
            await asyncio.wait(attempts)
    raise refused or Unavailable(name, SERVER_GARBAGE, "did not complete the handshake")


def _names_modern(error: RpcError) -> bool:
    return error.code == UNSUPPORTED_VERSION


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
    params: Json = {"protocolVersion": who.version, "capabilities": who.capabilities, "clientInfo": who.client}
    result = await talk.request("initialize", params)
    version = result.get("protocolVersion")
    if version not in era.OLDER:
        raise RpcError(UNSUPPORTED_VERSION, f"the server answered with the unknown version {version!r}")
    return _terms(version, False, result, result.get("serverInfo"))


def _terms(version: str, modern: bool, result: Json, server: Any) -> Terms:
    instructions = result.get("instructions")
    return Terms(
        version=version,
        modern=modern,
        capabilities=as_object(result.get("capabilities")),
        instructions=instructions if isinstance(instructions, str) else "",
        server=as_object(server),
    )
