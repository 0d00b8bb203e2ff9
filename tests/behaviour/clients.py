"""Four kinds of clients behind one interface: the SDK's own and a raw one, each in both eras, on
every front.

    async with connected("raw-modern", door, AnsweringUser("ada")) as client:
        await client.call("http_older_echo", {"text": "hello"})

An `AnsweringUser` answers every question of a server in its own name, and records questions and
notifications. Everything is wire JSON, so that one test uses all four kinds. The SDK's typed models
drop unknown fields, so only the raw kinds can tell whether unknown fields survive. The raw kinds
also record messages that no client should ever get (`AnsweringUser.complaints`).
"""

import base64
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.abc
import anyio.lowlevel
import httpx2
import mcp
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.subscriptions import ResourceUpdated, Subscription, ToolsListChanged
from mcp.shared.exceptions import MCPError
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from fixtures.websocket_client import websocket_client

Json = dict[str, Any]
OnProgress = Callable[[Json], None]
Front = Literal["stdio", "http", "sse", "websocket", "bridge"]
"""A bridge is stdio to the client, and leads into a gateway that others share."""
Kind = Literal["sdk-modern", "sdk-older", "raw-modern", "raw-older"]

KINDS: tuple[Kind, ...] = ("sdk-modern", "sdk-older", "raw-modern", "raw-older")
FRONTS: tuple[Front, ...] = ("stdio", "http", "sse", "websocket")

MODERN = "2026-07-28"
OLDER = "2025-11-25"
META = "io.modelcontextprotocol/"
BOUND = 20.0
"""Seconds for what must come: an SDK upstream may have to be started first, on a busy machine."""

TOOLS_CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
PROGRESS = "notifications/progress"
MESSAGE = "notifications/message"

ROUNDS = 10
LIST_KEYS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


@dataclass(frozen=True)
class Door:
    """Where a gateway is entered: the address of a network front, or the command that serves it on
    stdio."""

    front: Front
    url: str = ""
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    stderr: Path | None = None
    """Takes what a gateway that is started as a command says on stderr."""


class RefusedError(Exception):
    """A JSON-RPC error; `error` is the whole object as it came."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["code"], error["message"])
        self.error = error


@dataclass(frozen=True)
class Question:
    method: str
    params: Json
    id: str | int | None = None
    """The request's id, where questions are requests and the client lets one see them: raw,
    older."""


class AnsweringUser:
    """Answers the questions of servers and records notifications. A quiet user declares no
    capabilities."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self.name = name
        self.quiet = quiet
        self.asked: list[Question] = []
        self.heard: list[tuple[str, Json]] = []
        """Notifications that belong to no call, and log messages."""
        self.complaints: list[str] = []
        self._news = anyio.Event()

    @property
    def capabilities(self) -> Json:
        able = {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {},
            "roots": {"listChanged": True},
        }
        return {} if self.quiet else able

    def answer(self, question: Question) -> Json:
        self.asked.append(question)
        match question.method:
            case "elicitation/create" if question.params.get("mode") == "url":
                return {"action": "accept"}
            case "elicitation/create":
                return {"action": "accept", "content": {"name": self.name}}
            case "sampling/createMessage":
                content = {"type": "text", "text": f"{self.name} says yes"}
                return {"role": "assistant", "content": content, "model": f"model of {self.name}"}
            case "roots/list":
                return {"roots": [{"uri": f"file:///home/{self.name}", "name": self.name}]}
            case _:
                self.complaints.append(f"was asked {question.method}")
                return {}

    def hear(self, method: str, params: Json) -> None:
        self.heard.append((method, params))
        news, self._news = self._news, anyio.Event()
        news.set()

    async def next_after(self, position: int, method: str) -> tuple[int, Json]:
        """The first notification of a method from `position` in `heard` on, and the position after
        it."""
        while True:
            for at in range(position, len(self.heard)):
                if self.heard[at][0] == method:
                    return at + 1, self.heard[at][1]
            await self._news.wait()


class Client(ABC):
    """What the behaviours need of a client. Cancelling the task that waits for a request cancels
    the request."""

    def __init__(self, user: AnsweringUser, *, modern: bool) -> None:
        self.user = user
        self.modern = modern

    raw = False
    """Whether it shows messages as they came."""

    @abstractmethod
    async def request(
        self, method: str, params: Json | None = None, on_progress: OnProgress | None = None
    ) -> Json:
        """The result; the user answers questions of the server. An error is a `RefusedError`."""

    @abstractmethod
    def watching(self, *uris: str) -> AbstractAsyncContextManager[None]:
        """Hear of changed tools and of updates of these resources, in the way of the client's
        era."""

    async def call(
        self, tool: str, arguments: Json | None = None, on_progress: OnProgress | None = None
    ) -> Json:
        return await self.request(
            "tools/call", {"name": tool, "arguments": arguments or {}}, on_progress
        )

    async def listed(self, method: str) -> list[Json]:
        return (await self.request(method))[LIST_KEYS[method]]


def connected(kind: Kind, door: Door, user: AnsweringUser) -> AbstractAsyncContextManager[Client]:
    opened = _sdk_client if kind.startswith("sdk") else raw_client
    return opened(door, user, kind.endswith("modern"))


# ---- the SDK's client


class SdkClient(Client):
    def __init__(self, reach: Any, user: AnsweringUser, *, modern: bool) -> None:
        super().__init__(user, modern=modern)
        asks = {} if user.quiet else self._callbacks()
        self.inner = mcp.Client(
            reach,
            mode=MODERN if modern else "legacy",
            client_info=types.Implementation(name=user.name, version="1"),
            log_level="info" if modern else None,  # older ones say it in a request
            message_handler=self._heard,
            **asks,
        )

    def _callbacks(self) -> Json:
        async def elicit(ctx: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            return types.ElicitResult.model_validate(self._answer("elicitation/create", params))

        async def sample(
            ctx: Any, params: types.CreateMessageRequestParams
        ) -> types.CreateMessageResult:
            return types.CreateMessageResult.model_validate(
                self._answer("sampling/createMessage", params)
            )

        async def roots(ctx: Any) -> types.ListRootsResult:
            return types.ListRootsResult.model_validate(self._answer("roots/list", None))

        return {
            "elicitation_callback": elicit,
            "sampling_callback": sample,
            "list_roots_callback": roots,
        }

    def _answer(self, method: str, params: Any) -> Json:
        return self.user.answer(Question(method, {} if params is None else _wire(params)))

    async def _heard(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.user.complaints.append(f"transport: {message!r}")
        elif message.method == MESSAGE or (message.method != PROGRESS and not self.modern):
            # A modern client hears of changes where it listens for them, see `watching`.
            self.user.hear(
                message.method, _wire(message.params) if message.params is not None else {}
            )

    async def request(
        self, method: str, params: Json | None = None, on_progress: OnProgress | None = None
    ) -> Json:
        try:
            return _wire(await self._request(method, params or {}, on_progress))
        except MCPError as error:
            raise RefusedError(_wire(error.error)) from None

    async def _request(self, method: str, params: Json, on_progress: OnProgress | None) -> Any:
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                on_progress({"progress": progress, "total": total, "message": message})

        match method:
            case "tools/list":
                return await self.inner.list_tools()
            case "tools/call":
                told = progressed if on_progress is not None else None
                return await self.inner.call_tool(
                    params["name"], params["arguments"], progress_callback=told
                )
            case "resources/list":
                return await self.inner.list_resources()
            case "resources/templates/list":
                return await self.inner.list_resource_templates()
            case "resources/read":
                return await self.inner.read_resource(params["uri"])
            case "prompts/list":
                return await self.inner.list_prompts()
            case "prompts/get":
                return await self.inner.get_prompt(params["name"], params["arguments"])
            case "completion/complete":
                kind = {
                    "ref/prompt": types.PromptReference,
                    "ref/resource": types.ResourceTemplateReference,
                }
                reference = kind[params["ref"]["type"]].model_validate(params["ref"])
                return await self.inner.complete(reference, params["argument"])
            case "logging/setLevel":
                return await self.inner.set_logging_level(params["level"])
            case _:
                raise NotImplementedError(method)

    @asynccontextmanager
    async def watching(self, *uris: str) -> AsyncIterator[None]:
        if self.modern:
            async with (
                self.inner.listen(
                    tools_list_changed=True, resource_subscriptions=uris
                ) as subscription,
                anyio.create_task_group() as group,
            ):
                assert set(subscription.honored.resource_subscriptions or ()) == set(uris)
                group.start_soon(self._follow, subscription)
                yield
                group.cancel_scope.cancel()
        else:
            for uri in uris:
                await self.inner.subscribe_resource(uri)
            yield
            for uri in uris:
                await self.inner.unsubscribe_resource(uri)

    async def _follow(self, subscription: Subscription) -> None:
        async for event in subscription:
            match event:
                case ToolsListChanged():
                    self.user.hear(TOOLS_CHANGED, {})
                case ResourceUpdated(uri):
                    self.user.hear(UPDATED, {"uri": uri})
                case _:
                    self.user.complaints.append(f"did not listen for {event}")


@asynccontextmanager
async def _sdk_client(door: Door, user: AnsweringUser, modern: bool) -> AsyncIterator[Client]:
    if door.front in ("stdio", "bridge"):
        program, *args = door.command
        server = StdioServerParameters(command=program, args=args, env=dict(door.env))
        assert door.stderr is not None
        with door.stderr.open("w", encoding="utf-8") as errlog:
            client = SdkClient(stdio_client(server, errlog), user, modern=modern)
            async with client.inner:
                yield client
        return
    reach: Any = {"http": str, "sse": sse_client, "websocket": _sdk_socket}[door.front](door.url)
    client = SdkClient(reach, user, modern=modern)
    async with client.inner:
        yield client


@asynccontextmanager
async def _sdk_socket(url: str) -> AsyncIterator[tuple[Any, Any]]:
    try:
        async with websocket_client(url) as streams:
            yield streams
    except* anyio.BrokenResourceError:
        pass  # a notification came while the session was leaving


def _wire(model: Any) -> Json:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


# ---- the raw client


class Carrier(ABC):
    """Takes messages to the gateway; what comes back goes to `hear`."""

    hear: Callable[[Json], None]

    @abstractmethod
    async def send(self, message: Json) -> None: ...

    async def cancel(self, request_id: int) -> None:
        await self.send(_notification("notifications/cancelled", {"requestId": request_id}))

    async def greeted(self) -> None:
        """The handshake is over: there may be one more stream to open."""
        await anyio.lowlevel.checkpoint()


@dataclass
class _Waiting:
    answered: anyio.Event = field(default_factory=anyio.Event)
    reply: Json = field(default_factory=dict)
    on_progress: OnProgress | None = None
    acknowledged: anyio.Event | None = None
    """Of a `subscriptions/listen`: it hears of changes from here on."""
    honoured: Json = field(default_factory=dict)


class RawClient(Client):
    """Ids and progress tokens count from 1 in each client: a gateway that mixes them up is found
    out."""

    raw = True

    def __init__(
        self, carrier: Carrier, user: AnsweringUser, group: anyio.abc.TaskGroup, *, modern: bool
    ) -> None:
        super().__init__(user, modern=modern)
        self.info: Json = {"name": user.name, "version": "1", "x-unknown": True}
        self.told: Json = {}
        """What the gateway said of itself."""
        self._carrier = carrier
        self._group = group
        self._ids = itertools.count(1)
        self._waiting: dict[Any, _Waiting] = {}
        carrier.hear = self._hear

    async def open(self, version: str) -> None:
        if self.modern:
            self.told = await self.request("server/discover")
            return
        hello = {
            "protocolVersion": version,
            "capabilities": self.user.capabilities,
            "clientInfo": self.info,
        }
        self.told = await self.request("initialize", hello)
        await self._carrier.send(_notification("notifications/initialized", None))
        await self._carrier.greeted()

    # -- requests

    async def request(
        self, method: str, params: Json | None = None, on_progress: OnProgress | None = None
    ) -> Json:
        plain = params = params or {}
        for _ in range(ROUNDS):
            result = await self._once(method, params, _Waiting(on_progress=on_progress))
            if result.get("resultType") != "input_required":
                return result
            params = {**plain, "inputResponses": {}}
            for key, question in result.get("inputRequests", {}).items():
                asked = Question(question["method"], question.get("params", {}))
                params["inputResponses"][key] = self.user.answer(asked)
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise AssertionError(f"{method} asked for input {ROUNDS} times")

    async def _once(self, method: str, params: Json, waiting: _Waiting) -> Json:
        request_id = next(self._ids)
        self._waiting[request_id] = waiting
        stamped = self._stamped(params, request_id if waiting.on_progress is not None else None)
        try:
            await self._carrier.send(
                {"jsonrpc": "2.0", "id": request_id, "method": method, "params": stamped}
            )
            await waiting.answered.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(BOUND, shield=True):
                await self._carrier.cancel(request_id)
            raise
        finally:
            del self._waiting[request_id]
        if "error" in waiting.reply:
            raise RefusedError(waiting.reply["error"])
        result = waiting.reply["result"]
        if ("resultType" in result) != self.modern:
            self.user.complaints.append(
                f"{method}: resultType belongs to modern results only: {result}"
            )
        return result

    def _stamped(self, params: Json, token: int | None) -> Json:
        meta = dict(params.get("_meta", {}))
        if token is not None:
            meta["progressToken"] = token
        if self.modern:
            meta |= {
                META + "protocolVersion": MODERN,
                META + "clientInfo": self.info,
                META + "clientCapabilities": self.user.capabilities,
                META + "logLevel": "info",
            }
        return {**params, "_meta": meta} if meta else params

    @asynccontextmanager
    async def watching(self, *uris: str) -> AsyncIterator[None]:
        if not self.modern:
            for uri in uris:
                await self.request("resources/subscribe", {"uri": uri})
            yield
            for uri in uris:
                await self.request("resources/unsubscribe", {"uri": uri})
            return
        wanted: Json = {"toolsListChanged": True} | (
            {"resourceSubscriptions": list(uris)} if uris else {}
        )
        waiting = _Waiting(acknowledged=anyio.Event())
        assert waiting.acknowledged is not None
        async with anyio.create_task_group() as group:
            group.start_soon(self._once, "subscriptions/listen", {"notifications": wanted}, waiting)
            await waiting.acknowledged.wait()
            assert waiting.honoured == wanted
            yield
            group.cancel_scope.cancel()

    # -- what comes back

    def _hear(self, message: Json) -> None:
        if "method" not in message:
            waiting = self._waiting.get(message["id"])
            if waiting is not None:  # else: an answer to what was cancelled
                waiting.reply = message
                waiting.answered.set()
        elif "id" in message:
            if self.modern:
                self.user.complaints.append(f"a modern client got a request: {message}")
            self._group.start_soon(self._answer, message)
        else:
            self._notified(message["method"], message.get("params", {}))

    async def _answer(self, message: Json) -> None:
        question = Question(message["method"], message.get("params", {}), message["id"])
        answer = self.user.answer(question)
        await self._carrier.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})

    def _notified(self, method: str, params: Json) -> None:
        if method == PROGRESS:
            waiting = self._waiting.get(params["progressToken"])
            if waiting is not None and waiting.on_progress is not None:
                waiting.on_progress(params)
            return
        if self.modern and method != MESSAGE:
            waiting = self._waiting.get(params.get("_meta", {}).get(META + "subscriptionId"))
            if waiting is None or waiting.acknowledged is None:
                self.user.complaints.append(f"nobody listens to {method} {params}")
                return
            if method == "notifications/subscriptions/acknowledged":
                waiting.honoured = params["notifications"]
                waiting.acknowledged.set()
                return
            if not waiting.acknowledged.is_set():
                self.user.complaints.append(f"{method} came before the acknowledgement")
        self.user.hear(method, params)


@asynccontextmanager
async def raw_client(
    door: Door, user: AnsweringUser, modern: bool, version: str = OLDER
) -> AsyncIterator[RawClient]:
    """`version` is the revision an older one asks for."""
    async with _carrier(door, modern) as carrier, anyio.create_task_group() as group:
        client = RawClient(carrier, user, group, modern=modern)
        await client.open(version)
        yield client
        group.cancel_scope.cancel()


def _carrier(door: Door, modern: bool) -> AbstractAsyncContextManager[Carrier]:
    match door.front:
        case "stdio" | "bridge":
            return _pipe(door)
        case "websocket":
            return _socket(door.url)
        case "sse":
            return _event_stream(door.url)
        case "http":
            return _posts(door.url, modern)


def _notification(method: str, params: Json | None) -> Json:
    return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})


class _Pipe(Carrier):
    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self.leaving = False

    async def send(self, message: Json) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(json.dumps(message).encode() + b"\n")

    async def read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self.hear(json.loads(line))
        assert self.leaving, "mcpx closed its standard output"


@asynccontextmanager
async def _pipe(door: Door) -> AsyncIterator[Carrier]:
    """Leaving closes mcpx's standard input, which ends it (LIF-8)."""
    assert door.stderr is not None
    with door.stderr.open("wb") as errlog:
        async with await anyio.open_process(door.command, env=door.env, stderr=errlog) as process:
            carrier = _Pipe(process)
            async with anyio.create_task_group() as group:
                group.start_soon(carrier.read)
                yield carrier
                carrier.leaving = True
                assert process.stdin is not None
                await process.stdin.aclose()
                with anyio.fail_after(BOUND):
                    code = await process.wait()
                group.cancel_scope.cancel()
            assert code == 0, f"mcpx ended with {code}"


class _Socket(Carrier):
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: Json) -> None:
        await self._socket.send(json.dumps(message))

    async def read(self) -> None:
        async for frame in self._socket:
            self.hear(json.loads(frame))
        raise AssertionError("mcpx closed the WebSocket")


@asynccontextmanager
async def _socket(url: str) -> AsyncIterator[Carrier]:
    async with connect(url, subprotocols=[Subprotocol("mcp")], max_size=None, proxy=None) as socket:
        carrier = _Socket(socket)
        async with anyio.create_task_group() as group:
            group.start_soon(carrier.read)
            yield carrier
            group.cancel_scope.cancel()


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, str]]:
    """(event, data) of a stream; events without data (they only carry an id) are passed over."""
    event, data = "message", ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if not line:
            if data:
                yield event, data
            event, data = "message", ""
        elif name == "event":
            event = value
        elif name == "data":
            data += value


class _EventStream(Carrier):
    """HTTP+SSE of 2024-11-05: everything down on one GET, everything up by POST."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = httpx2.URL(url)
        self._endpoint: httpx2.URL | None = None
        self.ready = anyio.Event()

    async def send(self, message: Json) -> None:
        assert self._endpoint is not None
        reply = await self._http.post(self._endpoint, json=message)
        assert reply.status_code == 202, reply.text

    async def read(self) -> None:
        async with self._http.stream(
            "GET", self._url, headers={"Accept": "text/event-stream"}
        ) as response:
            async for event, data in _events(response):
                if event == "endpoint":
                    self._endpoint = self._url.join(data)
                    self.ready.set()
                else:
                    self.hear(json.loads(data))


@asynccontextmanager
async def _event_stream(url: str) -> AsyncIterator[Carrier]:
    async with _http() as http, anyio.create_task_group() as group:
        carrier = _EventStream(http, url)
        group.start_soon(carrier.read)
        await carrier.ready.wait()
        yield carrier
        group.cancel_scope.cancel()


class _Posts(Carrier):
    """Streamable HTTP. A request is posted in a task of its own, for its reply may be a stream."""

    def __init__(
        self, http: httpx2.AsyncClient, url: str, group: anyio.abc.TaskGroup, *, modern: bool
    ) -> None:
        self._http = http
        self._url = url
        self._group = group
        self._modern = modern
        self._session: dict[str, str] = {}
        self._open: dict[int, anyio.CancelScope] = {}

    def _headers(self, message: Json) -> dict[str, str]:
        both = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if not self._modern:
            return both | self._session
        method, params = message["method"], message["params"]
        headers = both | {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        name = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(method)
        return headers if name is None else headers | {"Mcp-Name": _header(params[name])}

    async def send(self, message: Json) -> None:
        if "method" in message and "id" in message:
            self._open[message["id"]] = scope = anyio.CancelScope()
            self._group.start_soon(self._exchange, message, scope)
            return
        reply = await self._http.post(
            self._url, content=json.dumps(message), headers=self._headers(message)
        )
        assert (reply.status_code, reply.content) == (202, b""), reply.text

    async def _exchange(self, message: Json, scope: anyio.CancelScope) -> None:
        with scope:
            body, headers = json.dumps(message), self._headers(message)
            async with self._http.stream(
                "POST", self._url, content=body, headers=headers
            ) as response:
                if message["method"] == "initialize":
                    version = message["params"]["protocolVersion"]
                    self._session = {
                        "Mcp-Session-Id": response.headers["mcp-session-id"],
                        "MCP-Protocol-Version": version,
                    }
                if response.headers["content-type"] == "text/event-stream":
                    async for _, data in _events(response):
                        self.hear(json.loads(data))
                else:
                    self.hear(json.loads(await response.aread()))
        self._open.pop(message["id"], None)

    async def cancel(self, request_id: int) -> None:
        """In the modern era closing the POST's connection is how a client cancels."""
        if self._modern:
            self._open[request_id].cancel()
        else:
            await super().cancel(request_id)

    async def greeted(self) -> None:
        listening = anyio.Event()
        self._group.start_soon(self._listen, listening)
        await listening.wait()

    async def _listen(self, listening: anyio.Event) -> None:
        headers = {"Accept": "text/event-stream"} | self._session
        async with self._http.stream("GET", self._url, headers=headers) as response:
            assert response.status_code == 200
            listening.set()
            async for _, data in _events(response):
                self.hear(json.loads(data))

    async def leave(self) -> None:
        if self._session:
            assert (await self._http.delete(self._url, headers=self._session)).status_code == 200


@asynccontextmanager
async def _posts(url: str, modern: bool) -> AsyncIterator[Carrier]:
    async with _http() as http, anyio.create_task_group() as group:
        carrier = _Posts(http, url, group, modern=modern)
        yield carrier
        await carrier.leave()
        group.cancel_scope.cancel()


def _http() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=None, trust_env=False, verify=False)


def _header(value: str) -> str:
    """A value as it survives a header (2026-07-28)."""
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
