"""The base of the modes, the modes of one configuration, and what they share over reloads."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from mcpx.base.caching import Lazy, Lru
from mcpx.catalog.catalog import Catalog
from mcpx.model.call import Call, Caller, Json
from mcpx.model.family import Part
from mcpx.surfaces import SURFACES
from mcpx.surfaces.settings import Settings
from mcpx.surfaces.view import View

if TYPE_CHECKING:
    from mcpx.replicas.replicas import Replicas
    from mcpx.surfaces.checking.arguments import Checker
    from mcpx.surfaces.large.kept import ResultStore
    from mcpx.surfaces.large.worker import Worker
    from mcpx.surfaces.mistakes import Meanings

T = TypeVar("T")

MAX_CHOICES = 10_000
"""As many as there may be sessions."""
MAX_CATALOGS = 32


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


class PerCatalog(Generic[T]):
    """Values made from a catalog: one for each catalog that callers see, all of one whole."""

    def __init__(self) -> None:
        self._made: Lru[int, tuple[Catalog, object, T]] = Lru(MAX_CATALOGS)
        """By the identity of the catalog, which is held."""

    def of(self, catalog: Catalog, edition: object = None) -> T | None:
        """`edition`: what else the value depends on."""
        made = self._made.get(id(catalog))
        if made is None or made[1] != edition:
            return None
        return made[2]

    def keep(self, catalog: Catalog, value: T, edition: object = None) -> T:
        if any(made[0].whole is not catalog.whole for made in self._made.values()):
            self._made.clear()
        self._made[id(catalog)] = (catalog, edition, value)
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """What `auto` chose for a client. A session keeps its mode (SUR-5)."""

    client: str
    mode: str
    reason: str


def _decoded_choice(value: Json) -> Choice | None:
    """A choice from another replica."""
    words = [value.get(name) for name in Choice.__slots__]
    client, mode, reason = words
    if not isinstance(client, str) or not isinstance(mode, str) or not isinstance(reason, str):
        return None
    return Choice(client, mode, reason) if mode in SURFACES else None


class Lasting:
    """What the modes share over reloads. Most is built on first use."""

    ending = False
    """The gateway is about to end: running calls may finish, no other call starts."""
    on_shaped: "Callable[[Json, Json], None] | None" = None
    """Gets each result, as the server sent it and as a compact mode shows it."""

    def __init__(self, replicas: "Replicas | None" = None) -> None:
        self._replicas = replicas
        self.choices: Lru[str, Choice] = Lru(MAX_CHOICES)
        """By session, or by the identity of a client without one."""
        self._kept = Lazy(self._build_kept)
        self._worker = Lazy(_build_worker)
        self._checker = Lazy(_build_checker)
        self._meanings = Lazy(_build_meanings)

    @property
    def kept(self) -> "ResultStore":
        return self._kept()

    @property
    def worker(self) -> "Worker":
        return self._worker()

    @property
    def checker(self) -> "Checker":
        return self._checker()

    @property
    def meanings(self) -> "Meanings":
        return self._meanings()

    def latest_choices(self, number: int = 20) -> list[Choice]:
        return list(self.choices.values())[-number:]

    def kept_now(self) -> tuple[int, int]:
        """Large results that are kept, and their bytes."""
        kept = self._kept.built
        return (0, 0) if kept is None else (len(kept), kept.size)

    def choice_of(self, session: str) -> Json | None:
        """What `auto` chose, for the replica that takes the session over."""
        choice = self.choices.get(session)
        return None if choice is None else asdict(choice)

    def take_choice(self, session: str, choice: Json) -> None:
        """Keep what another replica chose."""
        if (chosen := _decoded_choice(choice)) is not None:
            self.choices[session] = chosen

    def forget(self, session: str, *, moved: bool = False) -> None:
        """`moved`: it continues at another replica, which may read its results."""
        self.choices.pop(session, None)
        if not moved and self._kept.built is not None:
            self._kept.built.forget(session)

    def let_go(self) -> None:
        """Forget all large results: callers may no longer be allowed to see them."""
        if self._kept.built is not None or self._replicas is not None:
            self.kept.let_go()

    async def close(self) -> None:
        if self._kept.built is not None:
            await self._kept.built.close()
        if self._worker.built is not None:
            await self._worker.built.close()

    def _build_kept(self) -> "ResultStore":
        if self._replicas is not None:
            from mcpx.surfaces.large.shared import SharedResults

            return SharedResults(self._replicas)
        from mcpx.surfaces.large.kept import ResultStore

        return ResultStore()


def _build_worker() -> "Worker":
    from mcpx.surfaces.large.worker import Worker

    return Worker()


def _build_checker() -> "Checker":
    from mcpx.surfaces.checking.arguments import Checker

    return Checker()


def _build_meanings() -> "Meanings":
    from mcpx.surfaces.mistakes import Meanings

    return Meanings()


class Surfaces:
    """The surfaces of one configuration, each made when it is first used."""

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
