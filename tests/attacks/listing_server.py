"""A server that offers without measure, over standard input and output.

    python -I -S listing_server.py HABIT [COUNT SIZE]

It behaves until its tool `begin` is called. `many`: COUNT tools with descriptions of SIZE
characters, a thousand a page, no two lists the same, and changes announced without an end.
`endless`: pages of COUNT such tools without an end. `questions`: COUNT questions of SIZE
characters. `large` says SIZE characters about itself from the start.
"""

import json
import sys
import threading
import time

HABIT = sys.argv[1]
COUNT, SIZE = (int(number) for number in (*sys.argv[2:], "0", "0")[:2])
OWN = {"name": "begin", "inputSchema": {"type": "object"}}
PAGE = 1_000
lock = threading.Lock()
begun = threading.Event()
lists = 0


def send(message):
    raw = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    with lock:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()


def tool(number):
    text = f"number {number} of list {lists} " + "x" * SIZE
    properties = {
        name: {"type": "string", "description": "what it is"} for name in ("alpha", "beta", "gamma")
    }
    return {
        "name": f"tool_{number}",
        "description": text,
        "inputSchema": {"type": "object", "properties": properties},
    }


def page(params):
    global lists
    at = int(params.get("cursor", "0"))
    if not begun.is_set() or HABIT not in ("endless", "many"):
        return {"tools": [OWN]}
    if HABIT == "endless":
        return {"tools": [tool(at * COUNT + n) for n in range(COUNT)], "nextCursor": str(at + 1)}
    if at == 0:
        lists += 1
    found = {"tools": [OWN] * (at == 0) + [tool(n) for n in range(at, min(at + PAGE, COUNT))]}
    return found if at + PAGE >= COUNT else {**found, "nextCursor": str(at + PAGE)}


def greeting(params):
    about = {
        "protocolVersion": params.get("protocolVersion"),
        "serverInfo": {"name": HABIT, "version": "1"},
    }
    able = {"tools": {"listChanged": True}}
    if HABIT == "large":
        able["experimental"] = {"x" * 100: {str(n): {} for n in range(SIZE // 10)}}
        about["serverInfo"]["title"] = "t" * SIZE
        about["instructions"] = "word " * (SIZE // 5)
    return {**about, "capabilities": able}


def misbehave():
    changed = {"method": "notifications/tools/list_changed"}
    if HABIT == "endless":
        send(changed)
    while HABIT == "many":
        for _ in range(50):
            send(changed)
        time.sleep(0.01)
    for number in range(COUNT if HABIT == "questions" else 0):
        params = {"message": "q" * SIZE, "requestedSchema": {"type": "object", "properties": {}}}
        send({"id": f"q{number}", "method": "elicitation/create", "params": params})


def called(name):
    begun.set()
    threading.Thread(target=misbehave, daemon=True).start()
    return {"content": [{"type": "text", "text": name}]}


def main():
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message or method is None:
            continue
        if method == "initialize":
            result = greeting(params)
        elif method == "tools/list":
            result = page(params)
        elif method == "tools/call":
            result = called(params.get("name"))
        elif method == "ping":
            result = {}
        else:
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
            continue
        send({"id": message["id"], "result": result})


main()
