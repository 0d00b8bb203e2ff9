"""What is kept about calls that people decide about, as whoever asks them and whoever decides see
it.

Here it is all in this process. With replicas it is in their store (`shared_book`), behind the same
words.
"""

from typing import Final

from mcpx.model.errors import OVERLOADED, Denied
from mcpx.model.events import Passage
from mcpx.policy.approvals import Approval, Approvals, Binding
from mcpx.policy.seals import Goings, Seals

SOON: Final = 2.0
"""Seconds after which a store that went away may well be back."""


class Away(Denied):
    """It is kept in a store that is away: nothing is let through by it, and nothing decided."""

    def __init__(self, what: str) -> None:
        super().__init__(
            OVERLOADED,
            f"{what} while the store of the replicas is away; try again",
            retry_after=SOON,
        )


class Book:
    def __init__(self, approvals: Approvals, seals: Seals, goings: Goings) -> None:
        self._approvals = approvals
        self._seals = seals
        self._goings = goings

    # Approvals: calls that somebody else than their caller decides about
    # ---------------------------------------

    async def claim(self, binding: Binding, *, usable: bool) -> Approval | None:
        """What there is about such a call. One that is approved and `usable` is used by this very
        call, and by no other. Raises `Away`."""
        approval = self._approvals.of(binding)
        if approval is not None and approval.state == "approved" and usable:
            self._approvals.use(approval)
        return approval

    async def give_back(self, approval: Approval) -> None:
        """The call it was claimed for was certainly not made."""
        self._approvals.give_back(approval)

    async def wait_for(
        self, passage: Passage, binding: Binding, arguments: object, rule: str, reason: str
    ) -> Approval:
        """A call that somebody has to approve; the same one for the same call."""
        return self._approvals.wait_for(passage, binding, arguments, rule, reason)

    async def decide(self, id: str, *, allow: bool, by: str) -> Approval | None:
        """None: nothing waits under that id. Raises `Away`."""
        return self._approvals.decide(id, allow=allow, by=by)

    async def pending(self) -> list[Approval]:
        """Those that nobody has decided, the oldest first."""
        return self._approvals.pending()

    # What a modern client comes back with
    # -----------------------------------------------------------------------

    async def seal(self, whose: str, binding: Binding) -> str:
        """A state for the question about a call. Raises `Away`."""
        return self._seals.seal(whose, binding)

    async def redeem(self, whose: str, state: str, binding: Binding) -> bool:
        """Whether it was given out for this very call; it is used up then. Raises `Away`."""
        return self._seals.redeem(whose, state, binding)

    async def goes_on(self, whose: str, binding: Binding, state: object) -> None:
        """A server wants to be called again, with that state."""
        self._goings.goes_on(whose, binding, state)

    async def is_going_on(self, whose: str, binding: Binding, state: object) -> bool:
        """Whether this is such a call, which goes on now. Raises `Away`."""
        return self._goings.take(whose, binding, state)

    async def close(self) -> None:
        """Nothing of it is at work."""
