"""Where a server is: a URL taken apart, in the form in which it is dialled and asked for.

Promise: one reading for the check of a config and for the connection, so that what passes the one
does not fail the other in a strange way. Host names of any script become their ASCII form; what is
not ASCII in a path or a query is percent-encoded, what is encoded already stays. Everything else
that cannot be dialled is refused as `BadAddress`, in words that hold nothing of the URL: it may
have a password in it. No promise: that the host exists.

Also here: which addresses of clients count as one (`place_of`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from mcpx.wire.exchange import whole_number

PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
LONGEST_TARGET: Final = 8192
"""Characters of path and query: servers take no more."""

_UNSAFE = re.compile(r"[\s\x00-\x1f\x7f]")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_KEPT = "/?:@!$&'()*+,;=-._~%[]|^`{}\"<>\\"
"""What stays as it is in a path or query beside letters and digits: some of it should not stand
there, but servers that were reached with it are still reached."""


class BadAddress(ValueError):
    """Says what is wrong; `hint` what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}: {hint}" if hint else what)
        self.what = what
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    """In ASCII, an IPv6 address without its brackets."""
    port: int
    target: str
    """Path and query as they are asked for."""
    credentials: tuple[str, str] | None = None
    """Of a proxy; a server's URL has none."""

    @property
    def tls(self) -> bool:
        return self.scheme in ("https", "wss")

    @property
    def shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def authority(self) -> str:
        """As the header `Host` has it."""
        return (
            self.shown_host if self.port == PORTS[self.scheme] else f"{self.shown_host}:{self.port}"
        )

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse(url: str, schemes: tuple[str, ...] = ("http", "https")) -> Address:
    """Raises BadAddress."""
    parts = _split(url, schemes)
    if "@" in parts.netloc:
        raise BadAddress("a user name or password in an address", "put credentials into 'headers'")
    return Address(parts.scheme, _host(parts), _port(parts), target_of(parts))


def target_of(parts: SplitResult) -> str:
    """Path and query of a URL, fit for a request. Raises BadAddress."""
    text = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not text.startswith("/"):
        raise BadAddress("not a possible path", "it begins with /")
    try:
        target = quote(_LONE_PERCENT.sub("%25", text), safe=_KEPT)
    except UnicodeEncodeError:
        raise BadAddress("holds half a character", "a surrogate stands alone in it") from None
    if len(target) > LONGEST_TARGET:
        raise BadAddress(f"longer than {LONGEST_TARGET:,} characters")
    return target


def proxy_for(address: Address, environ: Mapping[str, str]) -> Address | None:
    """The proxy that the environment names for an address; loopback is never proxied. Raises
    BadAddress."""
    scheme = "https" if address.tls else "http"
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY")
    name = next((name for name in names if environ.get(name)), None)
    host = address.host
    if (
        name is None
        or host == "localhost"
        or host.endswith(".localhost")
        or host == "::1"
        or host.startswith("127.")
    ):
        return None
    for entry in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").lower().split(","):
        spared = entry.strip().removesuffix(f":{address.port}").lstrip(".").strip("[]")
        if spared and (spared == "*" or host == spared or host.endswith("." + spared)):
            return None
    url = environ[name].strip()
    hint = "name one by http://host:port, or this host in NO_PROXY"
    found = url.partition("://")[0].lower() if "://" in url else "http"
    if found != "http":
        kind = (
            f"a proxy reached by {found}"
            if re.fullmatch(r"[a-z0-9+.-]{1,16}", found)
            else "such a proxy"
        )
        raise BadAddress(f"{name}: {kind} is not supported", hint)
    try:
        parts = _split(url if "://" in url else f"http://{url}", ("http",))
        given = (
            None
            if parts.username is None
            else (unquote(parts.username), unquote(parts.password or ""))
        )
        return Address("http", _host(parts), _port(parts), "/", given)
    except ValueError as error:
        what = error.what if isinstance(error, BadAddress) else "not a possible address"
        raise BadAddress(f"{name}: {what}", hint) from None


def _split(url: str, schemes: tuple[str, ...]) -> SplitResult:
    if _UNSAFE.search(url):
        raise BadAddress("not a possible address", "it holds a space or a control character")
    scheme, found, rest = url.partition("://")
    if not found or scheme.lower() not in schemes:
        raise BadAddress(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    try:
        parts = urlsplit(f"{scheme.lower()}://{rest}")
    except ValueError:
        raise BadAddress(
            "not a possible address", "check the brackets and the characters of its host"
        ) from None
    return parts


def _port(parts: SplitResult) -> int:
    after = parts.netloc.rpartition("@")[2].rpartition("]")[2]
    _, colon, digits = after.partition(":")
    if not digits:
        if colon:
            raise BadAddress(
                "no port after the colon", "write one, 1 to 65535, or leave the colon out"
            )
        return PORTS[parts.scheme]
    port = whole_number(digits)
    if port is None or not 1 <= port <= 65535:
        raise BadAddress("not a possible port", "a number from 1 to 65535")
    return port


def _host(parts: SplitResult) -> str:
    netloc = parts.netloc.rpartition("@")[2]
    if netloc.startswith("["):
        inside, closed, _ = netloc[1:].partition("]")
        if "%" in inside:
            raise BadAddress(
                "an IPv6 address with a zone",
                "leave out what stands from the % on, or use a host name",
            )
        try:
            IPv6Address(inside if closed else "")
        except ValueError:
            return _no_host()
        return inside.lower()
    host = netloc.partition(":")[0]
    if not host:
        raise BadAddress("no host in the address", "it is written scheme://host:port/path")
    try:
        host = (host if host.isascii() else host.encode("idna").decode()).lower()
    except UnicodeError:
        return _no_host()
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return _no_host()
    return host


def _no_host() -> str:
    raise BadAddress(
        "not a possible host in the address",
        "a name, an IPv4 address, or an IPv6 address in brackets",
    )


def place_of(address: str) -> str:
    """What counts as one machine: of IPv6 the network, for one machine has as many addresses there
    as it likes."""
    return _network_of(address) if ":" in address else address


@lru_cache(1024)
def _network_of(address: str) -> str:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped) if found.ipv4_mapped is not None else f"{int(found) >> 64:x}"
