"""What waits for somebody: calls to approve, definitions that are held back, servers to release or
to sign in to.

Nothing is made for looking: a gateway that guards nothing has nothing that waits.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcpx.admin.shapes.watching import Waiting
from mcpx.admin.wording import moment, plain
from mcpx.core.gateway import Gateway
from mcpx.core.missing import pinned_servers

if TYPE_CHECKING:
    from mcpx.policy.approvals import Approval
    from mcpx.policy.pins.pin_file import Held

MOST = 50
"""Things that are told of."""


def calls(gateway: Gateway) -> "list[Approval]":
    if "policy_state" not in vars(gateway.provisions) or "approvals" not in vars(
        gateway.provisions.policy_state
    ):
        return []
    return gateway.provisions.policy_state.approvals.pending()


def held_tools(gateway: Gateway) -> "Iterator[tuple[str, Held]]":
    for name, its in pinned_servers(gateway).items():
        for held in list(its.kept.held.values()):
            if held.item.kind == "tools":
                yield name, held


def is_quarantined(gateway: Gateway, server: str) -> bool:
    upstream = gateway.generation.upstreams.get(server)
    return upstream is not None and upstream.server.enabled and not upstream.enabled


def count(gateway: Gateway) -> int:
    """Calls and definitions that wait."""
    return len(calls(gateway)) + sum(its.held for its in pinned_servers(gateway).values())


def everything(gateway: Gateway) -> list[Waiting]:
    return [
        Waiting(**plain(told)) for told, _ in zip(_everything(gateway), range(MOST), strict=False)
    ]


def _everything(gateway: Gateway) -> Iterator[dict[str, str | int | None]]:
    for call in calls(gateway):
        detail = f"{call.principal}: {call.arguments}"[:300]
        title = f"{call.server}: {call.tool}"
        yield {"kind": "call", "title": title, "detail": detail, "expires": moment(call.expires_at)}
    for name, its in pinned_servers(gateway).items():
        if is_quarantined(gateway, name):
            detail = f"in quarantine; {its.held} definitions to look at"
            yield {"kind": "server", "title": name, "detail": detail, "count": its.held}
        elif its.held:
            some = ", ".join(held.item.name[:100] for held in list(its.kept.held.values())[:3])
            yield {
                "kind": "definition",
                "title": name,
                "detail": f"{its.held} held back: {some}",
                "count": its.held,
            }
    for name, upstream in gateway.generation.upstreams.items():
        if upstream.status.state == "needs_auth":
            problem = gateway.redactor.redact(
                upstream.connection.problem or "somebody has to sign in"
            )
            yield {
                "kind": "sign_in",
                "title": name,
                "detail": problem.removeprefix(f"{name}: ")[:300],
            }
