"""The address of a store, as `server.store` or `MCPX_STORE` says it: one server, a Sentinel's
service, or a cluster.

    redis://[user:password@]host[:port][/db]      rediss:// with TLS, unix:///path for a socket
    redis+sentinel://[user:password@]host[:port],…/service[/db]
    redis+cluster://[user:password@]host[:port],…

`valkey` may stand for `redis` everywhere. Behind a `?`: `prefix` (what the keys begin with;
`mcpx`), `ca`, `cert` and `key` (files for TLS). Errors hold nothing of an address: it may have a
password in it.
"""

from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from mcpx.wire.address import BadAddress
from mcpx.wire.exchange import whole_number

Kind = Literal["one", "sentinel", "cluster", "socket"]

_SCHEMES: Final[dict[str, tuple[Kind, bool]]] = {
    "redis": ("one", False),
    "rediss": ("one", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "unix": ("socket", False),
}
_PORTS: Final[dict[Kind, int]] = {"one": 6379, "sentinel": 26379, "cluster": 6379, "socket": 0}
_OPTIONS: Final = ("prefix", "ca", "cert", "key")
_FORMS: Final = (
    "redis://host:6379/0, rediss://…, redis+sentinel://host,host/service, redis+cluster://host,host"
)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    kind: Kind
    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    db: int = 0
    service: str = ""
    """What the Sentinels call it."""
    path: str = ""
    """Of a socket."""
    user: str = ""
    password: str = field(default="", repr=False)
    prefix: str = "mcpx"
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def shown(self) -> str:
        """Where it is, without what is secret."""
        if self.kind == "socket":
            return self.path
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )


def parse(text: str) -> StoreAddress:
    """Raises BadAddress."""
    try:
        parts = urlsplit(text.strip())
        pairs = parse_qsl(parts.query, strict_parsing=bool(parts.query), max_num_fields=16)
    except ValueError:
        raise BadAddress("this is not the address of a store", _FORMS) from None
    scheme = parts.scheme.lower().replace("valkey", "redis", 1)
    if scheme not in _SCHEMES:
        raise BadAddress("a store is addressed by redis:// or one of its kin", _FORMS)
    kind, tls = _SCHEMES[scheme]
    options = dict(pairs)
    if unknown := [name for name in options if name not in _OPTIONS]:
        raise BadAddress(f"unknown option {unknown[0][:40]!r}", f"there are {', '.join(_OPTIONS)}")
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    words = [unquote(word) for word in parts.path.split("/") if word]
    if kind == "socket":
        return StoreAddress(
            kind, (), False, 0, "", unquote(parts.path), unquote(user), unquote(password), **options
        )
    service = ""
    if kind == "sentinel":
        if not words:
            raise BadAddress(
                "the service is missing",
                "redis+sentinel://host,host/SERVICE: as the Sentinels call it",
            )
        service = words.pop(0)
    if len(words) == 1 and kind != "cluster":
        db = whole_number(words[0])
    elif not words:
        db = 0
    else:
        db = None
    if db is None:
        raise BadAddress("what stands behind the host is no number of a database", _FORMS)
    hosts = tuple(_host(each, _PORTS[kind]) for each in where.split(","))
    if kind == "one" and len(hosts) != 1:
        raise BadAddress("several hosts are those of a Sentinel or a cluster", _FORMS)
    return StoreAddress(
        kind, hosts, tls, db, service, "", unquote(user), unquote(password), **options
    )


def _host(text: str, default: int) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if bracket and (not rest or rest.startswith(":")):
            port = rest.removeprefix(":")
        else:
            port = "x"
    else:
        host, _, port = text.partition(":")
    if port:
        number = whole_number(port)
    else:
        number = default
    if not host or number is None or not 0 < number < 65_536:
        raise BadAddress("the host or port is missing or wrong", _FORMS)
    return host, number
