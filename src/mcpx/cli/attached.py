"""A conversation with the gateway that runs on a config, by its control channel: plain MCP of the
older era.

Promised: a request that is given up is cancelled there; questions of servers are put to `elicit`,
everything else that is asked is refused. Imports nothing of the gateway's rooms: who asks a running
gateway is quick.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

from mcpx import __version__
from mcpx.base.files import require_private
from mcpx.front.control import ask
from mcpx.library.values import Progress
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, SERVER_DOWN, ConfigError, RpcError
from mcpx.wire import channels, codec, jsonrpc

LONGEST = 64 * 2**20
"""Bytes of one message."""
PATIENCE = 2.0
"""Seconds to get in."""
OURS = "mcpx"

Elicit = Callable[[str, Json], Awaitable[Json]]
"""Gets the server's name, if it is known, and the params; gives the result."""
OnProgress = Callable[[Progress], None]

CLIENT: Json = {"name": "mcpx command line", "version": __version__}


class Attached:
    """Implements `reach.Desk`."""

    running = True
    earlier_path = None

    def __init__(
        self,
        path: Path,
        profile: str | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        elicit: Elicit,
    ) -> None:
        self._path, self._profile = path, profile
        self._reader, self._writer = reader, writer
        self._elicit = elicit
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._progress: dict[int, OnProgress] = {}
        self._answering: set[asyncio.Task[None]] = set()

    # For commands
    # --------------------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Json | None = None, on_progress: OnProgress | None = None
    ) -> Json:
        number = next(self._ids)
        given = {} if params is None else params
        if on_progress is not None:
            self._progress[number] = on_progress
            given = {**given, "_meta": {**as_object(given.get("_meta")), "progressToken": number}}
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send(jsonrpc.request(number, method, given or None))
        try:
            return await waiting
        except asyncio.CancelledError:
            self._send(
                jsonrpc.notification(
                    "notifications/cancelled", {"requestId": number, "reason": "interrupted"}
                )
            )
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._writer.drain(), 1.0)
            raise
        finally:
            self._waiting.pop(number, None)
            self._progress.pop(number, None)

    async def search(self, query: str, limit: int) -> Json:
        answer = await self._ask("search", query=query, limit=limit, profile=self._profile)
        if not answer.get("ok"):
            raise ConfigError(
                [f"error: the gateway that runs cannot search: {answer.get('error')}"]
            )
        return answer

    async def missing(self, name: str) -> Json | None:
        answer = await self._ask("missing", name=name, profile=self._profile)
        return as_object(answer.get("missing")) or None

    async def servers(self) -> list[Json]:
        return [as_object(server) for server in as_list((await self._ask("status")).get("servers"))]

    async def _ask(self, verb: str, **more: object) -> Json:
        answer = await ask(self._path, verb, 40.0, **more)
        if answer is None:
            raise _gone()
        return answer

    # The conversation
    # ----------------------------------------------------------------------------------------

    async def greet(self) -> None:
        asked: Json = {"elicitation": {"form": {}, "url": {}}}
        params: Json = {
            "protocolVersion": "2025-11-25",
            "capabilities": asked,
            "clientInfo": CLIENT,
        }
        await self.request("initialize", params)
        self._send(jsonrpc.notification("notifications/initialized", None))

    async def listen(self) -> None:
        """Until the other side is gone."""
        try:
            while line := await self._reader.readline():
                with contextlib.suppress(codec.BadJson):
                    self._heard(as_object(codec.load(line)))
        except (OSError, ValueError):
            pass
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(_gone())

    def _heard(self, message: Json) -> None:
        match jsonrpc.classify(message):
            case "response":
                waiting = self._waiting.get(message.get("id") or 0)
                if waiting is None or waiting.done():
                    return
                if "error" in message:
                    waiting.set_exception(RpcError.from_json(message["error"]))
                else:
                    waiting.set_result(as_object(message.get("result")))
            case "request":
                task = asyncio.ensure_future(self._answer(message))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case "notification" if message.get("method") == "notifications/progress":
                params = jsonrpc.params_of(message)
                hears = self._progress.get(params.get("progressToken") or 0)
                if hears is not None:
                    hears(Progress.of(params))
            case _:
                pass

    async def _answer(self, message: Json) -> None:
        method, id = message["method"], message["id"]
        try:
            if method == "ping":
                result: Json = {}
            elif method == "elicitation/create":
                result = await self._elicit(_asker(id), jsonrpc.params_of(message))
            else:
                raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")
            self._send(jsonrpc.result(id, result))
        except RpcError as error:
            self._send(jsonrpc.failure(id, error))

    def _send(self, message: Json) -> None:
        self._writer.write(codec.dump(message) + b"\n")

    async def close(self) -> None:
        for task in list(self._answering):
            task.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def _asker(id: object) -> str:
    """Whose question it is, as the gateway's ids say it."""
    return str(id).rpartition(":")[0] if isinstance(id, str) else ""


def _gone() -> RpcError:
    return RpcError(SERVER_DOWN, "the gateway that ran on this config is gone")


@contextlib.asynccontextmanager
async def attached(
    path: Path, profile: str | None, elicit: Elicit
) -> AsyncGenerator[Attached | None]:
    """In the conversation; None: nobody is there who takes clients in."""
    opened = await _open(path, profile)
    if opened is None:
        yield None
        return
    made = Attached(path, profile, *opened, elicit)
    listening = asyncio.ensure_future(made.listen())
    try:
        await made.greet()
        yield made
    finally:
        listening.cancel()
        await made.close()


async def _open(
    path: Path, profile: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    try:
        require_private(path.parent)
        if not channels.is_taken(path):
            return None
        connected = await asyncio.to_thread(channels.dial, path, PATIENCE)
        connected.setblocking(False)
        is_unix = connected.family.name == "AF_UNIX"
        talk: Any = asyncio.open_unix_connection if is_unix else asyncio.open_connection
        reader, writer = await talk(sock=connected, limit=LONGEST)
    except (OSError, NotImplementedError):
        return None
    try:
        async with asyncio.timeout(PATIENCE):
            asked = {"do": "attach", "mode": "direct", "profile": profile}
            writer.write(json.dumps(asked).encode() + b"\n")
            answer = as_object(codec.load(await reader.readline()))
    except (OSError, ValueError, TimeoutError, codec.BadJson):
        writer.close()
        return None
    if answer.get("ok"):
        return reader, writer
    writer.close()
    if answer.get("reason") == "profile":
        raise ConfigError([f"error: {answer.get('error')}"])
    return None
