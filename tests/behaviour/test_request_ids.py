"""OBS-1: every error of mcpx's own making tells an id by which its request is found in the logs."""

import json
import re
from pathlib import Path
from typing import Any

from kit.client import Session, StdioClient, post, post_modern
from kit.gateway import Gateway, GatewayProcess
from kit.messages import modern_request, request
from kit.servers import odd_server, raw_server
from kit.until import wait_until

Json = dict[str, Any]

ID = re.compile(r"[0-9a-f]{16}")
HEADER = "mcpx-request-id"


def lines(text: str) -> list[Json]:
    return [json.loads(line) for line in text.splitlines()]


def test_errors_of_our_own_tell_the_id_of_their_request_and_those_of_servers_are_left_alone() -> (
    None
):
    """OBS-1, PRO-6: over HTTP, in both eras; also in a header."""
    with Gateway({"mcp_servers": [raw_server("raw")]}) as gateway:
        session = Session(gateway.port)
        unknown = session.post(request("tools/call", {"name": "nothing", "arguments": {}}))
        missing = session.post(request("resources/read", {"uri": "no://thing"}))
        foreign = session.call("raw_fail")["error"]
        message = modern_request("tools/call", {"name": "nothing", "arguments": {}})
        newer = post_modern(gateway.port, message)
        garbage = post(gateway.port, b"{")
        well = session.post(request("tools/call", {"name": "raw_echo", "arguments": {"text": "x"}}))
    own = (unknown, missing, newer, garbage)
    ids = [reply.json["error"]["data"]["request_id"] for reply in own]
    assert all(ID.fullmatch(one) for one in ids) and len(set(ids)) == 4
    assert [reply.get(HEADER) for reply in own] == ids
    assert missing.json["error"]["data"] == {"uri": "no://thing", "request_id": ids[1]}
    assert foreign["data"].keys() == {"x-unknown"}
    assert well.get(HEADER) is None, "what nobody follows has no id"


def test_errors_on_stdio_tell_the_id_of_their_request() -> None:
    """OBS-1: also of what is no request at all."""
    with (
        GatewayProcess({"mcp_servers": [raw_server("raw")]}, transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as pipe,
    ):
        pipe.greet()
        pipe.send(b"no json\n")
        errors = [
            pipe.reply(None)["error"],
            pipe.call("nothing")["error"],
            pipe.request("no/method")["error"],
        ]
        foreign = pipe.call("raw_fail")["error"]
    ids = {error["data"]["request_id"] for error in errors}
    assert len(ids) == 3 and all(map(ID.fullmatch, ids))
    assert foreign["data"].keys() == {"x-unknown"}


def test_a_clients_own_id_is_taken_over_if_it_is_short_and_clean() -> None:
    """OBS-1: `x-request-id`, as proxies and clients send it."""
    with GatewayProcess(
        {"mcp_servers": [raw_server("raw")], "global": {"log_format": "json"}}
    ) as gateway:
        replies = [
            Session(gateway.port, headers={"x-request-id": wanted}).post(request("tools/list"))
            for wanted in ("Mine-1.2_3", "two words", "x" * 65, 'a"b')
        ]
        refused = Session(gateway.port, headers={"x-request-id": "Mine"}).call("nothing")
    assert replies[0].get(HEADER) == "Mine-1.2_3"
    assert all(ID.fullmatch(reply.get(HEADER) or "") for reply in replies[1:])
    assert refused["error"]["data"]["request_id"] == "Mine"


def test_the_id_of_a_request_is_in_the_lines_about_it_and_in_its_answer(tmp_path: Path) -> None:
    """OBS-1: with JSON logs, every request has one from its first moment; a line about nobody's
    request has none."""
    config = {
        "mcp_servers": [odd_server("odd", tmp_path / "record")],
        "global": {"log_format": "json"},
    }
    with GatewayProcess(config, "--log-level", "DEBUG") as gateway:
        session = Session(gateway.port)
        trace = "0af7651916cd43dd8448eb211c80319c"
        meta = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        call = {"name": "odd_echo", "arguments": {"text": "x"}}
        well = session.post(request("tools/call", {**call, "_meta": meta}, 1))
        again = session.post(request("tools/call", call, 2))
        wait_until(lambda: gateway.stderr().count("tools/call echo") == 2)
        said = [line for line in lines(gateway.stderr()) if "tools/call echo" in line["message"]]
        others = [line for line in lines(gateway.stderr()) if "tools/call" not in line["message"]]
    assert [line.get("request_id") for line in said] == [well.get(HEADER), again.get(HEADER)]
    assert [line.get("trace_id") for line in said] == [trace, None]
    assert [line.get("server") for line in said] == ["odd", "odd"]
    ids = {line.get("request_id") for line in said}
    assert others and not any(line.get("request_id") in ids for line in others)
