"""Pinned servers: which of their definitions clients may see, and which wait for approval (SEC-5).

Only the list that a server itself sends now is approved at first sight. Other lists (of an earlier
run, or of one session) show approved definitions only. In quarantine, and if it is not known what
was approved, the server shows nothing.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal

from mcpx.base.aio import Work
from mcpx.base.caching import Lru
from mcpx.base.state_file import UnreadableState
from mcpx.model.call import Json, as_object
from mcpx.model.offer import KINDS, Kind, Offers
from mcpx.policy.pins.fingerprint import (
    INSTRUCTIONS,
    LISTED,
    Item,
    PinnedKind,
    called,
    fingerprint,
    instructions_item,
    named,
)
from mcpx.policy.pins.pin_file import Held, Kept, PinFile
from mcpx.policy.pins.review import Elsewhere, as_read, same_name, suspicious, takeovers

log = logging.getLogger(__name__)

Trust = Literal["pin", "quarantine"]
FIRST_SIGHT = "first sight"
FOLDER = "pins"
MAX_LISTS = 80
"""Filtered lists that are cached: the common list, and as many of some clients as catalogs."""
MAX_FINGERPRINTS = 20_000
MAX_FOR_SOME = 256
"""Withheld definitions that only some clients are offered."""
MAX_LOGGED = 5
"""Definitions that one change logs by name."""


class _Inspector:
    """Fingerprints and hints of definitions. An unchanged definition is the same object."""

    def __init__(self) -> None:
        self._fingerprints: Lru[int, tuple[Json, str]] = Lru(MAX_FINGERPRINTS)
        self._hints: Lru[str, tuple[str, ...]] = Lru(MAX_FINGERPRINTS)

    def item(self, kind: PinnedKind, name: str, definition: Json) -> Item:
        known = self._fingerprints.get(id(definition))
        if known is None:
            known = (definition, fingerprint(definition))
            self._fingerprints[id(definition)] = known
        return Item(kind, name, known[1], definition)

    def items(self, offers: Offers) -> list[Item]:
        return [self.item(kind, name, definition) for kind, name, definition in named(offers)]

    def hints(self, item: Item) -> tuple[str, ...]:
        hints = self._hints.get(item.fingerprint)
        if hints is None:
            hints = self._hints[item.fingerprint] = suspicious(item.definition)
        return hints

    def keep_only(self, lists: Iterable[Offers]) -> None:
        """Forget other definitions: they may be large, and new ones may come each second."""
        offered = {id(definition) for offers in lists for _, _, definition in named(offers)}
        for key in self._fingerprints.keys() - offered:
            del self._fingerprints[key]


class Pinned:
    """One server. Implements `upstreams.context.Admission`."""

    def __init__(
        self,
        server: str,
        kept: Kept,
        changed: Callable[[], None],
        elsewhere: Callable[[], Elsewhere],
        broken: str | None = None,
        again: Callable[[], Kept | None] = lambda: None,
    ) -> None:
        """`changed` is called when `kept` has to be saved. `elsewhere` returns the tools of other
        servers. `broken`: why it is not known what was approved. `again` reads what other gateways
        have saved."""
        self.server = server
        self.kept = kept
        self.trust: Trust = "pin"
        self.broken = broken
        self._changed = changed
        self._again = again
        self._elsewhere = elsewhere
        self._inspector = _Inspector()
        self._shown_of: Lru[int, tuple[Offers, Offers]] = Lru(MAX_LISTS)
        """By identity of a list, with the list, so that its identity is not used again."""
        self.also: Sequence[str] = ()
        """Resources and templates that a server in quarantine offers."""

    # What clients see

    @property
    def shown(self) -> bool:
        return self.broken is None and (self.trust == "pin" or self.kept.released is not None)

    @property
    def seen(self) -> bool:
        """Whether anything was approved. Before, only lists from the server itself count."""
        return self.kept.since is not None

    @property
    def held(self) -> int:
        return len(self.kept.held)

    @property
    def notes(self) -> list[str]:
        """For the administrator."""
        command = f"`mcpx approve {self.server}`"
        if self.broken is not None:
            return [f"held back: {self.broken}; {command} shows what it offers and starts anew"]
        if not self.shown:
            return [f"in quarantine: {command} shows what it offers"]
        if not self.held:
            return []
        plural = "s" * (self.held != 1)
        return [f"{self.held} new or changed definition{plural} held back: {command}"]

    def admitted(self, offers: Offers) -> Offers:
        """Return what clients may see, as the same object if that is all."""
        known = self._shown_of.use(id(offers))
        if known is not None:
            return known[1]
        shown: Offers = {kind: [] for kind in KINDS}
        if self.shown:
            shown = _approved(offers, self.kept, self._inspector)
        self._shown_of[id(offers)] = (offers, shown)
        return shown

    def instructions(self, text: str) -> str:
        """Return the instructions, or those that were approved last."""
        if not text or not self.shown:
            return ""
        if self.kept.approves(instructions_item(text)):
            return text
        before = self.kept.approved.get(("instructions", INSTRUCTIONS))
        if before is None or before.definition is None:
            return ""
        return str(before.definition.get(INSTRUCTIONS, ""))

    # What the server lists

    def studying(self, offers: Offers) -> Work[None]:
        """Compute fingerprints and hints of a new list, in slices."""
        for kind, name, definition in named(offers):
            item = self._inspector.item(kind, name, definition)
            if not self.kept.approves(item):
                self._inspector.hints(item)
            yield

    def look(
        self, offers: Offers, instructions: str, told: Collection[Kind], some: Iterable[Offers] = ()
    ) -> None:
        """Judge the lists of the server. `told`: kinds that it has listed itself. `some`: lists
        that only some clients are offered."""
        some = tuple(some)
        items = self._inspector.items(offers)
        self._inspector.keep_only((offers, *some))
        if instructions:
            items.append(instructions_item(instructions))
        self.also = [
            f"{len(offers[kind])} {kind}" for kind in ("resources", "templates") if offers.get(kind)
        ]
        if self.trust == "pin" and self.broken is None:
            self._approve_at_first_sight(items, told)
        for_some = (item for offered in some for item in self._inspector.items(offered))
        self._hold(items, for_some)
        self._shown_of.clear()

    def _approve_at_first_sight(self, items: Sequence[Item], told: Collection[Kind]) -> None:
        """A list that could not be read at first is approved when it is read."""
        kept = self.kept
        if kept.since is not None and all(kind in kept.kinds for kind in LISTED if kind in told):
            return
        others = self._again()  # For them, the definitions may be new.
        if others is not None:
            kept.take_up(others)
        if self.broken is not None:
            return
        first: set[PinnedKind] = {
            kind for kind in LISTED if kind in told and kind not in kept.kinds
        }
        if kept.since is None:
            if all(item.kind == "instructions" for item in items):
                return  # The server may list more after a sign-in.
            kept.since = time.time()
            first.add("instructions")
        if not first:
            return
        approved = [item for item in items if item.kind in first]
        for item in approved:
            kept.approve(item, time.time(), FIRST_SIGHT)
        kept.kinds |= frozenset(first)
        # Of many definitions, only quick checks. `mcpx pins` shows all hints.
        elsewhere = self._elsewhere()
        hints = [(*self._inspector.hints(item), *same_name(item, elsewhere)) for item in approved]
        _log_first_sight(self.server, approved, hints)
        self._changed()

    def _hold(self, items: Iterable[Item], for_some: Iterable[Item]) -> None:
        kept, before = self.kept, self.kept.held
        known = {key for key, _ in before}
        unapproved = [(item, False) for item in items if not kept.approves(item)]
        special = ((item, True) for item in for_some if not kept.approves(item))
        kept.held = {}
        for item, is_special in (*unapproved, *islice(special, MAX_FOR_SOME)):
            place = (item.key, item.fingerprint)
            if place not in kept.held:
                kept.held[place] = Held(item, time.time(), is_special)
                if place in before:
                    kept.held[place] = replace(before[place], item=item, for_some=is_special)
        if self.shown:
            new = [held.item for (key, _), held in kept.held.items() if key not in known]
            _log_held(self, new)
        if kept.held.keys() != before.keys():
            self._changed()

    # Decisions

    def hints(self, item: Item) -> tuple[str, ...]:
        return (
            *self._inspector.hints(item),
            *takeovers(item, lambda: own_names(self.kept), self._elsewhere()),
        )

    def approve(self, fingerprints: Collection[str], by: str, *, release: bool) -> list[Held]:
        """Approve withheld definitions. If `release`, release the server from quarantine."""
        wanted = set(fingerprints)
        chosen = [held for held in self.kept.held.values() if held.item.fingerprint in wanted]
        now = time.time()
        if release and not self.shown:
            self.kept.since, self.kept.released = self.kept.since or now, now
            self.kept.kinds |= frozenset(LISTED)
            self.broken = None
        for held in chosen:
            self.kept.approve(held.item, now, by)
            log.info("[%s] approved: %s", self.server, called(held.item.key))
        self._shown_of.clear()
        self._changed()
        return chosen

    def taken_up(self, other: Kept) -> bool:
        """Add what others approved. Return whether anything is new."""
        news = self.kept.take_up(other)
        if news:
            self._shown_of.clear()
        return news

    def set_trust(self, trust: Trust) -> None:
        if trust == self.trust:
            return
        self.trust = trust
        self._shown_of.clear()
        if not self.shown:
            log.warning("[%s] in quarantine until `mcpx approve %s`", self.server, self.server)


def _approved(offers: Offers, kept: Kept, inspector: _Inspector) -> Offers:
    """Return the approved definitions, as the same object if that is all."""

    def is_approved(kind: Literal["tools", "prompts"], definition: Json) -> bool:
        name = as_object(definition).get("name")
        if not isinstance(name, str):
            return False
        return kept.approves(inspector.item(kind, name, definition))

    approved: Offers = dict(offers)
    for kind in LISTED:
        if kind in offers:
            approved[kind] = [each for each in offers[kind] if is_approved(kind, each)]
    if all(len(approved[kind]) == len(offers[kind]) for kind in offers):
        return offers
    return approved


def _log_first_sight(
    server: str, approved: Sequence[Item], hints: Sequence[tuple[str, ...]]
) -> None:
    if not approved:
        return
    kinds = [item.kind for item in approved]
    counts = [f"{kinds.count(kind)} {kind}" for kind in LISTED if kind in kinds]
    log.info("[%s] pinned at first sight: %s", server, ", ".join(counts) or "its instructions")
    doubtful = [pair for pair in zip(approved, hints, strict=True) if pair[1]]
    for item, found in doubtful[:MAX_LOGGED]:
        log.warning("[%s] pinned, but look at it: %s %s", server, item.called, "; ".join(found))
    left = len(doubtful) - MAX_LOGGED
    if left > 0:
        text = "[%s] pinned, but look at them: %d more, see `mcpx pins %s`"
        log.warning(text, server, left, server)


def _log_held(pinned: Pinned, new: Sequence[Item]) -> None:
    server, command = pinned.server, f"`mcpx approve {pinned.server}`"
    for item in new[:MAX_LOGGED]:
        how = "is new"
        if item.key in pinned.kept.approved:
            how = "has changed"
        text = "; ".join([f"{item.called} {how}", *pinned.hints(item)])
        log.warning("[%s] held back: %s; see %s", server, text, command)
    left = len(new) - MAX_LOGGED
    if left > 0:
        log.warning("[%s] held back: %d more; see %s", server, left, command)


def is_waiting(pinned: Pinned) -> bool:
    """Return whether an administrator has to decide something."""
    return bool(pinned.kept.held) or not pinned.shown


def own_names(kept: Kept) -> set[str]:
    """Names of the server's tools, as they read."""
    keys = [*kept.approved, *(key for key, _ in kept.held)]
    return {as_read(name) for kind, name in keys if kind == "tools"}


class Pins:
    """All pinned servers of a gateway, and their files."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: the state folder. None saves nothing."""
        self.folder = None
        if folder is not None:
            self.folder = folder / FOLDER
        self.changed: Callable[[str], None] = lambda _: None
        """Called with a server whose state has to be saved."""
        self.elsewhere: Callable[[str], Elsewhere] = lambda _: {}
        """Returns the tools of all servers but this one."""
        self._servers: dict[str, Pinned] = {}
        self._has_warned = False

    @property
    def servers(self) -> Mapping[str, Pinned]:
        """Servers that were used so far."""
        return self._servers

    def of(self, server: str, trust: Trust | None = None) -> Pinned:
        """Return the same object for the life of the process, whatever the configuration says."""
        pinned = self._servers.get(server)
        if pinned is None:
            kept, broken = self._read(server)
            pinned = self._servers[server] = Pinned(
                server,
                kept or Kept(),
                lambda: self.changed(server),
                lambda: self.elsewhere(server),
                broken,
                lambda: self._read_again(server),
            )
        if trust is not None:
            pinned.set_trust(trust)
        return pinned

    def _read(self, server: str) -> tuple[Kept | None, str | None]:
        """Return what is kept, and why it cannot be read."""
        if self.folder is None:
            if not self._has_warned:
                text = (
                    "there is no state folder: what is pinned is forgotten when this process ends"
                )
                log.warning(text)
            self._has_warned = True
            return None, None
        try:
            return PinFile(self.folder, server).load(), None
        except UnreadableState as problem:
            log.error("[%s] all definitions are withheld: %s", server, problem)
            return None, str(problem)

    def _read_again(self, server: str) -> Kept | None:
        kept, self._servers[server].broken = self._read(server)
        return kept

    def mark(self, server: str) -> tuple[int, int] | None:
        """Changes with each writing of the file."""
        if self.folder is None:
            return None
        try:
            found = PinFile(self.folder, server).path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    def read(self, server: str) -> Kept | None:
        """Return the content of the file, or None if it does not exist or cannot be read."""
        if self.folder is None:
            return None
        try:
            return PinFile(self.folder, server).load()
        except UnreadableState as problem:
            log.warning("[%s] %s", server, problem)
            return None

    def believes(self, server: str) -> bool:
        """Return whether annotations of a server count. Those of approved definitions do."""
        pinned = self._servers.get(server)
        return pinned is None or pinned.broken is None

    def write(self, server: str, kept: Kept, *, mend: bool) -> Kept | None:
        """Save in a thread, with what others approved. Return what was written, if anything."""
        if self.folder is None:
            return None
        return PinFile(self.folder, server).save(kept, mend=mend)
