"""Queue of commands for the store.

Commands of one turn of the event loop are sent together. A command is sent once, and is answered or
fails within the patience. Commands that no caller waits for (`write`) are sent in order.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mcpx.base.aio import Tasks
from mcpx.base.caching import TtlCache
from mcpx.model.errors import McpxError
from mcpx.replicas.address import StoreAddress

if TYPE_CHECKING:
    from mcpx.replicas.connecting import Client

log = logging.getLogger(__name__)

LARGE_BYTES: Final = 64 << 10
"""A larger batch may take twice as long."""
PATIENCE_STEPS: Final = 5
BATCH: Final = 512
BATCH_BYTES: Final = 1 << 20
"""A larger command is sent alone."""
MAX_ASKING: Final = 4
"""Batches under way, of commands with a waiting caller."""
MOST_BEHIND: Final = 100_000
BEHIND_BYTES: Final = 64 << 20
"""Commands that wait to be written. Of more, the oldest are dropped."""
LOG_SECONDS: Final = 30.0
"""Between two log lines with the same problem."""

Word = str | bytes | int | float

_AWAY: Final = (
    *("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH"),
    *("NOPERM", "OOM", "MISCONF", "BUSY", "WRONGPASS"),
)
"""Errors of a store that cannot be used now."""


class StoreDown(McpxError):
    """The store did not carry out a command, or it is not known whether it did."""


class Script:
    """A script in Lua. It is sent by its digest once the store knows it."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Command:
    __slots__ = ("answer", "script", "words")

    def __init__(
        self,
        words: Sequence[Word],
        script: Script | None = None,
        answer: "asyncio.Future[Any] | None" = None,
    ) -> None:
        self.words = words
        self.script = script
        self.answer = answer

    @classmethod
    def of_script(
        cls,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[Word],
    ) -> "Command":
        return cls(("EVALSHA", script.digest, len(keys), *keys, *arguments), script)

    @property
    def size(self) -> int:
        return sum(len(word) if isinstance(word, str | bytes) else 8 for word in self.words)

    def in_full(self) -> "Command":
        """With the text of the script, for a store that does not know it."""
        assert self.script is not None
        return Command(("EVAL", self.script.text, *self.words[2:]), None, self.answer)

    def settle(self, result: Any) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: StoreDown) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # The caller may have stopped waiting.


class CommandQueue:
    def __init__(
        self,
        tasks: Tasks,
        patience: float,
        fall: Callable[[str], StoreDown],
        address: StoreAddress,
    ) -> None:
        """`fall` is called when the store cannot be used."""
        self.client: Client = None
        self.down: StoreDown | None = StoreDown("it was not reached yet")
        """The error of all commands while the store is down."""
        self.known_scripts: set[str] = set()
        """Digests. Other scripts are sent in full: a store that refuses a command because it does
        not know the script would carry it out after later ones."""
        self.has_dropped = False
        self._tasks = tasks
        self.patience = patience
        self._fall = fall
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._asked: deque[Command] = deque()
        self._written: deque[Command] = deque()
        self._written_bytes = 0
        self._asking = 0
        self._is_writing = False
        self._is_due = False
        self._logged: TtlCache[str, bool] = TtlCache(64, LOG_SECONDS)

    @property
    def is_written(self) -> bool:
        return not self._written

    def ask(self, command: Command) -> "asyncio.Future[Any]":
        command.answer = self._loop.create_future()
        if self.down is None:
            self._asked.append(command)
            self._flush_soon()
        else:
            command.fail(self.down)
        return command.answer

    def write(self, command: Command) -> None:
        if self.down is not None:
            command.fail(self.down)
            return
        self._written.append(command)
        self._written_bytes += command.size
        while len(self._written) > MOST_BEHIND or (
            self._written_bytes > BEHIND_BYTES and len(self._written) > 1
        ):
            dropped = self._written.popleft()
            self._written_bytes -= dropped.size
            dropped.fail(StoreDown("too many commands wait to be written"))
            self.has_dropped = True
        self._flush_soon()

    def fail_all(self, error: StoreDown) -> None:
        self.down = error
        for command in (*self._asked, *self._written):
            command.fail(error)
        self._asked.clear()
        self._written.clear()
        self._written_bytes = 0

    def _flush_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._is_due = False
        while self._asked and self._asking < MAX_ASKING:
            self._asking += 1
            self._send_batch(_batch(self._asked), self._asked_sent)
        if self._written and not self._is_writing:
            self._is_writing = True
            batch = _batch(self._written)
            self._written_bytes -= sum(command.size for command in batch)
            self._send_batch(batch, self._written_sent)

    def _asked_sent(self, _: object) -> None:
        self._asking -= 1
        self._flush_soon()

    def _written_sent(self, _: object) -> None:
        self._is_writing = False
        self._flush_soon()

    def _send_batch(self, batch: list[Command], sent: Callable[[object], None]) -> None:
        task = self._tasks.start(self._send(self.client, batch), apart=True)
        # The task may be cancelled before it begins.
        task.add_done_callback(partial(_fail_unanswered, batch))
        task.add_done_callback(sent)

    async def _send(self, client: "Client", batch: list[Command]) -> None:
        from mcpx.replicas.connecting import NoScriptError, end

        is_large = sum(command.size for command in batch) > LARGE_BYTES
        try:
            async with _within(self.patience * (1 + is_large)):
                results = await self._results(client, batch)
        except Exception as error:  # noqa: BLE001 - a connection can break in many ways
            problem = self.explain(error)
            down = StoreDown(problem)
            if client is self.client:
                down = self._fall(problem)
            for command in batch:
                command.fail(down)
            return
        finally:
            if client is not None and client is not self.client:
                await end(client)  # It was closed, and may have opened connections since.
        unknown: list[Command] = []
        for command, result in zip(batch, results, strict=True):
            if isinstance(result, NoScriptError):
                unknown.append(command.in_full())
            elif isinstance(result, Exception):
                command.fail(self._refused(result))
            else:
                if command.script is not None:
                    self.known_scripts.add(command.script.digest)
                command.settle(result)
        if unknown:
            await self._send(client, unknown)

    async def _results(self, client: "Client", batch: list[Command]) -> list[Any]:
        from mcpx.replicas.connecting import ResponseError

        if client is None:
            raise OSError("the connection is closed")
        if len(batch) == 1:
            try:
                return [await client.execute_command(*self._words(batch[0]))]
            except ResponseError as error:
                return [error]
        pipeline = client.pipeline(transaction=False)
        for command in batch:
            pipeline.execute_command(*self._words(command))
        return await pipeline.execute(raise_on_error=False)

    def _words(self, command: Command) -> Sequence[Word]:
        if command.script is None or command.script.digest in self.known_scripts:
            return command.words
        return command.in_full().words

    def _refused(self, error: Exception) -> StoreDown:
        from mcpx.replicas.connecting import advice

        text = str(error)
        # The client removes the code from the text. Before Redis 7, the code of an error in a
        # script is inside of the text.
        code = getattr(error, "status_code", None) or text.partition(" ")[0]
        if code in _AWAY or any(f": -{away} " in text for away in _AWAY):
            return self._fall(self.explain(error))
        reason = advice(error, self._address) or text[:500]
        if self._logged.get(reason) is None:
            self._logged.put(reason, True)
            log.error("the store refuses a command: %s", reason)
        return StoreDown(text)

    def explain(self, error: BaseException) -> str:
        from mcpx.replicas.connecting import advice

        explanation = advice(error, self._address)
        if explanation:
            return explanation
        if type(error).__name__ == "TimeoutError":
            return "it did not answer in time"
        # The client adds a description of its objects.
        text = str(error).partition(" : <")[0].rstrip(".")
        return (text or type(error).__name__)[:300]


def _batch(waiting: deque[Command]) -> list[Command]:
    batch = [waiting.popleft()]
    size = batch[0].size
    while waiting and len(batch) < BATCH:
        size += waiting[0].size
        if size > BATCH_BYTES:
            break
        batch.append(waiting.popleft())
    return batch


def _fail_unanswered(batch: list[Command], _: object) -> None:
    down = StoreDown("the gateway is ending")
    for command in batch:
        command.fail(down)


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    """Like `asyncio.timeout`, without the time in which this process stands still: an answer that
    arrived meanwhile is read first."""
    loop, left = asyncio.get_running_loop(), PATIENCE_STEPS

    def step() -> None:
        nonlocal left, timer
        left -= 1
        if left:
            timer = loop.call_later(seconds / PATIENCE_STEPS, step)
        else:
            bound.reschedule(loop.time())

    timer = loop.call_later(seconds / PATIENCE_STEPS, step)
    try:
        async with asyncio.timeout(None) as bound:
            yield
    finally:
        timer.cancel()
