"""SEC-7: an approval is for one call, used once, and in time; a state is for one question."""

import json
import time
from typing import Any

import pytest

from kit.clock import Clock
from kit.loop import run
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import OVERLOADED, Denied
from mcpx.model.events import ApprovalChanged, Passage
from mcpx.policy import approvals as module
from mcpx.policy.approvals import Approval, Approvals, ApprovalStore, binding_of
from mcpx.policy.showing import line, shown


class Waiting:
    """Approvals with what they told."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.told: list[ApprovalChanged] = []
        self.approvals = Approvals(self.told.append, self.clock)

    def ask(self, call: Passage) -> Approval:
        arguments = call.params.get("arguments")
        return self.approvals.wait_for(
            call, binding_of(call, arguments), arguments, "rule 1", "why"
        )

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.told]


def passage(
    arguments: Any, principal: str = "ada", profile: str | None = None, **params: Any
) -> Passage:
    said: Json = {"name": "rm", "arguments": arguments, **params}
    return Passage("files", "rm", None, Call("tools/call", said, Caller(principal, profile)), said)


def binding(arguments: Any, **more: Any) -> bytes:
    return binding_of(passage(arguments, **more), arguments)


def test_a_binding_is_of_the_exact_call() -> None:
    one = binding({"a": 1, "b": [2]})
    assert (
        one
        == binding({"b": [2], "a": 1})
        == binding({"a": 1, "b": [2]}, _meta={"progressToken": 7})
    )
    others = [
        binding({"a": 1, "b": [3]}),
        binding({"a": 1.0, "b": [2]}),
        binding({"a": 1, "b": [2]}, principal="bob"),
        binding({"a": 1, "b": [2]}, profile="p"),
        binding({"a": 1, "b": [2]}, task={}),
        binding({"a": 1, "b": [2]}, requestState="of an older client, to whom it means nothing"),
        binding({}),
    ]
    assert len({one, *others}) == 1 + len(others)


def test_half_an_emoji_and_a_huge_number_can_be_bound() -> None:
    assert binding({"a": "\ud83d"}) != binding({"a": "\ude00"})
    assert binding({"a": 10**30}) != binding({"a": 10**30 + 1})


def test_the_same_call_waits_under_the_same_id() -> None:
    waiting = Waiting()
    first = waiting.ask(passage({"path": "/a"}))
    assert waiting.ask(passage({"path": "/a"})) is first
    assert waiting.ask(passage({"path": "/b"})) is not first
    assert [each.id for each in waiting.approvals.pending()] == [
        each.id for each in waiting.approvals.pending()
    ]
    assert waiting.states == ["pending", "pending"]


def test_an_approval_is_used_once() -> None:
    waiting = Waiting()
    asked = waiting.ask(passage({}))
    assert waiting.approvals.decide(asked.id, allow=True, by="eve") is asked
    found = waiting.approvals.of(binding({}))
    assert found is asked and asked.state == "approved" and asked.by == "eve"
    waiting.approvals.drop(asked, "used")
    assert waiting.approvals.of(binding({})) is None
    assert waiting.states == ["pending", "approved", "used"]


def test_an_approval_that_reached_no_server_is_there_again() -> None:
    waiting = Waiting()
    asked = waiting.ask(passage({}))
    waiting.approvals.decide(asked.id, allow=True, by="")
    waiting.approvals.drop(asked, "used")
    waiting.approvals.give_back(asked)
    assert waiting.approvals.of(binding({})) is asked


def test_a_decision_is_made_once_and_a_refusal_is_remembered() -> None:
    waiting = Waiting()
    asked = waiting.ask(passage({}))
    waiting.approvals.decide(asked.id, allow=False, by="")
    assert waiting.approvals.decide(asked.id, allow=True, by="") is None
    assert waiting.approvals.pending() == []
    assert waiting.ask(passage({})).state == "denied"
    waiting.clock.advance(module.REFUSED)
    assert waiting.ask(passage({})).state == "pending"


@pytest.mark.parametrize("decided", [False, True])
def test_what_waits_or_was_approved_is_forgotten_in_time(decided: bool) -> None:
    waiting = Waiting()
    asked = waiting.ask(passage({}))
    if decided:
        waiting.approvals.decide(asked.id, allow=True, by="")
    waiting.clock.advance(module.WAITS)
    assert waiting.approvals.of(binding({})) is None
    assert waiting.approvals.decide(asked.id, allow=True, by="") is None
    assert waiting.states[-1] == "expired"


def test_no_more_wait_than_may_and_no_caller_takes_the_place_of_all_others() -> None:
    waiting = Waiting()
    for number in range(module.MOST_EACH):
        waiting.ask(passage({"n": number}))
    with pytest.raises(Denied) as refused:
        waiting.ask(passage({"n": -1}))
    assert refused.value.code == OVERLOADED
    others = module.MOST - module.MOST_EACH
    for number in range(others):
        waiting.ask(passage({"n": number}, principal=f"bob {number // module.MOST_EACH}"))
    with pytest.raises(Denied):
        waiting.ask(passage({}, principal="cleo"))
    assert len(waiting.approvals.pending()) == module.MOST


def test_what_is_kept_of_arguments_is_bounded() -> None:
    asked = Waiting().ask(
        passage({"a": "x" * 1_000_000, "b": [["y"] * 1_000] * 1_000, "c" * 1_000_000: 1})
    )
    assert len(asked.arguments) < 6_000


def test_people_are_shown_one_line_without_secrets_and_the_end_of_what_is_long() -> None:
    told = {
        "password": "hunter2",
        "api_key": ["k"],
        "note": "a\nb\u202ec\x1b[2J",
        "cmd": "x" * 9_999 + "; rm -rf /",
    }
    text = shown(told)
    assert "hunter2" not in text and '"k"' not in text
    assert text.isprintable() and "\\u202e" in text and "; rm -rf /" in text
    assert line("a\u2028b", 10) == "a\\u2028b"


def test_a_state_is_redeemed_once_by_its_caller_for_its_call() -> None:
    async def test() -> None:
        store = ApprovalStore(Waiting().approvals)
        await store.expect("ada", b"one", "s")
        for caller, call, state in (
            ("ada", b"two", "s"),
            ("ada", b"one", "t"),
            ("ada", b"one", None),
            ("bob", b"one", "s"),
        ):
            assert not await store.redeem(caller, call, state)
        assert await store.redeem("ada", b"one", "s")
        assert not await store.redeem("ada", b"one", "s")

    run(test())


def test_a_state_that_is_too_old_is_not_redeemed() -> None:
    async def test() -> None:
        waiting = Waiting()
        store = ApprovalStore(waiting.approvals)
        await store.expect("ada", b"one", None)
        waiting.clock.advance(module.TOKEN_SECONDS)
        assert not await store.redeem("ada", b"one", None)

    run(test())


def test_of_too_many_open_questions_the_oldest_is_asked_again() -> None:
    async def test() -> None:
        store = ApprovalStore(Waiting().approvals)
        for number in range(module.MAX_TOKENS_EACH + 1):
            await store.expect("ada", b"one", number)
        assert not await store.redeem("ada", b"one", 0)
        assert await store.redeem("ada", b"one", 1)

    run(test())


def test_what_people_are_shown_is_made_quickly_of_whatever_is_called() -> None:
    much = [[[[0] * 50 for _ in range(50)] for _ in range(50)] for _ in range(8)]
    began = time.process_time()
    text = shown({"much": much, "path": "/etc/passwd"})
    assert time.process_time() - began < 5
    assert text.endswith('"path": "/etc/passwd"}')


def test_nothing_is_left_out_of_what_people_are_shown_without_a_word() -> None:
    names = [f"{'x' * 400}{middle}{'y' * 400}" for middle in "ab"]
    told = json.loads(shown({names[0]: "harmless", names[1]: "rm -rf /"}))
    assert sorted(told.values()) == ["harmless", "rm -rf /"]
    many = {"…": "rm -rf /", **{str(number): number for number in range(60)}}
    assert "rm -rf /" in json.loads(shown(many)).values() and "11 more" in shown(many)


def test_megabytes_of_arguments_are_bound_to_an_approval_quickly() -> None:
    much: Json = {"a": [[0] * 1_000 for _ in range(1_500)]}
    began = time.process_time()
    assert binding(much) == binding({"a": [[0] * 1_000 for _ in range(1_500)]})
    assert time.process_time() - began < 5
    assert binding({"a": 2**70}) != binding({"a": float(2**70)})
    assert binding({"a": "\ud800"}) != binding({"a": "\ud801"})
    assert binding({"a": 1, "b": 2}) == binding({"b": 2, "a": 1})
    assert len({binding({"a": value}) for value in (1, 1.0, "1", True, None, [1])}) == 6
