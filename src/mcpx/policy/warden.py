"""All that guards one configuration: what each caller sees, and whether a call may pass.

A configuration that guards nothing has none, and its calls pay nothing.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from mcpx.config import Config, Policy
from mcpx.model.call import Caller, Json
from mcpx.model.errors import DENIED, INVALID_PARAMS, RESOURCE_NOT_FOUND, Denied, NotFound
from mcpx.model.events import Passage
from mcpx.model.offer import Offer
from mcpx.policy.asking import strip
from mcpx.policy.limits import limiter
from mcpx.policy.rules import COMMANDS, OURS, Left, Rule, Rules
from mcpx.policy.showing import line
from mcpx.policy.sight import Sight
from mcpx.policy.sights import Sights
from mcpx.policy.state import PolicyState

Forward = Callable[[], Awaitable[Json]]
Again = Callable[[Passage], None]
"""Looks at a call that has waited with the rules of now, and raises if it must not be made."""


class Warden:
    def __init__(self, config: Config, state: PolicyState) -> None:
        self._state = state
        state.limits = limiter(config, state)
        self._open = frozenset(
            server.name for server in config.mcp_servers if server.trust == "open"
        )
        self.rules: Rules | None = None
        if config.policy != Policy():
            self.rules = Rules(config.policy, self.believes)
        self.sights = Sights(config.profiles, self.rules)
        self._modes = {profile.name: profile.mode for profile in config.profiles}

    def sight(self, caller: Caller) -> Sight | None:
        """What this caller sees; None: everything."""
        return self.sights.of(caller.profile, caller.principal)

    def knows(self, profile: str) -> bool:
        return profile in self._modes

    def mode(self, profile: str) -> str | None:
        """How a profile is shown; None: as everywhere."""
        return self._modes.get(profile)

    def believes(self, server: str) -> bool:
        """Whether what tools of a server say of themselves is taken at its word; local commands are
        the user's own."""
        return server in self._open or server == COMMANDS or self._state.pins.believes(server)

    def guard(self, passage: Passage, forward: Forward, again: Again) -> Awaitable[Json]:
        """Decide, limit, forward. Raises `Denied`; nothing was forwarded then. What had to wait is
        looked at `again` before it is."""
        rules, limits = self.rules, self._state.limits
        if rules is not None:
            left = rules.left(passage)
            if left.takes_long(passage):
                return self._guard_in_turns(left, passage, forward, again)
            rule = left.decide(passage)
            if rule.effect != "allow" or "requestState" in passage.params:
                return self._judged(passage, forward, again, rule, left.hidden)
            passage.rule = rule.label
        if limits is None:
            return forward()
        return limits.passing(passage, forward, again)

    async def _guard_in_turns(
        self, left: Left, passage: Passage, forward: Forward, again: Again
    ) -> Json:
        rule = await left.decide_in_turns(passage)
        again(passage)
        return await self._judged(passage, forward, again, rule, left.hidden)

    def _judged(
        self, passage: Passage, forward: Forward, again: Again, rule: Rule, hidden: bool
    ) -> Awaitable[Json]:
        passage.rule = rule.label
        if rule.effect == "deny":
            raise _refusal(passage, rule, hidden=hidden)
        if rule.effect == "ask":
            through = partial(self._approved, passage, again)
            return self._state.asking.pass_if_approved(passage, rule, forward, through)
        if passage.caller.modern and "requestState" in passage.params:
            strip(passage)  # it was asked about before a reload, and need not be any more
        return self._limited(passage, forward, again)

    def _approved(self, passage: Passage, again: Again, forward: Forward) -> Awaitable[Json]:
        again(passage)
        return self._limited(passage, forward, again)

    def look_again(self, passage: Passage) -> None:
        """Of a call that another configuration let through and that was not forwarded yet: raises
        if it must not be now. Nobody is asked about it again."""
        sight, offer = self.sight(passage.caller), passage.offer
        if sight is not None and passage.server != OURS and not _is_seen(sight, offer, passage):
            raise unknown(passage)
        if self.rules is not None:
            left = self.rules.left(passage)
            rule = left.decide(passage)
            if rule.effect == "deny":
                passage.rule = rule.label
                raise _refusal(passage, rule, hidden=left.hidden)

    def _limited(self, passage: Passage, forward: Forward, again: Again) -> Awaitable[Json]:
        limits = self._state.limits  # The configuration may have changed since the question.
        if limits is None:
            return forward()
        return limits.passing(passage, forward, again)


def _is_seen(sight: Sight, offer: Offer | None, passage: Passage) -> bool:
    if offer is not None:
        return sight.offer(offer)
    if not sight.server(passage.server):
        return False
    return not passage.name or sight.resource(passage.server, passage.name)


def _refusal(passage: Passage, rule: Rule, *, hidden: bool) -> Denied | NotFound:
    """In words that tell nothing of what is hidden: such a call only comes where a reload was
    quicker."""
    if hidden:
        return unknown(passage)
    what = f"{passage.server}.{line(passage.name, 300)}"
    text = f"{what} is not allowed"
    if rule.reason:
        text = f"{text}: {rule.reason}"
    elif rule.conditions:
        text = f"{text} with these arguments"
    return Denied(DENIED, text)


def unknown(passage: Passage) -> NotFound:
    """The error for an unknown name, as the client knows it."""
    offer = passage.offer
    if offer is not None and offer.kind != "resources":
        return NotFound(offer.kind.removesuffix("s"), offer.public)
    name = passage.name
    if offer is not None:
        name = offer.public
    if passage.caller.modern:
        return NotFound("resource", name, INVALID_PARAMS)
    return NotFound("resource", name, RESOURCE_NOT_FOUND)
