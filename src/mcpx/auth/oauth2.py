"""OAuth 2 client credentials: a token that is fetched, kept and renewed.

Promised: one request for a token at a time, however many wait for it (`once`). A token is renewed a
little before it expires, beside the calls, which go on with the old one while that is valid. One
that a server refuses is renewed once for all who used it; a server that refuses whatever it is
given does not make us ask for tokens all the time. The secret stands in no error. It goes to
`token_url`, to the token endpoint of `issuer`, or, if neither is set, to a token endpoint on the
host of the MCP server itself. A server cannot direct it to another host.
"""

import asyncio
import base64
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote_plus, urlencode

from mcpx.auth.credentials import Credentials, Proof, Purpose, Refusal
from mcpx.auth.renewal import LONGEST_PAUSE, Failed, Renewal
from mcpx.base.text import one_line
from mcpx.model.call import Json, as_object
from mcpx.model.errors import Unproved
from mcpx.model.kinds import Mistake, NonEmpty
from mcpx.model.redaction import without
from mcpx.wire import codec
from mcpx.wire.address import parse
from mcpx.wire.exchange import retry_after, whole_number
from mcpx.wire.fetch import Answer, Fetch, FetchFailed
from mcpx.wire.fields import url_mistakes

if TYPE_CHECKING:
    from mcpx.auth.shared import Place

TIMEOUT = 10.0
"""Seconds a token server has for its answer."""
LARGEST_ANSWER = 2**20
LONGEST_TOKEN = 64 * 2**10
MARGIN = 60.0
"""Seconds before the end of a token in which it is renewed; a tenth of its life, if that is
less."""
LONGEST_WISH = 300.0
"""Seconds of a token server's `Retry-After` that are believed."""
SHORTEST_LIFE = 1.0
"""Seconds for which a token is used, however soon it is said to end: else every call would ask for
one."""
LONGEST_LIFE = 1e12
"""Seconds: what is longer is for ever all the same."""
OURS = ("grant_type", "client_id", "client_secret", "scope")

Style = Literal["basic", "post"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """Client credentials; the token is fetched, kept and renewed."""

    type: ClassVar[str] = "oauth2"

    client_id: str
    """Client id."""
    client_secret: NonEmpty = field(repr=False)
    """Client secret."""
    token_url: str | None = None
    """Where tokens are issued; redirects are not followed, since they would carry the secret
    elsewhere. Absent: taken from the metadata of `issuer`."""
    issuer: str | None = None
    """The authorization server, whose metadata name the token address. Absent as well: the one that
    the MCP server names, if it is on the host of the MCP server."""
    scope: str = ""
    """Scopes asked for, separated by spaces."""
    client_auth: Literal["basic", "post"] | None = None
    """How the secret is shown: HTTP Basic, or in the form; absent: the first, and the other if that
    is refused."""
    params: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Further fields of the request for a token, as `audience` or `resource`."""

    def mistakes(self) -> Iterator[Mistake]:
        for key, url in (("token_url", self.token_url), ("issuer", self.issuer)):
            if url is not None:
                yield from url_mistakes(url, key)
        if self.token_url is not None and self.issuer is not None:
            yield Mistake(
                "'issuer' has no effect beside 'token_url'",
                ("issuer",),
                "remove one of the two keys",
                "key",
            )
        for name in OURS:
            if name in self.params:
                yield Mistake(f"'{name}' is set by mcpx", ("params", name), "leave it out", "key")

    @property
    def per_server(self) -> bool:
        """Whether the token address depends on the server."""
        return self.token_url is None and self.issuer is None

    def credentials(self, purpose: Purpose) -> Credentials:
        return ClientCredentials(self, purpose)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """Where tokens are requested."""

    url: str
    resource: str | None = None
    """The resource to request tokens for (RFC 8707), if the server names it."""

    @property
    def host(self) -> str:
        return parse(self.url).authority


@dataclass(frozen=True, slots=True, eq=False)
class _Token:
    proof: Proof
    since: float
    renew: float
    end: float
    value: str = field(repr=False)


class ClientCredentials:
    def __init__(self, spec: OAuth2, purpose: Purpose) -> None:
        self._place: Place | None = None
        """Where other replicas find the token."""
        self._unwanted: Proof | None = None
        """What was refused last."""
        self._spec = spec
        self._purpose = purpose
        self._name = "client credentials" if spec.per_server else f"auth config '{purpose.name}'"
        self._endpoint = None if spec.token_url is None else _Endpoint(spec.token_url)
        """None: not discovered yet."""
        self._style: Style | None = spec.client_auth
        """None: not known yet."""
        self._token: _Token | None = None
        self._renewal = Renewal(self._name, self._renew)
        self._distrust = self._bear_until = 0.0

    def now(self) -> Proof | None:
        token = self._token
        if token is None:
            return None
        moment = monotonic()
        if moment < token.renew:
            return token.proof
        if moment >= token.end:
            return None
        if self._renewal.is_idle:
            self._renewal.start()
        return token.proof

    async def get(self) -> Proof:
        proof = self.now()
        return (await self._renewal.result()).proof if proof is None else proof

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        if refusal.status != 401:  # a new token would have the same scopes
            return False
        token = self._token
        if token is not None and token.proof is proof:
            moment = monotonic()
            if (
                moment < self._bear_until
            ):  # renewed for this a moment ago: it is not the token's age
                return False
            lasted = moment - token.since > 2 * LONGEST_PAUSE
            self._distrust = 1.0 if lasted else min(max(1.0, 2 * self._distrust), LONGEST_PAUSE)
            self._bear_until = moment + self._distrust
            self._token, self._unwanted = None, proof
        try:
            await self.get()
        except Unproved:
            pass  # `get` will say so
        return True

    async def close(self) -> None:
        await self._renewal.close()

    def describe(self) -> Json:
        """Whether there is a token, until when, and what is wrong: nothing secret."""
        token = self._token
        ends = None if token is None or token.end == math.inf else time() + token.end - monotonic()
        return {"signed_in": token is not None, "expires": ends, "problem": self._renewal.problem}

    # Fetching
    # ----------------------------------------------------------------------------------------------

    async def _renew(self) -> _Token:
        """By one replica for all of them, where there are several."""
        shared, spec = self._purpose.shared, self._spec
        endpoint = await self._discovered()
        if shared is None:
            return self._take(await self._fetched(endpoint))
        if self._place is None:
            about = (
                endpoint.url,
                spec.client_id,
                spec.scope,
                *(f"{k}={v}" for k, v in sorted(spec.params.items())),
            )
            self._place = await asyncio.to_thread(shared.place, spec.client_secret, *about)
        async with shared.turn(self._place.name):
            kept = await shared.read(self._place)
            token = None if kept is None else _made(kept.token, kept.life or math.inf, kept.left)
            if token is None or monotonic() >= token.renew or self._was_refused(token.proof):
                token = await self._fetched(endpoint)
                life, left = token.end - token.since, token.end - monotonic()
                await shared.write(
                    self._place, token.value, None if life == math.inf else life, left
                )
            return self._take(token)

    def _take(self, token: _Token) -> _Token:
        self._purpose.learn([token.value])
        self._token = token
        return token

    def _was_refused(self, proof: Proof) -> bool:
        return self._unwanted is not None and self._unwanted.headers == proof.headers

    async def _discovered(self) -> _Endpoint:
        if self._endpoint is None:
            try:
                self._endpoint = await self._discover()
            except Unproved as error:
                raise Failed(f"{self._name}: {error.reason}") from None
        return self._endpoint

    async def _discover(self) -> _Endpoint:
        from mcpx.auth.flow import discovery  # not needed with `token_url`
        from mcpx.auth.flow.web import Web, checked, parse_server

        issuer, server = self._spec.issuer, self._purpose.url
        if issuer is not None:
            return _Endpoint(
                await discovery.find_token_url(Web(self._purpose.fetcher, issuer), issuer)
            )
        if server is None:
            raise Unproved("the token address is unknown; set 'issuer' or 'token_url'")
        web = Web(self._purpose.fetcher, server)
        issuer, resource = await discovery.find_issuer(web, server)
        if checked(issuer).host != parse_server(server).host:
            raise Unproved(_other_host("issuer", issuer, "issuer"))
        token_url = await discovery.find_token_url(web, issuer)
        if checked(token_url).host != parse_server(server).host:
            raise Unproved(_other_host("token address", token_url, "token_url"))
        return _Endpoint(token_url, resource)

    async def _fetched(self, endpoint: _Endpoint) -> _Token:
        asked = monotonic()
        if self._style is not None:
            answer = await self._ask(endpoint, self._style)
        else:
            answer = await self._ask(endpoint, "basic")
            if _unknown_client(answer):
                other = await self._ask(endpoint, "post")
                if other.status >= 300:
                    told = dict.fromkeys([self._words(answer), self._words(other)])
                    raise self._failed(f"refuses: {'; '.join(told)}", answer)
                answer, self._style = other, "post"
            elif answer.status < 300:
                self._style = "basic"
        if 300 <= answer.status < 400:
            raise self._failed(
                f"redirects (HTTP {answer.status}); put the final address into 'token_url'", answer
            )
        if not 200 <= answer.status < 300:
            raise self._failed(f"refuses: {self._words(answer)}", answer)
        return self._read(answer, asked)

    async def _ask(self, endpoint: _Endpoint, style: Style) -> Answer:
        spec = self._spec
        form = {"grant_type": "client_credentials"}
        if spec.scope:
            form["scope"] = spec.scope
        if endpoint.resource is not None:
            form["resource"] = endpoint.resource
        form |= spec.params
        headers = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("accept", "application/json"),
        ]
        if style == "basic":
            headers.append(("authorization", f"Basic {self._pair}"))
        else:
            form |= {"client_id": spec.client_id, "client_secret": spec.client_secret}
        request = Fetch(
            url=endpoint.url,
            method="POST",
            headers=tuple(headers),
            body=urlencode(form).encode(),
            timeout=TIMEOUT,
            limit=LARGEST_ANSWER,
            redirects=0,
            allow_private=True,  # the address is the user's own
        )
        try:
            return await self._purpose.fetcher().fetch(request)
        except FetchFailed as error:
            raise self._failed(
                f"cannot be asked: {one_line(without(self._secrets, str(error)))}"
            ) from None
        except ValueError:
            raise self._failed("cannot be asked: the request cannot be sent") from None

    @property
    def _pair(self) -> str:
        """RFC 6749, 2.3.1: encoded as in a form, then as in HTTP Basic."""
        pair = f"{quote_plus(self._spec.client_id)}:{quote_plus(self._spec.client_secret)}"
        return base64.b64encode(pair.encode()).decode()

    def _read(self, answer: Answer, asked: float) -> _Token:
        said = _object(answer)
        token, kind = said.get("access_token"), said.get("token_type", "bearer")
        if not isinstance(token, str) or not token:
            raise self._failed("answered without an 'access_token'")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise self._failed("issues tokens of another type than Bearer")
        if len(token) > LONGEST_TOKEN or not all("!" <= char <= "~" for char in token):
            raise self._failed("issued a token that no header can hold")
        life = _seconds(said.get("expires_in"))
        return _made(token, life, life - (monotonic() - asked))

    def _words(self, answer: Answer) -> str:
        """What a token server says of its refusal."""
        said = _object(answer)
        told = [
            said[key] for key in ("error", "error_description") if isinstance(said.get(key), str)
        ]
        words = one_line(without(self._secrets, ": ".join(told)))
        return f"{words} (HTTP {answer.status})" if words else f"HTTP {answer.status}"

    @property
    def _secrets(self) -> tuple[str, ...]:
        given = (self._spec.client_secret, self._pair, *self._spec.params.values())
        return given if self._token is None else (*given, *self._token.proof.secrets)

    def _failed(self, what: str, answer: Answer | None = None) -> Failed:
        wish = None if answer is None else retry_after(answer.headers)
        host = "" if self._endpoint is None else self._endpoint.host
        if self._spec.token_url is None:
            self._endpoint = None  # The issuer may have moved it.
        return Failed(
            f"{self._name}: the token server {host} {what}", min(wish or 0.0, LONGEST_WISH)
        )


def _other_host(what: str, url: str, key: str) -> str:
    return (
        f"the server names the {what} {one_line(url)}, which is on another host. The client "
        "secret is not sent there. "
        f"If the {what} is right, set '{key}' to it in the auth config"
    )


def _made(token: str, life: float, left: float) -> _Token:
    """`left`: seconds of its life that are left."""
    since = monotonic() - (life - left if life < math.inf else 0.0)
    proof = Proof(headers=(("Authorization", f"Bearer {token}"),))
    renew = since + life - min(MARGIN, life / 10) if life < math.inf else life
    return _Token(proof, since, renew, since + life, token)


def _unknown_client(answer: Answer) -> bool:
    return answer.status == 401 or (
        answer.status == 400 and _object(answer).get("error") == "invalid_client"
    )


def _object(answer: Answer) -> dict[str, Any]:
    try:
        return as_object(codec.load(answer.body)) if answer.body else {}
    except codec.BadJson:
        return {}


def _seconds(given: Any) -> float:
    """Of life; for ever, if that is not said."""
    if isinstance(given, str):
        given = whole_number(given)
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        return math.inf
    return float(max(SHORTEST_LIFE, min(given, LONGEST_LIFE)))
