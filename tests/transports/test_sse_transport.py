"""HTTP+SSE of 2024-11-05 towards a server under the test's control, over a real socket."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from kit.loop import run, yield_to_loop
from kit.until import until
from mcpx.model.call import Json
from mcpx.model.errors import (
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_TIMEOUT,
    SERVER_TOO_LARGE,
    Unavailable,
)
from mcpx.transports import Sse
from mcpx.transports import sse as module
from mcpx.transports.dial import Dial
from mcpx.wire.http_server import Exchange, HttpServer
from mcpx.wire.peer import Conversation
from mcpx.wire.sse import sse_frame

EVENTS = [("content-type", "text/event-stream; charset=utf-8")]


class Site:
    """A server of that transport. `on_post` may be replaced; by default every request is answered
    with `{}`."""

    def __init__(self, endpoint: str | None = "/messages?session=1") -> None:
        self.endpoint = endpoint
        self.stream: Exchange | None = None
        self.posts: list[tuple[str, Json]] = []
        self.headers: list[dict[str, str]] = []
        self.on_get: Callable[[Exchange], None] = self.open
        self.on_post: Callable[[Exchange, Json], None] = self.answer
        self.hung_up = asyncio.Event()
        self._server = HttpServer(self._handle)
        self.port = 0

    def _handle(self, exchange: Exchange) -> None:
        self.headers.append(dict(exchange.headers.items()))
        if exchange.method == "GET":
            self.on_get(exchange)
        else:
            message = json.loads(exchange.body)
            self.posts.append((f"{exchange.path}?{exchange.query}", message))
            self.on_post(exchange, message)

    def open(self, exchange: Exchange) -> None:
        self.stream = exchange
        exchange.on_disconnect = self.hung_up.set
        exchange.stream(200, EVENTS)
        exchange.write(b": hello\n\n")
        if self.endpoint is not None:
            exchange.write(sse_frame(self.endpoint.encode(), event="endpoint"))

    def answer(self, exchange: Exchange, message: Json) -> None:
        exchange.reply(202, b"Accepted", "text/plain")
        if "method" in message and "id" in message:
            self.say(id=message["id"], result={"echo": message["method"]})

    def say(self, **message: Any) -> None:
        assert self.stream is not None
        self.stream.write(
            sse_frame(json.dumps({"jsonrpc": "2.0", **message}).encode(), event="message")
        )

    async def __aenter__(self) -> "Site":
        self.port = await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.stop(0.0)

    async def stop(self, grace: float) -> None:
        await self._server.close(grace)


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


class Talking:
    def __init__(self, site: Site, *, limit: int = 1 << 20, timeout: float = 2.0) -> None:
        self.site = site
        self.owner = Owner()
        self._limit = limit
        self._timeout = timeout
        self.talk: Conversation | None = None

    async def open(self) -> Conversation:
        spec = Sse(
            url=f"http://127.0.0.1:{self.site.port}/deep/sse?key=1", headers={"X-Own": "mine"}
        )
        return await spec.open(
            Dial("srv", self.owner, self._timeout, self._limit, {}, {}, itself="run1")
        )

    async def __aenter__(self) -> "Talking":
        await self.site.__aenter__()
        try:
            self.talk = await self.open()
        except BaseException:
            await self.site.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: Any) -> None:
        if self.talk is not None:
            await self.talk.close()
        await self.site.__aexit__()

    async def ask(self, method: str = "m", timeout: float | None = 2.0) -> Json:
        assert self.talk is not None
        return await self.talk.request(method, {}, timeout=timeout)


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("/messages?session=1", "/messages?session=1"),
        ("messages/2", "/deep/messages/2?"),
        ("?session=3", "/deep/sse?session=3"),
        ("/mä ssages?文=%", "/m%C3%A4%20ssages?%E6%96%87=%25"),
        ("/a\x1b\x7f\u2028", "/a%1B%7F%E2%80%A8?"),
    ],
)
def test_messages_go_to_the_endpoint_the_server_names(endpoint: str, path: str) -> None:
    """SRC-1."""

    async def main() -> None:
        async with Talking(Site(endpoint)) as on:
            assert await on.ask("hello") == {"echo": "hello"}
            assert on.site.posts[0][0] == path
            assert all(
                (got["x-own"], got["mcpx-via"]) == ("mine", "run1") for got in on.site.headers
            )

    run(main())


def test_an_endpoint_named_in_full_is_taken_if_it_is_on_the_same_origin() -> None:
    async def main() -> None:
        site = Site()
        async with site:
            site.endpoint = f"http://127.0.0.1:{site.port}/messages"
            talk = await Talking(site).open()
            assert await talk.request("m", {}) == {"echo": "m"}
            await talk.close()

    run(main())


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://elsewhere.example/messages",
        "https://127.0.0.1/messages",
        "http://127.0.0.1:1/messages",
        "//elsewhere.example/x",
        "http://user@127.0.0.1/messages",
        "http://[bad",
        "http://127.0.0.1:port/x",
        "/" + "x" * 10_000,
    ],
)
def test_an_endpoint_on_another_origin_is_refused(endpoint: str) -> None:
    """Our messages and our headers go to nobody else; and the reason is told at once."""

    async def main() -> None:
        with pytest.raises(Unavailable, match=r"^srv: cannot connect: its endpoint ") as caught:
            async with Talking(Site(endpoint), timeout=600.0):
                raise AssertionError("not reached")
        assert caught.value.code == SERVER_DOWN

    run(main())


def test_a_server_that_names_no_endpoint_in_time_is_given_up() -> None:
    """LIF-6."""

    async def main() -> None:
        site = Site(None)
        with pytest.raises(Unavailable, match=r"^srv: sent no endpoint") as caught:
            async with Talking(site, timeout=0.5):
                raise AssertionError("not reached")
        assert caught.value.code == SERVER_DOWN

    run(main())


def test_connecting_given_up_hangs_up() -> None:
    async def main() -> None:
        async with Site(None) as site:
            opening = asyncio.create_task(Talking(site).open())
            await until(lambda: site.stream is not None)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await site.hung_up.wait()

    run(main())


@pytest.mark.parametrize("status", [200, 401, 404, 405, 500])
def test_something_else_than_an_event_stream_is_told(status: int) -> None:
    async def main() -> None:
        site = Site()
        site.on_get = lambda exchange: exchange.reply(status, b"<html>", "text/html")
        with pytest.raises(Unavailable, match=f"HTTP {status}") as caught:
            async with Talking(site):
                raise AssertionError("not reached")
        assert "type: sse" not in caught.value.message, "that is what it is"

    run(main())


def test_a_stream_that_is_refused_says_what_the_server_says() -> None:
    """SRC-8, LIF-3: as over streamable HTTP."""

    async def main() -> None:
        site = Site()
        challenge = [("www-authenticate", "Bearer")]
        site.on_get = lambda exchange: exchange.reply(
            401, b'{"detail":"no token"}', headers=challenge
        )
        with pytest.raises(Unavailable, match=r"^srv: .*sign in.*: no token$") as caught:
            async with Talking(site):
                raise AssertionError("not reached")
        assert (caught.value.http_status, caught.value.challenge) == (401, "Bearer")
        site = Site()
        site.on_get = lambda exchange: exchange.reply(503, headers=[("retry-after", "3")])
        with pytest.raises(Unavailable) as caught:
            async with Talking(site):
                raise AssertionError("not reached")
        assert (caught.value.passing, caught.value.retry_after) == (True, 3.0)

    run(main())


def test_a_message_that_cannot_be_sent_may_be_sent_elsewhere_and_the_server_is_lost() -> None:
    """LIF-3: though its stream still stands."""

    async def main() -> None:
        site = Site()
        async with Talking(site) as on:
            await on.ask()
            stopping = asyncio.create_task(site.stop(10.0))
            await yield_to_loop()
            with pytest.raises(Unavailable) as caught:
                await on.ask()
            assert caught.value.unsent
            assert len(on.owner.losses) == 1
            assert on.talk is not None
            await on.talk.close()
            await stopping

    run(main())


def test_what_the_server_says_and_asks_reaches_the_owner() -> None:
    async def main() -> None:
        async with Talking(Site()) as on:
            on.site.say(method="notifications/x", params={"a": 1})
            on.site.say(id="q", method="roots/list")
            await until(lambda: on.site.posts)
            assert on.owner.heard == [("notifications/x", {"a": 1})]
            assert on.site.posts[0][1] == {
                "jsonrpc": "2.0",
                "id": "q",
                "result": {"asked": "roots/list"},
            }

    run(main())


def test_messages_do_not_overtake_each_other() -> None:
    """One POST at a time."""

    async def main() -> None:
        site = Site()
        held: list[tuple[Exchange, Json]] = []
        site.on_post = lambda *got: held.append(got)
        async with Talking(site) as on:
            calls = [asyncio.create_task(on.ask(f"m{n}")) for n in range(5)]
            for n in range(5):
                await until(lambda n=n: len(held) == n + 1)
                await yield_to_loop()
                assert len(held) == n + 1
                site.answer(*held[n])
            assert [await call for call in calls] == [{"echo": f"m{n}"} for n in range(5)]

    run(main())


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_a_message_the_server_refuses_fails_its_request_and_no_other(status: int) -> None:
    """SRC-8."""

    async def main() -> None:
        site = Site()

        def refuse(exchange: Exchange, message: Json) -> None:
            if message.get("method") == "bad":
                exchange.reply(status)
            else:
                site.answer(exchange, message)

        site.on_post = refuse
        async with Talking(site) as on:
            bad, good = asyncio.create_task(on.ask("bad")), asyncio.create_task(on.ask("good"))
            with pytest.raises(Unavailable, match=rf"^srv: .*HTTP {status}") as caught:
                await bad
            assert caught.value.http_status == status
            assert await good == {"echo": "good"}
            assert on.owner.losses == []

    run(main())


def test_an_answer_of_ours_that_the_server_refuses_fails_no_request_of_the_same_number() -> None:
    async def main() -> None:
        site = Site()

        def refuse_answers(exchange: Exchange, message: Json) -> None:
            if "method" not in message:
                exchange.reply(500)
            elif message["method"] != "slow":
                site.answer(exchange, message)
            else:
                exchange.reply(202)

        site.on_post = refuse_answers
        async with Talking(site) as on:
            slow = asyncio.create_task(on.ask("slow"))
            await until(lambda: site.posts)
            number = site.posts[0][1]["id"]
            site.say(id=number, method="ping")  # the server counts its own requests as we do ours
            await until(lambda: len(site.posts) == 2)
            assert await on.ask("next") == {"echo": "next"}
            site.say(id=number, result={"fine": True})
            assert await slow == {"fine": True}

    run(main())


def test_a_stream_that_ends_is_the_end() -> None:
    """SRC-8."""

    async def main() -> None:
        site = Site()
        site.on_post = lambda exchange, _: exchange.reply(202)
        async with Talking(site) as on:
            waiting = asyncio.create_task(on.ask())
            await until(lambda: site.posts)
            assert site.stream is not None
            site.stream.end()
            with pytest.raises(Unavailable, match=r"^srv: the event stream ended$") as caught:
                await waiting
            assert caught.value.code == SERVER_DIED
            assert on.owner.losses == ["the event stream ended"]
            with pytest.raises(Unavailable):
                await on.ask()

    run(main())


def test_giving_up_is_said_to_the_server() -> None:
    """LIF-6."""

    async def main() -> None:
        site = Site()
        site.on_post = lambda exchange, _: exchange.reply(202)
        async with Talking(site) as on:
            with pytest.raises(Unavailable) as caught:
                await on.ask(timeout=0.5)
            assert caught.value.code == SERVER_TIMEOUT
            await until(lambda: len(site.posts) == 2)
            assert site.posts[1][1]["method"] == "notifications/cancelled"

    run(main())


def test_an_answer_over_the_limit_fails_its_request() -> None:
    """SEC-6."""

    async def main() -> None:
        site = Site()

        def big(exchange: Exchange, message: Json) -> None:
            exchange.reply(202)
            if message["method"] == "big":
                site.say(id=message["id"], result={"x": "x" * 5000})
            else:
                site.say(id=message["id"], result={})

        site.on_post = big
        async with Talking(site, limit=1000) as on:
            with pytest.raises(Unavailable) as caught:
                await on.ask("big")
            assert caught.value.code == SERVER_TOO_LARGE
            assert await on.ask("small") == {}

    run(main())


def test_closing_hangs_up() -> None:
    async def main() -> None:
        async with Talking(Site()) as on:
            waiting = asyncio.create_task(on.ask("m", None))
            on.site.on_post = lambda exchange, _: exchange.reply(202)
            await yield_to_loop()
            assert on.talk is not None
            await on.talk.close()
            with pytest.raises(Unavailable):
                await waiting
            await on.site.hung_up.wait()
            on.talk.notify("n", None)

    run(main())


def test_a_server_that_is_not_there_is_told_with_its_name() -> None:
    """SRC-8."""

    async def main() -> None:
        async with Site() as site:
            pass
        with pytest.raises(Unavailable, match=r"^srv: cannot connect: ") as caught:
            await Talking(site).open()
        assert caught.value.code == SERVER_DOWN

    run(main())


# --- bounds


def pour(exchange: Exchange, data: bytes) -> None:
    """Writes the same until the other side hangs up."""

    async def write() -> None:
        while not exchange.closed:
            exchange.write(data)
            await exchange.drain()
            await asyncio.sleep(0)  # a connection that is ending does not wait

    task = asyncio.get_running_loop().create_task(write())
    exchange.on_disconnect = task.cancel


@pytest.mark.parametrize(
    "noise",
    [b"\n" * 8192, b": hm\n\n" * 2000, b"data: []\n\n" * 800, b"event: x\ndata: {}\n\n" * 400],
)
def test_a_stream_of_nothing_but_noise_is_the_end_and_said(noise: bytes) -> None:
    """SRC-8 and SEC-6."""

    async def main() -> None:
        async with Talking(Site(), limit=1 << 24) as on:
            assert await on.ask() == {"echo": "m"}
            assert on.site.stream is not None
            pour(on.site.stream, noise)
            await until(lambda: on.owner.losses)
            assert "nothing but noise" in on.owner.losses[0]

    run(main())


def test_an_event_without_end_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDLESS", 1 << 20)

    async def main() -> None:
        async with Talking(Site(), limit=1000) as on:
            assert on.site.stream is not None
            pour(on.site.stream, b"data: " + b"x" * 8000 + b"\n")
            await until(lambda: on.owner.losses)
            assert "without end" in on.owner.losses[0]

    run(main())


def test_what_is_no_event_stream_is_not_read_for_ever() -> None:
    async def main() -> None:
        hung_up = asyncio.Event()

        def page(exchange: Exchange) -> None:
            exchange.stream(200, [("content-type", "text/html")])
            pour(exchange, b"x" * 8192)
            exchange.on_disconnect = hung_up.set

        site = Site()
        site.on_get = page
        told = (
            r"HTTP 200 and text/html instead of an event stream; check its URL\. The body "
            r"began: xxx"
        )
        with pytest.raises(Unavailable, match=told):
            async with Talking(site):
                pass
        await hung_up.wait()

    run(main())


@pytest.mark.parametrize("status", [200, 500])
def test_what_is_said_to_a_message_is_not_read_for_ever(status: int) -> None:
    async def main() -> None:
        def chatty(exchange: Exchange, message: Json) -> None:
            exchange.stream(status, [("content-type", "text/plain")])
            pour(exchange, b"x" * 8192)
            on.site.on_post = on.site.answer

        async with Talking(Site()) as on:
            on.site.on_post = chatty
            assert on.talk is not None
            on.talk.notify("n", None)
            assert await on.ask() == {"echo": "m"}

    run(main())


def test_a_message_that_is_not_taken_in_time_fails_and_the_next_is_sent() -> None:
    async def main() -> None:
        async with Talking(Site(), timeout=0.3) as on:
            on.site.on_post = lambda *_: None
            with pytest.raises(
                Unavailable, match=r"did not take the message within 0\.3 s"
            ) as caught:
                await on.ask(timeout=None)
            assert caught.value.code == SERVER_TIMEOUT
            on.site.on_post = on.site.answer
            assert await on.ask() == {"echo": "m"}

    run(main())


def test_requests_wait_while_much_is_to_be_posted_and_a_server_that_takes_nothing_is_lost() -> None:
    """SEC-6: what a server does not take is bounded."""

    async def main() -> None:
        async with Talking(Site(), timeout=30, limit=100_000) as on:
            assert on.talk is not None
            on.site.on_post = lambda *_: None
            for _ in range(4):
                on.talk.notify("n", {"x": "x" * 100_000})
            with pytest.raises(Unavailable, match="does not read what it is sent") as caught:
                await on.ask(timeout=0.1)
            assert caught.value.unsent
            for _ in range(3):
                on.talk.notify("n", {"x": "x" * 100_000})
            assert on.owner.losses == ["does not take what it is sent"]

    run(main())
