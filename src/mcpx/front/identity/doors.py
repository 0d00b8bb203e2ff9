"""Which profile somebody comes in through, by who they are and the path they ask for.

Whoever is bound to profiles gets those and no other, at any path; whoever is not gets everything,
and every profile that names nobody. What is not theirs reads as a profile that does not exist.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from mcpx.config import Profile
from mcpx.front.identity.badge import Badge

NOWHERE: Final = "\0"
"""No profile has this name."""


class Doors:
    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._open = {profile.name for profile in profiles if profile.tokens is None}
        self._named = [
            (profile.name, frozenset(profile.tokens))
            for profile in profiles
            if profile.tokens is not None
        ]
        self._order = {profile.name: position for position, profile in enumerate(profiles)}

    def of_token(self, name: str, own: str | None) -> tuple[str, ...]:
        """Those that a named token opens: its own first. One that is gone from the configuration
        still binds."""
        named = [profile for profile, tokens in self._named if name in tokens and profile != own]
        if own is None:
            return tuple(named)
        return (own, *named)

    def in_order(self, profiles: Iterable[str]) -> tuple[str, ...]:
        """As the configuration has them; those it does not have, last."""
        return tuple(
            sorted(set(profiles), key=lambda name: (self._order.get(name, len(self._order)), name))
        )

    def enter(self, badge: Badge | None, asked: str | None) -> str | None:
        """The profile that a path leads to; None: everything."""
        if badge is not None and badge.doors:
            if asked is None:
                return badge.doors[0]
            if asked in badge.doors:
                return asked
            return NOWHERE
        if asked is None or asked in self._open:
            return asked
        return NOWHERE

    def may_stay(self, badge: Badge | None, profile: str | None) -> bool:
        """Whether whoever came in through a profile would still get in through it."""
        if badge is not None and badge.doors:
            return profile in badge.doors
        return profile is None or profile in self._open
