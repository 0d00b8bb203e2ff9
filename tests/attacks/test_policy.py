"""SEC-7 under attack: what a rule forbids, and answers that come when the rules are others."""

import sys
from pathlib import Path
from typing import Any

from attacks.harness import WebSocket
from behaviour.test_pins import QUICK, Changing, lists, reload, tool
from kit.client import Session
from kit.gateway import GatewayProcess
from kit.messages import Json
from kit.servers import raw_server, stdio_server

DENIED = -33008
ASK: Json = {"effect": "ask", "tools": ["box.echo"]}


def config(*rules: Json, **more: Any) -> Json:
    box = raw_server("box", "--era", "older")
    return {"global": QUICK, "mcp_servers": [box], "policy": {"rules": list(rules)}, **more}


class AnsweringClient(WebSocket):
    """A WebSocket client of an older version that declares elicitation."""

    def __init__(self, port: int, **headers: str) -> None:
        super().__init__(port, **headers)
        params = {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}}
        client = {"clientInfo": {"name": "raw", "version": "1"}}
        self.send(
            {
                "jsonrpc": "2.0",
                "id": "greet",
                "method": "initialize",
                "params": {**params, **client},
            }
        )
        assert self.reply("greet")["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, id: Any, tool: str, **arguments: Any) -> None:
        params = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})

    def question(self) -> Json:
        while (message := self.message()).get("method") != "elicitation/create":
            assert "error" not in message, message
        return message

    def says_yes(self, question: Json) -> None:
        result = {"action": "accept", "content": {"approve": True}}
        self.send({"jsonrpc": "2.0", "id": question["id"], "result": result})


def test_a_yes_to_a_call_that_is_forbidden_by_now_is_worth_nothing() -> None:
    """SEC-7: a rule that is taken up while somebody thinks about it counts."""
    with GatewayProcess(config(ASK)) as gateway, AnsweringClient(gateway.port) as client:
        client.call(1, "box_echo", text="a")
        question = client.question()
        reload(gateway, config({"effect": "deny", "tools": ["box.echo"], "reason": "closed today"}))
        client.says_yes(question)
        answer = client.reply(1)
        assert answer["error"]["code"] == DENIED and "closed today" in answer["error"]["message"], (
            answer
        )

        reload(gateway, config(ASK))
        client.call(2, "box_echo", text="a")
        client.says_yes(client.question())
        assert client.reply(2)["result"]["content"][0]["text"] == "a"


SDK_SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("sdk")


@server.tool()
def delete(paths: list[str], repo: dict[str, str] | None = None) -> str:
    return "deleted"


server.run()
"""


def test_json_in_a_text_is_no_way_round_a_rule(tmp_path: Path) -> None:
    """SEC-7: servers of the official SDK take such a text for what it says."""
    script = tmp_path / "server.py"
    script.write_text(SDK_SERVER)
    rules = [
        {"effect": "deny", "arguments": {name: bad}}
        for name, bad in (("paths", "/etc/*"), ("repo.owner", "evil"))
    ]
    box = stdio_server("box", [sys.executable, str(script)])
    with GatewayProcess({**config(*rules), "mcp_servers": [box]}) as gateway:
        client = Session(gateway.port)
        for arguments in (
            {"paths": '["/etc/passwd"]'},
            {"paths": "[]", "repo": '{"owner": "evil"}'},
        ):
            assert client.call("box_delete", **arguments)["error"]["code"] == DENIED
        assert (
            client.call("box_delete", paths='["/tmp/x"]')["result"]["content"][0]["text"]
            == "deleted"
        )


def test_a_yes_to_a_tool_that_is_held_back_by_now_is_worth_nothing(tmp_path: Path) -> None:
    """SEC-7, SEC-5: the definition changed while somebody thought about the call."""
    box = Changing(tmp_path, tools=[tool("echo"), tool("other")])
    with (
        GatewayProcess({**config(ASK), "mcp_servers": [box.entry()]}) as gateway,
        AnsweringClient(gateway.port) as client,
    ):
        session = Session(gateway.port)
        lists(session, "box_echo", "box_other")
        client.call(1, "box_echo", text="a")
        question = client.question()
        box.offer(tools=[tool("echo", "Does it, and more"), tool("other")])
        lists(session, "box_other")
        client.says_yes(question)
        assert "Unknown tool" in client.reply(1)["error"]["message"]
        box.offer(tools=[tool("echo"), tool("other")])
        lists(session, "box_echo", "box_other")
        client.call(2, "box_echo", text="a")
        client.says_yes(client.question())
        assert client.reply(2)["result"]["content"][0]["text"] == "called echo"


def test_a_call_in_the_queue_of_a_limit_is_judged_by_the_rules_of_when_it_is_made() -> None:
    """SEC-7, SEC-6."""
    box = {**raw_server("box", "--era", "older"), "limits": {"in_flight": 1, "queue": 5}}
    closed = {"effect": "deny", "tools": ["box.echo"], "reason": "closed today"}
    with (
        GatewayProcess({**config(ASK), "mcp_servers": [box]}) as gateway,
        AnsweringClient(gateway.port) as client,
    ):
        client.call(1, "box_sleep", seconds=60)
        client.call(2, "box_echo", text="a")
        client.says_yes(client.question())
        reload(gateway, {**config(closed), "mcp_servers": [box]})
        client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        )
        assert "closed today" in client.reply(2)["error"]["message"]
