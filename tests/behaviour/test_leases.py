"""LIF-2, PRO-4, PRO-5: who is lent which connection, who is asked, who hears what, and how many
processes that takes.

Everything goes through the real program, with small clients and a server that asks, logs and
announces at the moment the test chooses (`asking_server.py`).
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from behaviour.clients import (
    MESSAGE,
    UPDATED,
    AnsweringUser,
    Client,
    Door,
    Front,
    Question,
    RefusedError,
    raw_client,
)
from kit.client import WAIT_SECONDS, Session, health, post_modern, wait_until_settled
from kit.command import MCPX
from kit.gateway import Gateway, GatewayProcess
from kit.messages import Json, modern_request, structured_content, text_of
from kit.process_tree import descendants
from kit.servers import stdio_server
from kit.until import until, wait_until
from mcpx.catalog.naming import wrap_uri

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

SCRIPT = Path(__file__).with_name("asking_server.py")
URI = wrap_uri("s", "asking://one")
QUIETLY = 0.3
"""Seconds in which something would have come that must not come."""

ELICITATION: Json = {"elicitation": {}}
KINDS: list[Json] = [
    {"elicitation": {}},
    {"elicitation": {"form": {}}, "sampling": {}},
    {"roots": {"listChanged": True}},
    {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}},
    {"sampling": {"tools": {}}},
]
"""What five programs of today declare."""


# ---- a gateway before servers that ask


def asking(name: str, record: Path, *flags: str, **keys: Any) -> Json:
    return stdio_server(
        name, [sys.executable, "-I", "-S", str(SCRIPT), str(record), *flags], **keys
    )


def config(*servers: Json, **more: Any) -> Json:
    return {
        "global": {"startup_wait": 10, "hot_reload_interval": 0.05, **more},
        "mcp_servers": list(servers),
    }


def seen(record: Path, method: str) -> list[Json]:
    """What servers with this record have read or noted, in order."""
    lines = record.read_bytes().splitlines(keepends=True) if record.exists() else []
    messages = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [message for message in messages if message.get("method") == method]


def rewrite(gateway: Gateway, value: Json) -> None:
    new = gateway.file.with_name(".new.json")
    new.write_text(json.dumps(value))
    new.chmod(0o600)
    os.replace(new, gateway.file)


def processes(gateway: Gateway) -> set[int]:
    """The servers that run, as the system knows them."""
    found: set[int] = set()
    for pid in descendants(gateway.pid):
        try:
            command = Path("/proc", str(pid), "cmdline").read_bytes()
        except OSError:
            continue
        if SCRIPT.name.encode() in command:
            found.add(pid)
    return found


class Sampling:
    """Counts processes, over and over, until it is told to stop."""

    def __init__(self, gateway: Gateway) -> None:
        self.counts: list[int] = []
        self._gateway = gateway
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def _count(self) -> None:
        while not self._over.wait(0.02):
            self.counts.append(len(processes(self._gateway)))

    def __enter__(self) -> "Sampling":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(WAIT_SECONDS)


def told_of(gateway: Gateway) -> Json:
    """`mcpx servers --json`, by name of the server."""
    command = [*MCPX, "servers", str(gateway.file), "--json"]
    done = subprocess.run(
        command, env=gateway.env, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    return {server["name"]: server for server in json.loads(done.stdout)["servers"]}


# ---- people


def door(gateway: Gateway, front: Front = "http") -> Door:
    base = f"127.0.0.1:{gateway.port}"
    return Door(
        front,
        {"http": f"http://{base}/mcp", "sse": f"http://{base}/sse"}.get(front, f"ws://{base}/ws"),
    )


def run(check: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await check()

    anyio.run(bounded)


async def called(client: Client, tool: str, **arguments: Any) -> str:
    """What the call brought: the text of its result, or of its error."""
    try:
        return (await client.call(tool, arguments))["content"][0]["text"]
    except RefusedError as refused:
        return refused.error["message"]


def heard(user: AnsweringUser, method: str) -> list[Json]:
    return [params for said, params in user.heard if said == method]


def questions(user: AnsweringUser) -> list[str]:
    return [question.params.get("message", question.method) for question in user.asked]


# ---- who is asked (PRO-5)


@pytest.mark.parametrize("isolation", ["shared", "per_session", "per_call"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("http", True), ("http", True)),
        (("http", False), ("websocket", True)),
        (("websocket", True), ("http", False)),
    ],
    ids=["modern-modern", "older-modern", "modern-older"],
)
def test_the_late_question_of_a_cancelled_call_reaches_no_other_client(
    tmp_path: Path, first: tuple[Front, bool], second: tuple[Front, bool], isolation: str
) -> None:
    """PRO-5: of two users of the same program, the second is not asked what concerns the first."""
    record, asks, ends = tmp_path / "record", tmp_path / "asks", tmp_path / "ends"

    async def check() -> None:
        ada, twin = AnsweringUser("ada"), AnsweringUser("ada")
        outcome: list[str] = []
        async with (
            raw_client(door(gateway, first[0]), ada, first[1]) as one,
            raw_client(door(gateway, second[0]), twin, second[1]) as other,
            anyio.create_task_group() as group,
        ):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as calling:
                    calling.start_soon(
                        lambda: called(one, "s_ask", text="for ada", until=str(asks))
                    )
                    await until(lambda: seen(record, "tools/call"))
                    scope.cancel()

            async def wait() -> None:
                outcome.append(await called(other, "s_wait", text="mine", until=str(ends)))

            group.start_soon(wait)
            await until(lambda: len(seen(record, "tools/call")) == 2)
            asks.touch()
            await anyio.sleep(QUIETLY)
            ends.touch()
            await until(lambda: outcome)
        assert (outcome, questions(twin), twin.complaints) == (["mine"], [], [])

    with Gateway(config(asking("s", record, isolation=isolation))) as gateway:
        run(check)


@pytest.mark.parametrize("modern_clients", [False, True], ids=["older", "modern"])
def test_a_question_on_an_idle_connection_is_not_kept_for_whoever_comes_next(
    tmp_path: Path, modern_clients: bool
) -> None:
    """PRO-5: work that goes on after a call's answer may ask; then nobody is asked, least of all
    the next client."""
    record, asks = tmp_path / "record", tmp_path / "asks"

    async def check() -> None:
        ada, bob = AnsweringUser("ada"), AnsweringUser("bob")
        async with (
            raw_client(door(gateway), ada, modern_clients) as one,
            raw_client(door(gateway), bob, modern_clients) as other,
        ):
            assert await called(one, "s_ask_later", text="for ada", until=str(asks)) == "soon"
            asks.touch()
            await until(lambda: seen(record, "asks"))
            assert await called(other, "s_wait", seconds=QUIETLY) == "waited"
        assert questions(bob) == []

    with Gateway(config(asking("s", record))) as gateway:
        run(check)


@pytest.mark.parametrize("modern_clients", [False, True], ids=["older", "modern"])
def test_a_quiet_server_that_asks_after_all_is_answered_by_the_one_client_in_flight_or_by_nobody(
    tmp_path: Path, modern_clients: bool
) -> None:
    """PRO-5, LIF-2: with two in flight the question is refused; from then on it has one addressee
    again."""
    record, asks, ends = tmp_path / "record", tmp_path / "asks", tmp_path / "ends"

    async def check() -> None:
        ada, bob = AnsweringUser("ada"), AnsweringUser("bob")
        async with (
            raw_client(door(gateway), ada, modern_clients) as one,
            raw_client(door(gateway), bob, modern_clients) as other,
        ):
            for number in range(55):
                assert await called(one, "s_echo", text=str(number)) == str(number)
            before = len(seen(record, "tools/call"))
            outcomes: Json = {}

            async def ask() -> None:
                outcomes["ada"] = await called(one, "s_ask", text="for ada", until=str(asks))

            async def wait() -> None:
                outcomes["bob"] = await called(other, "s_wait", text="bob's", until=str(ends))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                group.start_soon(wait)
                await until(lambda: len(seen(record, "tools/call")) == before + 2)
                assert len(processes(gateway)) == 1, "a quiet server is shared"
                asks.touch()
                await until(lambda: "ada" in outcomes)
                ends.touch()
            assert "nobody here can be asked" in outcomes["ada"] and outcomes["bob"] == "bob's"
            assert (questions(ada), questions(bob)) == ([], [])
            assert json.loads(await called(one, "s_ask", text="again")) == {
                "action": "accept",
                "content": {"name": "ada"},
            }
        assert (questions(ada), questions(bob)) == (["again"], [])

    with Gateway(config(asking("s", record))) as gateway:
        run(check)


class Thoughtful(AnsweringUser):
    """Answers a question only when the server has said something more."""

    def __init__(self, name: str, record: Path, go: Path) -> None:
        super().__init__(name)
        self._record, self._go = record, go

    def answer(self, question: Question) -> Json:
        self._go.touch()
        wait_until(lambda: seen(self._record, "stepped"))
        return super().answer(question)


@pytest.mark.parametrize("modern_client", [False, True], ids=["older", "modern"])
def test_progress_goes_on_while_the_client_thinks_about_a_question(
    tmp_path: Path, modern_client: bool
) -> None:
    """PRO-4, PRO-5: a modern client has no request open then; it is told when it comes back with
    the answer."""
    record, go = tmp_path / "record", tmp_path / "go"

    async def check() -> None:
        steps: list[float] = []
        async with raw_client(
            door(gateway), Thoughtful("ada", record, go), modern_client
        ) as client:
            await client.call(
                "s_steps", {"until": str(go)}, lambda params: steps.append(params["progress"])
            )
        assert steps == [1, 2, 3]

    with Gateway(config(asking("s", record))) as gateway:
        run(check)


@pytest.mark.parametrize("isolation", ["shared", "per_session", "per_call"])
def test_a_modern_client_on_stdio_is_asked_about_each_of_several_calls_in_flight(
    tmp_path: Path, isolation: str
) -> None:
    """PRO-5: there is one client, so every question is its own."""
    outcomes: list[str] = []

    async def check() -> None:
        ada = AnsweringUser("ada")
        way_in = Door(
            "stdio", command=gateway.stdio_command, env=gateway.env, stderr=tmp_path / "stderr"
        )
        async with raw_client(way_in, ada, True) as client, anyio.create_task_group() as group:
            for number in range(4):

                async def ask(number: int = number) -> None:
                    outcomes.append(await called(client, "s_ask", text=str(number), seconds=0.05))

                group.start_soon(ask)
        assert sorted(questions(ada)) == ["0", "1", "2", "3"]
        assert [json.loads(outcome)["content"]["name"] for outcome in outcomes] == ["ada"] * 4

    with GatewayProcess(
        config(asking("s", tmp_path / "record", isolation=isolation)), transport="stdio"
    ) as gateway:
        run(check)


# ---- who hears a log message (PRO-4)


@pytest.mark.parametrize("isolation", ["shared", "per_session", "per_call"])
@pytest.mark.parametrize("modern_client", [False, True], ids=["older", "modern"])
def test_what_a_call_makes_a_server_log_is_heard_by_its_client_alone(
    tmp_path: Path, modern_client: bool, isolation: str
) -> None:
    """PRO-4: whichever connection the call went over."""
    record, logs, ends = tmp_path / "record", tmp_path / "logs", tmp_path / "ends"

    async def check() -> None:
        ada, bob, cy = AnsweringUser("ada"), AnsweringUser("bob"), AnsweringUser("cy", quiet=True)
        async with (
            raw_client(door(gateway), ada, modern_client) as one,
            raw_client(door(gateway), bob, False) as other,
            raw_client(door(gateway), cy, False) as third,
            anyio.create_task_group() as group,
        ):
            done: list[str] = []

            async def log() -> None:
                done.append(await called(one, "s_log", text="ada's", until=str(logs)))

            async def wait(client: Client) -> None:
                done.append(await called(client, "s_wait", until=str(ends)))

            group.start_soon(log)
            await until(lambda: seen(record, "tools/call"))
            group.start_soon(wait, other)
            group.start_soon(wait, third)
            await until(lambda: len(seen(record, "tools/call")) == 3)
            logs.touch()
            await until(lambda: done)
            await anyio.sleep(QUIETLY)
            ends.touch()
        assert [[said["data"] for said in heard(user, MESSAGE)] for user in (ada, bob, cy)] == [
            ["ada's"],
            [],
            [],
        ]

    with Gateway(config(asking("s", record, isolation=isolation))) as gateway:
        run(check)


def test_a_quiet_server_that_everybody_shares_still_logs_to_the_one_client_that_calls(
    tmp_path: Path,
) -> None:
    """PRO-4: with one client's call in flight it is known whose message it is."""

    async def check() -> None:
        ada, bob = AnsweringUser("ada"), AnsweringUser("bob", quiet=True)
        async with (
            raw_client(door(gateway), ada, False) as one,
            raw_client(door(gateway), bob, False) as other,
        ):
            for _ in range(55):
                await called(one, "s_echo")
            assert await called(other, "s_echo", text="mine") == "mine"
            for client in (one, other):
                await client.request("logging/setLevel", {"level": "info"})
            assert await called(one, "s_log", text="ada's") == "logged"
            await until(lambda: heard(ada, MESSAGE))
            await anyio.sleep(QUIETLY)
        assert heard(bob, MESSAGE) == []

    with Gateway(config(asking("s", tmp_path / "record"))) as gateway:
        run(check)


# ---- how many processes (LIF-2)


@contextmanager
def three(tmp_path: Path, **keys: Any) -> Iterator[Gateway]:
    servers = [asking(name, tmp_path / name) for name in "xyz"]
    with Gateway(
        config(*servers, **keys), env={"MCPX_STATE_DIR": str(tmp_path / "state")}
    ) as gateway:
        wait_until_settled(gateway.port)
        yield gateway


def visit(
    gateway: Gateway, capabilities: Json, version: str = "2025-11-25"
) -> tuple[Session, float]:
    """A client that lists and calls each server once; and the longest of its calls in seconds."""
    client, longest = Session(gateway.port, version, capabilities), 0.0
    client.tools()
    for name in "xyz":
        began = time.monotonic()
        assert "result" in client.call(f"{name}_who")
        longest = max(longest, time.monotonic() - began)
    return client, longest


VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2025-11-25"]


@pytest.mark.parametrize(
    ("capabilities", "versions"),
    [
        ([ELICITATION] * 5, VERSIONS[-1:] * 5),
        (KINDS, VERSIONS[-1:] * 5),
        ([ELICITATION] * 5, VERSIONS),
        ([{}, ELICITATION, {}, ELICITATION, {}], VERSIONS[-1:] * 5),
    ],
    ids=["of-one-kind", "of-five-kinds", "of-four-versions", "some-plain"],
)
def test_five_clients_in_turn_on_three_servers_that_never_ask_take_at_most_five_processes(
    tmp_path: Path, capabilities: list[Json], versions: list[str]
) -> None:
    """LIF-2: all of them stay connected, as editors do; nothing was known of the servers before."""
    with three(tmp_path) as gateway, Sampling(gateway) as sampling:
        for able, version in zip(capabilities, versions, strict=True):
            visit(gateway, able, version)
    assert max(sampling.counts) <= 5, sampling.counts


def count_quiet(snapshots: Path) -> int:
    """The number of snapshots of servers that have asked nothing in 50 calls."""
    try:
        texts = [file.read_text() for file in snapshots.iterdir()]
    except FileNotFoundError:  # Not written yet, or replaced between the listing and the reading.
        return 0
    return sum('"unasked":50' in text.replace(" ", "") for text in texts)


def test_quiet_servers_are_shared_by_clients_of_every_kind_also_after_a_restart(
    tmp_path: Path,
) -> None:
    """LIF-2: what a server is like is remembered; a client's first call does not wait for a
    process."""
    with three(tmp_path) as gateway:
        client = Session(gateway.port, capabilities=KINDS[3])
        for name in "xyz":
            for _ in range(55):
                client.call(f"{name}_who")
        snapshots = Path(tmp_path, "state", "snapshots")
        wait_until(lambda: count_quiet(snapshots) == 3)
    with three(tmp_path) as gateway, Sampling(gateway) as sampling:
        longest = [visit(gateway, able)[1] for able in KINDS]
    assert max(sampling.counts) <= 5, sampling.counts
    assert min(longest[1:]) < 0.1


def test_five_clients_at_once_get_right_answers_and_leave_one_process_a_server(
    tmp_path: Path,
) -> None:
    """LIF-2: what contention made goes after `link_idle`, and `mcpx servers` tells the truth."""
    with three(tmp_path, link_idle=1) as gateway:
        wrong: list[str] = []

        def work(number: int) -> None:
            client = Session(gateway.port, capabilities=KINDS[number])
            for turn in range(3):
                for name in "xyz":
                    said = f"{number} {turn} {name}"
                    if text_of(client.call(f"{name}_wait", text=said, seconds=0.05)) != said:
                        wrong.append(said)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
        assert not wrong
        wait_until(lambda: len(processes(gateway)) <= 5)
        told_processes = sum(server["processes"] for server in told_of(gateway).values())
        assert told_processes == len(processes(gateway)) <= 5


def test_sixty_lists_with_varied_capabilities_keep_no_processes(tmp_path: Path) -> None:
    """LIF-2: what a kind of client is offered is learnt once, and nothing is kept for it."""
    words: list[Json] = [{}, {"form": {}}, {"form": {}, "url": {}}, {"url": {}}, {"x": 1}]
    with three(tmp_path) as gateway:
        for number in range(60):
            able = {"elicitation": {**words[number % 5], f"n{number}": {}}}
            reply = post_modern(gateway.port, modern_request("tools/list", {}, capabilities=able))
            assert len(reply.message["result"]["tools"]) == 27
        wait_until(lambda: len(processes(gateway)) <= 5)
        assert sum(len(seen(tmp_path / name, "started")) for name in "xyz") <= 18


def test_a_stdio_server_of_both_eras_is_one_process_for_clients_of_both(tmp_path: Path) -> None:
    """LIF-2: the other era goes over the bridges."""
    record = tmp_path / "record"
    call = {"name": "s_who", "arguments": {}}
    with Gateway(config(asking("s", record, "--era", "dual"))) as gateway:
        for able in ({}, ELICITATION):
            assert "result" in Session(gateway.port, capabilities=able).call("s_who")
            assert (
                "result"
                in post_modern(
                    gateway.port, modern_request("tools/call", call, capabilities=able)
                ).message
            )
        assert len(seen(record, "started")) == 1


def test_a_server_killed_while_it_is_lent_costs_that_call_only(tmp_path: Path) -> None:
    """SRC-8, LIF-2: the error names the server; the other client's call goes on; the next call
    finds a server."""
    record, ends = tmp_path / "record", tmp_path / "ends"
    with GatewayProcess(config(asking("s", record))) as gateway:
        outcomes: dict[int, Json] = {}

        def work(number: int) -> None:
            outcomes[number] = Session(gateway.port, capabilities=ELICITATION).call(
                "s_wait", until=str(ends)
            )

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: len(seen(record, "tools/call")) > number)
        os.kill(seen(record, "tools/call")[0]["pid"], 9)
        wait_until(lambda: 0 in outcomes)
        assert outcomes[0]["error"]["message"].startswith("s: ") and 1 not in outcomes
        ends.touch()
        threads[1].join(WAIT_SECONDS)
        assert text_of(outcomes[1]) == "waited"
        assert structured_content(Session(gateway.port, capabilities=ELICITATION).call("s_who"))[
            "pid"
        ] in processes(gateway)
        assert told_of(gateway)["s"]["processes"] == len(processes(gateway))


def test_one_connection_is_enough_for_clients_that_call_in_turn(tmp_path: Path) -> None:
    """LIF-2: `max_links: 1` bounds a server that never asks; it does not shut out whoever can be
    asked."""
    with Gateway(config(asking("s", tmp_path / "record", max_links=1, timeout=5))) as gateway:
        wait_until_settled(gateway.port)
        for able in (ELICITATION, {}, KINDS[3]):
            reply = Session(gateway.port, capabilities=able).call("s_echo", text="here")
            assert "result" in reply and text_of(reply) == "here", reply


# ---- subscriptions (PRO-4)


@pytest.mark.parametrize("isolation", ["shared", "per_session"])
@pytest.mark.parametrize("able", [False, True], ids=["plain", "askable"])
def test_a_subscriber_hears_what_its_own_calls_change(
    tmp_path: Path, able: bool, isolation: str
) -> None:
    """PRO-4, LIF-2: also when it subscribed before it asked for anything else."""
    record = tmp_path / "record"

    async def check() -> None:
        ada = AnsweringUser("ada", quiet=not able)
        async with raw_client(door(gateway), ada, False) as client, client.watching(URI):
            for times in (1, 2):
                await called(client, "s_touch")
                await until(lambda times=times: len(heard(ada, UPDATED)) >= times, 3)
            await anyio.sleep(QUIETLY)
            assert len(heard(ada, UPDATED)) == 2

    with Gateway(config(asking("s", record, isolation=isolation))) as gateway:
        wait_until_settled(gateway.port)
        run(check)


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("modern_client", [False, True], ids=["older", "modern"])
@pytest.mark.parametrize("able", [False, True], ids=["plain", "askable"])
def test_a_subscriber_hears_the_new_server_after_a_reload_and_leaves_it_unsubscribed(
    tmp_path: Path, able: bool, modern_client: bool, when: str
) -> None:
    """PRO-4, CFG-5: whether it subscribed before the reload or while the new server was starting;
    exactly once."""
    record = tmp_path / "record"

    async def check() -> None:
        ada = AnsweringUser("ada", quiet=not able)
        async with raw_client(door(gateway), ada, modern_client) as client:
            await client.listed("tools/list")
            assert await called(client, "s_echo", text="up") == "up"
            old = {message["pid"] for message in seen(record, "started")}
            if when == "during":
                rewrite(gateway, config(asking("s", record, "--delay", "0.5")))
                await until(lambda: len(seen(record, "started")) > len(old))
            async with client.watching(URI):
                if when == "before":
                    rewrite(gateway, config(asking("s", record, "--delay", "0.1")))
                await until(lambda: not old & processes(gateway))
                await until(lambda: {m["pid"] for m in seen(record, "resources/subscribe")} - old)
                begun = len(heard(ada, UPDATED))
                await called(client, "s_touch")
                await until(lambda: len(heard(ada, UPDATED)) > begun, 3)
                await anyio.sleep(QUIETLY)
                assert len(heard(ada, UPDATED)) == begun + 1
            fresh = [m["pid"] for m in seen(record, "resources/subscribe") if m["pid"] not in old]
            await until(
                lambda: {m["pid"] for m in seen(record, "resources/unsubscribe")} & set(fresh), 3
            )

    with Gateway(config(asking("s", record))) as gateway:
        wait_until_settled(gateway.port)
        run(check)


def test_a_subscription_that_is_being_made_when_its_server_is_replaced_is_not_lost(
    tmp_path: Path,
) -> None:
    """PRO-4, CFG-5: it is taken up by the new server, or refused; never taken for made and
    forgotten."""
    record = tmp_path / "record"

    async def check() -> None:
        ada = AnsweringUser("ada", quiet=True)
        async with raw_client(door(gateway), ada, False) as client:
            made: list[bool] = []

            async def subscribe() -> None:
                try:
                    await client.request("resources/subscribe", {"uri": URI})
                    made.append(True)
                except RefusedError as refused:
                    assert refused.error["message"].startswith("s: "), refused
                    made.append(False)

            old = processes(gateway)
            async with anyio.create_task_group() as group:
                group.start_soon(subscribe)
                await until(lambda: seen(record, "resources/subscribe"))
                rewrite(gateway, config(asking("s", record, "--delay", "0.1")))
            await until(lambda: not old & processes(gateway))
            if made == [True]:
                await until(
                    lambda: {m["pid"] for m in seen(record, "resources/subscribe")} - old, 5
                )
                await called(client, "s_touch")
                await until(lambda: heard(ada, UPDATED), 3)

    with Gateway(config(asking("s", record, "--slow", "1"))) as gateway:
        wait_until_settled(gateway.port)
        run(check)


def test_a_subscription_outlives_another_client_whose_connection_it_was_made_on(
    tmp_path: Path,
) -> None:
    """PRO-4: the shared connection becomes one session's own when the server is told its roots;
    others move on."""
    record = tmp_path / "record"

    async def check() -> None:
        ada, bob = AnsweringUser("ada"), AnsweringUser("bob")
        async with raw_client(door(gateway), bob, False) as other:
            await other.listed("tools/list")
            assert await called(other, "s_echo", text="up") == "up"
            async with other.watching(URI):
                async with raw_client(door(gateway), ada, False) as one:
                    assert "ada" in await called(one, "s_ask", method="roots/list")
                    await called(one, "s_echo")
                await until(
                    lambda: len({m["pid"] for m in seen(record, "resources/subscribe")}) > 1, 5
                )
                begun = len(heard(bob, UPDATED))
                await called(other, "s_touch")
                await until(lambda: len(heard(bob, UPDATED)) > begun, 3)

    with Gateway(config(asking("s", record))) as gateway:
        wait_until_settled(gateway.port)
        run(check)


@pytest.mark.parametrize("able", [False, True], ids=["plain", "askable"])
def test_a_subscriber_hears_a_server_that_was_killed_and_came_back(
    tmp_path: Path, able: bool
) -> None:
    """PRO-4, LIF-4: the new process is asked again, and what it says is heard once."""
    record = tmp_path / "record"

    async def check() -> None:
        ada = AnsweringUser("ada", quiet=not able)
        async with raw_client(door(gateway), ada, False) as client:
            await client.listed("tools/list")
            assert await called(client, "s_echo", text="up") == "up"
            async with client.watching(URI):
                for pid in processes(gateway):
                    os.kill(pid, 9)
                await until(
                    lambda: len({m["pid"] for m in seen(record, "resources/subscribe")}) == 2
                )
                await called(client, "s_touch")
                await until(lambda: heard(ada, UPDATED), 3)
                await anyio.sleep(QUIETLY)
                assert len(heard(ada, UPDATED)) == 1

    with GatewayProcess(config(asking("s", record))) as gateway:
        wait_until_settled(gateway.port)
        run(check)


# ---- coming and going (CFG-5, SRC-8, LIF-1)


def test_a_call_that_waits_for_its_clients_answer_outlives_a_reload_of_its_server(
    tmp_path: Path,
) -> None:
    """CFG-5, PRO-5: a running call finishes, also when its question is with a modern client."""
    record = tmp_path / "record"
    call = {"name": "s_ask", "arguments": {"text": "sure?"}}
    with Gateway(config(asking("s", record))) as gateway:
        asked = post_modern(
            gateway.port, modern_request("tools/call", call, capabilities=ELICITATION)
        ).message["result"]
        assert asked["resultType"] == "input_required"
        known = len(seen(record, "started"))
        rewrite(gateway, config(asking("s", record, "--delay", "0.1")))
        wait_until(lambda: len(seen(record, "started")) > known)
        plain = Session(gateway.port)
        wait_until(
            lambda: (
                structured_content(plain.call("s_who"))["pid"]
                in [m["pid"] for m in seen(record, "started")[known:]]
            )
        )
        answers = {
            key: {"action": "accept", "content": {"name": "ada"}} for key in asked["inputRequests"]
        }
        again = {**call, "requestState": asked["requestState"], "inputResponses": answers}
        reply = post_modern(
            gateway.port, modern_request("tools/call", again, capabilities=ELICITATION)
        ).message
        assert json.loads(text_of(reply))["content"] == {"name": "ada"}


@pytest.mark.parametrize("isolation", ["shared", "per_session", "per_call"])
def test_reloads_without_end_leave_no_process_and_no_call_unanswered(
    tmp_path: Path, isolation: str
) -> None:
    """CFG-5, SRC-8: the server comes, changes and goes all the time while clients of all kinds call
    it."""
    record, kept = tmp_path / "record", asking("k", tmp_path / "kept")

    def version(number: int) -> Json:
        there = [asking("s", record, isolation=isolation, connection={"env": {"V": str(number)}})]
        return config(kept, *(there if number % 3 else []))

    with Gateway(version(1)) as gateway:
        wait_until_settled(gateway.port)
        until_then = time.monotonic() + 2.5
        wrong: list[object] = []

        def work(number: int) -> None:
            try:
                client = Session(gateway.port, capabilities=[{}, *KINDS][number % 3])
                turn = 0
                while time.monotonic() < until_then:
                    turn += 1
                    reply = client.call("s_wait", text=f"{number} {turn}", seconds=0.05)
                    said = reply["error"]["message"] if "error" in reply else text_of(reply)
                    named = said.startswith("s: ") or "s_wait" in said
                    if "gateway is ending" in said or not (
                        named if "error" in reply else said == f"{number} {turn}"
                    ):
                        wrong.append(reply)
            except Exception as error:
                wrong.append(error)
                raise

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        number = 1
        while time.monotonic() < until_then:
            number += 1
            rewrite(gateway, version(number))
            time.sleep(0.1)
        rewrite(gateway, version(3))
        for thread in threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), "a call was never answered"
        assert not wrong
        wait_until(lambda: len(processes(gateway)) == 1)
        assert "Traceback" not in gateway.stderr()


def test_eight_mute_servers_do_not_hold_up_the_ninth(tmp_path: Path) -> None:
    """SRC-8, LIF-1: it is called at once, and listed as soon as a list may be held up."""
    mute = [asking(f"m{number}", tmp_path / f"m{number}", "--mute") for number in range(8)]
    with Gateway({"mcp_servers": [*mute, asking("s", tmp_path / "s")]}) as gateway:
        client, began = Session(gateway.port, capabilities=ELICITATION), time.monotonic()
        assert text_of(client.call("s_echo", text="here")) == "here"
        assert time.monotonic() - began < 3
        assert "s_echo" in client.tools()
        assert time.monotonic() - began < 6


# ---- servers over HTTP that are busy for a moment


class _Busy(BaseHTTPRequestHandler):
    """A server of the older era; the first request of a method gets a status instead of an
    answer."""

    protocol_version = "HTTP/1.1"
    server: "Busy"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(405)

    def do_DELETE(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message.get("method")
        if self.server.refusals.get(method):
            self._answer(self.server.refusals[method].pop(0), {"error": "not now"})
        elif "id" not in message:
            self._answer(202)
        else:
            results: Json = {
                "initialize": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "busy", "version": "1"},
                },
                "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
                "tools/call": {"content": [{"type": "text", "text": "here"}]},
                "ping": {},
            }
            outcome: Json = {"error": {"code": -32601, "message": "Method not found"}}
            if method in results:
                outcome = {"result": results[method]}
            self._answer(200, {"jsonrpc": "2.0", "id": message["id"], **outcome})

    def _answer(self, status: int, body: Json | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Busy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, **refusals: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Busy)
        self.refusals = {
            method.replace("_", "/"): statuses for method, statuses in refusals.items()
        }
        self.url = f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def __enter__(self) -> "Busy":
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


@pytest.mark.parametrize("method", ["server_discover", "initialize", "tools_list"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_was_busy_once_while_it_was_greeted_is_found_whole(
    method: str, status: int
) -> None:
    """LIF-4, SRC-8: "not now" is neither "not this era" nor "no tools"."""
    with Busy(**{method: [status]}) as busy:
        server = {"name": "s", "prefix": "s", "connection": {"type": "http", "url": busy.url}}
        with Gateway(config(server, retry_delay=0.1)) as gateway:
            client = Session(gateway.port)
            wait_until(lambda: "s_echo" in client.tools(), 5)
            assert text_of(client.call("s_echo")) == "here"
            assert health(gateway.port)["servers"]["s"]["status"] == "connected"


def test_a_server_that_wants_a_new_sign_in_says_so_in_its_status() -> None:
    """SRC-8: also when it was connected before."""
    with Busy() as busy:
        server = {"name": "s", "prefix": "s", "connection": {"type": "http", "url": busy.url}}
        with Gateway(config(server)) as gateway:
            client = Session(gateway.port)
            assert text_of(client.call("s_echo")) == "here"
            busy.refusals["tools/call"] = [401]
            assert client.call("s_echo")["error"]["message"].startswith("s: ")
            wait_until(lambda: health(gateway.port)["servers"]["s"]["status"] == "needs_auth", 3)
            assert text_of(client.call("s_echo")) == "here"
            wait_until(lambda: health(gateway.port)["servers"]["s"]["status"] == "connected", 3)
