"""The shape of a surface, and where they are found by the name of their mode."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mcpx.model.call import Call, Caller, Json
from mcpx.surfaces.direct import Direct
from mcpx.surfaces.settings import Settings
from mcpx.surfaces.view import View

if TYPE_CHECKING:
    from mcpx.surfaces.auto import Choices
    from mcpx.surfaces.large.kept import KeptResults


class Surface(Protocol):
    """What a client is shown of the catalog. Prompts and resources pass through beside it."""

    async def list_tools(self, view: View, call: Call) -> Json: ...

    async def call_tool(self, view: View, call: Call) -> Json: ...

    def by_name(self, caller: Caller) -> bool:
        """Whether this caller calls tools under their own names."""
        ...


class Surfaces:
    """The surfaces of one configuration, made when they are first asked for: most runs need one of them."""

    def __init__(
        self, default: str, settings: Settings, choices: Callable[[], "Choices"], kept: Callable[[], "KeptResults"]
    ) -> None:
        """`default` is the mode of clients that name none."""
        self.default = default
        self._settings = settings
        self._choices = choices
        self._kept = kept
        self._made: dict[str, Surface] = {"direct": Direct()}

    def of(self, mode: str | None) -> Surface:
        mode = mode or self.default
        surface = self._made.get(mode)
        if surface is None:
            surface = self._made[mode] = self._make(mode)
        return surface

    def _make(self, mode: str) -> Surface:
        if mode == "auto":
            from mcpx.surfaces.auto import Auto

            return Auto(self._settings, self._choices(), self.of)
        from mcpx.surfaces.checking.arguments import Checker

        match mode:
            case "inspect":
                from mcpx.surfaces.inspect import Inspect as Made
            case "describe":
                from mcpx.surfaces.describe import Describe as Made
            case _:
                from mcpx.surfaces.search import Search as Made
        return Made(self._settings, self._kept(), Checker())
