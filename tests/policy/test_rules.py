"""SEC-7: the first rule that matches counts; what a rule concerns; what it hides."""

from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.config import Policy, PolicyRule
from mcpx.model.call import Call, Caller, Json
from mcpx.model.events import Passage
from mcpx.model.offer import Kind, Offer
from mcpx.policy import rules as module
from mcpx.policy.explain import explain
from mcpx.policy.rules import Rules


def offer(
    server: str = "files", name: str = "read", kind: Kind = "tools", **annotations: bool
) -> Offer:
    return Offer(
        kind, server, name, f"{server}_{name}", {"annotations": annotations} if annotations else {}
    )


def passage(
    target: Offer, arguments: Any = None, principal: str = "ada", profile: str | None = None
) -> Passage:
    method = "tools/call" if target.kind == "tools" else "prompts/get"
    params: Json = {"name": target.name, **({} if arguments is None else {"arguments": arguments})}
    return Passage(
        target.server, target.name, target, Call(method, params, Caller(principal, profile)), params
    )


def rules(
    *given: PolicyRule, default: Literal["allow", "deny"] = "allow", believes: bool = True
) -> Rules:
    return Rules(Policy(default=default, rules=given), lambda server: believes)


def decided(of: Rules, target: Offer, arguments: Any = None, **who: Any) -> str:
    call = passage(target, arguments, **who)
    return of.left(call).decide(call).label


def test_the_first_rule_that_matches_counts() -> None:
    of = rules(PolicyRule(effect="allow", tools=("read",)), PolicyRule(effect="deny"))
    assert decided(of, offer(name="read")) == "rule 1"
    assert decided(of, offer(name="write")) == "rule 2"


def test_what_no_rule_matches_is_decided_by_the_default() -> None:
    assert decided(rules(PolicyRule(effect="ask", tools=("x",))), offer()) == "default"


def test_a_tool_is_matched_by_its_public_name_its_own_and_the_one_with_its_server() -> None:
    for pattern in ("files_read", "read", "files.read", "files.*"):
        assert decided(rules(PolicyRule(effect="deny", tools=(pattern,))), offer()) == "rule 1", (
            pattern
        )
    assert decided(rules(PolicyRule(effect="deny", tools=("FILES.read",))), offer()) == "default"


def test_profiles_principals_and_servers_narrow_a_rule() -> None:
    of = rules(
        PolicyRule(effect="deny", profiles=("p",), principals=("ci-*", "!ci-1"), servers=("fi*",))
    )
    assert decided(of, offer(), principal="ci-2", profile="p") == "rule 1"
    for principal, profile, server in (
        ("ci-1", "p", "files"),
        ("ci-2", None, "files"),
        ("ci-2", "p", "web"),
    ):
        assert decided(of, offer(server), principal=principal, profile=profile) == "default"


def test_a_rule_about_tools_leaves_prompts_and_resources_alone() -> None:
    for rule in (
        PolicyRule(effect="deny", tools=("*",)),
        PolicyRule(effect="deny", read_only=False),
        PolicyRule(effect="deny", destructive=True),
        PolicyRule(effect="deny", arguments={"a": "*"}),
    ):
        of = rules(rule)
        assert decided(of, offer(kind="prompts")) == "default"
        assert not of.hidden_resource(None, "ada", "files", "file:///a")


def test_a_rule_about_servers_concerns_all_they_offer() -> None:
    of = rules(PolicyRule(effect="deny", servers=("files",)))
    kinds: tuple[Kind, ...] = ("tools", "prompts", "resources", "templates")
    assert all(of.hidden(None, "ada", offer(kind=kind)) for kind in kinds)
    assert of.hidden_resource(None, "ada", "files", "file:///a") and of.hidden_server(
        None, "ada", "files"
    )
    assert not of.hidden_server(None, "ada", "web")


def test_hints_are_believed_of_whom_they_are_believed_of() -> None:
    reads = PolicyRule(effect="allow", read_only=True)
    of = rules(reads, default="deny")
    assert decided(of, offer(readOnlyHint=True)) == "rule 1"
    assert decided(of, offer()) == "default"
    assert (
        decided(rules(reads, default="deny", believes=False), offer(readOnlyHint=True)) == "default"
    )


def test_who_says_nothing_may_destroy() -> None:
    of = rules(PolicyRule(effect="deny", destructive=True))
    assert decided(of, offer()) == decided(of, offer(destructiveHint=True)) == "rule 1"
    assert (
        decided(of, offer(destructiveHint=False))
        == decided(of, offer(readOnlyHint=True))
        == "default"
    )
    doubted = rules(PolicyRule(effect="deny", destructive=True), believes=False)
    assert decided(doubted, offer(destructiveHint=False)) == "rule 1"


def test_a_hint_that_changes_counts_at_once() -> None:
    of = rules(PolicyRule(effect="deny", read_only=False))
    assert decided(of, offer(readOnlyHint=True)) == "default"
    assert decided(of, offer(readOnlyHint=False)) == "rule 1"


def test_the_gateways_own_tools_are_concerned_only_by_name() -> None:
    own = Passage("mcpx", "result", None, Call("tools/call", {}, Caller()), {})
    everything = rules(PolicyRule(effect="deny", servers=("*",)), default="deny")
    named = rules(PolicyRule(effect="deny", servers=("mcpx",), tools=("result",)))
    assert everything.left(own).decide(own).effect == "allow"
    assert named.left(own).decide(own).label == "rule 1"


def test_a_deny_without_a_reason_hides_and_one_with_a_reason_does_not() -> None:
    assert rules(PolicyRule(effect="deny", tools=("read",))).hidden(None, "ada", offer())
    assert not rules(PolicyRule(effect="deny", tools=("read",), reason="no")).hidden(
        None, "ada", offer()
    )
    assert rules(default="deny").hidden(None, "ada", offer())


def test_what_may_be_called_with_some_arguments_is_not_hidden() -> None:
    some = PolicyRule(effect="allow", tools=("read",), arguments={"path": "/tmp/*"})
    of = rules(some, default="deny")
    assert not of.hidden(None, "ada", offer()) and of.hidden(None, "ada", offer(name="write"))
    assert not rules(PolicyRule(effect="deny", arguments={"path": "/etc/*"})).hidden(
        None, "ada", offer()
    )


def test_what_is_refused_with_any_arguments_is_hidden() -> None:
    always = rules(PolicyRule(effect="deny", arguments={"path": "*"}, reason="no"), default="deny")
    assert always.hidden(None, "ada", offer())


def test_a_server_is_hidden_only_if_nothing_of_it_can_be_shown() -> None:
    of = rules(PolicyRule(effect="allow", servers=("files",), tools=("read",)), default="deny")
    assert not of.hidden_server(None, "ada", "files") and of.hidden_server(None, "ada", "web")
    told = rules(PolicyRule(effect="deny", tools=("x",), reason="why"), default="deny")
    assert not told.hidden_server(None, "ada", "files")


def test_callers_whom_no_rule_tells_apart_are_of_one_class() -> None:
    of = rules(PolicyRule(effect="deny", principals=("ci-*",)))
    assert of.principal_class("ci-1") == of.principal_class("ci-2") != of.principal_class("ada")
    assert rules().principal_class("a") == rules().principal_class("b")


def test_defaults_of_a_local_command_are_judged_too() -> None:
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "default": "/etc/passwd"}},
    }
    command = Offer("tools", "commands", "cat", "cat", {"inputSchema": schema})
    of = rules(PolicyRule(effect="deny", arguments={"path": "/etc/*"}))
    assert decided(of, command) == decided(of, command, {}) == "rule 1"
    assert decided(of, command, {"path": "/tmp/a"}) == "default"


def test_every_rule_is_explained_up_to_the_one_that_counts() -> None:
    of = rules(
        PolicyRule(effect="deny", servers=("web",)),
        PolicyRule(effect="ask", arguments={"path": "/etc/*"}),
        PolicyRule(effect="allow", read_only=True),
        PolicyRule(effect="deny"),
    )
    told = [
        (f.rule.label, f.rule.effect, f.matches)
        for f in of.findings(None, "ada", offer(readOnlyHint=True))
    ]
    assert told == [
        ("rule 1", "deny", False),
        ("rule 2", "ask", True),
        ("rule 3", "allow", True),
    ]
    assert of.findings(None, "ada", offer())[2].why == "the tool is not known to be read-only"
    assert explained(of, readOnlyHint=True) == (
        "allow",
        ["rule 2: ask, if the arguments match: path", "rule 3: allow"],
    )
    assert explained(rules()) == ("allow", ["default: allow, no rule matches"])
    refused = rules(PolicyRule(effect="deny", tools=("read",), reason="why"))
    assert explained(refused) == ("deny", ["rule 1: deny (why)"])
    some = rules(PolicyRule(effect="allow", arguments={"path": "/tmp/*"}), default="deny")
    assert explained(some)[0] == "allow"


def explained(of: Rules, **hints: Any) -> tuple[str, list[str]]:
    warden: Any = SimpleNamespace(rules=of)
    verdict = explain(warden, None, "ada", offer(**hints))
    return verdict.effect, verdict.because


def test_what_is_remembered_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 10)
    monkeypatch.setattr(module, "PRINCIPALS", 10)
    of = rules(PolicyRule(effect="deny", principals=("9*",)))
    for number in range(100):
        assert decided(of, offer(name=str(number)), principal=str(number)) == (
            "rule 1" if str(number).startswith("9") else "default"
        )
    assert len(of._left) <= 10 and len(of._classes) <= 10  # pyright: ignore[reportPrivateUsage]


def test_of_tools_with_long_names_nothing_is_remembered() -> None:
    """A server may change its names without end: twenty thousand of them are bounded in bytes
    too."""
    of = rules(PolicyRule(effect="deny", tools=("x*",)))
    for name in ("x" * 16_000, "y" * 16_000, "x", "y"):
        target = offer(name=name)
        assert decided(of, target) == ("rule 1" if name[0] == "x" else "default")
        assert of.hidden(None, "ada", target) == (name[0] == "x")
    assert {len(key[2].name or "") for key in of._left} == {len(key[4]) for key in of._met} == {1}


# Against the plainest reading of the words
# ---------------------------------------------------------------------------

NAMES = ("a", "b", "ab")
PATTERNS = st.sampled_from(("*", "a", "b", "a*", "!a", "!*b", "s.a", "s_b", "?"))
LISTS = st.none() | st.lists(PATTERNS, min_size=1, max_size=3).map(tuple)
FLAGS = st.none() | st.booleans()
RULES = st.builds(
    PolicyRule,
    effect=st.sampled_from(("allow", "deny", "ask")),
    profiles=st.none() | st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(tuple),
    principals=LISTS,
    servers=LISTS,
    tools=LISTS,
    read_only=FLAGS,
    destructive=FLAGS,
    arguments=st.none()
    | st.dictionaries(st.sampled_from(("x", "y")), st.sampled_from(("1", "*", "t*")), min_size=1),
    reason=st.sampled_from(("", "why")),
)
HINTS = st.dictionaries(st.sampled_from(("readOnlyHint", "destructiveHint")), st.booleans())


def naive_list(patterns: tuple[str, ...] | None, *names: str) -> bool:
    if patterns is None:
        return True
    said = all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        if any(fnmatchcase(name, pattern.removeprefix("!")) for name in names):
            said = not pattern.startswith("!")
    return said


def naive(policy: Policy, call: Passage, believed: bool) -> tuple[str, str]:
    target = call.offer
    assert target is not None
    hints = target.definition.get("annotations", {}) if believed else {}
    read_only = hints.get("readOnlyHint") is True
    destructive = not read_only and hints.get("destructiveHint") is not False
    arguments = call.params.get("arguments", {})
    for number, rule in enumerate(policy.rules, 1):
        about_tools = (rule.tools, rule.read_only, rule.destructive, rule.arguments) != (None,) * 4
        names = (target.name, target.public, f"{target.server}.{target.name}")
        given = {
            key: value if isinstance(value, str) else str(value).lower()
            for key, value in arguments.items()
        }
        if (
            (rule.profiles is None or call.caller.profile in rule.profiles)
            and naive_list(rule.principals, call.caller.principal)
            and naive_list(rule.servers, target.server)
            and (not about_tools or target.kind == "tools")
            and naive_list(rule.tools if target.kind == "tools" else None, *names)
            and rule.read_only in (None, read_only)
            and rule.destructive in (None, destructive)
            and all(
                k in given and fnmatchcase(given[k], p) for k, p in (rule.arguments or {}).items()
            )
        ):
            return f"rule {number}", rule.effect
    return "default", policy.default


@settings(max_examples=300, deadline=None)
@given(
    st.lists(RULES, max_size=6).map(tuple),
    st.sampled_from(("allow", "deny")),
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(("tools", "prompts")),
            st.sampled_from((*NAMES, "s")),
            st.sampled_from(NAMES),
            HINTS,
            st.sampled_from(NAMES),
            st.none() | st.sampled_from(NAMES),
            st.dictionaries(
                st.sampled_from(("x", "y")), st.sampled_from(("1", 1, True, "text", ""))
            ),
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_rules_decide_as_the_plainest_reading_of_them_does(
    given_rules: tuple[PolicyRule, ...], default: Any, believed: bool, calls: list[Any]
) -> None:
    """Also with what was remembered from other calls; and what is hidden is what no arguments let
    through."""
    policy = Policy(default=default, rules=given_rules)
    of = Rules(policy, lambda server: believed)
    for kind, server, name, hints, principal, profile, arguments in calls:
        target = Offer(kind, server, name, f"{server}_{name}", {"annotations": hints})
        call = passage(target, arguments, principal, profile)
        left = of.left(call)
        rule, hidden = left.decide(call), left.hidden
        assert (rule.label, rule.effect) == naive(policy, call, believed)
        assert hidden == of.hidden(profile, principal, target)
        assert not hidden or rule.effect == "deny"
        assert not of.hidden_server(profile, principal, server) or hidden
        counting = [f for f in of.findings(profile, principal, target) if f.matches]
        assert rule.label in [finding.rule.label for finding in counting]
