"""Why the administrator does not find a tool or a server, and the command that changes it.

For the administrator only: the control socket, the admin API, and the library. An MCP client gets
no sign that a hidden or withheld tool exists.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.naming import public_name
from mcpx.config import Config
from mcpx.model.call import ANONYMOUS, Json
from mcpx.model.offer import Offer
from mcpx.policy.pins.review import one_line

if TYPE_CHECKING:
    from mcpx.core.gateway import Gateway
    from mcpx.policy.pins.pin_file import Held
    from mcpx.policy.pins.pinned import Pinned
    from mcpx.upstreams.upstream import Upstream

"""Who calls where nobody has to say who they are."""
NAMED = 5
LONGEST = 200
"""Characters of a name that others are compared with."""


class Several(Exception):
    """The name is that of several tools; says what to say instead."""


def found(catalog: Catalog, tool: str) -> Offer | None:
    """By its public name, `server.tool`, or its own name where that is one tool's. Raises
    `Several`."""
    for offer in catalog.offers["tools"]:
        if tool in (offer.public, f"{offer.server}.{offer.name}"):
            return offer
    alike = catalog.tools_named(tool)
    if len(alike) > 1:
        names = " or ".join(f"{each.server}.{one_line(each.name)}" for each in alike[:NAMED])
        raise Several(f"several servers have a tool {tool!r}; say {names}")
    return alike[0] if alike else None


def assumed(config: Config, tool: str) -> Offer | None:
    """The tool that `server.tool` says, if there is such a server; both may hold dots."""
    servers = [
        s
        for s in config.mcp_servers
        if tool.startswith(f"{s.name}.") and len(tool) > len(s.name) + 1
    ]
    if not servers:
        return None
    server = max(servers, key=lambda each: len(each.name))
    name = tool[len(server.name) + 1 :]
    return Offer(
        "tools", server.name, name, public_name(server.name, name, server.prefix, config.naming), {}
    )


def near(catalog: Catalog, tool: str) -> str | None:
    """The name that was probably meant."""
    names = [
        name
        for each in catalog.offers["tools"]
        for name in (each.public, f"{each.server}.{each.name}")
    ]
    close = get_close_matches(tool[:LONGEST], names, 1, 0.5)
    return one_line(close[0]) if close else None


def outside(
    config: Config, tokens: Mapping[str, str | None], profile: str | None, principal: str
) -> str:
    """Why somebody does not come there at all over HTTP, as far as tokens tell. `tokens`: those
    that were made, and the profile of each; those of the configuration are known."""
    auth = config.server.auth
    if principal == ANONYMOUS or auth is None or auth.type != "bearer":
        return ""
    bound = {**tokens, **{token.name: token.profile for token in auth.tokens}}
    if principal not in bound:
        return f"there is no token {principal!r}"
    own = bound[principal]
    named = [
        each.name
        for each in config.profiles
        if principal in (each.tokens or ()) and each.name != own
    ]
    theirs = named if own is None else [own, *named]
    if theirs and profile not in theirs:
        return (
            f"token {principal!r} never comes there: it has {', '.join(theirs)}, the first of "
            "them at /mcp"
        )
    closed = any(each.name == profile and each.tokens is not None for each in config.profiles)
    return (
        f"token {principal!r} never comes there: the profile has other tokens"
        if closed and not theirs
        else ""
    )


Reason = Literal[
    "starting",
    "down",
    "needs_auth",
    "disabled",
    "quarantined",
    "changed",
    "new",
    "damaged",
    "hidden",
]


@dataclass(frozen=True, slots=True)
class Missing:
    reason: Reason
    server: str
    message: str
    hint: str
    """What to do, usually a command."""

    def told(self) -> Json:
        return {
            "reason": self.reason,
            "server": self.server,
            "message": self.message,
            "hint": self.hint,
        }


def why_missing(
    gateway: "Gateway", name: str, profile: str | None = None, principal: str = "local"
) -> Missing | None:
    """Find out why `name` is not offered to a caller. None if the caller finds it, or if it does
    not exist.

    `name` is a server, `server.tool`, or a tool's public or own name.
    """
    upstream = gateway.generation.upstreams.get(name)
    if upstream is not None:
        return _server(gateway, upstream, profile, principal)
    hidden = _hidden(gateway, name, profile, principal)
    if hidden is not None:
        return hidden
    meant = assumed(gateway.generation.config, name)
    if meant is None:
        for pinned, held in _held_tools(gateway):
            if name in _names(gateway, pinned, held):
                return _withheld(pinned, held)
        return None
    for pinned, held in _held_tools(gateway):
        if pinned.server == meant.server and held.item.name == meant.name:
            return _withheld(pinned, held)
    upstream = gateway.generation.upstreams.get(meant.server)
    if upstream is None or gateway.catalog.native("tools", meant.server, meant.name) is not None:
        return None
    return _state(upstream)


def _server(
    gateway: "Gateway", upstream: "Upstream", profile: str | None, principal: str
) -> Missing | None:
    found = _state(upstream)
    warden = gateway.generation.warden
    sight = None if warden is None else warden.sights.of(profile, principal)
    if found is not None or sight is None or sight.server(upstream.name):
        return found
    where = (
        "a rule of the policy"
        if profile is None
        else f"profile {profile!r} or a rule of the policy"
    )
    message = f"server {upstream.name!r} is hidden by {where}"
    return Missing(
        "hidden", upstream.name, message, f"see: mcpx explain {profile or '-'} {upstream.name}.TOOL"
    )


def _state(upstream: "Upstream") -> Missing | None:
    """The server offers nothing, or not everything, at the moment."""
    name, status = upstream.name, upstream.status
    if not upstream.server.enabled:
        why = upstream.server.switched_off
        message = f"server {name!r} is disabled: {why}" if why else f"server {name!r} is disabled"
        return Missing("disabled", name, message, f"mcpx enable {name}")
    if status.state == "connecting" and status.last_error is None:
        doing = "downloading" if upstream.connection.phase == "downloading" else "starting"
        message = f"server {name!r} is {doing} ({upstream.connection.phase_seconds or 0:.0f} s)"
        return Missing("starting", name, message, f"mcpx tools {name} waits until it has started")
    if not upstream.enabled:
        message = (
            f"server {name!r} is in quarantine: none of its tools is offered until you approve them"
        )
        return Missing("quarantined", name, message, f"mcpx approve {name}")
    if upstream.known:
        return None
    if status.state == "needs_auth":
        return Missing(
            "needs_auth", name, f"server {name!r} needs a sign-in", f"mcpx auth login {name}"
        )
    if status.last_error is not None:
        problem = (upstream.connection.problem or "").removeprefix(f"{name}: ")
        return Missing("down", name, f"server {name!r} is down: {problem}", f"mcpx logs {name}")
    return None


def _hidden(gateway: "Gateway", name: str, profile: str | None, principal: str) -> Missing | None:
    """A profile or a rule hides the tool from this caller."""
    warden = gateway.generation.warden
    if warden is None:
        return None
    from mcpx.policy.explain import explain

    for offer in _offers_named(gateway, name):
        verdict = explain(warden, profile, principal, offer)
        if verdict.seen:
            return None
        path = f"{offer.server}.{one_line(offer.name)}"
        message = f"{path} is hidden: {'; '.join(verdict.because)}"
        return Missing(
            "hidden",
            offer.server,
            message,
            f"change the configuration; see: mcpx explain {profile or '-'} {path}",
        )
    return None


def _offers_named(gateway: "Gateway", name: str) -> "Iterator[Offer]":
    for offer in gateway.catalog.offers["tools"]:
        if name in (offer.public, f"{offer.server}.{offer.name}", offer.name):
            yield offer


def _held_tools(gateway: "Gateway") -> "Iterator[tuple[Pinned, Held]]":
    for pinned in pinned_servers(gateway).values():
        for held in list(pinned.kept.held.values()):
            if held.item.kind == "tools":
                yield pinned, held


def _names(gateway: "Gateway", pinned: "Pinned", held: "Held") -> tuple[str, str]:
    """A withheld tool's own name, and the public name that it would have without collisions."""
    config, own = gateway.generation.config, held.item.name
    prefix = next(
        (server.prefix for server in config.mcp_servers if server.name == pinned.server), None
    )
    return own, public_name(pinned.server, own, prefix, config.naming)


def _withheld(pinned: "Pinned", held: "Held") -> Missing:
    server, path = pinned.server, f"{pinned.server}.{one_line(held.item.name)}"
    if pinned.broken is not None:
        message = (
            f"{path} is withheld, because the approvals of {server} cannot be read: {pinned.broken}"
        )
        return Missing("damaged", server, message, f"mcpx approve {server}")
    if not pinned.shown:
        message = f"{path} is in quarantine: no tool of {server} is offered until you approve them"
        return Missing("quarantined", server, message, f"mcpx approve {server}")
    if held.item.key in pinned.kept.approved:
        message = f"{path} is withheld: its definition changed after it was approved"
        return Missing("changed", server, message, f"mcpx approve {path}")
    message = f"{path} is withheld: it is new since the tools of {server} were approved"
    return Missing("new", server, message, f"mcpx approve {path}")


def pinned_servers(gateway: "Gateway") -> "dict[str, Pinned]":
    """Servers of the configuration that have approvals, as far as the gateway has seen them."""
    if "policy_state" not in vars(gateway.provisions) or "pins" not in vars(
        gateway.provisions.policy_state
    ):
        return {}
    trusts = {server.name: server.trust for server in gateway.generation.config.mcp_servers}
    servers = gateway.provisions.policy_state.pins.servers
    return {name: its for name, its in servers.items() if trusts.get(name, "open") != "open"}
