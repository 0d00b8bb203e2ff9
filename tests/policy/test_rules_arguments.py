"""SEC-7: what rules say of arguments. In doubt it is no."""

import asyncio
import time
from typing import Any, Literal

import pytest

from mcpx.base import aio
from mcpx.config import Policy, PolicyRule
from mcpx.model.call import Call, Caller
from mcpx.model.events import Passage
from mcpx.model.offer import Offer
from mcpx.policy.rules import Rule, Rules

TOOL = Offer("tools", "s", "t", "t", {})


def decided(of: Rules, passage: Passage) -> Rule:
    return of.left(passage).decide(passage)


def matches(
    conditions: dict[str, Any], arguments: Any, effect: Literal["allow", "deny", "ask"] = "deny"
) -> bool:
    of = Rules(
        Policy(rules=(PolicyRule(effect=effect, arguments=conditions),)), lambda server: True
    )
    params = {"name": "t", "arguments": arguments}
    rule = decided(of, Passage("s", "t", TOOL, Call("tools/call", params, Caller()), params))
    return rule.label == "rule 1"


def both(conditions: dict[str, Any], arguments: Any) -> tuple[bool, bool]:
    """Whether a rule that denies matches, and one that allows."""
    return matches(conditions, arguments), matches(conditions, arguments, "allow")


@pytest.mark.parametrize(
    ("pattern", "value", "yes"),
    [
        ("/etc/*", "/etc/passwd", True),
        ("/etc/*", "/tmp/etc/x", False),
        ("rm *", "rm -rf /\nls", True),
        ("RM *", "rm -rf", False),
        ("!/tmp/*", "/etc/passwd", True),
        ("!/tmp/*", "/tmp/a", False),
        (["a*", "!ab"], "ab", False),
        (["a*", "!ab"], "ac", True),
        ("1", 1, True),
        ("1", 1.0, True),
        (1, 1, True),
        (1, 2, False),
        ("true", True, True),
        (True, True, True),
        (True, "true", True),
        ("null", None, True),
        ("1.5", 1.5, True),
        ("*", "", True),
    ],
)
def test_a_pattern_is_held_against_the_text_of_a_value(pattern: Any, value: Any, yes: bool) -> None:
    assert both({"a": pattern}, {"a": value}) == (yes, yes)


def test_an_argument_that_is_absent_does_not_match() -> None:
    for arguments in (None, {}, {"b": "x"}, {"a": []}):
        assert both({"a": "*"}, arguments) == (False, False)
        assert both({"a.b": "!x"}, arguments) == (False, False)
    assert both({"a": {"jmespath": "@"}}, {"b": 1}) == (False, False)


def test_one_element_is_enough_to_forbid_and_all_are_needed_to_allow() -> None:
    assert both({"paths": "/tmp/*"}, {"paths": ["/tmp/a", "/etc/passwd"]}) == (True, False)
    assert both({"paths": "/tmp/*"}, {"paths": ["/tmp/a", ["/tmp/b"]]}) == (True, True)


def test_dots_lead_inside_also_through_arrays() -> None:
    assert both({"repo.owner": "me"}, {"repo": {"owner": "me"}}) == (True, True)
    assert both({"files.path": "/tmp/*"}, {"files": [{"path": "/tmp/a"}, {"path": "/etc/b"}]}) == (
        True,
        False,
    )
    assert both({"files.path": "/tmp/*"}, {"files": [{"path": "/tmp/a"}, {}]}) == (True, False)
    assert both({"a.b": "x"}, {"a.b": "x"}) == (True, True)
    assert both({"a.b": "x"}, {"a.b": "x", "a": {"b": "y"}}) == (True, False)


def test_all_conditions_must_hold() -> None:
    assert both({"a": "1", "b": "2"}, {"a": "1", "b": "3"}) == (False, False)
    assert both({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) == (True, True)


def test_a_star_leads_everywhere() -> None:
    deep = {"a": [{"b": ["x", {"c": "/root/.ssh/id"}]}], "d": 1}
    assert both({"*": "*/.ssh/*"}, deep) == (True, False)
    assert both({"*": {"jmespath": "d == `1` && a"}}, deep) == (True, True)


@pytest.mark.parametrize("arguments", ["text", ["list"], 5, {"a": {"nested": 1}}])
def test_what_cannot_be_judged_forbids_and_asks_and_does_not_allow(arguments: Any) -> None:
    assert both({"a": "x"}, arguments) == (True, False)
    assert matches({"a": "x"}, arguments, "ask")


@pytest.mark.parametrize(
    ("expression", "value", "outcome"),
    [
        ("@ > `10`", 11, (True, True)),
        ("@ > `10`", 9, (False, False)),
        ("@ > `10`", "11", (True, False)),
        ("@ > `10`", [11], (True, False)),
        ("@ > `10`", True, (True, False)),
        ("@.count > `10`", {"size": 11}, (False, False)),
        ("@ > '2026-01-01'", "2026-11-16", (True, True)),
        ("contains(@, 'x')", "axb", (True, True)),
        ("contains(@, 'x')", 5, (True, False)),
        ("starts_with(@, '/tmp/') && !contains(@, '..')", "/tmp/../etc", (False, False)),
        ("[?@ == 'rm']", ["ls", "rm"], (True, True)),
        ("length(@)", [], (True, True)),
        ("@", "", (False, False)),
        ("no_such_function(@)", 1, (True, False)),
        ("sort(@)", [1, "a"], (True, False)),
    ],
)
def test_an_expression_holds_when_its_result_is_true(
    expression: str, value: Any, outcome: tuple[bool, bool]
) -> None:
    assert both({"a": {"jmespath": expression}}, {"a": value}) == outcome


@pytest.mark.parametrize(
    ("expression", "arguments"),
    [
        (" | ".join(["[@, @]"] * 60) + " | to_string(@)", {"x": "y"}),
        (" | ".join(["[@, @][]"] * 40), {"x": "y"}),
        ("join(a, b)", {"a": "x" * 500_000, "b": ["y"] * 9_000}),
        ("a[?@ == 'x'][?@ == 'x'] | [0]", {"a": ["x"] * 500_000}),
        ("map(&to_string(@), a)", {"a": [["y"] * 400] * 400}),
        ("a", {"a": "x" * 4_000_000}),
    ],
)
def test_no_expression_holds_up_anybody(expression: str, arguments: Any) -> None:
    began = time.process_time()
    assert both({"*": {"jmespath": expression}}, arguments) == (True, False)
    assert time.process_time() - began < 5


def test_no_pattern_holds_up_anybody() -> None:
    began = time.process_time()
    assert both({"a": "*a*a*a*a*a*b"}, {"a": "a" * 1_000_000}) == (False, False)
    assert both({"a": "*b"}, {"a": "a" * 4_000_000}) == (True, False)
    assert both({"*": "b"}, {"a": [["x"] * 1_000] * 1_000}) == (True, False)
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert both({"a": "b"}, {"a": deep}) == (True, False)
    while isinstance(deep, list):  # or its end would be a recursion of its own
        deep = deep.pop()
    assert time.process_time() - began < 5


def test_a_rule_of_arguments_is_judged_under_a_running_loop_too() -> None:
    async def judge() -> bool:
        return matches({"a": {"jmespath": "@ == 'x'"}}, {"a": "x"})

    assert asyncio.run(judge())


def test_no_number_of_empty_lists_holds_up_anybody() -> None:
    """They are work, too, and given up as not to be judged."""
    empty: list[Any] = [[] for _ in range(100_000)]
    for name in ("a", "*", "a.b"):
        assert both({name: "x"}, {"a": empty}) == (True, False)


def test_a_number_that_may_be_written_in_two_ways_is_left_out_by_either() -> None:
    assert both({"a": "!1"}, {"a": 1.0}) == (False, False)
    assert both({"a": ["*", "!1.0"]}, {"a": 1.0}) == (False, False)


def test_other_tasks_run_while_many_rules_match_a_large_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        aio, "SLICE_SECONDS", 0.0
    )  # Fast machines judge all rules within one slice.
    of = Rules(
        Policy(
            rules=tuple(
                PolicyRule(effect="deny", arguments={"*": f"*{number}x*"}) for number in range(40)
            )
        ),
        lambda server: True,
    )
    params = {"name": "t", "arguments": {"a": "y" * 1_000_000}}
    passage = Passage("s", "t", TOOL, Call("tools/call", params, Caller()), params)

    async def judge() -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.create_task(others())
        left = of.left(passage)
        assert left.takes_long(passage)
        rule = await left.decide_in_turns(passage)
        beside.cancel()
        assert rule is left.decide(passage)
        return turns

    assert asyncio.run(judge()) >= 39


@pytest.mark.parametrize(
    ("conditions", "arguments"),
    [
        ({"paths": "/etc/*"}, {"paths": '["/etc/passwd"]'}),
        ({"paths": "/etc/*"}, {"paths": ' \n["a", ["/etc/passwd"]]'}),
        ({"repo.owner": "evil"}, {"repo": '{"owner": "evil"}'}),
        ({"*": "evil"}, {"repo": '{"owner": ["evil"]}'}),
        ({"repo": {"jmespath": "owner == 'evil'"}}, {"repo": '{"owner": "evil"}'}),
        ({"repo.owner": "evil"}, {"repo": '{"owner": "evil", "cut": "\ud83d"}'}),
        ({"paths": "/etc/*"}, {"paths": '["/etc/passwd",' + "[]," * 600_000 + "1]"}),
    ],
)
def test_json_in_a_text_is_what_it_says_too(conditions: dict[str, Any], arguments: Any) -> None:
    """Servers of the official Python SDK read it so."""
    assert matches(conditions, arguments)
    left_out = {
        name: f"!{pattern}" for name, pattern in conditions.items() if isinstance(pattern, str)
    }
    assert not left_out or not matches(left_out, arguments, "allow")


def test_text_that_is_no_json_or_is_meant_as_text_is_text() -> None:
    assert both({"a": "?note]*"}, {"a": "[note] see below"}) == (True, True)
    assert both({"a": "x"}, {"a": "{" * 3_000}) == (False, False)
    schema = {"properties": {"a": {"type": "string"}}}
    of = Rules(
        Policy(rules=(PolicyRule(effect="deny", arguments={"a": "evil"}),)), lambda server: True
    )
    params = {"name": "t", "arguments": {"a": '["evil"]'}}
    offer = Offer("tools", "s", "t", "t", {"inputSchema": schema})
    rule = decided(of, Passage("s", "t", offer, Call("tools/call", params, Caller()), params))
    assert rule.label == "default"


def decides(conditions: dict[str, Any], arguments: Any, *declared: str) -> tuple[bool, bool, bool]:
    """Whether a rule that denies, one that asks, and one that allows matches. `declared`: the names
    in the schema."""
    tool = Offer(
        "tools", "s", "t", "t", {"inputSchema": {"properties": {name: {} for name in declared}}}
    )
    params = {"name": "t", "arguments": arguments}
    passage = Passage("s", "t", tool, Call("tools/call", params, Caller()), params)
    effects: tuple[Literal["deny", "ask", "allow"], ...] = ("deny", "ask", "allow")
    policies = [
        Policy(rules=(PolicyRule(effect=effect, arguments=conditions),)) for effect in effects
    ]
    deny, ask, allow = (
        decided(Rules(policy, lambda server: True), passage).label == "rule 1"
        for policy in policies
    )
    return deny, ask, allow


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("text", {"Text": "bad"}),
        ("text", {"text ": "bad"}),
        ("text", {" TEXT\t": "bad"}),
        ("task", {"ta\u017f\u212a": "bad"}),
        ("Text", {"text": "bad"}),
        ("text", {"text": "good", "Text": "bad"}),
        ("text", {"Text": "good", "TEXT": "bad"}),
        ("repo.owner", {"Repo": {"OWNER": "bad"}}),
        ("repo.owner", {"repo": [{"owner": "good"}, {"Owner ": "bad"}]}),
        ("repo.owner", {"Repo.Owner": "bad"}),
    ],
)
def test_other_spellings_of_a_name_are_forbidden_and_not_allowed(name: str, arguments: Any) -> None:
    """Servers written in Go ignore the case of names."""
    assert decides({name: "bad"}, arguments) == (True, True, False)
    assert decides({name: {"jmespath": "@ == 'bad'"}}, arguments)[2] is False
    assert decides({name: "bad"}, {"other": "bad"}) == (False, False, False)


def test_an_allow_rule_wants_each_spelling_to_match() -> None:
    assert decides({"text": "good"}, {"text": "good"}) == (True, True, True)
    assert decides({"text": "good"}, {"text": "good", "Text": "bad"}) == (True, True, False)


def test_two_spellings_in_the_schema_are_two_arguments() -> None:
    assert decides({"text": "bad"}, {"Text": "bad"}, "text", "Text") == (False, False, False)
    assert decides({"text": "good"}, {"text": "good", "Text": "bad"}, "text", "Text") == (
        True,
        True,
        True,
    )
    assert decides({"text": "bad"}, {"Text": "bad"}, "Text") == (True, True, False)
    assert decides({"text": "bad"}, {"TEXT": "bad"}, "text", "Text") == (True, True, False)


def test_more_spellings_than_are_compared_cannot_be_judged() -> None:
    names = [
        "".join(c.upper() if n >> at & 1 else c for at, c in enumerate("text"))
        for n in range(1, 16)
    ]
    assert decides({"text": "bad"}, dict.fromkeys(names, "good")) == (True, True, False)
    deep: Any = {"owner": 1}
    for _ in range(500):
        deep = {"Owner": deep}
    assert decides({"repo.owner": "bad"}, {"repo": deep}) == (True, True, False)
