"""SEC-1: what strangers, odd issuers and unlucky moments do at the door."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from front.test_guard import asked
from kit.client import WAIT_SECONDS, Session, Stream, post
from kit.gateway import GatewayProcess
from kit.http_client import fetch
from kit.loop import run
from kit.messages import Json, initialize_request, modern_headers, modern_request
from kit.servers import odd_server, raw_server, recorded_messages
from kit.token_issuer import TokenIssuer, published
from kit.until import wait_until
from mcpx.base.aio import Tasks
from mcpx.config import Token
from mcpx.front.admission import Admission
from mcpx.front.identity.badge import WRONG_TOKEN, Badge
from mcpx.front.identity.bearer import Bearer
from mcpx.front.identity.doors import Doors
from mcpx.front.identity.keys import Keys
from mcpx.front.identity.store import TokenStore, Unreadable
from mcpx.front.proxies import Proxies
from mcpx.front.visitor import Visitor
from mcpx.model.errors import RpcError
from mcpx.wire.exchange import Exchange, Headers
from mcpx.wire.fetch import Answer, Fetcher

AUDIENCE = "https://gateway.example/mcp"


def showing(token: str) -> Exchange:
    return asked(("authorization", f"Bearer {token}"))


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path)


# ---- tokens of the file and of the store


def test_a_token_that_a_coming_configuration_drops_does_not_return_when_the_store_changes(
    store: TokenStore,
) -> None:
    """SEC-1: a reload may wait for its servers, and somebody makes or revokes a token meanwhile."""
    bearer = Bearer(
        [Token(name="ann", token="ann-s-own"), Token(name="bob", token="bob-s-own")],
        Doors(()),
        store,
    )
    bearer.keep_only([Token(name="bob", token="bob-s-own", expires="2001-01-01")])
    assert bearer.admit(showing("ann-s-own")) is WRONG_TOKEN
    kept = store.add("carl")
    assert bearer.look()
    assert bearer.admit(showing("ann-s-own")) is WRONG_TOKEN
    assert bearer.admit(showing("bob-s-own")) is WRONG_TOKEN
    assert isinstance(bearer.admit(showing(kept)), Badge)


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
@pytest.mark.parametrize("which", [".", "tokens"])
def test_tokens_are_let_in_again_once_their_folder_was_mended(
    store: TokenStore, tmp_path: Path, which: str
) -> None:
    """SEC-1: mending the folder does not change the file."""
    kept, folder = store.add("ann"), tmp_path / which
    bearer = Bearer((), Doors(()), store)
    mode = folder.stat().st_mode & 0o777
    folder.chmod(0o777)
    assert bearer.look()
    assert bearer.admit(showing(kept)) is WRONG_TOKEN
    folder.chmod(mode)
    assert bearer.look()
    assert isinstance(bearer.admit(showing(kept)), Badge)


@pytest.mark.parametrize(
    "content",
    [
        *("[]", "{}", '{"tokens": 5}', '{"tokens": {}}'),
        *[
            f'{{"tokens": [{{"name": "a", "digest": "{"0" * 64}", "expires": {at}}}]}}'
            for at in ("NaN", "1e400", "1e300")
        ],
        f'{{"tokens": [{{"name": "a", "digest": "{"0" * 64}", "created": 1e300}}]}}',
        f'{{"tokens": [{{"name": "a", "digest": "{"0" * 64}", "created": "x"}}]}}',
    ],
)
def test_a_store_with_anything_else_in_it_counts_for_nothing(
    store: TokenStore, tmp_path: Path, content: str
) -> None:
    """SEC-1: a moment that compares with nothing would never be over, and none of these can be
    told."""
    store.add("ann")
    (tmp_path / "tokens" / "tokens.json").write_text(content)
    with pytest.raises(Unreadable):
        store.read()
    with pytest.raises(Unreadable):
        store.add("bob")  # it would be written over


@pytest.mark.parametrize(
    "token", ["\ud800aaaaaaaa", "aaaa\nbbbb", " aaaaaaaa", "aaaaaaaa ", "aaaa\0bbbb"]
)
def test_a_token_that_no_client_could_show_is_a_mistake(tmp_path: Path, token: str) -> None:
    """SEC-1, CFG-2: not a traceback at the start, and not somebody who is never let in."""
    done = check(tmp_path, {"server": {"auth": {"tokens": [{"name": "ann", "token": token}]}}})
    assert done.returncode == 2
    assert "server.auth.tokens[0].token" in done.stderr and "no client could show" in done.stderr
    assert "aaaa" not in done.stderr.replace(str(tmp_path), "")


@pytest.mark.parametrize("scope", ['a"b', "é", "a b", ""])
def test_a_scope_that_no_token_could_have_is_a_mistake(tmp_path: Path, scope: str) -> None:
    """SEC-1: it would stand in a header, and break it."""
    auth = {
        "type": "jwt",
        "issuer": "https://login.example",
        "audience": AUDIENCE,
        "scopes": {scope: "small"},
    }
    done = check(tmp_path, {"server": {"auth": auth}, "profiles": [{"name": "small"}]})
    assert done.returncode == 2 and "not a possible scope" in done.stderr


def check(folder: Path, config: Json) -> "subprocess.CompletedProcess[str]":
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    file.chmod(0o600)
    environ = {**os.environ, "MCPX_STATE_DIR": str(folder / "state")}
    return subprocess.run(
        [sys.executable, "-m", "mcpx", "check", str(file)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


# ---- who stands in line


def test_whoever_loses_their_token_in_line_is_not_begun() -> None:
    """SEC-1: what begins after everybody was looked at would not be looked at again."""

    class Asked:
        closed = False
        status: int | None = None

        def reply(self, status: int, body: bytes, headers: Any = ()) -> None:
            self.status, self.body = status, body

    async def main() -> None:
        admission, begun = Admission(Counter()), list[str]()
        each = {name: Asked() for name in ("ann", "bob")}
        for name, request in each.items():
            message = {"id": name}
            admission.line_up(
                cast(Exchange, request),
                message,
                Visitor(name),
                lambda name=name: begun.append(name),
            )
        admission.see_off(lambda visitor: visitor.principal == "ann", RpcError(-1, "gone"))
        assert each["ann"].status is not None and b"gone" in each["ann"].body
        while admission.waiting:  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)
        assert begun == ["bob"]

    run(main())


# ---- issuers


def test_one_odd_key_of_an_issuer_does_not_take_the_others_with_it() -> None:
    """SEC-1."""
    odd: list[Any] = [
        *(
            {"kty": "RSA", "alg": ["RS256"], "kid": "o"},
            {"kty": "RSA", "alg": {}},
            {"kty": ["RSA"]},
            "x",
            None,
            7,
        ),
        *(
            {"kty": "EC", "crv": ["P-256"], "x": 1, "y": 2},
            {"kty": "RSA", "use": {}, "n": 1},
            {"kty": "oct", "k": "AA"},
        ),
    ]
    with TokenIssuer() as issuer:
        good = [
            published(key, kid=name, use="sig", alg=kind)
            for name, (kind, key) in issuer.keys.items()
        ]
        keys = fetched_keys({"keys": [*odd, *good]}, "https://login.example/keys")
        assert len(keys.fitting("first", "ES256")) == 1


def test_keys_that_are_moved_from_https_to_http_are_not_taken() -> None:
    """SEC-1: whoever sits between could have put in their own."""
    with TokenIssuer() as issuer:
        good = {"keys": [published(key, kid=name) for name, (_, key) in issuer.keys.items()]}
        assert not fetched_keys(good, "http://login.example/keys")
        assert fetched_keys(good, "https://elsewhere.example/keys")


def fetched_keys(content: Json, came_from: str) -> Keys:
    class Fetches:
        async def fetch(self, request: object) -> Answer:
            return Answer(200, Headers({}), json.dumps(content).encode(), came_from)

    async def main() -> Keys:
        tasks = Tasks("keys")
        url = "https://login.example/keys"
        keys = Keys("https://login.example", url, lambda: cast(Fetcher, Fetches()), tasks)
        await keys.renew()
        await tasks.close()
        return keys

    return run(main())


def test_an_issuer_s_token_without_end_is_refused_and_not_a_failure() -> None:
    """SEC-1."""
    with TokenIssuer() as issuer, GatewayProcess({"server": {"auth": auth_of(issuer)}}) as gateway:
        shown = {"Authorization": f"Bearer {issuer.token('ann', aud=AUDIENCE, exp=10**400)}"}
        assert post(gateway.port, initialize_request(), shown).status == 401
        assert "Traceback" not in gateway.stderr()


# ---- what is told of it


def test_the_trail_says_whom_a_trusted_proxy_was_asked_for(tmp_path: Path) -> None:
    """OBS-1: not the proxy."""
    trail = tmp_path / "trail.jsonl"
    server = {
        "auth": {"tokens": [{"name": "ann", "token": "ann-s-own"}]},
        "trusted_proxies": ["127.0.0.1"],
    }
    with GatewayProcess({"server": server, "global": {"audit": {"file": str(trail)}}}) as gateway:
        assert (
            fetch(gateway.port, "/mcp", "GET", [("X-Forwarded-For", "203.0.113.9")]).status == 401
        )
        wait_until(lambda: trail.exists() and "refused" in trail.read_text())
    [row] = [
        row for row in map(json.loads, trail.read_text().splitlines()) if row["event"] == "refused"
    ]
    assert row["address"] == "203.0.113.9"


def test_rows_of_the_trail_do_not_speak_to_a_terminal(tmp_path: Path) -> None:
    """OBS-1: nor as JSON, which may have everything spelled out."""
    file, trail = tmp_path / "config.json", tmp_path / "trail.jsonl"
    file.write_text(json.dumps({"global": {"audit": {"file": "trail.jsonl"}}}))
    said = "é\x9b31m\u202e\u200b\x7f\U000e0041"
    row = {"time": "2026-01-01T00:00:00.000Z", "event": "call", "principal": said, "client": said}
    trail.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    environ = {**os.environ, "MCPX_STATE_DIR": str(tmp_path / "state"), "PYTHONIOENCODING": "utf-8"}
    for options in (["--json"], []):
        command = [sys.executable, "-m", "mcpx", "audit", str(file), *options]
        done = subprocess.run(command, env=environ, capture_output=True, check=True)
        told = done.stdout.decode()
        assert "é" in told
        assert not set(said[1:]) - set("31m") & set(told)
        if options:
            assert json.loads(told) == row


# ---- what strangers send


def test_a_stranger_s_large_bodies_take_no_room() -> None:
    """SEC-1, SEC-6: whoever shows no token is refused before much of a body was read."""
    large = b"x" * 1_000_000
    head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Length: 4000000\r\n\r\n"
    with GatewayProcess(
        {"server": {"auth": {"tokens": [{"name": "ann", "token": "ann-s-own"}]}}}
    ) as gateway:
        for shown in ("", "Authorization: Bearer wrong\r\n"):
            with socket.create_connection(("127.0.0.1", gateway.port), WAIT_SECONDS) as stranger:
                with contextlib.suppress(ConnectionError):
                    stranger.sendall((head % shown).encode() + large)
                assert stranger.recv(4096).startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        known = {"Authorization": "Bearer ann-s-own"}
        greeting = initialize_request()
        greeting["params"]["more"] = "x" * 1_000_000
        assert post(gateway.port, greeting, known).status == 200


def test_a_large_request_whose_key_is_not_known_yet_may_come_again() -> None:
    """SEC-1: it has the key fetched."""
    with TokenIssuer() as issuer, GatewayProcess({"server": {"auth": auth_of(issuer)}}) as gateway:
        shown = {"Authorization": f"Bearer {issuer.token('ann', aud=AUDIENCE)}"}
        greeting = initialize_request()
        greeting["params"]["more"] = "x" * 1_000_000
        assert post(gateway.port, greeting, shown).status == 503
        wait_until(lambda: "/keys" in issuer.asked)
        wait_until(lambda: post(gateway.port, greeting, shown).status == 200)


def auth_of(issuer: TokenIssuer) -> Json:
    return {"type": "jwt", "issuer": issuer.url, "audience": AUDIENCE}


# ---- the trail keeps what is ours


def test_a_row_without_secrets_still_tells_one_session_from_another(tmp_path: Path) -> None:
    """OBS-1: whoever puts something into a call that looks like a secret does not blot out whose
    call it was."""
    trail = tmp_path / "trail.jsonl"
    config = {
        "global": {"audit": {"file": str(trail), "arguments": "values"}},
        "mcp_servers": [raw_server("raw")],
    }
    with GatewayProcess(config) as gateway:
        client = Session(gateway.port)
        for text in ("plain", "Bearer abcdefgh12345678"):
            client.request("tools/call", {"name": "raw_echo", "arguments": {"text": text}})
    rows = [
        row for row in map(json.loads, trail.read_text().splitlines()) if row["event"] == "call"
    ]
    assert [row["arguments"]["text"] for row in rows] == ["plain", "Bearer ***"]
    assert rows[0]["session"] == rows[1]["session"]


# ---- calls that wait for their client


def test_a_call_that_waits_for_an_answer_ends_with_the_token_of_whoever_made_it(
    tmp_path: Path,
) -> None:
    """SEC-1: it is cancelled at its server, and nobody who gets the name later takes it over."""
    record = tmp_path / "record"
    config = {
        "server": {"auth": {"type": "bearer"}},
        "global": {"hot_reload": False, "first_start_wait": WAIT_SECONDS},
        "mcp_servers": [odd_server("odd", record)],
    }
    with GatewayProcess(config) as gateway:
        store = TokenStore(gateway.folder / "state")

        def call(token: str, **more: Any) -> Json:
            params = {"name": "odd_roots", "arguments": {}, **more}
            message = modern_request("tools/call", params, capabilities={"roots": {}})
            headers = {**modern_headers(message), "Authorization": f"Bearer {token}"}
            return post(gateway.port, message, headers).message

        def token_of(name: str) -> str:
            token = store.add(name)
            shown = {"Authorization": f"Bearer {token}"}
            wait_until(lambda: post(gateway.port, initialize_request(), shown).status == 200)
            return token

        ann, bob = token_of("ann"), token_of("bob")
        waiting, other = call(ann)["result"], call(bob)["result"]
        store.revoke("ann")
        wait_until(lambda: len(recorded_messages(record, "notifications/cancelled")) == 1)
        answers = {"inputResponses": {"q1": {"roots": []}}}
        again = call(token_of("ann"), requestState=waiting["requestState"], **answers)
        assert "unknown or has expired" in again["error"]["message"]
        assert "error" not in call(bob, requestState=other["requestState"], **answers)


def test_a_token_for_the_stream_of_2024_is_good_for_its_way_back() -> None:
    """SEC-1: `/sse` is what its metadata call the resource; clients post to `/messages`."""
    with (
        TokenIssuer() as issuer,
        GatewayProcess({"server": {"auth": {"type": "jwt", "issuer": issuer.url}}}) as gateway,
    ):
        token = issuer.token("ann", aud=f"http://127.0.0.1:{gateway.port}/sse")
        shown = {"Authorization": f"Bearer {token}"}
        accepted = [("Accept", "text/event-stream"), *shown.items()]
        with Stream(gateway.port, "GET", "/sse", accepted) as stream:
            told = stream.event()
            assert told is not None
            assert (
                post(gateway.port, initialize_request("2024-11-05"), shown, told["data"]).status
                == 202
            )
        assert post(gateway.port, initialize_request(), shown).status == 401


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_token_that_could_not_be_told_is_not_kept(tmp_path: Path) -> None:
    """SEC-1."""
    environ = {**os.environ, "MCPX_STATE_DIR": str(tmp_path)}
    file = tmp_path / "config.json"
    file.write_text('{"server": {"auth": {"type": "bearer"}}}')
    command = [sys.executable, "-m", "mcpx", "token", "new", "ann", str(file)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, env=environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert TokenStore(tmp_path).read() == []


@pytest.mark.parametrize(
    "said",
    [
        'for=203.0.113.9"',
        'for="x\\", for=203.0.113.9"',
        "for=203.0.113.9x y",
        'for="',
        "for=203.0.113.9 =",
    ],
)
def test_what_cannot_be_read_to_its_end_says_nothing_of_a_client(said: str) -> None:
    """SEC-1: who opens a quote that a proxy's own words close is not believed."""
    assert Proxies(["127.0.0.1"]).arrival(asked(("forwarded", said))).address == "127.0.0.1"
