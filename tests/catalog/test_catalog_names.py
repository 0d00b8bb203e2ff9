"""Many servers in one catalog: nobody shadows anybody, whatever they send."""

import copy
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.cost import cost_ratio, count_steps
from mcpx.catalog.catalog import Catalog, Source
from mcpx.catalog.naming import Naming, tagged_name
from mcpx.model.offer import KINDS, Kind

# How long a busy machine takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NAMED: tuple[Kind, ...] = ("tools", "prompts")
ALLOWED = {"_": re.compile(r"[A-Za-z0-9_.-]+"), "::": re.compile(r"(?:[A-Za-z0-9_.-]|::)+")}


def tools(server: str, *names: str, prefix: str | None = None) -> Source:
    return Source(server, prefix, {"tools": [{"name": name} for name in names]})


def shown(catalog: Catalog, kind: Kind = "tools") -> list[tuple[str, str, str]]:
    return [(offer.server, offer.name, offer.public) for offer in catalog.offers[kind]]


# Few letters, so that servers, prefixes and names run into each other all the time.
WORDS = st.one_of(st.text("ab_ :", min_size=1, max_size=4), st.text(min_size=1, max_size=80))
JUNK = st.one_of(
    st.none(), st.integers(), st.just({}), st.just({"name": ""}), st.just({"name": 3, "uri": []})
)
ENTRIES = st.lists(
    st.one_of(WORDS.map(lambda word: {"name": word, "uri": word, "uriTemplate": word}), JUNK),
    max_size=6,
)
SOURCES = st.lists(
    st.builds(
        Source,
        st.text("ab_", min_size=1, max_size=3),
        st.one_of(st.none(), st.text("ab_ ", max_size=2)),
        st.fixed_dictionaries({}, optional=dict.fromkeys(KINDS, ENTRIES)),
        st.booleans(),
    ),
    max_size=5,
    unique_by=lambda source: source.server,
)
NAMINGS = st.builds(
    Naming,
    separator=st.sampled_from(["_", "::"]),
    prefix=st.sampled_from(["configured", "always"]),
    uris=st.sampled_from(["wrapped", "plain"]),
    max_length=st.sampled_from([16, 64]),
)


ALWAYS = Naming(prefix="always")


def test_a_name_with_and_without_its_servers_leads_to_two_tools() -> None:
    """NAM-2: in whatever order they are listed."""
    for names in (
        ("status", "git_status", "git_git_status"),
        ("git_git_status", "git_status", "status"),
    ):
        catalog = Catalog.build([tools("git", *names)], ALWAYS)
        found = {native: public for _, native, public in shown(catalog)}
        assert found == {
            "status": "git_status",
            "git_status": "git_git_status",
            "git_git_status": "git_git_git_status",
        }
        assert catalog.warnings == ()


def test_a_name_that_was_given_stays_when_its_short_form_comes_or_goes() -> None:
    """NAM-1, NAM-2"""
    before = Catalog.build([tools("git", "git_status")], ALWAYS)
    assert before.names() == {("tools", "git", "git_status"): "git_status"}
    after = Catalog.build([tools("git", "status", "git_status")], ALWAYS, before.names())
    (_, _, short), (_, _, long) = shown(after)
    assert long == "git_status" and short.startswith("git_status_")
    both = Catalog.build([tools("git", "status", "git_status")], ALWAYS)
    alone = Catalog.build([tools("git", "git_status")], ALWAYS, both.names())
    assert [public for _, _, public in shown(alone)] == ["git_git_status"]


SELF_NAMED = st.lists(st.text("a_-", min_size=1, max_size=7), unique=True, max_size=8)


@calmly
@given(SELF_NAMED, SELF_NAMED, st.randoms())
def test_names_that_repeat_their_server_stay_apart_lead_back_and_do_not_depend_on_the_order(
    ours: list[str], theirs: list[str], chance: Any
) -> None:
    """NAM-1, NAM-2: of one server no two want the same name, so the order it lists them in does not
    matter."""
    alone = {
        native: public for _, native, public in shown(Catalog.build([tools("a", *ours)], ALWAYS))
    }
    mixed = list(ours)
    chance.shuffle(mixed)
    assert {
        native: public for _, native, public in shown(Catalog.build([tools("a", *mixed)], ALWAYS))
    } == alone
    assert all(public.startswith("a") for public in alone.values())
    catalog = Catalog.build([tools("a", *ours), tools("a_a", *theirs)], ALWAYS)
    assert {native: public for server, native, public in shown(catalog) if server == "a"} == alone
    for offer in catalog.offers["tools"]:
        assert catalog.find("tools", offer.public) is offer
    more = Catalog.build([tools("a", *theirs, *(set(ours) - set(theirs)))], ALWAYS, catalog.names())
    kept = {native: public for _, native, public in shown(more)}
    assert all(kept[native] == public for native, public in alone.items())


def test_the_first_server_keeps_the_plain_name_and_the_others_are_told_apart() -> None:
    """NAM-1"""
    catalog = Catalog.build([tools("a", "x"), tools("b", "x", "y"), tools("c", "x")], Naming())
    assert [public for _, _, public in shown(catalog)] == ["x", "b_x", "y", "c_x"]
    assert [line.partition(":")[0] for line in catalog.warnings] == ["b", "c"]
    assert "'x' is b_x" in catalog.warnings[0]


def test_the_separator_is_used_for_those_told_apart_too() -> None:
    """NAM-1, NAM-2"""
    catalog = Catalog.build([tools("a", "x"), tools("b", "x")], Naming(separator="::"))
    assert [public for _, _, public in shown(catalog)] == ["x", "b::x"]


def test_when_the_servers_name_does_not_tell_apart_either_a_tag_does() -> None:
    """NAM-1"""
    catalog = Catalog.build([tools("a_b", "c"), tools("a", "b_c")], Naming(prefix="always"))
    first, second = (public for _, _, public in shown(catalog))
    assert first == "a_b_c"
    assert re.fullmatch(r"a_b_c_[0-9a-f]{6}", second)


def test_a_server_that_takes_the_names_of_another_in_advance_gets_nowhere() -> None:
    """NAM-1, threats: names"""
    naming = Naming()
    foreseen = ["x", "b_x", tagged_name("b_x", "b\0x", naming)]
    foreseen += [tagged_name("b_x", f"b\0x\0{attempt}", naming) for attempt in range(1, 500)]
    catalog = Catalog.build([tools("a", *foreseen), tools("b", "x")], naming)
    assert len({public for _, _, public in shown(catalog)}) == len(foreseen) + 1


def test_a_name_that_was_given_stays_against_a_server_earlier_in_the_config() -> None:
    """NAM-1"""
    before = Catalog.build([tools("a"), tools("b", "x")], Naming())
    after = Catalog.build([tools("a", "x"), tools("b", "x")], Naming(), before.names())
    assert shown(after) == [("a", "x", "a_x"), ("b", "x", "x")]
    assert len(after.warnings) == 1
    assert "'b' has the name" in after.warnings[0]


def test_a_name_that_was_given_stays_when_the_reason_for_it_is_gone() -> None:
    """NAM-1"""
    before = Catalog.build([tools("a", "x"), tools("b", "x")], Naming())
    after = Catalog.build([tools("a"), tools("b", "x")], Naming(), before.names())
    assert shown(after) == [("b", "x", "b_x")]
    assert "as it was before" in after.warnings[0]


def test_a_collision_is_told_as_long_as_it_lasts() -> None:
    """NAM-1"""
    sources = [tools("a", "x"), tools("b", "x")]
    before = Catalog.build(sources, Naming())
    assert Catalog.build(sources, Naming(), before.names()).warnings == before.warnings


def test_a_name_that_the_present_settings_could_not_make_is_not_kept() -> None:
    """NAM-1"""
    remembered: dict[tuple[Kind, str, str], str] = {("tools", "b", "x"): "x"}
    prefixed = Catalog.build([tools("b", "x", prefix="p")], Naming(), remembered)
    assert shown(prefixed) == [("b", "x", "p_x")]
    broken: dict[tuple[Kind, str, str], str] = {("tools", "b", "x"): "no good"}
    assert shown(Catalog.build([tools("b", "x")], Naming(), broken)) == [("b", "x", "x")]


def test_a_name_given_twice_goes_to_the_first_in_the_config() -> None:
    """NAM-1"""
    twice: dict[tuple[Kind, str, str], str] = {("tools", "a", "x"): "x", ("tools", "b", "x"): "x"}
    catalog = Catalog.build([tools("a", "x"), tools("b", "x")], Naming(), twice)
    assert [public for _, _, public in shown(catalog)] == ["x", "b_x"]


def test_a_tool_and_a_prompt_may_share_a_name() -> None:
    """NAM-1"""
    source = Source("a", None, {"tools": [{"name": "x"}], "prompts": [{"name": "x"}]})
    catalog = Catalog.build([source], Naming())
    assert shown(catalog, "tools") == shown(catalog, "prompts") == [("a", "x", "x")]
    assert catalog.warnings == ()


@calmly
@given(SOURCES, NAMINGS)
def test_names_and_offers_are_one_to_one_whatever_servers_send(
    sources: list[Source], naming: Naming
) -> None:
    """NAM-1, NAM-5, threats: names"""
    catalog = Catalog.build(sources, naming)
    for kind in KINDS:
        publics = [offer.public for offer in catalog.offers[kind]]
        assert len(set(publics)) == len(publics)
        for offer in catalog.offers[kind]:
            assert catalog.find(kind, offer.public) is offer
            assert catalog.native(kind, offer.server, offer.name) is offer
            if kind in NAMED:
                assert ALLOWED[naming.separator].fullmatch(offer.public)
                assert len(offer.public) <= naming.max_length
    for kind in NAMED:
        sent = {
            (source.server, entry["name"])
            for source in sources
            for entry in source.definitions.get(kind, ())
            if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"]
        }
        assert {(offer.server, offer.name) for offer in catalog.offers[kind]} == sent


@calmly
@given(SOURCES, NAMINGS)
def test_the_order_is_the_configs_and_then_the_servers_own(
    sources: list[Source], naming: Naming
) -> None:
    """NAM-6"""
    catalog = Catalog.build(sources, naming)
    servers = [source.server for source in sources]
    for kind in KINDS:
        places = [servers.index(offer.server) for offer in catalog.offers[kind]]
        assert places == sorted(places)
    for source in sources:
        sent = [
            entry.get("name")
            for entry in source.definitions.get("tools", ())
            if isinstance(entry, dict)
        ]
        listed = [offer.name for offer in catalog.offers["tools"] if offer.server == source.server]
        assert [sent.index(name) for name in listed] == sorted(sent.index(name) for name in listed)


@calmly
@given(SOURCES, NAMINGS)
def test_the_same_sources_give_the_same_catalog(sources: list[Source], naming: Naming) -> None:
    """NAM-1"""
    first, second = (Catalog.build(copy.deepcopy(sources), naming) for _ in range(2))
    assert first.offers == second.offers
    assert first.warnings == second.warnings


@calmly
@given(SOURCES, NAMINGS)
def test_a_server_added_at_the_end_renames_nobody(sources: list[Source], naming: Naming) -> None:
    """NAM-1"""
    for kind in NAMED:
        fewer = shown(Catalog.build(sources[:-1], naming), kind)
        assert shown(Catalog.build(sources, naming), kind)[: len(fewer)] == fewer


@calmly
@given(SOURCES, NAMINGS, st.randoms(use_true_random=False), st.data())
def test_names_that_were_given_stay_through_any_change(
    sources: list[Source], naming: Naming, random: Any, data: st.DataObject
) -> None:
    """NAM-1"""
    before = Catalog.build(sources, naming).names()
    changed = [*sources, *data.draw(SOURCES)]
    changed = list({source.server: source for source in reversed(changed)}.values())
    random.shuffle(changed)
    catalog = Catalog.build(changed, naming, before)
    after = catalog.names()
    kept = before.keys() & after.keys()
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    for kind in NAMED:
        assert len({offer.public for offer in catalog.offers[kind]}) == len(catalog.offers[kind])


@pytest.mark.parametrize("collide", [False, True], ids=["apart", "colliding"])
def test_merging_is_linear_up_to_ten_thousand_tools(collide: bool) -> None:
    """NAM-1: whether or not servers take each other's names."""

    def sources(each: int) -> list[Source]:
        names = [
            [f"{'' if collide else number}tool_{index}" for index in range(each)]
            for number in range(10)
        ]
        return [tools(f"server{number}", *found) for number, found in enumerate(names)]

    few, many = sources(100), sources(1_000)
    once = count_steps(lambda: Catalog.build(few, Naming()))
    assert count_steps(lambda: Catalog.build(many, Naming()), 11 * once) > 5 * once
    times = cost_ratio(lambda: Catalog.build(few, Naming()), lambda: Catalog.build(many, Naming()))
    assert times < 4 * 10, (
        "ten times the tools; names looked for in a list would take some seventy times as long"
    )
    catalog = Catalog.build(many, Naming())
    assert len({offer.public for offer in catalog.offers["tools"]}) == 10_000
    assert len(catalog.warnings) <= 10
