"""The way in for whoever looks after a running gateway, and for clients on the same machine: a
channel only its owner may open, JSON lines both ways.

One per config: `mcpx servers` and `mcpx reload` find the gateway that runs on the same file. A
request is `{"do": "status"}`, with what the verb needs beside it; the answer is one object with
`ok`. After an `attach` that was answered with yes the connection is a client's (`front.attached`).
"""

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from mcpx.base.aio import Tasks
from mcpx.base.files import FileLock, private_folder, require_private
from mcpx.model.call import Json, as_object
from mcpx.wire import channels, codec
from mcpx.wire.channels import socket_path

__all__ = ["Control", "Host", "Role", "Verb", "ask", "socket_path"]

log = logging.getLogger(__name__)

LONGEST = 4 << 20
"""Bytes of a request: an environment of the largest kind fits. An answer may be longer."""

PATIENCE = 2.0
"""Seconds a gateway that starts waits for one that is there already and does not answer."""
TURN = 5.0
"""Seconds it waits while another gateway is being started in the same place."""
LONGEST_KNOCK = 256
"""Bytes of what it says until then."""
KNOCKING = 5.0
"""Seconds a stranger has to show that it is none."""

Verb = Callable[[Json], Awaitable[Json]]
"""Gets the request."""

Role = Literal["http", "background", "alone"]
"""Whom a gateway is for: whoever finds it; clients that attach, and gone after them; the one client
that started it."""

YIELDS: Mapping[Role, Role | None] = {"http": "background", "background": "alone", "alone": None}
"""Which gateway leaves its place to one of this role."""


class Host(Protocol):
    """Who takes in clients."""

    def admit(self, request: Json) -> tuple[Json, asyncio.Protocol | None]:
        """The answer, and who goes on with the connection; None: nobody."""
        ...


class Control:
    def __init__(
        self,
        path: Path,
        verbs: Mapping[str, Verb],
        host: Host | None = None,
        *,
        role: Role = "http",
    ) -> None:
        """In the background the lock of the place is held already, by whoever had it started."""
        self._path = path
        self._verbs = verbs
        self._host = host
        self._role: Role = role
        self._door: channels.Door | None = None
        self._server: asyncio.Server | None = None
        self._tasks = Tasks("control")
        self._connections: set[_Connection] = set()

    @property
    def listening(self) -> bool:
        """Whether it is this gateway that is found on the config."""
        return self._server is not None

    async def start(self) -> None:
        """Listen, unless another gateway on the same config does already. Failing costs comfort,
        not function."""
        if self._role == "background":
            lock = None
        else:
            lock = FileLock(self._path.with_suffix(".lock"))
        try:
            private_folder(self._path.parent)
            if lock is not None:
                await asyncio.to_thread(lock.acquire, TURN)
            if channels.is_taken(self._path):
                if not await self._made_free():
                    log.info(
                        "another mcpx runs on this config; `mcpx servers` and `mcpx reload` reach "
                        "that one"
                    )
                    return
                channels.clear(self._path)
            door = channels.listen(self._path)
            try:
                loop = asyncio.get_running_loop()
                if _is_unix(door.listening):
                    serve = loop.create_unix_server
                else:
                    serve = loop.create_server
                self._server = await serve(lambda: _Connection(self, door), sock=door.listening)
            except BaseException:
                door.clear()
                door.listening.close()
                raise
            self._door = door
        except (OSError, NotImplementedError) as error:
            log.warning(
                "no control socket: %s; `mcpx servers` and `mcpx reload` cannot reach this gateway",
                error,
            )
        finally:
            if lock is not None:
                lock.release()

    async def _made_free(self) -> bool:
        """Whether nobody is there, or who is there goes."""
        there = await ask(self._path, "status", PATIENCE)
        if there is None:
            return True
        if there.get("role") is None or there["role"] != YIELDS[self._role]:
            return False
        answer = await ask(self._path, "retire", PATIENCE)
        if answer is not None and not answer.get("ok"):
            return False
        if self._role == "http":
            log.info("the gateway that ran in the background for clients makes way; they move here")
        return True

    async def answer(self, line: bytes) -> tuple[Json, Any]:
        """What to say to a request, and who goes on with the connection, if somebody does."""
        try:
            request = as_object(codec.load(line))
        except codec.BadJson:
            request = {}
        asked = str(request.get("do"))
        if asked == "attach" and self._host is not None:
            return self._host.admit(request)
        verb = self._verbs.get(asked)
        if verb is None:
            known = [*self._verbs, *(("attach",) if self._host is not None else ())]
            return {"ok": False, "error": f"say one of {', '.join(sorted(known))}"}, None
        try:
            return await verb(request), None
        except Exception as error:
            log.exception("a control verb failed")
            return {"ok": False, "error": type(error).__name__}, None

    def came(self, connection: "_Connection") -> None:
        self._connections.add(connection)

    def left(self, connection: "_Connection") -> None:
        self._connections.discard(connection)

    def work(self, connection: "_Connection", line: bytes) -> None:
        self._tasks.start(connection.work(line), apart=True)

    def leave_place(self) -> None:
        """Nobody new comes in; who is there may stay."""
        if self._door is not None:
            self._door.clear()
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        self.leave_place()
        await self._tasks.close()
        for connection in list(self._connections):
            connection.close()


class _Connection(asyncio.Protocol):
    """One at the door: requests in turn, each answered before the next is looked at."""

    def __init__(self, control: Control, door: channels.Door) -> None:
        self._control = control
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._busy = False
        self._at_end = False
        self._knock = door.knock
        self._welcome = door.welcome
        self._deadline: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._control.came(self)
        if self._knock is not None:
            self._deadline = asyncio.get_running_loop().call_later(KNOCKING, self.close)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > (LONGEST if self._knock is None else LONGEST_KNOCK):
            if self._knock is None and b"\n" in self._buffer:
                self._pause()
            else:
                self.close()
                return
        self._next()

    def eof_received(self) -> bool:
        self._at_end = True
        self._next()
        return self._busy  # the answer is still wanted

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drained.set()
        self._control.left(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _next(self) -> None:
        """Take the next request, if one is there and none is being answered."""
        if self._busy or self._transport is None or self._transport.is_closing():
            return
        at = self._buffer.find(b"\n")
        if at < 0:
            if self._at_end:
                self.close()
            elif not self._transport.is_reading():
                self._transport.resume_reading()
            return
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        if self._knock is not None:
            self._admit(line)
            return
        self._busy = True
        self._control.work(self, line)

    def _admit(self, line: bytes) -> None:
        assert self._transport is not None
        if self._knock is None or not secrets.compare_digest(line, self._knock):
            log.warning("somebody without the word knocked at the control port, and was not let in")
            self.close()
            return
        self._knock = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport.write(self._welcome + b"\n")
        self._next()

    async def work(self, line: bytes) -> None:
        transport = self._transport
        assert transport is not None
        answer, successor = await self._control.answer(line)
        if transport.is_closing():
            return
        transport.write(codec.dump(answer) + b"\n")
        if successor is not None:
            self._hand_over(transport, successor)
            return
        await self._drained.wait()
        self._busy = False
        self._next()

    def _hand_over(self, transport: asyncio.Transport, successor: asyncio.Protocol) -> None:
        """Somebody else goes on from here."""
        self._control.left(self)
        transport.set_protocol(successor)
        successor.connection_made(transport)
        if not transport.is_reading():
            transport.resume_reading()
        if not self._drained.is_set():
            successor.pause_writing()
        if self._buffer:
            successor.data_received(bytes(self._buffer))
        if self._at_end and not successor.eof_received():
            transport.close()


def _is_unix(opened: socket.socket) -> bool:
    return opened.family != socket.AF_INET


async def ask(path: Path, verb: str, timeout: float = 40.0, **more: object) -> Json | None:
    """Put one verb to the gateway behind a channel, with what it needs; None when nobody is
    there."""
    try:
        require_private(path.parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning(
            "no running gateway is asked: %s", error
        )  # who answers there may be somebody else
        return None
    if not channels.is_taken(path):
        return None
    try:
        connected = await asyncio.to_thread(channels.dial, path, min(timeout, PATIENCE))
        connected.setblocking(False)
        if _is_unix(connected):
            talk = asyncio.open_unix_connection
        else:
            talk = asyncio.open_connection
        reader, writer = await talk(sock=connected, limit=64 * 2**20)
    except (OSError, NotImplementedError):
        return None
    try:
        async with asyncio.timeout(timeout):
            writer.write(json.dumps({**more, "do": verb}).encode() + b"\n")
            answer: Any = codec.load(await reader.readline())
    except (OSError, ValueError, TimeoutError, codec.BadJson):
        return None
    finally:
        writer.close()
    return as_object(answer) or None
