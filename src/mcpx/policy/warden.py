"""All that guards one configuration: what each caller sees, and whether a call may pass.

A configuration that guards nothing has none, and its calls pay nothing.
"""

from collections.abc import Awaitable, Callable

from mcpx.config import Config
from mcpx.model.call import Caller, Json
from mcpx.model.events import Passage
from mcpx.policy.sight import Sight
from mcpx.policy.sights import Hiding, Sights
from mcpx.policy.state import PolicyState


class Warden:
    def __init__(self, config: Config, state: PolicyState) -> None:
        self._config = config
        self._state = state
        self.rules: Hiding | None = None
        self.sights = Sights(config.profiles, self.rules)
        self._modes = {profile.name: profile.mode for profile in config.profiles}

    def sight(self, caller: Caller) -> Sight | None:
        """What this caller sees; None: everything."""
        return self.sights.of(caller.profile, caller.principal)

    def mode(self, profile: str) -> str | None:
        """How a profile is shown; None: as everywhere."""
        return self._modes.get(profile)

    def guard(self, passage: Passage, forward: Callable[[], Awaitable[Json]]) -> Awaitable[Json]:
        """Decide, limit, forward. Raises `Denied`; nothing was forwarded then."""
        return forward()
