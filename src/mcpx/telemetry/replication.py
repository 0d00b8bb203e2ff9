"""Figures of replicas and their store; nothing where there is none."""

from mcpx.core.gateway import Gateway
from mcpx.telemetry.prometheus import Text, label, labelled


def write(text: Text, gateway: Gateway) -> None:
    replicas = gateway.replicas
    if replicas is None:
        return
    store = replicas.store
    text.one(
        "mcpx_store_up",
        "gauge",
        "Whether the store that replicas share can be used.",
        int(store.up),
    )
    text.one(
        "mcpx_store_failures_total", "counter", "How often the store went away.", store.failures
    )
    text.one(
        "mcpx_replicas",
        "gauge",
        "Replicas that are there, as this one knows; while the store is away, as they were last "
        "seen.",
        len(replicas.members.others) + 1,
    )
    text.family(
        "mcpx_forwarded_total",
        "counter",
        "Requests that were passed to the replica whose session they belong to, by how that went.",
        [
            (labelled(outcome=label(outcome)), count)
            for outcome, count in sorted(replicas.forwarded.items())
        ],
    )
    text.one(
        "mcpx_sessions_adopted_total",
        "counter",
        "Sessions of replicas that are gone or leaving, which go on at this one.",
        replicas.adopted,
    )
