"""A server with as many tools as it is told, over standard input and output.

    python -I -S many_tools_server.py COUNT

Each answers at once.
"""

import json
import sys

COUNT = int(sys.argv[1])
TOOLS = [{"name": f"tool-{number}", "inputSchema": {"type": "object"}} for number in range(COUNT)]

for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message.get("method")
    if method == "initialize":
        own = {"name": "many", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": own}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "done"}]}
    else:
        result = {}
    sys.stdout.buffer.write(
        json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n"
    )
    sys.stdout.buffer.flush()
