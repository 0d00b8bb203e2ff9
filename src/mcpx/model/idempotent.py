"""Requests without effect, which may be sent again if their outcome is unknown.

The bridge imports this module, so it imports nothing.
"""

REPEATABLE = frozenset(
    [
        "initialize",
        "ping",
        "server/discover",
        "subscriptions/listen",
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "logging/setLevel",
    ]
)
