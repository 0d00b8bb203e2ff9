"""Which addresses may be reached on behalf of somebody who does not decide it: the public ones.

Promise: a `Guard` gives the addresses that a host has and that are public, and what it gives is
what is dialled: an answer of the name system that changes a moment later changes nothing.
Everything that is not plainly somewhere on the internet is refused: loopback, private, link-local,
shared (CGNAT), metadata of clouds, multicast, reserved, documentation, and all of these dressed up
as IPv6; so are numbers that one program reads as another address than the next does (`0177.0.0.1`,
`127.1`, `2130706433`). No promise: that a public address is not a machine of one's own network;
that a proxy, which asks the name system itself, gets the answer that was looked at here.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from mcpx.base.aio import Tasks
from mcpx.wire.http_reply import Forbidden

__all__ = ["Forbidden", "Guard", "is_public"]

MOST_TRIED: Final = 6
"""Addresses of one name."""

_CLOSED_4: Final = tuple(
    (int(network.network_address), int(network.netmask))
    for network in map(
        IPv4Network,
        (
            *(
                "0.0.0.0/8",
                "10.0.0.0/8",
                "100.64.0.0/10",
                "127.0.0.0/8",
                "169.254.0.0/16",
                "172.16.0.0/12",
            ),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",  # Azure's own machine, reached from inside only
        ),
    )
)
_OPEN_6: Final = IPv6Network("2000::/3")
_CLOSED_6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_6TO4: Final = IPv6Network("2002::/16")

_HOME: Final = frozenset(
    ("localhost", "local", "internal", "localdomain", "lan", "home", "corp", "intranet")
)
"""Last labels that no public name has, whatever a resolver makes of them."""
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        number = int(address)
        return not any(number & mask == network for network, mask in _CLOSED_4)
    if address in _MAPPED or address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    if address in _6TO4:
        return is_public(IPv4Address(int(address) >> 80 & 0xFFFFFFFF))
    return address in _OPEN_6 and not any(address in network for network in _CLOSED_6)


async def look_up(host: str) -> list[str]:
    """The addresses of a name. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Guard:
    """For `Pool(resolve=…)`."""

    def __init__(
        self,
        look_up: Callable[[str], Awaitable[list[str]]] = look_up,
        may: Callable[[IPv4Address | IPv6Address], bool] = is_public,
    ) -> None:
        self._look_up = look_up
        self._may = may
        self._tasks = Tasks("names")
        self._asked: dict[str, asyncio.Task[list[str]]] = {}

    async def close(self) -> None:
        await self._tasks.close()

    async def __call__(self, host: str, proxied: bool) -> list[str]:
        """The addresses to dial. `proxied`: somebody else resolves the name, so it must not be
        private at all; if it is not known here, that is all that can be said. Raises Forbidden, or
        OSError if the name is not known."""
        name = host.removesuffix(".")
        last = name.rpartition(".")[2]
        if ":" in name or _NUMBER.fullmatch(last):
            return [self._literal(host, name)]
        if last in _HOME or name.endswith(".home.arpa"):
            raise _forbidden(host)
        try:
            found = await self._find(host)
        except OSError:
            if not proxied:
                raise
            if "." not in name:
                raise _forbidden(host) from None  # known to a network, not to the world
            return []
        public = [address for address in found if self._allows(address)]
        if len(public) < len(found) and (proxied or not public):
            raise _forbidden(host)
        return public[:MOST_TRIED]

    async def _find(self, host: str) -> list[str]:
        """The system asks for few names at a time, so all who want the same one ask once: one that
        is not answered must not keep the others waiting."""
        asked = self._asked.get(host)
        if asked is None:
            asked = self._asked[host] = self._tasks.start(self._ask(host), awaited=True)
        return await asyncio.shield(asked)

    async def _ask(self, host: str) -> list[str]:
        try:
            return await self._look_up(host)
        finally:
            self._asked.pop(host, None)

    def _literal(self, host: str, name: str) -> str:
        try:
            address = ip_address(name)
        except ValueError:
            raise Forbidden(
                f"{host} is an IP address in an unusual form: write it as four decimal numbers"
            ) from None
        if not self._may(address):
            raise _forbidden(host)
        return str(address)

    def _allows(self, text: str) -> bool:
        try:
            return self._may(ip_address(text.partition("%")[0]))
        except ValueError:
            return False


def _forbidden(host: str) -> Forbidden:
    return Forbidden(
        f"{host} is at an address that is not public (this machine, its network, or a cloud's "
        "metadata), which is not "
        "reached unless 'allow_private: true' is set"
    )
