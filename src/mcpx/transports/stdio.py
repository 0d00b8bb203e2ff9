"""A server as a child process, spoken to over its standard input and output."""

import logging
import os
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, Unavailable
from mcpx.transports import process
from mcpx.transports.carried import Carried
from mcpx.transports.dial import Dial
from mcpx.transports.stderrlog import StderrLog
from mcpx.wire.framing import MessageReader, frame
from mcpx.wire.peer import Conversation

log = logging.getLogger(__name__)

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdio:
    command: str
    """The program, looked up in the child's PATH."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Its environment, beside the small one every child gets (PATH, HOME, locale, proxies, certificates, …)."""
    cwd: str | None = None
    """Its working folder; absent: the gateway's own."""
    inherit_env: bool | tuple[str, ...] = False
    """Give it more of the gateway's environment: all of it, or these names."""
    framing: Literal["newline", "content-length"] = "newline"
    """How messages are told apart; `content-length` is for servers that speak like language servers."""

    async def open(self, dial: Dial) -> Conversation:
        talk = ChildConversation(self, dial)
        await talk.start()
        return talk


class ChildConversation(Carried):
    """One child process and the peer that talks to it."""

    def __init__(self, spec: Stdio, dial: Dial) -> None:
        super().__init__(dial, self._transmit)
        self._spec = spec
        self._stderr = StderrLog(dial.name)
        self._child: process.Child | None = None
        self._reader = MessageReader(self._peer.receive, self._skipped, limit=dial.limit, framing=spec.framing)

    async def start(self) -> None:
        spec, dial = self._spec, self._dial
        env = process.child_environment(dial.environ, spec.env, spec.inherit_env, dial.itself)
        try:
            self._child = await process.spawn(
                process.Spawn(command=spec.command, args=spec.args, env=env, cwd=spec.cwd),
                on_stdout=self._reader.feed,
                on_stderr=self._stderr.feed,
                on_exit=self._exited,
            )
        except OSError as error:
            culprit = error.filename or spec.command
            reason = f"cannot start {spec.command!r}: {error.strerror or error}: {culprit}"
            if isinstance(error, FileNotFoundError) and culprit == spec.command:
                hint = "; put its arguments into args" if " " in spec.command and not spec.args else ""
                reason = f"cannot start: command not found: {spec.command!r}{hint}"
            raise Unavailable(dial.name, SERVER_DOWN, reason) from None

    def _backlog(self) -> Awaitable[None] | None:
        child = self._child
        return child.drain() if child is not None and child.congested else None

    def _transmit(self, raw: bytes) -> None:
        if self._child is not None:
            self._child.write(frame(raw, self._spec.framing), more_to_come=self._peer.busy)

    def _garbage(self) -> None:
        if self._peer.waiting.noise == 1:
            log.warning(
                "[%s] prints things on standard output that are not messages; they are passed over", self._dial.name
            )

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        log.warning("[%s] skipped %d bytes of its output: %s", self._dial.name, size, reason)
        self._peer.waiting.too_large(head, self._dial.limit)

    def _exited(self, code: int) -> None:
        self._stderr.close()
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        tail = self._stderr.tail(3)
        if self._peer.lost is None and tail:
            log.warning("[%s] its last words: %s", self._dial.name, " | ".join(tail))
        self._peer.lose(f"the process {how}", SERVER_DIED)

    def memory(self) -> int:
        """Bytes the child's own process holds; 0 where the system does not tell."""
        try:
            with open(f"/proc/{self._child.pid if self._child else 0}/statm", "rb") as file:
                return int(file.read().split()[1]) * PAGE
        except (OSError, ValueError, IndexError):
            return 0

    async def close(self) -> None:
        await super().close()
        if self._child is not None:
            await self._child.end()
