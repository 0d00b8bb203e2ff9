"""What is said in one turn of the loop goes out together, in order, and nothing stays behind."""

import asyncio
from typing import Any, cast

from kit.loop import run, yield_to_loop
from mcpx.wire.stdio_pipes import AT_ONCE, Gathered


class Pipe:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.closing


def gathered() -> tuple[Pipe, Gathered]:
    pipe = Pipe()
    return pipe, Gathered(cast(asyncio.WriteTransport, cast(Any, pipe)))


def test_one_message_alone_goes_at_once() -> None:
    async def main() -> None:
        pipe, out = gathered()
        out.write(b"a", more_to_come=False)
        assert pipe.writes == [b"a"]
        await yield_to_loop()
        assert pipe.writes == [b"a"]

    run(main())


def test_what_is_said_in_one_turn_is_one_write() -> None:
    async def main() -> None:
        pipe, out = gathered()
        for data in (b"a", b"b", b"c"):
            out.write(data, more_to_come=True)
        assert pipe.writes == []
        await yield_to_loop()
        assert pipe.writes == [b"abc"]
        out.write(b"d", more_to_come=True)
        await yield_to_loop()
        assert pipe.writes == [b"abc", b"d"]

    run(main())


def test_the_last_one_takes_the_others_with_it_in_order() -> None:
    async def main() -> None:
        pipe, out = gathered()
        out.write(b"a", more_to_come=True)
        out.write(b"b", more_to_come=False)
        assert pipe.writes == [b"ab"]
        await yield_to_loop()
        assert pipe.writes == [b"ab"]

    run(main())


def test_much_is_not_kept_for_the_end_of_the_turn() -> None:
    async def main() -> None:
        pipe, out = gathered()
        out.write(b"a", more_to_come=True)
        out.write(b"x" * AT_ONCE, more_to_come=True)
        assert [len(data) for data in pipe.writes] == [AT_ONCE + 1]

    run(main())


def test_what_waits_is_flushed_before_a_close_and_dropped_after_it() -> None:
    async def main() -> None:
        pipe, out = gathered()
        out.write(b"a", more_to_come=True)
        out.flush()
        assert pipe.writes == [b"a"]
        out.write(b"b", more_to_come=True)
        pipe.closing = True
        await yield_to_loop()
        assert pipe.writes == [b"a"]

    run(main())
