"""A server over a WebSocket, over a real socket."""

import asyncio
import json
from typing import Any

import pytest

from kit.loop import run
from kit.until import until
from mcpx.model.call import Json
from mcpx.model.errors import SERVER_DIED, SERVER_DOWN, SERVER_TIMEOUT, Unavailable
from mcpx.transports import Websocket
from mcpx.transports.dial import UNTOLD, Dial
from mcpx.wire import websocket
from mcpx.wire.http_server import Exchange, HttpServer
from mcpx.wire.peer import Conversation


class Site:
    """A WebSocket server: answers every request with its method, unless it is `silent`."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.messages: list[Json] = []
        self.headers: dict[str, str] = {}
        self.socket: websocket.WebSocket | None = None
        self.closings: list[str] = []
        self.refuse_with: int | None = None
        """A status, or 0 for no answer at all."""
        self._server = HttpServer(self._handle)
        self.port = 0

    def _handle(self, exchange: Exchange) -> None:
        self.headers = dict(exchange.headers.items())
        if self.refuse_with is not None:
            if self.refuse_with:
                exchange.reply(
                    self.refuse_with, b"no", "text/plain", [("WWW-Authenticate", "Bearer")]
                )
            return
        self.socket = websocket.accept(
            exchange,
            limit=1 << 20,
            subprotocol="mcp",
            on_message=self._got,
            on_close=self.closings.append,
        )

    def _got(self, raw: bytes) -> None:
        message = json.loads(raw)
        self.messages.append(message)
        if not self.silent and "id" in message and "method" in message:
            self.say(id=message["id"], result={"echo": message["method"]})

    def say(self, **message: Any) -> None:
        assert self.socket is not None
        self.socket.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def __aenter__(self) -> "Site":
        self.port = await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._server.close(0.0)


class Owner:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Json]] = []
        self.losses: list[str] = []

    async def request(self, message: Json) -> Json:
        return {"asked": message["method"]}

    def notification(self, method: str, params: Json) -> None:
        self.heard.append((method, params))

    def closed(self, reason: str) -> None:
        self.losses.append(reason)


async def opened(
    site: Site, owner: Owner, *, limit: int = 1 << 20, timeout: float = 2.0
) -> Conversation:
    spec = Websocket(url=f"ws://127.0.0.1:{site.port}/ws?a=b", headers={"X-Own": "mine"})
    return await spec.open(Dial("srv", owner, timeout, limit, {}, {}, itself="run1"))


def test_requests_questions_and_notifications_travel_on_one_socket() -> None:
    """SRC-1."""

    async def main() -> None:
        async with Site() as site:
            owner = Owner()
            talk = await opened(site, owner)
            assert await talk.request("hello", {}) == {"echo": "hello"}
            talk.notify("notifications/x", {"a": 1})
            site.say(id="q", method="roots/list")
            site.say(method="notifications/y")
            await until(lambda: len(site.messages) == 3)
            assert site.messages[1:] == [
                {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}},
                {"jsonrpc": "2.0", "id": "q", "result": {"asked": "roots/list"}},
            ]
            assert owner.heard == [("notifications/y", {})]
            assert (site.headers["x-own"], site.headers["mcpx-via"]) == ("mine", "run1")
            assert site.headers["sec-websocket-protocol"] == "mcp"
            await talk.close()
            await until(lambda: site.closings)

    run(main())


def test_a_socket_that_closes_fails_what_waits_and_tells_its_owner_once() -> None:
    """SRC-8."""

    async def main() -> None:
        async with Site(silent=True) as site:
            owner = Owner()
            talk = await opened(site, owner)
            waiting = asyncio.create_task(talk.request("m", {}))
            await until(lambda: site.messages)
            assert site.socket is not None
            site.socket.close(1001, "going away")
            with pytest.raises(Unavailable, match=r"^srv: ") as caught:
                await waiting
            assert caught.value.code == SERVER_DIED
            await until(lambda: owner.losses)
            with pytest.raises(Unavailable):
                await talk.request("m", {})
            talk.notify("n", None)
            await talk.close()
            assert len(owner.losses) == 1

    run(main())


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_server_says_as_it_closes_is_confided_where_clients_are_told_apart(
    apart: bool,
) -> None:
    """SEC-2: it may be about any of those who have a call there."""

    async def main() -> None:
        async with Site(silent=True) as site:
            owner, confided = Owner(), list[str]()

            def confide(words: str) -> bool:
                confided.append(words)
                return apart

            spec = Websocket(url=f"ws://127.0.0.1:{site.port}/ws")
            talk = await spec.open(Dial("srv", owner, 2.0, 1 << 20, {}, {}, confide=confide))
            waiting = asyncio.create_task(talk.request("m", {}))
            await until(lambda: site.messages)
            assert site.socket is not None
            site.socket.close(1011, "the diary of ann")
            with pytest.raises(Unavailable, match=r"^srv: closed by the peer with 1011") as caught:
                await waiting
            assert ("ann" in caught.value.message, UNTOLD in caught.value.message) == (
                not apart,
                apart,
            )
            assert confided == ["the diary of ann"]
            await talk.close()

    run(main())


def test_giving_up_is_said_to_the_server() -> None:
    """LIF-6."""

    async def main() -> None:
        async with Site(silent=True) as site:
            talk = await opened(site, Owner())
            with pytest.raises(Unavailable) as caught:
                await talk.request("m", {}, timeout=0.5)
            assert caught.value.code == SERVER_TIMEOUT
            await until(lambda: len(site.messages) == 2)
            assert site.messages[1]["method"] == "notifications/cancelled"
            await talk.close()

    run(main())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
def test_a_server_that_refuses_the_handshake_is_told_with_its_name(status: int) -> None:
    """SRC-8."""

    async def main() -> None:
        async with Site() as site:
            site.refuse_with = status
            with pytest.raises(Unavailable, match=rf"^srv: .*HTTP {status}.*: no$") as caught:
                await opened(site, Owner())
            assert (caught.value.code, caught.value.http_status) == (SERVER_DOWN, status)
            assert caught.value.challenge == ("Bearer" if status in (401, 403) else None)

    run(main())


def test_a_server_that_is_not_there_or_says_nothing_is_given_up() -> None:
    """LIF-6 and SRC-8."""

    async def main() -> None:
        async with Site() as site:
            pass
        with pytest.raises(Unavailable, match=r"^srv: cannot connect: ") as caught:
            await opened(site, Owner())
        assert caught.value.code == SERVER_DOWN
        async with Site() as site:
            site.refuse_with = 0
            with pytest.raises(Unavailable, match=r"^srv: cannot connect: ") as caught:
                await opened(site, Owner(), timeout=0.1)
            assert caught.value.code == SERVER_DOWN

    run(main())


def test_a_message_over_the_limit_ends_the_conversation_with_a_reason() -> None:
    """SEC-6."""

    async def main() -> None:
        async with Site(silent=True) as site:
            owner = Owner()
            talk = await opened(site, owner, limit=1000)
            waiting = asyncio.create_task(talk.request("m", {}))
            await until(lambda: site.messages)
            site.say(id=1, result={"x": "x" * 5000})
            with pytest.raises(Unavailable, match=r"^srv: "):
                await waiting
            assert len(owner.losses) == 1
            await talk.close()

    run(main())


def test_garbage_between_messages_is_counted_and_harms_nobody() -> None:
    async def main() -> None:
        async with Site() as site:
            talk = await opened(site, Owner())
            assert site.socket is not None
            for garbage in (b"not json", b"[]", b"{}", b"5"):
                site.socket.send(garbage)
            assert await talk.request("hello", {}) == {"echo": "hello"}
            await talk.close()

    run(main())
