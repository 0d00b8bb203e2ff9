"""Work that is done once for all who want it."""

import asyncio
import logging

import pytest

from mcpx.auth.renewal import Failed, Renewal


def test_a_bug_in_the_work_is_not_run_into_again_by_every_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        raise OverflowError("canary")

    async def run() -> None:
        renewal = Renewal("a token", work)
        for _ in range(10):
            with pytest.raises(Failed, match="a token: failed inside the gateway: OverflowError"):
                await renewal.result()
        await renewal.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert runs == len(caplog.records) == 1
