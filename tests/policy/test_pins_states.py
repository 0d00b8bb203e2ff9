"""SEC-5: pins through first sight, change, refreshes, restart, revert, approval, in any order,
against a model."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcpx.model.offer import Offers
from mcpx.policy.pins.fingerprint import fingerprint
from mcpx.policy.pins.pinned import Pinned, Pins, Trust

NAMES = ("read", "write", "send")
VERSIONS = st.integers(0, 3)
LISTS = st.dictionaries(st.sampled_from(NAMES), VERSIONS)


def tool(name: str, version: int) -> dict[str, Any]:
    return {"name": name, "description": f"version {version}", "inputSchema": {"type": "object"}}


def offers(listed: dict[str, int], prompts: dict[str, int] | None = None) -> Offers:
    def made(some: dict[str, int]) -> list[dict[str, Any]]:
        return [tool(name, version) for name, version in some.items()]

    return {
        "tools": made(listed),
        "prompts": made(prompts or {}),
        "resources": [{"uri": "a://b", "name": "b"}],
        "templates": [],
    }


class Held(RuleBasedStateMachine):
    """The model is a set of what was approved, and whether anything was ever seen or let out."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="mcpx-pins-")
        self.trust: Trust = "pin"
        self.listed: dict[str, int] = {}
        self.some: dict[str, int] = {}
        self.said = 0
        self.approved: dict[str, list[int]] = {}
        self.approved_words: list[int] = []
        self.seen = self.released = False
        self.start()

    def start(self) -> None:
        self.pins = Pins(Path(self.folder.name))
        self.pins.changed = self.keep
        self.unwritten = self.connected = False

    def keep(self, server: str) -> None:
        self.unwritten = True

    @property
    def pinned(self) -> Pinned:
        return self.pins.of("box", self.trust)

    @initialize(listed=LISTS)
    def first(self, listed: dict[str, int]) -> None:
        self.listed = listed
        self.look()

    def look(self) -> None:
        """The server is connected, or reads its lists again."""
        self.connected = True
        text = f"words {self.said}" if self.said else ""
        every = ("tools", "prompts", "resources", "templates")
        self.pinned.look(offers(self.listed), text, every, [offers(self.some)] if self.some else [])
        if self.trust == "pin" and not self.seen and self.listed:
            self.seen = True
            for one in offers(self.listed)["tools"]:
                self.note("tools", one["name"], one)
            if text:
                self.note("instructions", "", {"instructions": text})

    @rule(listed=LISTS, said=st.integers(0, 2))
    def changes(self, listed: dict[str, int], said: int) -> None:
        self.listed, self.said = listed, said
        self.look()

    @rule()
    def refreshes(self) -> None:
        self.look()
        self.look()

    @rule(some=LISTS)
    def offers_more_to_some(self, some: dict[str, int]) -> None:
        self.some = {**self.listed, **some}
        self.look()

    @rule()
    def restarts(self) -> None:
        """Gateway and server: what is known is on disk. The snapshot may be gone, so nothing is
        looked at yet."""
        if self.unwritten:
            self.pins.write("box", self.pinned.kept.copy(), mend=False)
        self.start()

    @rule(trust=st.sampled_from(["pin", "quarantine"]))
    def reloads(self, trust: Trust) -> None:
        self.trust = trust
        if self.connected:
            self.look()

    @precondition(lambda self: self.connected)
    @rule(data=st.data())
    def approves_one(self, data: st.DataObject) -> None:
        waiting = [held.item for held in self.pinned.kept.held.values()]
        if not waiting or not self.pinned.shown:
            return
        item = data.draw(st.sampled_from(waiting))
        self.pinned.approve([item.fingerprint], "a test", release=False)
        self.note(item.kind, item.name, item.definition)

    @precondition(lambda self: self.connected)
    @rule()
    def approves_all(self) -> None:
        waiting = [held.item for held in self.pinned.kept.held.values()]
        was_shown = self.pinned.shown
        self.pinned.approve([item.fingerprint for item in waiting], "a test", release=True)
        for item in waiting:
            self.note(item.kind, item.name, item.definition)
        if not was_shown:
            self.seen = self.released = True

    def note(self, kind: str, name: str, definition: dict[str, Any]) -> None:
        if kind == "instructions":
            version = int(definition["instructions"].split()[-1])
            self.approved_words = [version, *(one for one in self.approved_words if one != version)]
        else:
            version = int(definition["description"].split()[-1])
            before = self.approved.get(name, [])
            self.approved[name] = [version, *(one for one in before if one != version)]

    @rule(version=VERSIONS)
    def approves_what_was_shown_before(self, version: int) -> None:
        """A fingerprint of something that does not wait does nothing."""
        waiting = {held.item.fingerprint for held in self.pinned.kept.held.values()}
        shown = fingerprint(tool("read", version))
        if shown not in waiting:
            assert self.pinned.approve([shown], "a test", release=False) == []

    @invariant()
    def shows_what_is_approved_and_nothing_else(self) -> None:
        shown = self.trust == "pin" or self.released
        assert self.pinned.shown is shown
        for listed in (self.listed, self.some):
            raw = offers(
                listed
            )  # new objects: as a snapshot, another link or another session has them
            let = self.pinned.admitted(raw)
            expected = {
                name: v for name, v in listed.items() if shown and v in self.approved.get(name, [])
            }
            assert {
                one["name"]: int(one["description"].split()[-1]) for one in let["tools"]
            } == expected
            assert self.pinned.admitted(raw) is let
            assert bool(let["resources"]) is shown
        words = f"words {self.said}" if self.said else ""
        said = self.pinned.instructions(words)
        if not shown or not words:
            assert said == ""
        elif self.said in self.approved_words:
            assert said == words
        else:
            assert said == (f"words {self.approved_words[0]}" if self.approved_words else "")

    @invariant()
    def counts_what_is_held(self) -> None:
        if self.connected:
            lists = [*self.listed.items(), *self.some.items()]
            waiting = {one for one in lists if one[1] not in self.approved.get(one[0], [])}
            words = 1 if self.said and self.said not in self.approved_words else 0
            if self.seen or self.trust == "quarantine":
                assert self.pinned.held == len(waiting) + words

    def teardown(self) -> None:
        self.folder.cleanup()


Held.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestHeld = Held.TestCase
