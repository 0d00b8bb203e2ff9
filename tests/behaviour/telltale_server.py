"""An MCP server over stdio, no library, that tells all it knows: its environment and arguments, in
several spellings.

On standard error from the start; of a call it dies, with all of it as its last words. As a script
(`--once`) it prints the same on both outputs and fails.
"""

import base64
import json
import os
import sys
from typing import TextIO
from urllib.parse import quote


def everything() -> str:
    told = json.dumps([dict(os.environ), sys.argv])
    coded = " ".join(
        base64.b64encode(f"user:{value}".encode()).decode() for value in os.environ.values()
    )
    return f"{told} {quote(told)} {coded} \x1b[31mred\x1b[0m"


def say(text: str, out: TextIO) -> None:
    out.write(f"{text}\n")
    out.flush()


def main() -> None:
    say(everything(), sys.stderr)
    if "--once" in sys.argv:
        say(everything(), sys.stdout)
        sys.exit(3)
    for line in sys.stdin:
        message = json.loads(line)
        method, reply = message.get("method"), {"jsonrpc": "2.0", "id": message.get("id")}
        if method == "tools/call":
            for value in os.environ.values():
                say(f"failed with {value}", sys.stderr)
            say(f"dies of {everything()}", sys.stderr)
            os._exit(1)
        result = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "telltale", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "die", "inputSchema": {"type": "object"}}]},
        }.get(str(method))
        if message.get("id") is None:
            continue
        if result is None:
            reply["error"] = {"code": -32601, "message": "unknown"}
        else:
            reply["result"] = result
        say(json.dumps(reply), sys.stdout)


main()
