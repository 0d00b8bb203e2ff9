"""A stdio server of the older era, or of both, that asks, logs and announces at the moment a test chooses.

    python -I -S tests/behaviour/asking_server.py RECORD [--era older|modern|dual] [--delay S] [--slow S] [--mute]

RECORD gets one line per message read, with the process that read it, over all of its lives. A tool with an argument
`until` waits for that file, whether it is cancelled or not: what a server says late is what these tests are about.
"""

import argparse
import itertools
import json
import os
import sys
import threading
import time

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
TOOLS = ("echo", "who", "wait", "ask", "ask_later", "log", "touch", "die", "steps")
URI = "asking://one"


class Server:
    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.ids = itertools.count(1)
        self.answers = {}
        self.client = {}

    def send(self, message):
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def record(self, message):
        line = json.dumps({"pid": os.getpid(), **message}).encode() + b"\n"
        with self.lock, open(self.options.record, "ab", 0) as record:
            record.write(line)

    def serve(self):
        self.record({"method": "started"})
        time.sleep(self.options.delay)
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self.record(message)
            if self.options.mute:
                continue
            if "method" not in message:
                waiting = self.answers.pop(message["id"], None)
                if waiting is not None:
                    waiting.append(message)
            elif "id" in message:
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()

    def answer(self, message):
        params = message.get("params") or {}
        modern = META + "protocolVersion" in (params.get("_meta") or {})
        allowed = self.options.era == "dual" or (self.options.era == "modern") == modern
        try:
            if not allowed or (message["method"] == "server/discover" and self.options.era == "older"):
                raise KeyError(message["method"])
            result = self.result(message["method"], params)
        except KeyError as error:
            self.send({"id": message["id"], "error": {"code": -32601, "message": f"Method not found: {error}"}})
            return
        if modern:
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        self.send({"id": message["id"], "result": result})

    def result(self, method, params):
        capabilities = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
        if method == "initialize":
            self.client = params
            info = {"name": "asking", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        if method == "server/discover":
            return {"supportedVersions": [MODERN], "capabilities": capabilities}
        if method == "resources/subscribe":
            time.sleep(self.options.slow)
        if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            return {}
        if method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
        if method == "resources/list":
            return {"resources": [{"uri": URI, "name": "one"}]}
        if method == "resources/templates/list":
            return {"resourceTemplates": []}
        if method == "resources/read":
            return {"contents": [{"uri": params["uri"], "text": str(os.getpid())}]}
        if method == "tools/call":
            self.token = (params.get("_meta") or {}).get("progressToken")
            return getattr(self, params["name"])(params.get("arguments") or {})
        raise KeyError(method)

    # -- tools

    def until(self, arguments):
        deadline = time.monotonic() + 60
        while "until" in arguments and not os.path.exists(arguments["until"]) and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(arguments.get("seconds", 0))

    def echo(self, arguments):
        return said(arguments.get("text", ""))

    def who(self, arguments):
        told = {"pid": os.getpid(), "initialize": self.client}
        return {**said(str(os.getpid())), "structuredContent": told}

    def wait(self, arguments):
        self.until(arguments)
        return said(arguments.get("text", "waited"))

    def ask(self, arguments):
        """Ask the client, and give its answer as the result; with an argument `after` not before there is that file."""
        self.until(arguments)
        reply = self.question(arguments)
        if "after" in arguments:
            self.until({"until": arguments["after"]})
        return said(json.dumps(reply.get("result") or reply.get("error")))

    def ask_later(self, arguments):
        """Answer at once; ask when the file is there, on whatever goes on then."""

        def later():
            self.until(arguments)
            self.question(arguments)

        threading.Thread(target=later, daemon=True).start()
        return said("soon")

    def log(self, arguments):
        self.until(arguments)
        params = {"level": arguments.get("level", "error"), "data": arguments.get("text", "")}
        self.send({"method": "notifications/message", "params": params})
        return said("logged")

    def touch(self, arguments):
        self.send({"method": "notifications/resources/updated", "params": {"uri": arguments.get("uri", URI)}})
        return said(str(os.getpid()))

    def steps(self, arguments):
        """Progress before a question, while it is open (when the file is there), and after its answer."""
        token = self.token

        def step(number):
            self.send({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})

        def meanwhile():
            self.until(arguments)
            step(2)
            self.record({"method": "stepped"})

        step(1)
        threading.Thread(target=meanwhile, daemon=True).start()
        self.question(arguments)
        step(3)
        return said("done")

    def die(self, arguments):
        os._exit(3)

    def question(self, arguments):
        method = arguments.get("method", "elicitation/create")
        params = {
            "elicitation/create": {"message": arguments.get("text", ""), "requestedSchema": SCHEMA},
            "sampling/createMessage": {
                "messages": [{"role": "user", "content": {"type": "text", "text": arguments.get("text", "")}}],
                "maxTokens": 10,
            },
            "roots/list": {},
        }[method]
        number = f"q{os.getpid()}-{next(self.ids)}"
        waiting = self.answers[number] = []
        self.record({"method": "asks", "text": arguments.get("text")})
        self.send({"id": number, "method": method, "params": params})
        deadline = time.monotonic() + 60
        while not waiting and time.monotonic() < deadline:
            time.sleep(0.005)
        self.record({"method": "answered", "text": arguments.get("text"), "answer": waiting[0] if waiting else None})
        return waiting[0] if waiting else {"error": "nobody answered"}


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


def said(text):
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("record")
    parser.add_argument("--era", choices=("older", "modern", "dual"), default="older")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to answer a subscription")
    parser.add_argument("--mute", action="store_true")
    Server(parser.parse_args()).serve()
