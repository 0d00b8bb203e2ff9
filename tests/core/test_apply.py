"""CFG-5: taking up another configuration, inside one process."""

import asyncio
from pathlib import Path
from typing import Any, Self

import pytest

from kit.callers import older_caller
from kit.core_gateway import CoreGateway
from kit.loop import run
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.config import Config, Global, Server
from mcpx.core import gateway as module
from mcpx.core import reports
from mcpx.model.call import Call, Json
from mcpx.model.errors import INTERNAL_ERROR, NotFound, RpcError, Unavailable
from mcpx.model.events import OffersChanged


def config(*servers: Server, **fields: Any) -> Config:
    return Config(mcp_servers=servers, global_=Global(startup_wait=2.0), **fields)


class ReloadedGateway(CoreGateway):
    """A gateway that records which lists its changes announce."""

    def __init__(self, *servers: Server, state: Path | None = None) -> None:
        super().__init__(config(*servers), state)
        self.announced: list[set[str]] = []
        self.gateway.bus.subscribe(self._hear, OffersChanged)

    def _hear(self, event: object) -> None:
        if isinstance(event, OffersChanged):
            self.announced.append(set(event.kinds))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.names()
        return self

    async def call(self, tool: str) -> Json:
        return await self.gateway.handle(
            Call("tools/call", {"name": tool, "arguments": {}}, older_caller())
        )


def test_nothing_changed_is_nothing_done() -> None:
    """CFG-5: the generation is the same object."""

    async def main() -> None:
        toy = ScriptedServer()
        async with ReloadedGateway(toy.server("a")) as core:
            before = core.gateway.generation
            plan = await core.gateway.apply(config(toy.server("a")))
            assert plan.empty and core.gateway.generation is before

    run(main())


def test_what_did_not_change_is_the_same_object_and_what_did_is_announced_once() -> None:
    """CFG-5."""

    async def main() -> None:
        a, b, c = (
            ScriptedServer(tools=("a",)),
            ScriptedServer(tools=("b",)),
            ScriptedServer(tools=("c",)),
        )
        async with ReloadedGateway(a.server("a"), b.server("b")) as core:
            kept = core.gateway.generation.upstreams["a"]
            plan = await core.gateway.apply(config(a.server("a"), c.server("c")))
            assert (plan.kept, plan.started, plan.stopped) == (("a",), ("c",), ("b",))
            assert core.gateway.generation.upstreams["a"] is kept
            assert await core.names() == ["a", "c"]
            await until(lambda: core.announced)
            assert core.announced == [{"tools"}]
            await until(lambda: not b.alive)
            assert len(a.alive) == len(c.alive) == 1

    run(main())


def test_the_new_state_is_shown_when_servers_have_listed_and_not_before() -> None:
    """CFG-5: until then everybody sees the old one, whole."""

    async def main() -> None:
        a, b = ScriptedServer(tools=("a",)), ScriptedServer(tools=("b",))
        b.opening.clear()
        async with ReloadedGateway(a.server("a")) as core:
            applying = asyncio.create_task(core.gateway.apply(config(b.server("b"))))
            await until(lambda: b.attempts)
            assert await core.names() == ["a"]
            assert not applying.done()
            b.opening.set()
            await applying
            assert await core.names() == ["b"]

    run(main())


def test_a_server_that_takes_too_long_does_not_hold_up_the_new_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CFG-5: it is announced when it comes."""
    monkeypatch.setattr(module, "PUBLISH_AFTER", 0.05)
    monkeypatch.setattr(reports, "GAP", 0.01)

    async def main() -> None:
        a, slow = ScriptedServer(tools=("a",)), ScriptedServer(tools=("slow",))
        slow.opening.clear()
        async with ReloadedGateway(a.server("a")) as core:
            await core.gateway.apply(config(a.server("a", prefix="x"), slow.server("slow")))
            await until(lambda: len(core.announced) == 1)
            slow.opening.set()
            await until(lambda: len(core.announced) == 2)
            assert await core.names() == ["x_a", "slow"]

    run(main())


def test_a_failed_start_is_no_reason_to_show_the_new_state() -> None:
    """CFG-5: the old server serves until the new one has listed, which a later attempt may
    bring."""

    async def main() -> None:
        old, new = ScriptedServer(tools=("old",)), ScriptedServer(tools=("new",))
        new.down = "not yet"
        async with ReloadedGateway(old.server("a")) as core:
            applying = asyncio.create_task(
                core.gateway.apply(config(new.server("a", retry_delay=0.01, max_retries=99)))
            )
            await until(lambda: new.attempts > 2)
            assert not applying.done() and await core.call("old")
            new.down = None
            await applying
            assert await core.names() == ["new"]

    run(main())


def test_what_the_predecessor_offered_stays_until_the_new_one_says_what_it_offers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CFG-5, LIF-4: also over several edits; a list that cannot be read is then empty, not another
    program's."""
    monkeypatch.setattr(module, "PUBLISH_AFTER", 0.05)

    async def main() -> None:
        async def fails(line: ScriptedConnection, params: Json) -> Json:
            raise RpcError(INTERNAL_ERROR, "no list today")

        old, worse, other = (
            ScriptedServer(tools=("old",)),
            ScriptedServer(),
            ScriptedServer(answers={"tools/list": fails}),
        )
        worse.down = other.down = "exited with code 1"
        async with ReloadedGateway(old.server("a")) as core:
            for toy in (worse, other):
                await core.gateway.apply(config(toy.server("a", retry_delay=60)))
                assert await core.names() == ["old"]
                with pytest.raises(Unavailable, match=r"^a: exited with code 1$"):
                    await core.call("old")
            assert core.announced == []
            await until(lambda: not old.alive)
            other.down = None
            with pytest.raises(RpcError, match="no such tool"):
                await core.call("old")
            assert await core.names() == []

    run(main())


def test_a_snapshot_of_the_new_server_is_better_than_what_the_old_one_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CFG-5, LIF-1."""
    monkeypatch.setattr(module, "PUBLISH_AFTER", 0.05)

    async def main() -> None:
        old, new = ScriptedServer(tools=("old",)), ScriptedServer(tools=("new",))
        # Toys have no address; in a config that is what makes one server another.
        old.url, new.url = "old", "new"  # pyright: ignore[reportAttributeAccessIssue]
        async with ReloadedGateway(new.server("a"), state=tmp_path):
            pass
        new.down = "exited with code 1"
        async with ReloadedGateway(old.server("a"), state=tmp_path) as core:
            await core.gateway.apply(config(new.server("a")))
            assert await core.names() == ["new"]

    run(main())


def test_nobody_waits_for_a_lazy_server_or_one_that_is_switched_off_and_the_latter_bequeaths_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CFG-5, LIF-4, LIF-5."""
    monkeypatch.setattr(module, "PUBLISH_AFTER", 3600.0)

    async def main() -> None:
        old, new = ScriptedServer(tools=("old",)), ScriptedServer(tools=("new",))
        new.opening.clear()
        async with ReloadedGateway(old.server("a")) as core:
            await core.gateway.apply(config(new.server("a", lazy=True)))
            assert not new.lines and list(core.gateway.catalog.names().values()) == ["old"]
            await core.gateway.apply(config(new.server("a", enabled=False)))
            await core.gateway.apply(config(new.server("a", lazy=True)))
            assert core.gateway.catalog.count("a", "tools") == 0

    run(main())


def test_a_running_call_of_a_server_that_goes_finishes_and_new_ones_find_nothing() -> None:
    """CFG-5."""

    async def main() -> None:
        go, arrived = asyncio.Event(), asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            arrived.set()
            await go.wait()
            return {"content": []}

        a = ScriptedServer(tools={"slow": slow})
        async with ReloadedGateway(a.server("a")) as core:
            call = asyncio.create_task(core.call("slow"))
            await arrived.wait()
            await core.gateway.apply(config())
            with pytest.raises(NotFound):
                await core.call("slow")
            assert a.alive
            go.set()
            assert await call == {"content": []}
            await until(lambda: not a.alive)

    run(main())


def test_two_changes_at_once_come_one_after_the_other_and_the_last_stays() -> None:
    """CFG-5: a storm of edits ends in its last state."""

    async def main() -> None:
        toys = {f"t{number}": ScriptedServer(tools=(f"t{number}",)) for number in range(5)}
        async with ReloadedGateway() as core:
            await asyncio.gather(
                *(core.gateway.apply(config(toy.server(name))) for name, toy in toys.items())
            )
            assert await core.names() == ["t4"]
            await until(lambda: sum(len(toy.alive) for toy in toys.values()) == 1)

    run(main())


@pytest.mark.parametrize("when", ["starting", "draining"])
def test_an_end_in_the_middle_closes_what_comes_and_what_goes(when: str) -> None:
    """CFG-5, LIF-8: neither the next generation's servers nor the last one's are left behind."""

    async def main() -> None:
        arrived = asyncio.Event()

        async def slow(line: ScriptedConnection, params: Json) -> Json:
            arrived.set()
            return await asyncio.get_running_loop().create_future()

        a, b, hanging = (
            ScriptedServer(tools={"slow": slow}),
            ScriptedServer(tools=("b",)),
            ScriptedServer(),
        )
        hanging.opening.clear()
        async with ReloadedGateway(a.server("a")) as core:
            call = asyncio.create_task(core.call("slow"))
            await arrived.wait()
            servers = [b.server("b"), *([hanging.server("hanging")] if when == "starting" else [])]
            applying = asyncio.create_task(core.gateway.apply(config(*servers)))
            if when == "starting":
                await until(lambda: b.lines and hanging.attempts)
                applying.cancel()
            await asyncio.wait([applying])
        assert a.alive == b.alive == []
        await asyncio.wait([call])
        assert call.exception() is not None

    run(main())
