"""The raw server with much to say: a log that never ends, and large answers behind a word of
progress.

python -I -S tests/attacks/chatty_server.py [flags of raw_server.py]
"""

import os
import sys
import threading

FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")
sys.path.insert(0, FIXTURES)

import raw_server  # noqa: E402 - started by path, without site packages


class ChattyServer(raw_server.RawServer):
    def __init__(self, options):
        super().__init__(options)
        self.tools |= {"pour": (self.pour, {}), "large": (self.large, {})}

    def offered_capabilities(self):
        return {**super().offered_capabilities(), "logging": {}}

    def notify(self, method, params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def pour(self, request_id, arguments, params):
        """So many log messages, once the call is answered and they belong to nobody; then one that
        says so."""

        def go():
            self.answered.wait()
            data = "x" * int(arguments["bytes"])
            for _ in range(int(arguments["count"])):
                self.notify("notifications/message", {"level": "warning", "data": data})
            open(arguments["done"], "w").close()

        self.answered = threading.Event()
        threading.Thread(target=go, daemon=True).start()
        threading.Timer(0.2, self.answered.set).start()
        return raw_server.text("pouring")

    def large(self, request_id, arguments, params):
        token = params.get("_meta", {}).get("progressToken")
        self.notify("notifications/progress", {"progressToken": token, "progress": 1})
        return raw_server.text("x" * int(arguments["bytes"]))


if __name__ == "__main__":
    raw_server.main(ChattyServer)
