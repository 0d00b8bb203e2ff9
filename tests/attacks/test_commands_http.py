"""SEC-4, SRC-8: what callers put into HTTP commands, and what APIs answer them, against the running
program.

After each: the request went where the config says and nowhere else, the secret went with it and
with no other, nothing took more memory or time than it may, and whoever else calls is answered.
"""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from behaviour.compact import Json, Visitor
from kit.gateway import GatewayProcess
from kit.http_api import ApiRequest, ApiResponse, HttpApi
from kit.process_tree import peak_memory

MIB = 2**20
CANARY = "canary-0ddba11"
HEADERS = {
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "content-type",
    "content-length",
    "x-of",
    "connection",
}
"""What the command below sends, and nothing else."""

HOSTILE = [
    "../../admin",
    "..",
    ".",
    "%2e%2e",
    "%2e%2e%2fadmin",
    "..%2fadmin",
    "..\\..\\admin",
    "//evil.example/x",
    "/admin",
    "@evil.example",
    ":80@evil.example/",
    "x?admin=1",
    "x#fragment",
    "x&admin=1",
    "x=1;admin=2",
    "x HTTP/1.1\r\nHost: evil.example\r\n\r\nGET /admin",
    "x\r\nX-Evil: 1",
    "x\nX-Evil: 1",
    "x\r",
    "\r\n\r\n",
    "\0",
    "x\0y",
    "\x1b[2J",
    "\u2028",
    "\u010a\u010d",  # their low bytes are a line break
    "{other}",
    "${CANARY}",
    "${env:CANARY}",
    '","admin":true,"x":"',
    '"}}, {"admin": true}',
    "\\",
    '\\"',
    "\ud800",
    "%",
    "%zz",
    "",
    "x" * 100_000,
]


def http(name: str, url: str, parameters: list[Json] | None = None, **keys: Any) -> Json:
    request = {"url": url, "allow_private": True, "max_retries": 0, **keys}
    made = {"name": name, "type": "http", "http": request}
    return made if parameters is None else {**made, "parameters": parameters}


@contextmanager
def besieged(*commands: Json, **more: Any) -> Iterator[tuple[GatewayProcess, Callable[[], float]]]:
    """A gateway with these commands and one that is well; and how long a call of that one takes."""
    with HttpApi() as well:
        well.otherwise(lambda asked: {"well": True})
        env = more.pop("env", {})
        with GatewayProcess(
            {"commands": [*commands, http("well", f"{well.url}/well")], **more}, env=env
        ) as gateway:
            client = Visitor(gateway.port)

            def call() -> float:
                began = time.monotonic()
                assert client.use("well")["structuredContent"] == {"well": True}
                return time.monotonic() - began

            call()
            yield gateway, call
            call()
            assert "Traceback" not in gateway.stderr(), gateway.stderr()
            assert CANARY not in gateway.stderr()


def text(result: Json) -> str:
    return result["content"][0]["text"]


# ---- what callers send


def test_a_value_stays_in_its_place_whatever_it_holds() -> None:
    """SEC-4: in a path, a query, a header, JSON, a form, JSON as text and raw text at once."""
    bodies: dict[str, Json] = {
        "json": {"body": {"v": "{v}", "in": {"t": "<{v}>"}}},
        "form": {"body": {"v": "{v}"}, "body_format": "form"},
        "jsontext": {"body": '{"v": "{v}", "fixed": true}', "body_format": "json"},
    }
    with HttpApi() as api:
        api.otherwise(lambda asked: {"ok": True})
        parameters = [{"name": "v", "required": True}, {"name": "other"}]
        url = f"{api.url}/v1/users/{{v}}/posts?q={{v}}&fixed=1"
        made = [
            http(
                name,
                url,
                parameters,
                method="POST",
                headers={"X-Of": "{other}"},
                params={"p": "<{v}>"},
                **body,
            )
            for name, body in bodies.items()
        ]
        query_only = http("q", f"{api.url}/v1/search?fixed=1", parameters, params={"q": "{v}"})
        header_only = http("h", f"{api.url}/v1/search", parameters, headers={"X-Of": "<{v}>"})
        with besieged(*made, query_only, header_only, env={"CANARY": CANARY}) as (gateway, _):
            client = Visitor(gateway.port)
            for value in HOSTILE:
                for tool in (*bodies, "q", "h"):
                    api.seen.clear()
                    result = client.use(tool, v=value, other="no")
                    assert CANARY not in json.dumps(result)
                    if result.get("isError"):
                        assert api.seen == [], (tool, value)
                        assert "v" in text(result) or "address" in text(result)
                        continue
                    (asked,) = api.seen
                    self_contained(asked, tool, value)


def self_contained(asked: ApiRequest, tool: str, value: str) -> None:
    assert len(asked.all("host")) == 1
    assert {name.lower() for name, _ in asked.headers} <= HEADERS
    if tool in ("q", "h"):
        assert asked.path == "/v1/search"
        assert asked.pairs == ([("fixed", "1"), ("q", value)] if tool == "q" else [])
        return
    segments = asked.path.split("/")
    assert len(segments) == 5 and segments[:3] == ["", "v1", "users"] and segments[4] == "posts"
    assert segments[3] not in ("", ".", "..") and not set("?#@\\ ") & set(segments[3])
    assert asked.pairs == [("q", value), ("fixed", "1"), ("p", f"<{value}>")]
    match tool:
        case "json":
            assert asked.json == {"v": value, "in": {"t": f"<{value}>"}}
        case "form":
            assert asked.form == [("v", value)]
        case _:
            assert asked.json == {"v": value, "fixed": True}


def test_only_values_that_a_path_or_a_header_can_never_hold_are_refused() -> None:
    """SEC-4: the rest is encoded, and arrives."""
    with HttpApi() as api:
        api.otherwise(lambda asked: {"ok": True})
        path = http("p", f"{api.url}/u/{{v}}", [{"name": "v", "required": True}])
        with besieged(path) as (gateway, _):
            client = Visitor(gateway.port)
            refused = [value for value in HOSTILE if client.use("p", v=value).get("isError")]
        assert refused == [
            *("..", "."),
            "x HTTP/1.1\r\nHost: evil.example\r\n\r\nGET /admin",
            *(
                "x\r\nX-Evil: 1",
                "x\nX-Evil: 1",
                "x\r",
                "\r\n\r\n",
                "\0",
                "x\0y",
                "\x1b[2J",
                "\ud800",
                "",
            ),
            "x" * 100_000,
        ]


# ---- where a redirect leads


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_no_secret_to_another_origin(status: int) -> None:
    """SEC-4: whatever way proves us, and headers of the command itself."""
    ways: dict[str, Json] = {
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
        "custom": {"type": "custom_header", "custom_header": {"headers": {"X-Custom": "${K}"}}},
    }
    with HttpApi() as api, HttpApi() as other:
        api.otherwise(lambda asked: ApiResponse(b"", status, {"Location": f"{other.url}/taken"}))
        other.otherwise(lambda asked: {"got": "it"})
        commands = [
            http(way, f"{api.url}/x", auth={"ref": way}, method="POST", body={"a": 1})
            if way == "body"
            else http(way, f"{api.url}/x", auth={"ref": way})
            for way in ways
        ]
        own = http("own", f"{api.url}/x", headers={"X-My-Key": "${K}", "Cookie": "s=${K}"})
        auths = [{"name": name, **keys} for name, keys in ways.items()]
        with besieged(*commands, own, auth_configs=auths, env={"K": CANARY}) as (gateway, _):
            client = Visitor(gateway.port)
            for tool in (*ways, "own"):
                result = client.use(tool)
                assert CANARY not in json.dumps(result)
        assert len(api.seen) == len(ways) + 1
        assert CANARY not in repr(
            [(asked.target, asked.headers, asked.body) for asked in other.seen]
        )
        assert len(other.seen) >= len(ways)


def test_a_redirect_does_not_lead_to_a_private_address_through_a_command_that_may_not_reach_one() -> (
    None
):
    """SEC-4: such a command does not reach the first of them either."""
    with HttpApi() as api:
        closed = http("closed", f"{api.url}/x", allow_private=False)
        odd = http("odd", f"http://0x7f.1:{api.port}/x", allow_private=False)
        with besieged(closed, odd) as (gateway, _):
            client = Visitor(gateway.port)
            for tool in ("closed", "odd"):
                assert client.use(tool)["isError"] is True
        assert api.seen == []


def test_redirects_without_end_are_given_up() -> None:
    """SEC-4."""
    with HttpApi() as api:
        api.otherwise(lambda asked: ApiResponse(b"", 302, {"Location": asked.target + "x"}))
        with besieged(http("it", f"{api.url}/x", max_retries=3, retry_delay=0)) as (gateway, _):
            said = text(Visitor(gateway.port).use("it"))
            assert "redirects" in said
        assert len(api.seen) <= 6 * 4


# ---- what APIs answer


def test_a_packed_bomb_is_given_up_at_the_limit() -> None:
    """SEC-4: 200 MB in 200 kB."""
    with HttpApi() as api:
        bomb = gzip.compress(b"\0" * (200 * MIB), 1)
        api.otherwise(lambda asked: ApiResponse(bomb, headers={"Content-Encoding": "gzip"}))
        with besieged(http("it", f"{api.url}/x", max_retries=3)) as (gateway, call):
            before = peak_memory(gateway.process.pid)
            with ThreadPoolExecutor(4) as pool:
                running = [pool.submit(lambda: Visitor(gateway.port).use("it")) for _ in range(4)]
                slowest = max(call() for _ in range(10))
                results = [each.result(60) for each in running]
            for result in results:
                assert result["isError"] is True and "larger than 10,485,760 bytes" in text(result)
                assert "'max_response'" in text(result)
            assert slowest < 2
            assert peak_memory(gateway.process.pid) - before < 120 * MIB
        assert len(api.seen) == 4  # not asked again


def test_a_body_without_end_is_given_up_at_the_limit() -> None:
    """SEC-4."""
    stop = threading.Event()

    def endless() -> Iterator[bytes]:
        while not stop.is_set():
            yield b"x" * 65536

    with HttpApi() as api:
        api.otherwise(lambda asked: ApiResponse(pieces=endless()))
        try:
            with besieged(http("it", f"{api.url}/x", max_response=MIB)) as (gateway, _):
                said = text(Visitor(gateway.port).use("it"))
                assert "larger than 1,048,576 bytes" in said
        finally:
            stop.set()


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_server_that_takes_its_time_holds_up_its_own_call_only(part: str) -> None:
    """SRC-8, SEC-4: and that one ends with its time-out."""
    stop = threading.Event()

    def drops() -> Iterator[bytes]:
        while not stop.wait(0.02):
            yield b" "

    def slow(asked: ApiRequest) -> ApiResponse:
        if part == "head":
            stop.wait(30)
        return ApiResponse(pieces=drops())

    with HttpApi() as api:
        api.otherwise(slow)
        try:
            with besieged(http("it", f"{api.url}/x", timeout=1, max_retries=3)) as (gateway, call):
                began = time.monotonic()
                with ThreadPoolExecutor(20) as pool:
                    running = [
                        pool.submit(lambda: Visitor(gateway.port).use("it")) for _ in range(20)
                    ]
                    assert max(call() for _ in range(10)) < 1
                    results = [each.result(30) for each in running]
                assert time.monotonic() - began < 10
                assert all("within 1 s" in text(result) for result in results)
        finally:
            stop.set()
        assert len(api.seen) == 20


def test_a_storm_of_refusals_is_not_answered_with_a_storm_of_tries() -> None:
    """SEC-4: `Retry-After: 0` is no order to try for ever."""
    with HttpApi() as api:
        api.otherwise(lambda asked: ApiResponse(b"slow down", 429, {"Retry-After": "0"}))
        it = http("it", f"{api.url}/x", max_retries=2)
        with besieged(it) as (gateway, call), ThreadPoolExecutor(25) as pool:
            running = [pool.submit(lambda: Visitor(gateway.port).use("it")) for _ in range(50)]
            assert max(call() for _ in range(10)) < 2
            for each in running:
                assert (
                    text(each.result(60))
                    == "it: the server answered 429 Too Many Requests: slow down"
                )
        assert len(api.seen) == 50 * 3


def many_elements() -> bytes:
    return b"<r>" + b"<a b='1'/>" * (MIB - 10) + b"</r>"


def laughs() -> bytes:
    entities = "".join(f'<!ENTITY l{at} "{f"&l{at - 1};" * 10}">' for at in range(1, 10))
    return f'<!DOCTYPE r [<!ENTITY l0 "lol">{entities}]><r>&l9;</r>'.encode()


@pytest.mark.parametrize(
    "xml",
    [many_elements, laughs, lambda: b"<a>" * MIB, lambda: b"<r>" + b"<a>x</a>" * 190_000 + b"</r>"],
)
def test_xml_of_any_make_holds_nobody_up(xml: Callable[[], bytes]) -> None:
    """SEC-4, SRC-8."""
    body = xml()
    with HttpApi() as api:
        api.otherwise(lambda asked: ApiResponse(body, headers={"Content-Type": "text/xml"}))
        it = http(
            "it", f"{api.url}/x", response_format="xml", max_response=11 * MIB, result="r.a[0]"
        )
        with besieged(it) as (gateway, call), ThreadPoolExecutor(1) as pool:
            before = peak_memory(gateway.process.pid)
            running = pool.submit(lambda: Visitor(gateway.port).use("it"))
            slowest = 0.0
            while not running.done():
                slowest = max(slowest, call())
            result = running.result(60)
            assert result.get("isError") or result["structuredContent"] == {"result": "x"}
            assert slowest < 1
            assert peak_memory(gateway.process.pid) - before < 250 * MIB


def test_what_an_error_says_is_text_without_orders_to_a_terminal() -> None:
    """SEC-4."""
    with HttpApi() as api:
        api.otherwise(
            lambda asked: ApiResponse(b"\x1b[2Jgone\r\n\x07\x9b31m\xe2\x80\xae" + b"z" * MIB, 500)
        )
        with besieged(http("it", f"{api.url}/x")) as (gateway, _):
            said = text(Visitor(gateway.port).use("it"))
            assert said.isprintable() and "gone" in said and len(said) < 2200


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "utf-7", "unicode_escape", "rot13", "no-such-thing"]
)
def test_an_answer_in_an_encoding_that_is_none_for_texts_is_read_as_utf8_at_once(
    charset: str,
) -> None:
    """SEC-4, SRC-8: of Python's encodings one takes minutes for a megabyte, others raise or give
    half characters."""
    bodies = {"/json": b'{"a":"+2AA-"}', "/text": b"a-" + b"b" * MIB, "/error": b"a-" + b"b" * MIB}
    with HttpApi() as api:
        api.otherwise(
            lambda asked: ApiResponse(
                bodies[asked.path],
                400 if asked.path == "/error" else 200,
                {"Content-Type": f"text/plain; charset={charset}"},
            )
        )
        with besieged(*(http(path[1:], f"{api.url}{path}") for path in bodies)) as (gateway, _):
            client = Visitor(gateway.port)
            began = time.monotonic()
            assert client.use("json")["structuredContent"] == {"a": "+2AA-"}
            assert text(client.use("text")) == bodies["/text"].decode()
            assert "400 Bad Request: a-bbb" in text(client.use("error"))
            assert time.monotonic() - began < 5


@pytest.mark.parametrize("levels", [200, 500, 900, 990, 1_020, 10_000])
@pytest.mark.parametrize("end", ["", "\n"])
def test_json_of_any_depth_is_an_answer(levels: int, end: str) -> None:
    """SRC-3: as data where it can be written again, else as the text it is."""
    body = ('{"a":' * levels + "1" + "}" * levels + end).encode()
    with HttpApi() as api:
        api.otherwise(lambda asked: ApiResponse(body, headers={"Content-Type": "application/json"}))
        with besieged(http("it", f"{api.url}/x")) as (gateway, _):
            result = Visitor(gateway.port).use("it")
            assert not result.get("isError")
            assert text(result).strip() == body.decode().strip()
            assert ("structuredContent" in result) or levels > 800


def test_a_secret_in_a_list_of_the_body_is_not_told_back() -> None:
    """SEC-4: an API that says the body back in its error."""
    with HttpApi() as api:
        api.otherwise(lambda asked: ApiResponse(b"you said " + asked.body, 400))
        bodies: list[Any] = [[{"token": CANARY}], {"keys": [CANARY]}]
        made = [
            http(f"c{at}", f"{api.url}/x", method="POST", body=body)
            for at, body in enumerate(bodies)
        ]
        with besieged(*made) as (gateway, _):
            for command in made:
                said = text(Visitor(gateway.port).use(command["name"]))
                assert "you said" in said and CANARY not in said
