"""The store that replicas share, as everybody here sees it: commands, scripts, what is written
behind, and news.

Promised: what is sent in one turn of the loop travels together; a command is sent once and no more,
and is answered or fails within `PATIENCE`. A store that does not answer is away: from then on
everything fails at once with `StoreDown` until it is back, which is tried several times a second.
What is written behind (`later`) costs its caller nothing and arrives in order; while the store is
away it is dropped, and whoever keeps something there is told when it is back (`on_return`) and
writes it anew: it may have been restarted empty, which is told until all have written. News may be
missed for the same reason, so they are for speed only: what must not be missed has a number that is
looked at with each beat (`members`). Time in which this very process is held up is not the store's.

Keys stand under one prefix in braces, so that a cluster keeps them together and scripts can use
several.
"""

import asyncio
import hashlib
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from mcpx.base.aio import Tasks
from mcpx.model.errors import McpxError
from mcpx.replicas.address import StoreAddress

if TYPE_CHECKING:
    from mcpx.replicas.connecting import Client

log = logging.getLogger(__name__)

PATIENCE: Final = 1.0
"""Seconds the store may take for an answer."""
LARGE: Final = 64 << 10
"""Bytes; what is sent together and is more may take twice as long."""
LOOKS: Final = 5
"""In how many pieces the store's time passes."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.5
"""Seconds between two tries to reach it."""
BRIEF: Final = 2.0
"""Seconds: a store that was there for less is not tried again at once."""
TOGETHER: Final = 512
BYTES_TOGETHER: Final = 1 << 20
"""Commands that are sent in one go, and their bytes; one that is larger goes alone."""
AT_A_TIME: Final = 4
"""Goes under way at a time, of commands that are waited for."""
MOST_BEHIND: Final = 100_000
BEHIND_BYTES: Final = 64 << 20
"""What may wait to be written; of more the oldest is dropped, and told anew like what was lost by a
store."""
SAID_EVERY: Final = 30.0
"""Seconds between two lines that say that it is still away, or still refuses the same."""
MOST_REFUSALS: Final = 64
"""Refusals of which is known when they were said."""

Word = str | bytes | int | float
Heard = Callable[[bytes], None]
Returned = Callable[[bool], Awaitable[None]]
"""Told that the store is there; True: what was in it may be gone."""

_AWAY = (
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "NOAUTH",
    "NOPERM",
    "OOM",
    "MISCONF",
    "BUSY",
    "WRONGPASS",
)
"""What a store says that cannot be used at the moment."""


class StoreDown(McpxError):
    """The store did not do what it was asked, or may not have; caught by whoever asked, who knows
    what follows."""


class Script:
    """A piece of Lua; sent by its digest once the store knows it."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


_EPOCH = Script("redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])")
_TELL = Script("return redis.call('PUBLISH', KEYS[1], ARGV[1])")


class _Sent:
    """One command on its way."""

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

    @property
    def size(self) -> int:
        return sum(len(word) if isinstance(word, str | bytes) else 8 for word in self.words)

    def in_full(self) -> "_Sent":
        """With the script itself, for a store that does not know it."""
        assert self.script is not None
        return _Sent(("EVAL", self.script.text, *self.words[2:]), None, self.answer)

    def settle(self, result: Any) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: StoreDown) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # whoever has given up waiting for it need not hear of it


class Store:
    def __init__(self, address: StoreAddress, patience: float = PATIENCE) -> None:
        self.address = address
        self.up = False
        self.problem = "it was not reached yet"
        """Why it is away; of no meaning while it is `up`."""
        self.failures = 0
        """How often it went away."""
        self.there = asyncio.Event()
        """Set while it is up."""
        self._patience = patience
        self._prefix = f"{{{address.prefix}}}:"
        self._channel = self._prefix + "news"
        self._me = secrets.token_bytes(8)
        self._tasks = Tasks("store")
        self._client: Client = None
        self._ending: set[Client] = set()
        """Clients that are being closed: whoever does it may be cancelled over it, and it is done
        at the end."""
        self._epoch = b""
        self._is_lost = True
        """Whether what was kept there may be gone, and was not written anew since."""
        self._dropped = False
        """Whether more waited to be written than may."""
        self._known: set[str] = set()
        """Digests of scripts that the store has. The others are sent in full: what it refuses for
        not knowing it would be written behind what was sent later."""
        self._fallen = asyncio.Event()
        self._asked: deque[_Sent] = deque()
        self._under_way = 0
        self._behind: deque[_Sent] = deque()
        self._behind_size = 0
        self._writing = False
        self._due = False
        self._listeners: dict[bytes, list[Heard]] = {}
        self._returned: list[Returned] = []
        self._listening: asyncio.Task[None] | None = None
        self._refusals: dict[str, float] = {}
        """What it refused to do, and when that was said."""
        self._loop = asyncio.get_running_loop()

    def key(self, *parts: str) -> str:
        return self._prefix + ":".join(parts)

    # Life
    # ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Reach it, now and whenever it has gone away. `there` tells."""
        self._tasks.start(self._look_after())

    async def close(self) -> None:
        """What is written behind is written first, if that is quick."""
        if self.up:
            try:
                async with asyncio.timeout(self._patience):
                    await self.settled()
            except (StoreDown, TimeoutError):
                pass
        self._fall("the gateway is ending")
        await self._tasks.close()
        await self._drop_client()
        for client in list(self._ending):
            await self._end(client)

    async def _drop_client(self) -> None:
        client, self._client = self._client, None
        await self._end(client)

    async def _end(self, client: "Client") -> None:
        if client is not None:
            from mcpx.replicas.connecting import end

            self._ending.add(client)
            try:
                await end(client)
            except Exception as error:  # noqa: BLE001 - whatever a broken connection has to say about its end
                log.debug("closing the connection to the store: %s", error)
            self._ending.discard(client)

    async def _look_after(self) -> None:
        pause, said_at, said, flighty = FIRST_PAUSE, 0.0, "", False
        while not self._tasks.closed:  # a client that connects may swallow that it was cancelled
            try:
                fresh = await self._reach()
            except Exception as error:  # noqa: BLE001 - whatever keeps it from being reached is told, and tried again
                self.problem = self._words(error)
                if self.problem != said or monotonic() - said_at > SAID_EVERY:
                    said, said_at = self.problem, monotonic()
                    log.error(
                        "the store %s cannot be used: %s; it is tried again",
                        self.address.shown,
                        self.problem,
                    )
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            since = monotonic()
            if self._tasks.closed:
                self._fall("the gateway is ending")
            if flighty:  # whether it stays is seen first
                await self._fallen_within(BRIEF)
            if self.up:
                if said or fresh:
                    log.info(
                        "the store %s is there%s",
                        self.address.shown,
                        ", and empty or new to us" if fresh else "",
                    )
                said, flighty = "", False
            await self._fallen.wait()
            now = monotonic()
            if self.problem != said or now - said_at > SAID_EVERY:
                said, said_at = self.problem, now
                log.warning("the store %s went away: %s", self.address.shown, self.problem)
            if self._listening is not None:
                self._listening.cancel()
            await self._drop_client()
            flighty = now - since <= BRIEF
            if not flighty:
                pause = FIRST_PAUSE
            else:  # it can be reached, and not be used: full to the brim, or forbids something
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _fallen_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._fallen.wait()
        except TimeoutError:
            pass

    async def _reach(self) -> bool:
        """Whether what was kept there may be gone."""
        from mcpx.replicas.connecting import ear_of, made

        await self._drop_client()
        self._client = client = made(self.address, self._patience)
        async with asyncio.timeout(3 * self._patience):
            # As a script: a store that allows none cannot be used, and here that is told once and
            # not each time.
            asked = ("EVAL", _EPOCH.text, 1, self.key("epoch"), secrets.token_hex(8))
            found: bytes = await client.execute_command(*asked) or b""
            ear = ear_of(client)
            await ear.subscribe(self._channel)
        if self._tasks.closed:  # the client has swallowed that we are told to end
            raise asyncio.CancelledError
        fresh = found != self._epoch
        self._is_lost = self._is_lost or fresh
        self._epoch = found
        self._known.clear()
        self._fallen.clear()
        self.up = True
        self.there.set()
        self._listening = self._tasks.start(self._listen(ear))
        self._tasks.start(self._tell_all(list(self._returned)))
        return fresh

    async def look(self, epoch: bytes | None) -> None:
        """`epoch`: as it was found there just now. If it is another, the store was emptied without
        going away."""
        if not self.up:
            return
        if epoch != self._epoch:
            await self.ask("SET", self.key("epoch"), secrets.token_hex(8), "NX")
            # Nothing: emptied again, which the next beat sees.
            self._epoch = await self.ask("GET", self.key("epoch")) or b""
            log.warning(
                "the store %s was emptied: what is shared is written anew", self.address.shown
            )
        elif self._dropped and not self._behind:
            log.warning(
                "the store %s was too slow: what is shared is written anew", self.address.shown
            )
        else:
            return
        self._dropped, self._is_lost = False, True
        await self._tell_all(list(self._returned))

    async def _tell_all(self, all: list[Returned]) -> None:
        """The first is told before the others: they may need what it settles."""
        first, *rest = all or [_nothing]
        fresh, life = self._is_lost, (self.failures, self._epoch)
        await asyncio.wait([self._tasks.start(self._tell_returned(first, fresh))])
        told = [self._tasks.start(self._tell_returned(returned, fresh)) for returned in rest]
        if fresh:
            self._tasks.start(self._see_it_written(told, life))

    async def _see_it_written(
        self, told: list["asyncio.Task[None]"], life: tuple[int, bytes]
    ) -> None:
        """A store that goes away again meanwhile has lost it still."""
        if told:
            await asyncio.wait(told)
        try:
            await self.settled()
        except StoreDown:
            return
        if life == (self.failures, self._epoch):
            self._is_lost = False

    async def _tell_returned(self, returned: Returned, fresh: bool) -> None:
        try:
            await returned(fresh)
        except StoreDown:
            pass  # it will be told again

    def on_return(self, returned: Returned) -> None:
        """Called whenever the store is there again, and the first time; at once if it is there. The
        first that asks for it is called before the others."""
        self._returned.append(returned)
        if self.up:
            self._tasks.start(self._tell_returned(returned, True))

    def _fall(self, problem: str) -> StoreDown:
        error = StoreDown(problem)
        if self.up:
            self.failures += 1
            self.up, self.problem = False, problem
            self.there.clear()
            self._fallen.set()
            for sent in self._asked:
                sent.fail(error)
            for sent in self._behind:
                sent.fail(error)
            self._asked.clear()
            self._behind.clear()
            self._behind_size = 0
        return error

    # Commands
    # ----------------------------------------------------------------------------------------------

    def ask(self, *words: Word) -> "asyncio.Future[Any]":
        """The answer to a command. Raises `StoreDown`; it may have been carried out then."""
        return self._put(_Sent(words, None, self._loop.create_future()))

    def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Word] = ()
    ) -> "asyncio.Future[Any]":
        """The same of a script."""
        return self._put(
            _Sent(_called(script, keys, arguments), script, self._loop.create_future())
        )

    def _put(self, sent: _Sent) -> "asyncio.Future[Any]":
        assert sent.answer is not None
        if not self.up:
            sent.fail(StoreDown(self.problem))
        else:
            self._asked.append(sent)
            self._soon()
        return sent.answer

    def later(self, *words: Word) -> None:
        """Written behind."""
        self._put_behind(_Sent(words))

    def run_later(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Word] = ()
    ) -> None:
        self._put_behind(_Sent(_called(script, keys, arguments), script))

    async def settled(self) -> None:
        """All that was written behind so far is written. Raises `StoreDown`."""
        if not self.up:
            raise StoreDown(self.problem)
        marker = _Sent(("ECHO", "x"), None, self._loop.create_future())
        if self.address.kind == "cluster":
            marker.words = ("GET", self.key("epoch"))
        self._put_behind(marker)
        assert marker.answer is not None
        await marker.answer

    def _put_behind(self, sent: _Sent) -> None:
        if not self.up:
            sent.fail(StoreDown(self.problem))
            return
        self._behind.append(sent)
        self._behind_size += sent.size
        while len(self._behind) > MOST_BEHIND or (
            self._behind_size > BEHIND_BYTES and len(self._behind) > 1
        ):
            dropped = self._behind.popleft()
            self._behind_size -= dropped.size
            dropped.fail(StoreDown("too much waits to be written"))
            self._dropped = True
        self._soon()

    def _soon(self) -> None:
        """Whatever else this turn of the loop brings goes along."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._due = False
        while self.up and self._asked and self._under_way < AT_A_TIME:
            self._under_way += 1
            self._start(self._send_asked, *_some(self._asked))
        if self.up and self._behind and not self._writing:
            batch, size = _some(self._behind)
            self._behind_size -= size
            self._writing = True
            self._start(self._send_behind, batch, size)

    def _start(
        self,
        send: Callable[[list[_Sent], int], Coroutine[Any, Any, None]],
        batch: list[_Sent],
        size: int,
    ) -> None:
        task = self._tasks.start(send(batch, size), apart=True)
        task.add_done_callback(partial(_give_up, batch))

    async def _send_asked(self, batch: list[_Sent], size: int) -> None:
        try:
            await self._send(batch, size)
        finally:
            self._under_way -= 1
            self._soon()

    async def _send_behind(self, batch: list[_Sent], size: int) -> None:
        try:
            await self._send(batch, size)
        finally:
            self._writing = False
            self._soon()

    async def _send(self, batch: list[_Sent], size: int) -> None:
        client = self._client
        try:
            await self._send_by(
                client, batch, 2 * self._patience if size > LARGE else self._patience
            )
        finally:
            if (
                client is not self._client
            ):  # it was closed meanwhile, and what it has opened since was not
                await self._end(client)

    async def _send_by(self, client: "Client", batch: list[_Sent], patience: float) -> None:
        from mcpx.replicas.connecting import NoScriptError

        try:
            if client is None:
                raise OSError("the connection is gone")
            async with _within(patience):
                if len(batch) == 1:
                    results: list[Any] = [await self._one(client, batch[0])]
                else:
                    pipeline = client.pipeline(transaction=False)
                    for sent in batch:
                        pipeline.execute_command(*self._worded(sent))
                    results = await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - a connection that breaks in the middle has many ways to say so
            problem = self._words(error)
            down = self._fall(problem) if client is self._client else StoreDown(problem)
            for sent in batch:
                sent.fail(down)
            return
        unknown: list[_Sent] = []
        for sent, result in zip(batch, results, strict=True):
            if isinstance(result, NoScriptError):
                unknown.append(sent.in_full())
            elif isinstance(result, Exception):
                sent.fail(self._refused(result))
            else:
                if sent.script is not None:
                    self._known.add(sent.script.digest)
                sent.settle(result)
        if unknown:
            await self._send_by(client, unknown, patience)

    def _worded(self, sent: _Sent) -> Sequence[Word]:
        is_known = sent.script is None or sent.script.digest in self._known
        return sent.words if is_known else sent.in_full().words

    async def _one(self, client: "Client", sent: _Sent) -> Any:
        from mcpx.replicas.connecting import ResponseError

        try:
            return await client.execute_command(*self._worded(sent))
        except ResponseError as error:
            return error

    def _refused(self, error: Exception) -> StoreDown:
        text = str(error)
        # The client takes the word off and keeps it apart; before Redis 7 it stands within what a
        # script died of.
        word = getattr(error, "status_code", None) or text.partition(" ")[0]
        if word in _AWAY or any(f": -{away} " in text for away in _AWAY):
            return self._fall(self._words(error))
        self._complain(self._advice(error) or text[:500])
        return StoreDown(text)

    def _words(self, error: BaseException) -> str:
        return self._advice(error) or _words(error)

    def _advice(self, error: BaseException) -> str:
        from mcpx.replicas.connecting import advice

        return advice(error, self.address)

    def _complain(self, text: str) -> None:
        """Of one command or script the same is said for each of thousands."""
        now = monotonic()
        if now - self._refusals.get(text, -SAID_EVERY) >= SAID_EVERY:
            if len(self._refusals) >= MOST_REFUSALS:
                self._refusals.clear()
            self._refusals[text] = now
            log.error("the store refuses what it was asked: %s", text)

    # News
    # ----------------------------------------------------------------------------------------------

    def hear(self, topic: str, heard: Heard) -> None:
        """What other replicas tell under it; never what this one does."""
        self._listeners.setdefault(topic.encode(), []).append(heard)

    def tell(self, topic: str, data: bytes = b"") -> None:
        """Behind all that is written behind: who hears it finds that."""
        channel, message = self.message(topic, data)
        self.run_later(_TELL, [channel], [message])

    def message(self, topic: str, data: bytes = b"") -> tuple[str, bytes]:
        """A channel and a message for a script that publishes news."""
        return self._channel, self._me + topic.encode() + b"\0" + data

    async def _listen(self, ear: Any) -> None:
        try:
            async for message in ear.listen():
                data = message.get("data")
                if (
                    message.get("type") == "message"
                    and isinstance(data, bytes)
                    and not data.startswith(self._me)
                ):
                    topic, _, news = data[len(self._me) :].partition(b"\0")
                    for heard in self._listeners.get(topic, ()):
                        self._told(heard, news)
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is of no use any more
            self._fall(self._words(error))
        finally:
            try:
                await ear.aclose()
            except Exception as error:  # noqa: BLE001 - whatever a broken connection has to say about its end
                log.debug("closing the ear at the store: %s", error)

    @staticmethod
    def _told(heard: Heard, news: bytes) -> None:
        try:
            heard(news)
        except Exception:
            log.exception("news from another replica could not be taken up")


async def _nothing(fresh: bool) -> None:
    """Nobody keeps anything there."""


def _give_up(batch: list[_Sent], _: "asyncio.Task[None]") -> None:
    """Whoever sent it was ended, maybe before it had begun."""
    down = StoreDown("the gateway is ending")
    for sent in batch:
        sent.fail(down)


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    """As `asyncio.timeout`, by a clock that stands still while this process does: what the store
    said meanwhile is read before its time is up."""
    loop, left = asyncio.get_running_loop(), LOOKS

    def look() -> None:
        nonlocal left, timer
        left -= 1
        if left:
            timer = loop.call_later(seconds / LOOKS, look)
        else:
            bound.reschedule(loop.time())

    timer = loop.call_later(seconds / LOOKS, look)
    try:
        async with asyncio.timeout(None) as bound:
            yield
    finally:
        timer.cancel()


def _some(waiting: deque[_Sent]) -> tuple[list[_Sent], int]:
    """What goes out together, taken from the front; and its bytes."""
    batch: list[_Sent] = []
    size = 0
    while (
        waiting
        and len(batch) < TOGETHER
        and (not batch or size + waiting[0].size <= BYTES_TOGETHER)
    ):
        sent = waiting.popleft()
        batch.append(sent)
        size += sent.size
    return batch, size


def _called(script: Script, keys: Sequence[str], arguments: Sequence[Word]) -> Sequence[Word]:
    return ("EVALSHA", script.digest, len(keys), *keys, *arguments)


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError":
        return "it did not answer in time"
    text = (
        str(error).partition(" : <")[0].rstrip(".")
    )  # behind it the client describes the objects it is made of
    return (text or type(error).__name__)[:300]
