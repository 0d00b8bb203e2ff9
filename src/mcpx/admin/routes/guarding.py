"""Profiles and policy over the admin API, and whether a caller could call a tool."""

import asyncio
from dataclasses import replace
from typing import Any, get_args
from urllib.parse import quote, urlsplit, urlunsplit

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError
from mcpx.admin.routes import given
from mcpx.admin.routes.given import WRITES, Change, refusal
from mcpx.admin.shapes.common import Place, Preview, Written
from mcpx.admin.shapes.guarding import (
    PolicyGiven,
    PolicyTold,
    ProfileRow,
    Profiles,
    Question,
    RuleTold,
    Verdict,
)
from mcpx.admin.toolbox import missing_error
from mcpx.config import Config, Policy
from mcpx.config.edits import SetSection
from mcpx.config.written import Written as Files
from mcpx.core.missing import Several, assumed, found, near, outside
from mcpx.model.call import Caller, Json, as_list, as_object
from mcpx.model.errors import ConfigError, McpxError
from mcpx.model.offer import Offer
from mcpx.policy.explain import explain_call
from mcpx.policy.rules import Effect
from mcpx.policy.state import PolicyState
from mcpx.policy.warden import Warden


async def _profiles(desk: Desk, written: Files) -> Profiles:
    """Each with what is seen through it now."""
    rows = [
        await _profile(desk, entry.name, entry.value, given.place_of(entry))
        for entry in written.entries("profiles")
    ]
    return Profiles(profiles=rows, default=await _profile(desk, None, {}, None))


async def _profile(desk: Desk, name: str | None, entry: Json, place: Place | None) -> ProfileRow:
    gateway = desk.gateway
    catalog = await gateway.catalogs.seen(gateway.access.sight(Caller(profile=name)))
    seen = [
        source
        for source in gateway.generation.sources
        if source.enabled and catalog.knows(source.name)
    ]
    told = ProfileRow(
        name=name or "",
        path="/mcp",
        servers=sum(not source.local for source in seen),
        tools=sum(catalog.count(source.name, "tools") for source in seen),
        entry=entry,
        source=place,
    )
    mode = gateway.generation.config.mode
    if name is not None:
        told.path, mode = f"/p/{quote(name, safe='')}/mcp", entry.get("mode")
    if isinstance(mode, str):
        told.mode = mode
    if entry.get("tokens") is not None:
        told.tokens = [str(each) for each in as_list(entry["tokens"])]
    if (url := desk.about().url) is not None:
        told.url = urlunsplit(urlsplit(url)._replace(path=told.path))
    return told


def _policy(desk: Desk, written: Files) -> PolicyTold:
    running = desk.gateway.generation.config.policy
    value: Any = written.section("policy")
    entry = as_object(value)
    rules = [as_object(each) for each in as_list(entry.get("rules"))]
    # The effects that run are those of these rules, as long as there are as many.
    effects: list[Effect] = [_effect(rule.get("effect")) for rule in rules]
    if len(rules) == len(running.rules):
        effects = [rule.effect for rule in running.rules]
    told = [
        RuleTold(number=index + 1, effect=effect, entry=rule, source=_rule_place(written, index))
        for index, (rule, effect) in enumerate(zip(rules, effects, strict=True))
    ]
    default = entry.get("default")
    if default not in ("allow", "deny"):
        default = running.default
    return PolicyTold(default=default, rules=told, entry=entry)


def _effect(given: Any) -> Effect:
    return given if given in get_args(Effect) else "deny"


def _rule_place(written: Files, rule: int) -> Place | None:
    found = written.place(("policy", "rules", rule))
    return None if found is None else Place(file=str(found[0]), line=found[1])


async def _simulate(desk: Desk, question: Question) -> Verdict:
    generation = desk.gateway.generation
    config, warden = generation.config, generation.warden
    desk.check_profile(question.profile)
    if question.policy is not None:
        config, warden = replace(config, policy=await _unsaved(desk, question)), None
        if config.guarded:
            warden = Warden(config, PolicyState(None))
    offer, note = await _meant(desk, config, question.tool)
    verdict = await explain_call(
        warden, question.profile, question.principal, offer, question.arguments
    )
    barred = outside(config, await _tokens(desk), question.profile, question.principal)
    place = None
    if question.policy is None and verdict.rule is not None:
        place = _rule_place(await desk.store.look(), verdict.rule - 1)
    redact = desk.gateway.redactor.redact
    return Verdict(
        server=offer.server,
        tool=offer.name,
        name=offer.public,
        seen=verdict.seen,
        effect=verdict.effect,
        because=[redact(line) for line in (*verdict.because, *filter(None, [note]))],
        rule=verdict.rule,
        source=place,
        outside=barred or None,
    )


async def _unsaved(desk: Desk, question: Question) -> Policy:
    """Raises a 422 for what is no policy, with every mistake."""
    edit = SetSection("policy", question.policy)
    try:
        return (await desk.store.imagine(edit)).policy
    except ConfigError as error:
        raise await refusal(desk, error, edit) from None


async def _meant(desk: Desk, config: Config, tool: str) -> tuple[Offer, str]:
    """The tool, and what is to be said of how it is known."""
    catalog = desk.gateway.catalog
    try:
        offer = found(catalog, tool)
    except Several as problem:
        raise ApiError(409, "ambiguous", str(problem), "tool") from None
    if offer is not None:
        return offer, ""
    if (offer := assumed(config, tool)) is not None:
        upstream = desk.gateway.generation.upstreams.get(offer.server)
        if upstream is None or not upstream.known:
            note = (
                f"server {offer.server!r} has not told what it offers yet; judged by its name alone"
            )
            return offer, note
    missing = missing_error(desk.gateway, tool, None, "tool")
    if missing is not None:
        raise missing
    hint = "the public name, or server.tool"
    if (meant := near(catalog, tool)) is not None:
        hint = f"did you mean {meant!r}?"
    raise ApiError(404, None, "no server offers this tool", "tool", hint)


async def _tokens(desk: Desk) -> dict[str, str | None]:
    if desk.tokens is None:
        return {}
    try:
        return {token.name: token.profile for token in await asyncio.to_thread(desk.tokens.read)}
    except (McpxError, OSError):
        return {}


router = Router("/api", "Profiles and policy")


@router.get("/profiles")
async def list_profiles(request: ApiRequest) -> Profiles:
    """Every profile, and what is seen through it."""
    # A profile that is being applied would show nothing.
    async with request.desk.store.at_rest() as written:
        await given.prepare(written, request)
        return await _profiles(request.desk, written)


given.add_entry_routes(
    router,
    "/profiles",
    "profiles",
    "profile",
    documented=("Add one.", "Replace it; another `name` in it renames it.", "Remove it."),
)


@router.get("/policy")
async def show_policy(request: ApiRequest) -> PolicyTold:
    """The rules, in order."""
    return _policy(request.desk, await given.look(request))


@router.put("/policy", *WRITES)
async def change_policy(
    request: ApiRequest, policy: PolicyGiven, change: Change
) -> Written | Preview:
    """Replace them."""
    return await given.write(request, change, SetSection("policy", policy.entry))


@router.post("/policy/simulate", 404, 409)
async def simulate(request: ApiRequest, question: Question) -> Verdict:
    """Whether somebody could call something, and what decides it."""
    return await _simulate(request.desk, question)
