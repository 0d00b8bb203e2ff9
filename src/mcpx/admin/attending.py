"""Work that is done for somebody who waits for it, and for nobody else.

Promise: it is cancelled when whoever asked goes, or when what let them in ends; it is over when
this returns.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from mcpx.admin.errors import ApiError
from mcpx.base.aio import Tasks

T = TypeVar("T")


async def attended(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    tasks = Tasks("a request")
    task: asyncio.Task[T] = tasks.start(work, awaited=True)
    try:
        await asyncio.wait(
            (task, tasks.start(gone(receive), awaited=True)), return_when=asyncio.FIRST_COMPLETED
        )
        if not task.done():
            raise ApiError(408, "cancelled", "whoever asked has gone before it was over")
        return task.result()
    finally:
        await tasks.close()


async def gone(receive: Receive) -> None:
    """Returns when nobody waits for an answer any more."""
    while (await receive())["type"] != "http.disconnect":
        pass
