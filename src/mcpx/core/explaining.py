"""Which tool somebody means, and whether somebody comes to where it is: for whoever explains what
may be called."""

from collections.abc import Mapping
from difflib import get_close_matches

from mcpx.catalog.catalog import Catalog
from mcpx.catalog.naming import public_name
from mcpx.config import Config
from mcpx.model.call import ANONYMOUS
from mcpx.model.offer import Offer
from mcpx.policy.pins.review import one_line

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
