"""A server on stdio whose names and answers would steer a terminal, be run by a shell, or be no
text at all."""

import json
import sys
from typing import Any

STEERS = "\x1b]0;title\x07\x1b[2J"
NAMES = (
    "$(touch ran)",
    "`touch ran`",
    "it's;touch ran;'",
    'a";touch ran;"',
    "a!!b\\",
    "&touch ran&",
    "$HOME",
)


def tool(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **keys}


def result(name: str) -> dict[str, Any]:
    if name == "alone":
        return {"content": [{"type": "text", "text": "half a pair \ud800"}]}
    if name == "tags":
        return {"content": [], "structuredContent": {"text": "x\U000e0041y"}}
    if name == "image":
        return {"content": [{"type": "image", "data": "AAEC", "mimeType": f"image/png{STEERS}"}]}
    return {"content": [{"type": "text", "text": f"called {name}"}]}


ASKED = {
    "message": "who?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "format": f"email{STEERS}"}},
    },
}
TOOLS = [
    *(tool(f"{at}{name}") for at, name in enumerate(NAMES)),
    *map(tool, ("alone", "tags", "image", "ask")),
]
TOOLS.append(tool("told", description=f"half a pair \ud800 {STEERS}"))
ANSWERS: dict[str, Any] = {
    "tools/list": {"tools": TOOLS},
    "resources/list": {
        "resources": [{"uri": "x://y", "name": "y", "mimeType": f"text/plain{STEERS}"}]
    },
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": [{"uri": "x://y", "text": "half a pair \ud800"}]},
    "prompts/list": {"prompts": []},
}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    waiting: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if method == "initialize":
            can: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
            about = {"name": "strange", "version": "1"}
            version = message["params"]["protocolVersion"]
            send(
                id=number,
                result={"protocolVersion": version, "capabilities": can, "serverInfo": about},
            )
        elif method == "tools/call" and message["params"]["name"] == "ask":
            waiting = number
            send(id="asked", method="elicitation/create", params=ASKED)
        elif method == "tools/call":
            send(id=number, result=result(message["params"]["name"]))
        elif method in ANSWERS:
            send(id=number, result=ANSWERS[method])
        elif number == "asked":
            send(
                id=waiting,
                result={"content": [{"type": "text", "text": str(message.get("result"))}]},
            )
        elif method is not None and number is not None:
            send(id=number, error={"code": -32601, "message": "no"})


if __name__ == "__main__":
    main()
