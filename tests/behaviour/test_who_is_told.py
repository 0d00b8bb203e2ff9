"""PRO-4 through the real program: what a server says goes to those it concerns, marked with its
name, and to nobody else; what a client says goes to the servers it concerns."""

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    MESSAGE,
    TOOLS_CHANGED,
    UPDATED,
    AnsweringUser,
    Client,
    Door,
    Json,
    Kind,
    connected,
)
from fixtures.everything import STATIC
from kit.client import Session, Stream
from kit.gateway import Gateway
from kit.messages import notification, structured_content
from kit.process import running_server
from kit.servers import odd_server, raw_server, recorded_messages
from kit.until import wait_until
from mcpx.catalog.naming import wrap_uri

SERVERS = ("older", "modern")
KINDS: tuple[Kind, ...] = ("raw-older", "raw-modern")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One server of each era, and one that says nothing by itself."""
    with ExitStack() as stack:
        urls = {
            era: stack.enter_context(
                running_server("everything_server.py", "--transport", "http", "--era", era)
            )
            for era in SERVERS
        }
        entries: list[Json] = [
            {"name": era, "prefix": era, "connection": {"type": "http", "url": url}}
            for era, url in urls.items()
        ]
        config = {
            "global": {"startup_wait": 15, "first_start_wait": 15},
            "mcp_servers": [*entries, raw_server("plain")],
        }
        yield stack.enter_context(Gateway(config))


def with_two(
    gateway: Gateway, kind: Kind, check: Callable[[Client, Client], Awaitable[None]]
) -> None:
    """Two clients of a kind: what concerns the first must not reach the second."""

    async def run() -> None:
        with anyio.fail_after(BOUND):
            async with AsyncExitStack() as stack:
                door = Door("http", gateway.url)
                one, other = [
                    await stack.enter_async_context(connected(kind, door, AnsweringUser(name)))
                    for name in ("ada", "bob")
                ]
                await check(one, other)
                assert one.user.complaints == other.user.complaints == []

    anyio.run(run)


def heard(client: Client, method: str) -> list[Json]:
    return [params for name, params in client.user.heard if name == method]


def server_of(params: Json) -> str:
    return params["_meta"]["proxy"]["server"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_progress_goes_to_the_caller_marked_with_the_server(
    gateway: Gateway, kind: Kind, server: str
) -> None:
    """PRO-4: two calls at once under the same token of two clients; each hears its own steps."""

    async def check(one: Client, other: Client) -> None:
        steps: dict[str, list[Json]] = {"ada": [], "bob": []}
        async with anyio.create_task_group() as group:
            group.start_soon(one.call, f"{server}_progress", {"steps": 3}, steps["ada"].append)
            group.start_soon(other.call, f"{server}_progress", {"steps": 5}, steps["bob"].append)
        assert [step["progress"] for step in steps["ada"]] == [1, 2, 3]
        assert [step["progress"] for step in steps["bob"]] == [1, 2, 3, 4, 5]
        assert {server_of(step) for step in steps["ada"] + steps["bob"]} == {server}

    with_two(gateway, kind, check)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_log_line_goes_to_the_caller_marked_with_the_server(
    gateway: Gateway, kind: Kind, server: str
) -> None:
    """PRO-4: `message`, said in a call, for that call's client only, although both want to hear
    everything."""

    async def check(one: Client, other: Client) -> None:
        for client in (one, other):
            if not client.modern:  # modern ones say it with each request
                await client.request("logging/setLevel", {"level": "debug"})
        await one.call(f"{server}_log", {"level": "warning", "message": "for ada"})
        await other.call(f"{server}_log", {"level": "warning", "message": "for bob"})
        for client, words in ((one, "for ada"), (other, "for bob")):
            await client.user.next_after(0, MESSAGE)
            await client.call(f"{server}_echo", {"text": "and nothing after it"})
            assert [line["data"]["message"] for line in heard(client, MESSAGE)] == [words]
            assert server_of(heard(client, MESSAGE)[0]) == server

    with_two(gateway, kind, check)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_goes_to_who_subscribed_marked_with_the_server(
    gateway: Gateway, kind: Kind, server: str
) -> None:
    """PRO-4: `resources/updated`, once, for that resource, not to one who watches another."""
    text, blob = STATIC
    other_server = SERVERS[1 - SERVERS.index(server)]

    async def check(one: Client, other: Client) -> None:
        async with (
            connected(
                kind, Door("http", gateway.url), AnsweringUser("quinn", quiet=True)
            ) as toucher,
            one.watching(wrap_uri(server, text)),
            other.watching(wrap_uri(server, blob)),
        ):
            # The other server's resource of the same URI is none of theirs.
            await toucher.call(f"{other_server}_touch", {"uri": text})
            await toucher.call(f"{server}_touch", {"uri": text})
            await toucher.call(f"{server}_touch", {"uri": blob})
            for client, uri in ((one, text), (other, blob)):
                await client.user.next_after(0, UPDATED)
                await client.call(f"{server}_echo", {"text": "and nothing after it"})
                assert [update["uri"] for update in heard(client, UPDATED)] == [
                    wrap_uri(server, uri)
                ]
                assert server_of(heard(client, UPDATED)[0]) == server

    with_two(gateway, kind, check)


def test_a_modern_listener_that_calls_hears_an_update_once(gateway: Gateway) -> None:
    """PRO-4: whichever link of the server the call goes over that caused it."""
    uri = next(iter(STATIC))

    async def check(one: Client, other: Client) -> None:
        async with one.watching(wrap_uri("older", uri)):
            await one.call("older_touch", {"uri": uri})
            await one.user.next_after(0, UPDATED)
            await one.call("older_echo", {"text": "and nothing after it"})
            assert len(heard(one, UPDATED)) == 1

    with_two(gateway, "raw-modern", check)


def marks(client: Client) -> set[str | None]:
    """The servers that notices of changed tools name."""
    return {
        params.get("_meta", {}).get("proxy", {}).get("server")
        for params in heard(client, TOOLS_CHANGED)
    }


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_changed_tools_are_told_to_all_marked_with_the_server(
    gateway: Gateway, kind: Kind, server: str
) -> None:
    """PRO-4: `list_changed` concerns everybody who listens."""

    async def check(one: Client, other: Client) -> None:
        async with one.watching(), other.watching():
            # A notice that tells of several servers at once (they have just started) names none:
            # then once more.
            while not all(server in marks(client) for client in (one, other)):
                since = [len(client.user.heard) for client in (one, other)]
                await one.call(f"{server}_toggle_tool")
                for client, position in zip((one, other), since, strict=True):
                    await client.user.next_after(position, TOOLS_CHANGED)
        assert marks(one) | marks(other) <= {server, None}

    with_two(gateway, kind, check)


def test_a_cancellation_reaches_the_server_of_its_call_and_no_other(tmp_path: Path) -> None:
    """PRO-4, LIF-6: under the id that this server knows the call by."""
    records = {name: tmp_path / name for name in ("one", "two")}
    with Gateway(
        {"mcp_servers": [odd_server(name, record) for name, record in records.items()]}
    ) as gateway:
        client = Session(gateway.port)
        for name in records:
            assert "result" in client.call(f"{name}_echo", text="up")
        with client.start_call("one_hang", id="mine") as call:
            hanging = wait_until(
                lambda: [m for m in calls_of(records["one"]) if m["params"]["name"] == "hang"]
            )[0]
            assert (
                client.post(notification("notifications/cancelled", {"requestId": "mine"})).status
                == 202
            )
            (cancelled,) = wait_until(
                lambda: recorded_messages(records["one"], "notifications/cancelled")
            )
            assert cancelled["params"]["requestId"] == hanging["id"]
            assert call.events() == [] or call.status == 200
        assert "result" in client.call("two_echo", text="nothing before this")
        assert recorded_messages(records["two"], "notifications/cancelled") == []


def calls_of(record: Path) -> list[Json]:
    return recorded_messages(record, "tools/call")


CHANGED = "notifications/roots/list_changed"


def test_changed_roots_are_told_to_the_servers_that_asked_for_them(tmp_path: Path) -> None:
    """PRO-4, PRO-5: once each, on the connection that this client's roots went over; other clients'
    are left alone."""
    records = {name: tmp_path / name for name in ("one", "two")}
    with Gateway(
        {"mcp_servers": [odd_server(name, record) for name, record in records.items()]}
    ) as gateway:
        able = {"roots": {"listChanged": True}}
        clients = {name: Session(gateway.port, capabilities=able) for name in ("ada", "bob")}
        for name, client in clients.items():
            for server in records:
                assert roots_through(client, f"{server}_roots", name) == [f"file:///{name}"]
        assert clients["ada"].post(notification(CHANGED)).status == 202
        for server, record in records.items():
            (notice,) = wait_until(lambda record=record: recorded_messages(record, CHANGED))
            assert "id" not in notice
            # Whatever was sent before this has been read by then.
            assert roots_through(clients["bob"], f"{server}_roots", "bob") == ["file:///bob"]
            assert len(recorded_messages(record, CHANGED)) == 1


def roots_through(client: Session, tool: str, name: str) -> list[str]:
    """What a server that asks for roots was told, when the client answers in somebody's name."""
    with client.start_call(tool) as call:
        question = next_message(call)
        assert question["method"] == "roots/list", question
        assert re.fullmatch(rf"{tool.removesuffix('_roots')}:\d+", question["id"])
        answer = {"roots": [{"uri": f"file:///{name}"}]}
        assert client.post({"jsonrpc": "2.0", "id": question["id"], "result": answer}).status == 202
        return [root["uri"] for root in structured_content(next_message(call))["roots"]]


def next_message(call: Stream) -> Json:
    """Events without data only carry an id."""
    return next(data for data in iter(call.data, None) if data)
