"""RUN-7: what docs/library.md and examples/library show runs as it stands."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "library.md").read_text(), re.MULTILINE | re.DOTALL
)

SERVER = """#!{python} -IS
import json, sys
TOOL = {{"name": "calculate", "description": "Calculate", "inputSchema": {{"type": "object"}}}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params") or {{}}
    result = {{}}
    if method == "initialize":
        about = {{"name": "s", "version": "1"}}
        version, offers = params["protocolVersion"], {{"tools": {{}}}}
        result = {{"protocolVersion": version, "capabilities": offers, "serverInfo": about}}
    elif method == "tools/list":
        result = {{"tools": [TOOL]}}
    elif method == "tools/call":
        good = params["arguments"]["expression"] == "6 * 7"
        text = "42" if good else "that is no expression"
        result = {{"content": [{{"type": "text", "text": text}}], "isError": not good}}
    print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MCPX_", "XDG_"))
    }
    home = {"HOME": str(folder / "home"), "MCPX_STATE_DIR": str(folder / "state")}
    environ = {**kept, **home, "PATH": f"{folder}:{kept.get('PATH', '')}"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    server = tmp_path / "my-server"
    server.write_text(SERVER.format(python=sys.executable))
    server.chmod(0o755)
    connection = {"type": "stdio", "command": str(server)}
    (tmp_path / "config.yaml").write_text(
        json.dumps({"mcp_servers": [{"name": "demo", "connection": connection}]})
    )
    return tmp_path


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "demo.calculate Calculate\n42\n"),
        (1, "time"),
        (2, "Unknown tool: demo.nothing\nTrue that is no expression\n"),
    ],
)
def test_every_snippet_of_the_page_runs(folder: Path, number: int, said: str) -> None:
    assert len(SNIPPETS) == 3
    (folder / "snippet.py").write_text(SNIPPETS[number])
    ended = run(folder, "snippet.py")
    assert ended.returncode == 0 and said in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize("example", ["openai_style.py", "anthropic_style.py"])
def test_the_examples_call_a_real_tool_and_put_its_result_back(
    tmp_path: Path, example: str
) -> None:
    ended = run(tmp_path, str(ROOT / "examples" / "library" / example))
    assert (ended.stdout, ended.returncode) == ("The tool says: 42\n", 0), ended.stderr
    assert list(tmp_path.iterdir()) == []


ROUND_TRIP = """
import asyncio, json, sys
sys.path.insert(0, {folder!r})
from anthropic_style import anthropic_tools, run_anthropic_calls
from openai_style import openai_tools, run_openai_calls
from mcpx import Gateway

async def main():
    async with Gateway.open({config!r}, state=None) as gateway:
        tools, names = await openai_tools(gateway)
        out = []
        for tool in tools:
            function = dict(name=tool["function"]["name"], arguments='{{"expression": "6 * 7"}}')
            out += await run_openai_calls(gateway, names, dict(tool_calls=[dict(id="x", function=function)]))
        wrong = dict(name="made_up", arguments="{{}}")
        out += await run_openai_calls(gateway, names, dict(tool_calls=[dict(id="y", function=wrong)]))
        tools, names = await anthropic_tools(gateway)
        calls = [dict(type="tool_use", id=t["name"], name=t["name"], input=dict(expression="1 +")) for t in tools]
        back = await run_anthropic_calls(gateway, names, dict(content=calls))
        print(json.dumps([[t["name"] for t in tools], out, back]))

asyncio.run(main())
"""


def test_names_that_models_refuse_survive_the_round_trip(folder: Path) -> None:
    """NAM-5: `a::x` and the like are called again by the name a model was given; what it made up is
    told."""
    connection = {"type": "stdio", "command": str(folder / "my-server")}
    config = {
        "naming": {"separator": "::", "prefix": "always"},
        "mcp_servers": [
            {"name": "a.b", "connection": connection},
            {"name": "a_b", "connection": connection},
        ],
    }
    code = ROUND_TRIP.format(folder=str(ROOT / "examples" / "library"), config=config)
    ended = run(folder, "-c", code)
    names, openai, anthropic = json.loads(ended.stdout or "null") or pytest.fail(ended.stderr)
    assert len(set(names)) == 2 and all(
        re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names
    )
    assert [message["content"] for message in openai] == ["42", "42", "There is no tool made_up."]
    assert [block["is_error"] for block in anthropic["content"]] == [True, True]
