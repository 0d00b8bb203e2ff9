"""Callers for tests without a front: of an older version, and of 2026-07-28."""

import asyncio
import time
from typing import Any

from mcpx.model.call import Caller, Json
from mcpx.wire import era

CLIENT_CAPABILITIES: Json = {"elicitation": {}, "sampling": {}, "roots": {}}


class RecordingChannel:
    """The channel to a client (`Caller.voice`). It records notifications and replies to requests by
    method."""

    def __init__(self, **answers: Any) -> None:
        self.told: list[tuple[str, Json]] = []
        self.asked: list[tuple[str, str, Json | None]] = []
        self.pauses: list[int] = []
        self.answers: dict[str, Any] = answers
        """Maps the last word of a method (`create`, `createMessage`, `list`) to a result, an error,
        or a future."""

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        self.asked.append((server, method, params))
        answer = self.answers[method.rpartition("/")[2]]
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tell(self, method: str, params: Json) -> None:
        self.told.append((method, params))

    def pause(self, retry_ms: int) -> None:
        self.pauses.append(retry_ms)


def older_caller(session: str = "one", *, askable: bool = False, **fields: Any) -> Caller:
    """With `askable`, the client declares all capabilities."""
    fields.setdefault("voice", RecordingChannel())
    return Caller(
        session=session,
        client={"name": "older", "version": "1"},
        capabilities=CLIENT_CAPABILITIES if askable else {},
        since=time.monotonic(),
        **fields,
    )


def modern_caller(client: str = "modern", *, askable: bool = False, **fields: Any) -> Caller:
    """With `askable`, the client declares all capabilities."""
    fields.setdefault("voice", RecordingChannel())
    return Caller(
        version=era.LATEST_MODERN,
        modern=True,
        client={"name": client, "version": "1"},
        capabilities=CLIENT_CAPABILITIES if askable else {},
        since=time.monotonic(),
        **fields,
    )
