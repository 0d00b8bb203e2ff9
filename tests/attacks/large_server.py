"""A stdio server on the standard library alone whose answers are large: each is made once, so that
giving it costs little.

    python -I -S tests/attacks/large_server.py

`give` takes `kind` (json, structured, both, text, pretty, blocks) and `megabytes`; `small` says a
word.
"""

import json
import os
import sys

ROW = '{"id":%d,"name":"row number %d","odd":%s,"share":%d.5,"tags":["a","b"]}'


def rows(size):
    line = ROW % (1_000_000, 1_000_000, "false", 1_000_000)
    return [ROW % (n, n, "true" if n % 2 else "false", n) for n in range(int(size) // len(line))]


def text_block(text):
    return f'{{"type":"text","text":{json.dumps(text)}}}'


def result(blocks, structured=""):
    return (
        f'{{"content":[{blocks}]'
        + (f',"structuredContent":{structured}' if structured else "")
        + "}"
    )


def made(kind, size):
    """The result as JSON text."""
    if kind in ("json", "structured", "both", "pretty"):
        text = "[" + ",".join(rows(size if kind != "pretty" else size / 2)) + "]"
        if kind == "pretty":
            text = json.dumps(json.loads(text), indent=2)
        if kind == "structured":
            return result(text_block("see there"), f'{{"rows":{text}}}')
        return result(text_block(text), f'{{"result":{text}}}' if kind == "both" else "")
    if kind == "blocks":
        return result(",".join([text_block("a")] * int(size // 27)))
    lines = "".join(
        f"line {n} of a log that nobody reads to its end\n" for n in range(int(size // 50))
    )
    return result(text_block(lines))


class Server:
    def __init__(self):
        self.made = {}

    def answer(self, method, params):
        """The result as JSON text, or None for a method that is not known."""
        if method == "initialize":
            version = params.get("protocolVersion", "2025-11-25")
            info = {"name": "large", "version": "1"}
            return json.dumps(
                {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            )
        if method == "tools/list":
            names = ("give", "small")
            return json.dumps(
                {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
            )
        if method == "tools/call":
            asked = params.get("arguments") or {}
            if params.get("name") == "small":
                return result(text_block("a word"))
            key = (asked.get("kind", "json"), float(asked.get("megabytes", 1)))
            if key not in self.made:
                self.made[key] = made(key[0], key[1] * 1_000_000)
            return self.made[key]
        return "{}" if method == "ping" else None

    def run(self):
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            told = self.answer(message["method"], message.get("params") or {})
            outcome = (
                '"error":{"code":-32601,"message":"no"}' if told is None else f'"result":{told}'
            )
            reply = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},{outcome}}}\n'
            data = memoryview(reply.encode())
            while data:
                data = data[os.write(1, data) :]


if __name__ == "__main__":
    Server().run()
