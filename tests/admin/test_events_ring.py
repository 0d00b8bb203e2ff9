"""What a stream sends while nothing happens, and what becomes of one that is too slow: in process,
with short times."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcpx.admin import events as module
from mcpx.admin.application import Live
from mcpx.admin.desk import About, Desk
from mcpx.admin.events import Events
from mcpx.admin.shapes.watching import Reset
from mcpx.config import Config
from mcpx.core.gateway import Gateway
from mcpx.core.store import ConfigStore


@asynccontextmanager
async def events() -> AsyncGenerator[Events]:
    gateway = Gateway(Config(), {})
    store = ConfigStore(gateway, None, lambda config: None)

    def about() -> About:
        return About(version="0", transport="http", started=time.time(), config=Path("x.yaml"))

    live = Live(Desk(gateway=gateway, store=store, about=about))
    try:
        yield live.events
    finally:
        await live.close()
        await gateway.close()


def frames(events: Events, last: str | None = None) -> AsyncGenerator[bytes]:
    return events.listen(last)._frames


async def next_of(stream: AsyncGenerator[bytes]) -> bytes:
    async with asyncio.timeout(5):
        return await anext(stream)


def test_a_comment_comes_again_and_again_while_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ADM-4: both sides notice a dead connection."""
    monkeypatch.setattr(module, "BEAT", 0.1)
    monkeypatch.setattr(module, "TICK", 0.01)
    monkeypatch.setattr(module, "SOON", 0.001)

    async def test() -> None:
        async with events() as made:
            stream = frames(made)
            assert (await next_of(stream)).startswith(b"id: ")
            assert b"event: clients" in await next_of(stream)
            assert [await next_of(stream) for _ in range(3)] == [b":\n\n"] * 3
            await stream.aclose()

    asyncio.run(test())


def test_a_reader_whose_next_event_is_gone_is_let_go_and_told_when_it_comes_again() -> None:
    """ADM-4"""

    async def test() -> None:
        async with events() as made:
            slow = frames(made)
            hello = await next_of(slow)
            id = hello.decode().partition("\n")[0].removeprefix("id: ")
            for _ in range(1_001):
                made.buffer.add("reset", Reset().model_dump_json())
            with pytest.raises(StopAsyncIteration):
                await next_of(slow)
            again = frames(made, id)
            assert b"event: hello" in await next_of(again) and b"event: reset" in await next_of(
                again
            )
            await again.aclose()

    asyncio.run(test())


def test_while_nobody_listens_nothing_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what happened meanwhile is not passed off as nothing."""
    monkeypatch.setattr(module, "TICK", 0.01)
    monkeypatch.setattr(module, "LINGER", 0.02)

    async def test() -> None:
        async with events() as made:
            bus = made._desk.gateway.bus
            before = {kind: list(heard) for kind, heard in bus.listeners.items()}
            stream = made.listen(None)
            assert bus.listeners != before
            hello = await next_of(stream._frames)
            await stream._frames.aclose()
            stream._on_end()
            async with asyncio.timeout(5):
                await asyncio.wait(made._tasks._running)
            assert bus.listeners == before
            id = hello.decode().partition("\n")[0].removeprefix("id: ")
            again = frames(made, id)
            assert b"event: hello" in await next_of(again) and b"event: reset" in await next_of(
                again
            )
            await again.aclose()

    asyncio.run(test())
