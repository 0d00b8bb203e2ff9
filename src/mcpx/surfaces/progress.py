"""The progress of several calls as that of one: each is worth one, and what is told only grows
(PRO-2)."""

import math
from typing import Any

from mcpx.model.call import Call, Json, Voice
from mcpx.wire import era

PROGRESS = "notifications/progress"
NEARLY = 0.99
"""What a call that is not over is worth at most."""


class Progress:
    def __init__(self, call: Call, count: int) -> None:
        self._inner = call.voice
        self._token = era.meta_of(call.params).get("progressToken")
        self._parts = [0.0] * count
        self._told = -1.0
        """What was told last; nothing yet."""

    def voice_of(self, at: int) -> Voice | None:
        if self._inner is None or len(self._parts) == 1:
            return self._inner
        return _OneVoice(self, self._inner, at)

    def step(self, at: int, params: Json) -> None:
        done, total = _number(params.get("progress")), _number(params.get("total"))
        part = done / total if total > 0 else done / (done + 1)
        if self._advance(at, min(part, NEARLY)) and self._inner is not None:
            self._inner.tell(
                PROGRESS, {**params, "progress": self._told, "total": len(self._parts)}
            )

    def finished(self, at: int, message: str) -> None:
        if (
            self._advance(at, 1.0)
            and self._token is not None
            and self._inner is not None
            and len(self._parts) > 1
        ):
            told: Json = {
                "progressToken": self._token,
                "progress": self._told,
                "total": len(self._parts),
            }
            self._inner.tell(PROGRESS, {**told, "message": message})

    def _advance(self, at: int, part: float) -> bool:
        """Whether that is more than was told."""
        self._parts[at - 1] = max(self._parts[at - 1], part)
        now = round(sum(self._parts), 4)
        if now <= self._told:
            return False
        self._told = int(now) if now == int(now) else now
        return True


class _OneVoice:
    """The way back from one of several calls."""

    __slots__ = ("_at", "_inner", "_progress")

    def __init__(self, progress: Progress, inner: Voice, at: int) -> None:
        self._progress = progress
        self._inner = inner
        self._at = at

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        return await self._inner.ask(server, method, params)

    def tell(self, method: str, params: Json) -> None:
        if method == PROGRESS:
            self._progress.step(self._at, params)
        else:
            self._inner.tell(method, params)

    def pause(self, retry_ms: int) -> None:
        self._inner.pause(retry_ms)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return max(float(value), 0.0) if abs(value) < 1e300 else 0.0
