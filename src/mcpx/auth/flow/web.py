"""Requests to authorization servers.

Promised: https, or loopback; no private address unless the MCP server itself is at one; an answer
is bounded in bytes and in time; what went wrong is said in one printable line without what we sent.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlencode

from mcpx.base.text import one_line
from mcpx.model.call import Json, as_object
from mcpx.model.errors import Unproved
from mcpx.model.redaction import without
from mcpx.wire import codec, era
from mcpx.wire.address import Address, BadAddress, parse
from mcpx.wire.fetch import Answer, Fetch, Fetcher, FetchFailed
from mcpx.wire.reach import is_public, look_up

LIMIT = 2**20
"""Bytes of an answer."""
SECONDS = 10.0
"""For one request."""
REDIRECTS = 3
"""That are followed to metadata; of what carries a secret none is."""


class Refused(Unproved):
    """The authorization server does not take what we brought. `error` as RFC 6749 names it, or
    empty."""

    def __init__(self, reason: str, error: str) -> None:
        super().__init__(reason, sign_in=True)
        self.error = error


class Web:
    def __init__(self, fetcher: Callable[[], Fetcher], server: str) -> None:
        """`server`: URL of the MCP server."""
        self._fetcher, self._server = fetcher, server
        self._at_home: bool | None = None

    async def metadata(self, url: str) -> Json | None:
        """A JSON object; None: there is none at this address. Raises `Unproved` where it cannot be
        told."""
        told = (("mcp-protocol-version", era.LATEST_MODERN),)  # 2025-03-26, 2.3.2
        answer = await self._fetch(url, headers=told, redirects=REDIRECTS)
        host = self._checked(answer.url).host
        if answer.status >= 500 or answer.status == 429:
            raise Unproved(
                f"{host} answered with HTTP {answer.status} when asked who signs people in"
            )
        return _object(answer.body) or None if answer.status == 200 else None

    async def register(self, url: str, about: Json) -> Json:
        headers = (("content-type", "application/json"),)
        answer = await self._fetch(url, "POST", headers, codec.dump(about))
        if answer.status not in (200, 201):
            raise self._refusal("the registration of mcpx", url, answer)
        return _object(answer.body)

    async def form(
        self,
        url: str,
        fields: Mapping[str, str],
        authorization: str | None,
        what: str,
        secrets: Iterable[str] = (),
    ) -> Json:
        """What a token endpoint says to this; `secrets` are not told, nor what was sent. Raises
        `Refused` for what it does not take."""
        headers = [("content-type", "application/x-www-form-urlencoded")]
        if authorization is not None:
            headers.append(("authorization", authorization))
        answer = await self._fetch(url, "POST", headers, urlencode(fields).encode())
        if answer.status not in (200, 201):
            raise self._refusal(what, url, answer, (*fields.values(), *secrets))
        return _object(answer.body)

    def _checked(self, url: str) -> Address:
        """To read, the MCP server itself may be asked as its user reaches it."""
        try:
            asked, server = parse(url), parse_server(self._server)
        except BadAddress:
            return checked(url)
        same = (asked.host, asked.port, asked.tls) == (server.host, server.port, server.tls)
        return asked if same else checked(url)

    def _refusal(
        self, what: str, url: str, answer: Answer, secrets: Iterable[str] = ()
    ) -> Unproved:
        said = _object(answer.body)
        error = said.get("error")
        error = error if isinstance(error, str) else ""
        told = said.get("error_description")
        words = [
            one_line(without(secrets, word))
            for word in (error, told)
            if isinstance(word, str) and word
        ]
        reason = f"{parse(url).host} refused {what} (HTTP {answer.status})"
        reason += f": {': '.join(words)}" if words else ""
        passing = error in ("temporarily_unavailable", "server_error", "slow_down")
        if answer.status in (400, 401, 403) and not passing:
            return Refused(reason, error)
        return Unproved(reason)

    async def _fetch(
        self,
        url: str,
        method: str = "GET",
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        redirects: int = 0,
    ) -> Answer:
        address = self._checked(url) if method == "GET" else checked(url)
        if self._at_home is None:
            self._at_home = await is_private(parse_server(self._server).host)
        request = Fetch(
            url=url,
            method=method,
            headers=(*headers, ("accept", "application/json")),
            body=body,
            timeout=SECONDS,
            limit=LIMIT,
            redirects=redirects,
            allow_private=self._at_home,
        )
        try:
            return await self._fetcher().fetch(request)
        except FetchFailed as error:
            why = (
                "it, or where it leads, is no public address, and the server is one"
                if error.forbidden
                else error
            )
            raise Unproved(f"{address.host} cannot be asked: {why}") from None
        except ValueError:
            raise Unproved(f"{address.host} cannot be asked: not a possible request") from None


def checked(url: str) -> Address:
    """An address that may be told secrets. Raises `Unproved`."""
    try:
        address = parse(url)
    except BadAddress as problem:
        raise Unproved(
            f"an address the server names for signing in is wrong: {problem.what}"
        ) from None
    if not address.tls and not is_loopback(address.host):
        raise Unproved(f"{address.host} is not reached over https; nobody signs in to it from here")
    return address


def parse_server(url: str) -> Address:
    return parse(url, ("http", "https", "ws", "wss"))


def is_loopback(host: str) -> bool:
    """By its name: what it resolves to may change."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def is_private(host: str) -> bool:
    """Whether every address of this host is one that the world cannot reach."""
    if is_loopback(host):
        return True
    try:
        return not is_public(ip_address(host))
    except ValueError:
        pass
    try:
        async with asyncio.timeout(SECONDS):
            found = await look_up(host)
    except (OSError, TimeoutError):
        return False
    return bool(found) and not any(
        is_public(ip_address(address.partition("%")[0])) for address in found
    )


def _object(body: bytes) -> Json:
    try:
        return as_object(codec.load(body))
    except codec.BadJson:
        return {}
