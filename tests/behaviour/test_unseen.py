"""SEC-2 through the real program: whoever sees a server but not all of it cannot tell what is
hidden from what is not there, nor hear what the server said about somebody else's call."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    AnsweringUser,
    Client,
    Door,
    Front,
    Json,
    Kind,
    RefusedError,
    connected,
)
from behaviour.compact import Visitor, config
from kit.client import ACCEPT_BOTH, Session, Stream, health, wait_until_settled
from kit.command import MCPX
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import fetch
from kit.messages import modern_headers, modern_request
from kit.protected_server import ProtectedServer
from kit.servers import stdio_server
from kit.until import wait_until
from mcpx.catalog.naming import wrap_uri

KINDS: tuple[Kind, ...] = ("raw-older", "raw-modern")
FRONTS: tuple[Front, ...] = ("http", "stdio")
PROGRAM = Path(__file__).with_name("confiding_server.py")
NARROW: Json = {"name": "narrow", "prompts": ["open"], "resources": ["*", "!*shut*", "!page:*"]}
WHOLE: Json = {"name": "whole", "servers": ["box"], "tools": ["*"]}
WORDS = "the diary of ann, page 7"
RELOADS: Json = {"hot_reload_interval": 0.1}


def serving(record: Path, *words: str, **more: Any) -> Json:
    return config(
        stdio_server("box", [sys.executable, "-I", "-S", str(PROGRAM), str(record), *words]), **more
    )


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unseen") / "record"


@pytest.fixture(scope="module")
def gateway(record: Path) -> Iterator[Gateway]:
    with GatewayProcess(serving(record, profiles=[NARROW, WHOLE])) as running:
        wait_until_settled(running.port)
        yield running


def door(front: Front, gateway: Gateway, profile: str, folder: Path) -> Door:
    if front == "stdio":
        command = [*gateway.stdio_command, "--profile", profile]
        return Door("stdio", command=command, env=gateway.env, stderr=folder / "stderr")
    return Door("http", f"http://127.0.0.1:{gateway.port}/p/{profile}/mcp")


async def answer(client: Client, method: str, params: Json) -> str:
    """Result or error, to the last byte but for the id that every error has of its own."""
    try:
        return json.dumps(await client.request(method, params))
    except RefusedError as refused:
        refused.error.get("data", {}).pop("request_id", None)
        return json.dumps(refused.error)


def forwarded(record: Path, methods: list[str]) -> list[str]:
    lines = record.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if json.loads(line)[0] in methods]


def asked(method: str, uri: str) -> Json:
    if method == "completion/complete":
        return {
            "ref": {"type": "ref/resource", "uri": uri},
            "argument": {"name": "id", "value": ""},
        }
    return {"uri": uri}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("front", FRONTS)
def test_a_hidden_uri_reads_as_one_that_nobody_lists(
    gateway: Gateway, record: Path, tmp_path: Path, front: Front, kind: Kind
) -> None:
    """By a list or by a template, in whichever form: the server is asked for neither, and the
    answers are the same."""
    pairs = [
        ("box://shut/a", "box://none/a"),
        ("box://shut/zz", "box://none/zz"),
        ("note://shut/7", "note://none/7"),
        ("note://shut/{id}", "note://none/{id}"),
        ("page://shut/7", "page://none/7"),
        ("page://{kind}/{id}", "leaf://{kind}/{id}"),
        ("box://s%68ut/a", "box://n%6fne/a"),
        ("box://open/../shut/a", "box://open/../none/a"),
    ]
    methods = ["resources/read", "completion/complete"]
    if kind == "raw-older":
        methods += ["resources/subscribe", "resources/unsubscribe"]

    async def main() -> None:
        with anyio.fail_after(BOUND):
            async with connected(
                kind, door(front, gateway, "narrow", tmp_path), AnsweringUser("bob")
            ) as client:
                assert [entry["name"] for entry in await client.listed("resources/list")] == [
                    "open"
                ]
                before = forwarded(record, methods)
                for method in methods:
                    for hidden, unlisted in pairs:
                        for form in (str, lambda uri: wrap_uri("box", uri)):
                            told = await answer(client, method, asked(method, form(hidden)))
                            unknown = await answer(client, method, asked(method, form(unlisted)))
                            assert told.replace(form(hidden), form(unlisted)) == unknown
                            assert "Unknown" in unknown
                assert forwarded(record, methods) == before
                for uri in (
                    "box://open/a",
                    wrap_uri("box", "box://open/a"),
                    "note://open/7",
                    "note://open/a%2Fb",
                ):
                    assert "text of" in await answer(client, "resources/read", {"uri": uri})
                assert "completed" in await answer(
                    client, "completion/complete", asked("completion/complete", "note://open/{id}")
                )

    anyio.run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_sees_all_resources_of_a_server_may_ask_it_for_any(
    gateway: Gateway, tmp_path: Path, kind: Kind
) -> None:
    """NAM-4: also for one that it does not list."""

    async def main() -> None:
        with anyio.fail_after(BOUND):
            async with connected(
                kind, door("http", gateway, "whole", tmp_path), AnsweringUser("bob")
            ) as client:
                uri = wrap_uri("box", "box://none/a")
                assert "text of box://none/a" in await answer(
                    client, "resources/read", {"uri": uri}
                )

    anyio.run(main)


def test_a_modern_client_is_not_told_which_uris_are_hidden_when_it_listens(
    gateway: Gateway,
) -> None:
    seen, *others = (wrap_uri("box", f"box://{name}/a") for name in ("open", "shut", "none"))
    message = modern_request(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": [seen, *others]}}
    )
    headers = [
        ("Content-Type", "application/json"),
        ("Accept", ACCEPT_BOTH),
        *modern_headers(message).items(),
    ]
    with Stream(
        gateway.port, "POST", "/p/narrow/mcp", headers, json.dumps(message).encode()
    ) as stream:
        assert stream.data()["params"]["notifications"] == {"resourceSubscriptions": [seen]}


@pytest.mark.parametrize("server", [{"server_name": "box"}, {}], ids=["named", "unnamed"])
@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_menu_s_reader_does_not_tell_a_hidden_uri_from_one_that_is_not_there(
    gateway: Gateway, era: str, server: Json
) -> None:
    visitor = Visitor(gateway.port, "describe", era, path="/p/narrow/mcp/describe")

    def read(uri: str) -> str:
        told = visitor.ask("tools/call", {"name": "resources", "arguments": {"uri": uri, **server}})
        told.pop("id")
        told.get("error", {}).get("data", {}).pop("request_id", None)
        return json.dumps(told)

    assert "text of" in read("box://open/a")
    for form in (str, lambda uri: wrap_uri("box", uri)):
        shut, none = form("box://shut/a"), form("box://none/a")
        assert read(shut).replace(shut, none) == read(none)
        assert "text of" not in read(none)


@pytest.mark.parametrize("uris", ["wrapped", "plain"])
@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_server_has_its_uris_for_whoever_does_not_see_the_one_that_has_them_too(
    tmp_path: Path, era: str, uris: str
) -> None:
    """As if the hidden one, which comes first, did not exist."""
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    servers = [stdio_server(name, [*command, str(tmp_path / name)]) for name in ("hidden", "seen")]
    narrow = {"name": "narrow", "servers": ["seen"]}
    with Gateway(config(*servers, profiles=[narrow], naming={"uris": uris})) as running:
        wait_until_settled(running.port)
        visitor = Visitor(running.port, "", era, path="/p/narrow/mcp")
        listed = visitor.ask("resources/templates/list")["result"]["resourceTemplates"]
        assert [entry["name"] for entry in listed] == ["open", "shut", "{kind}"]
        assert len(visitor.ask("resources/list")["result"]["resources"]) == 2
        for uri in ("note://open/7", "box://open/a"):
            assert f"text of {uri}" in json.dumps(visitor.ask("resources/read", {"uri": uri}))
        completed = visitor.ask(
            "completion/complete", asked("completion/complete", "note://open/{id}")
        )
        assert completed["result"]["completion"]["values"] == ["completed"]
        assert forwarded(tmp_path / "hidden", ["resources/read", "completion/complete"]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_hidden_prompt_is_completed_like_one_that_is_not_there(
    gateway: Gateway, tmp_path: Path, kind: Kind
) -> None:
    async def main() -> None:
        with anyio.fail_after(BOUND):
            async with connected(
                kind, door("http", gateway, "narrow", tmp_path), AnsweringUser("bob")
            ) as client:

                def about(name: str) -> Json:
                    return {
                        "ref": {"type": "ref/prompt", "name": name},
                        "argument": {"name": "about", "value": ""},
                    }

                assert "completed" in await answer(client, "completion/complete", about("box_open"))
                for name in ("box_shut", "shut"):
                    told = await answer(client, "completion/complete", about(name))
                    unknown = await answer(
                        client, "completion/complete", about(name.replace("shut", "none"))
                    )
                    assert told.replace("shut", "none") == unknown

    anyio.run(main)


# ---- last words


APART: dict[str, Json] = {
    "profiles": {"profiles": [WHOLE]},
    "auth": {"server": {"auth": {"type": "bearer", "tokens": [{"name": "ann", "token": "aaa"}]}}},
}


def owner_is_told(running: Gateway) -> str:
    done = subprocess.run(
        [*MCPX, "servers", str(running.file)],
        capture_output=True,
        text=True,
        timeout=60,
        env=running.env,
    )
    return done.stdout


@pytest.mark.parametrize("how", ["alone", *APART])
def test_what_a_server_says_as_it_dies_is_its_owner_s_where_clients_are_told_apart(
    tmp_path: Path, how: str
) -> None:
    """LIF-7, SEC-2: who has a call there learns that it ended and how; in whose words stands in the
    log."""
    token = {"Authorization": "Bearer aaa"} if how == "auth" else {}
    still: Json = {"retry_delay": 60, "max_retries": 1}
    settings = serving(tmp_path / "record", **APART.get(how, {}))
    settings["mcp_servers"][0] |= still
    with Gateway(settings) as running:
        one, two = (Session(running.port, headers=token) for _ in range(2))
        assert "box_die" in one.tools()
        working = two.start_call("box_work")
        wait_until(lambda: '"work"' in (tmp_path / "record").read_text(encoding="utf-8"))
        own = one.call("box_die", words=WORDS)["error"]
        told = working.reply().message["error"]
        for error in (own, told):
            assert error["message"].startswith("box: the process exited with code 9")
            assert (WORDS in error["message"]) is (how == "alone")
        if how != "alone":
            assert told["message"].endswith("9; what it said is in the log and in `mcpx servers`")
        assert WORDS in running.stderr()


@pytest.mark.parametrize("mode", ["direct", "inspect", "describe", "search"])
def test_a_server_that_does_not_start_tells_only_its_owner_why(tmp_path: Path, mode: str) -> None:
    """Not in an error, a menu, a list of services or the health page; in `mcpx servers` and the
    log."""
    with Gateway(serving(tmp_path / "record", WORDS, profiles=[WHOLE], mode=mode)) as running:
        wait_until(lambda: health(running.port)["servers"]["box"]["last_error"])
        session = Session(running.port, path="/p/whole/mcp")
        said = [session.greeting, session.request("tools/list"), health(running.port)]
        said += [session.call("box_work"), session.request("prompts/get", {"name": "box_open"})]
        said += [session.call("exec", server_name="box", tool_name="work", arguments={})]
        said += [session.call("inspect", server_name="box"), session.call("mcp_list_services")]
        said += [
            session.call("call", method="box.work", arguments={}),
            session.call("describe", method="box"),
        ]
        said += [session.call("mcp_execute_tool", tool_name="box_work", arguments={})]
        text = json.dumps(said)
        assert "exited with code 9" in text
        assert WORDS not in text
        assert f"exited with code 9: {WORDS}" in owner_is_told(running)
        assert WORDS in running.stderr()


def test_words_from_before_clients_were_told_apart_are_not_told_after(tmp_path: Path) -> None:
    """CFG-5"""
    alone = serving(tmp_path / "record", WORDS, **{"global": RELOADS})
    alone["mcp_servers"][0] |= {"retry_delay": 60, "max_retries": 1}
    with Gateway(alone) as running:
        wait_until(lambda: WORDS in str(health(running.port)["servers"]["box"]["last_error"]))
        running.file.write_text(json.dumps({**alone, "profiles": [WHOLE]}), encoding="utf-8")
        wait_until(lambda: WORDS not in str(health(running.port)["servers"]["box"]["last_error"]))
        assert WORDS in owner_is_told(running)


# ---- what else is heard


ASKING = Path(__file__).with_name("asking_server.py")


@pytest.mark.parametrize("how", ["profile", "token"])
def test_what_one_call_makes_a_server_say_is_not_told_to_another_client(
    tmp_path: Path, how: str
) -> None:
    """SEC-2, PRO-4: also on a connection that all share, and by a tool that the other does not see.
    What is said while several have calls there, or nobody has, is the log's."""
    record, go = tmp_path / "record", tmp_path / "go"
    server = stdio_server("asking", [sys.executable, "-I", "-S", str(ASKING), str(record)])
    tokens = [{"name": name, "token": name} for name in ("ann", "bob")]
    apart: Json = {"profiles": [{"name": "narrow", "tools": ["echo", "wait"]}]}
    if how == "token":
        apart = {"server": {"auth": {"type": "bearer", "tokens": tokens}}}
    with Gateway(config(server, **apart)) as running:
        ann = Session(
            running.port, headers={"Authorization": "Bearer ann"} if how == "token" else {}
        )
        bob = Session(
            running.port,
            headers={"Authorization": "Bearer bob"} if how == "token" else {},
            path="/mcp" if how == "token" else "/p/narrow/mcp",
        )
        for session in (ann, bob):
            session.request("logging/setLevel", {"level": "info"})
        assert "asking_log" in ann.tools() and "asking_echo" in bob.tools()
        for session in (
            ann,
            bob,
        ):  # Without a level, no message of a shared connection is sent to a session.
            session.request("logging/setLevel", {"level": "debug"})
        with ann.listen() as hers, bob.listen() as his:
            ann.call("asking_log", text="for ann alone")
            assert hers.data()["params"]["data"] == "for ann alone"
            waiting = bob.start_call("asking_wait", until=str(go))
            wait_until(lambda: '"wait"' in record.read_text(encoding="utf-8"))
            ann.call("asking_log", text="of either")
            go.touch()
            assert "result" in waiting.reply().message
            if how == "token":
                bob.call("asking_log", text="for bob alone")
                assert his.data()["params"]["data"] == "for bob alone"
            ann.call("asking_log", text="the last")
            assert hers.data()["params"]["data"] == "the last"
            assert bob.delete().status < 300
            assert his.events() == []


def test_the_health_page_tells_whoever_does_not_see_everything_only_how_servers_are(
    tmp_path: Path,
) -> None:
    """Neither how much was left out of lists nor what others do there."""
    tokens = [{"name": "ann", "token": "aaa"}, {"name": "bob", "token": "bbb", "profile": "narrow"}]
    auth: Json = {"auth": {"type": "bearer", "tokens": tokens}}
    with Gateway(serving(tmp_path / "record", profiles=[NARROW], server=auth)) as running:

        def told(token: str) -> Json:
            return fetch(
                running.port, "/health", "GET", [("Authorization", f"Bearer {token}")]
            ).json["servers"]["box"]

        wait_until(lambda: told("aaa")["status"] == "connected")
        assert {"links", "notes", "restarts"} < set(told("aaa"))
        assert set(told("bbb")) == {"status", "since", "last_error"}


def test_why_one_call_was_refused_for_want_of_a_sign_in_is_told_to_its_client_alone() -> None:
    """SEC-2: that the server wants a sign-in concerns everybody, what it said of the call does
    not."""
    with ProtectedServer(admits=lambda headers, query: True) as guarded:
        server = {
            "name": "far",
            "prefix": "far",
            "connection": {"type": "http", "url": guarded.url("http")},
        }
        with Gateway(
            config(server, profiles=[{**WHOLE, "servers": ["far"]}], mode="search")
        ) as running:
            wait_until_settled(running.port)
            ann, bob = (
                Session(running.port, path="/mcp/direct"),
                Session(running.port, path="/p/whole/mcp"),
            )
            tool = ann.tools()[0]
            guarded.refusal = (
                401,
                [("WWW-Authenticate", "Bearer")],
                json.dumps({"message": WORDS}).encode(),
            )
            guarded.admits = lambda headers, query: False
            assert WORDS in json.dumps(ann.call(tool, text="x"))
            page = health(running.port)["servers"]["far"]
            assert (page["status"], WORDS in str(page["last_error"])) == ("needs_auth", False)
            told = json.dumps([bob.request("tools/list"), bob.call("mcp_list_services")])
            assert "sign" in told
            assert WORDS not in told
            assert WORDS in owner_is_told(running)
