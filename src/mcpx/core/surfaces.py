"""From the configuration to what surfaces need of it, and what of theirs outlives a reload."""

from mcpx.config import Config
from mcpx.config.schema import PerServer
from mcpx.surfaces import SURFACES
from mcpx.surfaces.settings import Rendering, Settings
from mcpx.surfaces.surface import Lasting, Surfaces


class SurfaceState(Lasting):
    """Kept results and choices, shared by all generations."""

    def surfaces(self, config: Config) -> Surfaces:
        return Surfaces(config.mode, settings_of(config), self)


def settings_of(config: Config) -> Settings:
    common, proxy = config.global_, config.global_.tool_proxy
    rendering = _rendering(common)
    own = {server.name: _rendering(server) for server in config.mcp_servers}
    return Settings(
        common=rendering,
        servers={name: its for name, its in own.items() if its != rendering},
        menu_budget=common.menu_budget,
        auto_budget=common.auto_budget,
        auto_direct_limit=common.auto_direct_limit,
        auto_rules=common.auto_rules,
        enable_search=proxy.enable_search,
        enable_execute=proxy.enable_execute,
        enable_list_services=proxy.enable_list_services,
        search_limit=proxy.search_limit,
    )


def changed_menus(old: Config, new: Config) -> frozenset[str | None]:
    """The modes whose menu is another one though the tools are the same; None stands for the
    configured mode."""
    before, after = settings_of(old), settings_of(new)
    different = {
        name for name in Settings.__slots__ if getattr(before, name) != getattr(after, name)
    }
    # Only of those that were asked for: nobody has seen the menu of another.
    changed: set[str | None] = {
        mode
        for mode, surface in SURFACES.loaded.items()
        if not different.isdisjoint(surface.menu_settings)
    }
    if old.mode != new.mode or new.mode in changed:
        changed.add(None)
    return frozenset(changed)


def listing_menus(config: Config) -> frozenset[str | None]:
    """The modes whose menu lists servers; None stands for the configured mode."""
    modes: set[str | None] = {
        mode for mode, surface in SURFACES.loaded.items() if surface.lists_servers
    }
    return frozenset(modes | {None} if config.mode in modes else modes)


def shown_otherwise(old: Config, new: Config) -> bool:
    """Whether somebody may see less than before."""
    before = {server.name: server.trust for server in old.mcp_servers}
    wary = any(before.get(server.name, server.trust) != server.trust for server in new.mcp_servers)
    return wary or (old.profiles, old.policy) != (new.profiles, new.policy)


def _rendering(keys: PerServer) -> Rendering:
    return Rendering(
        schema_format=keys.schema_format
        or ("typescript" if keys.schema_compression_enabled else "json"),
        max_description_len=keys.max_description_len,
        value_format=keys.value_format or ("toon" if keys.toon_compression_enabled else "json"),
        toon_min_size=keys.toon_compression_min_size,
        compact_json=keys.json_compression_enabled,
        structured=keys.structured_content == "include",
        result_limit=keys.result_limit,
    )
