"""Whom an MCP server trusts to sign people in, and where that authorization server takes what.

Promised: the resource named is this server (RFC 9728, 3.3), the issuer named is the one that was
asked (RFC 8414, 3.3); every address passed `web.checked`. A server without any metadata is taken as
one of 2025-03-26: everything at its own origin.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from mcpx.auth.flow.challenge import Challenge
from mcpx.auth.flow.web import Web, checked, parse_server
from mcpx.base.text import one_line
from mcpx.model.call import Json, as_list
from mcpx.model.errors import Unproved

RESOURCE = "/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
MOST = 256
"""Entries of a list that are looked at."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorization server."""

    issuer: str
    authorize: str
    token: str
    register: str | None = None
    revoke: str | None = None
    scopes: tuple[str, ...] = ()
    methods: tuple[str, ...] | None = None
    """How a client may prove itself at `token`; None: not said."""
    documents: bool = False
    """Takes the address of a document about the client for its id."""
    says_iss: bool = False
    """Says in the redirect who it is (RFC 9207)."""


@dataclass(frozen=True, slots=True)
class Found:
    issuer: Issuer
    resource: str
    """What tokens are asked for (RFC 8707), letter by letter as it is published."""
    scopes: tuple[str, ...] | None
    """Those of the resource; None: not said."""


async def discover(web: Web, server: str, challenge: Challenge) -> Found:
    """Raises `Unproved`."""
    url = _as_http(server)
    about = await _resource_metadata(web, url, challenge.resource_metadata)
    if about is None:
        return Found(await _older(web, url), _without_fragment(url), None)
    resource = str(about["resource"])
    scopes = _texts(about.get("scopes_supported")) if "scopes_supported" in about else None
    trusted = _texts(about.get("authorization_servers"))
    issuer = await _issuer(web, trusted[0]) if trusted else await _older(web, url)
    return Found(issuer, resource, scopes)


async def _resource_metadata(web: Web, url: str, told: str | None) -> Json | None:
    """The metadata of a protected resource (RFC 9728). `told` is the address in the server's
    challenge."""
    for place in _resource_places(url, told):
        about = await web.metadata(place)
        if about is None or not isinstance(about.get("resource"), str):
            continue
        if not _covers(about["resource"], url):
            raise Unproved(f"its metadata are of another resource: {one_line(about['resource'])}")
        return about
    return None


async def find_issuer(web: Web, server: str) -> tuple[str, str]:
    """The issuer that an MCP server names, and the resource that tokens are requested for. Without
    metadata, the issuer is the server's origin (2025-03-26). Raises `Unproved`."""
    url = _as_http(server)
    about = await _resource_metadata(web, url, None)
    if about is None:
        return _origin(url), _without_fragment(url)
    named = _texts(about.get("authorization_servers"))
    return named[0] if named else _origin(url), about["resource"]


async def find_token_url(web: Web, issuer: str) -> str:
    """The token endpoint in the metadata of an issuer (RFC 8414). Raises `Unproved`."""
    host = checked(issuer).host
    for place in issuer_places(issuer):
        about = await web.metadata(place)
        if about is None or "issuer" not in about:
            continue
        if not isinstance(about["issuer"], str) or not same_issuer(about["issuer"], issuer):
            raise Unproved(
                f"{host} publishes metadata of another issuer: {one_line(str(about['issuer']))}"
            )
        endpoint = _endpoint(about, "token_endpoint")
        if endpoint is None:
            raise Unproved(f"the metadata of {host} name no token endpoint")
        return endpoint
    raise Unproved(f"{host} publishes no metadata of an authorization server")


def same_issuer(one: str, other: str) -> bool:
    """Letter by letter; only at the root of a host an ending slash makes no difference."""
    if one == other:
        return True
    shorter, longer = sorted((one, other), key=len)
    return longer == f"{shorter}/" and urlsplit(shorter).path == ""


async def _issuer(web: Web, issuer: str) -> Issuer:
    for place in issuer_places(issuer):
        about = await web.metadata(place)
        if about is not None and "issuer" in about:
            return _read(about, issuer)
    raise Unproved(f"{checked(issuer).host}, which signs people in, publishes no metadata")


async def _older(web: Web, url: str) -> Issuer:
    """2025-03-26: the server's own origin, with metadata or without."""
    origin = _origin(url)
    about = await web.metadata(origin + OAUTH)
    if about is not None and "issuer" in about:
        issuer = about["issuer"]
        # Nobody named an issuer, and that revision knew no path of it: whatever one the origin has
        # is its own.
        return _read(
            about, issuer if isinstance(issuer, str) and _is_at(issuer, origin) else origin
        )
    checked(origin)
    return Issuer(origin, f"{origin}/authorize", f"{origin}/token", f"{origin}/register")


def _read(about: Json, expected: str) -> Issuer:
    issuer = about["issuer"]
    if not isinstance(issuer, str) or not same_issuer(issuer, expected):
        raise Unproved(
            f"{checked(expected).host} publishes metadata of another issuer: "
            f"{one_line(str(issuer))}"
        )
    challenges = about.get("code_challenge_methods_supported")
    if challenges is not None and "S256" not in _texts(challenges):
        raise Unproved(
            f"{checked(expected).host} does not support PKCE with S256, which a safe sign-in needs"
        )
    methods = about.get("token_endpoint_auth_methods_supported")
    authorize, token = (
        _endpoint(about, "authorization_endpoint"),
        _endpoint(about, "token_endpoint"),
    )
    if authorize is None or token is None:
        raise Unproved(
            f"{checked(expected).host} does not say where people sign in and tokens are issued"
        )
    return Issuer(
        issuer,
        authorize,
        token,
        _endpoint(about, "registration_endpoint"),
        _endpoint(about, "revocation_endpoint"),
        _texts(about.get("scopes_supported")),
        None if methods is None else _texts(methods),
        about.get("client_id_metadata_document_supported") is True,
        about.get("authorization_response_iss_parameter_supported") is True,
    )


def _endpoint(about: Json, name: str) -> str | None:
    url = about.get(name)
    if not isinstance(url, str) or not url:
        return None
    address = checked(url)
    return (
        url.partition("#")[0] if url.isascii() else address.url
    )  # which goes to people's terminals


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in as_list(value)[:MOST] if isinstance(text, str) and text)


# Addresses
# --------------------------------------------------------------------------------------------------


def _as_http(server: str) -> str:
    """The resource of a WebSocket is the same as over HTTP."""
    scheme, _, rest = server.partition("://")
    return (
        f"{scheme.lower().replace('ws', 'http', 1)}://{rest}"
        if scheme.lower() in ("ws", "wss")
        else server
    )


def _origin(url: str) -> str:
    address = parse_server(url)
    return f"{address.scheme}://{address.authority}"


def _is_at(url: str, origin: str) -> bool:
    try:
        return _origin(url) == origin
    except ValueError:
        return False


def _without_fragment(url: str) -> str:
    """The canonical address of a server: scheme and host in lower case, no fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.lower(), fragment="").geturl()


def _covers(resource: str, url: str) -> bool:
    """Whether a resource is this server, or what it is part of."""
    if not _is_at(resource, _origin(url)):
        return False
    parts = urlsplit(resource)
    if parts.fragment or (parts.query and parts.query != urlsplit(url).query):
        return False
    return f"{urlsplit(url).path.rstrip('/')}/".startswith(f"{parts.path.rstrip('/')}/")


def _resource_places(url: str, told: str | None) -> Iterator[str]:
    if told:
        yield told
    path = urlsplit(url).path.rstrip("/")
    if path:
        yield f"{_origin(url)}{RESOURCE}{path}"
    yield _origin(url) + RESOURCE


def issuer_places(issuer: str) -> Iterator[str]:
    checked(issuer)
    origin, path = _origin(issuer), urlsplit(issuer).path.rstrip("/")
    yield f"{origin}{OAUTH}{path}"
    yield f"{origin}{OPENID}{path}"
    if path:
        yield f"{origin}{path}{OPENID}"
