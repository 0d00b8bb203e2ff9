"""SRC-6: local commands as one more source, inside one process."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import pytest

from kit.callers import older_caller
from kit.core_gateway import CoreGateway
from kit.loop import run
from kit.server import ScriptedServer
from kit.until import until
from mcpx.catalog.naming import Naming
from mcpx.commands.work import Bench, CommandFailed, Progress, Work
from mcpx.config import Command, Config, Global, Parameter, Server
from mcpx.model.call import Call, Json
from mcpx.model.errors import NotFound, RpcError
from mcpx.model.events import CallFinished
from mcpx.model.kinds import Mistake


class Stage:
    """What happens to the commands of a test."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.closed: list[str] = []
        self.ran: list[dict[str, Any]] = []
        self.hold: asyncio.Event | None = None
        self.fail: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """An action that tells the stage of it."""

    type: ClassVar[str] = "play"

    stage: Stage = field(compare=False)
    line: str = "hello"
    reads_only: bool = False

    def mistakes(self, parameters: Collection[str] | None) -> Iterable[Mistake]:
        return ()

    def prepare(self, bench: Bench) -> Work:
        self.stage.prepared.append(bench.name)
        return Playing(self, bench.name)


class Playing:
    def __init__(self, play: Play, name: str) -> None:
        self._play, self._name = play, name

    async def run(self, arguments: Mapping[str, Any], progress: Progress | None) -> Json:
        stage = self._play.stage
        stage.ran.append(dict(arguments))
        if stage.hold is not None:
            await stage.hold.wait()
        if stage.fail is not None:
            raise stage.fail
        return {"content": [{"type": "text", "text": self._play.line}]}

    async def close(self) -> None:
        self._play.stage.closed.append(self._name)


def command(
    stage: Stage, name: str = "greet", *, line: str = "hello", reads_only: bool = False, **more: Any
) -> Command:
    return Command(
        name=name,
        description=f"{name}s",
        action=Play(stage=stage, line=line, reads_only=reads_only),
        **more,
    )


class CommandGateway(CoreGateway):
    """A gateway with commands."""

    def __init__(self, *commands: Command, servers: tuple[Server, ...] = (), **fields: Any) -> None:
        super().__init__(config(*commands, servers=servers, **fields))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.tools()
        return self

    async def call(self, tool: str, arguments: Any = None, mode: str | None = None) -> Json:
        return await self.gateway.handle(
            Call("tools/call", {"name": tool, "arguments": arguments}, older_caller(mode=mode))
        )


def config(*commands: Command, servers: tuple[Server, ...] = (), **fields: Any) -> Config:
    return Config(
        mcp_servers=servers, commands=commands, global_=Global(startup_wait=2.0), **fields
    )


def test_a_command_is_a_tool_without_the_mark_of_a_server() -> None:
    """NAM-3, SRC-6."""

    async def main() -> None:
        stage = Stage()
        async with CommandGateway(
            command(stage, parameters=(Parameter(name="who", required=True),))
        ) as core:
            (tool,) = await core.tools()
            assert tool == {
                "name": "greet",
                "description": "greets",
                "inputSchema": {
                    "type": "object",
                    "properties": {"who": {"type": "string"}},
                    "additionalProperties": False,
                    "required": ["who"],
                },
            }
            assert (await core.call("greet", {"who": "me"}))["content"][0]["text"] == "hello"
            assert stage.ran == [{"who": "me"}]

    run(main())


@pytest.mark.parametrize(
    ("reads_only", "read_only", "told"),
    [
        (True, None, {"readOnlyHint": True}),
        (False, None, None),
        (True, False, {"readOnlyHint": False}),
    ],
)
def test_what_changes_nothing_says_so(
    reads_only: bool, read_only: bool | None, told: Json | None
) -> None:
    """LIF-9, SEC-7 ask for it; the user's own word wins."""

    async def main() -> None:
        async with CommandGateway(
            command(Stage(), reads_only=reads_only, read_only=read_only)
        ) as core:
            assert (await core.tools())[0].get("annotations") == told

    run(main())


@pytest.mark.parametrize("prefix", ["configured", "always"])
def test_a_command_keeps_its_plain_name_and_a_tool_of_that_name_gets_its_servers(
    prefix: Any,
) -> None:
    """NAM-1."""

    async def main() -> None:
        toy = ScriptedServer(tools=("greet", "other"))
        naming = Naming(prefix=prefix)
        async with CommandGateway(
            command(Stage()), servers=(toy.server("toy"),), naming=naming
        ) as core:
            others = ["toy_greet", "toy_other" if prefix == "always" else "other"]
            assert await core.names() == ["greet", *others]
            assert (await core.call("greet"))["content"][0]["text"] == "hello"

    run(main())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "who"),
        ({"who": 5}, "who"),
        ({"who": "me", "times": "x"}, "times"),
        ({"who": "me", "time": 1}, "time"),
        ({"who": "me", "times": 9}, "times"),
        ("me", "arguments"),
    ],
)
def test_wrong_arguments_are_refused_by_name_before_anything_runs(
    arguments: Any, told: str
) -> None:
    """SRC-5."""

    async def main() -> None:
        stage = Stage()
        asked = (
            Parameter(name="who", required=True),
            Parameter(name="times", type="integer", max=5),
        )
        async with CommandGateway(command(stage, parameters=asked)) as core:
            result = await core.call("greet", arguments)
            assert result["isError"] is True
            text = result["content"][0]["text"]
            assert text.startswith("greet: ") and told in text
            assert stage.ran == [] and stage.prepared == []

    run(main())


def test_what_is_left_out_has_its_default() -> None:
    """SRC-5: also one that the file calls required."""

    async def main() -> None:
        stage = Stage()
        asked = (Parameter(name="who", required=True, default="you"), Parameter(name="how"))
        async with CommandGateway(command(stage, parameters=asked)) as core:
            await core.call("greet", {})
            await core.call("greet", None)
            assert stage.ran == [{"who": "you"}, {"who": "you"}]

    run(main())


def test_a_full_schema_may_stand_in_the_place_of_parameters() -> None:
    """SRC-5."""

    async def main() -> None:
        stage = Stage()
        known = {"n": {"type": "integer", "default": 3}, "m": {"type": "integer"}}
        schema = {"type": "object", "properties": known, "required": ["m"]}
        async with CommandGateway(command(stage, input_schema=schema)) as core:
            assert (await core.tools())[0]["inputSchema"] == schema
            assert (await core.call("greet", {}))["isError"] is True
            await core.call("greet", {"m": 1})
            assert stage.ran == [{"n": 3, "m": 1}]

    run(main())


def test_a_failure_is_a_tool_error_with_the_commands_name() -> None:
    """SRC-8."""

    async def main() -> None:
        stage = Stage()
        async with CommandGateway(command(stage)) as core:
            stage.fail = CommandFailed("the API is asleep")
            result = await core.call("greet")
            assert (result["isError"], result["content"][0]["text"]) == (
                True,
                "greet: the API is asleep",
            )

    run(main())


def test_a_defect_of_a_part_fails_its_own_call_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SRC-8."""

    async def main() -> None:
        stage = Stage()
        async with CommandGateway(command(stage)) as core:
            stage.fail = ZeroDivisionError("secret")
            result = await core.call("greet")
            assert "failed inside the gateway: ZeroDivisionError" in result["content"][0]["text"]
            assert "secret" not in result["content"][0]["text"]

    run(main())
    assert "the command failed" in caplog.text


def test_calls_of_commands_are_recorded_like_any_other() -> None:
    """SRC-6: by the name of the service and their own."""

    async def main() -> None:
        heard: list[CallFinished] = []
        async with CommandGateway(command(Stage())) as core:
            core.gateway.bus.subscribe(heard.append, CallFinished)
            await core.call("greet")
            await core.call(
                "exec", {"server_name": "commands", "tool_name": "greet"}, mode="inspect"
            )
            told = [(call.passage.server, call.passage.name, call.outcome) for call in heard]
            assert told == [("commands", "greet", "ok")] * 2

    run(main())


def test_a_service_of_the_name_commands_holds_them_in_every_compact_mode() -> None:
    """SRC-6."""

    async def main() -> None:
        async with CommandGateway(command(Stage())) as core:
            said = await core.call("inspect", {"server_name": "commands"}, mode="inspect")
            assert "greet" in said["content"][0]["text"]
            for mode, tool, arguments in (
                ("inspect", "exec", {"server_name": "commands", "tool_name": "greet"}),
                ("describe", "call", {"method": "commands.greet"}),
                ("search", "mcp_execute_tool", {"tool_name": "greet", "arguments": {}}),
            ):
                assert (await core.call(tool, arguments, mode))["content"][0]["text"] == "hello", (
                    mode
                )
            listed = (await core.call("mcp_list_services", {}, "search"))["structuredContent"][
                "services"
            ]
            assert [(each["name"], each["status"], each["tool_count"]) for each in listed] == [
                ("commands", "connected", 1)
            ]

    run(main())


def test_a_reload_touches_only_the_command_that_changed_and_lets_its_calls_finish() -> None:
    """CFG-5."""

    async def main() -> None:
        one, two = Stage(), Stage()
        async with CommandGateway(command(one, "one"), command(two, "two")) as core:
            await core.call("one")
            one.hold, two.hold = asyncio.Event(), asyncio.Event()
            running = [asyncio.create_task(core.call(name)) for name in ("one", "two")]
            await until(lambda: len(one.ran) == 2 and two.ran)
            plan = await core.gateway.apply(
                config(command(one, "one"), command(two, "two", line="bye"))
            )
            assert plan.commands == ("two",) and str(plan) == "commands: two"
            assert two.closed == []
            one.hold.set()
            two.hold.set()
            assert [task["content"][0]["text"] for task in await asyncio.gather(*running)] == [
                "hello",
                "hello",
            ]
            await until(lambda: two.closed == ["two"])
            assert (await core.call("two"))["content"][0]["text"] == "bye"
            assert one.prepared == ["one"] and one.closed == []
            await core.gateway.apply(config())
            assert await core.names() == []
            with pytest.raises(NotFound):
                await core.call("one")
            await until(lambda: one.closed == ["one"])

    run(main())


def test_a_disabled_command_is_not_there() -> None:
    """SRC-6."""

    async def main() -> None:
        async with CommandGateway(
            command(Stage(), enabled=False), command(Stage(), "other")
        ) as core:
            assert await core.names() == ["other"]
            with pytest.raises(NotFound):
                await core.call("greet")

    run(main())


def test_commands_have_tools_and_nothing_else() -> None:
    """SRC-6: what a client may ask for all the same is refused, and nothing breaks."""

    async def main() -> None:
        async with CommandGateway(command(Stage())) as core:
            source = core.gateway.source(core.gateway.generation, "commands")
            with pytest.raises(RpcError, match="nothing here but tools"):
                await source.call(Call("resources/read", {}, older_caller()), {})
            with pytest.raises(RpcError, match="no resources"):
                await source.subscribe(older_caller(), "file:///x", {})

    run(main())
