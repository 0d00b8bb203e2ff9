"""What a server's part of the house tells the gateway."""

from collections.abc import Collection, Iterable
from typing import Protocol

from mcpx.model.call import Json
from mcpx.model.offer import Kind
from mcpx.upstreams.traits import Kind as ClientKind


class Hub(Protocol):
    def offers_changed(self, server: str, kinds: Iterable[Kind], said_so: bool) -> None:
        """Its lists were read; `said_so`: because it announced that they have changed."""
        ...

    def offers_vary(self, server: str, kinds: Iterable[Kind], session: str | None) -> None:
        """Some callers are offered something else than before; the session that is to be told."""
        ...

    def listed_for(
        self, server: str, client_kind: ClientKind, changed: Collection[Kind], *, announce: bool
    ) -> None:
        """The lists for a kind of client were read. `changed`: the lists that differ from those
        before. `announce`: clients of this kind may have received those before."""
        ...

    def resource_updated(self, server: str, params: Json, to: frozenset[str]) -> None:
        """`to`: who is subscribed where it was heard."""
        ...

    def said(
        self,
        server: str,
        method: str,
        params: Json,
        owner: object | None,
        callers: object | None = None,
    ) -> None:
        """`owner`: the one client it concerns; None concerns everybody. `callers`: see
        `ServerSaid`."""
        ...

    def state_changed(self, server: str) -> None: ...
