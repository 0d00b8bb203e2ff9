"""A stdio server on the standard library alone whose one tool has an effect: it writes its text
into a file.

    python -I -S tests/replicas/journal_server.py FILE

All processes that are started with the same file write into the same file, a line for each call.
"""

import json
import os
import sys
import time

TOOL = {
    "name": "note",
    "description": "Write a line down.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "seconds": {"type": "number"}},
    },
}


def answer(journal, message):
    method = message["method"]
    if method == "initialize":
        info = {"name": "journal", "version": "1"}
        version = message["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        arguments = message["params"]["arguments"]
        os.write(journal, (arguments["text"] + "\n").encode())
        time.sleep(arguments.get("seconds", 0))
        return {"content": [{"type": "text", "text": arguments["text"]}]}
    return {}


def main():
    journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if message["method"] == "server/discover":
            said = {"error": {"code": -32601, "message": "Method not found"}}
        else:
            said = {"result": answer(journal, message)}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
        sys.stdout.flush()


main()
