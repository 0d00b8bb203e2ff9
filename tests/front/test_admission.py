"""The line at the door: who is begun when, who is refused, who is skipped."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from kit.clock import LoopClock
from kit.loop import run
from mcpx.front import admission as module
from mcpx.front.admission import Admission
from mcpx.front.visitor import Visitor
from mcpx.model.errors import RpcError
from mcpx.wire.exchange import Exchange


class Asked:
    """What a request is answered with."""

    def __init__(self) -> None:
        self.closed = False
        self.status: int | None = None
        self.headers: dict[str, str] = {"mcp-session-id": "one"}
        self.told: Any = None

    def reply(self, status: int, body: bytes, headers: Any = ()) -> None:
        self.status, self.told = status, dict(headers)


def line_up(admission: Admission, begun: list[int], number: int) -> Asked:
    asked = Asked()
    admission.line_up(
        cast(Exchange, asked), {"id": number}, Visitor(), lambda: begun.append(number)
    )
    return asked


def test_those_in_line_are_begun_in_order_a_few_in_each_turn() -> None:
    async def main() -> None:
        admission, begun = Admission(Counter()), list[int]()
        asked = [line_up(admission, begun, number) for number in range(40)]
        assert begun == [] and admission.waiting == 40 and not admission.calm
        asked[3].closed = True
        admission.cancel("one", 5)
        assert asked[5].status == 200
        await asyncio.sleep(0)
        assert len(begun) == module.PER_TURN
        while admission.waiting:  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)
        assert begun == [number for number in range(40) if number not in (3, 5)]
        assert admission.calm

    run(main())


def test_where_the_first_has_waited_for_long_newcomers_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6."""

    async def main() -> None:
        refused: Counter[str] = Counter()
        admission, begun, clock = Admission(refused), list[int](), LoopClock(monkeypatch)
        line_up(admission, begun, 1)
        clock.move(module.LONGEST_WAIT + 1)
        late = line_up(admission, begun, 2)
        assert (late.status, late.told) == (503, {"retry-after": "1"})
        with pytest.raises(RpcError):
            admission.enter()
        await asyncio.sleep(0)
        assert begun == [1] and refused == {"gateway.in_flight": 2}

    run(main(), 1000)


def test_no_more_are_remembered_than_so_many_in_all() -> None:
    """SEC-6."""

    async def main() -> None:
        admission = Admission(Counter())
        admission.running = module.IN_ALL
        assert line_up(admission, [], 1).status == 503

    run(main())


def test_where_most_give_up_fewer_are_let_in_until_hardly_anybody_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6: else all are begun, and none is answered in time."""

    async def main() -> None:
        admission, clock = Admission(Counter()), LoopClock(monkeypatch)

        async def let_in(*, gave_up: int = 0, answered: int = 0) -> bool:
            """After a while in which that became of those who were in flight."""
            for number in range(gave_up + answered):
                if number < gave_up:
                    admission.gave_up()
                admission.leave()
            admission.running = 1_000
            await clock.advance(module.LOOK)
            asked = line_up(admission, [], 0)
            await asyncio.sleep(0)
            return asked.status is None

        assert await let_in()
        assert await let_in(gave_up=module.MANY - 1)  # chance
        assert await let_in(gave_up=900, answered=1_000)
        assert not await let_in(gave_up=900, answered=100)
        assert not await let_in(gave_up=500, answered=600)
        assert (
            await let_in(gave_up=1, answered=900) is False
        )  # 1,000 in flight are as many as may be: twice 500
        assert await let_in(gave_up=0, answered=900)
        assert not await let_in(gave_up=900)
        await clock.advance(module.LONG_AGO + 1)
        assert await let_in()

    run(main(), 1000)
