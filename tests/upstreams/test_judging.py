"""SEC-5: no call reaches a process of a pinned server in which what is called is not approved, in
whatever order."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.callers import RecordingChannel, modern_caller, older_caller
from kit.loop import never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import NotFound, RpcError, Unavailable
from mcpx.policy.pins.pinned import Pins
from mcpx.upstreams.context import UpstreamContext
from mcpx.upstreams.life import Gate
from mcpx.upstreams.snapshot import Snapshots
from mcpx.upstreams.upstream import Upstream

NAMES = ("read", "write")


def tool(name: str, version: int) -> Json:
    hints = {"readOnlyHint": name == "read"}
    return {
        "name": name,
        "description": f"version {version}",
        "inputSchema": {"type": "object"},
        "annotations": hints,
    }


class Program(ScriptedServer):
    """Each conversation is a process, which offers what its program had when it was started."""

    starts_process = True

    def __init__(self, *eras: str) -> None:
        super().__init__(*eras)
        self.versions: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.started: dict[ScriptedConnection, dict[str, int]] = {}
        self.lists = 0
        self.listing = asyncio.Event()
        """Lists are answered; set unless a test clears it."""
        self.listing.set()
        self.refusal: str | None = None
        """What it says instead of its list."""
        self.fatal = False
        """The next call ends the process."""
        self.asks = False
        """Calls ask for the client's roots, so that the process is that client's from then on."""
        self.reached: list[Json] = []
        """Definitions, as they are in the process that was called."""
        self.pins = Pins(None)
        self.slipped: list[Json] = []
        """Those that were not approved."""

    async def open(self, dial: Any) -> ScriptedConnection:
        line = await super().open(dial)
        self.started[line] = dict(self.versions)
        return line

    async def answer(self, line: ScriptedConnection, method: str, params: Json) -> Json:
        if method == "tools/list":
            self.lists += 1
            await yield_to_loop(5)  # a call may come meanwhile
            await self.listing.wait()
            if self.refusal is not None:
                raise RpcError(-32000, self.refusal)
            return {"tools": [tool(*one) for one in self.started[line].items()]}
        if method == "tools/call":
            called = tool(params["name"], self.started[line][params["name"]])
            self.reached.append(called)
            if self.pins.of("toy").admitted({"tools": [called]})["tools"] != [called]:
                self.slipped.append(called)
            if self.asks and line.era == "older":
                await line.ask("roots/list")
            if self.fatal:
                self.fatal = False
                line.die()
                await never_return()
            return {"content": []}
        return await super().answer(line, method, params)


class On:
    """A pinned upstream over a program."""

    def __init__(self, program: Program, **fields: Any) -> None:
        self.program = program
        context = UpstreamContext(
            {},
            Snapshots(None),
            Gate(8),
            admission=lambda server: program.pins.of(server.name, "pin"),
        )
        self.upstream = Upstream(program.server(trust="pin", retry_delay=0.01, **fields), context)

    async def __aenter__(self) -> "On":
        self.upstream.connection.start()
        await self.upstream.life.connected_once.wait()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.upstream.close()
        assert self.program.alive == []
        assert self.program.slipped == []

    async def call(self, caller: Caller, name: str = "read") -> Json:
        given = {"name": name}
        return await self.upstream.call(
            Call("tools/call", given, caller), given, repeatable=name == "read"
        )

    async def outcome(self, caller: Caller, name: str) -> str:
        try:
            await self.call(caller, name)
        except NotFound:
            return "unknown"
        except Unavailable:
            return "unavailable"
        return "ok"

    def approve(self) -> None:
        pinned = self.program.pins.of("toy")
        pinned.approve(
            [held.item.fingerprint for held in pinned.kept.held.values()], "a test", release=False
        )

    def approved(self, name: str) -> bool:
        """Whether it is, in every process there is and in the next."""
        versions = {
            self.program.versions[name],
            *(self.program.started[line][name] for line in self.program.alive),
        }
        pinned = self.program.pins.of("toy")
        return all(pinned.admitted({"tools": [tool(name, one)]})["tools"] for one in versions)


CALLERS = ("older a", "older b", "askable a", "askable b", "modern", "modern askable")
STEPS = st.one_of(
    st.tuples(st.just("update"), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("die"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("call"), st.sampled_from(CALLERS), st.sampled_from(NAMES)),
    st.tuples(st.just("call fatally"), st.sampled_from(CALLERS), st.sampled_from(NAMES)),
    st.tuples(
        st.just("call and be asked"),
        st.sampled_from(("askable a", "askable b")),
        st.sampled_from(NAMES),
    ),
    st.tuples(st.just("call all"), st.just(""), st.sampled_from(NAMES)),
    st.tuples(st.just("approve"), st.just(""), st.just(0)),
    st.tuples(st.just("restart and call"), st.sampled_from(CALLERS), st.sampled_from(NAMES)),
)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=12),
    eras=st.sampled_from([("older",), ("modern",), ("older", "modern")]),
    isolation=st.sampled_from(["shared", "per_session", "per_call"]),
)
def test_nothing_is_called_that_is_not_approved_where_it_is_called(
    steps: list[tuple[str, Any, Any]], eras: tuple[str, ...], isolation: str
) -> None:
    """SEC-5: and what is approved in every process is called."""

    async def main() -> None:
        program = Program(*eras)
        callers = {who: _caller(who) for who in CALLERS}
        async with On(program, isolation=isolation) as on:
            for what, one, other in steps:
                if what == "update":
                    program.versions[one] = other
                elif what == "approve":
                    on.approve()
                elif what == "call all":
                    async with asyncio.TaskGroup() as calls:
                        for caller in callers.values():
                            calls.create_task(on.outcome(caller, other))
                            await yield_to_loop(3)
                else:
                    if what in ("die", "restart and call"):
                        for line in program.alive[: None if what != "die" else one + 1]:
                            line.die()
                    if what != "die":
                        program.fatal, program.asks = (
                            what == "call fatally",
                            what == "call and be asked",
                        )
                        fine = on.approved(other) and not program.fatal
                        came = await on.outcome(callers[one], other)
                        program.fatal = program.asks = False
                        assert not fine or came != "unknown", (what, one, other)
                assert program.slipped == []

    run(main(), 60.0)


def _caller(who: str) -> Caller:
    era, _, name = who.partition(" ")
    if era == "modern":
        return modern_caller(who, askable=bool(name))
    return older_caller(who, askable=era == "askable", voice=RecordingChannel(list={"roots": []}))


def test_calls_that_come_together_over_a_fresh_link_have_its_list_read_once() -> None:
    """SEC-5."""

    async def main() -> None:
        async with On(Program("older"), isolation="per_session") as on:
            caller = older_caller("one")
            await asyncio.gather(*(on.call(caller) for _ in range(50)))
            assert on.program.lists == 2 and len(on.program.reached) == 50
            await on.call(caller)
            assert on.program.lists == 2

    run(main())


def test_who_gives_up_while_a_list_is_read_leaves_it_to_the_others() -> None:
    """SEC-5: and nothing that was given up is sent."""

    async def main() -> None:
        program = Program("older")
        async with On(program, isolation="per_session") as on:
            program.listing.clear()
            calls = [asyncio.create_task(on.call(older_caller("one")))]
            await until(lambda: program.lists == 2)
            calls.append(asyncio.create_task(on.call(older_caller("one"))))
            await yield_to_loop()
            calls[0].cancel()
            await yield_to_loop()
            assert calls[0].cancelled() and not calls[1].done() and program.reached == []
            program.listing.set()
            await calls[1]
            assert len(program.reached) == 1 and program.lists == 2
            assert [link["calls"] for link in on.upstream.describe()["links"]] == [0, 0]

    run(main())


def test_a_process_that_dies_while_its_list_is_read_is_replaced_and_the_call_made_there() -> None:
    """SEC-5, LIF-4: it was not sent, so it may be sent."""

    async def main() -> None:
        program = Program("older")
        async with On(program, isolation="per_session") as on:
            program.listing.clear()
            call = asyncio.create_task(on.call(older_caller("one"), "write"))
            await until(lambda: program.lists == 2)
            program.alive[-1].die()
            program.listing.set()
            await call
            assert len(program.reached) == 1

    run(main())


def test_a_link_that_says_that_its_lists_have_changed_is_read_before_it_is_called_again() -> None:
    """SEC-5: also one of a client without a session, whose lists nobody reads otherwise."""

    async def main() -> None:
        program = Program("modern")
        async with On(program, isolation="per_session") as on:
            caller = modern_caller("one")
            await on.call(caller)
            own = program.alive[-1]
            program.started[own] = {"read": 1, "write": 0}
            own.say("notifications/tools/list_changed")
            await yield_to_loop()
            with pytest.raises(NotFound):
                await on.call(caller)
            on.approve()
            await on.call(caller)

    run(main())


def test_a_modern_server_whose_listening_was_interrupted_is_read_before_it_is_called_again() -> (
    None
):
    """SEC-5: what it would have announced meanwhile was heard by nobody."""

    async def main() -> None:
        program, over = Program("modern"), asyncio.Event()

        async def listen(line: ScriptedConnection, params: Json) -> Json:
            line.say(
                "notifications/subscriptions/acknowledged",
                {"notifications": params.get("notifications")},
            )
            await over.wait()
            return {}

        program.answers["subscriptions/listen"] = listen
        async with On(program) as on:
            await on.call(modern_caller("one"))
            program.started[program.alive[0]]["read"] = 1
            over.set()
            await yield_to_loop()
            assert await on.outcome(modern_caller("one"), "read") == "unknown"
            assert await on.outcome(modern_caller("one"), "write") == "ok"

    run(main())


def test_a_link_that_is_the_main_one_no_more_is_judged_by_what_it_lists_itself() -> None:
    """SEC-5: it became one client's, and what everybody is offered comes from another process."""

    async def main() -> None:
        program = Program("older")
        async with On(program) as on:
            caller = older_caller("one", askable=True, voice=RecordingChannel(list={"roots": []}))
            await on.call(caller, "write")
            program.versions["read"] = 1
            for line in program.alive:
                line.die()
            await on.call(caller, "write")
            program.versions["read"], program.asks = 0, True
            await on.call(caller, "write")
            program.asks = False
            await until(lambda: on.upstream.definitions["tools"][0] == tool("read", 0))
            assert await on.outcome(older_caller("two"), "read") == "ok"
            assert await on.outcome(caller, "read") == "unknown"
            assert [link["use"] for link in on.upstream.describe()["links"]] == [
                "shared",
                "session",
            ]

    run(main())


def test_a_server_that_refuses_its_list_is_not_called() -> None:
    """SEC-5: the error says what it said; the next call tries again."""

    async def main() -> None:
        program = Program("older")
        async with On(program, isolation="per_session") as on:
            program.refusal = "not today"
            for _ in range(2):
                with pytest.raises(Unavailable, match="not today; it is pinned"):
                    await on.call(older_caller("one"))
            program.refusal = None
            await on.call(older_caller("one"))
            assert len(program.reached) == 1

    run(main())
