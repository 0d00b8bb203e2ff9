"""A stdio server of the older era with an answer for every URI, whose last words are those of
whoever ended it.

    python -I -S tests/behaviour/confiding_server.py RECORD [WORDS]

RECORD gets one line per request. The tool `work` is never answered; `die` writes its argument
`words` to standard error and ends the process with code 9. With WORDS it says those and ends so
before it has answered anything.
"""

import json
import os
import sys

OFFERS = {
    "tools/list": {
        "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("work", "die")]
    },
    "prompts/list": {
        "prompts": [{"name": name, "arguments": [{"name": "about"}]} for name in ("open", "shut")]
    },
    "resources/list": {
        "resources": [{"uri": f"box://{name}/a", "name": name} for name in ("open", "shut")]
    },
    "resources/templates/list": {
        "resourceTemplates": [
            {"uriTemplate": f"{scheme}://{name}/{{id}}", "name": name}
            for scheme, name in (("note", "open"), ("note", "shut"), ("page", "{kind}"))
        ]
    },
}


def die(words):
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
    os._exit(9)


def result(method, params):
    if method == "initialize":
        able = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}}
        about = {"name": "confiding", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": able,
            "serverInfo": about,
        }
    if method == "tools/call":
        return die(params["arguments"]["words"]) if params["name"] == "die" else None
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"text of {params['uri']}"}]}
    if method == "completion/complete":
        return {"completion": {"values": ["completed"]}}
    if method == "prompts/get":
        return {"messages": []}
    return OFFERS.get(method, {})


def main():
    if len(sys.argv) > 2:
        die(sys.argv[2])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        with open(sys.argv[1], "a", encoding="utf-8") as record:
            record.write(json.dumps([message["method"], message.get("params")]) + "\n")
        if message["method"] == "server/discover":
            reply = {"error": {"code": -32601, "message": "Method not found"}}
        elif (answer := result(message["method"], message.get("params") or {})) is not None:
            reply = {"result": answer}
        else:
            continue
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
