"""All that guards one configuration: what each caller sees, and whether a call may pass.

A configuration that guards nothing has none, and its calls pay nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mcpx.config import Config
from mcpx.model.call import Caller, Json
from mcpx.model.events import Passage
from mcpx.model.offer import Offer
from mcpx.policy.sight import Sight
from mcpx.policy.sights import Effect, Hiding, Sights
from mcpx.policy.state import PolicyState


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is decided about a tool, whatever its arguments are."""

    seen: bool
    effect: Effect
    because: list[str]
    """What decided, a line each: of the profile, then of the rules."""


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

    def explain(self, profile: str | None, principal: str, offer: Offer) -> Verdict:
        because: list[str] = []
        through = None if profile is None else self.sights.through(profile)
        if through is not None:
            seen, why = through.explain(offer)
            because.append(f"profile {profile}: {why}")
            if not seen:
                return Verdict(False, "deny", because)
        if self.rules is None:
            return Verdict(True, "allow", because)
        effect, lines = self.rules.explain(profile, principal, offer)
        hidden = self.rules.hidden(profile, principal, offer)
        return Verdict(not hidden, effect, [*because, *lines])

    def guard(self, passage: Passage, forward: Callable[[], Awaitable[Json]]) -> Awaitable[Json]:
        """Decide, limit, forward. Raises `Denied`; nothing was forwarded then."""
        return forward()
