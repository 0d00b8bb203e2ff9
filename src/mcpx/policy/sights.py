"""What each caller sees. Callers who see the same share one `Sight`.

A profile knows a tool or prompt by its public name, its name, and `server.name`, and a resource or
template by the URI of its server. A key that a profile does not have leaves out nothing.
"""

from collections.abc import Hashable

from mcpx.base.caching import Lru
from mcpx.config import Profile
from mcpx.model.call import as_object
from mcpx.model.offer import Kind, Offer
from mcpx.policy.patterns import Patterns
from mcpx.policy.rules import Rules
from mcpx.policy.sight import NOTHING, Sight

MAX_CALLERS = 10_000
"""As many as sessions."""

_LISTS: dict[Kind, str] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
}


class SeenThrough:
    """Implements `policy.sight.Sight`."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._read_only = profile.read_only
        self._lists = {
            key: Patterns(texts)
            for key in ("servers", "tools", "prompts", "resources")
            if (texts := getattr(profile, key)) is not None
        }
        self.weight = sum(patterns.weight for patterns in self._lists.values())
        self.picks = "resources" in self._lists
        self.shows_all = not self._lists and not profile.read_only

    def server(self, name: str) -> bool:
        return self._meant("servers", name)

    def offer(self, offer: Offer) -> bool:
        if not self._meant("servers", offer.server):
            return False
        key = _LISTS[offer.kind]
        if key in self._lists and not self._lists[key].decides(*names_of(offer))[0]:
            return False
        return not self._read_only or offer.kind != "tools" or reads_only(offer)

    def resource(self, server: str, uri: str) -> bool:
        return self._meant("servers", server) and self._meant("resources", uri)

    def _meant(self, key: str, *names: str) -> bool:
        patterns = self._lists.get(key)
        return patterns is None or patterns.decides(*names)[0]

    def explain(self, offer: Offer) -> tuple[bool, str]:
        """Return whether the offer is seen, and which line of the profile decides."""
        seen, why = True, "nothing in it leaves this out"
        for key, names in (("servers", (offer.server,)), (_LISTS[offer.kind], names_of(offer))):
            patterns = self._lists.get(key)
            if patterns is not None and seen:
                seen, why = _explained(key, patterns, names)
        if seen and self._read_only and offer.kind == "tools" and not reads_only(offer):
            return False, "read_only: the tool does not say that it changes nothing"
        return seen, why


def _explained(key: str, patterns: Patterns, names: tuple[str, ...]) -> tuple[bool, str]:
    seen, index = patterns.decides(*names)
    if index is not None:
        return seen, f"{key}[{index}] is {patterns.texts[index]!r}"
    if seen:
        return seen, f"no pattern of {key} leaves it out"
    return seen, f"no pattern of {key} matches"


def names_of(offer: Offer) -> tuple[str, ...]:
    """All that a pattern may call it."""
    if offer.kind in ("tools", "prompts"):
        return (offer.public, offer.name, f"{offer.server}.{offer.name}")
    return (offer.name,)


def reads_only(offer: Offer) -> bool:
    """Whether it says that it changes nothing. What is listed of a server that is not trusted was
    approved as it is."""
    return as_object(offer.definition.get("annotations")).get("readOnlyHint") is True


class Sights:
    def __init__(self, profiles: tuple[Profile, ...], rules: Rules | None) -> None:
        self._profiles = {profile.name: SeenThrough(profile) for profile in profiles}
        self._rules = rules
        self._by_caller: Lru[tuple[str | None, str], Sight | None] = Lru(MAX_CALLERS)
        self._by_class: dict[tuple[str | None, Hashable], Sight] = {}

    def of(self, profile: str | None, principal: str) -> Sight | None:
        """None: everything is seen."""
        key = (profile, principal)
        try:
            return self._by_caller[key]
        except KeyError:
            sight = self._by_caller[key] = self._found(profile, principal)
            return sight

    def _found(self, profile: str | None, principal: str) -> Sight | None:
        through = self._profiles.get(profile or "")
        if profile is not None and through is None:
            return NOTHING
        if self._rules is None and (through is None or through.shows_all):
            return None
        if self._rules is None:
            return through
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
        self, through: SeenThrough | None, rules: Rules, profile: str | None, principal: str
    ) -> None:
        self._through = through
        self._rules = rules
        self._profile = profile
        self._principal = principal
        self.picks = through is not None and through.picks  # no rule looks at a URI
        self.weight = 20
        if through is not None:
            self.weight += through.weight

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
