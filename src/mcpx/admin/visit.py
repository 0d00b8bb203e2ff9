"""Where a request to the admin API comes from and whom it calls: addresses, Host, Origin, what
browsers say of pages.

Promise: a page of another site, of another port of this machine, or of a name that was pointed at
this machine (DNS rebinding) gets no answer but a refusal, on every route, whatever it sends along.
Programs, which send no Origin, are not judged here; they need the token.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.types import Scope

from mcpx.admin.errors import ApiError
from mcpx.config import Admin
from mcpx.model.origin import PORTS, Origin

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
EVERY_ADDRESS = ("0.0.0.0", "::")
PREFLIGHT = (b"access-control-request-method", b"access-control-request-headers")


def values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that may be heard further."""

    address: str
    port: int
    """By which the caller knows us: a tunnel may have another one than we listen on."""
    secure: bool
    foreign: str | None = None
    """The origin of another web page that may use the API."""


class Rules:
    """What `server.admin` says of who may come."""

    def __init__(self, host: str, admin: Admin) -> None:
        """`host` is the address bound to."""
        named = {_bracketed(name.strip().lower()) for name in admin.allowed_hosts}
        self._names = {name for name in named if not name.startswith("*.")}
        self._below = tuple(name[1:] for name in named if name.startswith("*."))
        own = () if host in EVERY_ADDRESS else (_bracketed(host.lower()),)
        self._hosts = {*LOOPBACK, *own, *self._names}
        # Bound to every address we cannot know our addresses: numbers are let pass then, for no
        # page can be at a number that is not its own. Names have to be told.
        self._any_number = host in EVERY_ADDRESS
        self._networks = [ip_network(text.strip(), strict=False) for text in admin.allowed_ips]
        self._foreign = {Origin.parse(text) for text in admin.cors_origins} - {None}

    def judge(self, scope: Scope) -> Visit:
        """Raises ApiError for what is not to be heard."""
        address = scope["client"][0] if scope.get("client") else ""
        if self._networks and not self._lets(address):
            raise ApiError(
                403,
                "forbidden_address",
                "this address may not come in",
                hint="server.admin.allowed_ips",
            )
        host = self._host(values(scope, b"host"))
        secure = scope["scheme"] == "https"
        name, port = host
        foreign = self._origin(values(scope, b"origin"), scope["scheme"], name, port)
        if foreign is None and _is_api(scope):
            for said in values(scope, b"sec-fetch-site"):
                if said not in (b"same-origin", b"none"):
                    raise ApiError(403, "cross_site", "a page of another site asked for this")
        return Visit(address, port or PORTS[scope["scheme"]], secure, foreign)

    def _lets(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    def _host(self, given: Iterable[bytes]) -> tuple[str, int | None]:
        texts = [text.decode("latin-1") for text in given]
        parsed = Origin.parse(f"http://{texts[0]}") if len(texts) == 1 else None
        if parsed is None:
            raise ApiError(
                400, "bad_host", "the request needs one Host header, with a name and a port"
            )
        if not self._is_ours(parsed.host):
            hint = "if it is called so on purpose, name it in server.admin.allowed_hosts"
            raise ApiError(
                403, "forbidden_host", "the admin UI is not called by that name", hint=hint
            )
        named = (
            texts[0].rpartition("]")[2].rpartition(":")[2]
            if ":" in texts[0].rpartition("]")[2]
            else ""
        )
        return parsed.host, int(named) if named else None

    def _is_ours(self, name: str) -> bool:
        if name in self._hosts or (name.endswith(self._below) and not name.startswith(".")):
            return True
        return self._any_number and _is_number(name)

    def _origin(self, given: list[bytes], scheme: str, name: str, port: int | None) -> str | None:
        """None: there is none, or the page is ours. Else another page's, that is let."""
        if not given:
            return None
        text = given[0].decode("latin-1")
        origin = Origin.parse(text) if len(given) == 1 else None
        at = "" if port is None else f":{port}"
        ours = [Origin.parse(f"{scheme}://{name}{at}")]
        if name in self._names or name.endswith(self._below):
            ours.append(Origin.parse(f"https://{name}{at}"))  # a proxy before us speaks TLS
        if origin is not None and origin in ours:
            return None
        if origin is not None and origin in self._foreign:
            return text
        hint = "pages of other sites have to be named in server.admin.cors_origins"
        raise ApiError(403, "forbidden_origin", "a page of another site asked for this", hint=hint)


def _is_api(scope: Scope) -> bool:
    return scope["path"].startswith("/api")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_number(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
