"""A stdio server on the standard library alone that says all it knows, asked or not.

    python -I -S tests/attacks/whispering_server.py FILE

FILE is JSON: `word` (in whatever it says of itself), `instructions`, `tools`, `prompts`,
`resources`, `templates`, and `secrets`: what a tool, prompt or URI answers, by its name. Whenever
the file changes, and once it is greeted, it makes noise: log messages, changed lists, updates of
all resources, questions to the user. FILE.log takes a line for each method it is asked, and `noise`
for each noise that was made.
"""

import json
import sys
import threading
import time

FILE = sys.argv[1]
LOCK = threading.Lock()


def offers():
    with open(FILE, encoding="utf-8") as file:
        return json.load(file)


def write(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def note(line):
    with LOCK, open(FILE + ".log", "a", encoding="utf-8") as file:
        file.write(line + "\n")


def say(text):
    write({"method": "notifications/message", "params": {"level": "error", "data": text}})


def ask(id, text):
    message = {"role": "user", "content": {"type": "text", "text": text}}
    write(
        {
            "id": f"s{id}",
            "method": "sampling/createMessage",
            "params": {"messages": [message], "maxTokens": 9},
        }
    )
    schema = {"type": "object", "properties": {}}
    write(
        {
            "id": f"e{id}",
            "method": "elicitation/create",
            "params": {"message": text, "requestedSchema": schema},
        }
    )
    write({"id": f"r{id}", "method": "roots/list"})


def noise(id):
    now = offers()
    say(now["word"])
    for kind in ("tools", "prompts", "resources"):
        write({"method": f"notifications/{kind}/list_changed"})
    for uri in [one["uri"] for one in now["resources"]] + now.get("deeper", []):
        write(
            {
                "method": "notifications/resources/updated",
                "params": {"uri": uri, "_meta": {"why": now["word"]}},
            }
        )
    write(
        {"method": "notifications/elicitation/complete", "params": {"elicitationId": now["word"]}}
    )
    ask(id, now["word"])
    note("noise")


def result(method, params):
    now = offers()
    if method == "initialize":
        kinds = {
            kind: {"listChanged": True, "subscribe": True}
            for kind in ("tools", "resources", "prompts")
        }
        about = {"name": now["word"], "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {**kinds, "completions": {}, "logging": {}},
            "serverInfo": about,
            "instructions": now["instructions"],
        }
    if method == "resources/templates/list":
        return {"resourceTemplates": now["templates"]}
    if method.endswith("/list"):
        kind = method.partition("/")[0]
        return {kind: now[kind]}
    if method == "completion/complete":
        ref = params["ref"]
        return {
            "completion": {
                "values": [now["secrets"].get(ref.get("name", ref.get("uri")), now["word"])]
            }
        }
    secret = now["secrets"].get(params.get("name", params.get("uri")), now["word"])
    if method == "tools/call":
        say(secret)
        token = (params.get("_meta") or {}).get("progressToken")
        if token is not None:
            write(
                {
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": 1, "message": secret},
                }
            )
        return {"content": [{"type": "text", "text": secret}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": secret}}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": secret}]}
    return {}


def watch():
    before, id = offers(), 1
    while True:
        time.sleep(0.02)
        now = offers()
        if now != before:
            before, id = now, id + 1
            noise(id)


def main():
    threading.Thread(target=watch, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            continue
        if message["method"] == "notifications/initialized":
            threading.Thread(target=noise, args=(1,), daemon=True).start()
        if "id" not in message:
            continue
        if message["method"] == "server/discover":
            write({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            write(
                {
                    "id": message["id"],
                    "result": result(message["method"], message.get("params") or {}),
                }
            )
        note(message["method"])


if __name__ == "__main__":
    main()
