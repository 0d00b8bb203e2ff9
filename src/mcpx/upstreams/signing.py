"""Signing in to one server: what its links are proved with, and when a person is asked.

Promised: until a server wants a sign-in nothing is made for it; from then on it has credentials,
and requests go out without a proof only while nobody has signed in, so that what a server gives to
everybody goes on. Where to sign in is found out in the background, once for what the server asks
for, and after a failure not again for a while.
"""

import asyncio
import logging
import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpx.auth.credentials import Proof, Refusal, SignIn, signs_in
from mcpx.base.aio import Tasks
from mcpx.model.call import Json
from mcpx.model.errors import Unavailable, Unproved

if TYPE_CHECKING:
    from mcpx.auth.ring import Ring

log = logging.getLogger(__name__)

NOTHING = Proof()
"""What is sent while there is nothing to prove us with."""
SIGN_IN, CANNOT = "sign in: mcpx auth login ", "nobody can sign in: "
PAUSE = 60.0
"""Seconds before it is tried again to find out where to sign in."""
MOST_WISHES = 4
"""For more rights, within that time."""


class Signing:
    """Implements `auth.credentials.Credentials` for the links of one server."""

    def __init__(
        self,
        name: str,
        url: str,
        ring: "Callable[[], Ring]",
        given: SignIn | None,
        tasks: Tasks,
        asks: bool,
    ) -> None:
        """`given`: of its auth config; else they are made when the server wants them. `asks`:
        whether people are asked to sign in."""
        self.inner = given
        self._asks = asks
        self._name, self._url = name, url
        self._ring = ring
        self._tasks = tasks
        self._bare = False
        """Nobody has signed in: requests go out without a proof."""
        self._asked: Refusal | None = None
        self._asking: asyncio.Task[None] | None = None
        self._wanted, self._wanted_since = 0, float("-inf")
        """Times that more rights were asked for, and from when on they are counted."""
        self._failed = float("-inf")
        """When it could not be found out where to sign in."""
        self._said = f"{name}: wants the gateway to sign in"
        self._told: str | None = None
        """Where somebody who wanted to know was sent to."""

    # What links are proved with
    # ----------------------------------------------------------------------------------

    def now(self) -> Proof | None:
        inner = self.inner
        if inner is None:
            return NOTHING
        proof = inner.now()
        return NOTHING if proof is None and self._bare else proof

    async def get(self) -> Proof:
        if self.inner is None:
            return NOTHING
        try:
            proof = await self.inner.get()
        except Unproved as error:
            if not error.sign_in:
                raise
            self._bare = True
            return NOTHING
        self._bare = False
        return proof

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        inner = self._made()
        if inner is None:
            return False
        if proof is NOTHING:
            again = (
                await self.get() is not NOTHING
            )  # somebody has signed in before, perhaps through another gateway
        else:
            again = await inner.refused(proof, refusal)
            self._bare = not again and inner.now() is None
        if not again:
            self._ask(inner, refusal)
        return again

    def _ask(self, inner: SignIn, refusal: Refusal) -> None:
        if not self._asks or (self._asking is not None and not self._asking.done()):
            return
        more = refusal.status == 403 and refusal != self._asked and self._may_want_more()
        if inner.auth_url is not None and not more:
            return  # somebody may be about to answer it
        if time.monotonic() < self._failed + PAUSE and not more:
            return
        self._asked = refusal
        self._asking = self._tasks.start(self._find_out(inner, refusal))

    def _may_want_more(self) -> bool:
        """Else a server that thinks of another scope for every call would have us ask, and
        register, without end, and nobody could answer in time."""
        moment = time.monotonic()
        if moment > self._wanted_since + PAUSE:
            self._wanted_since, self._wanted = moment, 0
        self._wanted += 1
        return self._wanted <= MOST_WISHES

    async def _find_out(self, inner: SignIn, refusal: Refusal) -> None:
        try:
            await inner.begin(refusal)
        except Unproved as error:
            self._failed = time.monotonic()
            log.warning("[%s] nobody can be asked to sign in: %s", self._name, error.reason)

    async def close(self) -> None:
        pass  # what there is belongs to the ring

    def _made(self) -> SignIn | None:
        if self.inner is None:
            self.inner = signs_in(self._ring().own(self._name, self._url))
            self._bare = self.inner is not None
        return self.inner

    # Asking a person
    # ----------------------------------------------------------------------------------------------

    @property
    def auth_url(self) -> str | None:
        """Where to sign in; None when nobody has to, or it is not known yet."""
        return None if self.inner is None else self.inner.auth_url

    @property
    def hint(self) -> str:
        """What to do, in a few words."""
        problem = (
            None if self.inner is None or self.inner.auth_url is not None else self.inner.problem
        )
        return f"{CANNOT}{problem}" if problem else f"{SIGN_IN}{shlex.quote(self._name)}"

    @property
    def reason(self) -> str:
        """What the server last said, and what to do."""
        return f"{self._said}; {self.hint}"

    def tell(self, error: Unavailable) -> None:
        """Say in an error what to do."""
        self._said = error.message.partition(f"; {SIGN_IN}")[0].partition(f"; {CANNOT}")[
            0
        ]  # it may be told again
        error.message = self.reason
        error.args = (error.message,)
        error.data = {"server": self._name, "auth_url": self.auth_url}

    def changed(self) -> bool:
        """Its credentials have changed: whether somebody has signed in or out; else somebody has
        to, or cannot."""
        self._bare = False
        return self.inner is not None and self.inner.auth_url is None and self.inner.problem is None

    async def where(self) -> str:
        """Where to sign in, found out now if it is not known, or if it was no use before. Raises
        `Unproved`."""
        inner = self._made()
        if inner is None:
            raise Unproved("this mcpx cannot sign in to servers")
        if self._asking is not None and not self._asking.done():
            await asyncio.wait([self._asking])
        url = inner.auth_url
        if url is None or url == self._told or inner.problem is not None:
            url = await inner.begin()
        self._told = url
        return url

    async def forget(self) -> None:
        if (inner := self._made()) is not None:
            await inner.forget()

    def describe(self) -> Json:
        """Who is signed in where, as far as it is known."""
        return {} if self.inner is None else self.inner.describe()
