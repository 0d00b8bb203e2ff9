"""What a client is shown: the same catalog, in one of several ways."""

from typing import TYPE_CHECKING, Annotated

from mcpx.model.family import Family

if TYPE_CHECKING:
    from mcpx.surfaces.surface import Surface

SURFACES: "Family[Surface]" = Family(
    "mcpx.surfaces.modes", "mcpx.surfaces", needs=("list_tools", "call_tool")
)
"""By the name of their mode."""

Mode = Annotated[str, SURFACES]
"""The name of one of them."""
