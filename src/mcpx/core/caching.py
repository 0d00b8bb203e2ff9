"""Answers of read-only tools that are given again, and identical calls that are made once (LIF-9).

Promised: only tools whose server, or command, has a `cache_ttl` and that say they change nothing
come here. An answer is given again only to callers who could have been given it themselves: those
of the same principal and revision whose client says the same of itself; where something of the
caller's own may stand behind the answer (`Source.shares`), only to the same session. What a call
says beside its arguments counts too; a call that says what is not known here (answers to questions,
a state, a task) is neither kept nor merged. Errors, questions and large results are not kept, and
nothing of a source that was replaced meanwhile or has said that it changed.

Merged calls are one call, made for the first caller. Whoever leaves, leaves the others alone; with
the last one the call ends. What the server tells meanwhile is the first caller's, what it asks is
asked of one who still waits.

Results are shared by those who wait: nobody behind this changes one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import orjson

from mcpx.base.aio import Tasks
from mcpx.core.generation import Source
from mcpx.model.call import Call, Json, as_object, is_array, is_object
from mcpx.model.errors import METHOD_NOT_FOUND, SERVER_DOWN, RpcError, Unavailable
from mcpx.wire import codec, era

LARGEST = 1 << 20
"""Bytes of one answer, as JSON."""
IN_ALL = 32 << 20
"""Bytes of all that is kept; what was not asked for longest goes first."""
BESIDE = 512
"""Bytes that keeping an answer takes beside it."""
LONG_KEY = 256
"""Bytes from which on a call is known by its digest."""

_PARAMS = frozenset(("name", "arguments", "_meta"))
_PASSING = frozenset(
    (
        *era.ENVELOPE,
        "progressToken",
        "traceparent",
        "tracestate",
        "baggage",
        "claudecode/toolUseId",
        "vscode.requestId",
    )
)
"""What `_meta` says of the one request, or of the caller, who is counted anyway."""


class _Kept:
    __slots__ = ("at", "key", "raw", "shelf", "ttl")

    def __init__(self, shelf: "_Shelf", key: bytes, raw: bytes, ttl: float, at: float) -> None:
        self.shelf, self.key, self.raw, self.ttl, self.at = shelf, key, raw, ttl, at

    @property
    def size(self) -> int:
        return len(self.raw) + len(self.key) + BESIDE


class _Shelf:
    """What is kept of one source, or one command, and what is on its way. Thrown away as a
    whole."""

    __slots__ = ("flights", "kept", "owner")

    def __init__(self, owner: Hashable) -> None:
        self.owner = owner
        self.kept: dict[bytes, _Kept] = {}
        self.flights: dict[bytes, _Flight] = {}


class _Flight:
    """One call for several callers. Implements `model.call.Voice` for it."""

    def __init__(self, first: Call) -> None:
        self._first = object()
        self._waiting: dict[object, Call] = {self._first: first}
        self.task: asyncio.Task[Json]

    @property
    def abandoned(self) -> bool:
        return not self._waiting

    async def wait(self, server: str, call: Call | None = None) -> Json:
        """`call`: of one who joins."""
        who = self._first
        if call is not None:
            who = object()
            self._waiting[who] = call
        try:
            await asyncio.wait((self.task,))
        finally:
            del self._waiting[who]
        if self.task.cancelled():
            raise Unavailable(server, SERVER_DOWN, "the gateway is ending")
        return self.task.result()

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        voice = next((call.voice for call in self._waiting.values()), None)
        if voice is None:
            raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")
        return await voice.ask(server, method, params)

    def tell(self, method: str, params: Json) -> None:
        first = self._waiting.get(self._first)
        if first is not None and first.voice is not None:
            first.voice.tell(method, params)

    def pause(self, retry_ms: int) -> None:
        first = self._waiting.get(self._first)
        if first is not None and first.voice is not None:
            first.voice.pause(retry_ms)


class Answers:
    """Those of all sources of a gateway."""

    def __init__(self) -> None:
        self._tasks = Tasks("answers")
        self._shelves: dict[Hashable, _Shelf] = {}
        self._order: OrderedDict[_Kept, None] = OrderedDict()
        self.size = 0
        """Bytes kept."""
        self.given = 0
        """Calls that were answered with what was kept, or together with another."""
        self.made = 0
        """Calls that were made."""

    async def of(self, source: Source, name: str, ttl: float, call: Call, params: Json) -> Json:
        """The answer to a call of a read-only tool: one that is kept, or is on its way, or a new
        one."""
        key = _key(source, call, params)
        if key is None:
            return await source.call(call, params, repeatable=True)
        owner = source.answering(name)
        shelf = self._shelves.get(owner)
        if shelf is None:
            shelf = self._shelves[owner] = _Shelf(owner)
        kept = shelf.kept.get(key)
        if kept is not None:
            if _now() - kept.at < ttl:
                self._order.move_to_end(kept)
                self.given += 1
                return codec.load(kept.raw)
            self._let_go(kept)
        flight = shelf.flights.get(key)
        caller = call.caller
        # One that comes back with answers to questions must not share them; one that wants progress
        # would hear none.
        comes_back = caller.modern and bool(caller.answers)
        if comes_back or (flight is not None and "progressToken" in as_object(params.get("_meta"))):
            return await self._ask(source, call, params, shelf, key, ttl)
        joins = call if flight is not None else None
        self.given += flight is not None
        if flight is None:
            flight = shelf.flights[key] = _Flight(call)
            flight.task = self._tasks.start(
                self._fly(source, call, params, shelf, key, ttl, flight), awaited=True
            )
        try:
            return await flight.wait(source.name, joins)
        finally:
            if flight.abandoned:
                _land(shelf, key, flight)  # whoever comes now does not join what is ending
                flight.task.cancel()

    async def _fly(
        self,
        source: Source,
        call: Call,
        params: Json,
        shelf: _Shelf,
        key: bytes,
        ttl: float,
        flight: _Flight,
    ) -> Json:
        try:
            return await self._ask(source, replace(call, own_voice=flight), params, shelf, key, ttl)
        finally:
            _land(shelf, key, flight)

    async def _ask(
        self, source: Source, call: Call, params: Json, shelf: _Shelf, key: bytes, ttl: float
    ) -> Json:
        self.made += 1
        result = await source.call(call, params, repeatable=True)
        if self._shelves.get(shelf.owner) is shelf and (raw := _worth_keeping(result)) is not None:
            self._keep(_Kept(shelf, key, raw, ttl, _now()))
        return result

    def _keep(self, kept: _Kept) -> None:
        before = kept.shelf.kept.get(kept.key)
        if before is not None:
            self._let_go(before)
        kept.shelf.kept[kept.key] = kept
        self._order[kept] = None
        self.size += kept.size
        while (oldest := next(iter(self._order))) is not kept:
            if self.size <= IN_ALL and kept.at - oldest.at < oldest.ttl:
                break
            self._let_go(oldest)

    def _let_go(self, kept: _Kept) -> None:
        del kept.shelf.kept[kept.key], self._order[kept]
        self.size -= kept.size

    def forget(self, owner: Hashable) -> None:
        """What is kept of it is not true any more, nor what is on its way."""
        shelf = self._shelves.pop(owner, None)
        for kept in () if shelf is None else tuple(shelf.kept.values()):
            self._let_go(kept)

    async def close(self) -> None:
        await self._tasks.close()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _land(shelf: _Shelf, key: bytes, flight: _Flight) -> None:
    if shelf.flights.get(key) is flight:
        del shelf.flights[key]


def _key(source: Source, call: Call, params: Json) -> bytes | None:
    """What is asked, and by whom; None of what must not be kept or merged."""
    meta: Any = params.get("_meta", {})
    if not params.keys() <= _PARAMS or not is_object(meta):
        return None
    caller = call.caller
    whose = (
        caller.profile,
        caller.principal,
        caller.version,
        dict(caller.client),
        dict(caller.capabilities),
    )
    own = () if source.shares(caller) else (caller.session,)
    asked = {name: value for name, value in params.items() if name != "_meta"}
    more = {name: value for name, value in meta.items() if name not in _PASSING}
    try:
        raw = orjson.dumps((asked, more, whose, own), option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, half an emoji
        return None
    return raw if len(raw) <= LONG_KEY else blake2b(raw, digest_size=32).digest()


def _worth_keeping(result: Json) -> bytes | None:
    """The answer as JSON, if it is one, and not too large."""
    content: object = result.get("content")
    if (
        result.get("isError")
        or result.get("resultType", "complete") != "complete"
        or not is_array(content)
    ):
        return None
    for block in content:
        text = as_object(block).get("text") or as_object(block).get("data")
        if isinstance(text, str) and len(text) > LARGEST:
            return None
    try:
        raw = codec.dump(result)
    except codec.Unencodable:
        return None
    return raw if len(raw) <= LARGEST else None
