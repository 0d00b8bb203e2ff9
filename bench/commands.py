"""commands: what a local command costs. An HTTP command against the same request made by a Python
client, and a script against a bare `asyncio.create_subprocess_exec` of it."""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from bench.client import Client, Era, Refused, StdioClient
from bench.gateway import Gateway, free_port, listening
from bench.http_client import HttpClient
from bench.processes import Started
from bench.systems import Transport
from bench.tables import median_of, table
from bench.turns import TEXT, Plan, Row, Turn, rotated, turn
from bench.upstream import Json

WIDTHS = (1, 16)
API = str(Path(__file__).with_name("api.py"))
SCRIPT = "import sys; print(sys.argv[1])\n"


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int
    seconds: float
    calls: int
    scripts: int


EFFORTS = {
    "full": Effort(rounds=8, seconds=0.4, calls=20_000, scripts=40),
    "quick": Effort(rounds=3, seconds=0.3, calls=20_000, scripts=20),
    "smoke": Effort(rounds=1, seconds=5.0, calls=10, scripts=2),
}


@dataclass(slots=True)
class CommandRow(Row):
    what: str = ""
    turns: dict[str, list[Turn]] = field(
        default_factory=lambda: {str(width): [] for width in WIDTHS}
    )


@dataclass(slots=True)
class Asker:
    """Something that can be asked for a text; `process` is whose CPU counts."""

    row: CommandRow
    ask: Callable[[str], Awaitable[str]]
    process: Started | None = None
    asked: int = 0

    def cpu(self) -> float:
        return self.process.cpu() if self.process is not None else 0.0

    async def once(self) -> float:
        self.asked += 1
        text = f"{self.asked} ".ljust(TEXT, "x")
        began = time.perf_counter()
        answer = await self.ask(text)
        took = time.perf_counter() - began
        if answer != text:
            raise Refused(f"a wrong answer: {answer[:300]}")
        return took


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpx-bench-")))
        requests = await _requests(stack, folder)
        scripts = await _scripts(stack, folder)
        await _take_turns(requests, effort, effort.calls)
        await _take_turns(scripts, effort, effort.scripts)
        return {
            "effort": asdict(effort),
            "rows": [asdict(asker.row) for asker in (*requests, *scripts)],
        }


async def _take_turns(askers: list[Asker], effort: Effort, calls: int) -> None:
    able = [asker for asker in askers if not asker.row.problem]
    for asker in able:
        gateway = cast(Gateway, asker)  # all that a turn looks at is its CPU
        await turn(gateway, asker.once, asker.row, width=16, seconds=effort.seconds, calls=calls)
    for number in range(effort.rounds):
        for width in WIDTHS:
            for asker in rotated(able, number):
                gateway = cast(Gateway, asker)
                took = await turn(
                    gateway, asker.once, asker.row, width=width, seconds=effort.seconds, calls=calls
                )
                asker.row.turns[str(width)].append(took)


# HTTP
# --------------------------------------------------------------------------------------------------


async def _requests(stack: AsyncExitStack, folder: Path) -> list[Asker]:
    port = free_port()
    api = await Started.start([sys.executable, "-P", API, str(port)], folder)
    stack.push_async_callback(api.stop)
    await listening(port, api)
    command = {
        "name": "echo",
        "type": "http",
        "http": {
            "url": f"http://127.0.0.1:{port}/echo",
            "params": {"text": "{text}"},
            "allow_private": True,
        },
        "parameters": [{"name": "text", "required": True}],
    }
    askers = [await _aiohttp(stack, port)]
    fronts: list[tuple[Transport, Era]] = [
        ("stdio", "older"),
        ("http", "older"),
        ("http", "modern"),
    ]
    for front, era in fronts:
        askers.append(
            await _mcpx(stack, folder / f"{front}-{era}", front, era, "an HTTP request", command)
        )
    return askers


async def _aiohttp(stack: AsyncExitStack, port: int) -> Asker:
    """The fastest Python client that was found; not installed unless asked for (`uv run --with
    aiohttp bench …`)."""
    row = CommandRow("aiohttp, directly", "", what="an HTTP request")
    try:
        import aiohttp
    except ImportError:
        row.problem = "aiohttp is not installed: uv run --with aiohttp bench"
        return Asker(row, _nobody)
    session: Any = await stack.enter_async_context(aiohttp.ClientSession())

    async def ask(text: str) -> str:
        async with session.get(f"http://127.0.0.1:{port}/echo", params={"text": text}) as answer:
            return (await answer.json())["text"]

    return Asker(row, ask)


async def _nobody(text: str) -> str:
    raise Refused("nobody is there")


async def _mcpx(
    stack: AsyncExitStack, folder: Path, front: Transport, era: Era, what: str, command: Json
) -> Asker:
    os.mkdir(folder)
    file, port = folder / "mcpx.json", free_port()
    config = {"commands": [command], "global": {"script_paths": [".."]}}
    file.write_text(json.dumps(config), encoding="utf-8")
    argv = [
        sys.executable,
        "-m",
        "mcpx",
        str(file),
        *(() if front == "stdio" else ("--port", str(port))),
    ]
    process = await Started.start(argv, folder, pipes=front == "stdio")
    stack.push_async_callback(process.stop)
    if front == "stdio":
        client: Client = StdioClient(era, process.process)
    else:
        await listening(port, process)
        client = HttpClient(era, port, "/mcp")
    stack.push_async_callback(client.close)
    await client.open()

    async def ask(text: str) -> str:
        result = await client.request("tools/call", {"name": "echo", "arguments": {"text": text}})
        if result.get("isError"):
            raise Refused(str(result)[:300])
        said: str = result["content"][0]["text"]
        return json.loads(said)["text"] if "structuredContent" in result else said.rstrip("\n")

    return Asker(CommandRow(f"mcpx, {front} front", era, what=what), ask, process)


# Scripts
# --------------------------------------------------------------------------------------------------


async def _scripts(stack: AsyncExitStack, folder: Path) -> list[Asker]:
    script = folder / "echo.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = {
        "name": "echo",
        "type": "script",
        "script": {
            "interpreter": sys.executable,
            "path": str(script),
            "args": ["{text}"],
            "concurrency": max(WIDTHS),
        },
        "parameters": [{"name": "text", "required": True}],
    }
    config = {"what": "a script", "command": command}

    async def bare(text: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(script),
            text,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        return out.decode().rstrip("\n")

    row = CommandRow("create_subprocess_exec", "", what="a script")
    return [Asker(row, bare), await _mcpx(stack, folder / "scripts", "stdio", "older", **config)]


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    head = [
        "what",
        "by",
        "era",
        "p50 ms @1",
        "× directly",
        "ms a call @16",
        "× directly",
        "CPU ms a call @16",
        "notes",
    ]
    kinds = dict.fromkeys(row["what"] for row in found["rows"])
    lines: list[list[Any]] = []
    for kind in kinds:
        rows = [row for row in found["rows"] if row["what"] == kind]
        lines += [_cells(row, rows[0]) for row in rows]
    return table(head, lines)


def _cells(row: Json, direct: Json) -> list[Any]:
    if row["problem"]:
        return [row["what"], row["name"], row["era"], *[None] * 5, row["problem"]]
    p50, wide = median_of(row["turns"]["1"], "p50_ms"), _wall(row)
    cpu = (
        sum(t["cpu_seconds"] for t in row["turns"]["16"])
        / max(1, sum(t["calls"] for t in row["turns"]["16"]))
        * 1000
    )
    base = None if direct["problem"] else (median_of(direct["turns"]["1"], "p50_ms"), _wall(direct))
    return [
        *(row["what"], row["name"], row["era"], p50, p50 / base[0] if base and p50 else None),
        *(
            wide,
            wide / base[1] if base else None,
            cpu if "mcpx" in row["name"] else None,
            "; ".join(row["errors"][:1]),
        ),
    ]


def _wall(row: Json) -> float:
    """Milliseconds that a call takes of the whole at 16 in flight."""
    turns = row["turns"]["16"]
    return 1000 * sum(t["seconds"] for t in turns) / max(1, sum(t["calls"] for t in turns))
