"""Reading what a server offers: all of it, as far as there is room (NAM-6, SEC-6, SRC-8)."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.loop import never_return, run
from mcpx.base.aio import at_once, in_slices
from mcpx.model.call import Json
from mcpx.model.errors import (
    METHOD_NOT_FOUND,
    SERVER_TIMEOUT,
    SERVER_TOO_LARGE,
    RpcError,
    Unavailable,
)
from mcpx.model.offer import Offers
from mcpx.upstreams import listing
from mcpx.upstreams.link import Link
from mcpx.upstreams.listing import Budget, weight
from mcpx.wire import codec, era

Answer = Callable[[Json], Awaitable[Json]]


class ScriptedLink:
    """A link that replies to list requests. Replies are set per method."""

    def __init__(
        self, answers: dict[str, Answer] | None = None, timeout: float = 5.0, **methods: Answer
    ) -> None:
        self.name, self.alive, self.modern = "toy", True, False
        self.terms = SimpleNamespace(capabilities={"tools": {}, "prompts": {}, "resources": {}})
        self.server = SimpleNamespace(timeout=timeout)
        self.asked: list[tuple[str, Json]] = []
        self._answers = answers or {f"{name}/list": answer for name, answer in methods.items()}

    async def ask(
        self, method: str, params: Json, timeout: float | None = None, capabilities: Any = None
    ) -> Json:
        self.asked.append((method, params))
        answer = self._answers.get(method)
        if answer is None:
            raise RpcError(METHOD_NOT_FOUND, method)
        try:
            async with asyncio.timeout(timeout):
                return await answer(params)
        except TimeoutError:
            raise Unavailable("toy", SERVER_TIMEOUT, f"no answer within {timeout:g} s") from None


def pages(*answers: Json) -> Answer:
    """A list method that gives these results by cursor: None, "1", "2", …"""

    async def lists(params: Json) -> Json:
        return dict(answers[int(params.get("cursor", "0"))])

    return lists


async def read(server: ScriptedLink, *kinds: Any, **how: Any) -> listing.Listed:
    account = how.pop("account", None) or Budget().account()
    return await listing.read(cast(Link, server), kinds or ("tools",), account, **how)


def listed(server: ScriptedLink, *kinds: Any, **how: Any) -> listing.Listed:
    return run(read(server, *kinds, **how))


def tools(count: int, size: int = 0, first: int = 0) -> list[Json]:
    return [{"name": f"t{first + n}", "description": "x" * size} for n in range(count)]


def endless(count: int, size: int = 0) -> Answer:
    async def lists(params: Json) -> Json:
        at = int(params.get("cursor", "0"))
        return {"tools": tools(count, size, at * count), "nextCursor": str(at + 1)}

    return lists


# --- whole lists


def test_pages_are_followed_to_the_end() -> None:
    """NAM-6."""
    three = pages(
        {"tools": [{"name": "a"}], "nextCursor": "1"},
        {"tools": [], "nextCursor": "2"},
        {"tools": [{"name": "b"}, {"name": "c"}]},
    )
    found = listed(ScriptedLink(tools=three))
    assert [tool["name"] for tool in found.offers["tools"]] == ["a", "b", "c"]
    assert found.notes == {"tools": ()} and not found.cut


@pytest.mark.parametrize(
    "page", [{}, {"tools": None}, {"tools": {}}, {"tools": "x", "nextCursor": 5}]
)
def test_a_page_that_is_no_list_has_nothing_in_it(page: Json) -> None:
    assert listed(ScriptedLink(tools=pages(page))).offers == {"tools": []}


def test_a_kind_the_server_does_not_declare_is_not_asked_for() -> None:
    server = ScriptedLink({})
    server.terms.capabilities = {"resources": {}}
    assert listed(server, "tools").offers == {"tools": []}
    assert listed(server, "templates").offers == {
        "templates": []
    }  # declared with resources, refused by the server
    assert [method for method, _ in server.asked] == ["resources/templates/list"]


def test_a_list_that_cannot_be_read_is_left_out_and_costs_no_other() -> None:
    """SRC-8."""

    async def broken(params: Json) -> Json:
        raise RpcError(-32603, "oops")

    for answer in (broken, never_return):
        found = listed(
            ScriptedLink(tools=pages({"tools": tools(1)}), prompts=answer, timeout=0.3),
            "tools",
            "prompts",
        )
        assert found.offers == {"tools": tools(1)}
        assert "its prompts could not be listed" in found.notes["prompts"][0]


def test_what_cannot_be_written_is_too_large_or_has_too_long_a_name_goes_alone_and_is_counted() -> (
    None
):
    """SRC-8: one infinity in one definition must not cost anybody the whole list."""
    infinite = codec.load(b'{"name": "i", "n": 1e999}')
    large = {"name": "large", "description": "x" * listing.LARGEST}
    page = {
        "tools": [
            *tools(1),
            infinite,
            infinite,
            large,
            {"name": "n" * (listing.LONGEST_NAME + 1)},
            {"name": "z"},
        ]
    }
    found = listed(ScriptedLink(tools=pages(page)))
    assert [tool["name"] for tool in found.offers["tools"]] == ["t0", "z"]
    told = " ".join(found.notes["tools"])
    assert "2 of its tools left out: they cannot be written" in told
    assert "1 of its tools left out: they have more than 1,048,576 bytes" in told
    assert "1 of its tools left out: they have names" in told


# --- lists without an end


def test_a_server_that_pages_in_circles_is_stopped() -> None:
    """NAM-6."""
    circle = pages({"tools": [1], "nextCursor": "1"}, {"tools": [2], "nextCursor": "1"})
    found = listed(ScriptedLink(tools=circle))
    assert found.offers["tools"] == [1, 2]
    assert "the same cursor" in found.notes["tools"][0]


def test_a_server_that_pages_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """NAM-6."""
    monkeypatch.setattr(listing, "PAGES", 20)
    found = listed(ScriptedLink(tools=endless(1)))
    assert len(found.offers["tools"]) == 20
    assert "does not end" in found.notes["tools"][0]


def test_no_more_than_so_many_items_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6."""
    monkeypatch.setattr(listing, "ITEMS", 5)
    server = ScriptedLink(tools=endless(3))
    found = listed(server)
    assert len(found.offers["tools"]) == 5 and found.cut
    assert found.notes["tools"] == ("its tools are cut after 5: more than 5",)
    assert len(server.asked) == 2


def test_ten_thousand_tools_are_all_taken() -> None:
    found = listed(ScriptedLink(tools=pages({"tools": tools(10_000, 1_000)})))
    assert len(found.offers["tools"]) == 10_000 and not found.cut


def test_pages_are_bounded_in_bytes_and_what_came_until_then_is_kept() -> None:
    """SEC-6: a thousand pages of a megabyte each are a gigabyte."""
    server = ScriptedLink(tools=endless(2, 500_000))
    found = listed(server)
    assert found.cut and "48 MiB" in found.notes["tools"][0]
    assert 40 < len(server.asked) < 60
    assert 80 < len(found.offers["tools"]) < 120


def test_what_stands_on_a_page_beside_the_list_counts_as_well() -> None:
    async def junk(params: Json) -> Json:
        at = int(params.get("cursor", "0"))
        return {"tools": tools(1, 0, at), "junk": "x" * 8_000_000, "nextCursor": str(at + 1)}

    server = ScriptedLink(tools=junk)
    assert "48 MiB" in listed(server).notes["tools"][0]
    assert len(server.asked) < 10


def test_small_things_count_as_what_they_take_in_memory() -> None:
    """SEC-6: three bytes of JSON can be an object of seventy."""
    nested = {"name": "n", "inputSchema": [{}] * 100_000}
    found = listed(
        ScriptedLink(tools=pages({"tools": [{**nested, "name": str(n)} for n in range(50)]}))
    )
    assert found.cut and len(found.offers["tools"]) < 10


@pytest.mark.parametrize("item", [None, {}, codec.load(b"[1e999]")])
def test_a_million_empty_items_on_one_page_are_not_all_looked_at(item: Any) -> None:
    found = listed(ScriptedLink(tools=pages({"tools": [item] * 1_000_000})))
    assert found.cut and len(found.offers["tools"]) <= listing.ITEMS


def test_a_cursor_of_megabytes_ends_the_list() -> None:
    server = ScriptedLink(tools=pages({"tools": tools(2), "nextCursor": "1" * 2_000_000}))
    found = listed(server)
    assert found.offers["tools"] == tools(2)
    assert "cursor" in found.notes["tools"][0] and len(found.notes["tools"][0]) < 200
    assert len(server.asked) == 1


def test_listing_has_a_time_limit_for_all_pages_together() -> None:
    """LIF-6: `timeout` bounds listing, not each page."""

    async def dripping(params: Json) -> Json:
        await asyncio.sleep(0.05)
        at = int(params.get("cursor", "0"))
        return {"tools": tools(1, 0, at), "nextCursor": str(at + 1)}

    found = listed(ScriptedLink(tools=dripping, timeout=0.4))
    assert 1 <= len(found.offers["tools"]) <= 8 and found.cut


@pytest.mark.parametrize("code", [SERVER_TIMEOUT, SERVER_TOO_LARGE])
def test_a_later_page_that_hangs_or_is_too_large_does_not_cost_the_earlier_ones(code: int) -> None:
    async def half(params: Json) -> Json:
        if params:
            raise Unavailable("toy", code, "the answer is no good")
        return {"tools": tools(3), "nextCursor": "1"}

    found = listed(ScriptedLink(tools=half))
    assert found.offers["tools"] == tools(3)
    assert found.notes["tools"] == ("its tools are cut after 3: page 2: the answer is no good",)


# --- one budget for all


def test_the_server_that_goes_over_the_budget_of_all_is_cut_and_not_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6."""
    monkeypatch.setattr(listing, "ITEMS_IN_ALL", 1_000)
    together = Budget()
    first, second, third = (together.account() for _ in range(3))
    assert not listed(ScriptedLink(tools=pages({"tools": tools(700)})), account=first).cut
    over = listed(ScriptedLink(tools=pages({"tools": tools(700)})), account=second)
    assert len(over.offers["tools"]) == 300
    assert "all servers together have 1,000" in over.notes["tools"][0]
    # Whatever others took, a small one has its place.
    small = listed(
        ScriptedLink(tools=pages({"tools": tools(listing.ITEMS_IN_ANY_CASE)})), account=third
    )
    assert not small.cut
    # What is given back is there for the others.
    first.close()
    assert not listed(ScriptedLink(tools=pages({"tools": tools(700)})), account=second).cut


def test_all_servers_together_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6."""
    monkeypatch.setattr(listing, "BYTES_IN_ALL", 3 * 2**20)
    together = Budget()
    big = pages({"tools": tools(100, 20_000)})
    assert not listed(ScriptedLink(tools=big), account=together.account()).cut
    over = listed(ScriptedLink(tools=big), account=together.account())
    assert over.cut and "all servers together take 3 MiB" in over.notes["tools"][0]


def test_a_list_that_is_read_again_takes_the_place_of_the_one_before() -> None:
    account = Budget().account()
    big = ScriptedLink(tools=pages({"tools": tools(1_000, 40_000)}))
    for _ in range(5):
        assert not listed(big, account=account).cut

    async def broken(params: Json) -> Json:
        raise RpcError(-32603, "oops")

    for _ in range(5):
        listed(ScriptedLink(tools=broken), account=account)
    assert not listed(big, account=account).cut
    assert listed(big, account=account, whose="somebody").cut  # beside the one of everybody


def test_a_definition_that_is_known_is_the_same_object_and_costs_some_clients_next_to_nothing() -> (
    None
):
    """So that comparing lists, and lists for many sessions, are cheap."""
    account = Budget().account()
    big = ScriptedLink(tools=pages({"tools": tools(1_000, 30_000)}))
    known: Offers = listed(big, account=account).offers
    more = ScriptedLink(tools=pages({"tools": [*tools(1_000, 30_000), {"name": "own"}]}))
    for session in ("one", "two", "three"):
        found = listed(more, account=account, whose=session, known=known)
        assert not found.cut
        assert all(
            one is other for one, other in zip(found.offers["tools"], known["tools"], strict=False)
        )
        assert found.offers["tools"][-1] == {"name": "own"}


def test_the_weight_of_a_definition_is_about_what_it_takes() -> None:
    assert weight(b'"' + b"x" * 1_000 + b'"') == pytest.approx(1_050, rel=0.1)
    assert weight(codec.dump([{}] * 1_000)) > 64_000


# --- in slices


def test_reading_many_definitions_lets_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)

    async def main() -> None:
        server = ScriptedLink(tools=pages({"tools": tools(5_000)}))
        reading = asyncio.create_task(read(server))
        between = 0
        while not reading.done():
            between += 1
            await asyncio.sleep(0)
        assert between > 100

    run(main())


def test_work_in_slices_ends_as_it_would_at_once() -> None:
    def work():
        yield
        yield
        return 7

    assert at_once(work()) == run(in_slices(work())) == 7


def test_tools_that_ask_wrongly_for_headers_are_counted() -> None:
    bad = {
        "name": "bad",
        "inputSchema": {"properties": {"a": {"type": "object", "x-mcp-header": "A"}}},
    }
    good = {
        "name": "good",
        "inputSchema": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}},
    }
    annotations: dict[str, era.ParamHeaders] = {}
    link = SimpleNamespace(modern=True)
    assert at_once(listing.with_headers(cast(Link, link), [bad, good], annotations)) == ([good], 1)
    assert list(annotations) == ["good"]
