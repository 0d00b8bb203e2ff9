"""What a reverse proxy says of the client behind it: taken of those that are trusted, ignored of
anybody else.

Of a chain of addresses the last counts that is not a trusted proxy's own: all before it is what
somebody claimed. `X-Forwarded-*` and `Forwarded` are two ways to say the same; a proxy sets one of
them, and may pass on what a client wrote into the other. Where both are there and do not agree,
neither is believed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from mcpx.wire.exchange import Exchange, Headers

MOST: Final = 64
"""Hops that are looked at."""
_PAIR: Final = re.compile(r"\s*([A-Za-z]+)=(?:\"([^\"]*)\"|([^\s\";,]*))\s*")


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where a request came from, and by which name and scheme we were called; None: as the
    connection says."""

    address: str
    scheme: str | None = None
    host: str | None = None


def network(text: str) -> IPv4Network | IPv6Network:
    """An address or a network as a configuration names it. Raises ValueError."""
    return ip_network(text.strip(), strict=False)


class Proxies:
    def __init__(self, trusted: Iterable[str]) -> None:
        self._networks = [network(text) for text in trusted]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def arrival(self, exchange: Exchange) -> Arrival:
        if exchange.client:
            address = exchange.client[0]
        else:
            address = ""
        if not self._trusts(_address(address)):
            return Arrival(address)
        headers = exchange.headers
        listed = [hop.strip() for line in headers.all("x-forwarded-for") for hop in line.split(",")]
        standard = _forwarded(headers)
        if listed:
            one = self._client(address, listed)
        else:
            one = None
        if standard:
            other = self._client(address, [pairs.get("for", "") for pairs in standard])
        else:
            other = None
        if one is not None and other is not None and one != other:
            return Arrival(address)
        scheme, host = _last(headers, "x-forwarded-proto"), _last(headers, "x-forwarded-host")
        if standard and not listed:
            scheme, host = scheme or standard[-1].get("proto"), host or standard[-1].get("host")
        if scheme is not None and (scheme := scheme.lower()) not in ("http", "https"):
            scheme = None
        return Arrival(one or other or address, scheme, host or None)

    def _client(self, address: str, hops: list[str]) -> str:
        """The last hop that is no proxy of ours."""
        for text in reversed(hops[-MOST:]):
            found = _address(text)
            if (
                found is None
            ):  # "unknown", or a name that somebody made up: nothing before it counts
                return address
            address = str(found)
            if not self._trusts(found):
                return address
        return address

    def _trusts(self, address: IPv4Address | IPv6Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def address_of(exchange: Exchange, arrival: Arrival | None) -> str:
    """Of the client's machine, by the word of a proxy that is trusted."""
    if arrival is not None:
        return arrival.address
    client = exchange.client
    if client is not None:
        return client[0]
    return ""


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address as proxies write it: with a port or without, IPv6 in brackets or not."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, IPv6Address):
        mapped = found.ipv4_mapped
    else:
        mapped = None
    return mapped or found


def _forwarded(headers: Headers) -> list[dict[str, str]]:
    """The elements of `Forwarded` (RFC 7239), the nearest proxy's last; what cannot be read ends
    the reading."""
    elements: list[dict[str, str]] = []
    for line in headers.all("forwarded"):
        pairs: dict[str, str] = {}
        position = 0
        while found := _PAIR.match(line, position):
            pairs.setdefault(found[1].lower(), found[2] if found[2] is not None else found[3])
            position = found.end()
            separator = line[position : position + 1]
            position += 1
            if separator == ",":
                elements.append(pairs)
                pairs = {}
            elif separator != ";":
                if separator:
                    pairs = {}
                else:
                    pairs = pairs
                break
        elements.append(pairs if position >= len(line) else {})
    return elements


def _last(headers: Headers, name: str) -> str | None:
    """What the nearest proxy said."""
    given = headers.all(name)
    if given:
        return given[-1].rpartition(",")[2].strip() or None
    return None
