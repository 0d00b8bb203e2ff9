"""In no order of reloads, changes and looks does anybody find what it must not, or less than it may
(SEC-2, SUR-1)."""

import random
from dataclasses import replace
from typing import Any

import pytest

from kit.callers import older_caller
from kit.loop import run, yield_to_loop
from kit.server import ScriptedServer
from kit.until import until
from mcpx.config import Config, Global, Policy, PolicyRule, Profile
from mcpx.core.gateway import Gateway
from mcpx.core.view import CallersView
from mcpx.model.call import Caller, Json
from mcpx.model.offer import Offer
from mcpx.upstreams.context import ListsRead, ListsVary
from mcpx.upstreams.traits import kind_of

NAMES = ("read", "write", "list", "drop")
PATTERNS: tuple[tuple[str, ...], ...] = (
    ("*",),
    ("read", "list"),
    ("!drop",),
    ("a.*",),
    ("b_*", "write"),
    ("none",),
)
RULES = (
    PolicyRule(effect="deny", tools=("drop",)),
    PolicyRule(effect="deny", principals=("bob",), servers=("b",)),
    PolicyRule(effect="allow", read_only=True, principals=("ann",)),
    PolicyRule(effect="deny", destructive=True, profiles=("p",)),
    PolicyRule(effect="deny", tools=("write",), reason="no"),
    PolicyRule(effect="deny", tools=("list",), arguments={"a": "b"}),
)


class World:
    """A gateway that changes by chance, and what each of its callers should find."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.toys = {"a": ScriptedServer("older", tools=()), "b": ScriptedServer("older", tools=())}
        self.base = Config(
            mcp_servers=tuple(toy.server(name) for name, toy in self.toys.items()),
            global_=Global(startup_wait=5.0),
        )
        self.gateway = Gateway(self.base, {})
        self.callers = [
            older_caller(
                f"{who}-{profile}-{askable}", askable=askable, principal=who, profile=profile
            )
            for who in ("ann", "bob")
            for profile in (None, "p", "q")
            for askable in (False, True)
        ]
        self.views = [self.view(caller) for caller in self.callers]

    def view(self, caller: Caller) -> CallersView:
        return CallersView(self.gateway, self.gateway.generation, caller)

    # What happens
    # ----------------------------------------------------------------------------------------------

    def tools(self) -> list[Json]:
        return [
            {"name": name, "annotations": {"readOnlyHint": self.chance.random() < 0.5}}
            for name in NAMES
            if self.chance.random() < 0.7
        ]

    async def reload(self) -> None:
        chance = self.chance
        profiles = [
            Profile(name=name, tools=chance.choice(PATTERNS), read_only=chance.random() < 0.2)
            for name in "pq"
        ]
        rules = tuple(rule for rule in chance.sample(RULES, len(RULES)) if chance.random() < 0.4)
        policy = Policy(default=chance.choice(("allow", "allow", "deny")), rules=rules)
        profiles = tuple(profile for profile in profiles if chance.random() < 0.7)
        guarded = chance.random() < 0.8
        await self.gateway.apply(
            replace(self.base, profiles=profiles, policy=policy) if guarded else self.base
        )

    def change(self) -> None:
        name = self.chance.choice("ab")
        book = self.gateway.generation.upstreams[name].book
        what = self.chance.randrange(4)
        if what == 0:
            book.common = {**book.common, "tools": self.tools()}
            self.gateway.reports.publish(ListsRead(name, ("tools",), True))
            return
        session = self.chance.choice([caller for caller in self.callers if caller.answers]).session
        assert session is not None
        if what == 1:
            book.by_kind[kind_of(self.callers[1].capabilities)] = {
                **book.common,
                "tools": self.tools(),
            }
        elif what == 2:
            book._by_session[session] = {**book.common, "tools": self.tools()}
        else:
            book._by_session.pop(session, None)
        self.gateway.reports.publish(ListsVary(name, ("tools",), session))

    # What is found
    # ----------------------------------------------------------------------------------------------

    def offered(self, caller: Caller) -> set[tuple[str, str]]:
        return {
            (source.name, tool["name"])
            for source in self.gateway.generation.sources
            for tool in source.offers(caller)["tools"]
        }

    def found(self, caller: Caller) -> list[Offer]:
        return list(self.gateway.catalogs.of(caller).offers["tools"])

    def check(self) -> None:
        """At any moment: nobody finds what it does not see by now, whatever is still being
        built."""
        for place, caller in enumerate(self.callers):
            view, sight = self.views[place], self.gateway.access.sight(caller)
            found = self.found(caller)
            assert [*view.catalog.offers["tools"]] == found
            if sight is not None:
                assert [offer for offer in found if not sight.offer(offer)] == []
            if self.chance.random() < 0.2:
                self.views[place] = self.view(caller)

    async def settle(self) -> None:
        """When all is built: everybody finds exactly what is offered to it and seen by it."""
        for caller in self.callers:
            while await self.gateway.catalogs.ready(caller):
                pass
            sight, found = self.gateway.access.sight(caller), self.found(caller)
            told = {(offer.server, offer.name, str(offer.definition)) for offer in found}
            whole = {
                (offer.server, offer.name, str(offer.definition)): offer
                for offer in self.gateway.catalogs._whole_of(caller).offers["tools"]
            }
            assert {(server, name) for server, name, _ in whole} == self.offered(caller)
            assert told == {
                key for key, offer in whole.items() if sight is None or sight.offer(offer)
            }


@pytest.mark.parametrize("at_once", [0, 3_000])
@pytest.mark.parametrize("seed", range(6))
def test_in_any_order_of_reloads_and_changes_everybody_finds_what_it_sees(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpx.core.narrowing.AT_ONCE", at_once)
    monkeypatch.setattr("mcpx.core.catalogs.AT_ONCE", at_once)
    monkeypatch.setattr("mcpx.catalog.narrowed._PIECE", 1)
    monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)

    async def main() -> None:
        world = World(seed)
        world.gateway.start()
        try:
            await until(
                lambda: all(
                    upstream.known for upstream in world.gateway.generation.upstreams.values()
                )
            )
            steps: list[Any] = [world.change, world.change, world.change, world.reload]
            for number in range(120):
                done = world.chance.choice(steps)()
                if done is not None:
                    await done
                world.check()
                for _ in range(world.chance.randrange(4)):
                    await yield_to_loop(1)
                    world.check()
                if number % 10 == 0:
                    await world.settle()
            await world.settle()
        finally:
            await world.gateway.close()

    run(main())
