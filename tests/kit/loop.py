"""Runs coroutines of a test in a separate event loop, with a time limit."""

import asyncio
from collections.abc import Coroutine
from contextlib import asynccontextmanager
from typing import Any

TIME_LIMIT_SECONDS = 60.0
"""Few tests take one second on an idle machine. An event that must not be awaited takes longer than
this."""


def run(main: Coroutine[Any, Any, Any], seconds: float = TIME_LIMIT_SECONDS) -> Any:
    """Run `main` with a time limit. The test fails on errors that the loop would only log."""
    errors: list[str] = []

    async def watched() -> Any:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: errors.append(str(context))
        )
        async with asyncio.timeout(seconds):
            return await main

    result = asyncio.run(watched())
    assert errors == []
    return result


async def yield_to_loop(count: int = 20) -> None:
    """Run everything that is ready, without waiting for time to pass."""
    for _ in range(count):
        await asyncio.sleep(0)


async def never_return(*_: Any) -> Any:
    await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def closing(*things: Any):
    """Close all things at the end."""
    try:
        yield
    finally:
        for thing in things:
            await thing.close()
