"""What was said in the latest calls: arguments and results, for people who look (`--admin` only).

Stands beside `activity`, which has the calls themselves: here is what was given and answered, by
the same numbers, of as many of them, and only while somebody looks: a stream of events is open, or
calls were asked for in the last `LOOKED` seconds. When nobody does any more it is forgotten, and of
calls that come then only the words of an error are kept. Promised: a call only leaves a note
behind; a moment later, in slices, what is large is made short, and what is small is left as it is
until somebody looks; of a storm of calls only the latest are kept. All of it is bounded in bytes:
the oldest go first, their rows stay. What is told of it has no secrets in it: those that are known,
and what stands under a name that says so.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from mcpx.model.call import Json, as_list, as_object, is_array, is_object
from mcpx.model.events import CallFinished, Passage
from mcpx.telemetry.activity import MOST, Activity, Line
from mcpx.telemetry.shortening import shorten
from mcpx.telemetry.trail import Redacts
from mcpx.wire import codec

LOOKED = 900.0
"""Seconds after which nobody looks any more."""
SOON = 0.05
"""Seconds after which a call is looked at."""
AT_ONCE = 25
"""Calls of which what was said is kept in that time, the latest: 500 a second. A busy gateway pays
most for holding on to what it would let go at once."""
SLICE = 0.002
"""Seconds for which calls are looked at in one go."""
MOST_BYTES = 4 << 20
SMALL = 6 << 10
"""Bytes that are reckoned for what is kept as it came."""
LONGEST_ERROR = 300
"""Characters."""
_BEHIND = 1_024

Heard = Callable[[int, int], None]
"""The first and the last number of calls that are told of from now on."""


class _Kept(NamedTuple):
    error: str | None
    trace: str | None
    arguments: bytes | None
    result: bytes | None
    whole_arguments: bool
    whole_result: bool
    bytes_in: int | None
    bytes_out: int | None
    tokens_out: int | None
    callable: bool
    is_kept: bool
    """Whether what was said is here, or was when it came."""

    @property
    def size(self) -> int:
        return len(self.arguments or b"") + len(self.result or b"")


class Recording:
    def __init__(self, activity: Activity, redactor: Redacts) -> None:
        self._activity = activity
        self._redactor = redactor
        self._fresh: deque[tuple[int, CallFinished]] = deque(maxlen=AT_ONCE)
        self._heard = 0
        """The number of the last call that somebody could hear of."""
        self._kept: dict[int, _Kept | CallFinished] = {}
        """In the order of their numbers; what is small, as it came."""
        self._size = 0
        self._bare = 0
        """Up to this number what was said is not kept any more."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._asked = -LOOKED
        """When somebody last asked, by the clock of the loop."""
        self._rest_timer: asyncio.TimerHandle | None = None
        self._listener: Heard | None = None
        activity.record(self._finished)

    def end(self) -> None:
        for timer in (self._timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._rest_timer = None
        self._activity.end()
        self._fresh.clear()
        self._kept.clear()

    # Who looks
    # ----------------------------------------------------------------------------------------------

    def hear(self, listener: Heard | None) -> None:
        """`listener` is told of each call from now on, as soon as it can be; None: nobody is any
        more."""
        self._look_for(SLICE)
        self._listener = listener
        self._heard = self._activity.last
        self._is_looked_at()

    def _is_looked_at(self) -> None:
        self._asked = self._loop.time()
        self._activity.records_all = True
        if self._rest_timer is None:
            self._rest_timer = self._loop.call_later(LOOKED, self._rest)

    def _rest(self) -> None:
        """Nobody looks any more: what was said is nobody's business then."""
        left = self._asked + LOOKED - self._loop.time()
        if left > 0 or self._listener is not None:
            self._rest_timer = self._loop.call_later(left if left > 0 else LOOKED, self._rest)
            return
        self._rest_timer = None
        self._activity.records_all = False
        for number, kept in self._kept.items():
            error = self._error(kept) if isinstance(kept, CallFinished) else kept.error
            self._kept[number] = _NOTHING._replace(error=error)
        self._size, self._bare = 0, self._activity.last

    # What happens
    # ----------------------------------------------------------------------------------------------

    def _finished(self, number: int, event: CallFinished) -> None:
        self._fresh.append((number, event))
        if self._timer is None:
            self._timer = self._loop.call_later(SOON, self._look)

    def _look(self) -> None:
        self._look_for(SLICE)
        self._timer = self._loop.call_later(0, self._look) if self._fresh else None

    def _look_for(self, seconds: float) -> None:
        fresh, until = self._fresh, time.perf_counter() + seconds
        last = 0
        while fresh and time.perf_counter() < until:
            last, event = fresh.popleft()
            if self._activity.records_all:
                self._keep(last, event if _is_small(event.passage) else self._made(event))
            elif (error := self._error(event)) is not None:
                self._keep(last, _NOTHING._replace(error=error))
        if last > self._heard and self._listener is not None:
            first, self._heard = self._heard + 1, last
            self._listener(first, last)

    def _error(self, event: CallFinished) -> str | None:
        answer, error = event.passage.answer, event.passage.error
        if answer is not None and event.outcome == "tool_error":
            error = _first_text(answer)
        return (
            None
            if error is None
            else _one_line(self._redactor.redact(error[: LONGEST_ERROR + _BEHIND]))
        )

    def _made(self, event: CallFinished) -> _Kept:
        passage, redact = event.passage, self._redactor.redact
        offer, answer = passage.offer, passage.answer
        given = passage.params.get("arguments")
        arguments = None if given is None else shorten(given, redact)
        result = None if answer is None else shorten(answer, redact)
        request, span = passage.call.request, passage.span
        return _Kept(
            self._error(event),
            span.trace_id if span is not None else None if request is None else request.trace_id,
            None if arguments is None else arguments.text,
            None if result is None else result.text,
            arguments is None or arguments.whole,
            result is None or result.whole,
            None if arguments is None else arguments.size,
            None if result is None else result.size,
            None if result is None else result.tokens,
            offer is not None and offer.kind == "tools" and passage.call.method == "tools/call",
            True,
        )

    def _keep(self, number: int, kept: _Kept | CallFinished) -> None:
        self._kept[number] = kept
        self._size += _size(kept)
        self._forget(number - MOST)
        while self._size > MOST_BYTES and self._bare < number:
            self._bare += 1
            if self._bare in self._kept:
                self._make_bare(self._bare)

    def _make_bare(self, number: int) -> None:
        full = self._kept[number]
        self._size -= _size(full)
        bare = self._made(full) if isinstance(full, CallFinished) else full
        self._kept[number] = bare._replace(arguments=None, result=None)

    def _forget(self, until: int) -> None:
        while self._kept and (oldest := next(iter(self._kept))) <= until:
            self._size -= _size(self._kept.pop(oldest))
            self._bare = max(self._bare, oldest)

    def _of(self, number: int) -> _Kept | None:
        kept = self._kept.get(number)
        if isinstance(kept, CallFinished):
            self._size -= SMALL
            kept = self._kept[number] = self._made(kept)
            self._size += kept.size
        return kept

    # What is asked
    # ----------------------------------------------------------------------------------------------

    def rows(self, after: int = 0, limit: int = MOST) -> list[Json]:
        """The calls behind a number, the latest last. Whoever asks looks."""
        self._is_looked_at()
        self._look_for(5 * SLICE)  # whoever asks wants to know of what was over before
        return [self._row(row, line) for row, line in self._activity.rows(after, limit)]

    def told_rows(self, after: int) -> list[Json]:
        """For the listener: the same, but nothing more is looked for, so that it is not told in the
        midst of it."""
        return [self._row(row, line) for row, line in self._activity.rows(after, MOST)]

    def failed(self) -> list[Json]:
        """Those of the latest calls that did not go well, without anybody looking."""
        self._look_for(5 * SLICE)
        return [
            self._row(row, line) for row, line in self._activity.rows() if row["outcome"] != "ok"
        ]

    @property
    def last(self) -> int:
        return self._activity.last

    def _row(self, row: Json, line: Line) -> Json:
        if line.public is not None:
            row["public_name"] = line.public[:LONGEST_ERROR]
        kept = self._of(row["number"])
        if kept is None:
            return row
        row["error"] = kept.error
        return {
            **row,
            "bytes_in": kept.bytes_in,
            "bytes_out": kept.bytes_out,
            "tokens_out": kept.tokens_out,
        }

    def detail(self, number: int) -> Json | None:
        """One call with what was said in it, without secrets; None: it is not known (any more)."""
        self._is_looked_at()
        self._look_for(5 * SLICE)
        found = self._activity.row(number)
        if found is None:
            return None
        kept = self._of(number)
        is_kept = kept is not None and kept.is_kept and number > self._bare
        return {
            **self._row(*found),
            "arguments": None if kept is None else self._told(kept.arguments),
            "result": None if kept is None else self._told(kept.result),
            "shortened": is_kept
            and kept is not None
            and not (kept.whole_arguments and kept.whole_result),
            "kept": is_kept,
            "replayable": self._again(number) is not None,
            "trace": None if kept is None else kept.trace,
        }

    def again(self, number: int) -> tuple[str, Json] | None:
        """The public name and the arguments of a call, exactly as they were; None: they are not
        known any more."""
        self._look_for(5 * SLICE)
        kept, found = self._again(number), self._activity.row(number)
        if kept is None or found is None or (name := found[1].public) is None:
            return None
        return name, {} if kept.arguments is None else codec.load(kept.arguments)

    def _again(self, number: int) -> _Kept | None:
        kept = self._of(number)
        if kept is None or number <= self._bare or not kept.callable or not kept.whole_arguments:
            return None
        return kept

    def _told(self, text: bytes | None) -> Any:
        return None if text is None else self._redactor.redact_json(codec.load(text))


_NOTHING = _Kept(None, None, None, None, True, True, None, None, None, False, False)


def _size(kept: _Kept | CallFinished) -> int:
    return SMALL if isinstance(kept, CallFinished) else kept.size


def _is_small(passage: Passage) -> bool:
    """Whether what was said is certainly short: a few short arguments, a short text. Most calls are
    so."""
    given, answer = passage.params.get("arguments"), passage.answer
    if given is not None:
        if not is_object(given) or len(given) > 8:
            return False
        for name, value in given.items():
            if type(value) is str:
                if len(value) + len(name) > 400:
                    return False
            elif type(value) not in _PLAIN or len(name) > 400:
                return False
    if answer is None:
        return True
    content = answer.get("content")
    if (
        len(answer) > 2
        or "structuredContent" in answer
        or not is_array(content)
        or len(content) != 1
    ):
        return False
    block = content[0]
    text = block.get("text") if is_object(block) and len(block) == 2 else None
    return (
        isinstance(text, str) and len(text) <= 2_000 and (len(answer) == 1 or "isError" in answer)
    )


_PLAIN = frozenset((int, float, bool, type(None)))


def _first_text(result: Json) -> str | None:
    content = as_list(result.get("content"))
    text = as_object(content[0]).get("text") if content else None
    return text if isinstance(text, str) else None


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    line = line if line.isprintable() else "".join(c for c in line if c.isprintable())
    return line if len(line) <= LONGEST_ERROR else line[: LONGEST_ERROR - 1] + "…"
