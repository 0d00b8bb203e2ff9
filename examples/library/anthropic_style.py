"""Tools of a gateway for a model behind Anthropic's messages API: the list, the calls of its
answer, their results."""

import asyncio
import base64
import json
import sys
from typing import Any

from names import Names

from mcpx import Content, Gateway, RpcError

Json = dict[str, Any]


async def anthropic_tools(gateway: Gateway) -> tuple[list[Json], Names]:
    """What goes into `tools=`, and the way back from its names."""
    names = Names(await gateway.tools())
    tools = [
        {
            "name": name,
            "description": tool.description or tool.title or tool.tool,
            "input_schema": {"type": "object", "properties": {}, **tool.input_schema},
        }
        for name, tool in names.items()
    ]
    return tools, names


async def run_anthropic_calls(gateway: Gateway, names: Names, message: Json) -> Json | None:
    """Make the calls of a model's answer, side by side: the user message with all results; None: it
    asked for none."""
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    results = await asyncio.gather(*(_run(gateway, names, call) for call in calls))
    return {"role": "user", "content": results} if results else None


async def _run(gateway: Gateway, names: Names, call: Json) -> Json:
    content, is_error = await _answer(gateway, names, call["name"], call["input"])
    return {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": content,
        "is_error": is_error,
    }


async def _answer(
    gateway: Gateway, names: Names, name: str, given: Json
) -> tuple[list[Json], bool]:
    tool = names.tool(name)
    if tool is None:
        return [_text(f"There is no tool {name}.")], True
    try:
        checked = await gateway.check(tool.name, given)
        if checked.problems:
            return [_text("Wrong arguments: " + "; ".join(checked.problems))], True
        result = await gateway.call(tool.name, checked.arguments)
    except RpcError as error:  # a rule refuses it, its server is down: the model should know
        return [_text(f"This did not work: {error.message}")], True
    return [_block(block) for block in result.content] or [
        _text(json.dumps(result.structured))
    ], result.is_error


def _block(block: Content) -> Json:
    if block.type == "image":
        data = base64.b64encode(block.data).decode()
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": block.mime_type, "data": data},
        }
    return _text(block.text or f"[{block.type} {block.mime_type} {block.uri}]")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


class Model:
    """Stands in for a model: asks for one call, then says what came of it."""

    def answer(self, messages: list[Json], tools: list[Json]) -> Json:
        last = messages[-1]["content"]
        if isinstance(last, list):
            told = last[0]["content"][0]["text"]
            return {
                "role": "assistant",
                "stop_reason": "end_turn",
                "content": [_text(f"The tool says: {told}")],
            }
        offered = {tool["name"] for tool in tools}
        assert "demo_calculate" in offered, f"this stand-in knows the demo only, not {offered}"
        call = {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "demo_calculate",
            "input": {"expression": "6 * 7"},
        }
        return {"role": "assistant", "stop_reason": "tool_use", "content": [call]}


async def main(config: str | None) -> None:
    async with Gateway.open(config) as gateway:
        tools, names = await anthropic_tools(gateway)
        model = Model()
        messages: list[Json] = [{"role": "user", "content": "What is six times seven?"}]
        while True:
            message = model.answer(messages, tools)
            messages.append({"role": message["role"], "content": message["content"]})
            results = await run_anthropic_calls(gateway, names, message)
            if results is None:
                break
            messages.append(results)
        print(messages[-1]["content"][0]["text"])  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
