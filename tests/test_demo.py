"""The built-in demo server: what a first start shows, in either era (RUN-3)."""

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.callers import modern_caller, older_caller
from kit.loop import run
from mcpx import demo
from mcpx.config.locate import WORKING_FOLDER_NAMES
from mcpx.core.gateway import Gateway
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from mcpx.wire import codec, era


def test_in_a_clone_of_this_repository_a_first_start_finds_no_config() -> None:
    """RUN-3: so that it shows the demo; nor has a test left one there."""
    root = Path(__file__).parents[1]
    assert [name for name in WORKING_FOLDER_NAMES if (root / name).exists()] == []


def tool(name: str, **arguments: Any) -> Json:
    return run(demo.serve("tools/call", {"name": name, "arguments": arguments}))


def text(result: Json) -> str:
    [block] = result["content"]
    return block["text"]


def test_a_start_without_a_config_serves_the_demo() -> None:
    """RUN-3: through the whole middle, for clients of either era."""

    async def main() -> None:
        gateway = Gateway(demo.config(), {})
        gateway.start()

        async def ask(caller: Caller, method: str, **params: Any) -> Json:
            return await gateway.handle(Call(method, params, caller))

        for caller in (older_caller(), modern_caller()):
            names = [tool["name"] for tool in (await ask(caller, "tools/list"))["tools"]]
            assert names == ["demo_echo", "demo_time", "demo_calculate"]
            assert (
                text(await ask(caller, "tools/call", name="demo_echo", arguments={"text": "hi"}))
                == "hi"
            )
            [prompt] = (await ask(caller, "prompts/list"))["prompts"]
            assert (
                await ask(caller, "prompts/get", name=prompt["name"], arguments={"topic": "tea"})
            )["messages"]
            [resource] = (await ask(caller, "resources/list"))["resources"]
            [content] = (await ask(caller, "resources/read", uri=resource["uri"]))["contents"]
            assert "mcp_servers:" in content["text"]
            assert (await ask(caller, "resources/templates/list"))["resourceTemplates"] == []
        await gateway.close()

    run(main())


def test_it_answers_both_openings() -> None:
    """SRC-2."""
    for version in era.OLDER:
        assert (
            run(demo.serve("initialize", {"protocolVersion": version}))["protocolVersion"]
            == version
        )
    assert run(demo.serve("server/discover", {}))["supportedVersions"] == ["2026-07-28"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("nonsense", {}, METHOD_NOT_FOUND),
        ("tools/call", {"name": "nobody"}, INVALID_PARAMS),
        ("tools/call", {}, INVALID_PARAMS),
        ("prompts/get", {"name": "nobody"}, INVALID_PARAMS),
        ("resources/read", {"uri": "nobody:s"}, INVALID_PARAMS),
    ],
)
def test_what_it_does_not_have_is_an_error(method: str, params: Json, code: int) -> None:
    with pytest.raises(RpcError) as caught:
        run(demo.serve(method, params))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("(3 + 4) * 2", 14),
        (" 1 - -1 ", 2),
        ("7 // 2", 3),
        ("7 % 4", 3),
        ("1 / 4", 0.25),
        ("100000.5 + 1", 100001.5),
        ("2 * 123456789012345678901234567890", 246913578024691357802469135780),
    ],
)
def test_it_calculates_and_the_text_says_what_the_structure_says(
    expression: str, result: float
) -> None:
    answer = tool("calculate", expression=expression)
    assert answer["structuredContent"] == {"result": result}
    assert float(text(answer)) == float(result)
    assert "isError" not in answer


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "1 / 0",
        "1 // 0",
        "x",
        "__import__('os')",
        "2 ** 10",
        "9 << 9",
        "True + 1",
        "1j",
        "'a' * 3",
        "[1]",
        "1 if 1 else 2",
        "1; 2",
        "\x00",
        "(" * 150,
        "-" * 199 + "1" + "x",
        "1" * 201,
        "1e308 * 10",
        "1e308 * 10 - 1e308 * 10",
    ],
)
def test_what_it_cannot_calculate_is_a_tool_error_and_nothing_more(expression: str) -> None:
    answer = tool("calculate", expression=expression)
    assert answer["isError"] is True
    assert text(answer).startswith("Cannot calculate")


@settings(max_examples=150, deadline=None)
@given(st.text("0123456789+-*/%(). e_", max_size=60) | st.text(max_size=30))
def test_no_expression_breaks_it_and_every_answer_can_be_sent(expression: str) -> None:
    answer = tool("calculate", expression=expression)
    again = codec.load(codec.dump(answer))
    if "isError" not in answer:
        assert math.isfinite(again["structuredContent"]["result"])


def test_the_time_is_told_in_any_zone() -> None:
    for zone, offset in (("UTC", 0), ("Asia/Shanghai", 8 * 3600)):
        answer = tool("time", timezone=zone)
        told = datetime.fromisoformat(text(answer))
        shift = told.utcoffset()
        assert shift is not None
        assert shift.total_seconds() == offset
        assert abs((datetime.now(told.tzinfo) - told).total_seconds()) < 60
        assert answer["structuredContent"] == {"time": text(answer), "timezone": zone}
    assert tool("time")["structuredContent"]["timezone"] == "UTC"


@pytest.mark.parametrize(
    "zone", ["Nowhere/None", "", "../etc/passwd", "/etc/passwd", "a\x00b", 5, None, "Europe"]
)
def test_an_unknown_zone_is_a_tool_error(zone: Any) -> None:
    answer = tool("time", timezone=zone)
    assert answer["isError"] is True
    assert "Europe/Zurich" in text(answer)


@pytest.mark.parametrize("arguments", [None, [], "x", {}])
def test_odd_arguments_are_taken_as_none(arguments: Any) -> None:
    assert text(run(demo.serve("tools/call", {"name": "echo", "arguments": arguments}))) == ""
