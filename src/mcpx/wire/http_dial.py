"""A connection for `wire.http_client`: to an origin or, through a proxy, into it.

Promise: the server's name is what TLS checks and what a proxy is told, whichever address is
dialled. No promise: a limit on the time (the caller's), several addresses tried at the same time.
"""

import asyncio
import base64
import functools
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from mcpx.wire.address import Address

if TYPE_CHECKING:
    import ssl

__all__ = ["Resolve", "Secured", "default_context", "dial", "proxy_authorization"]

UNANSWERED: Final = 2.0
"""Seconds for an address that is not the last one of a name."""


class Secured(asyncio.Protocol):
    """A protocol that makes a handshake before it connects the protocol above it."""

    __slots__ = ()

    ready: asyncio.Future[None]
    """Done after the handshake. Raises OSError if it fails."""

    def abort(self) -> None: ...


Resolve = Callable[[str, bool], Awaitable[Sequence[str]]]
"""From a host to the addresses that are dialled for it, in order; or, where a proxy dials (`True`),
whether it may. What it raises fails the request: `Forbidden` as it is. Without one the system
resolves."""


async def dial(
    to: Address,
    context: "ssl.SSLContext | None",
    proxy: Address | None,
    resolve: Resolve | None,
    protocol: asyncio.Protocol,
) -> None:
    """Connect the protocol. Raises OSError, ValueError."""
    loop = asyncio.get_running_loop()
    name = to.host if context is not None else None
    found = () if resolve is None else await resolve(to.host, proxy is not None)
    if proxy is None and resolve is None:
        await loop.create_connection(
            lambda: protocol, to.host, to.port, ssl=context, server_hostname=name
        )
    elif proxy is None:
        reached = await _first(found, to.port)
        await loop.create_connection(
            lambda: protocol, sock=reached, ssl=context, server_hostname=name
        )
    elif context is None:
        await loop.create_connection(lambda: protocol, proxy.host, proxy.port)
    else:
        await _dial_through(proxy, to, context, protocol)


async def _first(addresses: Sequence[str], port: int) -> socket.socket:
    """The first that answers, one after the other. Only the last has all of the time that is
    left."""
    loop = asyncio.get_running_loop()
    for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        reached = None
        try:
            reached = socket.socket(
                socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
            )
            reached.setblocking(False)
            async with asyncio.timeout(UNANSWERED if left else None):
                await loop.sock_connect(reached, (address, port))
            return reached
        except BaseException as error:
            if reached is not None:
                reached.close()
            if not left or not isinstance(error, OSError):  # TimeoutError is one
                raise
    raise OSError("the name has no address")


async def _dial_through(
    proxy: Address, to: Address, context: "ssl.SSLContext", protocol: asyncio.Protocol
) -> None:
    loop = asyncio.get_running_loop()
    transport, tunnel = await loop.create_connection(_Tunnel, proxy.host, proxy.port)
    try:
        line = f"CONNECT {to.shown_host}:{to.port} HTTP/1.1\r\nhost: {to.shown_host}:{to.port}\r\n"
        transport.write(line.encode() + proxy_authorization(proxy) + b"\r\n")
        await tunnel.open
        secure = await loop.start_tls(transport, protocol, context, server_hostname=to.host)
    except BaseException:
        transport.abort()
        raise
    if secure is None:
        raise ConnectionError("the connection was lost while TLS was being set up")
    protocol.connection_made(secure)


class _Tunnel(asyncio.Protocol):
    """Waits for a proxy's answer to CONNECT."""

    def __init__(self) -> None:
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        if self.open.done():
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            status = self._head.split(b" ", 2)[1:2]
            if self._head.startswith(b"HTTP/1.") and status and status[0][:1] == b"2":
                self.open.set_result(None)
            else:
                line = self._head.partition(b"\r\n")[0][:100].decode("latin-1")
                self.open.set_exception(ConnectionError(f"the proxy answered {line!r}"))
        elif len(self._head) > 8192:
            self.open.set_exception(ConnectionError("the proxy does not speak HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.open.done():
            self.open.set_exception(ConnectionError("the proxy closed the connection"))


@functools.cache
def default_context() -> "ssl.SSLContext":
    """One for the process: loading the certificates takes some 20 ms. From the system, or
    SSL_CERT_FILE."""
    import ssl

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def proxy_authorization(proxy: Address) -> bytes:
    if proxy.credentials is None:
        return b""
    return b"proxy-authorization: Basic %b\r\n" % base64.b64encode(
        ":".join(proxy.credentials).encode()
    )
