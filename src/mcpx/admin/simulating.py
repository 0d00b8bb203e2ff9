"""Whether somebody could call something: as `mcpx explain` tells it, but of the running gateway,
and with arguments.

With a policy that is not saved the whole configuration is judged as if it were: what is wrong with
it is told as it would be of the file.
"""

import asyncio
from dataclasses import replace

from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError
from mcpx.admin.routes.given import refusal
from mcpx.admin.shapes.common import Place
from mcpx.admin.shapes.guarding import Question, Verdict
from mcpx.admin.toolbox import missing_error
from mcpx.config import Config, Policy
from mcpx.config.edits import SetSection
from mcpx.core.explaining import Several, assumed, found, near, outside
from mcpx.model.errors import ConfigError, McpxError
from mcpx.model.offer import Offer
from mcpx.policy.explain import explain_call
from mcpx.policy.state import PolicyState
from mcpx.policy.warden import Warden


async def simulate(desk: Desk, question: Question) -> Verdict:
    generation = desk.gateway.generation
    config, warden = generation.config, generation.warden
    profiles = [profile.name for profile in config.profiles]
    if question.profile is not None and question.profile not in profiles:
        hint = f"there is {', '.join(profiles)}"[:500] if profiles else "there are no profiles"
        raise ApiError(404, None, "there is no profile of this name", "profile", hint)
    if question.policy is not None:
        policy = await _unsaved(desk, question)
        config = replace(config, policy=policy)
        warden = Warden(config, PolicyState(None)) if config.guarded else None
    offer, note = await _meant(desk, config, question.tool)
    verdict = await explain_call(
        warden, question.profile, question.principal, offer, question.arguments
    )
    barred = outside(config, await _tokens(desk), question.profile, question.principal)
    place = None
    if question.policy is None and verdict.rule is not None:
        place = await _place(desk, verdict.rule)
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
            return (
                offer,
                f"server {offer.server!r} has not told what it offers yet; judged by its name "
                "alone",
            )
    missing = missing_error(desk.gateway, tool, None, "tool")
    if missing is not None:
        raise missing
    meant = near(catalog, tool)
    hint = "the public name, or server.tool" if meant is None else f"did you mean {meant!r}?"
    raise ApiError(404, None, "no server offers this tool", "tool", hint)


async def _tokens(desk: Desk) -> dict[str, str | None]:
    if desk.tokens is None:
        return {}
    try:
        return {token.name: token.profile for token in await asyncio.to_thread(desk.tokens.read)}
    except (McpxError, OSError):
        return {}


async def _place(desk: Desk, rule: int) -> Place | None:
    """Where the rule stands, if the file still is what is running."""
    written = await desk.store.look()
    found = written.place(("policy", "rules", rule - 1))
    return None if found is None else Place(file=str(found[0]), line=found[1])
