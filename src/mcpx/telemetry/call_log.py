"""The last calls of the gateway, for `mcpx activity` and the admin API.

Without the admin API, the log keeps only metadata. It starts with the first read and ends after an
hour without one. With the admin API, it also keeps the error text of each failed call, and the
arguments and results of calls while a user is watching. A user is watching while an event stream is
open, and for 15 minutes after each read of the log. When the last user stops watching, arguments
and results are deleted.

A finished call only leaves an entry behind. A timer shortens arguments and results 50 ms later, in
slices of 2 ms. If more than 25 calls finish between two slices, only the last 25 keep their
arguments and results. All content together has at most 4 MiB, and the oldest content is deleted
first. Secrets are removed when the log is read, so that they include secrets found later.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from mcpx.base.abridge import Limits, abridge
from mcpx.base.text import one_line
from mcpx.formats.tokens import estimate
from mcpx.model.call import Json, as_list, as_object, is_array, is_object
from mcpx.model.events import Bus, CallFinished, Outcome
from mcpx.model.redaction import Redactor
from mcpx.telemetry.targets import LONGEST, target_of
from mcpx.wire import codec

MAX_CALLS: Final = 500
MAX_CONTENT_BYTES = 4 << 20
MAX_ERROR_CHARACTERS: Final = 300
REDACTION_OVERLAP: Final = 1_024  # Characters after a cut that may complete a secret.
IDLE_SECONDS: Final = 3600.0
WATCH_SECONDS = 900.0
CONTENT_DELAY_SECONDS: Final = 0.05
MAX_PENDING: Final = 25
SLICE_SECONDS: Final = 0.002

MAX_VALUE_BYTES: Final = 16 << 10
MAX_VALUE_PARTS: Final = 200
VALUE_LIMITS: Final = (
    Limits(text=4_000, items=20, depth=12, nodes=40),
    Limits(text=200, items=20, depth=12, nodes=60),
    Limits(text=20, items=10, depth=6, nodes=30),
)
"""The first limits whose result fits into `MAX_VALUE_BYTES` are used. The last ones always fit."""

Listener = Callable[[int, int], None]
"""Receives the first and the last number of new calls."""


@dataclass(slots=True)
class RecordedValue:
    text: bytes
    """JSON."""
    whole: bool
    size: int
    """Bytes of the whole value as JSON. An estimate, if it was abridged."""
    tokens: int


@dataclass(slots=True)
class _Content:
    arguments: RecordedValue | None
    result: RecordedValue | None
    trace_id: str | None
    is_tool_call: bool
    is_kept: bool = True
    """False if the arguments and the result were deleted to save memory."""

    @property
    def size(self) -> int:
        values = (self.arguments, self.result)
        return sum(len(value.text) for value in values if value is not None)


class _Entry:
    """One call. Texts that a client chose are cut."""

    __slots__ = (
        "client",
        "code",
        "content",
        "error",
        "finished_at",
        "method",
        "name",
        "number",
        "outcome",
        "principal",
        "profile",
        "public_name",
        "rule",
        "seconds",
        "server",
    )

    def __init__(self, number: int, finished_at: float, event: CallFinished) -> None:
        passage, seconds, outcome, code = event
        caller = passage.call.caller
        client = caller.client.get("name")
        offer = passage.offer
        self.number = number
        self.finished_at = finished_at
        self.principal = caller.principal[:LONGEST]
        self.profile = caller.profile
        self.client = client[:LONGEST] if isinstance(client, str) else None
        self.method = passage.call.method
        self.server = passage.server
        self.name = target_of(passage)
        self.public_name = None if offer is None else offer.public
        self.rule = passage.rule
        self.outcome: Outcome = outcome
        self.code = code
        self.seconds = seconds
        self.error: str | None = None
        self.content: _Content | None = None

    def metadata(self) -> Json:
        row: Json = {
            "number": self.number,
            "time": round(self.finished_at, 3),
            "principal": self.principal,
            "profile": self.profile,
            "client": self.client,
            "method": self.method,
            "server": self.server,
            "name": self.name,
            "rule": self.rule and self.rule[:LONGEST],
            "outcome": self.outcome,
            "code": self.code,
            "ms": round(self.seconds * 1000, 1),
        }
        return {name: value for name, value in row.items() if value is not None}

    def row(self) -> Json:
        """Metadata, error text, and sizes."""
        row = self.metadata()
        if self.public_name is not None:
            row["public_name"] = self.public_name[:MAX_ERROR_CHARACTERS]
        row["error"] = self.error
        if self.content is not None:
            arguments, result = self.content.arguments, self.content.result
            row["bytes_in"] = arguments and arguments.size
            row["bytes_out"] = result and result.size
            row["tokens_out"] = result and result.tokens
        return row

    @property
    def can_replay(self) -> bool:
        content = self.content
        if content is None or not content.is_kept or not content.is_tool_call:
            return False
        return content.arguments is None or content.arguments.whole

    def delete_content(self) -> int:
        """Delete arguments and result. Return the number of bytes that this freed."""
        content = self.content
        if content is None or not content.is_kept:
            return 0
        content.is_kept = False
        size = content.size
        for value in (content.arguments, content.result):
            if value is not None:
                value.text = b""
        return size


class CallLog:
    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._clock = clock
        self._entries: deque[_Entry] = deque(maxlen=MAX_CALLS)
        self.last: int = 0
        """The number of the last call."""
        self._is_on = False
        self._read_at = clock()

    def _start(self) -> None:
        if not self._is_on:
            self._is_on = True
            self._bus.subscribe(self._finished, CallFinished)

    def end(self) -> None:
        self._is_on = False
        self._bus.unsubscribe(self._finished)
        self._entries.clear()

    def _finished(self, event: CallFinished) -> None:
        now = self._clock()
        if now - self._read_at > IDLE_SECONDS:
            self.end()
            return
        self.last += 1
        self._entries.append(_Entry(self.last, now, event))

    def look(self, after: int = 0, limit: int = MAX_CALLS) -> Json:
        """Return at most `limit` calls after a number, the newest last."""
        self._read_at = self._clock()
        was_on = self._is_on
        self._start()
        calls = [entry.metadata() for entry in self._after(after, limit)]
        return {"calls": calls, "last": self.last, "was_on": was_on}

    def _after(self, number: int, limit: int = MAX_CALLS) -> list[_Entry]:
        count = min(self.last - number, limit, len(self._entries))
        if count <= 0:
            return []
        return list(islice(self._entries, len(self._entries) - count, None))

    def _find(self, number: int) -> _Entry | None:
        index = number - self.last + len(self._entries) - 1
        if 0 <= index < len(self._entries):
            return self._entries[index]
        return None


class RecordedCallLog(CallLog):
    """The call log with the admin API."""

    def __init__(
        self, bus: Bus, redactor: Redactor, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(bus, clock)
        self._redactor = redactor
        self._loop = asyncio.get_running_loop()
        self._pending: deque[tuple[_Entry, CallFinished]] = deque(maxlen=MAX_PENDING)
        self._pending_timer: asyncio.TimerHandle | None = None
        self._content_bytes = 0
        self._with_content: deque[_Entry] = deque(maxlen=MAX_CALLS)
        self._listener: Listener | None = None
        self._announced: int = 0
        """The number of the last call that the listener received."""
        self._is_watched = False
        self._watched_at = 0.0  # Loop time.
        self._watch_timer: asyncio.TimerHandle | None = None
        self._start()

    def end(self) -> None:
        super().end()
        for timer in (self._pending_timer, self._watch_timer):
            if timer is not None:
                timer.cancel()
        self._pending_timer = self._watch_timer = None
        self._pending.clear()
        self._with_content.clear()

    def _finished(self, event: CallFinished) -> None:
        self.last += 1
        entry = _Entry(self.last, self._clock(), event)
        if len(self._entries) == MAX_CALLS:
            self._content_bytes -= self._entries[0].delete_content()
        self._entries.append(entry)
        if not self._is_watched and event.outcome == "ok":
            return
        self._pending.append((entry, event))
        if self._pending_timer is None:
            delay = CONTENT_DELAY_SECONDS
            self._pending_timer = self._loop.call_later(delay, self._process_pending)

    # Content
    # ----------------------------------------------------------------------------------------------

    def _process_pending(self) -> None:
        self._pending_timer = None
        self._add_content(SLICE_SECONDS)
        if self._pending:
            self._pending_timer = self._loop.call_later(0, self._process_pending)

    def _add_content(self, seconds: float) -> None:
        deadline = time.perf_counter() + seconds
        last = 0
        while self._pending and time.perf_counter() < deadline:
            entry, event = self._pending.popleft()
            last = entry.number
            entry.error = self._error_text(event)
            if self._is_watched and self._find(entry.number) is entry:
                entry.content = self._content(event)
                self._content_bytes += entry.content.size
                self._with_content.append(entry)
        while self._content_bytes > MAX_CONTENT_BYTES and self._with_content:
            self._content_bytes -= self._with_content.popleft().delete_content()
        if last > self._announced and self._listener is not None:
            first = self._announced + 1
            self._announced = last
            self._listener(first, last)

    def _error_text(self, event: CallFinished) -> str | None:
        error = event.passage.error
        if event.outcome == "tool_error" and event.passage.answer is not None:
            error = _first_text(event.passage.answer)
        if error is None:
            return None
        text = self._redactor.redact(error[: MAX_ERROR_CHARACTERS + REDACTION_OVERLAP])
        return one_line(text, MAX_ERROR_CHARACTERS)

    def _content(self, event: CallFinished) -> _Content:
        passage = event.passage
        call = passage.call
        arguments = result = None
        if passage.params.get("arguments") is not None:
            arguments = record(passage.params["arguments"], self._redactor.redact)
        if passage.answer is not None:
            result = record(passage.answer, self._redactor.redact)
        trace_id = None
        if passage.span is not None:
            trace_id = passage.span.trace_id
        elif call.request is not None:
            trace_id = call.request.trace_id
        offer = passage.offer
        is_tool_call = call.method == "tools/call" and offer is not None and offer.kind == "tools"
        return _Content(arguments, result, trace_id, is_tool_call)

    # Watching
    # ----------------------------------------------------------------------------------------------

    def hear(self, listener: Listener | None) -> None:
        """Report each call from now on to `listener`. None stops the reports."""
        self._add_content(SLICE_SECONDS)
        self._listener = listener
        self._announced = self.last
        self._watch()

    def _watch(self) -> None:
        self._watched_at = self._loop.time()
        self._is_watched = True
        if self._watch_timer is None:
            self._watch_timer = self._loop.call_later(WATCH_SECONDS, self._stop_watching)

    def _stop_watching(self) -> None:
        if self._listener is not None:
            self._watched_at = self._loop.time()
        remaining = self._watched_at + WATCH_SECONDS - self._loop.time()
        if remaining > 0 or self._listener is not None:
            self._watch_timer = self._loop.call_later(remaining, self._stop_watching)
            return
        self._watch_timer = None
        self._is_watched = False
        self._with_content.clear()
        self._content_bytes = 0
        for entry in self._entries:
            entry.content = None

    # Reading
    # ----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        self._add_content(5 * SLICE_SECONDS)

    def rows(self, after: int = 0, limit: int = MAX_CALLS) -> list[Json]:
        """Return the calls after a number, the newest last. The reader counts as watching."""
        self._watch()
        self._read()
        return [entry.row() for entry in self._after(after, limit)]

    def told_rows(self, after: int) -> list[Json]:
        """Return the same for the listener, without reporting further calls to it meanwhile."""
        return [entry.row() for entry in self._after(after)]

    def failed(self) -> list[Json]:
        """Return the calls that failed. The reader does not count as watching."""
        self._read()
        return [entry.row() for entry in self._entries if entry.outcome != "ok"]

    def detail(self, number: int) -> Json | None:
        """Return one call with its arguments and its result. None: the call is not in the log."""
        self._watch()
        self._read()
        entry = self._find(number)
        if entry is None:
            return None
        detail: Json = {
            "arguments": None,
            "result": None,
            "shortened": False,
            "kept": False,
            "replayable": entry.can_replay,
            "trace": None,
        }
        content = entry.content
        if content is not None:
            detail["trace"] = content.trace_id
            if content.is_kept:
                values = (content.arguments, content.result)
                detail["kept"] = True
                detail["shortened"] = any(value and not value.whole for value in values)
                detail["arguments"], detail["result"] = map(self._without_secrets, values)
        return entry.row() | detail

    def again(self, number: int) -> tuple[str, Json] | None:
        """Return the public name and the exact arguments of a call, or None if they are unknown."""
        self._read()
        entry = self._find(number)
        if entry is None or entry.content is None or not entry.can_replay:
            return None
        if entry.public_name is None:
            return None
        arguments = entry.content.arguments
        return entry.public_name, {} if arguments is None else codec.load(arguments.text)

    def _without_secrets(self, value: RecordedValue | None) -> Any:
        if value is None:
            return None
        return self._redactor.redact_json(codec.load(value.text))


def _first_text(result: Json) -> str | None:
    blocks = as_list(result.get("content"))
    text = as_object(blocks[0]).get("text") if blocks else None
    return text if isinstance(text, str) else None


# Values
# --------------------------------------------------------------------------------------------------


def record(value: Any, redact: Callable[[str], str]) -> RecordedValue:
    """Keep a value that fits unchanged. Abridge a larger one, in a time that does not depend on its
    size."""
    try:
        if _is_small(value):
            text = codec.dump(value)
            if len(text) <= MAX_VALUE_BYTES:
                return RecordedValue(text, True, len(text), estimate(text.decode()))
        for limits in VALUE_LIMITS:
            text = codec.dump(abridge(value, limits, redact))
            if len(text) <= MAX_VALUE_BYTES:
                break
        else:
            text = b"null"
    except codec.Unencodable:
        return RecordedValue(b"null", False, 0, 0)
    size = max(_text_size(value), len(text))
    return RecordedValue(text, False, size, -(-size // 4))


def _is_small(value: Any) -> bool:
    """Return whether the value has few parts and few characters, so that encoding it is cheap."""
    parts = [value]
    characters = 0
    for part in parts:  # The list grows during the loop.
        if isinstance(part, str):
            characters += len(part)
        elif is_object(part):
            if len(parts) + len(part) > MAX_VALUE_PARTS:
                return False
            characters += sum(map(len, part))
            parts.extend(part.values())
        elif is_array(part):
            if len(parts) + len(part) > MAX_VALUE_PARTS:
                return False
            parts.extend(part)
    return characters <= MAX_VALUE_BYTES


def _text_size(value: Any) -> int:
    """Return the characters in the content blocks of a tool result."""
    content = value.get("content") if is_object(value) else None
    if not is_array(content):
        return 0
    total = 0
    for block in islice(content, MAX_VALUE_PARTS):
        if is_object(block):
            texts = (block.get("text"), block.get("data"))
            total += sum(len(text) for text in texts if isinstance(text, str))
    return total
