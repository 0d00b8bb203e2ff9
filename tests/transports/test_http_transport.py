"""Streamable HTTP towards a server whose every answer is under the test's control, over a real
socket."""

import asyncio
import json
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from typing import Any

import pytest

from kit.loop import never_return, run, yield_to_loop
from kit.until import until
from mcpx.model.call import Json
from mcpx.model.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_GARBAGE,
    SERVER_TIMEOUT,
    SERVER_TOO_LARGE,
    RpcError,
    Unavailable,
)
from mcpx.transports import Http, replies
from mcpx.transports import http as module
from mcpx.transports.dial import Dial
from mcpx.transports.http import HttpConversation
from mcpx.wire import codec, era, http_client
from mcpx.wire.framing import Patience
from mcpx.wire.http_server import Exchange, HttpServer
from mcpx.wire.sse import sse_frame

EVENTS = [("content-type", "text/event-stream")]
Act = Callable[[Exchange, Json], None]


def result(exchange: Exchange, message: Json, **fields: Any) -> None:
    exchange.reply(
        200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": fields}).encode()
    )


def frame(message: Json, id: str | None = None, retry: int | None = None) -> bytes:
    return sse_frame(json.dumps({"jsonrpc": "2.0", **message}).encode(), id=id, retry=retry)


class Site:
    """An MCP endpoint: what it does with each method is set by the test, what it got is kept."""

    def __init__(self, **acts: Act) -> None:
        self.acts: dict[str, Act] = {name.replace("_", "/"): act for name, act in acts.items()}
        self.posts: list[tuple[Exchange, Json]] = []
        self.gets: list[Exchange] = []
        self.deletes: list[Exchange] = []
        self.on_get: Callable[[Exchange], None] = lambda exchange: exchange.reply(405)
        self._server = HttpServer(self._handle)
        self.url = ""

    def _handle(self, exchange: Exchange) -> None:
        if exchange.method == "GET":
            self.gets.append(exchange)
            self.on_get(exchange)
        elif exchange.method == "DELETE":
            self.deletes.append(exchange)
            exchange.reply(200)
        else:
            message = json.loads(exchange.body)
            self.posts.append((exchange, message))
            act = self.acts.get(message.get("method", "answer"))
            if act is not None:
                act(exchange, message)
            elif "id" in message and "method" in message:
                result(exchange, message)
            else:
                exchange.reply(202)

    async def __aenter__(self) -> "Site":
        self.url = f"http://127.0.0.1:{await self._server.start('127.0.0.1', 0)}/mcp?a=b"
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.stop(0.0)

    async def stop(self, grace: float) -> None:
        await self._server.close(grace)

    def methods(self) -> list[str]:
        return [message.get("method", "answer") for _, message in self.posts]

    def headers(self, method: str) -> dict[str, str]:
        exchange = next(
            exchange for exchange, message in self.posts if message.get("method") == method
        )
        return dict(exchange.headers.items())


class Owner:
    """`wire.peer.Inbound` and `wire.peer.Meanwhile` in one: keeps what it hears, answers what it is
    asked."""

    def __init__(self, answer: Any = None) -> None:
        self.heard: list[tuple[str, Json]] = []
        self.steps: list[Json] = []
        self.asked: list[tuple[str, Json | None]] = []
        self.pauses: list[int] = []
        self.losses: list[str] = []
        self._answer = {"fine": True} if answer is None else answer

    async def request(self, message: Json) -> Json:
        return await self.question(message["method"], message.get("params"))

    async def question(self, method: str, params: Json | None) -> Json:
        self.asked.append((method, params))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer if isinstance(self._answer, dict) else await self._answer()

    def notification(self, method: str, params: Json) -> None:
        self.heard.append((method, params))

    def progress(self, params: Json) -> None:
        self.steps.append(params)

    def paused(self, retry_ms: int) -> None:
        self.pauses.append(retry_ms)

    def closed(self, reason: str) -> None:
        self.losses.append(reason)


class Talking:
    """A site and a conversation with it; `version` is what was negotiated."""

    def __init__(
        self,
        site: Site,
        version: str | None = None,
        *,
        session: str | None = None,
        limit: int = 1 << 20,
        annotations: Any = None,
        headers: Json | None = None,
        timeout: float = 2.0,
    ) -> None:
        self.site = site
        self._timeout = timeout
        self.owner = Owner()
        self._version = version
        self._session = session
        self._limit = limit
        self._annotations = annotations or {}
        self._headers = headers or {}

    async def __aenter__(self) -> "Talking":
        await self.site.__aenter__()
        if self._session is not None:

            def initialize(exchange: Exchange, message: Json) -> None:
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode()
                exchange.reply(200, body, headers=[("mcp-session-id", self._session or "")])

            self.site.acts.setdefault("initialize", initialize)
        spec = Http(url=self.site.url, headers=self._headers)
        talk = await spec.open(
            Dial("srv", self.owner, self._timeout, self._limit, {}, self._annotations)
        )
        assert isinstance(talk, HttpConversation)
        self.talk = talk
        if self._session is not None:
            await self.talk.request("initialize", {})
        if self._version is not None:
            self.talk.agreed(self._version)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.talk.close()
        await self.site.__aexit__()

    def open_connections(self) -> int:
        return len(self.talk._pool._open)  # pyright: ignore[reportPrivateUsage]

    async def ask(self, method: str = "m", timeout: float | None = 2.0, **params: Any) -> Json:
        return await self.talk.request(method, params, timeout=timeout)

    async def call(self, meanwhile: Owner, timeout: float | None = 2.0, **params: Any) -> Json:
        return await self.talk.request("tools/call", params, meanwhile=meanwhile, timeout=timeout)


# --- replies


def test_a_reply_comes_as_json_or_as_a_stream() -> None:
    """SRC-1."""

    async def main() -> None:
        def streamed(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(frame({"id": message["id"], "result": {"streamed": True}}))
            exchange.end()

        async with Talking(Site(plain=result, streamed=streamed)) as on:
            assert await on.ask("plain") == {}
            assert await on.ask("streamed") == {"streamed": True}

    run(main())


@pytest.mark.parametrize(("status", "id"), [(200, "null"), (400, "null"), (400, '"server-error"')])
def test_an_error_about_a_message_that_was_not_read_is_the_reply_to_its_post(
    status: int, id: str
) -> None:
    """PRO-6: JSON-RPC says null then; the Python SDK says "server-error", under an HTTP error."""

    async def main() -> None:
        def odd(exchange: Exchange, message: Json) -> None:
            error = '{"code":-32000,"message":"theirs","data":[1]}'
            exchange.reply(status, f'{{"jsonrpc":"2.0","id":{id},"error":{error}}}'.encode())

        async with Talking(Site(odd=odd)) as on:
            with pytest.raises(RpcError, match="theirs") as caught:
                await on.ask("odd")
            assert caught.value.to_json() == {"code": -32000, "message": "theirs", "data": [1]}

    run(main())


def wrong_ids(asked: int) -> list[Any]:
    return [asked - 1, asked + 1, str(asked), float(asked), True, None, "other", []]


@pytest.mark.parametrize("which", range(8))
@pytest.mark.parametrize("how", ["json", "stream"])
def test_a_reply_to_another_request_is_nobodys_and_ends_its_connection(
    how: str, which: int
) -> None:
    """SRC-8: a server, or a proxy before it, that is one reply behind must not give anybody
    another's answer."""

    async def main() -> None:
        def shifted(exchange: Exchange, message: Json) -> None:
            reply = {"id": wrong_ids(message["id"])[which], "result": {"secret": "another's"}}
            if how == "json":
                exchange.reply(200, json.dumps({"jsonrpc": "2.0", **reply}).encode())
            else:
                exchange.stream(200, EVENTS)
                exchange.write(frame(reply))
                exchange.write(frame({"id": message["id"], "result": {"late": True}}))
                exchange.end()

        async with Talking(Site(shifted=shifted)) as on:
            with pytest.raises(Unavailable, match=r"^srv: answered another request") as caught:
                await on.ask("shifted")
            assert caught.value.code == SERVER_GARBAGE
            await until(lambda: on.open_connections() == 0)
            assert await on.ask() == {}

    run(main())


def test_an_http_error_that_answers_another_request_is_not_told_as_this_ones() -> None:
    async def main() -> None:
        def shifted(exchange: Exchange, message: Json) -> None:
            error = {"code": -32000, "message": "another's words"}
            exchange.reply(
                400,
                json.dumps({"jsonrpc": "2.0", "id": message["id"] - 1, "error": error}).encode(),
            )

        async with Talking(Site(m=shifted)) as on:
            with pytest.raises(Unavailable, match="answered another request") as caught:
                await on.ask()
            assert caught.value.code == SERVER_GARBAGE
            await until(lambda: on.open_connections() == 0)

    run(main())


def test_two_conversations_never_ask_under_the_same_id() -> None:
    """A proxy that mixes up what it carries for two of them would else give one the other's
    answer."""

    async def main() -> None:
        async with Talking(Site()) as one, Talking(Site()) as two:
            for on in (one, two, one, two):
                await on.ask()
            asked = [message["id"] for on in (one, two) for _, message in on.site.posts]
            assert len(set(asked)) == 4

    run(main())


def test_a_second_reply_on_a_stream_changes_nothing_and_ends_the_connection() -> None:
    async def main() -> None:
        def twice(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            both = frame({"id": message["id"], "result": {"n": 1}}) + frame(
                {"id": message["id"], "result": {"n": 2}}
            )
            exchange.write(both)
            exchange.end()

        async with Talking(Site(m=twice)) as on:
            assert await on.ask() == {"n": 1}
            await until(lambda: on.open_connections() == 0)

    run(main())


def test_what_comes_before_the_reply_belongs_to_its_request() -> None:
    """PRO-4 and PRO-5: a request has a stream of its own."""

    async def main() -> None:
        def busy(exchange: Exchange, message: Json) -> None:
            token = message["params"]["_meta"]["progressToken"]
            exchange.stream(200, EVENTS)
            for notification in (
                {
                    "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": 1},
                },
                {"method": "notifications/message", "params": {"level": "info"}},
                {"id": "q1", "method": "roots/list"},
                {"id": 2, "method": "ping"},
            ):
                exchange.write(frame(notification))
            self_done.append(lambda: exchange.write(frame({"id": message["id"], "result": {}})))

        self_done: list[Callable[[], None]] = []
        async with Talking(Site(tools_call=busy)) as on:
            meanwhile = Owner({"roots": []})
            call = asyncio.create_task(on.call(meanwhile, _meta={"progressToken": "mine"}))
            await until(lambda: on.site.methods().count("answer") == 2)
            self_done[0]()
            await call
            assert meanwhile.steps == [{"progressToken": "mine", "progress": 1}]
            assert meanwhile.heard == [("notifications/message", {"level": "info"})]
            assert meanwhile.asked == [("roots/list", None)]
            answers = {m["id"]: m["result"] for _, m in on.site.posts if "method" not in m}
            assert answers == {"q1": {"roots": []}, 2: {}}
            assert on.owner.heard == on.owner.asked == []

    run(main())


def test_progress_for_nothing_that_runs_is_nobodys() -> None:
    async def main() -> None:
        def odd(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            for token in ("made up", 99, None, []):
                exchange.write(
                    frame({"method": "notifications/progress", "params": {"progressToken": token}})
                )
            exchange.write(frame({"id": message["id"], "result": {}}))
            exchange.end()

        async with Talking(Site(tools_call=odd)) as on:
            meanwhile = Owner()
            await on.call(meanwhile, _meta={"progressToken": 5})
            assert meanwhile.steps == meanwhile.heard == []

    run(main())


@pytest.mark.parametrize("error", [RpcError(-1, "no", {"a": 1}), KeyError("bug")])
def test_a_question_that_fails_is_answered_with_the_error(error: Exception) -> None:
    async def main() -> None:
        def asks(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(frame({"id": 7, "method": "roots/list"}))
            site.acts["answer"] = lambda answer, _: (
                answer.reply(202),
                exchange.write(frame({"id": message["id"], "result": {}})),
            )[0]

        site = Site(tools_call=asks)
        async with Talking(site) as on:
            await on.call(Owner(error))
            [answer] = [message for _, message in site.posts if "method" not in message]
            assert answer["error"]["code"] == (
                -1 if isinstance(error, RpcError) else INTERNAL_ERROR
            )

    run(main())


def test_an_answer_that_cannot_be_written_becomes_an_error_and_hangs_nobody() -> None:
    async def main() -> None:
        def asks(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(frame({"id": 7, "method": "roots/list"}))
            site.acts["answer"] = lambda answer, _: (
                answer.reply(202),
                exchange.write(frame({"id": message["id"], "result": {}})),
            )[0]

        site = Site(tools_call=asks)
        async with Talking(site, "2025-11-25") as on:
            await on.call(Owner(codec.load(b'{"x":1e400}')))
            [answer] = [message for _, message in site.posts if "method" not in message]
            assert (answer["id"], answer["error"]["code"]) == (7, INTERNAL_ERROR)
            with pytest.raises(RpcError, match="cannot be sent"):
                await on.ask("m", **codec.load(b'{"x":1e400}'))
            on.talk.notify("n", codec.load(b'{"x":1e400}'))
            assert await on.ask("m") == {}

    run(main())


def test_a_question_taken_back_by_the_server_is_taken_back_from_the_client() -> None:
    """PRO-5: and never answered."""

    async def main() -> None:
        stopped = asyncio.Event()

        async def endless() -> Json:
            try:
                return await never_return()
            finally:
                stopped.set()

        streams: list[tuple[Exchange, Json]] = []

        def asks(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(frame({"id": 7, "method": "roots/list"}))
            streams.append((exchange, message))

        async with Talking(Site(tools_call=asks)) as on:
            meanwhile = Owner(endless)
            call = asyncio.create_task(on.call(meanwhile))
            await until(lambda: meanwhile.asked)
            exchange, message = streams[0]
            exchange.write(frame({"method": "notifications/cancelled", "params": {"requestId": 7}}))
            await stopped.wait()
            exchange.write(frame({"id": message["id"], "result": {}}))
            await call
            assert "answer" not in on.site.methods()
            assert meanwhile.heard == []

    run(main())


# --- errors


@pytest.mark.parametrize(
    ("status", "headers", "code", "text"),
    [
        (401, [], SERVER_DOWN, "sign in"),
        (403, [], SERVER_DOWN, "credentials"),
        (404, [], SERVER_DOWN, "no MCP endpoint"),
        (405, [], SERVER_DOWN, "type: sse"),
        (501, [], SERVER_DOWN, "no MCP endpoint"),
        (307, [("location", "http://elsewhere.example/mcp")], SERVER_DOWN, "elsewhere.example"),
        (500, [], SERVER_DOWN, "HTTP 500"),
        (503, [], SERVER_DOWN, "HTTP 503"),
    ],
)
def test_an_http_error_says_what_it_means_and_names_the_server(
    status: int, headers: list[tuple[str, str]], code: int, text: str
) -> None:
    """SRC-8: redirects are reported, never followed."""

    async def main() -> None:
        site = Site(m=lambda exchange, _: exchange.reply(status, b"<html>", "text/html", headers))
        async with Talking(site) as on:
            with pytest.raises(Unavailable, match=r"^srv: ") as caught:
                await on.ask()
            assert (caught.value.code, caught.value.http_status) == (code, status)
            assert text in caught.value.message
            assert not caught.value.unsent
            assert caught.value.passing == (status in (500, 503))
            assert len(site.posts) == 1
            assert on.owner.losses == []

    run(main())


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error":"invalid_token"}', "invalid_token"),
        (
            b'{"error":"invalid_token","error_description":"the token has run out"}',
            "the token has run out",
        ),
        (b'{"detail":"Not authenticated"}', "Not authenticated"),
        (b'{"message":"Forbidden"}', "Forbidden"),
        (b'{"error":{"message":"quota used up","type":"x"}}', "quota used up"),
        (b'{"jsonrpc":"2.0","id":null,"error":"just text"}', "just text"),
        (
            b"\n upstream connect error \x1b[31m or disconnect\r\nsecond line",
            "upstream connect error [31m or disconnect",
        ),
        (b"caf\xc3\xa9 \xe2\x80\xae\xff closed", "café \ufffd closed"),
        (b"x" * 1000, "x" * 200 + "… [800 more]"),
        (b"<!doctype html><title>502</title>", ""),
        (b'{"detail":[{"loc":[]}]}', ""),
        (b"[1]", ""),
        (b'{"cut', ""),
        (b"", ""),
    ],
)
def test_an_http_error_is_told_with_what_its_body_says_in_one_printable_line(
    status: int, body: bytes, said: str
) -> None:
    """SRC-8: whoever wrote it."""

    async def main() -> None:
        async with Talking(Site(m=lambda exchange, _: exchange.reply(status, body))) as on:
            with pytest.raises(Unavailable, match=rf"^srv: .*HTTP {status}") as caught:
                await on.ask()
            assert caught.value.http_status == status
            assert caught.value.message.endswith(
                f": {said}" if said else (f"HTTP {status}", ")", "type: sse")
            )

    run(main())


def test_a_server_that_wants_us_to_sign_in_says_how() -> None:
    """LIF-3: whoever looks after the server is told what it asks for, also when it is said in
    JSON-RPC."""

    async def main() -> None:
        challenges = [
            ("WWW-Authenticate", 'Bearer realm="a"'),
            ("www-authenticate", 'Basic realm="b"'),
        ]
        body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Unauthorized"}}'
        async with Talking(
            Site(m=lambda exchange, _: exchange.reply(401, body, headers=challenges))
        ) as on:
            with pytest.raises(
                Unavailable, match=r"^srv: wants the gateway to sign in .*: Unauthorized$"
            ) as caught:
                await on.ask()
            assert (caught.value.http_status, caught.value.passing) == (401, False)
            assert caught.value.challenge == 'Bearer realm="a", Basic realm="b"'

    run(main())


def test_what_each_request_says_itself_is_said_once() -> None:
    async def main() -> None:
        headers = {"Accept": "text/html", "CONTENT-TYPE": "text/plain", "X-Latin": "ü"}
        async with Talking(Site(m=lambda exchange, _: exchange.reply(404)), headers=headers) as on:
            with pytest.raises(Unavailable):
                await on.ask()
            got = next(
                exchange for exchange, message in on.site.posts if message.get("method") == "m"
            ).headers
            assert got.all("content-type") == ["application/json"]
            assert got.all("accept") == ["application/json, text/event-stream"]
            assert got.get("x-latin") == "ü"

    run(main())


def test_our_own_credentials_are_not_said_back() -> None:
    async def main() -> None:
        body = b'{"message":"bad token s3cr3t-value in Bearer s3cr3t-value"}'
        headers = {"Authorization": "Bearer s3cr3t-value"}
        async with Talking(
            Site(m=lambda exchange, _: exchange.reply(401, body)), headers=headers
        ) as on:
            with pytest.raises(Unavailable) as caught:
                await on.ask()
            assert caught.value.message.endswith(": bad token *** in ***")

    run(main())


def test_a_json_rpc_error_of_the_server_keeps_its_words_and_tells_whether_it_is_for_now() -> None:
    """PRO-6."""

    async def main() -> None:
        error = {"code": -32603, "message": "Internal error", "data": {"a": 1}}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        for status, passing in ((400, False), (404, False), (500, True), (502, True)):
            async with Talking(
                Site(m=lambda exchange, _, status=status: exchange.reply(status, body))
            ) as on:
                with pytest.raises(RpcError) as caught:
                    await on.ask()
                assert not isinstance(caught.value, Unavailable)
                assert caught.value.to_json() == error
                assert (caught.value.http_status, caught.value.passing) == (status, passing)
        for status in (429, 503):  # about the moment, not about the message
            answer = partial(_say, status=status, body=body, retry="2")
            async with Talking(Site(m=answer)) as on:
                with pytest.raises(Unavailable, match="Internal error") as caught:
                    await on.ask()
                assert (caught.value.retry_after, caught.value.passing) == (2.0, True)

    run(main())


def _say(exchange: Exchange, message: Json, *, status: int, body: bytes = b"", retry: str) -> None:
    exchange.reply(status, body, headers=[("retry-after", retry)])


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        *(
            ("0", 0.0),
            ("7", 7.0),
            ("99999999", 86_400.0),
            ("-1", None),
            ("1.5", None),
            ("\u00b2", None),
            ("", None),
        ),
        *(("soon", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("Thu, 99 Foo 2020", None)),
        *(("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0), ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0)),
    ],
)
def test_retry_after_is_seconds_or_a_date(retry: str, expected: float | None) -> None:
    """LIF-4."""

    async def main() -> None:
        async with Talking(Site(m=partial(_say, status=503, retry=retry))) as on:
            with pytest.raises(Unavailable) as caught:
                await on.ask()
            assert caught.value.retry_after == expected

    run(main())


def test_retry_after_as_a_date_counts_from_now() -> None:
    """LIF-4."""

    async def main() -> None:
        when = formatdate(time.time() + 60, usegmt=True)
        async with Talking(Site(m=partial(_say, status=429, retry=when))) as on:
            with pytest.raises(Unavailable) as caught:
                await on.ask()
            assert caught.value.retry_after is not None
            assert 30 < caught.value.retry_after <= 60

    run(main())


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"2.0","method":"x"}']
)
def test_a_reply_that_is_none_is_garbage(body: bytes) -> None:
    """SRC-8."""

    async def main() -> None:
        async with Talking(Site(m=lambda exchange, _: exchange.reply(200, body))) as on:
            with pytest.raises(Unavailable, match=r"^srv: ") as caught:
                await on.ask()
            assert caught.value.code == SERVER_GARBAGE

    run(main())


KEY = "sekret-1234567-sekret"
UNEXPECTED: list[tuple[bytes, str, str]] = [
    (
        b"<!doctype html><title>Hi</title>",
        "text/html; charset=utf-8",
        "text/html {}. The body began: <!doctype html><",
    ),
    (b"", "", "no content type {}. The body was empty."),
    (b'{"ok": true}', "", 'no content type {}. The body began: {"ok": true}'),
    (b"a\x1b[31m\nb", "text/plain", "text/plain {}. The body began: a [31m b"),
    (b"key " + KEY.encode() + b" ghp_0123456789abcdefghij0123", "text/plain", "began: key *** ***"),
    (b"x" * 190 + KEY.encode() + b"y" * 100, "text/plain", "x" * 20 + "***" + "yyyyyyy…"),
    ("é".encode() * 300, "text/plain", "é" * 100 + "…"),
]


@pytest.mark.parametrize(("body", "kind", "told"), UNEXPECTED)
def test_an_unexpected_answer_is_told_with_its_status_type_and_first_bytes(
    body: bytes, kind: str, told: str
) -> None:
    """SRC-8: the address of a web site in the place of an endpoint. Secrets of the request are not
    repeated."""
    told = told.replace("{}", "instead of a JSON-RPC response; check its URL")

    async def main() -> None:
        site = Site(m=lambda exchange, _: exchange.reply(200, body, kind))
        async with Talking(site, headers={"authorization": KEY}) as on:
            with pytest.raises(Unavailable, match=r"^srv: answered with HTTP 200 and ") as caught:
                await on.ask()
            assert caught.value.code == SERVER_GARBAGE
            assert told in str(caught.value) and KEY[:8] not in str(caught.value)

    run(main())


def test_a_stream_that_carries_no_message_is_told_with_its_first_bytes() -> None:
    """SRC-8."""

    async def main() -> None:
        def page(exchange: Exchange, _: Json) -> None:
            exchange.stream(200, [("content-type", "text/event-stream")])
            exchange.write(b"data: Service unavailable\n\n")
            exchange.end()

        async with Talking(Site(m=page)) as on:
            with pytest.raises(
                Unavailable, match="ended before the result; it answered with HTTP 200"
            ) as caught:
                await on.ask()
            assert "text/event-stream instead of a JSON-RPC response" in str(caught.value)
            assert str(caught.value).endswith("The body began: Service unavailable")

    run(main())


def test_a_server_that_is_not_there_certainly_did_not_act() -> None:
    async def main() -> None:
        async with Site() as site:
            url = site.url
        owner = Owner()
        talk = await Http(url=url).open(Dial("srv", owner, 2.0, 1000, {}, {}))
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"^srv: cannot connect: ") as caught:
                await talk.request("m", {})
            assert caught.value.code == SERVER_DOWN
            assert caught.value.unsent
            assert caught.value.passing
        assert len(owner.losses) == 1
        await talk.close()

    run(main())


@pytest.mark.parametrize("how", ["a request", "a notification", "the stream"])
def test_a_server_that_stopped_is_lost_as_soon_as_it_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """LIF-3: told once, whatever was to be sent."""
    monkeypatch.setattr(replies, "RETRY_MS", 5)

    async def main() -> None:
        site = Site()
        if how == "the stream":
            site.on_get = lambda exchange: exchange.stream(200, EVENTS)
        async with Talking(site, "2025-11-25") as on:
            await on.ask()
            assert on.owner.losses == []
            await site.__aexit__()
            if how == "a request":
                with pytest.raises(Unavailable):
                    await on.ask()
            elif how == "a notification":
                on.talk.notify("n", None)
            await until(lambda: on.owner.losses)
            with pytest.raises(Unavailable) as caught:
                await on.ask()
            assert caught.value.unsent
            await on.talk.close()
            [loss] = on.owner.losses
            assert loss.startswith("cannot connect: ")

    run(main())


def test_what_is_under_way_is_still_answered_by_a_server_that_takes_no_new_connections() -> None:
    """LIF-6: so a server that is replaced stops: it does not listen any more, and answers what it
    has."""

    async def main() -> None:
        held: list[tuple[Exchange, Json]] = []
        site = Site(slow=lambda *got: held.append(got))
        async with Talking(site, era.LATEST_MODERN) as on:
            slow = asyncio.create_task(on.ask("slow"))
            await until(lambda: held)
            closing = asyncio.create_task(site.stop(10.0))
            await yield_to_loop()
            with pytest.raises(Unavailable) as caught:
                await on.ask()
            assert caught.value.unsent
            assert len(on.owner.losses) == 1
            await on.talk.close()  # as its owner does with what was lost
            result(*held[0], fine=True)
            assert await slow == {"fine": True}
            await closing
            assert on.open_connections() == 0

    run(main())


def test_a_call_that_times_out_loses_nothing_but_itself() -> None:
    """LIF-6."""

    async def main() -> None:
        async with Talking(Site(mute=lambda *_: None)) as on:
            with pytest.raises(Unavailable) as caught:
                await on.ask("mute", timeout=0.05)
            assert (caught.value.code, caught.value.passing) == (SERVER_TIMEOUT, True)
            assert on.owner.losses == []
            assert await on.ask() == {}

    run(main())


def test_a_call_that_is_polled_for_was_sent_though_the_server_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Never twice, unless it certainly was not acted on."""
    monkeypatch.setattr(replies, "SHORTEST_RETRY_MS", 1)

    async def main() -> None:
        def pauses(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(b"", id="e1", retry=200))
            exchange.end()

        site = Site(tools_call=pauses)
        async with Talking(site) as on:
            meanwhile = Owner()
            call = asyncio.create_task(on.call(meanwhile))
            await until(lambda: meanwhile.pauses)
            await site.__aexit__()
            with pytest.raises(Unavailable) as caught:
                await call
            assert not caught.value.unsent
            assert len(on.owner.losses) == 1

    run(main())


def test_a_paused_call_is_not_left_waiting_when_its_conversation_is_lost_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "SHORTEST_RETRY_MS", 1)

    async def main() -> None:
        def pauses(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(b"", id="e1", retry=100))
            exchange.end()

        site = Site(tools_call=pauses)
        async with Talking(site) as on:
            meanwhile = Owner()
            call = asyncio.create_task(on.call(meanwhile, timeout=None))
            await until(lambda: meanwhile.pauses)
            await site.__aexit__()
            with pytest.raises(Unavailable):
                await on.ask()
            await on.talk.close()
            with pytest.raises(Unavailable):
                await call

    run(main())


def test_every_request_says_which_gateways_it_came_through() -> None:
    """So that a gateway which is in its own config finds out."""

    async def main() -> None:
        async with Site() as site:
            for itself, environ, said in (
                ("", {}, None),
                ("run1", {}, "run1"),
                ("run1", {"MCPX_INSIDE": "a,b"}, "a, b, run1"),
            ):
                dial = Dial("srv", Owner(), 2.0, 1000, environ, {}, itself=itself)
                talk = await Http(url=site.url).open(dial)
                await talk.request("m", {}, timeout=2.0)
                await talk.close()
                assert site.posts[-1][0].headers.get("mcpx-via") == said

    run(main())


def test_a_connection_that_breaks_in_the_middle_fails_its_request_only() -> None:
    """LIF-6."""

    async def main() -> None:
        def breaks(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(b"data: half a mes")
            exchange.failed()

        held: list[tuple[Exchange, Json]] = []
        async with Talking(Site(breaks=breaks, slow=lambda *got: held.append(got))) as on:
            slow = asyncio.create_task(on.ask("slow"))
            await until(lambda: held)
            with pytest.raises(Unavailable) as caught:
                await on.ask("breaks")
            assert caught.value.code == SERVER_DIED
            assert not caught.value.unsent
            result(*held[0], fine=True)
            assert await slow == {"fine": True}
            assert on.owner.losses == []

    run(main())


def test_an_answer_over_the_limit_fails_its_request_only() -> None:
    """SEC-6 and SRC-8: as JSON, as an event, and as an event without end."""

    async def main() -> None:
        big = b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b"x" * 5000 + b'"}}'

        def event(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(big))

        def endless(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            for _ in range(100):
                exchange.write(b"data: " + b"x" * 1000 + b"\n")

        site = Site(json=lambda exchange, _: exchange.reply(200, big), event=event, endless=endless)
        async with Talking(site, limit=1000) as on:
            for method in ("json", "event", "endless"):
                with pytest.raises(Unavailable, match="1,000 bytes") as caught:
                    await on.ask(method)
                assert caught.value.code == SERVER_TOO_LARGE
            assert await on.ask("m") == {}

    run(main())


# --- headers


def test_an_older_server_gets_its_session_and_from_2025_06_18_on_the_version() -> None:
    async def main() -> None:
        for version, sent in (("2025-03-26", False), ("2025-06-18", True), ("2025-11-25", True)):
            async with Talking(Site(), version, session="s-1", headers={"X-Own": "mine"}) as on:
                await on.ask("tools/list")
                headers = on.site.headers("tools/list")
                assert headers["mcp-session-id"] == "s-1"
                assert headers.get("mcp-protocol-version") == (version if sent else None)
                assert headers["x-own"] == "mine"
                assert headers["accept"] == "application/json, text/event-stream"
                assert "mcp-method" not in headers
                assert "mcp-session-id" not in on.site.headers("initialize")
                assert on.site.posts[0][0].query == "a=b"

    run(main())


def test_a_modern_server_gets_what_its_ladder_asks_for() -> None:
    async def main() -> None:
        annotations = {"tool": {("region",): ("Region", "string"), ("n",): ("N", "integer")}}
        async with Talking(Site(), era.LATEST_MODERN, annotations=annotations) as on:
            await on.ask("tools/call", name="tool", arguments={"region": "zürich", "n": 5})
            await on.ask("resources/read", uri="x:1")
            await on.ask("tools/list")
            calling = on.site.headers("tools/call")
            assert calling["mcp-protocol-version"] == "2026-07-28"
            assert calling["mcp-method"] == "tools/call"
            assert calling["mcp-name"] == "tool"
            assert era.decode_header(calling["mcp-param-region"]) == "zürich"
            assert calling["mcp-param-n"] == "5"
            assert on.site.headers("resources/read")["mcp-name"] == "x:1"
            assert "mcp-name" not in on.site.headers("tools/list")
            assert "mcp-session-id" not in calling

    run(main())


def test_the_probe_is_modern_before_anything_is_agreed_and_the_handshake_is_not() -> None:
    async def main() -> None:
        async with Talking(Site()) as on:
            await on.ask("server/discover")
            await on.ask("initialize")
            assert on.site.headers("server/discover")["mcp-protocol-version"] == "2026-07-28"
            assert "mcp-protocol-version" not in on.site.headers("initialize")

    run(main())


# --- giving up


def test_giving_up_closes_a_modern_request_and_says_nothing() -> None:
    """LIF-6: in that era closing is the cancellation."""

    async def main() -> None:
        gone = asyncio.Event()

        def hang(exchange: Exchange, message: Json) -> None:
            exchange.on_disconnect = gone.set

        async with Talking(Site(m=hang), era.LATEST_MODERN) as on:
            with pytest.raises(Unavailable) as caught:
                await on.ask(timeout=0.5)
            assert caught.value.code == SERVER_TIMEOUT
            await gone.wait()
            assert on.site.methods() == ["m"]

    run(main())


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_giving_up_is_said_to_an_older_server_once(how: str) -> None:
    """LIF-6."""

    async def main() -> None:
        async with Talking(Site(m=lambda *_: None), "2025-11-25") as on:
            call = asyncio.create_task(on.ask(timeout=0.5 if how == "timed out" else 600.0))
            await until(lambda: on.site.posts)
            if how == "cancelled":
                call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await until(lambda: len(on.site.posts) == 2)
            [(_, asked), (_, said)] = on.site.posts
            assert said["method"] == "notifications/cancelled"
            assert said["params"]["requestId"] == asked["id"]
            await yield_to_loop()
            assert len(on.site.posts) == 2

    run(main())


def test_a_request_given_up_while_its_connection_is_made_is_never_sent() -> None:
    async def main() -> None:
        async with Talking(Site(), era.LATEST_MODERN) as on:
            call = asyncio.create_task(on.ask())
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            assert await on.ask("after") == {}
            assert on.site.methods() == ["after"]

    run(main())


# --- the order of things


def test_nothing_overtakes_the_notification_that_ends_the_handshake() -> None:
    async def main() -> None:
        held: list[Exchange] = []
        site = Site(notifications_initialized=lambda exchange, _: held.append(exchange))
        async with Talking(site, session="s") as on:
            on.talk.notify("notifications/initialized", None)
            on.talk.agreed("2025-11-25")
            asking = asyncio.create_task(on.ask("tools/list"))
            await until(lambda: held)
            await yield_to_loop()
            assert site.methods() == ["initialize", "notifications/initialized"]
            assert site.gets == []
            held[0].reply(202)
            assert await asking == {}

    run(main())


def test_a_server_that_never_takes_that_notification_holds_a_request_no_longer_than_its_time_out() -> (
    None
):
    """LIF-6."""

    async def main() -> None:
        site = Site(notifications_initialized=lambda *_: None)
        async with Talking(site, session="s") as on:
            on.talk.notify("notifications/initialized", None)
            try:
                await on.ask("tools/list", timeout=0.05)
            except Unavailable as error:
                assert error.code == SERVER_TIMEOUT

    run(main())


# --- streams that are resumed


def test_a_stream_closed_in_mid_call_is_polled_from_its_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server names the time; the meanwhile is told of the pause."""

    monkeypatch.setattr(replies, "SHORTEST_RETRY_MS", 1)

    async def main() -> None:
        asked: list[Json] = []

        def pauses(exchange: Exchange, message: Json) -> None:
            asked.append(message)
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(b"", id="e1", retry=10))
            exchange.write(frame({"method": "notifications/message", "params": {"n": 1}}, id="e2"))
            exchange.end()

        def resumed(exchange: Exchange) -> None:
            exchange.stream(200, EVENTS)
            if len(site.gets) == 1:  # and once more
                exchange.write(
                    frame({"method": "notifications/message", "params": {"n": 2}}, id="e3")
                )
            else:
                exchange.write(frame({"id": asked[0]["id"], "result": {"late": True}}, id="e4"))
            exchange.end()

        site = Site(tools_call=pauses)
        site.on_get = resumed
        async with Talking(site, session="s") as on:
            meanwhile = Owner()
            assert await on.call(meanwhile) == {"late": True}
            assert [get.headers.get("last-event-id") for get in site.gets] == ["e2", "e3"]
            assert [get.headers.get("mcp-session-id") for get in site.gets] == ["s", "s"]
            assert [params["n"] for _, params in meanwhile.heard] == [1, 2]
            assert meanwhile.pauses == [10, 10]

    run(main())


@pytest.mark.parametrize("version", [None, era.LATEST_MODERN])
def test_a_stream_that_ends_without_a_reply_fails_its_request(version: str | None) -> None:
    """Without event ids there is nothing to come back for; the modern era has no coming back."""

    async def main() -> None:
        def ends(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(b"", id="e1" if version else None))
            exchange.end()

        async with Talking(Site(m=ends), version) as on:
            with pytest.raises(Unavailable, match="ended before the result") as caught:
                await on.ask()
            assert caught.value.code == SERVER_DIED
            assert on.site.gets == []

    run(main())


def test_a_resumed_stream_that_is_gone_fails_the_request_and_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "SHORTEST_RETRY_MS", 1)

    async def main() -> None:
        def pauses(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(b"", id="e1", retry=1))
            exchange.end()

        site = Site(tools_call=pauses)
        site.on_get = lambda exchange: exchange.reply(404)
        async with Talking(site, session="s") as on:
            with pytest.raises(Unavailable) as caught:
                await on.call(Owner())
            assert not caught.value.unsent  # it was acted on, as far as we know

    run(main())


def test_a_call_given_up_while_it_is_paused_is_not_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "SHORTEST_RETRY_MS", 1)

    async def main() -> None:
        def pauses(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(b"", id="e1", retry=50))
            exchange.end()

        async with Talking(Site(tools_call=pauses)) as on:
            meanwhile = Owner()
            call = asyncio.create_task(on.call(meanwhile))
            await until(lambda: meanwhile.pauses)
            call.cancel()
            await asyncio.wait([call])
            await asyncio.sleep(0.1)  # longer than the server asked for
            assert on.site.gets == []

    run(main())


@pytest.mark.parametrize(("retry", "waited"), [(10**9, 30_000), (0, 500), (499, 500), (700, 700)])
def test_a_server_cannot_make_us_poll_without_a_pause_nor_wait_longer_than_half_a_minute(
    retry: int, waited: int
) -> None:
    async def main() -> None:
        def pauses(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(b"", id="e1", retry=retry))
            exchange.end()

        async with Talking(Site(tools_call=pauses)) as on:
            meanwhile = Owner()
            call = asyncio.create_task(on.call(meanwhile, timeout=0.2))
            await until(lambda: meanwhile.pauses)
            assert meanwhile.pauses == [waited]
            with pytest.raises(Unavailable):
                await call
            assert on.site.gets == []

    run(main())


# --- what belongs to no request


def test_an_older_server_is_listened_to_and_again_from_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replies, "RETRY_MS", 5)

    async def main() -> None:
        def speaks(exchange: Exchange) -> None:
            exchange.stream(200, EVENTS)
            n = len(site.gets)
            exchange.write(
                frame(
                    {"method": "notifications/tools/list_changed", "params": {"n": n}}, id=f"g{n}"
                )
            )
            if n == 1:
                exchange.write(frame({"id": 9, "method": "roots/list"}))
            if n < 3:
                exchange.end()

        site = Site()
        site.on_get = speaks
        async with Talking(site, "2025-11-25", session="s") as on:
            await until(lambda: len(on.owner.heard) == 3)
            assert [params["n"] for _, params in on.owner.heard] == [1, 2, 3]
            assert [get.headers.get("last-event-id") for get in site.gets] == [None, "g1", "g2"]
            assert all(get.headers.get("accept") == "text/event-stream" for get in site.gets)
            await until(lambda: "answer" in site.methods())
            assert on.owner.asked == [("roots/list", None)]

    run(main())


def test_a_server_without_such_a_stream_is_asked_for_it_once() -> None:
    async def main() -> None:
        async with Talking(Site(), "2025-11-25", session="s") as on:
            await until(lambda: on.site.gets)
            assert await on.ask() == {}
            assert len(on.site.gets) == 1
        async with Talking(Site(), era.LATEST_MODERN) as on:
            await on.ask()
            assert on.site.gets == []

    run(main())


# --- the end of a session


@pytest.mark.parametrize("where", ["a request", "the stream"])
def test_a_session_the_server_forgot_is_lost_once(where: str) -> None:
    async def main() -> None:
        site = Site()
        if where == "the stream":
            site.on_get = lambda exchange: exchange.reply(404)
        else:
            site.acts["m"] = lambda exchange, _: exchange.reply(
                404, b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}'
            )
        async with Talking(site, "2025-11-25", session="s") as on:
            if where == "a request":
                with pytest.raises(
                    Unavailable, match=r"^srv: the server ended the session$"
                ) as caught:
                    await on.ask()
                assert caught.value.unsent  # so it may be sent again, in a new session
            await until(lambda: on.owner.losses)
            with pytest.raises(Unavailable):
                await on.ask()
        assert on.owner.losses == ["the server ended the session"]
        assert site.deletes == []  # there is nothing left to end

    run(main())


def test_closing_says_goodbye_to_a_session_and_fails_what_waits() -> None:
    async def main() -> None:
        async with Talking(Site(m=lambda *_: None), "2025-11-25", session="s") as on:
            waiting = asyncio.create_task(on.ask(timeout=None))
            await until(lambda: "m" in on.site.methods())
            await on.talk.close()
            with pytest.raises(Unavailable):
                await waiting
            [goodbye] = on.site.deletes
            assert goodbye.headers.get("mcp-session-id") == "s"
            with pytest.raises(Unavailable):
                await on.ask()
            on.talk.notify("n", None)

    run(main())


def test_noise_on_a_stream_is_counted_and_harms_nobody() -> None:
    async def main() -> None:
        def noisy(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            for data in (
                b"not json",
                b"[]",
                b"5",
                b'{"jsonrpc":"1.0"}',
                b'{"jsonrpc":"2.0","id":null,"method":"x"}',
            ):
                exchange.write(sse_frame(data))
            exchange.write(sse_frame(b"ignored", event="other"))
            exchange.write(frame({"id": message["id"], "result": {"right": True}}))
            exchange.end()

        async with Talking(Site(m=noisy)) as on:
            assert await on.ask() == {"right": True}
            assert on.talk.waiting.noise == 5

    run(main())


def test_a_method_the_server_lacks_is_its_own_error_whatever_the_status() -> None:
    """PRO-6."""

    async def main() -> None:
        def lacks(exchange: Exchange, message: Json) -> None:
            error = {"code": METHOD_NOT_FOUND, "message": "no such method", "x": 1}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
            exchange.reply(404, body.encode())

        async with Talking(Site(m=lacks), era.LATEST_MODERN) as on:
            with pytest.raises(RpcError) as caught:
                await on.ask()
            assert caught.value.to_json() == {
                "code": METHOD_NOT_FOUND,
                "message": "no such method",
                "x": 1,
            }

    run(main())


# --- bounds: whatever a server sends, it ends


NOISES = [
    pytest.param(b"\n" * 8192, id="blank lines"),
    pytest.param(b": still here\n\n" * 600, id="comments"),
    pytest.param(b"id: 7\n\n" * 1000, id="ids"),
    pytest.param(b"retry: 1\n\n" * 800, id="retries"),
    pytest.param(b"data: []\n\n" * 800, id="no messages"),
    pytest.param(b"event: other\ndata: {}\n\n" * 400, id="other events"),
    pytest.param(b"nonsense" * 1000, id="a line without end"),
    pytest.param(b": " + b"x" * 8000, id="a comment without end"),
]


def pour(exchange: Exchange, noise: bytes) -> None:
    """Writes noise until the other side hangs up."""

    async def write() -> None:
        while not exchange.closed:
            exchange.write(noise)
            await exchange.drain()
            await asyncio.sleep(0)  # a connection that is ending does not wait

    exchange.stream(200, EVENTS)
    task = asyncio.get_running_loop().create_task(write())
    exchange.on_disconnect = task.cancel


@pytest.mark.parametrize("noise", NOISES)
def test_a_reply_of_nothing_but_noise_is_cut_and_said(noise: bytes) -> None:
    """SRC-8 and SEC-6."""

    async def main() -> None:
        async with Talking(Site(m=lambda exchange, _: pour(exchange, noise)), limit=1 << 24) as on:
            with pytest.raises(
                Unavailable, match=r"^srv: the answer carries nothing but noise"
            ) as caught:
                await on.ask(timeout=30)
            assert caught.value.code == SERVER_GARBAGE
            await until(lambda: on.open_connections() == 0)

    run(main())


def test_a_large_event_in_many_lines_is_no_noise() -> None:
    async def main() -> None:
        def slow(exchange: Exchange, message: Json) -> None:
            text = json.dumps(
                {"jsonrpc": "2.0", "id": message["id"], "result": {"x": ["y" * 9] * 100_000}},
                indent=1,
            )
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(text.encode()))
            exchange.end()

        async with Talking(Site(m=slow), limit=1 << 24) as on:
            assert len((await on.ask(timeout=30))["x"]) == 100_000

    run(main())


@pytest.mark.parametrize("noise", NOISES)
def test_a_standing_stream_of_nothing_but_noise_is_said_once_and_opened_with_growing_pauses(
    noise: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SRC-8: neither ids nor `retry` among the noise make the pauses short again."""
    monkeypatch.setattr(replies, "RETRY_MS", 20)
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds > 0.03:  # else it is this test's own
            pauses.append(seconds)
        await sleep(min(seconds, 0.01))

    async def main() -> None:
        site = Site()
        site.on_get = lambda exchange: pour(exchange, noise)
        async with Talking(site, "2025-11-25", session="s", limit=1 << 24) as on:
            monkeypatch.setattr(module.asyncio, "sleep", noted)
            await until(lambda: len(pauses) >= 4, seconds=60)
            monkeypatch.undo()
            assert await on.ask() == {}

    run(main())
    assert pauses[:4] == pytest.approx([0.04, 0.08, 0.16, 0.32])
    said = [record.message for record in caplog.records if "nothing but noise" in record.message]
    assert len(said) == 1
    assert said[0].startswith("[srv] ")


def test_signs_of_life_for_days_are_no_noise() -> None:
    patience = Patience(1000)
    assert not patience.lost(900, 0)
    patience._began -= 3600  # pyright: ignore[reportPrivateUsage]
    assert not patience.lost(900, 0)
    assert patience.lost(1100, 0)


def test_a_standing_stream_carries_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever id they bear: they end it, and it is opened again behind them."""
    monkeypatch.setattr(replies, "RETRY_MS", 5)

    async def main() -> None:
        streams: list[Exchange] = []

        def standing(exchange: Exchange) -> None:
            exchange.stream(200, EVENTS)
            streams.append(exchange)

        site = Site(slow=lambda *_: None)
        site.on_get = standing
        async with Talking(site, "2025-11-25", session="s") as on:
            call = asyncio.create_task(on.ask("slow"))
            await until(lambda: "slow" in site.methods() and streams)
            exchange, message = next(post for post in site.posts if post[1].get("method") == "slow")
            streams[0].write(frame({"id": message["id"], "result": {"forged": True}}, id="e1"))
            await until(lambda: len(streams) == 2)
            assert streams[1].headers.get("last-event-id") == "e1"
            assert not call.done()
            result(exchange, message, fine=True)
            assert await call == {"fine": True}

    run(main())


def endless(exchange: Exchange, status: int) -> None:
    """A body that does not end."""

    async def write() -> None:
        while not exchange.closed:
            exchange.write(b"x" * 8192)
            await exchange.drain()
            await asyncio.sleep(0)

    exchange.stream(status, [("content-type", "text/plain")])
    task = asyncio.get_running_loop().create_task(write())
    exchange.on_disconnect = task.cancel


@pytest.mark.parametrize("status", [200, 202, 400])
def test_what_is_said_to_a_notification_is_not_read_for_ever(status: int) -> None:
    async def main() -> None:
        hung_up = asyncio.Event()

        def talks(exchange: Exchange, message: Json) -> None:
            endless(exchange, status)
            stop = exchange.on_disconnect
            exchange.on_disconnect = lambda: (stop and stop(), hung_up.set())[1]

        async with Talking(Site(n=talks), "2025-11-25") as on:
            on.talk.notify("n", None)
            await hung_up.wait()
            assert await on.ask() == {}

    run(main())


def test_a_notification_that_is_not_taken_is_given_up_in_time() -> None:
    async def main() -> None:
        hung_up = asyncio.Event()

        def hangs(exchange: Exchange, message: Json) -> None:
            exchange.on_disconnect = hung_up.set

        async with Talking(Site(n=hangs), "2025-11-25", timeout=0.2) as on:
            on.talk.notify("n", None)
            await hung_up.wait()
            assert on.owner.losses == []

    run(main())


def test_a_stream_that_is_not_offered_is_not_read_for_ever() -> None:
    async def main() -> None:
        hung_up = asyncio.Event()

        def talks(exchange: Exchange) -> None:
            endless(exchange, 405)
            stop = exchange.on_disconnect
            exchange.on_disconnect = lambda: (stop and stop(), hung_up.set())[1]

        site = Site()
        site.on_get = talks
        async with Talking(site, "2025-11-25", session="s") as on:
            await hung_up.wait()
            assert await on.ask() == {}
            assert len(site.gets) == 1

    run(main())


def test_an_error_page_without_end_is_told_by_its_beginning() -> None:
    async def main() -> None:
        async with Talking(Site(m=lambda exchange, _: endless(exchange, 502))) as on:
            with pytest.raises(Unavailable, match="HTTP 502") as caught:
                await on.ask(timeout=30)
            assert caught.value.http_status == 502
            await until(lambda: on.open_connections() == 0)

    run(main())


def test_an_error_of_the_servers_own_may_be_long() -> None:
    """PRO-6."""

    async def main() -> None:
        def long(exchange: Exchange, message: Json) -> None:
            error = {"code": -32602, "message": "no", "data": "x" * 200_000}
            exchange.reply(
                400, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
            )

        async with Talking(Site(m=long)) as on:
            with pytest.raises(RpcError) as caught:
                await on.ask()
            assert len(caught.value.data) == 200_000

    run(main())


def test_a_long_event_id_is_dropped_and_a_short_one_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory by headers: an id is kept, and sent back."""
    monkeypatch.setattr(replies, "RETRY_MS", 5)

    async def main() -> None:
        def pauses(exchange: Exchange, message: Json) -> None:
            asked.append(message["id"])
            exchange.stream(200, EVENTS)
            exchange.write(sse_frame(b"", id="e" * 1024) + sse_frame(b"", id="f" * 1025))
            exchange.end()

        def resumed(exchange: Exchange) -> None:
            exchange.stream(200, EVENTS)
            exchange.write(frame({"id": asked[0], "result": {}}))

        asked: list[int] = []
        site = Site(m=pauses)
        site.on_get = resumed
        async with Talking(site) as on:
            await on.ask()
            assert site.gets[0].headers.get("last-event-id") == "e" * 1024

    run(main())


@pytest.mark.parametrize("session", ["x" * 1025, "a b", "caf\u00e9"])
def test_a_session_id_that_is_none_is_refused(session: str) -> None:
    async def main() -> None:
        def greets(exchange: Exchange, message: Json) -> None:
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode()
            exchange.reply(200, body, headers=[("mcp-session-id", session)])

        async with Talking(Site(initialize=greets)) as on:
            with pytest.raises(Unavailable, match=r"^srv: gave a session id that is ") as caught:
                await on.ask("initialize")
            assert caught.value.code == SERVER_GARBAGE

    run(main())


def test_what_travels_as_a_header_is_bounded_and_the_argument_named() -> None:
    async def main() -> None:
        wanted = {
            ("place", "city"): ("City", "string"),
            **{(f"a{n}",): (f"A{n}", "string") for n in range(8)},
        }
        async with Talking(Site(), era.LATEST_MODERN, annotations={"t": wanted}) as on:
            for arguments, named in (
                ({"place": {"city": "x" * 8193}}, "'place.city'"),
                ({"place": {"city": "\u00e9" * 4000}}, "'place.city'"),  # as base64
                ({f"a{n}": "x" * 8000 for n in range(8)}, "'a4'"),
            ):
                with pytest.raises(RpcError, match=named) as caught:
                    await on.ask("tools/call", name="t", arguments=arguments)
                assert caught.value.code == INVALID_PARAMS
            with pytest.raises(RpcError, match="'uri' has to travel"):
                await on.ask("resources/read", uri="u:" + "x" * 8192)
            assert on.site.posts == []
            await on.ask("tools/call", name="t", arguments={"place": {"city": "x" * 8192}})
            assert len(on.talk.waiting) == 0

    run(main())


def test_no_more_questions_are_answered_at_a_time_than_there_are_places_for() -> None:
    async def main() -> None:
        def asks(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            for n in range(module.QUESTIONS + 1):
                exchange.write(frame({"id": f"q{n}", "method": "roots/list"}))
            exchange.write(frame({"id": "q0", "method": "roots/list"}))

        async with Talking(Site(tools_call=asks), "2025-11-25") as on:
            call = asyncio.create_task(on.call(Owner(never_return), timeout=None))
            await until(lambda: on.site.methods().count("answer") == 2)
            codes = [(m["id"], m["error"]["code"]) for _, m in on.site.posts if "method" not in m]
            assert codes == [(f"q{module.QUESTIONS}", OVERLOADED), ("q0", INVALID_REQUEST)]
            call.cancel()

    run(main())


def test_a_server_that_asks_and_never_takes_the_answers_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_UNTAKEN", 100_000)

    async def main() -> None:
        def asks(exchange: Exchange, message: Json) -> None:
            exchange.stream(200, EVENTS)
            for n in range(20):
                exchange.write(frame({"id": n, "method": "roots/list"}))

        async with Talking(Site(tools_call=asks, answer=lambda *_: None), "2025-11-25") as on:
            with pytest.raises(Unavailable, match="does not take what it is sent"):
                await on.call(Owner({"roots": ["x" * 10_000]}), timeout=None)
            assert on.owner.losses == ["does not take what it is sent"]

    run(main())


def test_a_call_for_which_no_connection_is_free_is_not_sent_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIF-6: hanging calls hold up neither what cancels them nor more than there are places for."""
    for name in ("FEWEST_CONNECTIONS", "MOST_CONNECTIONS"):
        monkeypatch.setattr(http_client, name, 2)

    async def main() -> None:
        async with Talking(Site(hang=lambda *_: None), "2025-11-25") as on:
            hanging = [asyncio.create_task(on.ask("hang", timeout=30)) for _ in range(2)]
            await until(lambda: on.site.methods().count("hang") == 2)
            with pytest.raises(Unavailable, match=r"could not be sent within 0\.1 s") as caught:
                await on.ask("late", timeout=0.1)
            assert caught.value.code == SERVER_TIMEOUT
            assert caught.value.unsent
            waiting = asyncio.create_task(on.ask("next", timeout=30))
            hanging[0].cancel()
            assert await waiting == {}
            await until(lambda: "notifications/cancelled" in on.site.methods())
            assert "late" not in on.site.methods()
            assert on.site.methods().count("notifications/cancelled") == 1
            hanging[1].cancel()

    run(main())
