"""Who needs which link: the rule of decision 0004 as a table.

| server | caller | link |
|---|---|---|
| modern | anybody | one for all; capabilities are stamped on each request |
| any | the one client of a stdio front | one for all; it was opened with what that client can
answer |
| older, never asked | anybody | one opened with at least what the caller can be asked, lent to one
client at a time |
| older, asks | cannot be asked | one for all that declares nothing |
| older, asks | can be asked | one opened with exactly its capabilities and name, lent to one client
at a time |
| older, asks for roots, or outside of calls | can be asked (for roots) | its own |
| older, quiet | anybody | one for all that was opened with at least the caller's capabilities |
| `isolation: per_session`, `per_call` | anybody | its own, for the session or the call |
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mcpx.config import Server
from mcpx.model.call import Caller
from mcpx.transports import starts_process
from mcpx.upstreams.link import Link, Use, through
from mcpx.upstreams.negotiate import Era
from mcpx.upstreams.traits import NOBODY, Needs, Traits

UNNAMED = through({})["name"]
"""What a server is told of a link that nobody in particular has."""
LONGEST = 128
"""Characters of a name that are kept as they are."""


class Wish(NamedTuple):
    """The link a caller needs."""

    era: Era
    needs: Needs | None
    """None: whatever the link was opened with (modern, or the one client of a stdio front)."""
    owner: object | None = None
    """Whom it must be private to."""
    use: Use = "shared"
    why: str = ""
    name: str | None = None
    """Of the client the server was told of when the link was opened; None: whatever it was."""


class Wishes:
    def __init__(self, server: Server, traits: Traits) -> None:
        self.server = server
        self._traits = traits
        self._fixed: Era | None = None
        self._speaks: dict[Era, bool] = {}
        """What is known of the server's eras; an era that is absent was not tried."""
        self._known: dict[str, Wish] = {}
        """Of sessions that can be asked: worked out once."""

    # What is learnt
    # ------------------------------------------------------------------------------------------

    def greeted(self, spoke: Era, refused: Iterable[Era] = ()) -> None:
        """The main link speaks this era. A program is not started a second time for the other: that
        is bridged."""
        self._fixed = spoke if starts_process(self.server.connection) else None
        self._speaks = {**self._speaks, **dict.fromkeys(refused, False), spoke: True}
        self._traits.era = spoke
        self.rethink()

    def speaks(self, era: Era) -> None:
        self._speaks[era] = True

    def does_not_speak(self, era: Era) -> bool:
        """An opening was refused; whether that tells something new."""
        if not self._speaks or era in self._speaks:
            return False
        self._speaks[era] = False
        self.rethink()
        return True

    def rethink(self) -> None:
        """Something was learnt about the server that changes who needs what."""
        self._known.clear()

    def forget(self, session: str) -> None:
        self._known.pop(session, None)

    # What is needed
    # ------------------------------------------------------------------------------------------

    def era_for(self, caller: Caller) -> Era:
        """The caller's own era where the server speaks it."""
        if self._fixed is not None:
            return self._fixed
        own: Era = "modern" if caller.modern else "older"
        return own if self._speaks.get(own, True) else ("older" if caller.modern else "modern")

    def of(self, caller: Caller) -> Wish:
        session = caller.session
        if session is not None and (known := self._known.get(session)) is not None:
            return known
        isolation, chosen = self.server.isolation, self.era_for(caller)
        if isolation == "per_call":
            return Wish(chosen, Needs.of(caller), object(), "call", "isolation: per_call")
        if caller.solo or (chosen == "modern" and isolation == "shared"):
            return Wish(chosen, None)
        if isolation == "per_session":
            wish = Wish(
                chosen, Needs.of(caller), _affinity(caller), "session", "isolation: per_session"
            )
        elif not caller.answers:
            return Wish(chosen, NOBODY)
        # A server that asks is told whom it asks (PRO-3).
        elif self._traits.asks_late:
            name, why = told_name(through(caller.client)), "it asks outside of calls"
            wish = Wish(chosen, Needs.of(caller), _affinity(caller), "session", why, name)
        elif self._traits.asks_for_roots and "roots" in caller.answers:
            name = told_name(through(caller.client))
            wish = Wish(
                chosen, Needs.of(caller), _affinity(caller), "session", "it asks for roots", name
            )
        else:
            name = told_name(through(caller.client)) if self._traits.asks else None
            wish = Wish(chosen, Needs.of(caller), None, "lent", "its clients can be asked", name)
        if session is not None:
            self._known[session] = wish
        return wish

    def suits(self, link: Link, wish: Wish, client: object = None) -> bool:
        """Whether such a caller's calls may go over a link at all, be it free or not."""
        if not link.alive or link.modern != (wish.era == "modern") or link.use == "learning":
            return False
        if link.owner is not None:
            # Bound to a session: that is its own, whatever else it could have. Unless it was opened
            # for another client, and lent to this one when the server first asked something: then
            # that server thinks of somebody else.
            named = wish.name is None or told_name(link.who.client) in (wish.name, UNNAMED)
            return named and link.owner in (wish.owner, client)
        if wish.owner is not None:
            return False
        needs = wish.needs
        if needs is None:
            return True
        if not self._traits.lists_alike(link.needs.kind, needs.kind):
            return False
        if not needs.kind:
            # Nobody was ever asked anything: who could not answer may have it too.
            return not link.needs.kind or not self._traits.asks
        if self._traits.asks:
            return link.needs == needs and told_name(link.who.client) == wish.name
        return link.needs.covers(needs)

    def is_free(self, link: Link, wish: Wish, client: object) -> bool:
        """Whether that client may have it now."""
        if link.owner is None and (wish.needs is None or self._traits.quiet or not link.needs.kind):
            return True
        return link.free_for(client)


def _affinity(caller: Caller) -> str:
    """What a private link is private to: a session. Modern callers have none; who they are and what
    they can be asked is all there is."""
    if caller.session is not None:
        return caller.session
    client: Mapping[str, Any] = caller.client
    needs = Needs.of(caller)
    told = (client.get("name", ""), client.get("version", ""))
    who = (caller.profile or "", caller.principal, *told, *sorted(needs.kind))
    return "\0".join(_brief(str(part)) for part in who)


def told_name(client: Mapping[str, Any]) -> str:
    """The name by which a server knows a client, in so far as it tells one from another."""
    return _brief(str(client.get("name", "")))


def _brief(text: str) -> str:
    """What clients call themselves is kept in several places: of a long name what tells it from
    others."""
    if len(text) <= LONGEST:
        return text
    return (
        f"{text[:LONGEST]}…{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    )


def is_session(owner: str) -> bool:
    """Whether that stands for a session, as against a modern client that has none."""
    return "\0" not in owner
