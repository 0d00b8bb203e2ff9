"""The catalog as each caller finds it: one for all, and others where a server offers some clients more.

Servers may show tools only to clients that can be asked something back, and a session with a link of its own may
have made things on it that nobody else has. Public names are settled over all of it, so that a name means the same
to everybody, and a name that a client was shown stays (NAM-1).
"""

import logging
from collections.abc import Callable, Iterable

from mcpx.catalog.catalog import Catalog, Source
from mcpx.catalog.naming import Naming
from mcpx.config import Config
from mcpx.core.source import Source as AnySource
from mcpx.model.call import Caller
from mcpx.model.offer import Kind
from mcpx.upstreams.traits import Kind as ClientKind
from mcpx.upstreams.traits import kind_of

log = logging.getLogger(__name__)

Given = dict[tuple[Kind, str, str], str]


class Catalogs:
    def __init__(self, upstreams: Callable[[], Iterable[AnySource]], naming: Callable[[], Naming]) -> None:
        self._upstreams = upstreams
        self._naming = naming
        self._shared: Catalog | None = None
        self._special: dict[str | ClientKind, Catalog] = {}
        self._varied = False
        self._shown: Catalog | None = None
        self._given: Given = {}
        self._warned: set[str] = set()

    @property
    def shared(self) -> Catalog:
        """Built when it is asked for, so that many changes at once cost one building."""
        if self._shared is None:
            self._shared = self._build(None)
            for warning in self._shared.warnings:
                if warning not in self._warned:
                    log.warning("%s", warning)
            self._warned = set(self._shared.warnings)
            self._varied = any(upstream.offers_vary for upstream in self._upstreams())
        return self._shared

    def of(self, caller: Caller) -> Catalog:
        """What this caller finds; for almost everybody the shared one, at the cost of one look."""
        shared = self.shared
        if not self._varied or caller.solo or not caller.answers:
            return shared
        key = caller.session or kind_of(caller.capabilities)
        found = self._special.get(key)
        if found is None:
            found = self._special[key] = self._build(caller)
        return found

    def _build(self, caller: Caller | None) -> Catalog:
        sources = [
            Source(upstream.name, upstream.server.prefix, upstream.offers(caller), description=upstream.description)
            for upstream in self._upstreams()
            if upstream.server.enabled
        ]
        return Catalog.build(sources, self._naming(), self._given)

    def changed(self) -> None:
        self._shared = None
        self._special.clear()

    def forget(self, session: str) -> None:
        """The session is over."""
        self._special.pop(session, None)

    def show(self, catalog: Catalog) -> None:
        """From here on clients know these names: they stay with their owners."""
        if catalog is not self._shown:
            self._shown = catalog
            self._given.update(catalog.names())

    def forget_names(self, old: Config, new: Config) -> None:
        """Names stay, except those the user has changed."""
        if old.naming != new.naming:
            self._given.clear()
        prefixes = {server.name: server.prefix for server in new.mcp_servers}
        renamed = {server.name for server in old.mcp_servers if prefixes.get(server.name, "") != server.prefix}
        self._given = {key: public for key, public in self._given.items() if key[1] not in renamed}
