"""A tool that exists and is not offered: the administrator learns why, and MCP clients do not
(RUN-4, SEC-2, SEC-5)."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from behaviour.test_pins import Changing, config, lists, tool
from cli.conftest import Home, using
from kit.admin_api import AdminApi
from kit.client import Session
from kit.command import run_command
from kit.gateway import Gateway
from kit.messages import request
from kit.terminal import mcpx_on

CHANGED = "box.read is withheld: its definition changed after it was approved"
NEW = "box.fresh is withheld: it is new since the tools of box were approved"
QUARANTINED = "cell.read is in quarantine: no tool of cell is offered until you approve them"

CASES = {
    "box.read": ("changed", CHANGED, "mcpx approve box.read"),
    "box.fresh": ("new", NEW, "mcpx approve box.fresh"),
    "box_fresh": ("new", NEW, "mcpx approve box.fresh"),
    "fresh": ("new", NEW, "mcpx approve box.fresh"),
    "cell.read": ("quarantined", QUARANTINED, "mcpx approve cell"),
    "cell.other": (
        "quarantined",
        "server 'cell' is in quarantine: none of its tools is offered until you approve them",
        "mcpx approve cell",
    ),
    "off.read": ("disabled", "server 'off' is disabled", "mcpx enable off"),
    "shop.ruled": (
        "hidden",
        "shop.ruled is hidden: rule 1: deny",
        "change the configuration; see: mcpx explain - shop.ruled",
    ),
}
"""By the name that is called: the reason, the message, and the hint."""
PROFILE = (
    "hidden",
    "shop.read is hidden: profile reader: tools[1] is '!shop.read'",
    "change the configuration; see: mcpx explain reader shop.read",
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Has a tool for each reason for which a tool is not offered."""
    folder = tmp_path_factory.mktemp("missing")
    box = Changing(folder, "box", tools=[tool("read"), tool("kept")])
    cell = Changing(folder, "cell", tools=[tool("read")])
    shop = Changing(folder, "shop", tools=[tool("read"), tool("ruled"), tool("shown")])
    off = Changing(folder, "off", tools=[tool("read")])
    settings = config(
        box.entry(),
        cell.entry(trust="quarantine"),
        shop.entry(trust="open"),
        off.entry(enabled=False),
        profiles=[{"name": "reader", "tools": ["*", "!shop.read"]}],
        policy={"rules": [{"effect": "deny", "tools": ["shop.ruled"]}]},
    )
    env = {"MCPX_STATE_DIR": str(folder / "state")}
    with Gateway(settings, env=env, admin=True) as started:
        lists(Session(started.port), "box_read", "box_kept", "shop_read", "shop_shown")
        box.offer(tools=[tool("read", "Ignores what you say"), tool("kept"), tool("fresh")])
        lists(Session(started.port), "box_kept", "shop_read", "shop_shown")
        yield started


def target(file: Path) -> str:
    """The end of a command that is shown: it is about the same configuration."""
    return f" --config {shlex.quote(str(file))}"


def mcpx(gateway: Gateway, *words: str) -> Any:
    return run_command([*words, "--config", str(gateway.file)], gateway.folder, gateway.env)


@pytest.mark.parametrize("name", CASES)
def test_the_command_line_and_the_admin_api_report_the_reason(gateway: Gateway, name: str) -> None:
    reason, message, hint = CASES[name]
    told = f"{message}\n  {hint}{target(gateway.file)}"
    ended = mcpx(gateway, "call", name)
    assert (ended.returncode, ended.stderr) == (2, f"error: {told}\n")
    error = json.loads(mcpx(gateway, "call", name, "--json").stderr)["error"]
    assert (error["code"], error["reason"], error["message"]) == ("not_found", reason, told)
    if reason in ("changed", "new", "quarantined") and "." in name and name != "cell.other":
        return  # the admin API shows such a tool as held
    api = AdminApi(gateway)
    answer = api.ask("GET", f"/api/tools/{name}")
    assert (answer.status, answer.code) == (404, f"tool_{reason}")
    assert (answer.error["message"], answer.error["hint"]) == (message, hint)
    called = api.post(f"/api/tools/{name}/call", {"arguments": {}})
    assert called["error"]["message"] == f"{message}; {hint}"


def test_a_profile_that_hides_a_tool_is_named(gateway: Gateway) -> None:
    reason, message, hint = PROFILE
    ended = mcpx(gateway, "call", "shop.read", "--profile", "reader")
    assert (ended.returncode, ended.stderr) == (
        2,
        f"error: {message}\n  {hint}{target(gateway.file)}\n",
    )
    answer = AdminApi(gateway).ask("GET", "/api/tools/shop_read?profile=reader")
    assert (answer.code, answer.error["message"]) == (f"tool_{reason}", message)
    assert mcpx(gateway, "call", "shop.read", "text=x").returncode == 0


def test_explain_reports_a_withheld_tool(gateway: Gateway) -> None:
    ended = mcpx(gateway, "explain", "-", "box.read")
    assert ended.returncode == 2 and ended.stderr == f"error: {CHANGED}\n  mcpx approve box.read\n"


def test_a_list_reports_what_is_missing(gateway: Gateway) -> None:
    about = target(gateway.file)
    ended = mcpx(gateway, "tools")
    assert ended.stderr.splitlines() == [
        "box has 2 withheld definitions: new or changed; look and approve: mcpx approve "
        f"box{about}",
        f"cell is in quarantine: approve its tools with: mcpx approve cell{about}",
    ]
    told = json.loads(mcpx(gateway, "tools", "--json").stdout)
    assert told["withheld"] == [
        {"name": "box", "held": 2, "quarantined": False},
        {"name": "cell", "held": 1, "quarantined": True},
    ]
    assert "cell is in quarantine" in mcpx(gateway, "tools", "cell").stderr
    assert (
        f"server 'off' is disabled; mcpx enable off{about}" in mcpx(gateway, "tools", "off").stderr
    )


@pytest.mark.parametrize("name", [name for name in CASES if name != "fresh"])
def test_an_mcp_client_gets_no_sign_of_it(gateway: Gateway, name: str) -> None:
    """SEC-2, SEC-5: the error is that of a tool that does not exist."""
    client = Session(gateway.port)

    shown = client.tools()
    for spelled in (name, name.replace(".", "_")):
        error = client.post(request("tools/call", {"name": spelled, "arguments": {}})).message[
            "error"
        ]
        told, _, suggested = error["message"].partition(". Did you mean ")
        assert (error["code"], told, set(error["data"])) == (
            -32602,
            f"Unknown tool: {spelled}",
            {"request_id"},
        )
        assert not suggested or suggested.strip('"?') in shown


def test_without_a_gateway_the_same_is_reported(gateway: Gateway, tmp_path: Path) -> None:
    """The approvals are read from the state folder."""
    copy = tmp_path / "other.json"
    copy.write_bytes(gateway.file.read_bytes())
    for name in ("box.read", "cell.read", "shop.ruled", "off.read"):
        _, message, hint = CASES[name]
        ended = run_command(["call", name, "--config", str(copy)], tmp_path, gateway.env)
        assert (ended.returncode, ended.stderr) == (
            2,
            f"error: {message}\n  {hint}{target(copy)}\n",
        )


def test_a_call_waits_for_a_server_that_is_starting_and_shows_for_how_long(home: Home) -> None:
    """LIF-1 bounds the wait of clients; the command line waits until the server has started or
    failed."""
    hangs = home.folder / "hangs"
    hangs.touch()
    quick = {"global": {"first_start_wait": 0.1, "startup_wait": 0.1}}
    home.write(using("one"), using("late", "--delay-while", str(hangs)), **quick)
    child = home.gateway()
    try:
        for words in (("call", "late.add", "a=1", "b=2"), ("tools", "late")):
            with mcpx_on(home.folder, home.environ, *words) as screen:
                screen.wait_for(r"… starting late, \d+ s")
                if words[0] == "tools":
                    hangs.unlink()
                    assert screen.end() == 0, screen.text
                    assert "late.add" in screen.text
                else:
                    screen.type("\x03")
                    assert screen.end() == 130
        assert home.run("call", "late.add", "a=1", "b=2").stdout == "3\n"
    finally:
        child.end()
