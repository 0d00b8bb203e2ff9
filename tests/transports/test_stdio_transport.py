"""A server over stdio that floods, or does not read: what is kept of it is bounded, and its end is
said."""

import asyncio
import sys
from typing import Any

import pytest

from kit.loop import run
from kit.until import until
from mcpx.model.call import Json
from mcpx.model.errors import SERVER_DIED, SERVER_GARBAGE, Unavailable
from mcpx.processes import process
from mcpx.transports import Stdio, stdio
from mcpx.transports.dial import Dial
from mcpx.wire.peer import Conversation


class Owner:
    def __init__(self) -> None:
        self.losses: list[str] = []

    async def request(self, message: Json) -> Json:
        return {"long": "x" * 100_000}

    def notification(self, method: str, params: Json) -> None: ...

    def closed(self, reason: str) -> None:
        self.losses.append(reason)


READY = "import sys; out = sys.stdout.buffer; first = sys.stdin.readline()\n"
ANSWERS = 'out.write(b\'{"jsonrpc":"2.0","id":1,"result":{}}\\n\'); out.flush()\n'


async def flooded(program: str, limit: int = 100_000, **env: str) -> tuple[Any, list[str]]:
    """What a first and a second request of a server with this program get."""
    owner = Owner()
    spec = Stdio(command=sys.executable, args=("-I", "-S", "-c", READY + program), env=env)
    talk: Conversation = await spec.open(Dial("srv", owner, 5.0, limit, {}, {}))
    try:
        with pytest.raises(Unavailable, match=r"^srv: ") as caught:
            for method in ("first", "second"):
                await talk.request(method, {}, timeout=60)
        await until(lambda: owner.losses)
        return caught.value, owner.losses
    finally:
        await talk.close()
        await process.end_all()


@pytest.mark.parametrize(
    "noise",
    [
        "b'\\n' * 65536",
        "b'   \\n' * 16384",
        "b'no JSON\\n' * 8192",
        "(b'y' * 200_000) + b'\\n'",
        "b'[]\\n' * 20_000",
    ],
)
def test_a_server_that_prints_nothing_but_noise_is_ended_and_that_is_said(
    noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SRC-8 and SEC-6."""
    monkeypatch.setattr(stdio, "NOISE", 1 << 20)
    error, losses = run(flooded(ANSWERS + f"while True: out.write({noise})"))
    assert losses == ["prints nothing but what is no message, 1,048,576 bytes of it"]
    assert error.code in (SERVER_GARBAGE, -33004)


def test_a_line_without_end_ends_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """SRC-8 and SEC-6."""
    monkeypatch.setattr(stdio, "NOISE", 1 << 20)
    error, losses = run(flooded(ANSWERS + "while True: out.write(b'x' * 65536)"))
    assert losses == ["prints a line without end"]
    assert error.code in (SERVER_GARBAGE, -33004)


def test_a_long_line_that_ends_costs_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "NOISE", 1 << 20)

    async def main() -> None:
        long = (
            'out.write(b\'{"jsonrpc":"2.0","id":1,"result":{"x":"\' + b\'x\' * 1_100_000 + '
            "b'\"}}\\n'); out.flush()\n"
        )
        again = (
            'sys.stdin.readline(); out.write(b\'{"jsonrpc":"2.0","id":2,"result":{}}\\n\'); '
            "out.flush()\n"
        )
        owner = Owner()
        spec = Stdio(
            command=sys.executable,
            args=("-I", "-S", "-c", READY + long + again + "sys.stdin.read()"),
        )
        talk = await spec.open(Dial("srv", owner, 5.0, 100_000, {}, {}))
        try:
            with pytest.raises(Unavailable, match="100,000 bytes"):
                await talk.request("first", {}, timeout=60)
            assert await talk.request("second", {}, timeout=60) == {}
            assert owner.losses == []
        finally:
            await talk.close()
            await process.end_all()

    run(main())


def test_a_server_that_asks_and_does_not_read_the_answers_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6: what waits to be read is bounded."""
    monkeypatch.setattr(stdio, "MOST_UNREAD", 1 << 20)
    asks = (
        "for n in range(1000): "
        'out.write(b\'{"jsonrpc":"2.0","id":%d,"method":"roots/list"}\\n\' % n)\n'
    )
    error, losses = run(flooded(ANSWERS + asks + "out.flush(); import time; time.sleep(600)"))
    assert losses == ["does not read what it is sent"]
    assert error.code == SERVER_DIED


def test_last_words_are_read_though_they_are_many() -> None:
    """Output first, then the exit: also what waits for its turn."""

    async def main() -> None:
        heard: list[bytes] = []
        ended = asyncio.Event()
        spawn = process.Spawn(
            command=sys.executable,
            args=("-I", "-S", "-c", "import sys; sys.stdout.write('word\\n' * 200_000)"),
            env={},
            cwd=None,
        )
        child = await process.spawn(
            spawn, on_stdout=heard.append, on_stderr=lambda _: None, on_exit=lambda _: ended.set()
        )
        await ended.wait()
        assert b"".join(heard) == b"word\n" * 200_000
        await child.end()
        await process.end_all()

    run(main())


def test_an_answer_that_is_not_json_is_told_with_its_first_bytes() -> None:
    """SRC-8: without the secrets of its environment."""
    line = r'{"jsonrpc": "2.0", "id": 2, "result": sekret-1234567}'
    program = (
        f"{ANSWERS}sys.stdin.readline(); out.write({(line + chr(10)).encode()!r}); out.flush()"
    )
    error, _ = run(flooded(program, API_TOKEN="sekret-1234567"))
    assert "the answer is not JSON" in str(error)
    assert str(error).endswith('it began: {"jsonrpc": "2.0", "id": 2, "result": ***}')
