"""What a gateway has only if somebody needs it: made at the first need, closed if it was made.

Whoever only wants to know what there is asks with `"ring" in vars(provisions)`, which makes
nothing.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.model.events import Bus
from mcpx.model.redaction import Redactor

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials
    from mcpx.auth.ring import Ring
    from mcpx.core.caching import Answers
    from mcpx.policy.state import PolicyState
    from mcpx.replicas.replicas import Replicas
    from mcpx.wire.fetch import Fetcher


class Provisions:
    def __init__(
        self,
        environ: Mapping[str, str],
        state: Path | None,
        bus: Bus,
        redactor: Redactor,
        credentials_changed: "Callable[[Credentials], None]",
        replicas: "Replicas | None" = None,
    ) -> None:
        """`replicas`: with whom what is made here is shared."""
        self._environ, self._state = environ, state
        self._bus = bus
        self._redactor = redactor
        self._credentials_changed = credentials_changed
        self._replicas = replicas

    @cached_property
    def policy_state(self) -> "PolicyState":
        """What of policy outlives a reload."""
        from mcpx.policy.state import PolicyState

        return PolicyState(self._state, self._bus.publish, self._replicas)

    @cached_property
    def fetcher(self) -> "Fetcher":
        """The client for requests to APIs and token servers."""
        from mcpx.wire.fetch import Fetcher

        return Fetcher(self._environ)

    @cached_property
    def ring(self) -> "Ring":
        """The credentials that servers and commands use."""
        from mcpx.auth.ring import Ring

        shared = None
        if self._replicas is not None:
            from mcpx.auth.shared import Shared

            shared = Shared(self._replicas)
        changed = self._credentials_changed
        return Ring(
            self._environ, self._state, lambda: self.fetcher, changed, self._redactor, shared
        )

    @cached_property
    def answers(self) -> "Answers":
        """What read-only tools answered, where the configuration says that it may be given
        again."""
        from mcpx.core.caching import Answers

        return Answers()

    def forget_answers(self, *owners: Hashable) -> None:
        if "answers" in vars(self):
            for owner in owners:
                self.answers.forget(owner)

    async def close_answers(self) -> None:
        if "answers" in vars(self):
            await self.answers.close()

    async def close(self) -> None:
        """At the very end: servers that are closed may still have something to say to whoever
        signed them in."""
        for made in ("policy_state", "ring", "fetcher"):
            if made in vars(self):
                await vars(self)[made].close()
