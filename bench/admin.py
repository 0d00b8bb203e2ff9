"""admin: what a call costs with the admin UI on, against a gateway without it; and what it takes to
have it.

Three run side by side in front of the same kind of upstream and take turns: *plain* was started
without `--admin`, *admin* with it and nobody looks, *watched* has ten streams of `/api/events` open
besides. Memory is what the gateway holds before the first call, and after all of them.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from bench.client import Era
from bench.gateway import Gateway, free_port, listening
from bench.guard import EFFORTS, WIDTHS, Asker, Effort, GuardRow, ratios
from bench.http_client import HttpClient
from bench.processes import UPSTREAM, Started
from bench.tables import table
from bench.turns import Plan, rotated, turn
from bench.upstream import Json

TOKEN = "bench-admin-token-that-nobody-guesses"
STREAMS = {"plain": None, "admin": 0, "watched": 10}
"""How many are open; None: there is nothing to open."""


@dataclass(slots=True)
class AdminRow(GuardRow):
    idle_mb: float = 0.0
    after_mb: float = 0.0
    streams_alive: int = 0


async def measure(plan: Plan) -> Json:
    effort = EFFORTS[plan.length]
    eras: Sequence[Era] = ("older", "modern")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpx-bench-")))
        askers = [await _start(stack, folder, era, case) for era in eras for case in STREAMS]
        for asker in askers:
            await _turn(asker, 16, effort)
            for turns in asker.row.turns.values():
                turns.clear()
        for number in range(effort.rounds):
            for width in WIDTHS:
                for asker in rotated(askers, number):
                    await _turn(asker, width, effort)
        for asker in askers:
            cast(AdminRow, asker.row).after_mb = asker.process.rss()
        return {"effort": asdict(effort), "rows": [asdict(asker.row) for asker in askers]}


async def _turn(asker: Asker, width: int, effort: Effort) -> None:
    gateway = cast(Gateway, asker)  # all that a turn looks at is its CPU
    took = await turn(
        gateway, asker.once, asker.row, width=width, seconds=effort.seconds, calls=effort.calls
    )
    asker.row.turns[str(width)].append(took)


async def _start(stack: AsyncExitStack, folder: Path, era: Era, case: str) -> Asker:
    home = folder / f"{case}-{era}"
    os.mkdir(home)
    command = [sys.executable, "-I", "-S", UPSTREAM, "--era", era, "--tools", "10", "--id", "0"]
    server = {
        "name": "u0",
        "connection": {"type": "stdio", "command": command[0], "args": command[1:]},
    }
    file, port, admin_port = home / "mcpx.json", free_port(), free_port()
    admin = {"admin_port": admin_port, "admin_token": TOKEN}
    file.write_text(json.dumps({"server": admin, "mcp_servers": [server]}), encoding="utf-8")
    file.chmod(0o600)
    streams = STREAMS[case]
    argv = [sys.executable, "-m", "mcpx", str(file), "--port", str(port)]
    process = await Started.start(argv if streams is None else [*argv, "--admin"], home)
    stack.push_async_callback(process.stop)
    await listening(port, process)
    row = AdminRow(case, era)
    if streams is not None:
        await listening(admin_port, process)
        await _status(admin_port)  # it is loaded by then
    client = HttpClient(era, port, "/mcp")
    stack.push_async_callback(client.close)
    await client.open()
    await client.request("tools/list", {})
    row.idle_mb = process.rss()
    for _ in range(streams or 0):
        reader = asyncio.create_task(_listen(admin_port, row))
        stack.callback(reader.cancel)
    return Asker(row, client, process)


def _request(path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    )


async def _status(port: int) -> None:
    """Wait until the API answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request("/api/about"))
    head = await reader.readuntil(b"\r\n")
    writer.close()
    if b" 200 " not in head:
        raise RuntimeError(f"the admin API answered {head!r}")


async def _listen(port: int, row: AdminRow) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request("/api/events"))
    try:
        while data := await reader.read(65536):
            if b"event: hello" in data:
                row.streams_alive += 1
        row.errors.append("a stream of events ended")
    finally:
        writer.close()


# Tables
# --------------------------------------------------------------------------------------------------


def tables(found: Json) -> str:
    head = [
        "era",
        "gateway",
        "p50 ms @1",
        "× plain",
        "CPU ms a call @16",
        "× plain",
        "idle MB",
        "after MB",
        "notes",
    ]
    lines: list[list[Any]] = []
    for era in dict.fromkeys(row["era"] for row in found["rows"]):
        rows = {row["name"]: row for row in found["rows"] if row["era"] == era}
        for row in rows.values():
            notes = "; ".join(row["errors"][:1])
            lines.append(
                [
                    era,
                    row["name"],
                    *ratios(row, rows["plain"]),
                    row["idle_mb"],
                    row["after_mb"],
                    notes,
                ]
            )
    return table(head, lines)
