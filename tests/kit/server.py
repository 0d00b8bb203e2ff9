"""`ScriptedServer`: an MCP server in the test's process that records messages. Its replies are set
per method."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from kit.loop import never_return
from mcpx.config import Server
from mcpx.model.call import Json
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, SERVER_DOWN, RpcError, Unavailable
from mcpx.transports.dial import Dial
from mcpx.wire import era
from mcpx.wire.peer import Meanwhile, Peer


class ScriptedConnection:
    """One connection to a `ScriptedServer`: the gateway's end (`wire.peer.Conversation`) and the
    server's end.

    The ends are two `Peer`s that exchange bytes.
    """

    def __init__(self, toy: "ScriptedServer", dial: Dial) -> None:
        self.toy = toy
        self.dial = dial
        self.era = ""
        self.heard: list[tuple[str, Json]] = []
        """Methods and parameters of all requests and notifications that the server has received."""
        self.cancelled: list[Any] = []
        """Ids of cancelled requests."""
        self.closed_by_gateway = False
        loop = asyncio.get_running_loop()
        self._client = Peer(
            dial.name, lambda raw: loop.call_soon(self.server.receive, raw) and None, dial.inbound
        )
        self.server = Peer(
            "toy", lambda raw: loop.call_soon(self._client.receive, raw) and None, _ServerEnd(self)
        )

    # The gateway's end.

    async def request(
        self,
        method: str,
        params: Json,
        *,
        meanwhile: Meanwhile | None = None,
        timeout: float | None = None,
    ) -> Json:
        return await self._client.request(method, params, meanwhile=meanwhile, timeout=timeout)

    def notify(self, method: str, params: Json | None) -> None:
        self._client.notify(method, params)

    def agreed(self, version: str) -> None:
        pass

    def memory(self) -> int:
        return 0

    async def close(self) -> None:
        self.closed_by_gateway = True
        await self.server.close()
        await self._client.close()

    # The server's end.

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """Send a request to the gateway."""
        return await self.server.request(method, params)

    def say(self, method: str, params: Json | None = None) -> None:
        """Send a notification to the gateway."""
        self.server.notify(method, params)

    def die(self, reason: str = "died") -> None:
        """Break the connection."""
        self._client.lose(reason)

    def calls(self) -> list[Json]:
        """Parameters of all tool calls."""
        return [params for method, params in self.heard if method == "tools/call"]

    def methods(self) -> list[str]:
        return [method for method, _ in self.heard]


class _ServerEnd:
    """Receives the messages for the server (`wire.peer.Inbound`)."""

    def __init__(self, line: ScriptedConnection) -> None:
        self._line = line

    async def request(self, message: Json) -> Json:
        line, method, params = self._line, message["method"], message.get("params") or {}
        line.heard.append((method, params))
        try:
            return await line.toy.answer(line, method, params)
        except asyncio.CancelledError:
            line.cancelled.append(message["id"])
            raise

    def notification(self, method: str, params: Json) -> None:
        self._line.heard.append((method, params))

    def closed(self, reason: str) -> None:
        pass


Handler = Callable[[ScriptedConnection, Json], Awaitable[Json]]


class ScriptedServer:
    """A transport: each `open` creates a `ScriptedConnection`.

    `tools` are functions of (connection, params), or names of tools that return their argument
    `text`. `answers` replaces whole methods.
    """

    def __init__(
        self,
        *eras: str,
        tools: dict[str, Handler] | Iterable[str] = ("echo",),
        capabilities: Json | None = None,
        answers: Mapping[str, Handler] | None = None,
    ) -> None:
        self.eras = eras or ("modern", "older")
        self.tools: dict[str, Handler] = (
            dict(tools) if isinstance(tools, dict) else dict.fromkeys(tools, echo)
        )
        self.capabilities = (
            {"tools": {"listChanged": True}} if capabilities is None else capabilities
        )
        self.answers: dict[str, Handler] = dict(answers or {})
        self.lines: list[ScriptedConnection] = []
        """All connections, oldest first."""
        self.opening = asyncio.Event()
        """`open` waits for this event. It is set unless a test clears it."""
        self.opening.set()
        self.down: str | None = None
        """The reason why `open` fails."""
        self.attempts = 0

    @property
    def alive(self) -> list[ScriptedConnection]:
        return [line for line in self.lines if not line.closed_by_gateway]

    async def open(self, dial: Dial) -> ScriptedConnection:
        self.attempts += 1
        await self.opening.wait()
        if self.down is not None:
            raise Unavailable(dial.name, SERVER_DOWN, self.down)
        line = ScriptedConnection(self, dial)
        self.lines.append(line)
        return line

    async def answer(self, line: ScriptedConnection, method: str, params: Json) -> Json:
        if method in self.answers:
            return await self.answers[method](line, params)
        match method:
            case "server/discover" if "modern" in self.eras:
                line.era = "modern"
                return {"supportedVersions": list(era.MODERN), "capabilities": self.capabilities}
            case "initialize" if "older" in self.eras:
                line.era = "older"
                version = era.negotiate(params.get("protocolVersion"))
                return {
                    "protocolVersion": version,
                    "capabilities": self.capabilities,
                    "serverInfo": {"name": "toy"},
                }
            case "tools/list":
                return {
                    "tools": [
                        {"name": name, "inputSchema": {"type": "object"}} for name in self.tools
                    ]
                }
            case "tools/call":
                tool = self.tools.get(params.get("name", ""))
                if tool is None:
                    raise RpcError(INVALID_PARAMS, "no such tool")
                return await tool(line, params)
            case "subscriptions/listen":
                line.say(
                    "notifications/subscriptions/acknowledged",
                    {"notifications": params.get("notifications")},
                )
                return await never_return()
            case _:
                raise RpcError(METHOD_NOT_FOUND, method)

    def server(self, name: str = "toy", **fields: Any) -> Server:
        """The entry of `mcp_servers` that connects to this server."""
        fields.setdefault("timeout", 5.0)
        fields.setdefault("call_timeout", 5.0)
        return Server(name=name, connection=self, **fields)  # pyright: ignore[reportArgumentType]


async def echo(line: ScriptedConnection, params: Json) -> Json:
    return {"content": [{"type": "text", "text": str(params.get("arguments", {}).get("text", ""))}]}


def asking_tool(*questions: tuple[str, Json | None]) -> Handler:
    """A tool of an older server. It sends these requests to the client one by one and returns the
    responses."""

    async def tool(line: ScriptedConnection, params: Json) -> Json:
        answers = [await line.ask(method, given) for method, given in questions]
        return {"content": [], "structuredContent": {"answers": answers}}

    return tool
