"""Sends the rows of the audit log to a log collector as well: OTLP logs over HTTP, or syslog (RFC
5424)."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mcpx import __version__
from mcpx.telemetry.exporter import Exporter, Undelivered, otlp_url, post
from mcpx.wire import codec

if TYPE_CHECKING:
    from mcpx.wire.fetch import Fetcher

PATH: Final = "/v1/logs"
INFO: Final = 9
"""Severity number of OTLP."""
PRIORITY: Final = 13 * 8 + 6
"""Of syslog: facility log audit, severity informational."""
SYSLOG_PORTS: Final = {"syslog": 514, "syslog+tcp": 601}
MAX_DATAGRAM_BYTES: Final = 65_000
"""A longer datagram cannot be sent over UDP. The rest of such a row is only in the file."""
_TIME: Final = slice(9, 33)
"""Position of the time in a row."""


def make_exporter(
    url: str, headers: Mapping[str, str], fetcher: "Callable[[], Fetcher]"
) -> Exporter:
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        return Exporter("audit rows", "audit rows", _Otlp(url, headers, fetcher).send)
    return Exporter("audit rows", "audit rows", _Syslog(url).send)


class _Otlp:
    def __init__(
        self, url: str, headers: Mapping[str, str], fetcher: "Callable[[], Fetcher]"
    ) -> None:
        self._url = otlp_url(url, PATH)
        self._headers = (("content-type", "application/json"), *headers.items())
        self._fetcher = fetcher

    async def send(self, rows: Sequence[bytes], timeout: float) -> None:
        await post(self._fetcher(), self._url, self._headers, otlp_logs(rows), timeout)


def otlp_logs(rows: Sequence[bytes]) -> bytes:
    """The JSON form of an `ExportLogsServiceRequest`."""
    records = [
        {
            "timeUnixNano": str(_nanoseconds(row)),
            "severityNumber": INFO,
            "severityText": "INFO",
            "body": {"stringValue": row.decode().rstrip("\n")},
        }
        for row in rows
    ]
    resource = [
        {"key": "service.name", "value": {"stringValue": "mcpx"}},
        {"key": "service.version", "value": {"stringValue": __version__}},
        {"key": "host.name", "value": {"stringValue": socket.gethostname()}},
    ]
    scope = {"scope": {"name": "mcpx.audit"}, "logRecords": records}
    return codec.dump(
        {"resourceLogs": [{"resource": {"attributes": resource}, "scopeLogs": [scope]}]}
    )


def _nanoseconds(row: bytes) -> int:
    return int(datetime.fromisoformat(row[_TIME].decode()).timestamp() * 1000) * 1_000_000


class _Syslog:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._scheme = parts.scheme
        self._path = parts.path
        self._address: tuple[str, int] = (
            parts.hostname or "",
            parts.port or SYSLOG_PORTS.get(parts.scheme, 0),
        )
        self._head = f"{socket.gethostname()} mcpx {os.getpid()} audit - "

    async def send(self, rows: Sequence[bytes], timeout: float) -> None:
        messages = [self._message(row) for row in rows]
        try:
            async with asyncio.timeout(timeout):
                if self._scheme == "syslog+tcp":
                    await self._send_stream(messages)
                elif self._scheme == "syslog+unix":
                    await self._send_datagrams(messages, socket.AF_UNIX, self._path)
                else:
                    await self._send_datagrams(messages, await self._family(), self._address)
        except (OSError, TimeoutError) as error:
            raise Undelivered(str(error) or "it does not answer in time") from None

    def _message(self, row: bytes) -> bytes:
        message = f"<{PRIORITY}>1 {row[_TIME].decode()} {self._head}".encode() + row.rstrip(b"\n")
        return message if self._scheme == "syslog+tcp" else message[:MAX_DATAGRAM_BYTES]

    async def _family(self) -> int:
        found = await asyncio.get_running_loop().getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
        return found[0][0]

    async def _send_datagrams(
        self, messages: Sequence[bytes], family: int, address: str | tuple[str, int]
    ) -> None:
        loop = asyncio.get_running_loop()
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as sender:
            sender.setblocking(False)
            await loop.sock_connect(sender, address)
            for message in messages:
                await loop.sock_sendall(sender, message)

    async def _send_stream(self, messages: Sequence[bytes]) -> None:
        _, writer = await asyncio.open_connection(*self._address)
        try:
            # RFC 6587, octet counting: each message begins with its length.
            writer.writelines([b"%d %b" % (len(message), message) for message in messages])
            writer.close()
            await writer.wait_closed()
        finally:
            # Without it, closing would wait for a collector that does not read.
            writer.transport.abort()
