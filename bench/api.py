"""A local HTTP API for the benchmark: says a text back as JSON. `api.py PORT`."""

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

import httptools
import orjson
import uvloop


class Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_message_complete(self) -> None:
        text = parse_qs(urlsplit(self._url.decode()).query).get("text", [""])[0]
        body = orjson.dumps({"text": text})
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % len(body)
        )
        self._transport.write(head + body)  # type: ignore[attr-defined]


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(
        Connection, "127.0.0.1", int(sys.argv[1])
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
