"""The store that replicas share: its connection, commands, and notifications.

A store that does not answer in time is down. From then on, all commands fail at once with
`StoreDown`, until it is up again, which is tried several times a second. Commands of `later` and
`run_later` are then dropped, and so is everything in a store that restarts empty: `on_return` tells
the owners of data to write it again. Notifications may be lost, so they only save time. Data that
must not be missed has a number that is read with each heartbeat (`members`).

All keys have one prefix in braces, so that a cluster keeps them together for scripts.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from mcpx.base.aio import Tasks, first_of
from mcpx.replicas.address import StoreAddress
from mcpx.replicas.commands import LOG_SECONDS, Command, CommandQueue, Script, StoreDown, Word

if TYPE_CHECKING:
    from mcpx.replicas.connecting import Client

__all__ = ["PATIENCE", "Script", "Store", "StoreDown", "Word"]

log = logging.getLogger(__name__)

PATIENCE: Final = 1.0
"""Seconds for an answer."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 0.5
"""Seconds between two attempts to connect."""
BRIEF_SECONDS: Final = 2.0
"""A connection that ends earlier is not made again at once."""

Heard = Callable[[bytes], None]
Returned = Callable[[bool], Awaitable[None]]
"""Called when the store is up. True: its data may be lost."""

_EPOCH = Script("redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])")
_TELL = Script("return redis.call('PUBLISH', KEYS[1], ARGV[1])")


class Store:
    def __init__(self, address: StoreAddress, patience: float = PATIENCE) -> None:
        self.address = address
        self.up = False
        self.problem = "it was not reached yet"
        """Why it is down."""
        self.failures = 0
        """How often it went down."""
        self.there = asyncio.Event()
        """Set while it is up."""
        self.epoch = b""
        """Identifies the store until it loses its data."""

        self._prefix = f"{{{address.prefix}}}:"
        self._tasks = Tasks("store")
        self._queue = CommandQueue(self._tasks, patience, self._fall, address)
        self._notifications = _Notifications(self._prefix + "news")
        self._returns = _Returns(self, self._tasks)
        self._connection = _Connection(
            self, self._tasks, self._queue, self._notifications, self._returns
        )

    def key(self, *parts: str) -> str:
        return self._prefix + ":".join(parts)

    def start(self) -> None:
        """Connect, and stay connected."""
        self._tasks.start(self._connection.keep(self._queue.patience))

    async def close(self) -> None:
        """Write what waits to be written, if that is quick."""
        if self.up:
            try:
                async with asyncio.timeout(self._queue.patience):
                    await self.settled()
            except (StoreDown, TimeoutError):
                pass
        self._fall("the gateway is ending")
        await self._tasks.close()
        await self._connection.close()

    def on_return(self, returned: Returned) -> None:
        """Call it whenever the store is up again, and at once if it is up. The first one that is
        registered is called before the others."""
        self._returns.add(returned)

    async def look(self, epoch: bytes | None) -> None:
        """Compare the epoch that was read just now: the store may have been emptied."""
        if not self.up:
            return
        reason = "was too slow"
        if epoch != self.epoch:
            reason = "was emptied"
            await self.ask("SET", self.key("epoch"), secrets.token_hex(8), "NX")
            self.epoch = await self.ask("GET", self.key("epoch")) or b""
        elif not self._queue.has_dropped or not self._queue.is_written:
            return
        log.warning("the store %s %s: shared data is written again", self.address.shown, reason)
        self._queue.has_dropped = False
        self._returns.is_lost = True
        await self._returns.tell_all()

    def _fall(self, problem: str) -> StoreDown:
        error = StoreDown(problem)
        if self.up:
            self.failures += 1
            self.up, self.problem = False, problem
            self.there.clear()
            self._connection.lost.set()
            self._queue.fail_all(error)
        return error

    # Commands

    def ask(self, *words: Word) -> "asyncio.Future[Any]":
        """Return the answer. Raises `StoreDown`; the command may have been carried out."""
        return self._queue.ask(Command(words))

    def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Word] = ()
    ) -> "asyncio.Future[Any]":
        return self._queue.ask(Command.of_script(script, keys, arguments))

    def later(self, *words: Word) -> None:
        """Send a command without waiting. Such commands are carried out in order."""
        self._queue.write(Command(words))

    def run_later(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Word] = ()
    ) -> None:
        self._queue.write(Command.of_script(script, keys, arguments))

    async def settled(self) -> None:
        """Wait until all commands of `later` are carried out. Raises `StoreDown`."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.write(Command(("GET", self.key("epoch")), None, answer))
        await answer

    # Notifications

    def hear(self, topic: str, heard: Heard) -> None:
        """Call it for the notifications of other replicas."""
        self._notifications.add(topic, heard)

    def tell(self, topic: str, data: bytes = b"") -> None:
        """Notify other replicas, after all commands of `later`."""
        channel, message = self.message(topic, data)
        self.run_later(_TELL, [channel], [message])

    def message(self, topic: str, data: bytes = b"") -> tuple[str, bytes]:
        """A channel and a message, for a script that notifies other replicas."""
        return self._notifications.channel, self._notifications.message(topic, data)


class _Returns:
    """Tells the owners of data that the store is up, and whether they have to write it again."""

    def __init__(self, store: Store, tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks
        self._owners: list[Returned] = []
        self.is_lost = True
        """The data may be lost, and was not written again since."""

    def add(self, returned: Returned) -> None:
        self._owners.append(returned)
        if self._store.up:
            self._tasks.start(self._tell(returned, True))

    def tell_all(self) -> Awaitable[None]:
        return self._tasks.start(self._tell_all(list(self._owners)))

    async def _tell_all(self, owners: list[Returned]) -> None:
        fresh, life = self.is_lost, self._life
        # The others may need what the first one settles.
        for returned in owners[:1]:
            await asyncio.wait([self._tasks.start(self._tell(returned, fresh))])
        told = [self._tasks.start(self._tell(returned, fresh)) for returned in owners[1:]]
        if fresh:
            self._tasks.start(self._note_written(told, life))

    @property
    def _life(self) -> tuple[int, bytes]:
        return self._store.failures, self._store.epoch

    async def _note_written(
        self, told: list["asyncio.Task[None]"], life: tuple[int, bytes]
    ) -> None:
        if told:
            await asyncio.wait(told)
        try:
            await self._store.settled()
        except StoreDown:
            return
        if life == self._life:
            self.is_lost = False

    async def _tell(self, returned: Returned, fresh: bool) -> None:
        try:
            await returned(fresh)
        except StoreDown:
            pass  # It is called again.


class _Notifications:
    def __init__(self, channel: str) -> None:
        self.channel = channel
        self._sender = secrets.token_bytes(8)
        self._listeners: dict[bytes, list[Heard]] = {}

    def add(self, topic: str, heard: Heard) -> None:
        self._listeners.setdefault(topic.encode(), []).append(heard)

    def message(self, topic: str, data: bytes) -> bytes:
        return self._sender + topic.encode() + b"\0" + data

    def dispatch(self, message: dict[str, Any]) -> None:
        data = message.get("data")
        if message.get("type") != "message" or not isinstance(data, bytes):
            return
        if data.startswith(self._sender):
            return
        topic, _, news = data[len(self._sender) :].partition(b"\0")
        for heard in self._listeners.get(topic, ()):
            try:
                heard(news)
            except Exception:
                log.exception("a notification of another replica failed")


class _Connection:
    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        queue: CommandQueue,
        notifications: _Notifications,
        returns: _Returns,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._queue = queue
        self._notifications = notifications
        self._returns = returns
        self.lost = asyncio.Event()
        self._closing: set[Client] = set()
        """Clients whose end may be interrupted. They are ended again in `close`."""
        self._logged = ("", 0.0)
        """The last problem in the log, and its time."""

    async def keep(self, patience: float) -> None:
        pause, was_brief = FIRST_PAUSE, False
        while not self._tasks.closed:  # The client may swallow a cancellation.
            began = monotonic()
            try:
                ear, is_fresh = await self._connect(patience)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                self._store.problem = self._queue.explain(error)
                self._log(logging.ERROR, "the store %s cannot be used: %s; it is tried again")
            else:
                await self._serve(ear, is_fresh, was_brief)
                self._log(logging.WARNING, "the store %s went away: %s")
            await self._drop()
            was_brief = monotonic() - began <= BRIEF_SECONDS
            if was_brief:  # It may be reachable and unusable, for example because it is full.
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE

    async def _connect(self, patience: float) -> tuple[Any, bool]:
        """Return the subscription, and whether the data of the store may be lost."""
        from mcpx.replicas.connecting import ear_of, made

        store = self._store
        self._queue.client = client = made(store.address, patience)
        async with asyncio.timeout(3 * patience):
            # A script, because a store without scripts cannot be used.
            asked = ("EVAL", _EPOCH.text, 1, store.key("epoch"), secrets.token_hex(8))
            epoch: bytes = await client.execute_command(*asked) or b""
            ear = ear_of(client)
            await ear.subscribe(self._notifications.channel)
        if self._tasks.closed:
            raise asyncio.CancelledError
        self._queue.known_scripts.clear()
        self._queue.down = None
        self.lost.clear()
        is_fresh = epoch != store.epoch
        store.epoch = epoch
        store.up = True
        store.there.set()
        self._returns.is_lost = self._returns.is_lost or is_fresh
        self._returns.tell_all()
        return ear, is_fresh

    async def _serve(self, ear: Any, is_fresh: bool, was_brief: bool) -> None:
        """Until the connection is lost."""
        listening = self._tasks.start(self._listen(ear))
        try:
            if was_brief:  # Do not log before it stays.
                await first_of(self.lost.wait(), timeout=BRIEF_SECONDS)
            if self._store.up and (self._logged[0] or is_fresh):
                data = ", and it is empty or new" * is_fresh
                log.info("the store %s is there%s", self._store.address.shown, data)
            if self._store.up:
                self._logged = ("", 0.0)
            await self.lost.wait()
        finally:
            listening.cancel()

    async def _listen(self, ear: Any) -> None:
        try:
            async for message in ear.listen():
                self._notifications.dispatch(message)
        except Exception as error:  # noqa: BLE001 - the connection cannot be used any more
            self._store._fall(self._queue.explain(error))  # pyright: ignore[reportPrivateUsage]
        finally:
            await self._end(ear.aclose())

    def _log(self, level: int, text: str) -> None:
        problem, now = self._store.problem, monotonic()
        if problem != self._logged[0] or now - self._logged[1] > LOG_SECONDS:
            self._logged = (problem, now)
            log.log(level, text, self._store.address.shown, problem)

    async def close(self) -> None:
        await self._drop()
        for client in list(self._closing):
            await self._end_client(client)

    async def _drop(self) -> None:
        client, self._queue.client = self._queue.client, None
        if client is not None:
            await self._end_client(client)

    async def _end_client(self, client: "Client") -> None:
        from mcpx.replicas.connecting import end

        self._closing.add(client)
        await self._end(end(client))
        self._closing.discard(client)

    async def _end(self, ending: Awaitable[object]) -> None:
        try:
            await ending
        except Exception as error:  # noqa: BLE001 - a broken connection
            log.debug("closing the connection to the store: %s", error)
