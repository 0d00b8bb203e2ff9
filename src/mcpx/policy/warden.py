"""All that guards one configuration: what each caller sees, and whether a call may pass.

A configuration that guards nothing has none, and its calls pay nothing.
"""

from collections.abc import Awaitable, Callable

from mcpx.config import Config
from mcpx.model.call import Caller, Json
from mcpx.model.events import Passage
from mcpx.policy.limits import limiter
from mcpx.policy.sight import Sight
from mcpx.policy.state import PolicyState


class Warden:
    def __init__(self, config: Config, state: PolicyState) -> None:
        self._config = config
        self._state = state
        self.limits = limiter(config, state)
        """None: it limits nothing."""

    def sight(self, caller: Caller) -> Sight | None:
        """What this caller sees; None: everything."""
        return None

    def guard(self, passage: Passage, forward: Callable[[], Awaitable[Json]]) -> Awaitable[Json]:
        """Decide, limit, forward. Raises `Denied`; nothing was forwarded then."""
        return forward() if self.limits is None else self.limits.passing(passage, forward)
