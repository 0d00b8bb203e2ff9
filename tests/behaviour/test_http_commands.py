"""SRC-3, SRC-5, SRC-6, SEC-4: APIs that the config declares, as tools of the running program."""

import json
import os
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from behaviour.clients import KINDS, AnsweringUser, Door, Front, Kind, connected
from behaviour.compact import (
    ERAS,
    MODES,
    Compact,
    Json,
    Visitor,
    config,
    next_notice,
    replace,
    text,
    told,
)
from kit.client import StdioClient
from kit.gateway import Gateway, GatewayProcess
from kit.http_api import ApiRequest, ApiResponse, HttpApi
from kit.until import wait_until

PICTURE = b"\x89PNG\r\n\x1a\n\0"
CANARY = "canary-71c0de"
QUICK = {"hot_reload_interval": 0.05}


def http(name: str, url: str, *parameters: Json, description: str = "", **keys: Any) -> Json:
    outer = {key: keys.pop(key) for key in ("enabled", "read_only", "input_schema") if key in keys}
    request = {"url": url, "allow_private": True, "retry_delay": 0.01, **keys}
    made = {"name": name, "description": description, "type": "http", "http": request, **outer}
    return made | ({"parameters": list(parameters)} if parameters else {})


def param(name: str, type: str = "string", **keys: Any) -> Json:
    return {"name": name, "type": type, **keys}


def weather(asked: ApiRequest) -> Json:
    return {
        "city": asked.query.get("city"),
        "temp": 21.5,
        "days": [{"d": 1, "t": 20}, {"d": 2, "t": 22}],
    }


def order(asked: ApiRequest) -> Any:
    return ApiResponse(
        json.dumps({"took": asked.json}).encode(), 201, {"Content-Type": "application/json"}
    )


def commands(url: str) -> list[Json]:
    return [
        http(
            "get_weather",
            f"{url}/weather",
            param("city", required=True, description="Which city"),
            param("days", "integer", default=2, min=1, max=7),
            description="Tells the weather of a city",
            params={"city": "{city}", "days": "{days}"},
        ),
        http(
            "place_order",
            f"{url}/orders/{{shop}}",
            param("shop", required=True),
            param("items", "array", required=True, items={"type": "string"}),
            param("gift", "boolean"),
            param("note"),
            description="Orders things from a shop",
            method="POST",
            headers={"X-Note": "{note}"},
            body={"items": "{items}", "gift": "{gift}", "note": "note: {note}", "fixed": [1, None]},
        ),
        http("picture", f"{url}/picture", description="Gives a picture"),
        http("broken", f"{url}/broken", description="Does not work", max_retries=0),
        http("hidden", f"{url}/hidden", enabled=False),
    ]


def teach(api: HttpApi) -> None:
    api.on("GET", "/weather", weather)
    api.on("POST", "/orders/corner", order)
    api.on(
        "GET", "/picture", lambda asked: ApiResponse(PICTURE, headers={"Content-Type": "image/png"})
    )
    api.on("GET", "/broken", lambda asked: ApiResponse(b'{"error":"out of order"}', 500))


@pytest.fixture(scope="module")
def api() -> Iterator[HttpApi]:
    with HttpApi() as api:
        teach(api)
        yield api


@pytest.fixture(scope="module")
def gateway(api: HttpApi) -> Iterator[Gateway]:
    servers = (told("files"),)
    with GatewayProcess(config(*servers, commands=commands(api.url))) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@contextmanager
def door(front: Front, gateway: Gateway, api: HttpApi) -> Iterator[Door]:
    if front == "http":
        yield Door(front, f"http://127.0.0.1:{gateway.port}/mcp")
        return
    with GatewayProcess({"commands": commands(api.url)}, transport="stdio") as alone:
        stderr = alone.folder / "stderr.txt"
        yield Door(front, command=alone.stdio_command, env=alone.env, stderr=stderr)
        assert "Traceback" not in stderr.read_text(encoding="utf-8")


def use(client: Visitor, tool: str, arguments: Json) -> Json:
    """A command, called the way of the client's mode; `search` has them under their plain names."""
    if client.mode == "search":
        return client.use("mcp_execute_tool", tool_name=tool, arguments=arguments)
    return (
        client.run("commands", tool, arguments)
        if client.mode in MODES
        else client.use(tool, **arguments)
    )


# ---- every client


@pytest.mark.parametrize("front", ["stdio", "http"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_client_finds_and_calls_a_command_like_any_tool(
    kind: Kind, front: Front, gateway: Gateway, api: HttpApi
) -> None:
    """SRC-3, SRC-6."""

    async def check() -> None:
        with anyio.fail_after(60), door(front, gateway, api) as way:
            async with connected(kind, way, AnsweringUser("ada")) as client:
                listed = {tool["name"]: tool for tool in await client.listed("tools/list")}
                assert {
                    "get_weather",
                    "place_order",
                    "picture",
                    "broken",
                } <= listed.keys() and "hidden" not in listed
                assert listed["get_weather"]["description"] == "Tells the weather of a city"
                assert listed["get_weather"]["annotations"]["readOnlyHint"] is True
                assert "readOnlyHint" not in (listed["place_order"].get("annotations") or {})
                result = await client.call("get_weather", {"city": "São Paulo"})
                assert result["structuredContent"]["city"] == "São Paulo"
                assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
                result = await client.call("picture")
                (block,) = result["content"]
                assert (block["type"], block["mimeType"]) == ("image", "image/png")
                assert block["data"] == b64encode(PICTURE).decode()
                result = await client.call("broken")
                assert result["isError"] is True
                assert result["content"][0]["text"] == (
                    'broken: the server answered 500 Internal Server Error: {"error":"out of '
                    'order"}'
                )

    anyio.run(check)


# ---- arguments


def test_the_parameters_of_a_command_are_its_schema(gateway: Gateway) -> None:
    """SRC-5."""
    listed = {tool["name"]: tool["inputSchema"] for tool in Visitor(gateway.port).tools()}
    assert listed["get_weather"] == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Which city"},
            "days": {"type": "integer", "default": 2, "minimum": 1, "maximum": 7},
        },
        "additionalProperties": False,
        "required": ["city"],
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "city"),
        ({"city": {"name": "x"}}, "city"),
        ({"city": None}, "city"),
        ({"city": "x", "days": 8}, "days"),
        ({"city": "x", "days": 1.5}, "days"),
        ({"city": "x", "town": "y"}, "town"),
    ],
)
@pytest.mark.parametrize("mode", ["direct", *MODES])
def test_an_argument_that_is_missing_unknown_or_of_the_wrong_type_is_named(
    mode: str, arguments: Json, named: str, gateway: Gateway, api: HttpApi
) -> None:
    """SRC-5: and nothing is sent."""
    before = len(api.seen)
    client = Visitor(gateway.port, mode)
    result = use(client, "get_weather", arguments)
    assert result["isError"] is True and named in result["content"][0]["text"]
    assert len(api.seen) == before


def test_a_default_is_sent_and_what_has_no_value_is_not(gateway: Gateway, api: HttpApi) -> None:
    """SRC-3, SRC-5."""
    client = Visitor(gateway.port)
    client.use("get_weather", city="Oslo")
    assert api.last.pairs == [("city", "Oslo"), ("days", "2")]
    sent = {"items": ["a", "b"], "note": "note: ", "fixed": [1, None]}
    result = client.use("place_order", shop="corner", items=["a", "b"])
    assert result["structuredContent"] == {"took": sent}
    assert api.last.get("x-note") is None
    client.use("place_order", shop="corner", items=[], gift=False, note="fragile")
    assert api.last.json == {
        "items": [],
        "gift": False,
        "note": "note: fragile",
        "fixed": [1, None],
    }
    assert api.last.get("x-note") == "fragile"


def test_a_json_schema_says_what_a_command_takes(api: HttpApi) -> None:
    """SRC-5: `input_schema` instead of `parameters`."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "pattern": "^[A-Z]"},
            "unit": {"enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
    }
    one = http(
        "w", f"{api.url}/weather", input_schema=schema, params={"city": "{city}", "u": "{unit}"}
    )
    with Gateway({"commands": [one]}) as gateway:
        client = Visitor(gateway.port)
        assert client.tools()[0]["inputSchema"] == schema
        client.use("w", city="Rome")
        assert api.last.pairs == [("city", "Rome"), ("u", "C")]
        assert "city" in text(client.use("w", city="rome"))
        assert "unit" in text(client.use("w", city="Rome", unit="K"))


# ---- compact modes


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
def test_in_a_compact_mode_commands_are_the_service_commands(
    mode: Compact, era: str, gateway: Gateway, api: HttpApi
) -> None:
    """SRC-6."""
    client = Visitor(gateway.port, mode, era)
    result = use(client, "get_weather", {"city": "Rome", "days": 3})
    assert client.structured(result)["city"] == "Rome"
    assert api.last.query == {"city": "Rome", "days": "3"}
    failed = use(client, "broken", {})
    assert (
        failed["isError"] is True
        and "broken: the server answered 500 Internal" in failed["content"][0]["text"]
    )
    (block,) = use(client, "picture", {})["content"]
    assert block["type"] == "image"


@pytest.mark.parametrize("era", ERAS)
def test_a_compact_mode_describes_and_finds_commands(era: str, gateway: Gateway) -> None:
    """SRC-6."""
    inspect = Visitor(gateway.port, "inspect", era)
    assert "commands" in inspect.menu() and "get_weather" in text(
        inspect.use("inspect", server_name="commands")
    )
    describe = Visitor(gateway.port, "describe", era)
    said = text(describe.use("describe", method="commands.get_weather"))
    assert "city: string" in said and "days" in said and "Tells the weather of a city" in said
    search = Visitor(gateway.port, "search", era)
    found = search.use("mcp_search_tools", query="weather forecast")["structuredContent"]
    assert "get_weather" in json.dumps(found)


# ---- bounds


def test_an_address_of_this_machine_is_not_reached_unless_the_command_says_so(api: HttpApi) -> None:
    """SEC-4."""
    before = len(api.seen)
    urls = [
        api.url,
        f"http://localhost:{api.port}",
        f"http://[::ffff:127.0.0.1]:{api.port}",
        "http://169.254.169.254",
    ]
    closed = [
        http(f"c{at}", f"{url}/weather", allow_private=False, max_retries=0)
        for at, url in enumerate(urls)
    ]
    with Gateway({"commands": closed}) as gateway:
        client = Visitor(gateway.port)
        for tool in client.names():
            result = client.use(tool)
            assert result["isError"] is True
            assert "'allow_private: true'" in text(result) and "'http' section" in text(result)
    assert len(api.seen) == before


def test_a_secret_stays_between_the_gateway_and_the_api(api: HttpApi) -> None:
    """SEC-4: not in a log at debug level, not in an error that echoes it, not in another command's
    request."""

    def echo(asked: ApiRequest) -> ApiResponse:
        return ApiResponse(
            f"you sent {asked.headers} {asked.target} {asked.body.decode()}".encode(), 403
        )

    kinds = {
        "header": {
            "type": "api_key",
            "api_key": {"location": "header", "name": "X-Key", "value": "${K}"},
        },
        "query": {
            "type": "api_key",
            "api_key": {"location": "query", "name": "key", "value": "${K}"},
        },
        "body": {
            "type": "api_key",
            "api_key": {"location": "body", "name": "key", "value": "${K}"},
        },
        "bearer": {"type": "bearer_token", "bearer_token": {"token": "${K}"}},
        "basic": {"type": "basic_auth", "basic_auth": {"username": "ada", "password": "${K}"}},
        "custom": {"type": "custom_header", "custom_header": {"headers": {"X-Custom": "${K}"}}},
    }
    with HttpApi() as own:
        own.otherwise(echo)
        made = [
            http(
                f"use_{name}", f"{own.url}/{name}", method="POST", body={"a": 1}, auth={"ref": name}
            )
            for name in kinds
        ]
        auths = [{"name": name, **keys} for name, keys in kinds.items()]
        whole = {"commands": made, "auth_configs": auths, "global": {"log_level": "DEBUG"}}
        with GatewayProcess(whole, env={"K": CANARY}) as gateway:
            client = Visitor(gateway.port)
            for tool in client.names():
                result = client.use(tool)
                assert result["isError"] is True and "403 Forbidden" in text(result)
                assert CANARY not in json.dumps(result)
                assert b64encode(f"ada:{CANARY}".encode()).decode() not in json.dumps(result)
            assert CANARY not in gateway.stderr()
        assert len(own.seen) == len(kinds)
        sent = [repr((asked.headers, asked.target, asked.body)) for asked in own.seen]
        assert (
            sum(CANARY in each for each in sent) == len(kinds) - 1
        )  # but for the one that is packed


def test_fifty_calls_at_once_get_their_own_answers(gateway: Gateway) -> None:
    """SRC-6."""
    client = Visitor(gateway.port, era="modern")
    with ThreadPoolExecutor(16) as pool:
        cities = [f"city-{number}" for number in range(50)]
        results = pool.map(
            lambda city: Visitor(gateway.port, era="modern").use("get_weather", city=city), cities
        )
        assert [result["structuredContent"]["city"] for result in results] == cities
    assert client.names()


# ---- changes


def test_only_what_changed_is_replaced_and_a_call_that_runs_goes_on() -> None:
    """SRC-6, CFG-5."""
    arrived, release = threading.Event(), threading.Event()

    def slow(asked: ApiRequest) -> Json:
        arrived.set()
        release.wait(30)
        return {"was": asked.path}

    with HttpApi() as api:
        api.on("GET", "/old", slow)
        api.on("GET", "/new", lambda asked: {"was": asked.path})
        api.on("GET", "/same", lambda asked: {"was": asked.path})

        def whole(path: str, *more: Json) -> Json:
            same = http("same", f"{api.url}/same")
            return {"commands": [http("it", f"{api.url}{path}"), same, *more], "global": QUICK}

        with Gateway(whole("/old")) as gateway, ThreadPoolExecutor(1) as pool:
            client, other = Visitor(gateway.port), Visitor(gateway.port)
            assert other.names() == ["it", "same"]
            running = pool.submit(lambda: client.use("it"))
            assert arrived.wait(30)
            with other.listening() as ear:
                replace(gateway, whole("/new", http("added", f"{api.url}/same")))
                assert next_notice(ear) == "notifications/tools/list_changed"
            assert other.names() == ["it", "same", "added"]
            assert other.use("it")["structuredContent"] == {"was": "/new"}
            assert other.use("same")["structuredContent"] == {"was": "/same"}
            release.set()
            assert running.result(30)["structuredContent"] == {"was": "/old"}
            replace(
                gateway,
                {"commands": [http("it", f"{api.url}/new", enabled=False)], "global": QUICK},
            )
            wait_until(lambda: other.names() == [])
            gone = other.ask("tools/call", {"name": "it", "arguments": {}})
            assert gone["error"]["message"].startswith("Unknown tool: it")
            assert "Traceback" not in gateway.stderr()


def test_calls_that_wait_for_a_token_are_answered_whatever_is_reloaded_meanwhile() -> None:
    """SRC-6, CFG-5: twice, the second time with the auth config gone."""
    asked, release = threading.Semaphore(0), threading.Event()

    def token(request: ApiRequest) -> Json:
        asked.release()
        release.wait(30)
        return {
            "access_token": f"for-{request.get('authorization')}".replace(" ", "-"),
            "expires_in": 3600,
        }

    def whole(secret: str | None) -> Json:
        auth = {} if secret is None else {"auth": {"ref": "o"}}
        client = {"client_id": "i", "client_secret": secret, "token_url": f"{tokens.url}/token"}
        auths = [] if secret is None else [{"name": "o", "type": "oauth2", "oauth2": client}]
        return {
            "commands": [http("it", f"{api.url}/it", **auth)],
            "auth_configs": auths,
            "global": QUICK,
        }

    def basic(secret: str) -> str:
        return f"Bearer for-Basic-{b64encode(f'i:{secret}'.encode()).decode()}"

    with HttpApi() as api, HttpApi() as tokens:
        api.on("GET", "/it", lambda request: {"proof": request.get("authorization")})
        tokens.on("POST", "/token", token)
        with Gateway(whole("first")) as gateway, ThreadPoolExecutor(4) as pool:
            first = [pool.submit(lambda: Visitor(gateway.port).use("it")) for _ in range(3)]
            assert asked.acquire(timeout=30)
            replace(gateway, whole("second"))
            wait_until(lambda: "reloaded" in gateway.stderr())
            second = pool.submit(lambda: Visitor(gateway.port).use("it"))
            assert asked.acquire(timeout=30)
            replace(gateway, whole(None))
            wait_until(lambda: gateway.stderr().count("reloaded") == 2)
            assert Visitor(gateway.port).use("it")["structuredContent"] == {"proof": None}
            release.set()
            assert [each.result(30)["structuredContent"]["proof"] for each in first] == 3 * [
                basic("first")
            ]
            assert second.result(30)["structuredContent"]["proof"] == basic("second")
            assert "Traceback" not in gateway.stderr()


def test_a_value_that_python_takes_for_the_same_is_a_change() -> None:
    """SRC-6, CFG-5: 1, true and 1.0 are not the same in JSON."""
    with HttpApi() as api:
        api.on("POST", "/it", lambda asked: {"took": asked.body.decode()})

        def whole(value: Any) -> Json:
            it = http("it", f"{api.url}/it", method="POST", body={"v": value})
            return {"commands": [it], "global": QUICK}

        with Gateway(whole(1)) as gateway:
            client = Visitor(gateway.port)
            for value, sent in ((True, "true"), (1.0, "1.0"), (1, "1")):
                replace(gateway, whole(value))
                wait_until(
                    lambda sent=sent: (
                        client.use("it")["structuredContent"]["took"] == f'{{"v":{sent}}}'
                    )
                )


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"type": "object", "properties": {"p": {}}, "required": ["p"]}},
        },
        {"allOf": [{"properties": {"p": {}}}], "required": ["p"]},
        {"type": "object", "additionalProperties": True},
    ],
)
def test_an_argument_of_the_address_is_one_of_the_body_too(schema: Json) -> None:
    """SRC-3, SRC-5: wherever the schema names it."""
    with HttpApi() as api:
        api.on("POST", "/x/v", lambda asked: {"took": asked.json})
        it = http(
            "it",
            f"{api.url}/x/{{p}}",
            method="POST",
            body={"v": "{p}", "w": "{id}"},
            input_schema=schema,
        )
        with Gateway({"commands": [it]}) as gateway:
            assert Visitor(gateway.port).use("it", p="v")["structuredContent"] == {
                "took": {"v": "v", "w": "{id}"}
            }


def test_a_variable_that_is_not_set_switches_only_its_command_off(api: HttpApi) -> None:
    """SRC-6, CFG-3."""
    two = [http("off", "${NOT_SET_ANYWHERE}/x"), http("on", f"{api.url}/weather")]
    assert "NOT_SET_ANYWHERE" not in os.environ
    with Gateway({"commands": two}) as gateway:
        assert Visitor(gateway.port).names() == ["on"]
        assert "NOT_SET_ANYWHERE" in gateway.stderr()


def test_a_command_alone_serves_on_stdio(api: HttpApi) -> None:
    """SRC-3: with no server at all."""
    with (
        GatewayProcess({"commands": commands(api.url)}, transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as pipe,
    ):
        pipe.greet()
        said = pipe.call("get_weather", city="{days} ${HOME}")
        assert said["result"]["structuredContent"]["city"] == "{days} ${HOME}"
        pipe.end_input()
        assert pipe.wait() == 0
