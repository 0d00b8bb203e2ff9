"""SCA-1: the merge of one shared file at two replicas, without a store."""

import re

from mcpx.model.call import Json
from mcpx.replicas.merge_rules import Whole

RULE = Whole("auth", re.compile(".*"), 8, 1 << 10)


def test_a_file_that_was_removed_does_not_come_back_from_another_replica() -> None:
    """SCA-1: neither from an old copy nor from a change that was made without knowledge of the
    removal."""
    written = RULE.taken(b"one", 1.0, {})
    assert written is not None
    known = RULE.remembered(written)
    removed = RULE.taken(None, 2.0, known)
    changed: Json | None = written
    for number in range(3):
        assert removed is not None and changed is not None
        for mine, theirs in ((removed, changed), (changed, removed)):
            assert RULE.rendered(RULE.merged(mine, theirs), b"one") is None
        changed = RULE.taken(f"changed {number}".encode(), 3.0, RULE.remembered(changed))


def test_a_file_that_is_written_after_its_removal_is_a_new_file() -> None:
    """SCA-1"""
    written = RULE.taken(b"one", 1.0, {})
    assert written is not None
    removed = RULE.taken(None, 2.0, RULE.remembered(written))
    assert removed is not None
    again = RULE.taken(b"two", 3.0, RULE.remembered(removed))
    assert again is not None
    for mine, theirs in ((again, removed), (removed, again), (again, written)):
        assert RULE.rendered(RULE.merged(mine, theirs), None) == b"two"
