"""Client credentials against a token server on a real socket: fetched once, kept, renewed, and what
goes wrong."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.clock import Clock
from kit.loop import run, yield_to_loop
from kit.protected_server import ProtectedServer, TokenRequest
from kit.until import until
from mcpx.auth import oauth2, renewal
from mcpx.auth.credentials import Proof, Purpose, Refusal
from mcpx.auth.oauth2 import ClientCredentials, OAuth2
from mcpx.model.errors import Unproved
from mcpx.wire.fetch import Fetcher
from mcpx.wire.http_server import Exchange

CANARY = "canary-6d1f0b"
UNAUTHORIZED = Refusal(401, 'Bearer error="invalid_token"')


@pytest.fixture
def server() -> Iterator[ProtectedServer]:
    with ProtectedServer() as guarded:
        guarded.secret = CANARY
        yield guarded


@asynccontextmanager
async def credentials(server: ProtectedServer, **fields: Any):
    fetcher = Fetcher({})
    fields = {
        "client_id": "client",
        "client_secret": CANARY,
        "token_url": server.token_url,
        **fields,
    }
    made = OAuth2(**fields).credentials(Purpose("api", {}, lambda: fetcher))
    assert isinstance(made, ClientCredentials)
    try:
        yield made
    finally:
        await made.close()
        await fetcher.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of tokens and pauses."""
    clock = Clock()
    for module in (oauth2, renewal):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


def token(proof: Proof | None) -> str:
    assert proof is not None
    ((name, value),) = proof.headers
    assert name == "Authorization" and value.startswith("Bearer ")
    return value.removeprefix("Bearer ")


def reply(
    status: int, headers: list[tuple[str, str]] | None = None, **said: Any
) -> Callable[..., None]:
    def act(exchange: Exchange, request: TokenRequest) -> None:
        exchange.reply(status, json.dumps(said).encode(), headers=headers or [])

    return act


# --- the request


def test_a_token_is_asked_for_by_a_form_with_http_basic(server: ProtectedServer) -> None:
    """RFC 6749, 2.3.1 and 4.4.2: id and secret are encoded as in a form first."""
    server.client, server.secret = "my client", "a:b/c é+"

    async def main() -> None:
        more = {"scope": "read write", "params": {"audience": "https://api"}}
        async with credentials(
            server, client_id=server.client, client_secret=server.secret, **more
        ) as made:
            assert made.now() is None
            assert token(await made.get()) in server.valid
            assert made.now() is await made.get()

    run(main())
    (asked,) = server.token_requests
    assert asked.form == {
        "grant_type": "client_credentials",
        "scope": "read write",
        "audience": "https://api",
    }
    assert asked.authorization is not None
    assert (
        base64.b64decode(asked.authorization.removeprefix("Basic "))
        == b"my+client:a%3Ab%2Fc+%C3%A9%2B"
    )


@pytest.mark.parametrize("status", [400, 401])
def test_a_server_that_wants_the_secret_in_the_form_gets_it_there_and_from_then_on_at_once(
    server: ProtectedServer, clock: Clock, status: int
) -> None:
    server.styles = {"post"}

    def choosy(exchange: Exchange, request: TokenRequest) -> None:
        if request.authorization is None:
            server.issue(exchange, request)
        else:
            exchange.reply(status, b'{"error":"invalid_client"}')

    server.on_token = choosy

    async def main() -> None:
        async with credentials(server) as made:
            await made.get()
            clock.advance(4000)
            await made.get()

    run(main())
    assert [request.authorization is None for request in server.token_requests] == [
        False,
        True,
        True,
    ]
    assert server.token_requests[1].form["client_secret"] == CANARY


@pytest.mark.parametrize("style", ["basic", "post"])
def test_a_way_that_is_configured_is_the_only_one_tried(
    server: ProtectedServer, style: str
) -> None:
    server.styles = {"basic", "post"} - {style}

    async def main() -> None:
        async with credentials(server, client_auth=style) as made:
            with pytest.raises(Unproved, match="invalid_client"):
                await made.get()

    run(main())
    assert [request.authorization is not None for request in server.token_requests] == [
        style == "basic"
    ]


# --- one for all


def test_any_number_of_waiting_calls_make_one_request(server: ProtectedServer) -> None:
    server.holds_tokens = True

    async def main() -> None:
        async with credentials(server) as made:
            waiting = [asyncio.create_task(made.get()) for _ in range(50)]
            await until(lambda: server.token_requests)
            server.release_tokens()
            assert len({token(proof) for proof in await asyncio.gather(*waiting)}) == 1

    run(main())
    assert len(server.token_requests) == 1


def test_a_token_that_has_expired_is_renewed_once_for_all(
    server: ProtectedServer, clock: Clock
) -> None:
    server.token_life = 100

    async def main() -> None:
        async with credentials(server) as made:
            first = await made.get()
            clock.advance(100)
            assert made.now() is None
            second = set(await asyncio.gather(*(made.get() for _ in range(50))))
            assert len(second) == 1 and first not in second

    run(main())
    assert len(server.token_requests) == 2


def test_a_waiter_that_leaves_changes_nothing_for_the_others(server: ProtectedServer) -> None:
    """Whoever came first included."""
    server.holds_tokens = True

    async def main() -> None:
        async with credentials(server) as made:
            waiting = [asyncio.create_task(made.get()) for _ in range(3)]
            await until(lambda: server.token_requests)
            waiting[0].cancel()
            await yield_to_loop()
            server.release_tokens()
            assert token(await waiting[1]) == token(await waiting[2])
            assert waiting[0].cancelled()

    run(main())
    assert len(server.token_requests) == 1


def test_the_last_waiter_that_leaves_ends_the_request_and_the_next_one_begins_anew(
    server: ProtectedServer,
) -> None:
    server.holds_tokens = True

    async def main() -> None:
        async with credentials(server) as made:
            waiting = [asyncio.create_task(made.get()) for _ in range(2)]
            await until(lambda: server.token_requests)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            await until(lambda: not made._renewal._tasks._running)  # pyright: ignore[reportPrivateUsage]
            server.release_tokens()
            assert token(await made.get()) in server.valid

    run(main())
    assert len(server.token_requests) == 2


def test_calls_go_on_with_a_token_while_it_is_renewed(
    server: ProtectedServer, clock: Clock
) -> None:
    """A tenth of its life before its end, or a minute; also if renewing fails."""
    server.token_life = 100

    async def main() -> None:
        async with credentials(server) as made:
            first = await made.get()
            clock.advance(89)
            assert made.now() is first
            await yield_to_loop()
            assert len(server.token_requests) == 1
            clock.advance(2)
            server.on_token = reply(500)
            assert made.now() is first and await made.get() is first
            await until(
                lambda: len(server.token_requests) == 2 and None not in made._renewal._flight
            )  # pyright: ignore[reportPrivateUsage]
            assert made.now() is first, "a failure is nobody's while the old one is valid"
            server.on_token = server.issue
            clock.advance(2)
            assert made.now() is first
            await until(lambda: made.now() is not first)

    run(main())
    assert len(server.token_requests) == 3


@pytest.mark.parametrize(
    ("life", "valid_at", "over_at"),
    [
        (None, 10**9, None),
        (3600, 3599, 3600),
        ("90", 89, 90),
        (0, 0.8, 1),  # a moment, or every call would ask for one
        (-5, 0.8, 1),
        (10**30, 10**9, None),
        (10**500, 10**9, None),
        (True, 10**9, None),
    ],
)
def test_a_token_lives_as_long_as_is_said(
    server: ProtectedServer, clock: Clock, life: Any, valid_at: float | None, over_at: float | None
) -> None:
    """Nothing said: for ever."""
    server.token_life = life

    async def main() -> None:
        async with credentials(server) as made:
            first, begin = await made.get(), clock.now
            if valid_at is not None:
                clock.now = begin + valid_at
                server.holds_tokens = True
                assert made.now() is first
            if over_at is not None:
                clock.now = begin + over_at
                assert made.now() is None

    run(main())


# --- refused by a server


def test_a_token_that_a_server_refuses_is_renewed_once_for_all_who_used_it(
    server: ProtectedServer,
) -> None:
    async def main() -> None:
        async with credentials(server) as made:
            first = await made.get()
            assert (
                await asyncio.gather(*(made.refused(first, UNAUTHORIZED) for _ in range(50)))
                == [True] * 50
            )
            assert made.now() is not first
            assert await made.refused(first, UNAUTHORIZED), "there is a newer one already"

    run(main())
    assert len(server.token_requests) == 2


def test_a_server_that_refuses_every_token_does_not_make_us_ask_for_them_all_the_time(
    server: ProtectedServer, clock: Clock
) -> None:
    async def main() -> None:
        async with credentials(server) as made:
            renewals = []
            for _ in range(600):
                renewals.append(await made.refused(await made.get(), UNAUTHORIZED))
                clock.advance(0.1)
            assert renewals[0] and 4 <= sum(renewals) <= 8

    run(main())


def test_a_want_of_scope_is_not_mended_by_another_token(server: ProtectedServer) -> None:
    async def main() -> None:
        async with credentials(server) as made:
            proof = await made.get()
            assert not await made.refused(proof, Refusal(403, 'Bearer error="insufficient_scope"'))
            assert made.now() is proof

    run(main())


# --- what goes wrong


def test_a_failure_is_everybodys_who_waits_and_not_repeated_before_a_pause(
    server: ProtectedServer, clock: Clock
) -> None:
    server.on_token = reply(500, error="server_error")

    async def main() -> None:
        async with credentials(server) as made:
            pauses: list[float] = []
            for asked in (1, 2, 3):
                told = await asyncio.gather(
                    *(made.get() for _ in range(20)), return_exceptions=True
                )
                assert all(
                    isinstance(error, Unproved) and "HTTP 500" in error.reason for error in told
                )
                assert len(server.token_requests) == asked
                begin = clock.now
                while not made._renewal.is_idle:  # pyright: ignore[reportPrivateUsage]
                    clock.advance(0.5)
                pauses.append(clock.now - begin)
            assert pauses == [1, 2, 4]
            server.on_token = server.issue
            assert token(await made.get()) in server.valid

    run(main())


def test_a_token_server_is_left_alone_for_as_long_as_it_asks(
    server: ProtectedServer, clock: Clock
) -> None:
    server.on_token = reply(429, [("Retry-After", "20")], error="slow_down")

    async def main() -> None:
        async with credentials(server) as made:
            for wait in (0, 19.5, 1):
                clock.advance(wait)
                with pytest.raises(Unproved, match="slow_down"):
                    await made.get()

    run(main())
    assert len(server.token_requests) == 2


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (
            reply(401, error="invalid_client", error_description=f"not {CANARY}"),
            r"invalid_client: not \*\*\* \(HTTP",
        ),
        (
            reply(400, error="invalid_scope", error_description="x" * 5000),
            r"invalid_scope: x+… \[4,815 more\] \(HTTP 400\)$",
        ),
        (reply(400, error="a\r\nb"), r"refuses: a b \(HTTP 400\)$"),
        (reply(503), "refuses: HTTP 503$"),
        (reply(200), "without an 'access_token'"),
        (reply(200, access_token=""), "without an 'access_token'"),
        (reply(200, access_token=["x"]), "without an 'access_token'"),
        (reply(200, access_token="a\r\nX: y"), "a token that no header can hold"),
        (reply(200, access_token="a b"), "a token that no header can hold"),
        (reply(200, access_token="x" * 70_000), "a token that no header can hold"),
        (reply(200, access_token="t", token_type="mac"), "another type than Bearer"),
        (
            reply(302, [("Location", "http://127.0.0.1:1/elsewhere")]),
            r"redirects \(HTTP 302\); put the final",
        ),
        (
            lambda exchange, _: exchange.reply(200, b"<html>" + CANARY.encode()),
            "without an 'access_token'",
        ),
        (lambda exchange, _: exchange.reply(200, b"x" * (2 << 20)), "cannot be asked"),
    ],
)
def test_what_a_token_server_says_instead_of_a_token_is_told_in_a_line(
    server: ProtectedServer, act: Callable[..., None], said: str
) -> None:
    """The error names the auth config and the host, and holds no secret."""
    server.on_token = act

    async def main() -> None:
        async with credentials(server) as made:
            with pytest.raises(Unproved, match=said) as caught:
                await made.get()
            assert caught.value.reason.startswith(
                f"auth config 'api': the token server 127.0.0.1:{server.port} "
            )
            assert CANARY not in caught.value.reason and "\n" not in caught.value.reason
            assert len(caught.value.reason) < 600 and not caught.value.sign_in

    run(main())


def test_the_two_ways_to_show_a_secret_are_told_apart_when_both_fail(
    server: ProtectedServer,
) -> None:
    def act(exchange: Exchange, request: TokenRequest) -> None:
        what = "no basic here" if request.authorization else "wrong secret"
        exchange.reply(
            401, json.dumps({"error": "invalid_client", "error_description": what}).encode()
        )

    server.on_token = act

    async def main() -> None:
        async with credentials(server) as made:
            with pytest.raises(
                Unproved, match=r"no basic here \(HTTP 401\); invalid_client: wrong secret \(HTTP"
            ):
                await made.get()

    run(main())


def test_a_token_server_that_is_down_is_told_with_its_host(server: ProtectedServer) -> None:
    async def main() -> None:
        async with credentials(server, token_url="http://127.0.0.1:9/token") as made:
            with pytest.raises(
                Unproved,
                match=r"^auth config 'api': the token server 127\.0\.0\.1:9 cannot be asked",
            ):
                await made.get()

    run(main())


def test_a_token_server_that_does_not_answer_is_waited_for_in_measure(
    server: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth2, "TIMEOUT", 0.2)
    server.holds_tokens = True

    async def main() -> None:
        async with credentials(server) as made:
            with pytest.raises(Unproved, match=r"did not answer within 0\.2 s"):
                await made.get()

    run(main())


def test_who_waits_when_it_is_closed_is_told_so(server: ProtectedServer) -> None:
    """Not cancelled: that would be somebody else's doing."""
    server.holds_tokens = True

    async def main() -> None:
        async with credentials(server) as made:
            waiting = asyncio.create_task(made.get())
            await until(lambda: server.token_requests)
            await made.close()
            with pytest.raises(Unproved, match="no longer used"):
                await waiting
            with pytest.raises(Unproved, match="no longer used"):
                await made.get()

    run(main())
