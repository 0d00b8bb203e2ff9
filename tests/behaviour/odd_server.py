"""The raw server with a memory and worse manners, for attacks that need both.

    python -I -S tests/behaviour/odd_server.py RECORD [flags of raw_server.py]

Every request and notification it reads is kept in the file RECORD, over all of its lives: what was
sent twice, what was never cancelled. Its own tools say one thing before the answer, or say the
answer wrongly.
"""

import json
import os
import sys
import time

FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")
sys.path.insert(0, FIXTURES)

import raw_server  # noqa: E402 - started by path, without site packages


class OddServer(raw_server.RawServer):
    record = sys.argv.pop(1)

    def __init__(self, options):
        super().__init__(options)
        self.replies = {}
        own = (
            self.tick,
            self.log,
            self.roots,
            self.broken,
            self.deep,
            self.twice,
            self.stranger,
            self.stubborn,
        )
        self.tools |= {tool.__name__: (tool, {}) for tool in own}

    def offered_capabilities(self):
        return {**super().offered_capabilities(), "logging": {}}

    def messages(self):
        with open(self.record, "ab", 0) as record:
            for message in super().messages():
                if "method" not in message:
                    self.replies[message["id"]] = message
                    continue
                record.write(json.dumps(message).encode() + b"\n")
                yield message

    def notify(self, method, params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def write_line(self, line):
        self.write_bytes(line + b"\n")

    # -- something before the answer

    def tick(self, request_id, arguments, params):
        """Progress at once and after `seconds`, or more `times`, then the answer."""
        token, times = params.get("_meta", {}).get("progressToken"), arguments.get("times", 2)
        for number in range(1, times + 1):
            if number > 1:
                self.sleep(request_id, {"seconds": arguments.get("seconds", 0)}, params)
            self.notify(
                "notifications/progress",
                {"progressToken": token, "progress": number, "total": times},
            )
        return raw_server.text("ticked")

    def log(self, request_id, arguments, params):
        self.notify(
            "notifications/message", {"level": "warning", "data": arguments.get("text", "")}
        )
        return raw_server.text("logged")

    def roots(self, request_id, arguments, params):
        """The client's roots, asked for in mid-call."""
        question = f"roots of {request_id}"
        self.send({"jsonrpc": "2.0", "id": question, "method": "roots/list"})
        while question not in self.replies:
            time.sleep(0.01)
        told = self.replies.pop(question).get("result", {})
        return {**raw_server.text(json.dumps(told)), "structuredContent": told}

    # -- the answer, said wrongly

    def broken(self, request_id, arguments, params):
        """An answer that is no JSON."""
        self.write_line(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[}}' % request_id)

    def deep(self, request_id, arguments, params):
        """An answer nested so deep that parsers refuse it."""
        levels = int(arguments.get("levels", 5000))
        self.write_line(
            b'{"jsonrpc":"2.0","id":%d,"result":{"deep":%b%b}}'
            % (request_id, b"[" * levels, b"]" * levels)
        )

    def twice(self, request_id, arguments, params):
        answer = {"jsonrpc": "2.0", "id": request_id, "result": raw_server.text("first")}
        self.send(answer)
        self.send({**answer, "result": raw_server.text("second")})

    def stranger(self, request_id, arguments, params):
        """Answers to what nobody asked, then the right one."""
        for other in (request_id + 1000, str(request_id), None, 1.5, [request_id]):
            self.send({"jsonrpc": "2.0", "id": other, "result": raw_server.text("not for you")})
        return raw_server.text("for you")

    def stubborn(self, request_id, arguments, params):
        """Answers when it is cancelled, of all times."""
        while request_id not in self.cancelled:
            time.sleep(0.01)
        self.send({"jsonrpc": "2.0", "id": request_id, "result": raw_server.text("too late")})
        with open(self.record, "ab", 0) as record:
            record.write(json.dumps({"method": "said too late"}).encode() + b"\n")


if __name__ == "__main__":
    raw_server.main(OddServer)
