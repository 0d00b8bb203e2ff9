"""Which requests may be asked a second time where it is not known what became of the first."""

from typing import Final

REPEATABLE: Final = frozenset(
    (
        *("initialize", "ping", "server/discover", "subscriptions/listen"),
        *(
            "tools/list",
            "prompts/list",
            "prompts/get",
            "resources/list",
            "resources/templates/list",
        ),
        *(
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "completion/complete",
            "logging/setLevel",
        ),
    )
)
"""Requests without effect: asked twice they are answered twice, and that is all."""
