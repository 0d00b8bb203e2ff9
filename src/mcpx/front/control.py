"""The way in for whoever looks after a running gateway: a Unix socket only its owner may open, JSON lines both ways.

One per config: `mcpx servers` and `mcpx reload` find the gateway that runs on the same file. A request is
`{"do": "status"}`, with what the verb needs beside it; the answer is one object with `ok`.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from mcpx.model.call import Json, as_object
from mcpx.wire import codec
from mcpx.wire.folders import private_folder, require_private

log = logging.getLogger(__name__)

LONGEST = 65536
"""Bytes of a request; an answer may be longer."""

PATIENCE = 2.0
"""Seconds a gateway that starts waits for one that is there already and does not answer."""

Verb = Callable[[Json], Awaitable[Json]]
"""Gets the request."""


def socket_path(state: Path, config: Path, env: str | None) -> Path:
    name = hashlib.sha256(f"{config}\0{env or ''}".encode()).hexdigest()[:16]
    return state / "control" / f"{name}.sock"


@contextlib.contextmanager
def _short(path: Path) -> Generator[str]:
    """A Unix socket's address has about 100 bytes; through its folder's descriptor any path is short enough."""
    if len(os.fsencode(path)) < 100 or not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Control:
    def __init__(self, path: Path, verbs: Mapping[str, Verb]) -> None:
        self._path = path
        self._verbs = verbs
        self._server: asyncio.Server | None = None
        self._made: tuple[int, int] | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, unless another gateway on the same config does already. Failing costs comfort, not function."""
        try:
            private_folder(self._path.parent)
            if self._is_taken():
                if await ask(self._path, "status", PATIENCE) is not None:
                    log.info("another mcpx runs on this config; `mcpx servers` and `mcpx reload` reach that one")
                    return
                self._path.unlink()
            listening = self._bind()
            try:
                self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=LONGEST)
            except BaseException:
                listening.close()
                raise
            self._made = self._mark()
        except (OSError, NotImplementedError, AttributeError) as error:  # AttributeError: no such sockets here
            log.warning("no control socket: %s; `mcpx servers` and `mcpx reload` cannot reach this gateway", error)

    def _is_taken(self) -> bool:
        return os.path.lexists(self._path)

    def _bind(self) -> socket.socket:
        """The folder lets nobody else in; the socket is 0600 all the same, without touching the umask, which other
        threads use too."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(OSError):  # only on Linux does it hold for the file that is made
                os.fchmod(made.fileno(), 0o600)
            with _short(self._path) as address:
                made.bind(address)
            os.chmod(self._path, 0o600)
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
        return made

    def _mark(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            await self._converse(reader, writer)
        except asyncio.CancelledError:
            pass  # the gateway is ending
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                writer.write(codec.dump(await self._answer(line)) + b"\n")
                await writer.drain()

    async def _answer(self, line: bytes) -> Json:
        try:
            request = as_object(codec.load(line))
        except codec.BadJson:
            request = {}
        verb = self._verbs.get(str(request.get("do")))
        if verb is None:
            return {"ok": False, "error": f"say one of {', '.join(sorted(self._verbs))}"}
        try:
            return await verb(request)
        except Exception as error:
            log.exception("a control verb failed")
            return {"ok": False, "error": type(error).__name__}

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._serving:
                task.cancel()
            if self._serving:
                await asyncio.wait(self._serving)
            with contextlib.suppress(OSError):
                if self._mark() == self._made:  # another gateway may have taken the place
                    self._path.unlink()


async def ask(path: Path, verb: str, timeout: float = 40.0, **more: object) -> Json | None:
    """Put one verb to the gateway behind a socket, with what it needs; None when nobody is there."""
    try:
        require_private(path.parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("no running gateway is asked: %s", error)  # who answers there may be somebody else
        return None
    try:
        with _short(path) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=64 * 2**20)
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
