"""Every path that the front answers, in one table: what stands here is served, and nothing else is.

Whoever adds one says here who may ask for it; a test goes through the whole table with every kind of visitor.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from mcpx.surfaces import SURFACES

MODE: Final = "{mode}"
"""In a path: the name of any mode."""
WELL_KNOWN: Final = "/.well-known/"
RESOURCE: Final = "/.well-known/oauth-protected-resource"
"""What stands behind it is the path of a route that speaks MCP; nobody has to show anything to read it."""


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    methods: tuple[str, ...]
    profiles: bool = True
    """Also below `/p/<profile>`: it speaks MCP."""
    open: bool = False
    """Answers whoever shows nothing too, with less."""


ROUTES: Final = {
    route.path: route
    for route in (
        Route("/mcp", ("GET", "POST", "DELETE")),
        Route(f"/mcp/{MODE}", ("GET", "POST", "DELETE")),
        Route("/sse", ("GET",)),
        Route("/messages", ("POST",)),
        Route("/ws", ("GET",)),
        Route("/health", ("GET", "HEAD"), profiles=False, open=True),
        Route("/ready", ("GET", "HEAD"), profiles=False, open=True),
        Route("/metrics", ("GET", "HEAD"), profiles=False),
    )
}


def route_of(path: str) -> Route | None:
    """`path`: behind that of a profile."""
    route = ROUTES.get(path)
    if route is None and path.startswith("/mcp/") and path[5:] in SURFACES:
        route = ROUTES[f"/mcp/{MODE}"]
    return route


def below_profile(path: str) -> tuple[str, str]:
    """What stands behind `/p/<profile>`, and the profile."""
    name, slash, rest = path[3:].partition("/")
    return slash + rest, unquote(name)


def resource_of(path: str) -> str | None:
    """A path that speaks MCP, fit for a header; None: it is no such path."""
    below, profile = below_profile(path) if path.startswith("/p/") else (path, None)
    route = route_of(below)
    if route is None or not route.profiles:
        return None
    return below if profile is None else f"/p/{quote(profile, safe='')}{below}"
