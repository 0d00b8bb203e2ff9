"""Pages of a list that is already complete."""

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpx.catalog.catalog import Catalog, Source
from mcpx.catalog.naming import Naming
from mcpx.model.errors import INVALID_PARAMS, RpcError

# How long a busy machine takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def listing(number: int) -> Catalog:
    return Catalog.build(
        [Source("s", None, {"tools": [{"name": f"t{n}"} for n in range(number)]})], Naming()
    )


def cursor(fields: Any) -> str:
    return base64.b64encode(json.dumps(fields).encode()).decode()


def test_without_a_limit_a_list_is_one_page() -> None:
    """NAM-6"""
    catalog = listing(2_000)
    found, following = catalog.page("tools", None, None)
    assert [entry["name"] for entry in found] == [f"t{n}" for n in range(2_000)]
    assert following is None
    assert catalog.page("prompts", None, 5) == ([], None)


def test_a_cursor_is_base64_of_an_offset() -> None:
    """NAM-6"""
    _, following = listing(5).page("tools", None, 2)
    assert following is not None
    assert json.loads(base64.b64decode(following)) == {"offset": 2}


@calmly
@given(st.integers(0, 30), st.integers(1, 40))
def test_the_pages_put_together_are_the_list(number: int, limit: int) -> None:
    """NAM-6"""
    catalog = listing(number)
    names: list[str] = []
    following = None
    for _ in range(number + 1):
        found, following = catalog.page("tools", following, limit)
        assert len(found) <= limit
        names += [entry["name"] for entry in found]
        if following is None:
            break
    assert following is None
    assert names == [f"t{n}" for n in range(number)]


def test_a_cursor_past_the_end_of_a_list_that_got_shorter_gives_an_empty_last_page() -> None:
    """NAM-6"""
    _, following = listing(9).page("tools", None, 8)
    assert listing(3).page("tools", following, 8) == ([], None)
    assert listing(3).page("tools", cursor({"offset": 10**30}), 10**30) == ([], None)


@pytest.mark.parametrize(
    "bad",
    [
        *("", "x", "!", "é", "\ud800", 0, 5, True, [], {}, "A" * 10_000),
        *map(
            cursor,
            ({}, [], None, {"offset": -1}, {"offset": "1"}, {"offset": True}, {"offset": 1.0}),
        ),
    ],
    ids=repr,
)
def test_a_cursor_that_is_none_of_ours_is_refused_in_clear_words(bad: Any) -> None:
    """NAM-6"""
    with pytest.raises(RpcError, match="Invalid cursor") as caught:
        listing(3).page("tools", bad, None)
    assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, 1.0, "1", [], {}], ids=repr)
def test_a_limit_that_is_no_whole_number_above_zero_is_refused_in_clear_words(bad: Any) -> None:
    """NAM-6"""
    with pytest.raises(RpcError, match="Invalid limit") as caught:
        listing(3).page("tools", None, bad)
    assert caught.value.code == INVALID_PARAMS
