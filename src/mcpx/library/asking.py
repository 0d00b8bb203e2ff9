"""What servers ask while a call runs, put to whoever opened the gateway: sampling, elicitation,
roots.

Promised: a server is told of a capability only where somebody answers. What a callback raises is
refused towards the server, and logged; the call goes on.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpx.library.values import Progress, Question
from mcpx.model.call import Json, as_object
from mcpx.model.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError

log = logging.getLogger(__name__)

Answer = Mapping[str, Any] | None
"""The result as MCP has it; None declines."""
Elicit = Callable[[Question], Awaitable[Answer]]
"""Answers `elicitation/create`: `{"action": "accept", "content": {…}}`; None: declined."""
Sample = Callable[[Question], Awaitable[Answer]]
"""Answers `sampling/createMessage` with a message of a model; None: refused."""
Roots = Sequence[str | Path]
"""Folders, or `file:` URIs, that servers are told of."""
OnProgress = Callable[[Progress], None]

DECLINED = {"action": "decline"}


def capabilities(elicit: Elicit | None, sample: Sample | None, roots: Roots) -> Json:
    told: Json = {}
    if elicit is not None:
        told["elicitation"] = {"form": {}, "url": {}}
    if sample is not None:
        told["sampling"] = {}
    if roots:
        told["roots"] = {}
    return told


class Voice:
    """Implements `model.call.Voice`."""

    def __init__(
        self,
        elicit: Elicit | None,
        sample: Sample | None,
        roots: Roots,
        on_progress: OnProgress | None,
    ) -> None:
        self._elicit, self._sample, self._roots = elicit, sample, roots
        self._on_progress = on_progress

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        if method == "roots/list" and self._roots:
            return {"roots": [_root(each) for each in self._roots]}
        by = {"elicitation/create": self._elicit, "sampling/createMessage": self._sample}.get(
            method
        )
        if by is None:
            raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")
        try:
            answer = await by(Question(server, method, as_object(params)))
        except RpcError:
            raise
        except Exception:
            log.exception("whoever answers %s has failed", method)
            raise RpcError(INTERNAL_ERROR, f"whoever answers {method} has failed") from None
        if answer is not None:
            return dict(answer)
        if method == "elicitation/create":
            return dict(DECLINED)
        raise RpcError(-1, "declined by the user")  # as MCP has it for sampling

    def tell(self, method: str, params: Json) -> None:
        if method != "notifications/progress" or self._on_progress is None:
            return
        try:
            self._on_progress(Progress.of(params))
        except Exception:
            log.exception("whoever hears of progress has failed")

    def pause(self, retry_ms: int) -> None:
        """Nobody polls here."""


def _root(root: str | Path) -> Json:
    if isinstance(root, str) and root.startswith("file:"):
        return {"uri": root, "name": root.rstrip("/").rpartition("/")[2] or root}
    path = Path(root).absolute()
    return {"uri": path.as_uri(), "name": path.name or str(path)}
