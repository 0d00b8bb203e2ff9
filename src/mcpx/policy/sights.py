"""Who sees what: for each caller the one `Sight` it shares with all who see the same."""

from collections.abc import Hashable
from typing import Literal, Protocol

from mcpx.config import Profile
from mcpx.model.offer import Offer
from mcpx.policy.profiles import SeenThrough
from mcpx.policy.sight import NOTHING, Sight

REMEMBERED = 10_000
"""Callers whose sight is kept; as many as there may be sessions."""


Effect = Literal["allow", "ask", "deny"]


class Hiding(Protocol):
    """What rules say about what is seen; `policy.rules` has it."""

    def principal_class(self, principal: str) -> Hashable:
        """The same for principals that all rules treat alike."""
        ...

    def hidden(self, profile: str | None, principal: str, offer: Offer) -> bool: ...

    def hidden_server(self, profile: str | None, principal: str, server: str) -> bool:
        """Everything of that server."""
        ...

    def hidden_resource(
        self, profile: str | None, principal: str, server: str, uri: str
    ) -> bool: ...

    def explain(
        self, profile: str | None, principal: str, offer: Offer
    ) -> tuple[Effect, list[str]]:
        """What is done with a call of it, and which rules decide that: a line each, with index and
        reason."""
        ...


class Sights:
    def __init__(self, profiles: tuple[Profile, ...], rules: Hiding | None) -> None:
        self._profiles = {profile.name: SeenThrough(profile) for profile in profiles}
        self._rules = rules
        self._by_caller: dict[tuple[str | None, str], Sight | None] = {}
        self._by_class: dict[tuple[str | None, Hashable], Sight] = {}

    def of(self, profile: str | None, principal: str) -> Sight | None:
        """None: everything is seen."""
        key = (profile, principal)
        try:
            return self._by_caller[key]
        except KeyError:
            if len(self._by_caller) >= REMEMBERED:
                self._by_caller.clear()
            sight = self._by_caller[key] = self._found(profile, principal)
            return sight

    def _found(self, profile: str | None, principal: str) -> Sight | None:
        through = None if profile is None else self._profiles.get(profile)
        if profile is not None and through is None:
            return NOTHING
        if self._rules is None:
            return None if through is None or through.shows_all else through
        key = (profile, self._rules.principal_class(principal))
        sight = self._by_class.get(key)
        if sight is None:
            sight = self._by_class[key] = _Ruled(through, self._rules, profile, principal)
        return sight

    def through(self, profile: str) -> SeenThrough | None:
        return self._profiles.get(profile)


class _Ruled:
    """What a profile shows and no rule hides. `principal` stands for all whom the rules treat like
    this one."""

    def __init__(
        self, through: SeenThrough | None, rules: Hiding, profile: str | None, principal: str
    ) -> None:
        self._through = through
        self._rules = rules
        self._profile = profile
        self._principal = principal
        self.picks = through is not None and through.picks  # no rule looks at a URI
        self.weight = 20 + (0 if through is None else through.weight)

    def server(self, name: str) -> bool:
        if self._through is not None and not self._through.server(name):
            return False
        return not self._rules.hidden_server(self._profile, self._principal, name)

    def offer(self, offer: Offer) -> bool:
        if self._through is not None and not self._through.offer(offer):
            return False
        return not self._rules.hidden(self._profile, self._principal, offer)

    def resource(self, server: str, uri: str) -> bool:
        if self._through is not None and not self._through.resource(server, uri):
            return False
        return not self._rules.hidden_resource(self._profile, self._principal, server, uri)
