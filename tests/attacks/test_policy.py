"""SEC-7 under attack: what a rule forbids, and answers that come when the rules are others."""

import sys
from pathlib import Path
from typing import Any

from attacks.harness import WebSocket
from behaviour.raw import Json, Session, raw_server, stdio_server
from behaviour.test_pins import QUICK, reload
from fixtures.gateway import Gateway

DENIED = -33008
ASK: Json = {"effect": "ask", "tools": ["box.echo"]}


def config(*rules: Json, **more: Any) -> Json:
    box = raw_server("box", "--era", "older")
    return {"global": QUICK, "mcp_servers": [box], "policy": {"rules": list(rules)}, **more}


class Person(WebSocket):
    """An older client that can be asked."""

    def __init__(self, port: int, **headers: str) -> None:
        super().__init__(port, **headers)
        params = {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}}
        client = {"clientInfo": {"name": "raw", "version": "1"}}
        self.send({"jsonrpc": "2.0", "id": "greet", "method": "initialize", "params": {**params, **client}})
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
    with Gateway(config(ASK)) as gateway, Person(gateway.port) as person:
        person.call(1, "box_echo", text="a")
        question = person.question()
        reload(gateway, config({"effect": "deny", "tools": ["box.echo"], "reason": "closed today"}))
        person.says_yes(question)
        answer = person.reply(1)
        assert answer["error"]["code"] == DENIED and "closed today" in answer["error"]["message"], answer

        reload(gateway, config(ASK))
        person.call(2, "box_echo", text="a")
        person.says_yes(person.question())
        assert person.reply(2)["result"]["content"][0]["text"] == "a"


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
        {"effect": "deny", "arguments": {name: bad}} for name, bad in (("paths", "/etc/*"), ("repo.owner", "evil"))
    ]
    box = stdio_server("box", [sys.executable, str(script)])
    with Gateway({**config(*rules), "mcp_servers": [box]}) as gateway:
        client = Session(gateway.port)
        for arguments in ({"paths": '["/etc/passwd"]'}, {"paths": "[]", "repo": '{"owner": "evil"}'}):
            assert client.call("box_delete", **arguments)["error"]["code"] == DENIED
        assert client.call("box_delete", paths='["/tmp/x"]')["result"]["content"][0]["text"] == "deleted"
