"""Whether somebody could call something, asked of the running gateway (ADM-2, SEC-7)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.admin_api import AdminApi
from kit.client import Session
from kit.gateway import Gateway
from kit.messages import Json
from kit.servers import everything_server
from kit.until import wait_until

CONFIG: Json = {
    "global": {"hot_reload": False},
    "server": {"auth": {"tokens": [{"name": "ada", "token": "t-ada-1", "profile": "team"}]}},
    "mcp_servers": [
        everything_server("box"),
        {"name": "down", "connection": {"type": "stdio", "command": "/nowhere/at/all"}},
    ],
    "profiles": [{"name": "team", "tools": ["box.*", "down.*"]}, {"name": "none", "servers": []}],
    "policy": {
        "rules": [
            {
                "effect": "deny",
                "tools": ["echo"],
                "arguments": {"text": "secret*"},
                "reason": "not that",
            },
            {
                "effect": "ask",
                "tools": ["echo"],
                "principals": ["ada"],
                "arguments": {"text": "ask*"},
            },
            {"effect": "allow", "tools": ["echo"]},
            {"effect": "deny", "tools": ["add"]},
        ]
    },
}


@pytest.fixture(scope="module")
def api() -> Iterator[AdminApi]:
    with Gateway(CONFIG, admin=True) as gateway:
        client = Session(gateway.port, headers={"Authorization": "Bearer t-ada-1"})
        assert wait_until(client.tools)
        yield AdminApi(gateway)


def asked(api: AdminApi, tool: str = "box.echo", **more: Any) -> Json:
    return api.post("/api/policy/simulate", {"tool": tool, **more})


def test_the_rule_that_decides_is_told_with_its_number_and_its_line(api: AdminApi) -> None:
    for text, effect, rule in (("hello", "allow", 3), ("secret plan", "deny", 1)):
        verdict = asked(api, arguments={"text": text}, principal="ada", profile="team")
        assert (verdict["effect"], verdict["rule"], verdict["seen"]) == (effect, rule, True)
        lines = Path(verdict["source"]["file"]).read_text().splitlines()
        assert f'"effect": "{effect}"' in lines[verdict["source"]["line"] - 1]
        assert (verdict["server"], verdict["tool"], verdict["name"]) == ("box", "echo", "box_echo")
        assert verdict["because"][0].startswith("profile team: ")
    assert "(not that)" in " ".join(asked(api, arguments={"text": "secret"})["because"])


def test_who_calls_and_what_with_makes_the_difference(api: AdminApi) -> None:
    assert (
        asked(api, arguments={"text": "ask me"}, principal="ada", profile="team")["effect"] == "ask"
    )
    assert asked(api, arguments={"text": "ask me"})["effect"] == "allow"
    either = asked(api)
    assert either["effect"] == "allow" and any(
        "if the arguments match: text" in line for line in either["because"]
    )
    hidden = asked(api, "box.add")
    assert (hidden["effect"], hidden["seen"], hidden["rule"]) == ("deny", False, 4)
    unseen = asked(api, profile="none")
    assert (unseen["effect"], unseen["seen"], unseen["rule"], unseen["source"]) == (
        "deny",
        False,
        None,
        None,
    )


def test_whoever_never_comes_there_is_told_so(api: AdminApi) -> None:
    assert "never comes there" in asked(api, principal="ada")["outside"]
    assert asked(api, principal="ada", profile="team")["outside"] is None
    assert "no token" in asked(api, principal="grace")["outside"]


def test_a_policy_that_is_not_saved_is_tried_and_not_kept(api: AdminApi) -> None:
    policy: Json = {"default": "deny", "rules": [{"effect": "ask", "servers": ["box"]}]}
    verdict = asked(api, policy=policy)
    assert (verdict["effect"], verdict["rule"], verdict["source"]) == ("ask", 1, None)
    assert asked(api)["rule"] == 3
    wrong: Json = {"rules": [{"effect": "perhaps"}, {"effect": "deny", "servers": ["bocks"]}]}
    answer = api.ask("POST", "/api/policy/simulate", {"tool": "box.echo", "policy": wrong})
    assert (answer.status, answer.code) == (422, "invalid_config")
    paths = {each["path"] for each in answer.error["errors"]}
    assert paths == {"policy.rules[0].effect", "policy.rules[1].servers[0]"}


def test_a_tool_of_a_server_that_is_down_is_judged_by_its_name(api: AdminApi) -> None:
    verdict = asked(api, "down.anything")
    assert verdict["effect"] == "allow" and "judged by its name alone" in verdict["because"][-1]


def test_what_is_not_there_is_not_found_with_what_was_meant(api: AdminApi) -> None:
    answer = api.ask("POST", "/api/policy/simulate", {"tool": "box_ecko"})
    assert (answer.status, answer.code, answer.error["path"]) == (404, "not_found", "tool")
    assert "box" in answer.error["hint"]
    assert api.refused("POST", "/api/policy/simulate", {"tool": "box.echo", "profile": "teem"}) == (
        404,
        "not_found",
    )
    assert api.refused("POST", "/api/policy/simulate", {"tool": ["x"]}) == (422, "invalid")


def test_strange_questions_get_an_answer(api: AdminApi) -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = {"a": [deep]}
    for arguments in (
        {},
        {"text": None},
        {"text": deep},
        {"text": "x" * 100_000},
        {"\u202e": 1},
        {"text": ["secret"] * 5000},
    ):
        assert asked(api, arguments=arguments)["effect"] in ("allow", "deny")
    assert asked(api, principal="\u0000" * 100)["effect"] == "allow"
    long = json.loads(api.ask("POST", "/api/policy/simulate", {"tool": "x" * 100_000}).text)
    assert long["error"]["code"] == "not_found"
