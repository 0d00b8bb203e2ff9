"""One server whose definitions are pinned: what of it clients may find, and what waits for
somebody's word.

`look` is told what the server itself lists now; only there is anything approved at first sight.
`admitted` is asked of any list of it, an older run's and one of a single session too, and lets
through what is approved, whatever the list. In quarantine, and while it cannot be known what was
approved, nothing of the server is shown at all.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Literal

from mcpx.model.call import Json, as_object
from mcpx.model.offer import KINDS, Kind, Offers
from mcpx.model.slices import Work
from mcpx.policy.pins.fingerprint import (
    INSTRUCTIONS,
    LISTED,
    Item,
    Key,
    PinnedKind,
    called,
    fingerprint,
    instructions_item,
    named,
)
from mcpx.policy.pins.kept import Held, Kept
from mcpx.policy.pins.marks import suspicious
from mcpx.policy.pins.takeovers import Elsewhere, as_read, same_name, takeovers

log = logging.getLogger(__name__)

Trust = Literal["pin", "quarantine"]
FIRST_SIGHT = "first sight"
LISTS = 80
"""Lists of which is remembered what was let through: everybody's, and as many of some clients as
catalogs are kept."""
FINGERPRINTS = 20_000
"""Definitions whose fingerprints, and hints, are remembered."""
FOR_SOME = 256
"""Held definitions of some clients only that are remembered."""
TOLD = 5
"""Definitions that are named in the log at a time."""


class Pinned:
    """Implements `upstreams.admission.Admission`."""

    def __init__(
        self,
        server: str,
        kept: Kept,
        changed: Callable[[], None],
        elsewhere: Callable[[], Elsewhere],
        broken: str | None = None,
        again: Callable[[], Kept | None] = lambda: None,
    ) -> None:
        """`changed`: it is to be kept; `elsewhere`: what other servers have; `broken`: why it is
        not known what was approved; `again`: what others who share the folder have kept by now."""
        self.server = server
        self.kept = kept
        self.trust: Trust = "pin"
        self.broken = broken
        self._changed = changed
        self._again = again
        self._elsewhere = elsewhere
        self._prints: dict[int, tuple[Json, str]] = {}
        """By identity: a definition that did not change is the same object."""
        self._marks: dict[str, tuple[str, ...]] = {}
        self._let: dict[int, tuple[Offers, Offers]] = {}
        """Lists and what was let through of them; the one longest unused first."""
        self._said: tuple[str, str] | None = None
        """Instructions and what was let through of them."""
        self.also: Sequence[str] = ()
        """What else there is while nothing is shown, in words."""

    # What clients find
    # -------------------------------------------------------------------------------------------

    @property
    def shown(self) -> bool:
        return self.broken is None and (self.trust == "pin" or self.kept.released is not None)

    @property
    def seen(self) -> bool:
        """Whether anything was ever approved: until then nothing counts but what the server says
        itself."""
        return self.kept.since is not None

    @property
    def held(self) -> int:
        return len(self.kept.held)

    @property
    def waits(self) -> bool:
        """Whether somebody has to decide something."""
        return bool(self.kept.held) or not self.shown

    @property
    def notes(self) -> list[str]:
        """What there is to tell to whoever looks after the gateway."""
        if self.broken is not None:
            return [
                f"held back: {self.broken}; `mcpx approve {self.server}` shows what is there and "
                "makes it anew"
            ]
        if not self.shown:
            return [f"in quarantine: `mcpx approve {self.server}` shows what it offers"]
        number = self.held
        told = (
            f"{number} new or changed definition{'s' * (number != 1)} held back: `mcpx approve "
            f"{self.server}`"
        )
        return [told] if number else []

    def admitted(self, offers: Offers) -> Offers:
        """What of a list clients may find: the same object where that is all of it."""
        if (known := self._let.pop(id(offers), None)) is not None:
            self._let[id(offers)] = known  # the one used last is the last
            return known[1]
        if not self.shown:
            let: Offers = {kind: [] for kind in KINDS}
        else:
            let = {
                **offers,
                **{kind: self._approved(kind, offers[kind]) for kind in LISTED if kind in offers},
            }
            if all(len(let[kind]) == len(offers[kind]) for kind in LISTED if kind in offers):
                let = offers
        self._let[id(offers)] = (offers, let)
        if len(self._let) > LISTS:
            del self._let[next(iter(self._let))]
        return let

    def _approved(
        self, kind: Literal["tools", "prompts"], definitions: Iterable[Json]
    ) -> list[Json]:
        let: list[Json] = []
        for definition in definitions:
            name = as_object(definition).get("name")
            if isinstance(name, str) and self.kept.approves(self._item(kind, name, definition)):
                let.append(definition)
        return let

    def instructions(self, text: str) -> str:
        """What it says about itself, or said when that was approved."""
        if not text or not self.shown:
            return ""
        if self._said is None or self._said[0] != text:
            self._said = (text, self._approved_instructions(text))
        return self._said[1]

    def _approved_instructions(self, text: str) -> str:
        if self.kept.approves(instructions_item(text)):
            return text
        before = self.kept.approved.get(("instructions", INSTRUCTIONS))
        return (
            ""
            if before is None or before.definition is None
            else str(before.definition.get(INSTRUCTIONS, ""))
        )

    # What the server says
    # ------------------------------------------------------------------------------------------

    def _item(self, kind: PinnedKind, name: str, definition: Json) -> Item:
        known = self._prints.get(id(definition))
        if known is None:
            if len(self._prints) >= FINGERPRINTS:
                self._prints.clear()
            known = self._prints[id(definition)] = (definition, fingerprint(definition))
        return Item(kind, name, known[1], definition)

    def studying(self, offers: Offers) -> Work[None]:
        """Before a list is judged: what takes long, in slices."""
        for kind, name, definition in named(offers):
            item = self._item(kind, name, definition)
            if not self.kept.approves(item):
                self._hints(item)
            yield

    def _forget_prints(self, lists: Iterable[Offers]) -> None:
        """Of definitions that are not offered any more: they may be large, and others every
        second."""
        before, self._prints = self._prints, {}
        for offers in lists:
            for _, _, definition in named(offers):
                if (known := before.get(id(definition))) is not None:
                    self._prints[id(definition)] = known

    def _hints(self, item: Item) -> tuple[str, ...]:
        hints = self._marks.get(item.fingerprint)
        if hints is None:
            if len(self._marks) >= FINGERPRINTS:
                self._marks.clear()
            hints = self._marks[item.fingerprint] = suspicious(item.definition)
        return hints

    def look(
        self, offers: Offers, instructions: str, told: Collection[Kind], some: Iterable[Offers] = ()
    ) -> None:
        """What the server lists to everybody, and what to some. `told`: the lists it has told
        itself by now; others are not known yet."""
        some = tuple(some)
        items = [self._item(kind, name, definition) for kind, name, definition in named(offers)]
        self._forget_prints((offers, *some))
        if instructions:
            items.append(instructions_item(instructions))
        self.also = [
            f"{len(offers[kind])} {kind}" for kind in ("resources", "templates") if offers.get(kind)
        ]
        if self.trust == "pin" and self.broken is None:
            self._first_sight(items, told)
        special = (self._item(*one) for offered in some for one in named(offered))
        self._hold(
            items, islice((item for item in special if not self.kept.approves(item)), FOR_SOME)
        )
        self._forget()

    def _first_sight(self, items: Sequence[Item], told: Collection[Kind]) -> None:
        """What is there is approved; of a list that could not be read then, when it is."""
        kept = self.kept
        if all(kind in kept.kinds for kind in LISTED if kind in told) and kept.since is not None:
            return
        # Another gateway may have seen it long ago: what is new to us only is not approved for
        # that.
        if (others := self._again()) is not None:
            kept.take_up(others)
        if self.broken is not None:
            return
        first: set[PinnedKind] = {
            kind for kind in LISTED if kind in told and kind not in kept.kinds
        }
        if kept.since is None:
            if all(item.kind == "instructions" for item in items):
                return  # it may tell more once somebody has signed in
            kept.since = time.time()
            first.add("instructions")
        elif not first:
            return
        approved = [item for item in items if item.kind in first]
        for item in approved:
            kept.approve(item, time.time(), FIRST_SIGHT)
        kept.kinds |= frozenset(first)
        counts = [
            f"{n} {kind[: None if n > 1 else -1]}"
            for kind in LISTED
            if (n := sum(item.kind == kind for item in approved))
        ]
        if approved:
            log.info(
                "[%s] pinned at first sight: %s",
                self.server,
                ", ".join(counts) or "its instructions",
            )
        elsewhere = (
            self._elsewhere()
        )  # of thousands only what is quickly seen; `mcpx pins` has all of it
        doubtful = [
            (item, hints)
            for item in approved
            if (hints := (*self._hints(item), *same_name(item, elsewhere)))
        ]
        for item, hints in doubtful[:TOLD]:
            log.warning(
                "[%s] pinned, but look at it: %s %s", self.server, item.called, "; ".join(hints)
            )
        if len(doubtful) > TOLD:
            log.warning(
                "[%s] and %d more like that: `mcpx pins %s`",
                self.server,
                len(doubtful) - TOLD,
                self.server,
            )
        self._changed()

    def _hold(self, items: Iterable[Item], special: Iterable[Item]) -> None:
        kept, before = self.kept, self.kept.held
        known = {key for key, _ in before}
        now = time.time()
        kept.held = {}
        for for_some, found in ((False, items), (True, special)):
            for item in found:
                place = (item.key, item.fingerprint)
                if place not in kept.held and not kept.approves(item):
                    kept.held[place] = Held(
                        item, before[place].since if place in before else now, for_some
                    )
        if self.shown:
            self._tell([held.item for (key, _), held in kept.held.items() if key not in known])
        if kept.held.keys() != before.keys():
            self._changed()

    def _tell(self, fresh: Sequence[Item]) -> None:
        for item in fresh[:TOLD]:
            how = "has changed" if item.key in self.kept.approved else "is new"
            hints = "".join(f"; {hint}" for hint in self.hints(item))
            log.warning(
                "[%s] held back: %s %s%s; see `mcpx approve %s`",
                self.server,
                item.called,
                how,
                hints,
                self.server,
            )
        if len(fresh) > TOLD:
            log.warning(
                "[%s] held back: %d more; see `mcpx approve %s`",
                self.server,
                len(fresh) - TOLD,
                self.server,
            )

    def _forget(self) -> None:
        """What was let through is to be judged again."""
        self._let.clear()
        self._said = None

    def hints(self, item: Item) -> tuple[str, ...]:
        """What to look at twice in it."""
        return (*self._hints(item), *takeovers(item, self._own, self._elsewhere()))

    def _own(self) -> set[str]:
        """The names of its own tools, as they read."""
        keys: list[Key] = [*self.kept.approved, *(key for key, _ in self.kept.held)]
        return {as_read(name) for kind, name in keys if kind == "tools"}

    # Decisions
    # ----------------------------------------------------------------------------------------------

    def approve(self, fingerprints: Collection[str], by: str, *, release: bool) -> list[Held]:
        """Approve exactly these, of what waits. `release`: the server as a whole, out of
        quarantine."""
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
        self._forget()
        self._changed()
        return chosen

    def taken_up(self, other: Kept) -> bool:
        """Others have approved something; whether that is anything new here."""
        news = self.kept.take_up(other)
        if news:
            self._forget()
        return news

    def mode(self, trust: Trust) -> None:
        if trust != self.trust:
            self.trust = trust
            self._forget()
            if trust == "quarantine" and not self.shown:
                log.warning("[%s] in quarantine until `mcpx approve %s`", self.server, self.server)
