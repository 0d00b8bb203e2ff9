"""What a script prints: its result, its progress, and why it failed (SRC-4).

Promised: standard output up to a bound is kept, beyond it the script is over; of standard error the
end is kept (`StderrLog`). Bytes that are not UTF-8 are replaced. In what is told of a failure there
are no control characters, no terminal sequences and no secrets of the script's environment.
"""

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

from mcpx.commands.work import CommandFailed, Progress
from mcpx.model.call import Json
from mcpx.processes.stderrlog import readable, shortened
from mcpx.wire import codec

STDERR_TOLD = 8 * 1024
"""Characters of standard error, from its end, in an error."""
STDOUT_TOLD = 2 * 1024
"""Characters of standard output, from its beginning, in an error."""
LARGE = 16 * 1024
"""Bytes of JSON from which on a query is answered beside everything else."""
PROGRESS_EVERY = 0.05
"""Seconds between two reports of progress; of those between, the last one counts."""
MANY = 16
"""Lines of progress in one piece of standard error, from which on only the last one is read."""

_PREFIX = b"::progress "
_LINE = re.compile(rb"^::progress [^\n]*(?:\n|\Z)", re.MULTILINE)
_NUMBER = r"\d{1,15}(?:\.\d{1,15})?"
_REPORT = re.compile(rf"::progress +({_NUMBER})(?:(%)|/({_NUMBER}))?(?: +(.*))?", re.DOTALL)
_LONGEST = 2048
"""Bytes of a line that is progress."""


class Reports:
    """Takes the lines of progress out of standard error; the rest goes on to `feed`."""

    def __init__(self, feed: Callable[[bytes], None], progress: Progress | None) -> None:
        self._feed, self._progress = feed, progress
        self._loop = asyncio.get_running_loop()
        self._held = b""
        """The beginning of a line that may be progress."""
        self._inside = False
        """In the midst of a line that is not."""
        self._furthest = -1.0
        self._pending: tuple[float, float | None, str | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._told = -PROGRESS_EVERY

    def take(self, data: bytes) -> None:
        data, self._held = self._held + data, b""
        if self._inside:
            end = data.find(b"\n") + 1
            if not end:
                self._feed(data)
                return
            self._feed(data[:end])
            data = data[end:]
        whole, newline, last = data.rpartition(b"\n")
        self._inside = False
        if len(last) <= _LONGEST and (last.startswith(_PREFIX) or _PREFIX.startswith(last)):
            self._held = last
        else:
            self._inside = True
            newline += last
        if rest := self._sifted(whole + newline):
            self._feed(rest)

    def end(self) -> None:
        """Nothing more comes: the last report goes out."""
        held, self._held = self._held, b""
        if rest := self._sifted(held):
            self._feed(rest)
        self._tell()
        self.stop()

    def stop(self) -> None:
        """Nobody wants to know any more: the call is answered, though its process may speak on
        until it is gone."""
        self._progress = self._pending = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sifted(self, data: bytes) -> bytes:
        several = data.count(_PREFIX)
        if not several:
            return data
        if several > MANY:
            for last in _LINE.findall(data, data.rfind(b"\n" + _PREFIX) + 1)[-1:]:
                self._report(last)
            return _LINE.sub(b"", data)
        return _LINE.sub(lambda found: b"" if self._report(found[0]) else found[0], data)

    def _report(self, line: bytes) -> bool:
        if len(line) > _LONGEST:
            return False
        found = _REPORT.fullmatch(line.decode("utf-8", "replace").rstrip("\r\n"))
        if found is None:
            return False
        done, percent, of, words = found.groups()
        total = 100.0 if percent else None if of is None else float(of)
        if total == 0:
            return False
        if self._progress is not None and (at := float(done)) > self._furthest:
            self._furthest = at
            message = shortened(readable((words or "").encode()))
            self._pending = (_plain(at), None if total is None else _plain(total), message or None)
            wait = self._told + PROGRESS_EVERY - self._loop.time()
            if wait <= 0:
                self._tell()
            elif self._timer is None:
                self._timer = self._loop.call_later(wait, self._tell)
        return True

    def _tell(self) -> None:
        self._timer = None
        if self._pending is not None and self._progress is not None:
            told, self._pending = self._pending, None
            self._told = self._loop.time()
            self._progress(*told)


def _plain(number: float) -> float:
    return int(number) if number.is_integer() else number


async def result_of(raw: bytes, query: str | None, redact: Callable[[str], str]) -> Json:
    """The result of a script that printed this. `query`: JMESPath over its JSON."""
    if query is not None and len(raw) > LARGE:
        return await asyncio.to_thread(_result_of, raw, query, redact)
    return _result_of(raw, query, redact)


def _result_of(raw: bytes, query: str | None, redact: Callable[[str], str]) -> Json:
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    try:
        value = codec.load(raw, strict=True)
    except codec.BadJson:
        if query is not None:
            told = _head(raw, redact) or "(nothing)"
            raise CommandFailed(f"its output is not JSON, which 'result' needs: {told}") from None
        return {"content": [{"type": "text", "text": text}]}
    if query is not None:
        value = _selected(query, value)
        text = (
            value if isinstance(value, str) else codec.dump(value).decode("utf-8", "surrogatepass")
        )
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": value if isinstance(value, dict) else {"result": value},
    }


def _selected(query: str, value: Any) -> Any:
    import jmespath  # only a command with `result` pays for it
    import jmespath.exceptions

    try:
        return jmespath.search(query, value)
    except jmespath.exceptions.JMESPathError as error:
        raise CommandFailed(
            f"'result' does not fit its output: {shortened(readable(str(error).encode()))}"
        ) from None


def failure_of(
    how: str, errors: Sequence[str], printed: bytes, redact: Callable[[str], str]
) -> CommandFailed:
    """What a caller is told: how it ended, the end of standard error, the beginning of standard
    output."""
    told = "\n".join(errors)
    if len(told) > STDERR_TOLD:
        told = "…" + told[-STDERR_TOLD:]
    parts = [
        how,
        f"stderr: {told}" if told else "",
        f"stdout: {_head(printed, redact)}" if printed.strip() else "",
    ]
    return CommandFailed("\n".join(filter(None, parts)))


def ended_by(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}" + (
        ": it wrote a file larger than 'max_file'" if name == "SIGXFSZ" else ""
    )


def _head(printed: bytes, redact: Callable[[str], str]) -> str:
    """Cut last of all: half a secret would not be known for one."""
    lines = [readable(line) for line in printed[: 8 * STDOUT_TOLD].strip().split(b"\n")]
    text = redact("\n".join(lines))
    return text if len(text) <= STDOUT_TOLD else text[:STDOUT_TOLD] + "…"
