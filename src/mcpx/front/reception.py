"""Who may come in, through which door, and who has to leave: the guard and the identities of one
configuration.

Promised: a configuration that is taken up counts for the next request; whoever it does not let in
any more is found by `stays_until`, and `Identity.look` says when to ask: at most `LOOK` seconds
after a token was revoked or has ended. Where nothing must be shown nothing is looked at.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcpx.base.aio import Tasks
from mcpx.config import Config, FrontAuth
from mcpx.front.guard import Guard
from mcpx.front.identity.badge import NEVER, Badge, Identity, Refusal
from mcpx.front.identity.doors import Doors
from mcpx.front.visitor import Visitor
from mcpx.model.call import ANONYMOUS, Json
from mcpx.wire.exchange import Exchange

if TYPE_CHECKING:
    from mcpx.front.identity.bearer import Bearer
    from mcpx.front.identity.keys import Keys
    from mcpx.wire.fetch import Fetcher

log = logging.getLogger(__name__)

LOOK: Final = 0.25
"""Seconds between two looks at the store and at the clock."""


@dataclass(frozen=True, slots=True)
class House:
    """What stays the same however the configuration changes."""

    host: str
    """The address bound to."""
    itself: str = ""
    """What marks requests that this gateway sent."""
    state: Path | None = None
    """Where kept tokens are; None: there are none."""


class Reception:
    def __init__(self, house: House, config: Config, fetcher: Callable[[], "Fetcher"]) -> None:
        self._house = house
        self._fetcher = fetcher
        self._tasks = Tasks("keys")
        self._keys: tuple[tuple[str | None, str | None], Keys] | None = None
        self._bearer: Bearer | None = None
        self.identity: Identity | None = None
        """None: nothing must be shown."""
        self.take_up(config)

    def take_up(self, config: Config) -> None:
        server = config.server
        self.guard = Guard(
            self._house.host,
            self._house.itself,
            server.allowed_origins,
            server.allowed_hosts,
            server.trusted_proxies,
        )
        self.doors = Doors(config.profiles)
        self.identity = self._identity(server.auth)

    def narrow(self, config: Config) -> None:
        """Another configuration is about to be taken up, which may take a while: whom it does not
        name any more is not let in from now on."""
        if self._bearer is not None:
            auth = config.server.auth
            self._bearer.keep_only(() if auth is None or auth.type != "bearer" else auth.tokens)

    def _identity(self, auth: FrontAuth | None) -> Identity | None:
        self._bearer = None
        if auth is None:
            return None
        if auth.type == "bearer":
            from mcpx.front.identity.bearer import Bearer
            from mcpx.front.identity.store import TokenStore

            if self._house.state is None:
                store = None
            else:
                store = TokenStore(self._house.state)
            self._bearer = Bearer(auth.tokens, self.doors, store)
            if not self._bearer:
                log.warning(
                    "nobody is let in yet: make a token with `mcpx token new NAME`, or name one "
                    "in server.auth"
                )
            return self._bearer
        from mcpx.front.identity.jwt import Jwt
        from mcpx.front.identity.keys import Keys

        issuer = (auth.issuer, auth.jwks_url)
        if self._keys is None or self._keys[0] != issuer:
            self._keys = issuer, Keys(auth.issuer or "", auth.jwks_url, self._fetcher, self._tasks)
        return Jwt(auth, self.doors, self._keys[1], self.guard.origins)

    def forestall(self, exchange: Exchange) -> int | None:
        """The status with which a request is refused, whatever its body says; None: it is not."""
        if self.identity is None:
            found = None
        else:
            found = self.identity.admit(exchange)
        if found is None or isinstance(found, Badge):
            return None
        if isinstance(found, Refusal):
            return found.status
        if not self._tasks.closed:
            self._tasks.start(found)  # it will be known when they come again
        return 503

    def follows(self, visitor: Visitor) -> bool:
        """Whether one whom another replica let in may come in here: not if what they showed has
        ended meanwhile. When it ends, they leave here too."""
        badge = visitor.badge
        if badge is None or badge.expires == NEVER:
            return True
        if badge.expires <= time.time():
            return False
        if self.identity is not None:
            self.identity.expect(badge.expires)
        return True

    def stays_until(self, visitor: Visitor) -> float | None:
        """When whoever came in before has to leave; None: now, they would not be let in again."""
        badge: Badge | None = None
        if self.identity is not None and visitor.badge is not None:
            badge = self.identity.current(visitor.badge)
        if (badge is None) != (self.identity is None) or (badge is None) != (visitor.badge is None):
            return None
        if not self.doors.may_stay(badge, visitor.profile):
            return None
        if badge is None:
            return NEVER
        return badge.expires

    def knows(self, principal: str) -> bool:
        """Whether somebody of that name may come in, whoever they were before."""
        if self.identity is None:
            return principal == ANONYMOUS
        return self.identity.knows(principal)

    @property
    def publishes(self) -> bool:
        """Whether clients can find out whom to ask for a token."""
        return self.identity is not None and self.identity is not self._bearer

    def metadata(self, resource: str) -> Json | None:
        if self.identity is None:
            return None
        return self.identity.metadata(resource)

    async def close(self) -> None:
        await self._tasks.close()
