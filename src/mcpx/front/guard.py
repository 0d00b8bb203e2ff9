"""Where a request may come from and whom it may call: Host and Origin against rebinding, the word
of proxies."""

import re
from collections.abc import Iterable
from typing import Final

from mcpx.front.proxies import Arrival, Proxies
from mcpx.model.origin import PORTS, Origin
from mcpx.wire.exchange import Exchange, Headers, whole_number

LONGEST_HOST = 255
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
EVERY_ADDRESS: Final = ("0.0.0.0", "::", "")
_PLAIN: Final = re.compile(
    r"(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII
)


class Guard:
    def __init__(
        self,
        host: str,
        itself: str = "",
        allowed_origins: Iterable[str] = (),
        allowed_hosts: Iterable[str] = (),
        trusted_proxies: Iterable[str] = (),
    ) -> None:
        """`host` is the address bound to; `itself` is what marks requests that this gateway sent;
        `allowed_origins` are of pages beside our own, `allowed_hosts` our names beside that
        address."""
        self._itself = itself
        named = [name.strip().lower() for name in allowed_hosts]
        everywhere = host in EVERY_ADDRESS
        # Bound to every address we cannot know our names, unless we are told; a token is required
        # there (the app sees to it).
        self._any_host = everywhere and not named
        self._names = {_bracketed(name) for name in named if not name.startswith("*.")}
        self._below = tuple(name[1:] for name in named if name.startswith("*."))
        bound = {_bracketed(host.lower())} - {""}
        self._hosts = {*LOOPBACK, *bound, *self._names}
        if bound.intersection(LOOPBACK):
            local = LOOPBACK
        else:
            local = ()
        self._own = {*self._names, *(() if everywhere else bound), *local}
        self._met: str | None = None
        """The last host that was allowed: nearly always the next one too."""
        self._origins = {Origin.parse(text) for text in allowed_origins} - {None}
        self._proxies = Proxies(trusted_proxies)
        self.proxied = bool(self._proxies)
        """Whether anybody's word on where a request came from is taken."""

    def arrival(self, exchange: Exchange) -> Arrival:
        """What a trusted proxy says of a request."""
        return self._proxies.arrival(exchange)

    def host_allowed(self, exchange: Exchange, arrival: Arrival | None = None) -> bool:
        host = exchange.host
        if host is None:
            return False
        if host != self._met:
            if not self._may_be_called(host):
                return False
            if len(host) <= LONGEST_HOST:
                self._met = host
        # A page that was rebound to a proxy's address could say what it likes in a header: both
        # names must be ours.
        return arrival is None or arrival.host is None or self._may_be_called(arrival.host)

    def _may_be_called(self, host: str) -> bool:
        if self._any_host:
            return True
        name = _name(host)
        return name in self._hosts or self._is_below(name)

    @staticmethod
    def names_nobody(exchange: Exchange) -> bool:
        """Whether it says no host at all (HTTP/1.0), as the checks of load balancers do, and no
        browser."""
        return "host" not in exchange.headers and exchange.host is None

    def _is_below(self, name: str) -> bool:
        return name.endswith(self._below) and not name.startswith(".")

    def origin_allowed(self, exchange: Exchange, arrival: Arrival | None = None) -> bool:
        """A browser always says where a page came from; programs do not, and need not. Other pages
        of this machine are strangers too: a page is ours by its port and scheme."""
        origins = exchange.headers.all("origin")
        if not origins:
            return True
        if len(origins) == 1:
            origin = Origin.parse(origins[0])
        else:
            origin = None
        if origin is None:
            return False
        return origin in self._origins or self._is_ours(origin, exchange, arrival)

    def _is_ours(self, origin: Origin, exchange: Exchange, arrival: Arrival | None) -> bool:
        if arrival is not None and (arrival.host is not None or arrival.scheme is not None):
            return origin == Origin.parse(
                f"{arrival.scheme or exchange.scheme}://{arrival.host or exchange.host}"
            )
        if exchange.server is None or (origin.scheme, origin.port) != (
            exchange.scheme,
            exchange.server[1],
        ):
            return False
        if origin.host in self._hosts or self._is_below(origin.host):
            return True
        return self._any_host and origin.host == _name(exchange.host or "")

    def is_ourselves(self, headers: Headers) -> bool:
        """Whether a request came from this very gateway, which found its own address in its
        configuration."""
        via = headers.get("mcpx-via") if self._itself else None
        if via is None:
            return False
        return self._itself in [id.strip() for id in via.split(",")]

    def called(self, exchange: Exchange, arrival: Arrival | None) -> str | None:
        """Scheme and host by which the client calls us; None where it is nothing that could be told
        on."""
        host, scheme = exchange.host or "", exchange.scheme
        if arrival is not None:
            host, scheme = arrival.host or host, arrival.scheme or scheme
        if _PLAIN.fullmatch(host):
            return f"{scheme}://{host.lower()}"
        return None

    def origins(self, exchange: Exchange) -> list[str]:
        """Those that are ours whatever a request says: a token that is meant for one of them is
        meant for us. Of a name that the configuration has, also the one at which a proxy takes
        requests for us."""
        if exchange.server is not None:
            port = exchange.server[1]
        else:
            port = 0
        own = [f"{exchange.scheme}://{name}:{port}" for name in self._own]
        if port == PORTS[exchange.scheme or "http"]:
            own += [f"{exchange.scheme}://{name}" for name in self._own]
        return [*own, *[f"https://{name}" for name in self._names]]


def _bracketed(host: str) -> str:
    if ":" in host and not host.startswith("["):
        return f"[{host}]"
    return host


def _name(host: str) -> str:
    """The host without its port, lower case; an IPv6 address keeps its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        if rest == "" or (rest.startswith(":") and whole_number(rest[1:]) is not None):
            return name + bracket
        return ""
    name, colon, port = host.partition(":")
    if not colon or whole_number(port) is not None:
        return name
    return ""
