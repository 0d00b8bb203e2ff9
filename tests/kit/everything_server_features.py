"""The features of the test server: one example of each kind of tool, resource, prompt, and
notification."""

import base64
import hashlib
import hmac
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from everything_server_protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LEVELS,
    META_PREFIX,
    MISSING_CLIENT_CAPABILITY,
    MODERN_VERSION,
    Call,
    CallCancelled,
    Dispatcher,
    Json,
    RpcError,
    Sessions,
    invalid_params,
)

Tool = Callable[[Call, Json], Json]

NAME = "everything"
SERVER_INFO = {"name": NAME, "title": "Everything", "version": "1.0.0"}
INSTRUCTIONS = "One of each thing an MCP server can do. Meant for tests, not for models."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
NAMES = ("Ada", "Alan", "Albert", "Grace")
IDS = ("1", "10", "11", "2")
CONSENT_URL = "https://example.com/consent"
ITEM_PREFIX = "test://item/"
STATIC_RESOURCES: dict[str, Json] = {
    "test://static/text": {"mimeType": "text/plain", "text": "A static text."},
    "test://static/blob": {
        "mimeType": "application/octet-stream",
        "blob": base64.b64encode(bytes(range(256))).decode(),
    },
}

CACHE_HINTS: Json = {"ttlMs": 0, "cacheScope": "private"}
SUBSCRIPTION_ID_KEY = META_PREFIX + "subscriptionId"
REQUEST_STATE_SECONDS = 600

ANSWER_FIELDS = {
    "elicitation/create": ("action",),
    "sampling/createMessage": ("role", "content", "model"),
    "roots/list": ("roots",),
}
"""The required fields of the client's result, for each request that a tool sends to the client."""

STRING: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
INTEGER: Json = {"type": "integer"}


def takes(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def text_result(text: Any) -> Json:
    # Arguments are not checked against the tool's schema, so the text may be of any type.
    if not isinstance(text, str):
        raise RpcError(INTERNAL_ERROR, "Handler returned an invalid result")
    return {"content": [{"type": "text", "text": text}]}


def structured_result(value: Json) -> Json:
    return {**text_result(json.dumps(value)), "structuredContent": value}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in value]
    return value


class RequestStateSeal:
    """Signs the `requestState` of a modern call with a key of this process.

    A token is valid for one method, target, and set of arguments. Another process rejects the
    token.
    """

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def seal(self, call: Call, state: str) -> str:
        expiry = time.time() + REQUEST_STATE_SECONDS
        claims = json.dumps(
            {"expiry": expiry, "request": self._identity(call), "state": state}
        ).encode()
        return base64.urlsafe_b64encode(self._signature(claims) + claims).decode()

    def unseal(self, call: Call) -> str | None:
        """Return the state that the call brings back, or None. Raise RpcError if it is not valid
        for the call."""
        token = call.params.get("requestState")
        if token is None:
            return None
        try:
            sealed = base64.b64decode(token, altchars=b"-_", validate=True)
        except (ValueError, TypeError):
            raise self._refusal() from None
        signature = sealed[:32]
        claims_text = sealed[32:]
        if not hmac.compare_digest(signature, self._signature(claims_text)):
            raise self._refusal()
        claims = json.loads(claims_text)
        if claims["request"] != self._identity(call) or claims["expiry"] <= time.time():
            raise self._refusal()
        return claims["state"]

    def _signature(self, claims: bytes) -> bytes:
        return hmac.new(self._key, claims, hashlib.sha256).digest()

    @staticmethod
    def _identity(call: Call) -> str:
        salient = [
            call.method,
            call.params.get("name"),
            call.params.get("uri"),
            call.params.get("arguments") or {},
        ]
        return json.dumps(salient, sort_keys=True)

    @staticmethod
    def _refusal() -> RpcError:
        return RpcError(
            INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"}
        )


class Subscription:
    """An open `subscriptions/listen` stream."""

    def __init__(self, call: Call) -> None:
        requested = call.params["notifications"]
        self._call = call
        self._meta = {SUBSCRIPTION_ID_KEY: call.request_id}
        self._uris = requested.get("resourceSubscriptions") or []
        self._honored: Json = {}
        for kind in ("toolsListChanged", "promptsListChanged", "resourcesListChanged"):
            if requested.get(kind) is True:
                self._honored[kind] = True
        if self._uris:
            self._honored["resourceSubscriptions"] = self._uris
        # The acknowledgment is the first message of the stream.
        self._lock = threading.Lock()
        self._is_acknowledged = False
        self._waiting: list[tuple[str, Json]] = []

    def acknowledge(self) -> None:
        with self._lock:
            self._send("notifications/subscriptions/acknowledged", {"notifications": self._honored})
            self._is_acknowledged = True
            for method, params in self._waiting:
                self._send(method, params)

    def publish_tools_changed(self) -> None:
        if "toolsListChanged" in self._honored:
            self._deliver("notifications/tools/list_changed", {})

    def publish_update(self, uri: str) -> None:
        if uri in self._uris:
            self._deliver("notifications/resources/updated", {"uri": uri})

    def _deliver(self, method: str, params: Json) -> None:
        with self._lock:
            if self._is_acknowledged:
                self._send(method, params)
            else:
                self._waiting.append((method, params))

    def _send(self, method: str, params: Json) -> None:
        self._call.notify(method, {**params, "_meta": self._meta})


class Everything:
    """The state of one server process, and the handlers of its methods."""

    def __init__(self, record: str | None = None, page_size: int | None = None) -> None:
        self.sessions = Sessions()
        self._record = record
        self._page_size = page_size
        self._lock = threading.Lock()
        self._cancelled = 0
        self._subscriptions: list[Subscription] = []
        self._seal = RequestStateSeal()
        self._tools: dict[str, tuple[Json, Tool]] = {}
        self._add_tools()

    def dispatcher(self) -> Dispatcher:
        common = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }
        older = {
            "initialize": self._initialize,
            "ping": self._ping,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        modern = {"server/discover": self._discover, "subscriptions/listen": self._listen}
        return Dispatcher(SERVER_INFO, {**common, **older}, {**common, **modern})

    def input_schema(self, tool_name: Any) -> Json | None:
        tool = self._tools.get(tool_name) if isinstance(tool_name, str) else None
        return None if tool is None else tool[0]["inputSchema"]

    # Methods of one era.

    def _capabilities(self) -> Json:
        return {
            "completions": {},
            "logging": {},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "tools": {"listChanged": True},
        }

    def _initialize(self, call: Call) -> Json:
        assert call.session is not None
        call.session.accept(call.params)
        return {
            "protocolVersion": call.session.client.version,
            "capabilities": self._capabilities(),
            "serverInfo": SERVER_INFO,
            "instructions": INSTRUCTIONS,
        }

    def _discover(self, call: Call) -> Json:
        return {
            "supportedVersions": [MODERN_VERSION],
            "capabilities": self._capabilities(),
            "instructions": INSTRUCTIONS,
            **CACHE_HINTS,
        }

    def _ping(self, call: Call) -> Json:
        return {}

    def _set_level(self, call: Call) -> Json:
        assert call.session is not None
        level = call.params["level"]
        if level not in LEVELS:
            raise invalid_params()
        call.session.log_level = level
        return {}

    def _subscribe(self, call: Call) -> Json:
        assert call.session is not None
        call.session.subscribed.add(call.params["uri"])
        return {}

    def _unsubscribe(self, call: Call) -> Json:
        assert call.session is not None
        call.session.subscribed.discard(call.params["uri"])
        return {}

    def _listen(self, call: Call) -> Json:
        subscription = Subscription(call)
        with self._lock:
            self._subscriptions.append(subscription)
        try:
            subscription.acknowledge()
            call.wait()
        finally:
            with self._lock:
                self._subscriptions.remove(subscription)
        raise CallCancelled

    def _announce_tools(self) -> None:
        for subscription in self._open_subscriptions():
            subscription.publish_tools_changed()
        for session in self.sessions.all():
            session.notify("notifications/tools/list_changed")

    def _announce_update(self, uri: str) -> None:
        for subscription in self._open_subscriptions():
            subscription.publish_update(uri)
        for session in self.sessions.all():
            if uri in session.subscribed:
                session.notify("notifications/resources/updated", {"uri": uri})

    def _open_subscriptions(self) -> list[Subscription]:
        with self._lock:
            return list(self._subscriptions)

    # Resources, prompts, and completion.

    def _list_resources(self, call: Call) -> Json:
        listed = [
            {
                "uri": uri,
                "name": uri.rpartition("/")[2],
                "mimeType": content["mimeType"],
                "_meta": {"example.com/x": 1},
            }
            for uri, content in STATIC_RESOURCES.items()
        ]
        return {"resources": listed, **CACHE_HINTS}

    def _list_templates(self, call: Call) -> Json:
        template = {
            "uriTemplate": ITEM_PREFIX + "{id}",
            "name": "item",
            "mimeType": "application/json",
        }
        return {"resourceTemplates": [template], **CACHE_HINTS}

    def _read_resource(self, call: Call) -> Json:
        self._seal.unseal(call)
        uri = call.params["uri"]
        if uri in STATIC_RESOURCES:
            content = {"uri": uri, **STATIC_RESOURCES[uri]}
        elif uri.startswith(ITEM_PREFIX):
            body = json.dumps({"id": uri.removeprefix(ITEM_PREFIX)})
            content = {"uri": uri, "mimeType": "application/json", "text": body}
        else:
            raise RpcError(INVALID_PARAMS, "Resource not found", {"uri": uri})
        return {"contents": [content], **CACHE_HINTS}

    def _list_prompts(self, call: Call) -> Json:
        argument = {"name": "name", "description": "Whom to greet", "required": True}
        prompt = {"name": "greet", "description": "A greeting", "arguments": [argument]}
        return {"prompts": [prompt], **CACHE_HINTS}

    def _get_prompt(self, call: Call) -> Json:
        self._seal.unseal(call)
        if call.params["name"] != "greet":
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {call.params['name']}")
        arguments = call.params.get("arguments") or {}
        if not all(isinstance(value, str) for value in arguments.values()):
            raise invalid_params()
        content = {"type": "text", "text": f"Hello, {arguments.get('name', 'nobody')}!"}
        return {"description": "A greeting", "messages": [{"role": "user", "content": content}]}

    def _complete(self, call: Call) -> Json:
        kind = call.params["ref"].get("type")
        value = call.params["argument"].get("value")
        if kind not in ("ref/prompt", "ref/resource") or not isinstance(value, str):
            raise invalid_params()
        known = NAMES if kind == "ref/prompt" else IDS
        values = [name for name in known if name.startswith(value)]
        return {"completion": {"values": values, "total": len(values), "hasMore": False}}

    # Tools.

    def _list_tools(self, call: Call) -> Json:
        definitions = [definition for definition, _ in list(self._tools.values())]
        if self._page_size is None:
            return {"tools": definitions, **CACHE_HINTS}
        start = int(call.params.get("cursor") or 0)
        end = start + self._page_size
        page = {"tools": definitions[start:end], **CACHE_HINTS}
        if end < len(definitions):
            page["nextCursor"] = str(end)
        return page

    def _call_tool(self, call: Call) -> Json:
        state = self._seal.unseal(call)
        name = call.params["name"]
        if name not in self._tools:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        definition, run = self._tools[name]
        arguments = call.params.get("arguments") or {}
        missing = [
            name for name in definition["inputSchema"].get("required", ()) if name not in arguments
        ]
        if missing:
            raise RpcError(INVALID_PARAMS, f"Missing: {', '.join(missing)}")
        # A tool that asks the client finds the unsealed state here.
        call.params["requestState"] = state
        return run(call, arguments)

    def _add_tools(self) -> None:
        reads = {"annotations": {"readOnlyHint": True}}
        sum_schema = {"type": "object", "properties": {"sum": NUMBER}, "required": ["sum"]}
        region = {"type": "string", "x-mcp-header": "Region"}
        self._add_tool("echo", self._echo, "Returns the text", takes(text=STRING), **reads)
        self._add_tool(
            "add",
            self._add,
            "Adds two numbers",
            takes(a=NUMBER, b=NUMBER),
            outputSchema=sum_schema,
            **reads,
        )
        self._add_tool(
            "progress", self._progress, "Reports progress 1 to `steps`", takes(steps=INTEGER)
        )
        self._add_tool(
            "slow",
            self._slow,
            "Takes its time; says 0 of `seconds` as progress at once",
            takes(seconds=NUMBER),
        )
        self._add_tool(
            "cancelled_count", self._cancelled_count, "How many `slow` calls were cancelled"
        )
        self._add_tool(
            "fail", self._fail, "Fails with a JSON-RPC error", takes(code=INTEGER, message=STRING)
        )
        self._add_tool(
            "tool_error", self._tool_error, "Fails with an isError result", takes(message=STRING)
        )
        self._add_tool("elicit", self._elicit, "Asks the user for a name", takes(message=STRING))
        self._add_tool("elicit_url", self._elicit_url, "Sends the user to a URL")
        self._add_tool("sample", self._sample, "Asks the client's model", takes(prompt=STRING))
        self._add_tool("roots", self._roots, "Asks for the client's roots")
        self._add_tool(
            "log", self._log, "Logs one line", takes(level={"enum": list(LEVELS)}, message=STRING)
        )
        self._add_tool("toggle_tool", self._toggle_tool, "Adds or removes the tool `extra`")
        self._add_tool("touch", self._touch, "Says that a resource was updated", takes(uri=STRING))
        self._add_tool(
            "big", self._big, "Returns a text of that many bytes", takes(bytes=INTEGER), **reads
        )
        self._add_tool("image", self._image, "Returns an image", **reads)
        self._add_tool("ident", self._ident, "Who answers: process, session, client", **reads)
        self._add_tool(
            "env", self._env, "Returns one environment variable", takes(name=STRING), **reads
        )
        self._add_tool(
            "region",
            self._region,
            "Has a parameter that modern HTTP clients repeat in a header",
            takes(region=region),
        )

    def _add_tool(
        self, name: str, run: Tool, description: str, schema: Json | None = None, **more: Any
    ) -> None:
        definition = {
            "name": name,
            "title": name.replace("_", " ").capitalize(),
            "description": description,
            "inputSchema": schema or {"type": "object", "properties": {}},
            "_meta": {"example.com/unknown": {"tool": name, "nested": [1, None, {"deep": True}]}},
            **more,
        }
        self._tools[name] = (definition, run)

    def _echo(self, call: Call, arguments: Json) -> Json:
        return {
            **text_result(arguments["text"]),
            "_meta": {"example.com/unknown": {"echoed": True}},
        }

    def _add(self, call: Call, arguments: Json) -> Json:
        return structured_result({"sum": arguments["a"] + arguments["b"]})

    def _progress(self, call: Call, arguments: Json) -> Json:
        steps = arguments["steps"]
        for step in range(1, steps + 1):
            call.report_progress(step, steps, f"step {step}")
        return text_result(f"{steps} steps")

    def _slow(self, call: Call, arguments: Json) -> Json:
        seconds = arguments["seconds"]
        call.report_progress(0, seconds, "started")
        try:
            call.wait(seconds)
        except CallCancelled:
            self._count_cancellation()
            raise
        return text_result("done")

    def _count_cancellation(self) -> None:
        with self._lock:
            self._cancelled += 1
        if self._record is not None:
            with open(self._record, "a", encoding="utf-8") as file:
                file.write(f"cancelled {os.getpid()}\n")

    def _cancelled_count(self, call: Call, arguments: Json) -> Json:
        if self._record is None:
            return structured_result({"count": self._cancelled})
        try:
            with open(self._record, encoding="utf-8") as file:
                count = len(file.readlines())
        except FileNotFoundError:
            count = 0
        return structured_result({"count": count})

    def _fail(self, call: Call, arguments: Json) -> Json:
        if not isinstance(arguments["code"], int) or not isinstance(arguments["message"], str):
            raise invalid_params()
        raise RpcError(
            arguments["code"],
            arguments["message"],
            {"tool": "fail", "nested": {"list": [1, None, "é"]}},
        )

    def _tool_error(self, call: Call, arguments: Json) -> Json:
        return {**text_result(arguments["message"]), "isError": True}

    def _log(self, call: Call, arguments: Json) -> Json:
        call.log(
            arguments["level"], {"message": arguments["message"], "unknown": {"kept": True}}, NAME
        )
        return text_result("logged")

    def _toggle_tool(self, call: Call, arguments: Json) -> Json:
        with self._lock:
            is_added = self._tools.pop("extra", None) is None
            if is_added:
                self._add_tool("extra", self._extra, "Comes and goes")
        self._announce_tools()
        return text_result("on" if is_added else "off")

    def _extra(self, call: Call, arguments: Json) -> Json:
        return text_result("extra")

    def _touch(self, call: Call, arguments: Json) -> Json:
        self._announce_update(arguments["uri"])
        return text_result(arguments["uri"])

    def _big(self, call: Call, arguments: Json) -> Json:
        return text_result("x" * arguments["bytes"])

    def _image(self, call: Call, arguments: Json) -> Json:
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}

    def _ident(self, call: Call, arguments: Json) -> Json:
        client = call.client
        return structured_result(
            {
                "pid": os.getpid(),
                "session": None if call.session is None else self._session_token(call),
                "version": client.version,
                "client": without_nulls(client.info),
                "capabilities": without_nulls(client.capabilities),
            }
        )

    def _session_token(self, call: Call) -> str:
        assert call.session is not None
        with self._lock:
            if call.session.token is None:
                call.session.token = os.urandom(8).hex()
            return call.session.token

    def _env(self, call: Call, arguments: Json) -> Json:
        return structured_result({"value": os.environ.get(arguments["name"])})

    def _region(self, call: Call, arguments: Json) -> Json:
        return text_result(arguments["region"])

    # Tools that ask the client.

    def _elicit(self, call: Call, arguments: Json) -> Json:
        schema = {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 30}},
            "required": ["name"],
        }
        question = {"message": arguments["message"], "requestedSchema": schema}
        return self._ask(
            call, "elicitation", "elicitation/create", {"mode": "form", **question}, state="elicit"
        )

    def _elicit_url(self, call: Call, arguments: Json) -> Json:
        question: Json = {"mode": "url", "message": "Please consent", "url": CONSENT_URL}
        if not call.is_modern:
            question["elicitationId"] = os.urandom(8).hex()
        return self._ask(call, "elicitation", "elicitation/create", question)

    def _sample(self, call: Call, arguments: Json) -> Json:
        message = {"role": "user", "content": {"type": "text", "text": arguments["prompt"]}}
        question = {"messages": [message], "maxTokens": 100}
        return self._ask(call, "sampling", "sampling/createMessage", question)

    def _roots(self, call: Call, arguments: Json) -> Json:
        return self._ask(call, "roots", "roots/list", {})

    def _ask(
        self, call: Call, capability: str, method: str, question: Json, state: str | None = None
    ) -> Json:
        """Ask the client as the era of the call requires, and return the answer as the tool's
        result.

        An older client receives a request. A modern client receives `input_required`, and calls
        again with the answer. With `state`, the modern client also has to send the sealed state
        back.
        """
        if (call.client.capabilities or {}).get(capability) is None:
            return self._refuse_to_ask(call, capability)
        if not call.is_modern:
            return structured_result(self._checked_answer(method, call.ask(method, question)))
        answer = (call.params.get("inputResponses") or {}).get("question")
        if answer is None:
            interim: Json = {
                "resultType": "input_required",
                "inputRequests": {"question": {"method": method, "params": question}},
            }
            if state is not None:
                interim["requestState"] = self._seal.seal(call, state)
            return interim
        answer = self._checked_answer(method, answer)
        unsealed = call.params["requestState"]
        if unsealed != state:
            raise RpcError(INVALID_PARAMS, "The request state did not come back", {"got": unsealed})
        return structured_result(answer)

    def _refuse_to_ask(self, call: Call, capability: str) -> Json:
        if call.is_modern:
            needed = {"requiredCapabilities": {capability: {}}}
            raise RpcError(MISSING_CLIENT_CAPABILITY, f"This needs {capability}", needed)
        return {**text_result(f"The client does not support {capability}"), "isError": True}

    @staticmethod
    def _checked_answer(method: str, answer: Any) -> Json:
        if not isinstance(answer, dict):
            raise invalid_params()
        if any(answer.get(field) is None for field in ANSWER_FIELDS[method]):
            raise invalid_params()
        return without_nulls(answer)
