"""SUR-12 in this process: in which order several calls run, what stops them, and what reaches
client and servers."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.callers import RecordingChannel, modern_caller, older_caller
from kit.loop import run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.config import Config, Global
from mcpx.core.gateway import Gateway
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import RpcError
from mcpx.model.events import CallFinished
from mcpx.surfaces.batch import AT_ONCE, MOST

MODES = ("inspect", "describe", "search")
READS = ("look", "grow", "steps", "boom", "ask")
HEAD = re.compile(r"\[mcpx: \d+ [^ ]+: (.*)\]")
FIELDS = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


class Plant(ScriptedServer):
    """A server whose tools note when they begin and end. `hold` is what the calls named there wait
    for."""

    def __init__(self, *eras: str) -> None:
        tools = dict.fromkeys((*READS, "write", "refuse"), self._tool)
        super().__init__(*eras, tools=tools, answers={"tools/list": self._list})
        self.log: list[str] = []
        self.hold: dict[str, asyncio.Event] = {}
        self.most = self.running = 0

    async def _list(self, line: ScriptedConnection, params: Json) -> Json:
        hint = {"annotations": {"readOnlyHint": True}}
        return {
            "tools": [
                {"name": name, "inputSchema": FIELDS if name != "grow" else {"type": "object"}}
                | (hint if name in READS else {})
                for name in self.tools
            ]
        }

    async def _tool(self, line: ScriptedConnection, params: Json) -> Json:
        name, given = params["name"], params["arguments"]
        mark = given.get("id", name)
        self.log.append(f"+{mark}")
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if mark in self.hold:
                await self.hold[mark].wait()
            if name == "steps":
                for number in (1, 2):
                    token = params["_meta"]["progressToken"]
                    line.say(
                        "notifications/progress",
                        {"progressToken": token, "progress": number, "total": 2},
                    )
            if name == "ask":
                answer = await line.ask(
                    "elicitation/create", {"message": mark, "requestedSchema": {}}
                )
                return {"content": [{"type": "text", "text": str(answer)}]}
            if name == "refuse":
                raise RpcError(-32055, "as told", {"why": mark})
            if name == "boom":
                return {"content": [{"type": "text", "text": "no"}], "isError": True}
            text = "x" * given["size"] if name == "grow" else mark
            return {"content": [{"type": "text", "text": text}]}
        finally:
            self.running -= 1
            self.log.append(f"-{mark}")


@asynccontextmanager
async def running_gateway(plant: ScriptedServer, **settings: Any) -> AsyncIterator[Gateway]:
    gateway = Gateway(
        Config(
            mcp_servers=(plant.server("p", prefix="p"),),
            global_=Global(startup_wait=600.0, **settings),
        ),
        {},
    )
    gateway.start()
    try:
        await until(lambda: gateway.catalog.offers["tools"])
        yield gateway
    finally:
        await gateway.close()


def item(mode: str, tool: str, **arguments: Any) -> Json:
    named = {
        "inspect": {"server_name": "p", "tool_name": tool},
        "describe": {"method": f"p.{tool}"},
        "search": {"tool_name": f"p_{tool}"},
    }
    return {**named[mode], "arguments": arguments}


TOOLS = {"inspect": "exec", "describe": "call", "search": "mcp_execute_tool"}


async def calls(
    gateway: Gateway, mode: str, *items: Any, caller: Caller | None = None, **more: Any
) -> Json:
    meta = {"_meta": {"progressToken": "t"}} if more.pop("token", False) else {}
    params = {"name": TOOLS[mode], "arguments": {"calls": list(items), **more}, **meta}
    return await gateway.handle(
        Call("tools/call", params, caller or Caller(mode=mode, session="s"))
    )


def outcomes(result: Json) -> list[str]:
    """What the headings say, without numbers and names."""
    heads = (HEAD.fullmatch(block["text"]) for block in result["content"])
    return [head[1] for head in heads if head]


def test_read_only_calls_run_at_once_and_others_alone_in_order() -> None:
    """SUR-12: a write waits for all before it, and those after it wait for it."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            plant.hold = {name: asyncio.Event() for name in "abw"}
            items = [item("describe", "look", id=name) for name in "ab"]
            items += [item("describe", "write", id="w"), item("describe", "look", id="c")]
            work = asyncio.ensure_future(calls(gateway, "describe", *items))
            await until(lambda: len(plant.log) == 2)
            assert sorted(plant.log) == ["+a", "+b"]
            plant.hold["b"].set()
            await until(lambda: "-b" in plant.log)
            await yield_to_loop()
            assert "+w" not in plant.log, "a still runs"
            plant.hold["a"].set()
            await until(lambda: "+w" in plant.log)
            await yield_to_loop()
            assert plant.log[-1] == "+w", "c waits"
            plant.hold["w"].set()
            result = await work
            assert plant.log[-3:] == ["-w", "+c", "-c"]
            assert [block["text"] for block in result["content"]] == [
                "[mcpx: 1 p.look: ok]", "a", "[mcpx: 2 p.look: ok]", "b",
                "[mcpx: 3 p.write: ok]", "w", "[mcpx: 4 p.look: ok]", "c",
            ]  # fmt: skip
            assert not result.get("isError")

    run(main())


def test_so_many_at_once_and_no_more() -> None:
    """SUR-12: twenty calls, eight at a time; one more is refused before any is made."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            plant.hold = {f"n{number}": asyncio.Event() for number in range(MOST)}
            items = [item("search", "look", id=name) for name in plant.hold]
            work = asyncio.ensure_future(calls(gateway, "search", *items))
            await until(lambda: plant.running == AT_ONCE)
            for event in plant.hold.values():
                await yield_to_loop()
                event.set()
            result = await work
            assert outcomes(result) == ["ok"] * MOST and plant.most == AT_ONCE
            assert [entry["result"] for entry in result["structuredContent"]["result"]] == [
                *plant.hold
            ]
            made = len(plant.log)
            refused = await calls(gateway, "search", *items, items[0])
            assert (
                refused["isError"]
                and "20" in refused["content"][0]["text"]
                and len(plant.log) == made
            )

    run(main())


@pytest.mark.parametrize("mode", MODES)
def test_the_first_failure_stops_the_rest_unless_told_otherwise(mode: str) -> None:
    """SUR-12: a tool's failure, a server's error, a model's mistake; each is told in its place."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            for wrong in (
                item(mode, "boom", id="b"),
                item(mode, "refuse", id="r"),
                item(mode, "look"),
                5,
            ):
                plant.log.clear()
                three = (item(mode, "write", id="w"), wrong, item(mode, "write", id="z"))
                result = await calls(gateway, mode, *three)
                assert (
                    outcomes(result) == ["ok", "failed", "not run: call 2 failed"]
                    and result["isError"] is True
                )
                assert "+z" not in plant.log
                told = result["structuredContent"]
                entries = told["result"] if mode == "search" else told["results"]
                flag = "success" if mode == "search" else "ok"
                assert [entry[flag] for entry in entries] == [True, False, False]
                if mode == "search":
                    assert told["success"] is False and "2 of 3" in told["error"]
                result = await calls(gateway, mode, *three, **{"continue": True})
                assert outcomes(result) == ["ok", "failed", "ok"] and result["isError"] is True
            refused = await calls(gateway, mode, item(mode, "refuse", id="r"))
            assert 'as told (error -32055, data: {"why":"r"})' in refused["content"][2]["text"]

    run(main())


def test_what_runs_already_is_waited_for_when_a_neighbour_fails() -> None:
    """SUR-12: its result is told; what waited for a place does not begin."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            plant.hold = {
                "slow": asyncio.Event(),
                **{str(n): asyncio.Event() for n in range(AT_ONCE - 2)},
            }
            items = [item("inspect", "look", id="slow"), item("inspect", "boom", id="b")]
            items += [item("inspect", "look", id=str(n)) for n in range(AT_ONCE - 2)]
            items += [item("inspect", "look", id="late"), item("inspect", "write", id="w")]
            work = asyncio.ensure_future(calls(gateway, "inspect", *items))
            await until(lambda: "-b" in plant.log)
            await yield_to_loop()
            for event in plant.hold.values():
                event.set()
            result = await work
            not_run = "not run: call 2 failed"
            assert outcomes(result) == ["ok", "failed", *["ok"] * (AT_ONCE - 2), not_run, not_run]
            assert "+late" not in plant.log and "+w" not in plant.log

    run(main())


def test_a_client_that_gives_up_ends_all_that_runs() -> None:
    """SUR-12, PRO-2: and nothing more begins."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            plant.hold = {name: asyncio.Event() for name in "ab"}
            items = [item("describe", "look", id=name) for name in "ab"] + [
                item("describe", "write", id="w")
            ]
            work = asyncio.ensure_future(calls(gateway, "describe", *items))
            await until(lambda: plant.running == 2)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            await until(lambda: plant.running == 0)
            assert sum(len(line.cancelled) for line in plant.lines) == 2
            await yield_to_loop()
            assert "+w" not in plant.log

    run(main())


def test_progress_of_several_is_that_of_one_and_only_grows() -> None:
    """SUR-12, PRO-2: each call is worth one."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            tape = RecordingChannel()
            caller = older_caller(mode="describe", voice=tape)
            items = [item("describe", "steps", id=name) for name in "ab"]
            await calls(gateway, "describe", *items, caller=caller, token=True)
            told = [params for method, params in tape.told if method == "notifications/progress"]
            steps = [params["progress"] for params in told]
            assert steps == sorted(set(steps)) and steps[-1] == 2 and len(steps) >= 4
            assert {(params["total"], params["progressToken"]) for params in told} == {(2, "t")}
            assert any(params.get("_meta", {}).get("proxy") == {"server": "p"} for params in told)
            tape.told.clear()
            await calls(gateway, "describe", items[0], caller=caller, token=True)
            assert [params["progress"] for _, params in tape.told] == [1, 2], (
                "one call is the same call"
            )

    run(main())


def test_an_older_client_is_asked_in_the_middle_of_several_calls() -> None:
    """SUR-12, PRO-5."""

    async def main() -> None:
        plant = Plant("older")
        async with running_gateway(plant) as gateway:
            tape = RecordingChannel(create={"action": "accept"})
            caller = older_caller(mode="describe", voice=tape, askable=True)
            items = [item("describe", "ask", id=name) for name in "ab"]
            result = await calls(gateway, "describe", *items, caller=caller)
            assert outcomes(result) == ["ok", "ok"], result
            assert sorted(params["message"] for _, _, params in tape.asked if params) == ["a", "b"]

    run(main())


def test_a_modern_client_is_asked_by_one_call_only() -> None:
    """SUR-12, PRO-5: in several the server is refused, nothing waits for an answer that cannot
    come; the one call of a list is answered and taken up again."""

    async def main() -> None:
        plant = Plant("older")
        async with running_gateway(plant) as gateway:
            caller = modern_caller(mode="describe", askable=True)
            asking = item("describe", "ask", id="a")
            result = await calls(
                gateway, "describe", asking, item("describe", "write", id="w"), caller=caller
            )
            assert outcomes(result) == ["failed", "not run: call 1 failed"]
            assert "must be called alone" in result["content"][-1]["text"]
            assert plant.running == 0 and plant.log == ["+a", "-a"]
            result = await calls(gateway, "describe", asking, caller=caller)
            assert result["resultType"] == "input_required"
            (key,) = result["inputRequests"]
            params = {
                "name": "call",
                "arguments": {"calls": [asking]},
                "requestState": result["requestState"],
                "inputResponses": {key: {"action": "accept"}},
            }
            result = await gateway.handle(Call("tools/call", params, caller))
            assert outcomes(result) == ["ok"] and plant.log.count("+a") == 2

    run(main())


def test_when_the_gateway_is_about_to_end_no_other_call_begins() -> None:
    """SUR-12, LIF-8: what was made is told, and what was not."""

    async def main() -> None:
        plant = Plant()
        plant.hold["0"] = asyncio.Event()
        async with running_gateway(plant) as gateway:
            items = [item("describe", "write", id=str(number)) for number in range(3)]
            running = asyncio.ensure_future(calls(gateway, "describe", *items))
            await until(lambda: plant.log == ["+0"])
            gateway.wind_down()
            plant.hold["0"].set()
            ended = "not run: mcpx is ending"
            assert outcomes(await running) == ["ok", ended, ended] and plant.log == ["+0", "-0"]

    run(main())


@pytest.mark.parametrize("resuming", [{"requestState": "forged"}, {"inputResponses": {"q1": {}}}])
def test_several_calls_resume_nothing(resuming: Json) -> None:
    """SUR-12, PRO-5: what belongs to a parked call is refused, and nothing is called."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            made = len(plant.log)
            given = [{"method": "p.look", "arguments": {"id": "a"}}] * 2
            params = {"name": "call", "arguments": {"calls": given}, **resuming}
            with pytest.raises(RpcError, match="belong to a single call"):
                await gateway.handle(
                    Call("tools/call", params, modern_caller(askable=True, mode="describe"))
                )
            assert len(plant.log) == made

    run(main())


@pytest.mark.parametrize("mode", MODES)
def test_all_results_together_are_bounded_and_none_is_lost(mode: str) -> None:
    """SUR-12, SUR-11: the longest are kept back, and can be read."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant, result_limit=4_000) as gateway:
            few = await calls(gateway, mode, *[item(mode, "grow", size=2_000)] * 3)
            assert [len(block["text"]) for block in few["content"][1::2]] == [2_000] * 3
            sizes = [3_900] * 10 + [100] * 5 + [100_000] * 5
            result = await calls(gateway, mode, *[item(mode, "grow", size=size) for size in sizes])
            assert outcomes(result) == ["ok"] * 20
            texts = [block["text"] for block in result["content"][1::2]]
            assert sum(map(len, texts)) < 2 * 4_000 + 20 * 400
            assert texts[10:15] == ["x" * 100] * 5, "what is short is let be"
            told = result["structuredContent"]
            entries = told["result"] if mode == "search" else told["results"]
            handles = [entry["result"]["handle"] for entry in entries[:10] + entries[15:]]
            reading = {"handle": handles[0], "limit": 10_000}
            reader = {
                "inspect": {"server_name": "mcpx", "tool_name": "result"},
                "describe": {"method": "mcpx.result"},
                "search": {"tool_name": "mcpx.result"},
            }[mode]
            read = await calls(gateway, mode, *[{**reader, "arguments": reading}] * 2)
            assert all(
                text.startswith("x" * 1_000)
                for text in [block["text"] for block in read["content"][1::2]]
            )

    run(main())


def test_each_call_is_recorded_as_the_tool_it_is() -> None:
    """SUR-12: policy, limits and metrics see the real tools, each once."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            seen: list[tuple[str, str, str]] = []

            def note(event: CallFinished) -> None:
                seen.append((event.passage.server, event.passage.name, event.outcome))

            gateway.bus.subscribe(note, CallFinished)
            items = [
                item("search", "write", id="w"),
                item("search", "boom", id="b"),
                item("search", "look", id="l"),
            ]
            await calls(gateway, "search", *items, **{"continue": True})
            assert sorted(seen) == [
                ("p", "boom", "tool_error"),
                ("p", "look", "ok"),
                ("p", "write", "ok"),
            ]

    run(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"calls": []}, "1 to 20"),
        ({"calls": 5}, "list"),
        ({"calls": "[]"}, "1 to 20"),
        ({"calls": [{}], "method": "p.look"}, "not both"),
        ({"calls": [{}], "arguments": {"id": "a"}}, "not both"),
        ({"calls": [{"calls": []}]}, "cannot hold calls"),
        ({"calls": [{"method": "p.look", "argumets": {}}]}, 'Unknown argument "argumets"'),
        ({"calls": [{"method": "p.look", "arguments": {"id": "a"}}], "continue": 7}, "continue"),
        (
            {"calls": [{"server_name": "p", "tool_name": "look"}]},
            'call {"method": "p.look", "arguments": {...}}',
        ),
    ],
)
def test_a_list_of_calls_that_is_wrong_is_refused_in_words_that_help(
    arguments: Json, words: str
) -> None:
    """SUR-9, SUR-12."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            call = Call(
                "tools/call",
                {"name": "call", "arguments": arguments},
                Caller(mode="describe", session="s"),
            )
            result = await gateway.handle(call)
            assert result["isError"] and words in "\n".join(
                block["text"] for block in result["content"]
            )
            assert plant.log == []

    run(main())


def test_calls_as_json_text_are_understood() -> None:
    """SUR-9, SUR-12: the list, an item, the arguments of one."""

    async def main() -> None:
        plant = Plant()
        async with running_gateway(plant) as gateway:
            texts: list[Any] = [
                '[{"method": "p.look", "arguments": {"id": "a"}}]',
                ['{"method": "p.look", "arguments": {"id": "a"}}'],
                [{"method": "p.look", "arguments": '{"id": "a"}'}],
            ]
            for given in texts:
                params = {
                    "name": "call",
                    "arguments": {"calls": given, "continue": "true", "method": ""},
                }
                result = await gateway.handle(
                    Call("tools/call", params, Caller(mode="describe", session="s"))
                )
                assert outcomes(result) == ["ok"] and result["content"][1]["text"] == "a"

    run(main())


def test_after_too_much_that_cannot_be_cut_no_other_call_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SUR-12: what came is told, and which calls were not made."""

    async def main() -> None:
        monkeypatch.setattr("mcpx.surfaces.batch.MAX_BYTES", 200_000)
        plant = Plant()

        async def image(line: ScriptedConnection, params: Json) -> Json:
            return {"content": [{"type": "image", "data": "A" * 150_000, "mimeType": "image/png"}]}

        plant.tools["write"] = image
        async with running_gateway(plant) as gateway:
            items = [item("describe", "write", id=str(number)) for number in range(4)]
            result = await calls(gateway, "describe", *items)
            images = [block for block in result["content"] if block["type"] == "image"]
            assert len(images) == 2 and result["isError"]
            heads = [block["text"] for block in result["content"] if block["type"] == "text"]
            assert heads[0] == "[mcpx: 2 of 4 calls ok]"
            assert heads[3:] == [
                f"[mcpx: {n} p.write: not run: the results before it take too much room]"
                for n in (3, 4)
            ]

    run(main())
