"""Tools of a gateway for a model behind an OpenAI-style chat API: the list, the calls of its
answer, their results."""

import asyncio
import json
import sys
from typing import Any

from names import Names

from mcpx import Gateway, RpcError

Json = dict[str, Any]


async def openai_tools(gateway: Gateway) -> tuple[list[Json], Names]:
    """What goes into `tools=`, and the way back from its names."""
    names = Names(await gateway.tools())
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": tool.description or tool.title or tool.tool,
                "parameters": {"type": "object", "properties": {}, **tool.input_schema},
            },
        }
        for name, tool in names.items()
    ]
    return tools, names


async def run_openai_calls(gateway: Gateway, names: Names, message: Json) -> list[Json]:
    """Make the calls of a model's answer, side by side; each result is a message that goes back to
    it."""
    return await asyncio.gather(
        *(_run(gateway, names, call) for call in message.get("tool_calls") or ())
    )


async def _run(gateway: Gateway, names: Names, call: Json) -> Json:
    function = call["function"]
    return {
        "role": "tool",
        "tool_call_id": call["id"],
        "content": await _answer(
            gateway, names, function["name"], function.get("arguments") or "{}"
        ),
    }


async def _answer(gateway: Gateway, names: Names, name: str, arguments: str) -> str:
    tool = names.tool(name)
    if tool is None:
        return f"There is no tool {name}."
    try:
        checked = await gateway.check(
            tool.name, arguments
        )  # a JSON text; small mistakes of a model are mended
        if checked.problems:
            return "Wrong arguments: " + "; ".join(checked.problems)
        result = await gateway.call(tool.name, checked.arguments)
    except RpcError as error:  # a rule refuses it, its server is down: the model should know
        return f"This did not work: {error.message}"
    return result.text or json.dumps(
        result.structured
    )  # this format has no place for images in results


class Model:
    """Stands in for a model: asks for one call, then says what came of it."""

    def answer(self, messages: list[Json], tools: list[Json]) -> Json:
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": f"The tool says: {messages[-1]['content']}"}
        offered = {tool["function"]["name"] for tool in tools}
        assert "demo_calculate" in offered, f"this stand-in knows the demo only, not {offered}"
        function = {"name": "demo_calculate", "arguments": '{"expression": "6 * 7"}'}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        }


async def main(config: str | None) -> None:
    async with Gateway.open(config) as gateway:
        tools, names = await openai_tools(gateway)
        model = Model()
        messages: list[Json] = [{"role": "user", "content": "What is six times seven?"}]
        while True:
            message = model.answer(messages, tools)
            messages.append(message)
            if not message.get("tool_calls"):
                break
            messages += await run_openai_calls(gateway, names, message)
        print(messages[-1]["content"])  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
