"""Many older clients at once through one port, each call with a text of its own: what came of each
is told apart."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from behaviour.load import Wire, call_of, connected, greeted
from kit.servers import stdio_server

JOURNAL = Path(__file__).with_name("journal_server.py")


def journal(file: Path) -> dict[str, Any]:
    """An entry of `mcp_servers` whose tool `note` writes into that file."""
    import sys

    return stdio_server("log", [sys.executable, "-I", "-S", str(JOURNAL), str(file)])


@dataclass
class Crowd:
    """What became of everybody's calls."""

    port: int
    good: int = 0
    failed: list[tuple[float, str, str]] = field(default_factory=list[tuple[float, str, str]])
    """When, of which text, and how."""
    answered_at: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """By client."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def come(self, clients: int) -> list[tuple[Wire, str]]:
        there: list[tuple[Wire, str]] = []
        for _ in range(clients):
            wire = await connected(self.port)
            there.append((wire, await greeted(self.port, wire)))
        return there

    async def call(self, number: int, wire: Wire, session: str, pause: float) -> None:
        """One after the other, until it is over."""
        loop = asyncio.get_running_loop()
        turn = 0
        await asyncio.sleep(pause * (number % 50) / 50)
        while not self.stop.is_set():
            turn += 1
            text = f"c{number}-{turn}"
            began = loop.time()
            how = ""
            try:
                async with asyncio.timeout(30):
                    if wire.transport.is_closing():
                        wire = await connected(self.port)
                    answer = await wire.send(call_of(self.port, "older", session, "log_note", text))
                if not answer.startswith(b"HTTP/1.1 200") or b'"result"' not in answer:
                    how = answer[-300:].decode(errors="replace")
            except (TimeoutError, OSError) as error:
                how = type(error).__name__
                wire.transport.abort()
                wire = await connected(self.port)
            if how:
                self.failed.append((began, text, how))
            else:
                self.good += 1
                self.answered_at.setdefault(number, []).append(loop.time())
            await asyncio.sleep(max(0.0, pause - (loop.time() - began)))
        wire.transport.close()


def twice(file: Path) -> list[str]:
    """Texts that were written more than once."""
    return [text for text, times in Counter(file.read_text().split()).items() if times > 1]
