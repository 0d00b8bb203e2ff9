"""The keys that an issuer signs with: fetched, kept, and fetched again when a token names one that
is not known.

Promised: what anybody may send never has the issuer asked more often than once in `AGAIN` seconds,
and whoever waits for the same answer waits together; keys stay good while the issuer cannot be
reached, and go once it no longer publishes them. Only public keys that can verify a signature, and
are long enough, count.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from mcpx.base.aio import Tasks
from mcpx.base.text import one_line
from mcpx.model.call import Json, as_list, as_object
from mcpx.wire import codec
from mcpx.wire.fetch import Fetch, Fetcher, FetchFailed

log = logging.getLogger(__name__)

AGAIN: Final = 5.0
"""Seconds between two requests for keys."""
STALE: Final = 300.0
"""Seconds after which they are asked for again, in the background, so that a key that was withdrawn
is noticed."""
TIMEOUT: Final = 5.0
LARGEST: Final = 512 << 10
MOST: Final = 64
"""Keys of one issuer that are looked at."""
SHORTEST_RSA: Final = 2048

FITS: Final[Mapping[str, tuple[str, str | None]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
"""Every algorithm that is taken, and the kind of key that goes with it. None with a shared
secret."""


@dataclass(frozen=True, slots=True)
class Key:
    mark: str
    """Of the key itself, whatever it is called."""
    kid: str | None
    kind: str
    curve: str | None
    algorithm: str | None
    """The only one it is for; None: any that fits."""
    key: Any = field(repr=False)

    def fits(self, algorithm: str) -> bool:
        kind, curve = FITS[algorithm]
        return (
            self.kind == kind
            and (curve is None or self.curve == curve)
            and (self.algorithm is None or self.algorithm == algorithm)
        )


class Keys:
    def __init__(
        self, issuer: str, jwks_url: str | None, fetcher: Callable[[], Fetcher], tasks: Tasks
    ) -> None:
        self._issuer = issuer
        self._told = jwks_url
        """Where they are, by the configuration or else by the issuer's metadata."""
        self._fetcher = fetcher
        self._tasks = tasks
        self._keys: dict[str, Key] = {}
        self._asked_at: float | None = None
        self._asking: asyncio.Task[None] | None = None
        self.version = 0
        """One more whenever the keys are others than before."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __contains__(self, mark: object) -> bool:
        return mark in self._keys

    def fitting(self, kid: str | None, algorithm: str) -> list[Key]:
        """Those that may have signed a token; without a name any that fits may."""
        return [
            key for key in self._keys.values() if kid in (None, key.kid) and key.fits(algorithm)
        ]

    def tend(self) -> None:
        """Now and then see whether they are still the same."""
        if (
            self._asked_at is not None
            and time.monotonic() - self._asked_at > STALE
            and not self._tasks.closed
        ):
            self._ask()

    @property
    def may_ask(self) -> bool:
        """Whether an answer may be waited for."""
        return (
            self._asking is not None
            or self._asked_at is None
            or time.monotonic() - self._asked_at >= AGAIN
        ) and not self._tasks.closed

    async def renew(self) -> None:
        """Ask for them, or wait for the answer that somebody else asked for."""
        await asyncio.wait([self._ask()])

    def _ask(self) -> "asyncio.Task[None]":
        if self._asking is None:
            self._asked_at = time.monotonic()
            self._asking = self._tasks.start(self._fetch())
            self._asking.add_done_callback(self._asked)
        return self._asking

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None

    async def _fetch(self) -> None:
        try:
            url = self._told or await self._look_up()
            published = await self._json(url)
            if published is None:
                raise FetchFailed("there is nothing at their address", sent=True)
        except (FetchFailed, ValueError) as problem:
            if self._keys:
                kept = "those that are known stay good"
            else:
                kept = "nobody is let in until then"
            log.warning(
                "the keys of %s cannot be fetched: %s; %s", one_line(self._issuer), problem, kept
            )
            return
        keys: dict[str, Key] = {}
        for entry in as_list(published.get("keys"))[:MOST]:
            if (key := _key(as_object(entry))) is not None:
                keys[key.mark] = key
        if not keys:
            log.warning(
                "%s publishes no key that could be used; what is known stays",
                one_line(self._issuer),
            )
        elif keys.keys() != self._keys.keys():
            self._keys = keys
            self.version += 1

    async def _look_up(self) -> str:
        """Where the issuer's metadata say that its keys are. Raises FetchFailed, ValueError."""
        from mcpx.auth.flow.discovery import issuer_places, same_issuer

        for place in issuer_places(self._issuer):
            about = await self._json(place)
            if about is None or "issuer" not in about:
                continue
            if not same_issuer(str(about["issuer"]), self._issuer):
                raise ValueError(
                    "its metadata are of another issuer; server.auth.issuer must be what they say"
                )
            url = about.get("jwks_uri")
            if isinstance(url, str) and _is_protected(url):
                return url
        raise ValueError("its metadata do not say where they are; name server.auth.jwks_url")

    async def _json(self, url: str) -> Json | None:
        """The object there; None where there is none. Raises FetchFailed."""
        request = Fetch(
            url=url,
            headers=(("accept", "application/json"),),
            timeout=TIMEOUT,
            limit=LARGEST,
            allow_private=True,
        )
        answer = await self._fetcher().fetch(request)
        if not _is_protected(answer.url):
            raise FetchFailed("they were redirected to http, where they can be forged", sent=True)
        if answer.status >= 500:
            raise FetchFailed(f"HTTP {answer.status}", sent=True)
        if answer.status != 200:
            return None
        try:
            return as_object(codec.load(answer.body)) or None
        except codec.BadJson:
            return None


def _is_protected(url: str) -> bool:
    """Whether a third party on the network cannot change the response."""
    from mcpx.auth.flow.web import is_loopback

    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def _key(about: Json) -> Key | None:
    """What a JWK holds, if it is of use."""
    from jwt import PyJWK, PyJWTError

    kind, kid, curve, algorithm = (about.get(name) for name in ("kty", "kid", "crv", "alg"))
    if (
        kind not in ("RSA", "EC", "OKP")
        or about.get("use", "sig") != "sig"
        or not isinstance(kid, str | None)
    ):
        return None
    if algorithm is not None and (not isinstance(algorithm, str) or algorithm not in FITS):
        return None
    try:
        key: Any = PyJWK({name: about[name] for name in about if name in PUBLIC}).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and key.key_size < SHORTEST_RSA:
        log.warning("a key of %d bits is too short to count", key.key_size)
        return None
    mark = hashlib.sha256(
        codec.dump({name: str(about[name]) for name in sorted(PUBLIC) if name in about})
    )
    return Key(
        mark.hexdigest()[:32], kid, kind, curve if isinstance(curve, str) else None, algorithm, key
    )


PUBLIC: Final = frozenset(("kty", "kid", "crv", "alg", "n", "e", "x", "y"))
"""Parts of a JWK that matter; what is secret of it should not be there, and is not looked at."""
