"""ADM-2: what is remembered of servers is bounded, however much they print."""

import asyncio

from mcpx.config import Config, Server
from mcpx.core.chronicle import MOST_BYTES, MOST_LINES, MOST_SPANS, Chronicle
from mcpx.core.gateway import Gateway
from mcpx.model.events import ConfigApplied, UpstreamChanged
from mcpx.transports import Stdio


def with_chronicle(work: object) -> None:
    async def run() -> None:
        server = Server(name="s", enabled=False, connection=Stdio(command="x"))
        gateway = Gateway(Config(mcp_servers=(server,)), {})
        try:
            await work(gateway, Chronicle(gateway))  # type: ignore[operator]
        finally:
            await gateway.close()

    asyncio.run(run())


def test_lines_are_bounded_in_number_and_in_bytes() -> None:
    async def work(gateway: Gateway, chronicle: Chronicle) -> None:
        hear = gateway.overhear("s")
        assert hear is not None
        for number in range(3 * MOST_LINES):
            hear(b"line %d" % number, None)
        lines, last = chronicle.lines("s", after=1, limit=10 * MOST_LINES)
        assert len(lines) == MOST_LINES and lines[-1].number == last
        assert lines[-1].text == f"line {3 * MOST_LINES - 1}"
        for _ in range(MOST_LINES):
            hear(b"x" * 2048, None)
        lines, _ = chronicle.lines("s", after=1, limit=10 * MOST_LINES)
        assert sum(len(line.text) for line in lines) <= MOST_BYTES + 3 * len(lines)

    with_chronicle(work)


def test_lines_come_out_plain_and_without_secrets() -> None:
    async def work(gateway: Gateway, chronicle: Chronicle) -> None:
        gateway.redactor.learn("test", ["a-secret-value"])
        hear = gateway.overhear("s")
        assert hear is not None
        hear(b"\x1b[31mred\x1b[0m a-secret-value own \xff", lambda text: text.replace("own", "***"))
        assert chronicle.tail("s", 1) == ["red *** *** \ufffd"]

    with_chronicle(work)


def test_states_are_bounded_and_what_is_gone_is_forgotten() -> None:
    async def work(gateway: Gateway, chronicle: Chronicle) -> None:
        upstream = gateway.generation.upstreams["s"]
        for number in range(2 * MOST_SPANS):
            upstream.life.set_status("disconnected", f"error {number}")  # pyright: ignore[reportPrivateUsage]
        spans = chronicle.spans("s")
        assert (
            len(spans) == MOST_SPANS
            and spans[-1].end is None
            and spans[-1].error == f"error {2 * MOST_SPANS - 1}"
        )
        await gateway.apply(Config())
        gateway.bus.publish(UpstreamChanged("s"))
        gateway.bus.publish(ConfigApplied("test", True, ""))
        assert chronicle.spans("s") == [] and chronicle.lines("s") == ([], 0)

    with_chronicle(work)
