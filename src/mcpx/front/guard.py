"""Who may talk to us over the network: Host and Origin against rebinding, bearer tokens where they are configured."""

import hmac
from collections.abc import Iterable, Mapping

from mcpx.model.origin import Origin
from mcpx.wire.exchange import Exchange, Headers, whole_number

LONGEST_HOST = 255
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    def __init__(
        self, host: str, tokens: Mapping[str, str], itself: str = "", allowed_origins: Iterable[str] = ()
    ) -> None:
        """`host` is the address bound to; `tokens` are name -> token, empty when anyone on the host may come in;
        `itself` is what marks requests that this gateway sent; `allowed_origins` are of pages beside our own."""
        self._itself = itself
        self._tokens = {name: token.encode() for name, token in tokens.items()}
        bound = f"[{host}]" if ":" in host else host
        # Bound to every address we cannot know our names; a token is required there (the app sees to it).
        self._any_host = host in ("0.0.0.0", "::", "")
        self._hosts = {*LOOPBACK, bound.lower()}
        self._met: str | None = None
        """The last host that was allowed: nearly always the next one too."""
        self._origins = {Origin.parse(text) for text in allowed_origins} - {None}

    def host_allowed(self, exchange: Exchange) -> bool:
        host = exchange.host
        if host is None:
            return False
        if host == self._met:
            return True
        allowed = self._any_host or _name(host) in self._hosts
        if allowed and len(host) <= LONGEST_HOST:
            self._met = host
        return allowed

    def origin_allowed(self, exchange: Exchange) -> bool:
        """A browser always says where a page came from; programs do not, and need not. Other pages of this machine
        are strangers too: a page is ours by its port and scheme."""
        origins = exchange.headers.all("origin")
        if not origins:
            return True
        origin = Origin.parse(origins[0]) if len(origins) == 1 else None
        if origin is None:
            return False
        return origin in self._origins or self._is_ours(origin, exchange)

    def _is_ours(self, origin: Origin, exchange: Exchange) -> bool:
        if exchange.server is None or (origin.scheme, origin.port) != (exchange.scheme, exchange.server[1]):
            return False
        return origin.host in self._hosts or (self._any_host and origin.host == _name(exchange.host or ""))

    def is_ourselves(self, headers: Headers) -> bool:
        """Whether a request came from this very gateway, which found its own address in its configuration."""
        passed = (headers.get("mcpx-via") or "").split(",") if self._itself else ()
        return self._itself in [id.strip() for id in passed]

    def principal(self, headers: Headers) -> str | None:
        """Who this is; None for a stranger where tokens are asked for."""
        if not self._tokens:
            return "anonymous"
        given = headers.all("authorization")
        if len(given) != 1 or given[0][:7].lower() != "bearer ":
            return None
        token = given[0][7:].strip(" \t").encode("latin-1")  # as it was decoded: the bytes that came
        found: str | None = None
        for name, expected in self._tokens.items():  # all of them, so that time tells nothing
            if hmac.compare_digest(token, expected):
                found = name
        return found


def _name(host: str) -> str:
    """The host without its port, lower case; an IPv6 address keeps its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        return name + bracket if rest == "" or (rest.startswith(":") and whole_number(rest[1:]) is not None) else ""
    name, colon, port = host.partition(":")
    return name if not colon or whole_number(port) is not None else ""
