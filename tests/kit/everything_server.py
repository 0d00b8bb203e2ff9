"""MCP test server on the standard library: one example of each MCP feature, on any transport, in
any era.

    python -I -S tests/kit/everything_server.py --transport stdio|http|sse|websocket --era
    older|modern|dual

A network transport writes the line `ready URL` to stdout when it listens. A tool that asks the
client for input does so in the way of the caller's era: it sends a request to an older client, and
returns `input_required` to a modern one. The tool returns the client's answer as
`structuredContent`.
"""

import argparse
import json
import os
import signal
import sys
import threading

# Python does not search the folder of a script that runs isolated (-I).
sys.path.append(os.path.dirname(os.path.abspath(__file__)))

from everything_server_features import Everything
from everything_server_protocol import Json, StreamConnection, encode

TRANSPORTS = ("stdio", "http", "sse", "websocket")
ERAS = ("older", "modern", "dual")
STDOUT = 1


class StdoutWriter:
    """Writes one message per line. Any thread may write."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, message: Json) -> None:
        line = memoryview(encode(message) + b"\n")
        with self._lock:
            try:
                while line:
                    line = line[os.write(STDOUT, line) :]
            except OSError:
                # The client has closed the pipe. The end of stdin ends the server.
                pass


def serve_stdio(everything: Everything, era: str) -> None:
    """Serve the client on stdin and stdout until stdin ends."""
    writer = StdoutWriter()
    client = StreamConnection(everything.dispatcher(), everything.sessions, era, writer.write)
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        client.receive(message)
    client.close()


def serve_network(everything: Everything, options: argparse.Namespace) -> None:
    """Serve until the process ends. Import only the transport that is needed: imports are most of
    the start time."""
    from everything_server_http import serve_http

    if options.transport == "http":
        from everything_server_streamable import PATH, StreamableHttp

        serve_http(
            StreamableHttp(everything, options.era, options.resumable).handle,
            "http",
            PATH,
            options.port,
        )
    elif options.transport == "sse":
        from everything_server_sse import EVENTS_PATH, SseTransport

        serve_http(SseTransport(everything, options.era).handle, "http", EVENTS_PATH, options.port)
    else:
        from everything_server_websocket import PATH, WebSocketTransport

        serve_http(WebSocketTransport(everything, options.era).handle, "ws", PATH, options.port)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--transport", choices=TRANSPORTS, default="stdio")
    parser.add_argument("--era", choices=ERAS, default="dual")
    parser.add_argument(
        "--port", type=int, default=0, help="0 selects a free port; the ready line names the port"
    )
    parser.add_argument(
        "--resumable", action="store_true", help="HTTP, older era: keep events for Last-Event-ID"
    )
    parser.add_argument("--page-size", type=int, metavar="N", help="list tools in pages of N")
    parser.add_argument(
        "--record", metavar="FILE", help="count the cancellations of all processes in FILE"
    )
    options = parser.parse_args()
    # Ctrl-C ends the server without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    everything = Everything(options.record, options.page_size)
    if options.transport == "stdio":
        serve_stdio(everything, options.era)
    else:
        serve_network(everything, options)


if __name__ == "__main__":
    main()
