"""A server inside this process."""

import asyncio

import pytest

from kit.loop import never_return, run
from mcpx.model.call import Json
from mcpx.model.errors import SERVER_TIMEOUT, RpcError, Unavailable
from mcpx.transports import TRANSPORTS
from mcpx.transports.dial import Dial
from mcpx.transports.memory import Memory
from mcpx.wire.peer import Conversation


class Nobody:
    async def request(self, message: Json) -> Json:
        raise AssertionError

    def notification(self, method: str, params: Json) -> None:
        raise AssertionError

    def closed(self, reason: str) -> None:
        raise AssertionError


async def opened(memory: Memory) -> Conversation:
    return await memory.open(Dial("srv", Nobody(), 1.0, 1000, {}, {}))


def test_a_request_is_a_function_call_and_its_values_are_the_same_objects() -> None:
    async def main() -> None:
        params: Json = {"a": [1]}
        result: Json = {"b": object()}

        async def serve(method: str, given: Json) -> Json:
            assert method == "m"
            assert given is params
            return result

        talk = await opened(Memory(serve=serve))
        assert await talk.request("m", params) is result
        talk.notify("notifications/x", {})
        await talk.close()

    run(main())


def test_its_errors_are_its_own() -> None:
    """PRO-6."""

    async def main() -> None:
        async def serve(method: str, params: Json) -> Json:
            raise RpcError(-5, "no", {"d": 1})

        with pytest.raises(RpcError, match="no") as caught:
            await (await opened(Memory(serve=serve))).request("m", {}, timeout=1.0)
        assert not isinstance(caught.value, Unavailable)

    run(main())


def test_one_that_does_not_answer_in_time_is_cancelled() -> None:
    """LIF-6."""

    async def main() -> None:
        cancelled = asyncio.Event()

        async def serve(method: str, params: Json) -> Json:
            try:
                return await never_return()
            finally:
                cancelled.set()

        with pytest.raises(Unavailable, match=r"^srv: no answer within 0\.02 s$") as caught:
            await (await opened(Memory(serve=serve))).request("m", {}, timeout=0.02)
        assert caught.value.code == SERVER_TIMEOUT
        assert cancelled.is_set()

    run(main())


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_time_out_of_its_own_is_not_taken_for_ours(timeout: float | None) -> None:
    async def main() -> None:
        async def serve(method: str, params: Json) -> Json:
            raise TimeoutError("the database")

        with pytest.raises(TimeoutError, match="the database"):
            await (await opened(Memory(serve=serve))).request("m", {}, timeout=timeout)

    run(main())


def test_no_config_file_can_name_it() -> None:
    assert "memory" not in TRANSPORTS
