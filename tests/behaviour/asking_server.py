"""A stdio server of the older era, or of both, that asks, logs and announces at the moment a test
chooses.

    python -I -S tests/behaviour/asking_server.py RECORD [--era older|modern|dual] [--delay S]
    [--slow S] [--mute]

RECORD gets one line per message read, with the process that read it, over all of its lives. A tool
with an argument `until` waits for that file, whether it is cancelled or not: what a server says
late is what these tests are about.
"""

import argparse
import itertools
import json
import os
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kit"))

from stdio_server import META, MODERN, RpcError, StdioServer, text_result

TOOLS = ("echo", "who", "wait", "ask", "ask_later", "log", "touch", "die", "steps")
URI = "asking://one"


class AskingServer(StdioServer):
    name = "asking"
    capabilities = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}  # noqa: RUF012
    threaded = True

    def __init__(self, options):
        super().__init__(options.era)
        self.options = options
        self.record_lock = threading.Lock()
        self.ids = itertools.count(1)
        self.answers = {}

    def record(self, message):
        line = json.dumps({"pid": os.getpid(), **message}).encode() + b"\n"
        with self.record_lock, open(self.options.record, "ab", 0) as record:
            record.write(line)

    def serve(self):
        self.record({"method": "started"})
        time.sleep(self.options.delay)
        super().serve()

    def messages(self):
        for message in super().messages():
            self.record(message)
            if not self.options.mute:
                yield message

    def receive_response(self, message):
        waiting = self.answers.pop(message["id"], None)
        if waiting is not None:
            waiting.append(message)

    def handle(self, request_id, method, params):
        modern = META + "protocolVersion" in (params.get("_meta") or {})
        allowed = self.era == "dual" or (self.era == "modern") == modern
        if not allowed or (method == "server/discover" and self.era == "older"):
            raise RpcError(-32601, f"Method not found: {method}")
        if not modern and method == "initialize":
            self.client = params
            return {"protocolVersion": params["protocolVersion"], **self.introduction()}
        result = self.result(method, params)
        return (
            {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
            if modern
            else result
        )

    def result(self, method, params):
        if method == "server/discover":
            return {"supportedVersions": [MODERN], "capabilities": self.capabilities}
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
        return super().result(method, params)

    # -- tools

    def until(self, arguments):
        deadline = time.monotonic() + 60
        while (
            "until" in arguments
            and not os.path.exists(arguments["until"])
            and time.monotonic() < deadline
        ):
            time.sleep(0.005)
        time.sleep(arguments.get("seconds", 0))

    def echo(self, arguments):
        return text_result(arguments.get("text", ""))

    def who(self, arguments):
        told = {"pid": os.getpid(), "initialize": self.client}
        return {**text_result(str(os.getpid())), "structuredContent": told}

    def wait(self, arguments):
        self.until(arguments)
        return text_result(arguments.get("text", "waited"))

    def ask(self, arguments):
        """Ask the client, and give its answer as the result; with an argument `after` not before
        there is that file."""
        self.until(arguments)
        reply = self.question(arguments)
        if "after" in arguments:
            self.until({"until": arguments["after"]})
        return text_result(json.dumps(reply.get("result") or reply.get("error")))

    def ask_later(self, arguments):
        """Answer at once; ask when the file is there, on whatever goes on then."""

        def later():
            self.until(arguments)
            self.question(arguments)

        threading.Thread(target=later, daemon=True).start()
        return text_result("soon")

    def log(self, arguments):
        self.until(arguments)
        params = {"level": arguments.get("level", "error"), "data": arguments.get("text", "")}
        self.send({"method": "notifications/message", "params": params})
        return text_result("logged")

    def touch(self, arguments):
        self.send(
            {
                "method": "notifications/resources/updated",
                "params": {"uri": arguments.get("uri", URI)},
            }
        )
        return text_result(str(os.getpid()))

    def steps(self, arguments):
        """Progress before a question, while it is open (when the file is there), and after its
        answer."""
        token = self.token

        def step(number):
            self.send(
                {
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": number},
                }
            )

        def meanwhile():
            self.until(arguments)
            step(2)
            self.record({"method": "stepped"})

        step(1)
        threading.Thread(target=meanwhile, daemon=True).start()
        self.question(arguments)
        step(3)
        return text_result("done")

    def die(self, arguments):
        os._exit(3)

    def question(self, arguments):
        method = arguments.get("method", "elicitation/create")
        params = {
            "elicitation/create": {"message": arguments.get("text", ""), "requestedSchema": SCHEMA},
            "sampling/createMessage": {
                "messages": [
                    {"role": "user", "content": {"type": "text", "text": arguments.get("text", "")}}
                ],
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
        self.record(
            {
                "method": "answered",
                "text": arguments.get("text"),
                "answer": waiting[0] if waiting else None,
            }
        )
        return waiting[0] if waiting else {"error": "nobody answered"}


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("record")
    parser.add_argument("--era", choices=("older", "modern", "dual"), default="older")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to answer a subscription")
    parser.add_argument("--mute", action="store_true")
    AskingServer(parser.parse_args()).serve()
