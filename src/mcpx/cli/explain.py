"""`mcpx explain PROFILE TOOL`: whether a tool is seen and may be called through a profile, and what
decided it.

Servers are connected to only if the configuration alone does not decide it. Exit code 0: the tool
may be called; 6: it is hidden or refused; 2: the profile or the tool does not exist.
"""

import argparse

from mcpx.catalog.catalog import Catalog
from mcpx.cli.codes import WAITS, code_if
from mcpx.cli.gateway_client import settled, temporary_gateway
from mcpx.cli.output import plain, print_json, say
from mcpx.cli.running import mistake, result_of
from mcpx.cli.serve import check_profile
from mcpx.cli.target import Target
from mcpx.config import Config
from mcpx.core.missing import Missing, Several, assumed, found, near, outside, why_missing
from mcpx.model.errors import ConfigError
from mcpx.model.offer import Offer
from mcpx.policy.explain import explain as explain_tool
from mcpx.policy.state import PolicyState
from mcpx.policy.warden import Warden

WITHOUT_PROFILE = "-"
EFFECTS = {
    "allow": "seen, and may be called",
    "ask": "seen, and asked for at each call",
    "deny": "seen, and refused",
}


def explain(options: argparse.Namespace) -> int:
    target = Target.required(options, "explain PROFILE TOOL")
    config, tool, principal = target.load(), options.tool, options.principal
    profile: str | None = None
    if options.profile != WITHOUT_PROFILE:
        profile = options.profile
        check_profile(options.profile, [each.name for each in config.profiles])
    warden = Warden(config, PolicyState(None))
    offer, note = _offer_of_hidden_server(config, warden, profile, tool), ""
    if offer is None:
        offer, note = result_of(_look(config, target, tool))
    verdict = explain_tool(warden, profile, principal, offer)
    barred = _barred(config, target, profile, principal)
    if options.json:
        facts: dict[str, object] = {
            "profile": profile,
            "principal": principal,
            "server": offer.server,
            "tool": offer.name,
            "name": offer.public,
            "seen": verdict.seen,
            "effect": verdict.effect,
            "because": verdict.because,
        }
        notes = {"note": note, "outside": barred}
        print_json({**facts, **{key: text for key, text in notes.items() if text}})
    else:
        what = f"{plain(offer.name)} of server {plain(offer.server)}, listed as {offer.public}"
        where, effect = "without a profile", "hidden"
        if profile is not None:
            where = f"through profile {plain(profile)}"
        if verdict.seen:
            effect = EFFECTS[verdict.effect]
        say(f"{plain(what)}\n{where}, for {plain(principal)}: {effect}")
        for line in filter(None, [*verdict.because, note, barred]):
            say(f"  {plain(line)}")
    may_call = verdict.seen and verdict.effect != "deny" and not barred
    return code_if(not may_call, WAITS)


def _barred(config: Config, target: Target, profile: str | None, principal: str) -> str:
    """Why a token does not reach the profile over HTTP."""
    from mcpx.front.identity.store import TokenStore, Unreadable

    tokens: dict[str, str | None] = {}
    try:
        tokens |= {token.name: token.profile for token in TokenStore(target.state).read()}
    except (Unreadable, OSError):
        pass
    reason = outside(config, tokens, profile, principal)
    return reason and f"but {reason}"


def _offer_of_hidden_server(
    config: Config, warden: Warden, profile: str | None, tool: str
) -> Offer | None:
    """The tool, if the profile hides its server: then the server need not be started."""
    offer = assumed(config, tool)
    if offer is None or profile is None:
        return None
    sight = warden.sights.through(profile)
    return None if sight is None or sight.server(offer.server) else offer


async def _look(config: Config, target: Target, tool: str) -> tuple[Offer, str]:
    """Connect to the servers, and find the tool. Returns it with a note. Raises ConfigError."""
    async with temporary_gateway(config, target.state) as gateway:
        gateway.start()
        upstreams = gateway.generation.upstreams
        await settled(upstreams, config)
        await gateway.catalogs.ready()
        offer = _found(gateway.catalog, tool)
        if offer is not None:
            return offer, ""
        offer = assumed(config, tool)
        if offer is not None and not upstreams[offer.server].known:
            upstream = upstreams[offer.server]
            why = plain(upstream.connection.problem or upstream.status.state)
            note = f"server {offer.server!r} cannot be asked now ({why}); judged by its name alone"
            return offer, note
        raise _unknown(gateway.catalog, why_missing(gateway, tool), offer, tool)


def _found(catalog: Catalog, tool: str) -> Offer | None:
    try:
        return found(catalog, tool)
    except Several as problem:
        raise mistake(f"{problem}") from None


def _unknown(
    catalog: Catalog, missing: Missing | None, offer: Offer | None, tool: str
) -> ConfigError:
    meant = near(catalog, tool)
    message = f"no server offers a tool {tool!r}"
    if missing is not None:
        message = f"{missing.message}\n  {missing.hint}"
    elif offer is not None:
        message = f"server {offer.server!r} offers no tool {plain(offer.name)!r}"
    elif meant is not None:
        message += f"; did you mean {meant!r}?"
    return mistake(f"{message}")
