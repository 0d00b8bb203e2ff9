"""The odd server, which keeps all it reads, with tools that say they only read; all but `write`.

python -I -S tests/behaviour/reading_server.py RECORD [flags of raw_server.py]
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import odd_server
import raw_server


class ReadingServer(odd_server.OddServer):
    def __init__(self, options):
        super().__init__(options)
        self.count = 0
        self.tools |= {
            tool.__name__: (tool, {}) for tool in (self.read, self.write, self.wrong, self.change)
        }

    def definition(self, name):
        return {**super().definition(name), "annotations": {"readOnlyHint": name != "write"}}

    def read(self, request_id, arguments, params):
        """How often it was called; `until` there is a file it waits."""
        self.count += 1
        number = self.count
        if "until" in arguments:
            self.sleep(request_id, {"seconds": 30, **arguments}, params)
        return raw_server.text(f"read {number}")

    def write(self, request_id, arguments, params):
        self.count += 1
        return raw_server.text(f"wrote {self.count}")

    def wrong(self, request_id, arguments, params):
        self.count += 1
        return {**raw_server.text(f"wrong {self.count}"), "isError": True}

    def change(self, request_id, arguments, params):
        self.notify("notifications/tools/list_changed", {})
        return raw_server.text("changed")


if __name__ == "__main__":
    raw_server.main(ReadingServer)
