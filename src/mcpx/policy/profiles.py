"""A profile of the configuration at work: what is seen through it, and by which of its patterns.

A tool or prompt is known by its public name, its own name and `server.name`; a resource or template
by the server's own URI. What is absent from a profile shows all. Nothing is remembered here:
whoever asks often keeps the answers.
"""

from mcpx.config import Profile
from mcpx.model.call import as_object
from mcpx.model.offer import Kind, Offer
from mcpx.policy.patterns import Patterns

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
        """Whether it is seen, and which line of the profile says so."""
        said = "nothing in it leaves this out"
        for key, names in (("servers", (offer.server,)), (_LISTS[offer.kind], names_of(offer))):
            if key not in self._lists:
                continue
            patterns = self._lists[key]
            seen, by = patterns.decides(*names)
            if by is not None:
                said = f"{key}[{by}] is {patterns.texts[by]!r}"
            elif seen:
                said = f"no pattern of {key} leaves it out"
            else:
                said = f"no pattern of {key} matches"
            if not seen:
                return False, said
        if self._read_only and offer.kind == "tools" and not reads_only(offer):
            return False, "read_only: the tool does not say that it changes nothing"
        return True, said


def names_of(offer: Offer) -> tuple[str, ...]:
    """All that a pattern may call it."""
    if offer.kind in ("tools", "prompts"):
        return (offer.public, offer.name, f"{offer.server}.{offer.name}")
    return (offer.name,)


def reads_only(offer: Offer) -> bool:
    """Whether it says that it changes nothing. What is listed of a server that is not trusted was
    approved as it is."""
    return as_object(offer.definition.get("annotations")).get("readOnlyHint") is True
