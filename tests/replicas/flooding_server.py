"""A stdio server of the older era whose tool `flood` says `count` times `size` bytes of progress,
and then answers with `result` bytes.

    python -I -S tests/replicas/flooding_server.py
"""

import json
import sys


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def flood(params):
    given, token = params.get("arguments") or {}, (params.get("_meta") or {}).get("progressToken")
    for number in range(given["count"]):
        told = {"progressToken": token, "progress": number + 1, "message": "p" * given["size"]}
        send({"method": "notifications/progress", "params": told})
    return {"content": [{"type": "text", "text": "r" * given["result"]}]}


def result(method, params):
    if method == "initialize":
        info = {"name": "flooding", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        return {"tools": [{"name": "flood", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        return flood(params)
    return {} if method == "ping" else None


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer = result(message["method"], message.get("params") or {})
        if answer is None:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            send({"id": message["id"], "result": answer})
