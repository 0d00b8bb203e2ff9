"""Profiles and rules as the admin API tells of them."""

from typing import Any, get_args
from urllib.parse import quote, urlsplit, urlunsplit

from mcpx.admin.desk import Desk
from mcpx.admin.entries import place_of
from mcpx.admin.shapes.common import Place
from mcpx.admin.shapes.guarding import PolicyTold, ProfileRow, Profiles, RuleTold
from mcpx.config.written import Written
from mcpx.model.call import Caller, Json, as_list, as_object
from mcpx.policy.rules import Effect


async def profiles(desk: Desk, written: Written) -> Profiles:
    """Each with what is seen through it now."""
    rows = [
        await _profile(desk, entry.name, entry.value, place_of(entry))
        for entry in written.entries("profiles")
    ]
    return Profiles(profiles=rows, default=await _profile(desk, None, {}, None))


async def _profile(desk: Desk, name: str | None, entry: Json, place: Place | None) -> ProfileRow:
    gateway = desk.gateway
    catalog = await gateway.catalogs.seen(gateway.sight(Caller(profile=name)))
    seen = [
        source
        for source in gateway.generation.sources
        if source.enabled and catalog.knows(source.name)
    ]
    path = "/mcp" if name is None else f"/p/{quote(name, safe='')}/mcp"
    mode = entry.get("mode") if name is not None else gateway.generation.config.mode
    tokens = entry.get("tokens")
    return ProfileRow(
        name=name or "",
        path=path,
        url=_url(desk.about().url, path),
        mode=mode if isinstance(mode, str) else None,
        servers=sum(not source.local for source in seen),
        tools=sum(catalog.count(source.name, "tools") for source in seen),
        tokens=[str(each) for each in as_list(tokens)] if tokens is not None else None,
        entry=entry,
        source=place,
    )


def _url(base: str | None, path: str) -> str | None:
    return None if base is None else urlunsplit(urlsplit(base)._replace(path=path))


def policy(desk: Desk, written: Written) -> PolicyTold:
    running = desk.gateway.generation.config.policy
    value: Any = written.section("policy")
    entry = as_object(value)
    rules = [as_object(each) for each in as_list(entry.get("rules"))]
    # What a reference stands for is known to what runs, while both have as many rules.
    effects: list[Effect] = (
        [rule.effect for rule in running.rules] if len(rules) == len(running.rules) else []
    )
    told = [
        RuleTold(
            number=index + 1,
            effect=effects[index] if effects else _effect(rule.get("effect")),
            entry=rule,
            source=_place(written, index),
        )
        for index, rule in enumerate(rules)
    ]
    default = entry.get("default")
    return PolicyTold(
        default=default if default in ("allow", "deny") else running.default,
        rules=told,
        entry=entry,
    )


def _effect(given: Any) -> Effect:
    return given if given in get_args(Effect) else "deny"


def _place(written: Written, rule: int) -> Place | None:
    found = written.place(("policy", "rules", rule))
    return None if found is None else Place(file=str(found[0]), line=found[1])
