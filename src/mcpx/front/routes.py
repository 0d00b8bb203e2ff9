"""Every path that the front answers, in one table: what stands here is served, and nothing else is.

Whoever adds one says here who may ask for it; a test goes through the whole table with every kind
of visitor.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from mcpx.surfaces import SURFACES

MODE: Final = "{mode}"
"""In a path: the name of any mode."""
MOST_KEPT: Final = 1_000
LONGEST_KEPT: Final = 200
"""Paths that are remembered, and their characters."""
WELL_KNOWN: Final = "/.well-known/"
RESOURCE: Final = "/.well-known/oauth-protected-resource"
"""What stands behind it is the path of a route that speaks MCP; nobody has to show anything to read
it."""


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
        Route(
            f"/{MODE}/mcp", ("GET", "POST", "DELETE")
        ),  # For clients that want every address to end in `/mcp`.
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
    if route is None and _mode_before_mcp(path) is not None:
        route = ROUTES[f"/{MODE}/mcp"]
    return route


def _mode_before_mcp(path: str) -> str | None:
    mode = path[1:].removesuffix("/mcp")
    if path == f"/{mode}/mcp" and mode in SURFACES:
        return mode
    return None


Place = tuple["Route | None", str, "str | None"]
_places: dict[str, Place] = {}
"""Of paths that were asked for; strangers choose them, so few and short ones."""


def place_of(path: str) -> Place:
    """The route of a path, the path behind its profile, and the profile that it asks for.
    `/MODE/mcp` is told as `/mcp/MODE`."""
    place = _places.get(path)
    if place is None:
        place = _place(path)
        if len(path) <= LONGEST_KEPT:
            if len(_places) >= MOST_KEPT:
                _places.clear()
            _places[path] = place
    return place


def _place(path: str) -> Place:
    asked = None
    if path.startswith("/p/"):
        path, asked = below_profile(path)
    route = route_of(path)
    if route is not None and asked is not None and not route.profiles:
        route = None
    mode = _mode_before_mcp(path)
    return route, path if mode is None else f"/mcp/{mode}", asked


def below_profile(path: str) -> tuple[str, str]:
    """What stands behind `/p/<profile>`, and the profile."""
    name, slash, rest = path[3:].partition("/")
    return slash + rest, unquote(name)


def resource_of(path: str) -> str | None:
    """A path that speaks MCP, fit for a header; None: it is no such path."""
    if path.startswith("/p/"):
        below, profile = below_profile(path)
    else:
        below, profile = (path, None)
    route = route_of(below)
    if route is None or not route.profiles:
        return None
    if profile is None:
        return below
    return f"/p/{quote(profile, safe='')}{below}"
