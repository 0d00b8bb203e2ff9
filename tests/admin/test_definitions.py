"""Definitions side by side: nothing in them is unseen or passes for something else, nothing takes
long (SEC-5)."""

import re
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.admin.routes.approvals import LEFT_OUT, as_text, held, unified
from mcpx.policy.pins.fingerprint import fingerprint

WORDS = st.text('ab\n"\\{}: \u200b', max_size=30)
DEFINITIONS = st.dictionaries(
    st.sampled_from(["name", "description", "x"]), WORDS | st.lists(WORDS, max_size=5)
)


def applied(diff: str, sign: str) -> list[str]:
    return [
        line[1:]
        for line in diff.split("\n")[2:]
        if line[:1] in (sign, " ") and not line.startswith("@@")
    ]


@settings(deadline=None)
@given(DEFINITIONS, DEFINITIONS)
def test_the_difference_of_two_is_what_stands_in_them(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    old, new = as_text(before), as_text(after)
    assert "\u200b" not in old + new
    diff = unified(old, new)
    for sign, text in (("-", old), ("+", new)):
        lines, at = text.split("\n"), 0
        for line in applied(
            diff, sign
        ):  # in order, though not all of it: only what differs, and around it
            at = lines.index(line, at) + 1
    assert (diff == "") is (old == new)
    for begin, number in re.findall(r"^@@ -(\d+)(?:,(\d+))? ", diff, re.MULTILINE):
        assert int(begin) + int(number or 1) - 1 <= len(old.split("\n"))


def test_a_text_does_not_pass_for_a_field() -> None:
    """Its lines stand further in, and its quotes are escaped."""
    text = as_text({"description": 'fine",\n  "annotations": {"readOnlyHint": true}'})
    assert text.split("\n")[1:3] == [
        '  "description": "fine\\",\\n',
        '        \\"annotations\\": {\\"readOnlyHint\\": true}"',
    ]


def entry(
    number: int, definition: dict[str, Any], before: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "kind": "tools",
        "name": f"t{number}",
        "fingerprint": fingerprint(definition),
        "how": "new" if before is None else "changed",
        "for_some": False,
        "hints": ["has characters that cannot be seen: <U+200B ZERO WIDTH SPACE>"],
        "before": before,
        "after": definition,
    }


def test_whatever_servers_send_it_does_not_take_long_and_what_is_too_much_is_said() -> None:
    lines = [f"{n % 7}\u200b" for n in range(20_000)]
    large = {"name": "t", "description": "\n".join(lines)}
    other = {"name": "t", "description": "\n".join(reversed(lines))}
    small = [entry(n, {"name": f"t{n}", "description": "x\u200b"}) for n in range(1_000)]
    server = {
        "name": "box",
        "state": "pinned",
        "waiting": [entry(0, other, large), *small, entry(1, other, large)],
    }
    began = time.process_time()
    told = held([server])
    assert time.process_time() - began < 10
    assert len(told) == 1_002 and told[-1].diff == LEFT_OUT and told[-1].fingerprint
    assert told[1].after == {"name": "t0", "description": "x<U+200B ZERO WIDTH SPACE>"}
    assert told[1].marks[0].where == "description"
