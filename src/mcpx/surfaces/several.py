"""Several calls in one turn (SUR-12): each made, checked and told like a call of its own, in the
order of the list.

Promised: read-only tools next to each other run at the same time, `AT_ONCE` at most; any other tool
begins when all before it are over, and all after it wait for it. After a failure nothing more
begins unless that was asked for; what runs already is waited for. When the client gives up, all
that runs is cancelled and nothing more begins. Every call is told with its outcome, `not run` if
that is what it is; no result is lost: what is too long is kept back and named.

A client that is asked by results (`input_required`) cannot be asked in the middle of several calls:
servers are told that it cannot be asked at all, and refuse or do without. One call in a list is
made as if it stood alone.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpx.base.aio import Tasks
from mcpx.catalog.entries import hints_of
from mcpx.model.call import QUESTION_CAPABILITIES, Call, Json, as_list, is_array, is_object
from mcpx.model.errors import INVALID_PARAMS, Denied, RpcError, Unavailable
from mcpx.model.offer import Offer
from mcpx.surfaces.blocks import HELD, joined, weight_of
from mcpx.surfaces.finding.mistakes import Mistake
from mcpx.surfaces.large.measure import own, size_of, weigh
from mcpx.surfaces.own import READER
from mcpx.surfaces.progress import Progress
from mcpx.surfaces.results import MOST_BLOCKS, said, text_of
from mcpx.surfaces.text import cut, one_line
from mcpx.surfaces.view import View
from mcpx.wire import codec

if TYPE_CHECKING:
    from mcpx.surfaces.compact import Compact

MOST = 20
"""Calls in one list."""
AT_ONCE = 8
"""Read-only calls that run at the same time."""
ROOM = 2
"""Times the limit of one result: what the texts of all may take. Beyond it the longest are kept
back."""
MARK = 300
"""Characters, about, that say how a text that was kept back is read."""
SHORTEST = 200
"""Characters of a text that is kept back which are shown at least."""
WHOLE = 16 << 20
"""Bytes of images and the like, which are never cut: after so much of them no other call begins."""
LONGEST_LIST = 1 << 20
"""Characters of a JSON text that is read as the list of calls."""
DATA = 500
"""Characters of an error's data that are told."""
RESUMING = frozenset(("requestState", "inputResponses"))
ASKS = "The tool asks the user something, which it can only do in a call of its own."


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
    """What came; each is looked at when it is its turn."""
    go_on: bool
    """Also after a failure."""


def asked_for(arguments: Json) -> Asked:
    """The list of calls among a call tool's arguments."""
    calls, go_on = arguments["calls"], arguments.get("continue")
    if isinstance(calls, str):
        calls = _read(calls)
    if not is_array(calls):
        raise Mistake("calls must be a list of calls")
    if not 1 <= len(calls) <= MOST:
        raise Mistake(f"calls must hold 1 to {MOST} calls, not {len(calls):,}")
    for name, value in arguments.items():
        if name not in ("calls", "continue") and value not in (None, "", {}):
            raise Mistake(f"Give one call or calls, not both: {name} belongs into an item of calls")
    if isinstance(go_on, str) and go_on.lower() in ("true", "false", ""):
        go_on = go_on.lower() == "true"
    if go_on is not None and not isinstance(go_on, bool):
        raise Mistake("continue must be true or false")
    return Asked(calls, go_on is True)


class Made(NamedTuple):
    """A call that was made."""

    result: Json
    """As it came."""
    arguments: Json
    """As they were sent."""
    repairs: Sequence[str] = ()
    """How they differ from what was given."""


class _One:
    """One of the calls, and what became of it."""

    __slots__ = ("at", "given", "label", "made", "offer", "outcome", "repairs", "shown")

    def __init__(self, at: int, given: Any) -> None:
        self.at = at
        self.given = given
        self.label = ""
        self.offer: Offer | None = None
        self.outcome = "not run"
        self.made: Made | None = None
        """Its result as it came, while it waits."""
        self.repairs: Sequence[str] = ()
        self.shown: Json = {"content": []}


class Several:
    def __init__(self, surface: "Compact", view: View, call: Call, asked: Asked) -> None:
        self._surface = surface
        self._view = view
        self._asked = asked
        self._alone = len(asked.calls) == 1
        self._call = call if self._alone else _unasked(call)
        self._muted = self._call.caller is not call.caller
        self._ones = [_One(at, given) for at, given in enumerate(asked.calls, 1)]
        self._progress = Progress(call, len(self._ones))
        self._tasks = Tasks("several calls")
        self._running: set[asyncio.Task[None]] = set()
        self._question: Json | None = None
        self._why = ""
        """Why nothing more begins."""
        limit = surface.settings.common.result_limit
        self._room = ROOM * limit
        self._tight = min(limit, max(self._room // len(self._ones) // 2, SHORTEST))
        """What is shown of a text that is kept back for the sake of the others."""
        self._taken = self._weight = 0
        """Characters of texts that are made short already; bytes of what is never cut."""

    async def run(self) -> Json:
        try:
            await self._all()
        finally:
            await self._tasks.close()
        if self._question is not None:
            return self._question
        await self._shorten()
        return self._whole()

    # Making them
    # ----------------------------------------------------------------------------------------------

    async def _all(self) -> None:
        for one in self._ones:
            one.label = self._label(one.given)
        for one in self._ones:
            if self._is_over():
                break
            try:
                one.offer = offer = await self._target(one)
            except (Mistake, RpcError) as error:
                await self._fail(one, error)
                continue
            one.label = self._name(offer)
            at_once = offer is READER or hints_of(offer).read_only
            await self._until_running(AT_ONCE - 1 if at_once else 0)
            if self._is_over():
                break
            if at_once:
                self._running.add(self._tasks.start(self._make(one, offer), awaited=True))
            else:
                await self._make(one, offer)
        await self._until_running(0)

    def _is_over(self) -> bool:
        """Whether nothing more begins."""
        if self._surface.ending:
            self._why = self._why or "mcpx is ending"
        return bool(self._why)

    async def _until_running(self, count: int) -> None:
        while len(self._running) > count:
            done, self._running = await asyncio.wait(
                self._running, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()  # a bug is not passed over

    async def _target(self, one: _One) -> Offer:
        given = _read(one.given) if isinstance(one.given, str) else one.given
        if not is_object(given):
            raise Mistake("A call must be an object")
        if "calls" in given:
            raise Mistake("A call cannot hold calls")
        one.given = given
        self._surface.only(given, *self._surface.naming, "arguments")
        return await self._surface.target(self._view, given)

    async def _make(self, one: _One, offer: Offer) -> None:
        call = replace(self._call, own_voice=self._progress.voice_of(one.at))
        try:
            made = await self._surface.called(self._view, call, offer, one.given.get("arguments"))
            if made.result.get("resultType") == "input_required":
                if self._alone:
                    self._question = made.result
                    return
                raise Mistake(ASKS)
        except (Mistake, RpcError) as error:
            await self._fail(one, error)
        else:
            one.repairs = made.repairs
            await self._done(one, made)

    async def _fail(self, one: _One, error: Mistake | RpcError) -> None:
        text = (
            await self._surface.guide.explained(self._view, error)
            if isinstance(error, Mistake)
            else _told(error)
        )
        await self._done(one, Made({"content": [said(text)], "isError": True}, {}))
        await asyncio.sleep(0)  # to find what was meant takes a while, and there may be twenty

    async def _done(self, one: _One, made: Made) -> None:
        result = made.result
        one.outcome = "failed" if result.get("isError") is True else "ok"
        if one.outcome == "failed" and not self._asked.go_on:
            self._why = self._why or f"call {one.at} failed"
        if weigh(result, HELD) <= HELD:
            one.made = made
        else:
            size = _size(result)
            whole = size <= self._surface.settings.of(self._server(one)).result_limit
            await self._show(one, made, tight=not whole or self._taken + size > self._room)
            self._taken += _size(one.shown)
            self._weight += sum(
                map(weight_of, as_list(one.shown.get("content"))[: MOST_BLOCKS + 1])
            )
            if self._weight > WHOLE or len(as_list(one.shown.get("content"))) > MOST_BLOCKS:
                self._why = self._why or "the results before it take too much room"
        self._progress.finished(one.at, f"{one.label}: {one.outcome}")

    # Telling of them
    # ----------------------------------------------------------------------------------------------

    async def _shorten(self) -> None:
        """Those that waited: whole while there is room for all, else the longest of them are kept
        back."""
        sizes = {one.at: _size(one.made.result) for one in self._ones if one.made is not None}
        total = self._taken + sum(sizes.values())
        tight: set[int] = set()
        for at in sorted(sizes, key=lambda at: sizes[at], reverse=True):
            saved = sizes[at] - self._tight - MARK
            if total <= self._room or saved <= 0:
                break
            tight.add(at)
            total -= saved
        for one in self._ones:
            if one.made is not None:
                await self._show(one, one.made, tight=one.at in tight)
                one.made = None
                await asyncio.sleep(0)

    async def _show(self, one: _One, made: Made, *, tight: bool) -> None:
        how = self._surface.settings.of(self._server(one))
        if tight:
            how = replace(how, result_limit=min(how.result_limit, self._tight))
        if one.offer is None:
            one.shown = await self._surface.bounded(self._call, made.result, how)
        else:
            one.shown = await self._surface.shown(self._call, one.offer, made, how)

    def _whole(self) -> Json:
        blocks: list[Any] = []
        entries: list[Json] = []
        room = 2 * WHOLE  # of those that ran at the same time none could know of the others
        for one in self._ones:
            ran = one.outcome != "not run"
            outcome = one.outcome if ran else f"not run: {self._why}"
            blocks.append(said(own(f"{one.at} {one.label}: {outcome}")))
            told = joined(as_list(one.shown.get("content")), room)
            room -= sum(map(weight_of, told[: MOST_BLOCKS + 1]))
            blocks += told
            if one.repairs:
                blocks.append(said(f"Note: {'; '.join(one.repairs)}"))
            entries.append(self._entry(one) if ran else self._surface.entry(None, outcome))
        failed = sum(one.outcome != "ok" for one in self._ones)
        if failed:
            blocks.insert(0, said(own(f"{len(self._ones) - failed} of {len(self._ones)} calls ok")))
        if self._muted and any(one.outcome == "failed" for one in self._ones):
            blocks.append(
                said("Note: a tool that asks the user something must be called alone, not in calls")
            )
        result: Json = {"content": blocks}
        if self._surface.settings.common.structured:
            result["structuredContent"] = self._surface.entries(entries, failed)
        return {**result, "isError": True} if failed else result

    def _entry(self, one: _One) -> Json:
        blocks = as_list(one.shown.get("content"))[:MOST_BLOCKS]
        text = "\n".join(text for block in blocks if (text := text_of(block)) is not None)
        if one.outcome == "failed":
            return self._surface.entry(None, text or "the tool failed")
        value = one.shown.get("structuredContent")
        return self._surface.entry(text or None if value is None else value, None)

    def _server(self, one: _One) -> str:
        return "" if one.offer is None else one.offer.server

    def _name(self, offer: Offer) -> str:
        spelled = self._surface.spelled(offer)
        return cut(
            one_line(f"{offer.server}.{offer.name}" if spelled == offer.name else spelled), 100
        )

    def _label(self, given: Any) -> str:
        """What a call names, before that is known to be a tool."""
        words = [given.get(key) for key in self._surface.naming] if is_object(given) else ()
        return (
            cut(".".join(one_line(word[:200]) for word in words if isinstance(word, str)), 100)
            or "?"
        )


def _unasked(call: Call) -> Call:
    """The call as one of several: it resumes nothing, and who is asked by results is not asked."""
    caller = call.caller
    if caller.modern and not call.params.keys().isdisjoint(RESUMING):
        raise RpcError(
            INVALID_PARAMS,
            "requestState and inputResponses belong to a single call, not to several",
        )
    if caller.modern and caller.answers:
        able = {
            key: value
            for key, value in caller.capabilities.items()
            if key not in QUESTION_CAPABILITIES
        }
        caller = replace(caller, capabilities=able)
    params = {key: value for key, value in call.params.items() if key not in RESUMING}
    return replace(call, params=params, caller=caller)


def _told(error: RpcError) -> str:
    """An error of a server as text; of our own, which name the server, the message says all."""
    if isinstance(error, Unavailable | Denied):
        return error.message
    try:
        data = "" if error.data is None else f", data: {cut(codec.dump(error.data).decode(), DATA)}"
    except codec.Unencodable:
        data = ""
    return f"{error.message} (error {error.code}{data})"


def _read(text: str) -> Any:
    """The value of a JSON text; None for what is none."""
    try:
        return json.loads(text) if len(text) <= LONGEST_LIST else None
    except (ValueError, RecursionError):
        return None


def _size(result: Json) -> int:
    blocks = as_list(result.get("content"))[:MOST_BLOCKS]
    return sum(size_of(text) for block in blocks if (text := text_of(block)) is not None)
