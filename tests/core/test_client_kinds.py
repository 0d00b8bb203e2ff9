"""LIF-1, LIF-2: the lists of each kind of client, by the capabilities that a server's lists depend
on."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from kit.callers import modern_caller, older_caller
from kit.core_gateway import CoreGateway
from kit.loop import run
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.config import Config, Global
from mcpx.model.call import Caller, Json
from mcpx.model.events import OffersChanged
from mcpx.upstreams.traits import kind_of

FAR = 50.0
"""A wait in seconds that no test reaches."""
EXTRA = {"sampling": "sample", "elicitation": "ask", "roots": "look"}
"""The tool that a server offers to clients with a capability."""
ALL = ["plain", "sample", "ask", "look"]


class ChoosyServer(ScriptedServer):
    """A server whose tools depend on the capabilities of its client: those of `initialize`, or of
    each request."""

    def __init__(self, *eras: str, extra: dict[str, str] = EXTRA) -> None:
        super().__init__(
            *(eras or ("older",)),
            tools=("plain", *EXTRA.values()),
            answers={"tools/list": self._list},
        )
        self.extra = extra
        self.connections_until_held: int | None = None
        """The number of connections after which `open` waits for `opening`."""

    async def open(self, dial: Any) -> ScriptedConnection:
        if len(self.lines) == self.connections_until_held:
            self.opening.clear()
        return await super().open(dial)

    async def _list(self, line: ScriptedConnection, params: Json) -> Json:
        able = capabilities_of(line, params)
        names = ["plain", *(name for capability, name in self.extra.items() if capability in able)]
        return {"tools": [{"name": name, "inputSchema": {}} for name in names]}


def capabilities_of(line: ScriptedConnection, params: Json) -> Json:
    """The capabilities that the server knows of its client when it gets these parameters."""
    opened = next((given for method, given in line.heard if method == "initialize"), {})
    stamped = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {})
    return {**opened.get("capabilities", {}), **stamped}


def client(name: str, *capabilities: str) -> Caller:
    return replace(older_caller(name), capabilities={capability: {} for capability in capabilities})


class KindsGateway(CoreGateway):
    """A gateway with one server `a`. It records the announcements for kinds of clients."""

    def __init__(
        self,
        server: ScriptedServer,
        state: Path | None = None,
        *,
        solo: Caller | None = None,
        first_start_wait: float = FAR,
        startup_wait: float = 0.0,
    ) -> None:
        settings = Global(startup_wait=startup_wait, first_start_wait=first_start_wait)
        super().__init__(
            Config(mcp_servers=(server.server("a", timeout=FAR),), global_=settings), state
        )
        self.announced: list[frozenset[str] | None] = []
        self.gateway.bus.subscribe(self._hear, OffersChanged)
        self._solo = solo

    def _hear(self, event: object) -> None:
        assert isinstance(event, OffersChanged)
        if event.client_kind is not None:
            self.announced.append(event.client_kind)

    async def __aenter__(self) -> Self:
        self.gateway.start(self._solo)
        return self


@pytest.mark.parametrize("eras", [("older",), ("modern", "older")])
@pytest.mark.parametrize("caller", [older_caller, modern_caller])
def test_the_first_list_of_a_client_has_the_tools_for_its_capabilities(
    eras: tuple[str, ...], caller: Any
) -> None:
    """LIF-1: also if a server takes long to list for the client's kind; and the client can call the
    tools."""

    async def main() -> None:
        server = ChoosyServer(*eras)
        server.connections_until_held = 1  # A second connection takes longer than `startup_wait`.
        async with KindsGateway(server) as on:
            able = caller(askable=True)
            listing = asyncio.create_task(on.names(able))
            if eras == ("older",):
                await until(lambda: server.attempts == 2)
                assert not listing.done()
            server.connections_until_held = None
            server.opening.set()
            assert await listing == ALL
            assert await on.names() == ["plain"]
            await on.ask("tools/call", able, name="sample")
            called = next(line for line in server.lines if line.calls())
            assert "sampling" in capabilities_of(called, called.calls()[0])
            assert on.announced == []

    run(main())


def test_a_list_waits_for_a_kind_of_client_only_once_and_the_rest_is_announced(
    tmp_path: Path,
) -> None:
    """LIF-1: at most `first_start_wait`; in a later run, at most `startup_wait`."""

    async def main() -> None:
        able = client("able", "sampling")
        for first_start_wait in (0.05, FAR):
            server = ChoosyServer()
            server.connections_until_held = 1
            async with KindsGateway(
                server, tmp_path, first_start_wait=first_start_wait, startup_wait=0.05
            ) as on:
                await on.settled()
                assert await on.names(able) == ["plain"]
        server = ChoosyServer()
        server.connections_until_held = 1
        async with KindsGateway(server, tmp_path) as on:
            await on.settled()
            assert await on.names(able) == ["plain"]
            await until(lambda: server.attempts == 2)
            server.opening.set()
            await until(lambda: on.announced == [kind_of({"sampling": {}})])
            assert await on.names(able) == ["plain", "sample"]

    run(main())


def test_later_starts_answer_at_once_and_read_the_lists_again(tmp_path: Path) -> None:
    """LIF-1: the lists of each kind are in the snapshot."""

    async def main() -> None:
        server = ChoosyServer()
        able = older_caller("able", askable=True)
        async with KindsGateway(server, tmp_path) as on:
            assert await on.names(able) == ALL
            assert await on.names(client("sampler", "sampling")) == ["plain", "sample"]
        server.opening.clear()
        server.extra = {**EXTRA, "roots": "other"}
        async with KindsGateway(server, tmp_path) as on:
            assert await on.names(able) == ALL
            assert await on.names(client("sampler", "sampling")) == ["plain", "sample"]
            assert await on.names(client("other")) == ["plain"]
            server.opening.set()
            await until(lambda: on.announced == [kind_of(able.capabilities)])
            assert await on.names(able) == [*ALL[:-1], "other"]

    run(main())


def test_a_server_that_lists_the_same_for_all_keeps_one_connection(tmp_path: Path) -> None:
    """LIF-2: that it does is in the snapshot."""

    async def main() -> None:
        server = ChoosyServer(extra={})
        able = older_caller("able", askable=True)
        async with KindsGateway(server, tmp_path) as on:
            assert await on.names(able) == await on.names() == ["plain"]
            await until(lambda: len(server.alive) == 1)
        opened = len(server.lines)
        async with KindsGateway(server, tmp_path) as on:
            await on.settled()
            assert (
                await on.names(able) == await on.names(client("sampler", "sampling")) == ["plain"]
            )
            await on.ask("tools/call", able, name="plain")
            assert len(server.lines) == opened + 1

    run(main())


def test_calls_go_over_a_connection_with_the_tools_of_the_caller() -> None:
    """LIF-2, PRO-3: not over one that was opened for another kind of client."""

    async def main() -> None:
        server = ChoosyServer()
        async with KindsGateway(server) as on:
            callers = [
                older_caller("able", askable=True),
                client("sampler", "sampling"),
                client("none"),
            ]
            for caller in callers:
                await on.names(caller)
                await on.ask("tools/call", caller, name="plain", arguments={"text": caller.session})
            for line in server.lines:
                for call in line.calls():
                    caller = next(
                        one for one in callers if one.session == call["arguments"]["text"]
                    )
                    assert capabilities_of(line, call).keys() == caller.capabilities.keys()

    run(main())


def test_the_lists_of_a_programs_only_client_are_not_those_of_other_clients(tmp_path: Path) -> None:
    """LIF-1: a program on standard input and output opens the main connection with its client's
    capabilities."""

    async def main() -> None:
        server = ChoosyServer()
        able = older_caller("able", askable=True, solo=True)
        bare = older_caller("bare", solo=True)
        async with KindsGateway(server, tmp_path, solo=able) as on:
            assert await on.names(able) == ALL
        async with KindsGateway(server, tmp_path, solo=bare) as on:
            assert await on.names(bare) == ["plain"]
        server.opening.clear()
        for caller, expected in ((able, ALL), (bare, ["plain"])):
            async with KindsGateway(server, tmp_path, solo=caller) as on:
                assert await on.names(caller) == expected
        async with KindsGateway(server, tmp_path) as on:
            assert await on.names(older_caller("shared", askable=True)) == ALL
            assert await on.names() == ["plain"]

    run(main())


@pytest.mark.parametrize("capabilities", [(), ("sampling",)])
def test_a_server_that_has_never_listed_delays_only_the_first_start(
    capabilities: tuple[str, ...], tmp_path: Path
) -> None:
    """LIF-1: later starts answer at once, although the server was never reached."""

    async def main() -> None:
        server = ChoosyServer()
        server.opening.clear()
        caller = client("one", *capabilities)
        async with KindsGateway(server, tmp_path, first_start_wait=0.05) as on:
            assert await on.names(caller) == []
        async with KindsGateway(server, tmp_path) as on:
            assert await on.names(caller) == []
            server.opening.set()
            await on.settled()
            assert "plain" in await on.names(caller)
        server.opening.clear()
        async with KindsGateway(server, tmp_path) as on:
            assert "plain" in await on.names(caller)

    run(main())
