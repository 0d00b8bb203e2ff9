"""`mcpx explain PROFILE TOOL`: whether a tool is seen and may be called through a profile, and what
decided it.

By the config alone where that decides; else the servers are connected to, once, to see what they
offer. Exit code 0: it may be called; 6: it is hidden or refused; 2: there is no such profile or
tool.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.catalog.catalog import Catalog
from mcpx.cli.codes import WAITS
from mcpx.cli.running import result_of
from mcpx.cli.serve import unknown_profile
from mcpx.cli.terminal import plain
from mcpx.config import Config
from mcpx.core.explaining import Several, assumed, found, near, outside
from mcpx.model.errors import ConfigError
from mcpx.model.offer import Offer
from mcpx.policy.state import PolicyState
from mcpx.policy.warden import Verdict, Warden

if TYPE_CHECKING:
    from mcpx.core.missing import Missing

EVERYTHING = "-"
"""In the place of a profile: without one."""


def explain(
    config: Config,
    profile: str,
    tool: str,
    principal: str,
    environ: Mapping[str, str],
    state: Path,
    as_json: bool,
) -> int:
    names = [each.name for each in config.profiles]
    if profile != EVERYTHING and profile not in names:
        raise ConfigError([f"error: {unknown_profile(profile, names)}"])
    through = None if profile == EVERYTHING else profile
    warden = Warden(config, PolicyState(None))
    offer = _by_config(config, warden, through, tool)
    note = ""
    if offer is None:
        catalog, down, missing = result_of(_look(config, environ, state, tool))
        offer = _found(catalog, tool)
        if offer is None and (offer := assumed(config, tool)) is not None:
            if missing is not None and offer.server not in down:
                raise ConfigError([f"error: {missing.message}\n  {missing.hint}"])
            if offer.server not in down:
                raise ConfigError(
                    [f"error: server {offer.server!r} offers no tool {plain(offer.name)!r}"]
                )
            note = (
                f"server {offer.server!r} cannot be asked now ({plain(down[offer.server])}); "
                "judged by its name alone"
            )
        if offer is None and missing is not None:
            raise ConfigError([f"error: {missing.message}\n  {missing.hint}"])
        if offer is None:
            raise ConfigError([f"error: {_unknown(catalog, tool)}"])
    verdict = warden.explain(through, principal, offer)
    barred = _outside(config, state, through, principal)
    if as_json:
        told = {
            "profile": through,
            "principal": principal,
            "server": offer.server,
            "tool": offer.name,
            "name": offer.public,
            "seen": verdict.seen,
            "effect": verdict.effect,
            "because": verdict.because,
            **({"note": note} if note else {}),
            **({"outside": barred} if barred else {}),
        }
        sys.stdout.write(json.dumps(told, indent=2, ensure_ascii=True) + "\n")
    else:
        _print(offer, through, principal, verdict, [note, barred])
    return 0 if verdict.seen and verdict.effect != "deny" and not barred else WAITS


def _outside(config: Config, state: Path, profile: str | None, principal: str) -> str:
    """Why somebody does not come there at all over HTTP, as far as tokens tell."""
    from mcpx.front.identity.store import TokenStore, Unreadable

    try:
        made = {token.name: token.profile for token in TokenStore(state).read()}
    except (Unreadable, OSError):
        made = {}
    told = outside(config, made, profile, principal)
    return f"but {told}" if told else ""


def _print(
    offer: Offer, profile: str | None, principal: str, verdict: Verdict, notes: list[str]
) -> None:
    what = f"{plain(offer.name)} of server {plain(offer.server)}, listed as {plain(offer.public)}"
    where = "without a profile" if profile is None else f"through profile {plain(profile)}"
    said = {
        "allow": "seen, and may be called",
        "ask": "seen, and asked for at each call",
        "deny": "seen, and refused",
    }
    sys.stdout.write(
        f"{what}\n{where}, for {plain(principal)}: "
        f"{said[verdict.effect] if verdict.seen else 'hidden'}\n"
    )
    for line in [*verdict.because, *filter(None, notes)]:
        sys.stdout.write(f"  {plain(line)}\n")


def _by_config(config: Config, warden: Warden, profile: str | None, tool: str) -> Offer | None:
    """Of which nothing more need be known: its server is not seen."""
    offer = assumed(config, tool)
    through = None if profile is None else warden.sights.through(profile)
    return (
        offer
        if offer is not None and through is not None and not through.server(offer.server)
        else None
    )


async def _look(
    config: Config, environ: Mapping[str, str], state: Path, tool: str
) -> tuple[Catalog, dict[str, str], "Missing | None"]:
    """The catalog, why some servers are down, and why the tool is not offered."""
    from mcpx.core.gateway import Gateway
    from mcpx.core.missing import why_missing
    from mcpx.processes import process

    logging.getLogger("mcpx").addHandler(logging.NullHandler())
    once = tuple(replace(server, auto_reconnect=False) for server in config.mcp_servers)
    gateway = Gateway(replace(config, mcp_servers=once), environ, state, looks=True)
    try:
        gateway.start()
        upstreams = gateway.generation.upstreams
        await asyncio.gather(*(upstream.settled.wait() for upstream in upstreams.values()))
        await gateway.catalogs.ready()
        down = {
            name: upstream.problem or upstream.status.state
            for name, upstream in upstreams.items()
            if not upstream.known
        }
        return gateway.catalog, down, why_missing(gateway, tool)
    finally:
        await gateway.close()
        await process.end_all()


def _found(catalog: Catalog, tool: str) -> Offer | None:
    try:
        return found(catalog, tool)
    except Several as problem:
        raise ConfigError([f"error: {problem}"]) from None


def _unknown(catalog: Catalog, tool: str) -> str:
    meant = near(catalog, tool)
    return (
        f"no server offers a tool {tool!r}{'' if meant is None else f'; did you mean {meant!r}?'}"
    )
