"""Calls that wait for approval, and the way to decide about them, for whoever looks after a
gateway.

Each answer is an object for a command line or an API, with `ok`. Arguments are told shortened,
without what is secret.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from mcpx.core.gateway import Gateway
from mcpx.model.call import Json
from mcpx.model.errors import Denied

if TYPE_CHECKING:
    from mcpx.policy.approvals import ApprovalStore


class PendingCalls:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @property
    def verbs(self) -> Mapping[str, Callable[[Json], Awaitable[Json]]]:
        """For the control socket."""
        return {"approvals": self._list, "decide": self._decide}

    @property
    def _book(self) -> "ApprovalStore":
        return self._gateway.provisions.policy_state.book

    async def _list(self, request: Json) -> Json:
        return {"ok": True, "calls": [approval.told() for approval in await self._book.pending()]}

    async def _decide(self, request: Json) -> Json:
        id, allow, by = request.get("id"), request.get("allow"), request.get("by")
        if not isinstance(id, str) or not isinstance(allow, bool):
            return {"ok": False, "error": "'id' must be a text and 'allow' true or false"}
        try:
            approval = await self._book.decide(
                id, allow=allow, by=by if isinstance(by, str) else ""
            )
        except Denied as away:
            return {"ok": False, "error": away.message}
        if approval is None:
            return {
                "ok": False,
                "error": f"no call waits for approval under {id!r}",
                "unknown": True,
            }
        return {"ok": True, "call": approval.told()}
