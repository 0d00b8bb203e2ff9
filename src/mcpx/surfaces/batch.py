"""Several calls in one turn (SUR-12): each is made, checked, and shown like a call of its own.

Read-only tools next to each other run in parallel, at most `AT_ONCE`. Any other tool starts when
all calls before it are over, and the calls after it wait for it. After a failure no other call
starts, unless the client asked for that; running calls are finished. If the client cancels, all
running calls are cancelled. Each call is reported with its outcome, in the order of the list. A
text that is too long is kept and can be read.

A client that is asked by results (`input_required`) cannot be asked between several calls. Servers
get a caller that cannot be asked, and refuse or do without. One call in a list is made as if it
stood alone.
"""

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcpx.base.aio import Tasks
from mcpx.catalog.entries import hints_of
from mcpx.model.call import (
    QUESTION_CAPABILITIES,
    Call,
    Json,
    Voice,
    as_list,
    as_object,
    is_array,
    is_object,
)
from mcpx.model.errors import INVALID_PARAMS, Denied, RpcError, Unavailable
from mcpx.model.offer import Offer
from mcpx.surfaces.large.measure import own, size_of
from mcpx.surfaces.large.reading import READER
from mcpx.surfaces.mistakes import Mistake
from mcpx.surfaces.results import MOST_BLOCKS, said, text_of
from mcpx.surfaces.text import cut, fair_share, one_line
from mcpx.surfaces.view import View
from mcpx.wire import codec, era

if TYPE_CHECKING:
    from mcpx.surfaces.compact import Compact

MOST = 20
"""Calls in one list."""
AT_ONCE = 8
"""Read-only calls that run at the same time."""
ROOM = 2
"""Times the limit of one result: what the texts of all may take. Beyond it the longest are kept."""
MARK = 300
"""Characters, about, that say how a kept text is read."""
SHORTEST = 200
"""Characters of a kept text that are shown at least."""
MAX_BYTES = 16 << 20
"""After so many bytes of results no other call starts."""
LONGEST_LIST = 1 << 20
"""Characters of a JSON text that is read as the list of calls."""
DATA = 500
"""Characters of an error's data that are shown."""
RESUMING = frozenset(("requestState", "inputResponses"))
ASKS = "The tool asks the user something, which it can only do in a call of its own."
PROGRESS: Final = "notifications/progress"
NEARLY = 0.99
"""Progress of a running call, at most."""
_OWN_LINE = "[mcpx:"
_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}


def call_schema(**naming: Json) -> Json:
    """The arguments of a call tool; `naming` are those that name a tool. None is required: `calls`
    does without."""
    fields = ", ".join((*naming, "arguments"))
    several = f"Or up to {MOST} at once: {{{fields}}}"
    properties: Json = {
        **naming,
        "arguments": {"type": "object"},
        "calls": {"type": "array", "items": {"type": "object"}, "description": several},
        "continue": {"type": "boolean", "description": "Also after a failure"},
    }
    return {"type": "object", "properties": properties}


@dataclass(frozen=True, slots=True)
class Asked:
    calls: Sequence[Any]
    """As they were given; each is checked when it starts."""
    go_on: bool
    """Also after a failure."""


def asked_for(arguments: Json) -> Asked:
    """The list of calls among a call tool's arguments."""
    calls, go_on = _read(arguments["calls"]), arguments.get("continue")
    if not is_array(calls):
        raise Mistake("calls must be a list of calls")
    if not 1 <= len(calls) <= MOST:
        raise Mistake(f"calls must hold 1 to {MOST} calls, not {len(calls):,}")
    for name, value in arguments.items():
        if name not in ("calls", "continue") and value not in (None, "", {}):
            raise Mistake(f"Give one call or calls, not both: {name} belongs into an item of calls")
    if isinstance(go_on, str):
        go_on = {"true": True, "false": False, "": None}.get(go_on.lower(), go_on)
    if go_on is not None and not isinstance(go_on, bool):
        raise Mistake("continue must be true or false")
    return Asked(calls, go_on is True)


class Made(NamedTuple):
    """A call that was made."""

    result: Json
    arguments: Json
    """As they were sent."""
    repairs: Sequence[str] = ()
    """How they differ from what was given."""


class _Item:
    """One of the calls and its outcome."""

    def __init__(self, number: int, given: Any) -> None:
        self.number = number
        self.given = _read(given)
        self.label = ""
        self.offer: Offer | None = None
        self.outcome = "not run"
        self.made: Made | None = None
        self.shown: Json = {"content": []}

    @property
    def server(self) -> str:
        return "" if self.offer is None else self.offer.server


class Batch:
    def __init__(self, surface: "Compact", view: View, call: Call, asked: Asked) -> None:
        self._surface = surface
        self._view = view
        self._asked = asked
        self._alone = len(asked.calls) == 1
        self._call = call if self._alone else _unasked(call)
        self._muted = self._call.caller is not call.caller
        self._items = [_Item(number, given) for number, given in enumerate(asked.calls, 1)]
        self._progress = Progress(call, len(self._items))
        self._tasks = Tasks("several calls")
        self._running: set[asyncio.Task[None]] = set()
        self._question: Json | None = None
        self._stopped = ""
        """Why no other call starts."""
        self._bytes = 0
        """Of the results so far."""

    async def run(self) -> Json:
        for item in self._items:
            item.label = self._label(item.given)
        try:
            for item in self._items:
                await self._start(item)
            await self._until_running(0)
        finally:
            await self._tasks.close()
        if self._question is not None:
            return self._question
        await self._show_all()
        return self._reply()

    # Calls

    async def _start(self, item: _Item) -> None:
        if self._is_over():
            return
        try:
            offer = item.offer = await self._target(item.given)
        except (Mistake, RpcError) as error:
            await self._fail(item, error)
            return
        item.label = self._name(offer)
        at_once = offer is READER or hints_of(offer).read_only
        await self._until_running(AT_ONCE - 1 if at_once else 0)
        if self._is_over():
            return
        if at_once:
            self._running.add(self._tasks.start(self._make(item, offer), awaited=True))
        else:
            await self._make(item, offer)

    def _is_over(self) -> bool:
        if self._surface.ending:
            self._stopped = self._stopped or "mcpx is ending"
        return bool(self._stopped)

    async def _until_running(self, count: int) -> None:
        while len(self._running) > count:
            done, self._running = await asyncio.wait(
                self._running, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()

    async def _target(self, given: Any) -> Offer:
        if not is_object(given):
            raise Mistake("A call must be an object")
        if "calls" in given:
            raise Mistake("A call cannot hold calls")
        self._surface.only(given, *self._surface.naming, "arguments")
        return await self._surface.target(self._view, given)

    async def _make(self, item: _Item, offer: Offer) -> None:
        call = replace(self._call, own_voice=self._progress.voice_of(item.number))
        try:
            made = await self._surface.called(self._view, call, offer, item.given.get("arguments"))
            if made.result.get("resultType") == "input_required":
                if self._alone:
                    self._question = made.result
                    return
                raise Mistake(ASKS)
        except (Mistake, RpcError) as error:
            await self._fail(item, error)
        else:
            self._done(item, made)

    async def _fail(self, item: _Item, error: Mistake | RpcError) -> None:
        if isinstance(error, Mistake):
            text = await self._surface.guide.explained(self._view, error)
        else:
            text = _error_text(error)
        self._done(item, Made({"content": [said(text)], "isError": True}, {}))
        await asyncio.sleep(0)  # Twenty explanations take a while.

    def _done(self, item: _Item, made: Made) -> None:
        item.made = made
        item.outcome = "ok"
        if made.result.get("isError") is True:
            item.outcome = "failed"
            if not self._asked.go_on:
                self._stopped = self._stopped or f"call {item.number} failed"
        blocks = as_list(made.result.get("content"))
        self._bytes += sum(map(weight_of, blocks[:MOST_BLOCKS]))
        if self._bytes > MAX_BYTES or len(blocks) > MOST_BLOCKS:
            self._stopped = self._stopped or "the results before it take too much room"
        self._progress.finished(item.number, f"{item.label}: {item.outcome}")

    # Results

    async def _show_all(self) -> None:
        """Each whole while there is room for all texts, else the longest are kept."""
        room = ROOM * self._surface.settings.common.result_limit
        sizes = {item.number: _text_size(item.made.result) for item in self._items if item.made}
        share = room
        if sum(sizes.values()) > room:
            share = fair_share(list(sizes.values()), room)
        for item in self._items:
            if item.made is None:
                continue
            how = self._surface.settings.of(item.server)
            if sizes[item.number] > share:
                limit = max(share - MARK, SHORTEST)
                how = replace(how, result_limit=min(how.result_limit, limit))
            if item.offer is None:
                item.shown = await self._surface.bounded(self._call, item.made.result, how)
            else:
                item.shown = await self._surface.shown(self._call, item.offer, item.made, how)
            await asyncio.sleep(0)

    def _reply(self) -> Json:
        blocks: list[Any] = []
        entries: list[Json] = []
        room = 2 * MAX_BYTES
        for item in self._items:
            outcome = item.outcome
            if item.made is None:
                outcome = f"not run: {self._stopped}"
            blocks.append(said(own(f"{item.number} {item.label}: {outcome}")))
            shown = joined(as_list(item.shown.get("content")), room)
            room -= sum(map(weight_of, shown[: MOST_BLOCKS + 1]))
            blocks += shown
            if item.made is not None and item.made.repairs:
                blocks.append(said(f"Note: {'; '.join(item.made.repairs)}"))
            entries.append(self._entry(item, outcome))
        failed = sum(item.outcome != "ok" for item in self._items)
        if failed:
            ok = len(self._items) - failed
            blocks.insert(0, said(own(f"{ok} of {len(self._items)} calls ok")))
        if self._muted and any(item.outcome == "failed" for item in self._items):
            note = "a tool that asks the user something must be called alone, not in calls"
            blocks.append(said(f"Note: {note}"))
        result: Json = {"content": blocks}
        if self._surface.settings.common.structured:
            result["structuredContent"] = self._surface.entries(entries, failed)
        if failed:
            result["isError"] = True
        return result

    def _entry(self, item: _Item, outcome: str) -> Json:
        if item.made is None:
            return self._surface.entry(None, outcome)
        blocks = as_list(item.shown.get("content"))[:MOST_BLOCKS]
        text = "\n".join(text for text in map(text_of, blocks) if text is not None)
        if item.outcome == "failed":
            return self._surface.entry(None, text or "the tool failed")
        value = item.shown.get("structuredContent")
        if value is None:
            value = text or None
        return self._surface.entry(value, None)

    # Names

    def _name(self, offer: Offer) -> str:
        spelled = self._surface.spelled(offer)
        if spelled == offer.name:
            spelled = f"{offer.server}.{offer.name}"
        return cut(one_line(spelled), 100)

    def _label(self, given: Any) -> str:
        """What a call names, before that is known to be a tool."""
        given = as_object(given)
        words = [given.get(key) for key in self._surface.naming]
        label = ".".join(one_line(word[:200]) for word in words if isinstance(word, str))
        return cut(label, 100) or "?"


def _unasked(call: Call) -> Call:
    """The call as one of several: it resumes nothing, and a modern client cannot be asked."""
    caller = call.caller
    if caller.modern and not call.params.keys().isdisjoint(RESUMING):
        told = "requestState and inputResponses belong to a single call, not to several"
        raise RpcError(INVALID_PARAMS, told)
    if caller.modern and caller.answers:
        able = {
            key: value
            for key, value in caller.capabilities.items()
            if key not in QUESTION_CAPABILITIES
        }
        caller = replace(caller, capabilities=able)
    params = {key: value for key, value in call.params.items() if key not in RESUMING}
    return replace(call, params=params, caller=caller)


def _error_text(error: RpcError) -> str:
    """An error of a server as text. Messages of the gateway name the server and say all."""
    if isinstance(error, Unavailable | Denied):
        return error.message
    data = ""
    if error.data is not None and codec.is_writable(error.data):
        data = f", data: {cut(codec.dump(error.data).decode(), DATA)}"
    return f"{error.message} (error {error.code}{data})"


def _read(given: Any) -> Any:
    """The value of a JSON text; None if it is none. Other values stay."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given) if len(given) <= LONGEST_LIST else None
    except (ValueError, RecursionError):
        return None


def _text_size(result: Json) -> int:
    blocks = as_list(result.get("content"))[:MOST_BLOCKS]
    return sum(size_of(text) for text in map(text_of, blocks) if text is not None)


# Blocks of one result among those of others


def joined(blocks: list[Any], room: int) -> list[Any]:
    """Blocks that harm no other result. `room`: bytes for blocks that are never cut.

    Blocks that no client accepts and blocks without room are left out and counted. A line that
    begins like a line of the gateway is moved by a blank.
    """
    kept: list[Any] = []
    odd = large = 0
    for block in blocks:
        if not _is_sound(block):
            odd += 1
            continue
        text = text_of(block)
        if text is not None:
            kept.append({**block, "text": _apart(text)} if _OWN_LINE in text else block)
            continue
        size = weight_of(block)
        if size > room:
            large += 1
        else:
            room -= size
            kept.append(block)
    if odd:
        kept.append(said(own(f"left out: {odd:,} that are no content")))
    if large:
        told = "that are too large among others; call this tool alone"
        kept.append(said(own(f"left out: {large:,} {told}")))
    return kept


def _is_sound(block: Any) -> bool:
    block = as_object(block)
    kind = block.get("type")
    if kind == "resource":
        inner = as_object(block.get("resource"))
        return isinstance(inner.get("uri"), str) and ("text" in inner or "blob" in inner)
    needed = _NEEDED.get(kind) if isinstance(kind, str) else None
    return needed is not None and all(isinstance(block.get(key), str) for key in needed)


def _apart(text: str) -> str:
    return "\n".join(
        f" {line}" if line.startswith(_OWN_LINE) else line for line in text.split("\n")
    )


def weight_of(block: Any) -> int:
    """The characters of a block's texts and data."""
    block = as_object(block)
    values = (*block.values(), *as_object(block.get("resource")).values())
    return sum(len(value) for value in values if isinstance(value, str))


# Progress


class Progress:
    """The progress of several calls as that of one. Each counts one; the sum only grows (PRO-2)."""

    def __init__(self, call: Call, count: int) -> None:
        self._inner = call.voice
        self._token = era.meta_of(call.params).get("progressToken")
        self._parts = [0.0] * count
        self._told = -1.0

    def voice_of(self, number: int) -> Voice | None:
        if self._inner is None or len(self._parts) == 1:
            return self._inner
        return _OneVoice(self, self._inner, number)

    def step(self, number: int, params: Json) -> None:
        done, total = _number(params.get("progress")), _number(params.get("total"))
        part = done / (total or done + 1)
        self._advance(number, min(part, NEARLY), params)

    def finished(self, number: int, message: str) -> None:
        if self._token is not None and len(self._parts) > 1:
            told: Json = {"progressToken": self._token, "message": message}
            self._advance(number, 1.0, told)

    def _advance(self, number: int, part: float, params: Json) -> None:
        self._parts[number - 1] = max(self._parts[number - 1], part)
        now = round(sum(self._parts), 4)
        if now > self._told and self._inner is not None:
            self._told = int(now) if now.is_integer() else now
            told = {**params, "progress": self._told, "total": len(self._parts)}
            self._inner.tell(PROGRESS, told)


class _OneVoice:
    """The way back to the client from one of several calls."""

    __slots__ = ("_inner", "_number", "_progress")

    def __init__(self, progress: Progress, inner: Voice, number: int) -> None:
        self._progress = progress
        self._inner = inner
        self._number = number

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        return await self._inner.ask(server, method, params)

    def tell(self, method: str, params: Json) -> None:
        if method == PROGRESS:
            self._progress.step(self._number, params)
        else:
            self._inner.tell(method, params)

    def pause(self, retry_ms: int) -> None:
        self._inner.pause(retry_ms)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    if not 0 < value < 1e300 or not math.isfinite(value):
        return 0.0
    return float(value)
