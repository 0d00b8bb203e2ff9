"""Credentials on their way to servers over HTTP, HTTP+SSE and WebSocket, on real sockets: what
arrives, and what is done when a server does not take them."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote_plus

import pytest

from kit.loop import run
from kit.protected_server import ProtectedServer
from kit.until import until
from mcpx.auth.credentials import Credentials, Fixed, Proof, Purpose, Refusal
from mcpx.auth.oauth2 import OAuth2
from mcpx.model.call import Json
from mcpx.model.errors import SERVER_DOWN, SERVER_TIMEOUT, RpcError, Unavailable, Unproved
from mcpx.transports import TRANSPORTS, replies
from mcpx.transports.dial import Dial
from mcpx.transports.http import HttpConversation
from mcpx.wire.fetch import Fetcher
from mcpx.wire.http_server import Exchange, HttpServer
from mcpx.wire.sse import sse_frame

WAYS = ("http", "sse", "websocket")
ways = pytest.mark.parametrize("way", WAYS)
SCOPE = 'Bearer error="insufficient_scope", scope="more"'


@pytest.fixture
def server() -> Iterator[ProtectedServer]:
    with ProtectedServer() as guarded:
        yield guarded


class Renewable:
    """Credentials of which the test says what they do; they keep what they are told."""

    def __init__(self, *proofs: Proof) -> None:
        self._proofs = list(proofs)
        self.current: Proof | None = None
        self.failure: Unproved | None = None
        self.refusals: list[tuple[Proof, Refusal]] = []
        self.gate = asyncio.Event()
        """What `get` waits for."""
        self.gate.set()
        self.asked = 0

    def now(self) -> Proof | None:
        return self.current

    async def get(self) -> Proof:
        self.asked += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.current = self.current or self._proofs.pop(0)
        return self.current

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        self.refusals.append((proof, refusal))
        if proof is self.current:
            if not self._proofs:
                return False
            self.current = None
        await self.get()
        return True

    async def close(self) -> None:
        pass


def bearer(token: str) -> Proof:
    return Proof(headers=(("Authorization", f"Bearer {token}"),))


class Owner:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Json]] = []
        self.losses: list[str] = []

    async def request(self, message: Json) -> Json:
        return {}

    def notification(self, method: str, params: Json) -> None:
        self.heard.append((method, params))

    def closed(self, reason: str) -> None:
        self.losses.append(reason)


@asynccontextmanager
async def conversation(
    url: str, way: str, credentials: Credentials, headers: Json | None = None, timeout: float = 5
):
    dial = Dial("srv", Owner(), timeout, 1 << 20, {}, {}, credentials)
    talk = await TRANSPORTS[way](url=url, headers=headers or {}).open(dial)  # pyright: ignore[reportCallIssue]
    try:
        yield talk
    finally:
        await talk.close()
        socket: Any = getattr(talk, "_socket", None)
        if socket is not None:  # the server, in another thread, has its part in closing it
            await until(lambda: socket._transport is None)


async def call(talk: Any, text: str = "hello", timeout: float | None = 5) -> str:
    result = await talk.request(
        "tools/call", {"name": "echo", "arguments": {"text": text}}, timeout=timeout
    )
    return result["content"][0]["text"]


# --- what arrives


@ways
def test_a_proof_goes_with_every_request(server: ProtectedServer, way: str) -> None:
    """Section 6 of the specification: headers and query, in the place of what is configured under
    the same names."""
    server.admits = lambda headers, query: (
        headers.get("x-key") == "proof" and query.get("k") == "a b&c"
    )
    proof = Proof(headers=(("X-Key", "proof"), ("Accept", "text/plain")), query=(("k", "a b&c"),))

    async def main() -> None:
        url = server.url(way) + "?k=configured&other=1"
        async with conversation(
            url, way, Fixed(proof), {"x-kEY": "configured", "X-Other": "o"}
        ) as talk:
            await talk.request("initialize", {})
            talk.notify("notifications/initialized", None)
            talk.agreed("2025-06-18")
            assert await call(talk) == "hello"
            if way == "http":
                await until(lambda: any(seen.verb == "GET" for seen in server.seen))

    run(main())
    assert server.seen and all(seen.admitted for seen in server.seen)
    assert {seen.verb for seen in server.seen if seen.verb != "WS"} == {
        *(
            ["GET", "POST", "DELETE"]
            if way == "http"
            else ["GET", "POST"]
            if way == "sse"
            else ["GET"]
        )
    }
    for seen in server.seen:
        if seen.verb != "WS":
            assert seen.headers["x-other"] == "o" and seen.headers.get("accept") != "text/plain"
            assert seen.query.get("other", "1") == "1"


@ways
def test_headers_are_made_once_for_one_proof(
    server: ProtectedServer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Speed: with fixed credentials a call costs one comparison more."""
    server.admits = lambda headers, query: True
    made: list[Any] = []
    real = Dial.headers
    monkeypatch.setattr(
        Dial, "headers", lambda dial, *given: made.append(given) or real(dial, *given)
    )

    async def main() -> None:
        async with conversation(server.url(way), way, Fixed(bearer("t"))) as talk:
            for _ in range(5):
                await call(talk)

    run(main())
    assert len(made) <= 2


@ways
def test_a_proof_is_waited_for_before_anything_is_sent(server: ProtectedServer, way: str) -> None:
    server.valid = {"one"}

    async def main() -> None:
        credentials = Renewable(bearer("one"))
        credentials.gate.clear()

        async def talk() -> str:
            async with conversation(server.url(way), way, credentials) as talk:
                return await call(talk)

        waiting = asyncio.create_task(talk())
        await until(lambda: credentials.asked)
        assert server.seen == []
        credentials.gate.set()
        assert await waiting == "hello"

    run(main())
    assert all(seen.admitted for seen in server.seen)


@ways
@pytest.mark.parametrize("sign_in", [True, False])
def test_without_a_proof_nothing_is_sent_and_the_reason_is_told(
    server: ProtectedServer, way: str, sign_in: bool
) -> None:
    """LIF-3: where a person has to sign in, that is what the status says."""

    async def main() -> None:
        credentials = Renewable()
        credentials.failure = Unproved("the token server is down", sign_in=sign_in)
        with pytest.raises(Unavailable, match=r"^srv: the token server is down$") as caught:
            async with conversation(server.url(way), way, credentials) as talk:
                await call(talk)
        assert caught.value.code == SERVER_DOWN and caught.value.unsent
        assert caught.value.http_status == (401 if sign_in else None)

    run(main())
    assert server.seen == []


@ways
def test_a_proof_that_does_not_come_is_waited_for_in_measure(
    server: ProtectedServer, way: str
) -> None:
    """The request's own time, or that of connecting."""

    async def main() -> None:
        credentials = Renewable()
        credentials.gate.clear()
        with pytest.raises(Unavailable) as caught:
            async with conversation(server.url(way), way, credentials, timeout=0.2) as talk:
                await call(talk, timeout=0.2)
        assert caught.value.code == (SERVER_TIMEOUT if way == "http" else SERVER_DOWN)
        assert caught.value.message.endswith("the gateway still waited for its credentials")

    run(main())
    assert server.seen == []


def test_closing_ends_what_waits_for_a_proof(server: ProtectedServer) -> None:
    async def main() -> None:
        credentials = Renewable()
        credentials.gate.clear()
        async with conversation(server.url("http"), "http", credentials) as talk:
            waiting = asyncio.create_task(call(talk, timeout=None))
            talk.notify("notifications/roots/list_changed", None)
            await until(lambda: credentials.asked == 2)
        with pytest.raises(Unavailable, match="closed by the gateway"):
            await waiting

    run(main())


# --- what is refused


@ways
@pytest.mark.parametrize(
    ("status", "challenge"),
    [(401, 'Bearer error="invalid_token"'), (401, ""), (403, SCOPE)],
    ids=["401", "bare", "403"],
)
def test_what_a_server_refuses_is_sent_once_more_with_another_proof(
    server: ProtectedServer, way: str, status: int, challenge: str
) -> None:
    server.valid = {"two"}
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no"}}
    headers = [("WWW-Authenticate", challenge)] if challenge else []
    server.refusal = (status, headers, json.dumps(error).encode())

    async def main() -> None:
        credentials = Renewable(bearer("one"), bearer("two"))
        async with conversation(server.url(way), way, credentials) as talk:
            assert await call(talk) == "hello"
        ((_, refusal),) = credentials.refusals
        assert refusal == Refusal(status, challenge)

    run(main())
    assert [seen.admitted for seen in server.seen].count(False) == 1
    assert len(server.calls()) == (2 if way == "http" else 1)


@ways
def test_a_refusal_with_a_long_page_is_one_like_any_other(
    server: ProtectedServer, way: str
) -> None:
    """It is not read to the end."""
    server.valid = {"two"}
    server.refusal = (401, [], b"<html>" + b"x" * 500_000)

    async def main() -> None:
        async with conversation(
            server.url(way), way, Renewable(bearer("one"), bearer("two"))
        ) as talk:
            assert await call(talk) == "hello"

    run(main())


@pytest.mark.parametrize("way", ["http", "sse"])
def test_a_message_that_is_refused_in_the_middle_is_sent_once_more(
    server: ProtectedServer, way: str
) -> None:
    """Requests and notifications alike; over HTTP+SSE in their order."""
    server.valid = {"one"}

    async def main() -> None:
        credentials = Renewable(bearer("one"), bearer("two"), bearer("three"))
        async with conversation(server.url(way), way, credentials) as talk:
            await call(talk)
            server.valid = {"two"}
            talk.notify("notifications/roots/list_changed", None)
            await until(
                lambda: [s.method for s in server.seen if s.admitted][-1].endswith("list_changed")
            )
            server.valid = {"three"}
            assert await asyncio.gather(*(call(talk, str(number)) for number in range(20))) == [
                str(number) for number in range(20)
            ]

    run(main())
    assert len([seen for seen in server.calls() if seen.admitted]) == 21


@ways
def test_what_is_refused_again_is_an_error_and_not_sent_a_third_time(
    server: ProtectedServer, way: str
) -> None:
    async def main() -> None:
        credentials = Renewable(*(bearer(str(number)) for number in range(5)))
        with pytest.raises(Unavailable, match="wants the gateway to sign in") as caught:
            async with conversation(server.url(way), way, credentials) as talk:
                await call(talk)
        assert caught.value.http_status == 401

    run(main())
    assert len(server.seen) == 2


@ways
def test_what_never_changes_is_not_sent_again(server: ProtectedServer, way: str) -> None:
    async def main() -> None:
        with pytest.raises(Unavailable, match="wants the gateway to sign in"):
            async with conversation(server.url(way), way, Fixed(bearer("wrong"))) as talk:
                await call(talk)

    run(main())
    assert len(server.seen) == 1


def test_a_403_for_another_reason_is_not_put_to_the_credentials(server: ProtectedServer) -> None:
    server.refusal = (403, [("WWW-Authenticate", "Bearer")], b"")

    async def main() -> None:
        credentials = Renewable(bearer("one"), bearer("two"))
        async with conversation(server.url("http"), "http", credentials) as talk:
            with pytest.raises(Unavailable, match="HTTP 403"):
                await call(talk)
        assert credentials.refusals == []

    run(main())


def test_many_that_are_refused_at_once_renew_once_and_are_each_sent_once_more(
    server: ProtectedServer,
) -> None:
    async def main() -> None:
        fetcher = Fetcher({})
        spec = OAuth2(client_id="client", client_secret="secret", token_url=server.token_url)
        credentials = spec.credentials(Purpose("api", {}, lambda: fetcher))
        async with conversation(server.url("http"), "http", credentials) as talk:
            await call(talk)
            server.revoke_all()
            server.holds_tokens = True
            calls = [asyncio.create_task(call(talk, str(number))) for number in range(50)]
            await until(lambda: len(server.calls()) == 51)
            server.release_tokens()
            assert await asyncio.gather(*calls) == [str(number) for number in range(50)]
        await credentials.close()
        await fetcher.close()

    run(main())
    assert len(server.token_requests) == 2
    assert len(server.calls()) == 101


def test_a_call_given_up_while_the_proof_is_renewed_is_not_sent_again(
    server: ProtectedServer,
) -> None:
    server.valid = {"two"}

    async def main() -> None:
        credentials = Renewable(bearer("one"), bearer("two"))
        async with conversation(server.url("http"), "http", credentials) as talk:
            assert (await credentials.get()) is credentials.current
            credentials.gate.clear()
            waiting = asyncio.create_task(call(talk))
            await until(lambda: credentials.refusals)
            waiting.cancel()
            await asyncio.wait([waiting])
            credentials.gate.set()
            assert await call(talk, "next") == "next"

    run(main())
    assert [seen.admitted for seen in server.calls()] == [False, True]


# --- streams


def test_the_stream_that_belongs_to_no_request_is_opened_again_with_another_proof(
    server: ProtectedServer,
) -> None:
    server.valid = {"one"}

    async def main() -> None:
        credentials = Renewable(bearer("one"), bearer("two"))

        def gets(admitted: bool) -> int:
            return len(
                [seen for seen in server.seen if seen.verb == "GET" and seen.admitted is admitted]
            )

        async with conversation(server.url("http"), "http", credentials) as talk:
            await talk.request("initialize", {})
            talk.agreed("2025-06-18")
            await until(lambda: gets(True) == 1)
            server.valid = {"two"}
            server.end_stream("/mcp")
            await until(lambda: gets(True) == 2)
            assert gets(False) == 1 and len(credentials.refusals) == 1

    run(main())


def test_an_answer_that_is_polled_for_is_polled_for_again_and_the_call_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A 401 to the rest of an answer says nothing of the request: the server has acted on it."""
    monkeypatch.setattr(replies, "SHORTEST_RETRY_MS", 1)
    posts: list[Json] = []
    gets: list[str | None] = []

    def handle(exchange: Exchange) -> None:
        if exchange.method == "POST":
            posts.append(json.loads(exchange.body))
            exchange.stream(200, [("content-type", "text/event-stream")])
            exchange.write(b"id: 1\nretry: 1\ndata:\n\n")
            exchange.end()
            return
        gets.append(exchange.headers.get("authorization"))
        if exchange.headers.get("authorization") != "Bearer two":
            exchange.reply(401)
            return
        exchange.stream(200, [("content-type", "text/event-stream")])
        exchange.write(
            sse_frame(
                json.dumps({"jsonrpc": "2.0", "id": posts[0]["id"], "result": {"x": 1}}).encode()
            )
        )
        exchange.end()

    async def main() -> None:
        site = HttpServer(handle)
        url = f"http://127.0.0.1:{await site.start('127.0.0.1', 0)}/mcp"
        async with conversation(url, "http", Renewable(bearer("one"), bearer("two"))) as talk:
            assert isinstance(talk, HttpConversation)
            assert await talk.request("m", {}, timeout=5) == {"x": 1}
        await site.close(0.0)

    run(main())
    assert len(posts) == 1 and gets == ["Bearer one", "Bearer two"]


# --- what is said about it


@ways
@pytest.mark.parametrize(
    "proof",
    [
        bearer("canary-91ab"),
        Proof(query=(("key", "canary-91ab"),)),
        Proof(query=(("key", "canary-91ab&é /"),)),
        Proof(headers=(("Authorization", "Basic Y2xpZW50OnNlY3JldA=="),), also=("canary-91ab",)),
    ],
)
@pytest.mark.parametrize("status", [302, 400, 401, 403])
def test_secrets_that_a_server_says_back_are_not_told(
    server: ProtectedServer, way: str, proof: Proof, status: int
) -> None:
    """Neither in its words nor in the address that it redirects to."""
    server.admits = lambda headers, query: False
    value = proof.secrets[-1]
    for body in (
        f"you said {value}",
        json.dumps({"error": {"message": f"not {value}", "code": 1}, "jsonrpc": "2.0"}),
    ):
        server.refusal = (
            status,
            [("Location", f"https://h/?key={quote_plus(value)}")],
            body.encode(),
        )

        async def main() -> None:
            with pytest.raises(RpcError) as caught:
                async with conversation(server.url(way), way, Fixed(proof)) as talk:
                    await call(talk)
            assert "canary" not in str(caught.value), caught.value

        run(main())


def test_messages_go_to_no_other_origin() -> None:
    """The endpoint of HTTP+SSE is the server's to name: credentials do not follow it elsewhere."""
    elsewhere: list[Exchange] = []

    async def main() -> None:
        other = HttpServer(elsewhere.append)
        port = await other.start("127.0.0.1", 0)

        def handle(exchange: Exchange) -> None:
            exchange.stream(200, [("content-type", "text/event-stream")])
            exchange.write(
                sse_frame(f"http://127.0.0.1:{port}/messages".encode(), event="endpoint")
            )

        site = HttpServer(handle)
        url = f"http://127.0.0.1:{await site.start('127.0.0.1', 0)}/sse"
        with pytest.raises(Unavailable, match="on another origin"):
            async with conversation(url, "sse", Fixed(bearer("t"))) as talk:
                await call(talk)
        await site.close(0.0)
        await other.close(0.0)

    run(main())
    assert elsewhere == []
