"""SEC-2 through the real program: a profile is a view of its own, on every front, in both eras and
in every mode."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    FRONTS,
    TOOLS_CHANGED,
    AnsweringUser,
    Client,
    Door,
    Front,
    Json,
    Kind,
    RefusedError,
    connected,
)
from behaviour.compact import told
from kit.client import Session, post
from kit.command import run_command
from kit.gateway import Gateway, GatewayProcess
from kit.messages import initialize_request
from kit.until import wait_until
from mcpx.catalog.naming import wrap_uri

KINDS: tuple[Kind, ...] = ("raw-older", "raw-modern")
NARROW: Json = {
    "name": "narrow",
    "servers": ["shown"],
    "tools": ["*", "!*_note"],
    "resources": ["*", "!*private*"],
}


def offers(server: str) -> Json:
    files = [f"{server}://public/a", f"{server}://private/b"]
    return {
        "instructions": f"The words of {server}.",
        "resources": [{"uri": uri, "name": uri} for uri in files],
        "contents": {
            uri: [{"uri": uri, "text": f"text of {uri}"}]
            for uri in [*files, f"{server}://private/7"]
        },
        "templates": [{"uriTemplate": f"{server}://private/{{id}}", "name": "private"}],
    }


def config(folder: Path, *profiles: Json) -> Json:
    return {
        "global": {"startup_wait": 15, "first_start_wait": 15, "hot_reload_interval": 0.1},
        "naming": {"prefix": "always"},
        "mcp_servers": [told(name, folder, offers(name)) for name in ("shown", "unseen")],
        "profiles": list(profiles),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Gateway]:
    with GatewayProcess(
        config(folder, NARROW, {**NARROW, "name": "menu", "mode": "search"})
    ) as running:
        yield running


def door(front: Front, gateway: Gateway, folder: Path) -> Door:
    if front == "stdio":
        command = [*gateway.stdio_command, "--profile", "narrow"]
        return Door("stdio", command=command, env=gateway.env, stderr=folder / "stderr")
    scheme, path = {"http": ("http", "mcp"), "sse": ("http", "sse"), "websocket": ("ws", "ws")}[
        front
    ]
    return Door(front, f"{scheme}://127.0.0.1:{gateway.port}/p/narrow/{path}")


async def refused(client: Client, method: str, params: Json) -> str:
    with pytest.raises(RefusedError) as caught:
        await client.request(method, params)
    error = caught.value.error
    error.get("data", {}).pop("request_id", None)
    return json.dumps(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("front", FRONTS)
def test_what_a_profile_hides_reads_as_unknown(
    gateway: Gateway, folder: Path, tmp_path: Path, front: Front, kind: Kind
) -> None:
    async def main() -> None:
        with anyio.fail_after(BOUND):
            async with connected(
                kind, door(front, gateway, tmp_path), AnsweringUser("ada")
            ) as client:
                assert "unseen" not in json.dumps(client.told)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
                tools = [tool["name"] for tool in await client.listed("tools/list")]
                assert tools == ["shown_give", "shown_refuse", "shown_calls"]
                found = [entry["name"] for entry in await client.listed("resources/list")]
                assert found == ["shown://public/a"]
                assert await client.listed("resources/templates/list") == []
                said = await refused(client, "tools/call", {"name": "unseen_give", "arguments": {}})
                unknown = await refused(
                    client, "tools/call", {"name": "nobody_give", "arguments": {}}
                )
                assert said.replace("unseen", "nobody") == unknown
                await refused(
                    client, "tools/call", {"name": "shown_note", "arguments": {"path": "x"}}
                )
                for uri in ("shown://private/b", "shown://private/7", "unseen://public/a"):
                    for form in (uri, wrap_uri(uri.partition(":")[0], uri)):
                        assert "text of" not in await refused(
                            client, "resources/read", {"uri": form}
                        )
                read = await client.request("resources/read", {"uri": "shown://public/a"})
                assert read["contents"][0]["text"] == "text of shown://public/a"
                await client.call("shown_calls")

    anyio.run(main)


@pytest.mark.parametrize("mode", ["inspect", "describe", "search"])
def test_a_menu_tells_only_what_is_seen(gateway: Gateway, mode: str) -> None:
    menu = json.dumps(Session(gateway.port, path=f"/p/narrow/mcp/{mode}").request("tools/list"))
    assert "shown" in menu
    assert "unseen" not in menu
    assert "note" not in menu


def test_a_profile_has_a_mode_of_its_own(gateway: Gateway) -> None:
    session = Session(gateway.port, path="/p/menu/mcp")
    assert session.tools() == ["mcp_search_tools", "mcp_execute_tool", "mcp_list_services"]
    listed = session.call("mcp_list_services")["result"]["structuredContent"]["services"]
    assert [(entry["name"], entry["tool_count"]) for entry in listed] == [("shown", 3)]


def test_a_profile_that_is_not_there_is_not_found(gateway: Gateway) -> None:
    for path in ("/p/nobody/mcp", "/p/nobody/sse", "/p/nobody/mcp/search", "/p//mcp"):
        assert post(gateway.port, initialize_request(), path=path).status == 404


def test_a_session_of_one_profile_is_unknown_to_another(gateway: Gateway) -> None:
    session = Session(gateway.port, path="/p/narrow/mcp")
    asked = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}
    assert post(gateway.port, asked, session.headers, path="/p/narrow/mcp").status == 200
    for path in ("/p/menu/mcp", "/mcp"):
        assert post(gateway.port, asked, session.headers, path=path).status == 404


def test_a_changed_profile_is_seen_at_once_and_told_to_those_who_see_it(tmp_path: Path) -> None:
    """Nobody else hears of it."""
    other = {"name": "other", "tools": ["shown.give"], "resources": []}

    async def main(running: Gateway) -> None:
        async def names(client: Client) -> list[str]:
            return [tool["name"] for tool in await client.listed("tools/list")]

        def entered(profile: str) -> Any:
            place = Door("websocket", f"ws://127.0.0.1:{running.port}/p/{profile}/ws")
            return connected("raw-older", place, AnsweringUser(profile))

        async with entered("narrow") as one, entered("other") as two:
            assert len(await names(one)) == 3
            assert await names(two) == ["shown_give"]
            wider = {**NARROW, "tools": ["*"]}
            running.file.write_text(json.dumps(config(tmp_path, wider, other)), encoding="utf-8")
            await one.user.next_after(0, TOOLS_CHANGED)
            assert len(await names(one)) == 4
            assert await names(two) == ["shown_give"]
            assert [method for method, _ in two.user.heard] == []

    async def bounded(running: Gateway) -> None:
        with anyio.fail_after(3 * BOUND):
            await main(running)

    with Gateway(config(tmp_path, NARROW, other)) as running:
        anyio.run(bounded, running)


def test_a_profile_that_is_removed_ends_its_sessions_and_no_others(tmp_path: Path) -> None:
    other = {"name": "other"}
    asked = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}
    with Gateway(config(tmp_path, NARROW, other)) as running:
        gone, stays = (Session(running.port, path=f"/p/{name}/mcp") for name in ("narrow", "other"))
        running.file.write_text(json.dumps(config(tmp_path, other)), encoding="utf-8")
        wait_until(
            lambda: post(running.port, asked, gone.headers, path="/p/narrow/mcp").status == 404
        )
        assert post(running.port, initialize_request(), path="/p/narrow/mcp").status == 404
        assert post(running.port, asked, stays.headers, path="/p/other/mcp").status == 200


def run(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return run_command(args, Path.cwd(), {**os.environ, **env})


def test_a_profile_that_is_misspelt_on_the_command_line_is_told(gateway: Gateway) -> None:
    for ended in (
        run(str(gateway.file), "--transport", "stdio", "--profile", "narow"),
        run(str(gateway.file), "--transport", "stdio", MCPX_PROFILE="narow"),
        run("explain", "narow", "shown.give", str(gateway.file)),
    ):
        assert ended.returncode == 2
        assert "did you mean 'narrow'?" in ended.stderr
    over_http = run(str(gateway.file), "--transport", "http", "--port", "0", "--profile", "narrow")
    assert (over_http.returncode, "/p/narrow/mcp" in over_http.stderr) == (2, True)


@pytest.mark.parametrize(
    ("tool", "code", "because"),
    [
        ("shown.give", 0, "tools[0] is '*'"),
        ("shown_note", 6, "tools[1] is '!*_note'"),
        ("unseen.give", 6, "no pattern of servers matches"),
    ],
)
def test_it_is_explained_which_pattern_decided(
    gateway: Gateway, tool: str, code: int, because: str
) -> None:
    state = str(gateway.folder / "explained")
    ended = run("explain", "narrow", tool, str(gateway.file), "--json", MCPX_STATE_DIR=state)
    assert ended.returncode == code, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["seen"] is (code == 0)
    assert answer["because"] == [f"profile narrow: {because}"]
    assert because in run("explain", "narrow", tool, str(gateway.file), MCPX_STATE_DIR=state).stdout
