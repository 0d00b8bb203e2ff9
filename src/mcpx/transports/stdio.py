"""A server as a child process, spoken to over its standard input and output."""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, SERVER_GARBAGE, Unavailable
from mcpx.processes import npx_cache, process
from mcpx.processes.downloaders import downloads_itself
from mcpx.processes.stderrlog import Allowance, StderrLog, readable, redaction, shortened
from mcpx.transports.dial import Carried, Dial
from mcpx.wire.framing import MessageReader, Patience, frame
from mcpx.wire.peer import Conversation

log = logging.getLogger(__name__)
_server_log = logging.getLogger("mcpx.server")

NO_SERVER = 1_000
"""Lines on standard output that are no messages, before the first one that is: no program that is
an MCP server prints so many, and one that prints for ever would take the time of all others."""
NOISE = 16 * 2**20
"""Bytes of what is no message, from one message to the next; and of a line over the limit whose end
is not waited for.
"""
MOST_UNREAD = 16 * 2**20
"""Bytes that a process may leave unread."""
REMEMBERED = 512
"""Servers whose allowance in the log outlives a process."""

NOT_ONE = "it is no MCP server, or not started as one"

_allowances: dict[str, Allowance] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdio:
    type: ClassVar[str] = "stdio"
    starts_process: ClassVar[bool] = True

    command: str
    """The program, looked up in the child's PATH."""
    args: tuple[str, ...] = field(default=(), repr=False)
    """Its arguments."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Its environment, beside the small one every child gets (PATH, HOME, locale, proxies,
    certificates, …)."""
    cwd: str | None = None
    """Its working folder; absent: the gateway's own."""
    inherit_env: bool | tuple[str, ...] = False
    """Give it more of the gateway's environment: all of it, or these names."""
    framing: Literal["newline", "content-length"] = "newline"
    """How messages are told apart; `content-length` is for servers that speak like language
    servers."""

    @property
    def downloads_itself(self) -> bool:
        """True if the command may download the server before it runs it (LIF-10)."""
        return downloads_itself(self.command, self.args)

    async def open(self, dial: Dial) -> Conversation:
        talk = ChildConversation(self, dial)
        await talk.start()
        return talk


class ChildConversation(Carried):
    """One child process and the peer that talks to it."""

    def __init__(self, spec: Stdio, dial: Dial) -> None:
        super().__init__(dial, self._transmit)
        self._spec = spec
        self._redact = redaction(spec.env, spec.args)
        self._peer.waiting.redact = self._redact
        self._stderr = StderrLog(
            dial.name,
            self._redact,
            asyncio.get_running_loop().call_later,
            _allowance_of(dial.name),
            dial.overhear,
        )
        self._heard: int | None = None
        """Lines on standard error when the last message came; None: it never sent one."""
        self._noise = ""
        """The first thing on standard output that was no message."""
        self._report_filter = DiscoveryReportFilter(dial.name)
        self._has_output = False
        self._npx_folder: Path | None = None
        self._opening = b""
        """The first message it was sent."""
        self._child: process.Child | None = None
        self._patience = Patience(NOISE)
        self._endless = dial.limit + NOISE
        self._skips = Allowance()
        self._reader = MessageReader(
            self._received, self._skipped, limit=dial.limit, framing=spec.framing
        )

    async def start(self) -> None:
        spec, dial = self._spec, self._dial
        env = process.child_environment(dial.environ, spec.env, spec.inherit_env, dial.itself)
        if spec.downloads_itself:
            self._npx_folder = npx_cache.install_folder(spec.command, spec.args, env)
            await self._remove_half_written(ours=False)
        try:
            self._child = await process.spawn(
                process.Spawn(
                    command=spec.command,
                    args=spec.args,
                    env=env,
                    cwd=spec.cwd,
                    downloads=spec.downloads_itself,
                ),
                on_stdout=self._read,
                on_stderr=self._read_stderr,
                on_exit=self._exited,
            )
        except OSError as error:
            culprit = error.filename or spec.command
            reason = f"cannot start {spec.command!r}: {error.strerror or error}: {culprit}"
            if isinstance(error, FileNotFoundError) and culprit == spec.command:
                hint = (
                    "; put its arguments into args" if " " in spec.command and not spec.args else ""
                )
                reason = f"cannot start: command not found: {spec.command!r}{hint}"
            raise Unavailable(dial.name, SERVER_DOWN, reason) from None
        if self._has_output:  # It came before there was a child to tell.
            self._child.is_downloading = False

    def _backlog(self) -> Awaitable[None] | None:
        child = self._child
        return child.drain() if child is not None and child.congested else None

    def _transmit(self, raw: bytes) -> None:
        self._opening = self._opening or raw
        child = self._child
        if child is None:
            return
        if child.congested and child.unread > MOST_UNREAD:
            self._peer.lose(
                "does not read what it is sent", SERVER_DIED
            )  # and asks so much that answers fill memory
        else:
            child.write(frame(raw, self._spec.framing), more_to_come=self._peer.busy)

    def _read(self, data: bytes) -> None:
        if not self._has_output:
            self._output_began()
        if self._peer.lost is not None:
            return  # nobody waits for it, and it may be endless
        reader = self._reader
        reader.feed(data)
        unfinished = reader.unfinished
        if unfinished > self._endless:
            self._peer.waiting.too_large(reader.head, self._dial.limit)
            self._peer.lose("prints a line without end", SERVER_GARBAGE)
        elif self._patience.lost(len(data), unfinished):
            what = f"prints nothing but what is no message, {NOISE:,} bytes of it"
            self._peer.lose(what, SERVER_GARBAGE)

    def _output_began(self) -> None:
        self._has_output = True
        if self._child is not None:
            self._child.is_downloading = False
        self._dial.output_began()

    def _received(self, raw: bytes) -> None:
        if self._heard is None and (self._peer.lost is not None or self._is_no_server(raw)):
            return
        waiting = self._peer.waiting
        noise = waiting.noise
        self._peer.receive(raw)
        if waiting.noise == noise:
            self._patience.message()
            self._heard = self._stderr.total
        elif not self._noise:
            self._noise = shortened(self._redact(readable(raw[:1000])))
            log.warning(
                "[%s] prints things on standard output that are not messages; they are passed "
                "over: %r",
                self._dial.name,
                self._noise,
            )

    def _is_no_server(self, raw: bytes) -> bool:
        """Whether this settles it. The conversation is over then, and whoever opened it ends the
        process."""
        if raw == self._opening:
            self._peer.lose(f"{NOT_ONE}: it repeats what it is sent", SERVER_DOWN)
        elif self._peer.waiting.noise >= NO_SERVER:
            self._peer.lose(self._babble().removeprefix("; "), SERVER_DOWN)
        return self._peer.lost is not None

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        if self._skips.take_lines(1):
            log.warning("[%s] skipped %d bytes of its output: %s", self._dial.name, size, reason)
        if self._peer.waiting.too_large(head, self._dial.limit):
            self._patience.message()

    def _read_stderr(self, data: bytes) -> None:
        if fresh := self._report_filter.passed(data):
            self._stderr.feed(fresh)

    def _exited(self, code: int) -> None:
        if rest := self._report_filter.end():
            self._stderr.feed(rest)
        self._stderr.close(died=self._peer.lost is None)
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        # What it said before its last message it survived.
        words = self._stderr.last_words(self._heard or 0)
        said = self._dial.quoting(words, f": {words}") if words else self._babble()
        self._peer.lose(f"the process {how}{said}", SERVER_DIED)

    @property
    def excuse(self) -> str:
        """What it does instead of answering, to stand behind a complaint that it does not."""
        words = self._stderr.last_words(self._heard or 0)
        return self._babble() or (
            self._dial.quoting(words, f"; the last it said: {words}") if words else ""
        )

    def _babble(self) -> str:
        noise = self._noise
        if self._heard is not None or not noise:
            return ""
        return f"; {NOT_ONE}{self._dial.quoting(noise, f': it printed {noise!r}')}"

    def memory(self) -> int:
        """Bytes the child's own process holds; 0 where the system does not tell."""
        try:
            with open(f"/proc/{self._child.pid if self._child else 0}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return 0

    async def close(self) -> None:
        await super().close()
        if self._child is not None:
            await self._child.end()
            if self._child.is_downloading:
                await self._remove_half_written(ours=True)

    async def _remove_half_written(self, *, ours: bool) -> None:
        if self._npx_folder is not None:
            await npx_cache.remove_half_written(self._npx_folder, ours=ours)


def _allowance_of(server: str) -> Allowance:
    """Of this server's earlier lives too, unless it is long ago."""
    found = _allowances[server] = _allowances.pop(server, None) or Allowance()
    if len(_allowances) > REMEMBERED:
        del _allowances[next(iter(_allowances))]
    return found


_FIRST_LINE = re.compile(rb"[^\n]*Failed to validate request: \d+ validation error[^\n]*\n")
_METHOD = b"server/discover"
_PART = re.compile(rb"\s|$|\w+(?:Request|Notification|Result|Params)\b[^\s:]*\s*$")
"""A line of a report: an indented one, or the name of a type and a field."""
MAX_REPORT_BYTES = 64 * 1024
MAX_LINE_BYTES = 8 * 1024


class DiscoveryReportFilter:
    """Feed it the bytes of standard error; it returns what to pass on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = 0
        """Bytes that the current report may still have; 0 outside of a report."""
        self._partial = b""

    def passed(self, data: bytes) -> bytes:
        if not self._left:
            found = _FIRST_LINE.search(data) if _METHOD in data else None
            if found is None:
                return data
            _server_log.debug(
                "[%s] reports that it does not know server/discover: it has version 1 of the SDK",
                self._name,
            )
            self._left = MAX_REPORT_BYTES
            return data[: found.start()] + self._rest(data[found.end() :])
        return self._rest(data)

    def end(self) -> bytes:
        """The unfinished line of a report at the end of the output."""
        rest, self._partial = self._partial, b""
        return b"" if _PART.match(rest) else rest

    def _rest(self, data: bytes) -> bytes:
        """The text after the report. Empty while the report continues."""
        lines = (self._partial + data).splitlines(keepends=True)
        self._partial = b""
        for index, line in enumerate(lines):
            if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
                self._partial = line
                return b""
            self._left -= len(line)
            if self._left <= 0 or not _PART.match(line):
                self._left = 0
                return self.passed(b"".join(lines[index:]))
        return b""
