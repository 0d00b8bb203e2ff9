"""The servers behind a soak: a name, an era, a carrier and one habit each, on the standard library
alone.

    python -I -S bench/soak_server.py --name NAME --era older|modern [--habit HABIT] [--port PORT]

`echo` and `nap` return the value they are given, `ask` and `roots` put a question to the client
first; each answer starts with that value, so that whoever gets another one's answer knows it.
Habits: `mute` never says a word, `silent` never answers a call, `crash` ends itself at every
twentieth call or so.
"""

import argparse
import json
import os
import sys
import threading
import time

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
TOOLS = ("echo", "nap", "ask", "roots")
CRASH = 20
"""One in so many calls to a server that crashes."""


class Server:
    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.news = threading.Condition()
        self.replies = {}
        self.cancelled = set()
        self.capabilities = {}
        self.questions = 0

    # -- messages

    def send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self.lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    def serve(self):
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if self.options.habit == "mute":
                continue
            if "method" not in message:
                with self.news:
                    self.replies[message["id"]] = message
                    self.news.notify_all()
            elif "id" not in message:
                if message["method"] == "notifications/cancelled":
                    with self.news:
                        self.cancelled.add(message["params"]["requestId"])
                        self.news.notify_all()
            elif message["method"] == "tools/call":
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
            else:
                self.answer(message)

    def answer(self, message):
        reply = self.reply(message)
        if reply is not None and message["id"] not in self.cancelled:
            self.send({"id": message["id"], **reply})

    def reply(self, message):
        """A result, an error, or None for no answer at all."""
        params = message.get("params") or {}
        version = (params.get("_meta") or {}).get(META + "protocolVersion")
        if (version is not None or message["method"] == "server/discover") != (
            self.options.era == "modern"
        ):
            code = -32601 if self.options.era == "older" else -32022
            data = (
                {}
                if code == -32601
                else {"data": {"supported": [MODERN], "requested": str(version)}}
            )
            return {"error": {"code": code, "message": "not in this era", **data}}
        result = self.result(message["id"], message["method"], params)
        if result is None or "error" in result:
            return result
        return {
            "result": result
            if self.options.era == "older"
            else {"resultType": "complete", **result}
        }

    def result(self, request_id, method, params):
        about = {
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self.options.name, "version": "1"},
        }
        fresh = {"ttlMs": 0, "cacheScope": "private"} if self.options.era == "modern" else {}
        match method:
            case "initialize":
                self.capabilities = params.get("capabilities", {})
                return {"protocolVersion": params["protocolVersion"], **about}
            case "server/discover":
                return {"supportedVersions": [MODERN], **about, **fresh}
            case "ping":
                return {}
            case "tools/list":
                schema = {
                    "type": "object",
                    "properties": {"value": {"type": "string"}, "seconds": {"type": "number"}},
                }
                return {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS], **fresh}
            case "tools/call":
                return self.call(request_id, params)
        return {"error": {"code": -32601, "message": f"no {method} here"}}

    # -- tools

    def call(self, request_id, params):
        if self.options.habit == "silent":
            return None
        if self.options.habit == "crash" and os.urandom(1)[0] % CRASH == 0:
            os._exit(7)
        given = params.get("arguments") or {}
        value, seconds = given.get("value", ""), float(given.get("seconds", 0))
        match params["name"]:
            case "nap":
                self.wait(lambda: request_id in self.cancelled, seconds)
                return said(value)
            case "ask":
                time.sleep(seconds)  # a question may come late, when its call was cancelled already
                schema = {"type": "object", "properties": {"name": {"type": "string"}}}
                question = {"message": value, "requestedSchema": schema}
                answer = self.ask(request_id, params, "elicitation", "elicitation/create", question)
                return (
                    answer
                    if "told" not in answer
                    else said(f"{value} {answer['told']['content']['name']}")
                )
            case "roots":
                answer = self.ask(request_id, params, "roots", "roots/list", {})
                return (
                    answer
                    if "told" not in answer
                    else said(f"{value} {answer['told']['roots'][0]['uri']}")
                )
        return said(value)

    def wait(self, ready, seconds):
        deadline = time.monotonic() + seconds
        with self.news:
            while not ready() and (left := deadline - time.monotonic()) > 0:
                self.news.wait(left)

    def ask(self, request_id, params, capability, method, question):
        """{"told": the client's answer}, or what to answer the call with instead."""
        modern = self.options.era == "modern"
        able = (
            (params.get("_meta") or {}).get(META + "clientCapabilities") or {}
            if modern
            else self.capabilities
        )
        if capability not in able:
            return {**said(f"nobody can be asked for {capability}"), "isError": True}
        if modern:
            told = (params.get("inputResponses") or {}).get("q")
            asked = {
                "resultType": "input_required",
                "inputRequests": {"q": {"method": method, "params": question}},
            }
            return asked if told is None else {"told": told}
        with self.lock:
            self.questions += 1
            own = f"q{self.questions}"
        self.send({"id": own, "method": method, "params": question})
        self.wait(lambda: own in self.replies or request_id in self.cancelled, 60)
        told = self.replies.pop(own, {}).get("result")
        return (
            {"told": told}
            if told is not None
            else {**said("the question was not answered"), "isError": True}
        )


def said(text):
    return {"content": [{"type": "text", "text": text}]}


async def serve_http(server, port):
    """Streamable HTTP without streams: an answer is one JSON document."""
    import asyncio  # there are many processes of those that need it not

    async def converse(reader, writer):
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower():
                length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
                body = await reader.readexactly(length)
                if not head.startswith("post"):
                    writer.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
                    continue
                message = json.loads(body)
                reply = None
                if "id" in message and "method" in message:
                    reply = await asyncio.to_thread(server.reply, message)
                if reply is None:
                    writer.write(b"HTTP/1.1 202 OK\r\ncontent-length: 0\r\n\r\n")
                    continue
                content = json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}).encode()
                kind = (
                    "content-type: application/json\r\ncontent-length: "
                    f"{len(content)}\r\nmcp-session-id: one\r\n"
                )
                status = "400 No" if (reply.get("error") or {}).get("code") == -32022 else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\n{kind}\r\n".encode() + content)
        except (EOFError, OSError):
            pass
        finally:
            writer.close()

    served = await asyncio.start_server(converse, "127.0.0.1", port)
    async with served:
        await served.serve_forever()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", required=True)
    parser.add_argument("--era", choices=("older", "modern"), required=True)
    parser.add_argument("--habit", choices=("mute", "silent", "crash"))
    parser.add_argument(
        "--port", type=int, help="serve HTTP on it instead of standard input and output"
    )
    parser.add_argument("--edition", help="does nothing; another one is another command line")
    options = parser.parse_args()
    server = Server(options)
    if options.port is not None:
        import asyncio

        asyncio.run(serve_http(server, options.port))
    else:
        server.serve()


if __name__ == "__main__":
    main()
