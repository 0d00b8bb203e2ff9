"""A good client beside an attack, in a process of its own: one call after another over one kept
connection.

    python -I -S healthy_client.py PORT TOOL EVERY_MS PIDS [TOKEN]

Each call has a text that no other call has, and must get it back. `begin` on standard input starts
a new account, `end` waits for the call in flight and prints it: one line of JSON with the
milliseconds of each call, what failed, and what was answered with another text. A call is begun
every `EVERY_MS`, or as soon as the one before it was answered.

The milliseconds leave out the time that this process and the processes `PIDS` (with commas between)
waited for a CPU. They show how long the gateway kept the call waiting, on a busy machine too.
"""

import http.client
import json
import sys
import threading
import time

LONGEST = 30.0
"""Seconds after which a call counts as never answered."""
EXAMPLES = 5


class Healthy:
    def __init__(self, port, tool, every, pids, token):
        self.port = port
        names = [f"/proc/{pid}/schedstat" for pid in ("self", *pids)]
        self.schedstats = [open(name, "rb", buffering=0) for name in names]  # noqa: SIM115 - read for each call
        self.tool = tool
        self.every = every
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        self.number = 0
        self.connection = None
        self.lock = threading.Lock()  # held while a call is in flight
        self.forget()

    def forget(self):
        self.latencies, self.failed, self.wrong = [], [], []

    def greet(self):
        client = {"name": "healthy", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        answer = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.headers["Mcp-Session-Id"] = answer.getheader("mcp-session-id")
        self.headers["MCP-Protocol-Version"] = "2025-06-18"
        answer.read()
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).read()

    def post(self, message):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST)
        self.connection.request("POST", "/mcp", json.dumps(message), self.headers)
        return self.connection.getresponse()

    def call(self):
        self.number += 1
        text = f"healthy-{self.number}"
        params = {"name": self.tool, "arguments": {"text": text}}
        began = time.monotonic() - self.cpu_wait()
        try:
            answer = self.post(
                {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
            )
            body = answer.read()
            if (answer.getheader("content-type") or "").startswith("text/event-stream"):
                body = [line[5:] for line in body.splitlines() if line.startswith(b"data:")][-1]
            message = json.loads(body)
            if "result" not in message or message["result"].get("isError"):
                self.failed.append(f"HTTP {answer.status}: {body[:300]!r}")
            elif (message["id"], message["result"]["content"][0]["text"]) != (self.number, text):
                self.wrong.append(f"asked {text!r}, was answered {body[:300]!r}")
        except (OSError, http.client.HTTPException, ValueError, LookupError) as error:
            self.failed.append(f"{type(error).__name__}: {error}")
            self.connection.close()
            self.connection = None
        took = time.monotonic() - self.cpu_wait() - began
        self.latencies.append(took * 1000)
        return took

    def cpu_wait(self):
        """Seconds that the processes have waited for a CPU since they started."""
        nanoseconds = 0
        for file in self.schedstats:
            try:
                file.seek(0)
                nanoseconds += int(file.read().split()[1])
            except (OSError, IndexError):
                pass  # That process has ended.
        return nanoseconds / 1e9

    def work(self):
        while True:
            with self.lock:
                took = self.call()
            time.sleep(max(self.every - took, 0.001))

    def report(self):
        numbers = [round(value, 3) for value in self.latencies]
        counts = {"failures": len(self.failed), "errors": len(self.wrong)}
        return {
            "ms": numbers,
            **counts,
            "failed": self.failed[:EXAMPLES],
            "wrong": self.wrong[:EXAMPLES],
        }


def main():
    port, tool, every, pids, *token = sys.argv[1:]
    healthy = Healthy(
        int(port), tool, float(every) / 1000, pids.split(","), token[0] if token else ""
    )
    healthy.greet()
    threading.Thread(target=healthy.work, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        with (
            healthy.lock
        ):  # the call in flight, however long it takes, belongs to the account that ends
            if line.strip() == "end":
                sys.stdout.write(json.dumps(healthy.report()) + "\n")
                sys.stdout.flush()
            healthy.forget()


if __name__ == "__main__":
    main()
