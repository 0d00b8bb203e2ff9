"""Every path that the front answers, in one table: what stands here is served, and nothing else is.

Whoever adds one says here who may ask for it; a test goes through the whole table with every kind of visitor.
"""

from dataclasses import dataclass
from typing import Final

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
