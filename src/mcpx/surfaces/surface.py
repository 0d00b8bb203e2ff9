"""The shape of a surface, and the surfaces of one configuration by the name of their mode."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from mcpx.catalog.catalog import Catalog
from mcpx.model.call import Call, Caller, Json
from mcpx.model.family import Part
from mcpx.surfaces import SURFACES
from mcpx.surfaces.settings import Settings
from mcpx.surfaces.view import View

if TYPE_CHECKING:
    from mcpx.replicas.replicas import Replicas
    from mcpx.surfaces.checking.arguments import Checker
    from mcpx.surfaces.choices import Choice, Choices
    from mcpx.surfaces.finding.mistakes import Meanings
    from mcpx.surfaces.large.kept import ResultStore
    from mcpx.surfaces.large.worker import Worker


class Surface(Part, ABC):
    """What a client is shown of the catalog. Prompts and resources pass through beside it."""

    lists_servers: ClassVar[bool] = False
    """Whether its menu tells of servers, and so changes with them though their tools are the
    same."""
    menu_settings: ClassVar[tuple[str, ...]] = ()
    """The fields of `Settings` that its menu depends on."""

    def __init__(self, surfaces: "Surfaces") -> None:
        """`surfaces`: where its settings are found, and whatever it shares with others."""
        self.settings = surfaces.settings

    @abstractmethod
    async def list_tools(self, view: View, call: Call) -> Json: ...

    @abstractmethod
    async def call_tool(self, view: View, call: Call) -> Json: ...

    @abstractmethod
    def by_name(self, caller: Caller) -> bool:
        """Whether this caller calls tools under their own names."""

    def shown_as(self, caller: Caller) -> tuple[str, str]:
        """The mode that this caller is shown, and why, where that was chosen for it."""
        return self.type, ""

    def shows_all(self, caller: Caller, catalog: Catalog) -> bool:
        """Whether this caller is shown every tool, and so no menu that tells of servers; a guess
        before its first list."""
        return self.by_name(caller)


class Lasting:
    """What of surfaces outlives a reload, each made when it is first needed."""

    ending = False
    """The gateway is about to end: what runs may finish, nothing else is begun."""
    on_shaped: "Callable[[Json, Json], None] | None" = None
    """Hears of results, as a server gave them and as a compact surface shows them; None: nobody
    wants to know."""

    def __init__(self, replicas: "Replicas | None" = None) -> None:
        """`replicas`: with whom it is shared."""
        self._replicas = replicas

    def latest_choices(self) -> "list[Choice]":
        return self.choices.latest() if "choices" in vars(self) else []

    def kept_now(self) -> tuple[int, int]:
        """Large results that are kept, and their bytes."""
        return (len(self.kept), self.kept.size) if "kept" in vars(self) else (0, 0)

    def choice_of(self, session: str) -> Json | None:
        """What `auto` chose for it, to be taken up where it goes on."""
        choice = self.choices.of(session) if "choices" in vars(self) else None
        return (
            None
            if choice is None
            else {"client": choice.client, "mode": choice.mode, "reason": choice.reason}
        )

    def take_choice(self, session: str, choice: Json) -> None:
        """What another replica chose for it."""
        from mcpx.surfaces.choices import read

        if (chosen := read(choice)) is not None:
            self.choices.keep(session, chosen)

    def forget(self, session: str, *, moved: bool = False) -> None:
        """`moved`: it goes on at another replica, and so does what was kept for it."""
        if "choices" in vars(self):
            self.choices.forget(session)
        if not moved and "kept" in vars(self):
            self.kept.forget(session)

    def let_go(self) -> None:
        """Of all large results: they may hold what somebody must not see any more."""
        if "kept" in vars(self) or self._replicas is not None:
            self.kept.let_go()

    async def close(self) -> None:
        if "kept" in vars(self):
            await self.kept.close()
        if "worker" in vars(self):
            await self.worker.close()

    @cached_property
    def choices(self) -> "Choices":
        from mcpx.surfaces.choices import Choices

        return Choices()

    @cached_property
    def kept(self) -> "ResultStore":
        if self._replicas is not None:
            from mcpx.surfaces.large.shared import SharedResults

            return SharedResults(self._replicas)
        from mcpx.surfaces.large.kept import ResultStore

        return ResultStore()

    @cached_property
    def worker(self) -> "Worker":
        from mcpx.surfaces.large.worker import Worker

        return Worker()

    @cached_property
    def checker(self) -> "Checker":
        from mcpx.surfaces.checking.arguments import Checker

        return Checker()

    @cached_property
    def meanings(self) -> "Meanings":
        from mcpx.surfaces.finding.mistakes import Meanings

        return Meanings()


class Surfaces:
    """The surfaces of one configuration, made when they are first asked for: most runs need one of
    them."""

    def __init__(self, default: str, settings: Settings, lasting: Lasting) -> None:
        """`default` is the mode of clients that name none."""
        self.default = default
        self.settings = settings
        self.lasting = lasting
        self._made: dict[str, Surface] = {}

    def of(self, mode: str | None) -> Surface:
        mode = mode or self.default
        surface = self._made.get(mode)
        if surface is None:
            surface = self._made[mode] = SURFACES[mode](self)
        return surface
