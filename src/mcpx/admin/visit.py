"""Checks the address, Host, Origin, and fetch metadata of requests to the admin port.

A page of another site, of another port of this machine, or of a name that was pointed at this
machine (DNS rebinding) is refused on every route. Programs, which send no Origin, pass; they need
the token.
"""

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import unquote

from mcpx.admin.errors import ApiError
from mcpx.config import Admin
from mcpx.model.origin import PORTS, Origin
from mcpx.wire.exchange import Exchange, Headers

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
EVERY_ADDRESS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """The facts of a request; they stay known after its connection has closed."""

    method: str
    segments: list[str]
    """Of the path, decoded: the names of many servers contain a slash (`%2F`)."""
    query: str
    scheme: str
    address: str
    """Of the client, or empty."""
    host: str | None
    """None if the request names no host or several."""
    headers: Headers

    @classmethod
    def of(cls, exchange: Exchange) -> "AdminRequest":
        client = exchange.client or ("", 0)
        return cls(
            method=exchange.method,
            segments=[unquote(segment) for segment in exchange.path.split("/")],
            query=exchange.query,
            scheme=exchange.scheme,
            address=client[0],
            host=exchange.host,
            headers=exchange.headers,
        )

    @property
    def path(self) -> str:
        return "/".join(self.segments)

    @property
    def is_api(self) -> bool:
        return self.segments[:2] == ["", "api"]


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that passed the rules."""

    address: str
    port: int
    """The port in the client's URL: with a tunnel, it differs from the bound port."""
    secure: bool
    foreign: str | None = None
    """The origin of another web page that may use the API."""


class Rules:
    """`server.admin`: which addresses, hosts, and origins are allowed."""

    def __init__(self, host: str, admin: Admin) -> None:
        """`host` is the bound address."""
        named = {_bracketed(name.strip().lower()) for name in admin.allowed_hosts}
        self._names = {name for name in named if not name.startswith("*.")}
        self._below = tuple(name[1:] for name in named if name.startswith("*."))
        # A gateway that is bound to every address does not know its addresses. It accepts every
        # number, because no page can have a number that is not its own. Names must be configured.
        self._any_number = host in EVERY_ADDRESS
        self._hosts = {*LOOPBACK, *self._names}
        if not self._any_number:
            self._hosts.add(_bracketed(host.lower()))
        self._networks = [ip_network(text.strip(), strict=False) for text in admin.allowed_ips]
        self._foreign = {Origin.parse(text) for text in admin.cors_origins} - {None}

    def judge(self, request: AdminRequest) -> Visit:
        """Raises ApiError."""
        if self._networks and not self._lets(request.address):
            hint = "server.admin.allowed_ips"
            raise ApiError(403, "forbidden_address", "this address may not come in", hint=hint)
        name, port = self._host(request.host)
        foreign = self._origin(request, name, port)
        if foreign is None and request.is_api:
            for site in request.headers.all("sec-fetch-site"):
                if site not in ("same-origin", "none"):
                    raise ApiError(403, "cross_site", "a page of another site asked for this")
        secure = request.scheme == "https"
        return Visit(request.address, port or PORTS[request.scheme], secure, foreign)

    def _lets(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    def _host(self, given: str | None) -> tuple[str, int | None]:
        parsed = Origin.parse(f"http://{given}")
        if given is None or parsed is None:
            told = "the request needs one Host header, with a name and a port"
            raise ApiError(400, "bad_host", told)
        if not self._is_ours(parsed.host):
            hint = "if it is called so on purpose, name it in server.admin.allowed_hosts"
            told = "the admin UI is not called by that name"
            raise ApiError(403, "forbidden_host", told, hint=hint)
        port = given.rpartition("]")[2].partition(":")[2]
        return parsed.host, int(port) if port else None

    def _is_ours(self, name: str) -> bool:
        if name in self._hosts or (name.endswith(self._below) and not name.startswith(".")):
            return True
        return self._any_number and _is_number(name)

    def _origin(self, request: AdminRequest, name: str, port: int | None) -> str | None:
        """Returns the origin of another page if it is allowed, and None for the admin UI's page and
        for programs."""
        given = request.headers.all("origin")
        if not given:
            return None
        origin = Origin.parse(given[0])
        at = "" if port is None else f":{port}"
        ours = [Origin.parse(f"{request.scheme}://{name}{at}")]
        if name in self._names or name.endswith(self._below):
            ours.append(Origin.parse(f"https://{name}{at}"))  # A proxy terminates TLS.
        if origin is not None and len(given) == 1:
            if origin in ours:
                return None
            if origin in self._foreign:
                return given[0]
        hint = "pages of other sites have to be named in server.admin.cors_origins"
        raise ApiError(403, "forbidden_origin", "a page of another site asked for this", hint=hint)


def _bracketed(host: str) -> str:
    if ":" in host and not host.startswith("["):
        return f"[{host}]"
    return host


def _is_number(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
