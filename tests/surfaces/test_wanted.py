"""SUR-12, SUR-9: what an argument lists, how room is shared, and what a name may mean."""

import asyncio
from typing import Any

import pytest

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.naming import Naming
from mcpx.model.offer import Offer
from mcpx.surfaces.mistakes import Meanings, Mistake, near
from mcpx.surfaces.several_names import fair_share, wanted

KNOWN = {"git", "memory", "a, b", "[x]"}


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("git", "git"),
        (" git ", "git"),
        ("git, memory", ["git", "memory"]),
        ("git,,memory", "git,,memory"),
        ("git, unknown", "git, unknown"),
        ("a, b", "a, b"),
        ("[x]", "[x]"),
        ('["git"]', ["git"]),
        ('["git", "git", "read a file"]', ["git", "read a file"]),
        ("[git]", "[git]"),
        ("read, write and more", "read, write and more"),
        (["memory", "git", "memory"], ["memory", "git"]),
    ],
)
def test_an_argument_names_one_or_several(value: Any, names: Any) -> None:
    assert wanted(value, "server_name", KNOWN.__contains__) == names


@pytest.mark.parametrize(
    "value", ["", " ", [], [""], [1], [None], None, 5, {}, True, "[1]", "[]", ["a"] * 21]
)
def test_what_names_nothing_is_a_mistake_that_says_where(value: Any) -> None:
    with pytest.raises(Mistake, match="server_name"):
        wanted(value, "server_name", KNOWN.__contains__)


@pytest.mark.parametrize(
    ("sizes", "room", "most"),
    [
        ([10, 10], 100, 0),
        ([100, 10], 60, 50),
        ([100, 100], 60, 30),
        ([5, 100, 100], 65, 30),
        ([0], 0, 0),
    ],
)
def test_what_short_ones_leave_goes_to_the_others(sizes: list[int], room: int, most: int) -> None:
    share = fair_share(sizes, room)
    if sum(sizes) > room:
        assert share == most and sum(min(size, share) for size in sizes) <= room


def catalog(*tools: tuple[str, str, str]) -> Catalog:
    offers = [Offer("tools", server, name, public, {}) for server, name, public in tools]
    return Catalog({"tools": offers}, [server for server, _, _ in tools], Naming())


def meant(known: Catalog, name: str) -> list[str]:
    return [offer.public for offer in asyncio.run(Meanings().of(known, name))]


def test_the_exact_name_comes_before_one_that_is_only_alike() -> None:
    known = catalog(
        ("git", "log", "git_log"), ("Git", "Log", "Git_Log"), ("x", "git_log", "x_git_log")
    )
    assert meant(known, "Git.Log") == ["Git_Log"]
    assert meant(known, "git_log") == ["git_log", "x_git_log"]
    assert meant(known, "GIT_LOG") == ["git_log", "Git_Log", "x_git_log"]


@pytest.mark.parametrize(
    "name", ["", " ", "___", "...", "x" * 10_000, "mcp__", "mcp_", "a" * 299 + "._"]
)
def test_what_is_no_name_means_nothing(name: str) -> None:
    assert meant(catalog(("git", "log", "git_log"), ("odd", "-", "odd_-")), name) == []


def test_ten_thousand_tools_are_sorted_once_and_others_have_their_turn() -> None:
    known = catalog(*((f"s{n % 50}", f"tool-{n}", f"s{n % 50}_tool-{n}") for n in range(10_000)))

    async def main() -> None:
        meanings, turns = Meanings(), 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        assert [offer.public for offer in await meanings.of(known, "Tool_77")] == ["s27_tool-77"]
        assert turns > 2
        turns = 0
        assert len(await meanings.of(known, "mcp__s1__tool_51")) == 1 and turns == 0
        beside.cancel()

    asyncio.run(main())


def test_near_names_are_few_and_near() -> None:
    assert near("gti", ["git", "memory"], 0.6) == ["git"]
    assert near("email", ["git", "memory"], 0.6) == []
    assert len(near("tool", [f"tool{n}" for n in range(5_000)])) == 5
