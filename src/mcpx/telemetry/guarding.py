"""Figures of what guards the gateway: limits, approvals, pinned definitions."""

from collections.abc import Collection, Mapping
from typing import Protocol, cast

from mcpx.core.gateway import Gateway
from mcpx.telemetry.prometheus import Text, label, labelled


class _Counters(Protocol):
    refused: Mapping[str, int]

    def depth(self) -> Mapping[str, int]: ...


class _Approvals(Protocol):
    def pending(self) -> Collection[object]: ...


class _Pinned(Protocol):
    @property
    def held(self) -> int: ...


class _Pins(Protocol):
    @property
    def servers(self) -> Mapping[str, _Pinned]: ...


def write(text: Text, gateway: Gateway) -> None:
    """Of what was never needed there is nothing to tell, and nothing is made for this."""
    made = (
        vars(gateway.provisions.policy_state) if "policy_state" in vars(gateway.provisions) else {}
    )
    counters = cast("_Counters | None", made.get("counters"))
    queued = {"client": 0, "profile": 0, "server": 0} if counters is None else counters.depth()
    text.family(
        "mcpx_queued_calls",
        "gauge",
        "Calls that wait for their turn, by the kind of limit they wait under.",
        [(labelled(limit=kind), count) for kind, count in queued.items()],
    )
    text.family(
        "mcpx_limited_total",
        "counter",
        "Calls that a limit refused, by limit.",
        []
        if counters is None
        else [(labelled(limit=label(limit)), n) for limit, n in counters.refused.items()],
    )
    approvals = cast("_Approvals | None", made.get("approvals"))
    pending = 0 if approvals is None else len(approvals.pending())
    text.one(
        "mcpx_approvals_pending", "gauge", "Calls that wait for a person to approve them.", pending
    )
    pins = cast("_Pins | None", made.get("pins"))
    held = 0 if pins is None else sum(pinned.held for pinned in pins.servers.values())
    text.one(
        "mcpx_held_definitions",
        "gauge",
        "Definitions of servers held back until they are approved.",
        held,
    )
