"""All that was built from one configuration. It never changes: a reload builds the next one and
swaps one pointer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcpx.config import Config
from mcpx.core.source import Source
from mcpx.surfaces.surface import Surfaces
from mcpx.upstreams.upstream import Upstream

if TYPE_CHECKING:
    from mcpx.core.local import LocalCommands
    from mcpx.policy.warden import Warden


@dataclass(frozen=True, slots=True)
class Generation:
    """All that was built from one `Config`."""

    config: Config
    upstreams: Mapping[str, Upstream]
    surfaces: Surfaces
    local: "LocalCommands | None" = None
    """The commands of the configuration; None when it has none."""
    warden: "Warden | None" = None
    """Who guards it; None when there is nothing to guard."""

    @property
    def sources(self) -> Iterable[Source]:
        """All that offers something, in the order of their tools: the user's own commands come
        first, so that they keep their names."""
        return (
            self.upstreams.values()
            if self.local is None
            else (self.local, *self.upstreams.values())
        )

    def source(self, name: str) -> Source | None:
        if self.local is not None and name == self.local.name:
            return self.local
        return self.upstreams.get(name)
