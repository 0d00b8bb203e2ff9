"""From the configuration to what surfaces need of it, and what of theirs outlives a reload."""

from typing import TYPE_CHECKING

from mcpx.config import Config
from mcpx.config.schema import PerServer
from mcpx.surfaces.settings import Rendering, Settings
from mcpx.surfaces.surface import Surfaces

if TYPE_CHECKING:
    from mcpx.surfaces.auto import Choice, Choices
    from mcpx.surfaces.large.kept import ResultStore


class SurfaceState:
    """Kept results and choices: made when the first surface needs them, shared by all generations."""

    def __init__(self) -> None:
        self._kept: ResultStore | None = None
        self._choices: Choices | None = None

    def surfaces(self, config: Config) -> Surfaces:
        return Surfaces(config.mode, settings_of(config), self._the_choices, self._the_kept)

    def _the_choices(self) -> "Choices":
        if self._choices is None:
            from mcpx.surfaces.auto import Choices

            self._choices = Choices()
        return self._choices

    def _the_kept(self) -> "ResultStore":
        if self._kept is None:
            from mcpx.surfaces.large.kept import ResultStore

            self._kept = ResultStore()
        return self._kept

    def latest_choices(self) -> "list[Choice]":
        return [] if self._choices is None else self._choices.latest()

    def forget(self, session: str) -> None:
        if self._choices is not None:
            self._choices.forget(session)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


def settings_of(config: Config) -> Settings:
    common, proxy = config.global_, config.global_.tool_proxy
    rendering = _rendering(common)
    own = {server.name: _rendering(server) for server in config.mcp_servers}
    return Settings(
        common=rendering,
        servers={name: its for name, its in own.items() if its != rendering},
        menu_budget=common.menu_budget,
        auto_budget=common.auto_budget,
        auto_rules=common.auto_rules,
        enable_search=proxy.enable_search,
        enable_execute=proxy.enable_execute,
        enable_list_services=proxy.enable_list_services,
        search_limit=proxy.search_limit,
    )


def changed_menus(old: Config, new: Config) -> frozenset[str | None]:
    """The modes whose menu is another one though the tools are the same; None stands for the configured mode."""
    before, after = _menus(old), _menus(new)
    changed: set[str | None] = {mode for mode in after if before[mode] != after[mode]}
    if old.mode != new.mode or new.mode in changed:
        changed.add(None)
    return frozenset(changed)


def listing_menus(config: Config) -> frozenset[str | None]:
    """The modes whose menu lists servers; None stands for the configured mode."""
    modes: set[str | None] = {"inspect", "describe"}
    return frozenset(modes | {None} if config.mode in modes else modes)


def _menus(config: Config) -> dict[str, object]:
    """What the configuration says about each menu."""
    budget, proxy = config.global_.menu_budget, config.global_.tool_proxy
    return {"inspect": budget, "describe": budget, "search": proxy, "auto": proxy}


def _rendering(keys: PerServer) -> Rendering:
    return Rendering(
        compress_schemas=keys.schema_compression_enabled,
        max_description_len=keys.max_description_len,
        toon=keys.toon_compression_enabled,
        toon_min_size=keys.toon_compression_min_size,
        structured=keys.structured_content == "include",
        result_limit=keys.result_limit,
    )
