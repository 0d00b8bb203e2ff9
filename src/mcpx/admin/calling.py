"""Calling tools as the owner of the gateway: through the one guarded way that every call takes, as
principal `admin`.

Promise: rules, limits and the audit trail count as for anybody. A call ends with the connection it
was asked for on, or when somebody cancels it by its id. Bounded are calls at a time, what a running
one says, and what is answered. A server that asks something is declined, and whoever called is
told. It is told that it may ask only where it is told so by clients already, or is known to ask:
others would have to be started anew for it.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from mcpx import __version__
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, plain
from mcpx.admin.shapes.watching import (
    CallGiven,
    CallMessage,
    CallProgress,
    CallQuestion,
    CallResult,
    ModelSees,
)
from mcpx.admin.streaming import BEAT, COMMENT, attended, frame
from mcpx.admin.toolbox import COMPACT, missing_error
from mcpx.admin.watching import OWNER
from mcpx.base.aio import Tasks
from mcpx.formats.tokens import estimate
from mcpx.model.call import Call, Caller, Json, as_list, as_object
from mcpx.model.errors import RpcError
from mcpx.model.offer import Offer
from mcpx.surfaces.compact import Compact
from mcpx.surfaces.files import reads_files
from mcpx.wire import codec

MOST = 16
"""Calls at a time."""
LARGEST = 4 << 20
"""Bytes of a result that is answered whole."""
MOST_SAID = 200
"""Things a running call has said that wait to be sent; beyond that progress and messages are
dropped."""
SHOWN = 200_000
"""Characters of what a model sees that are told."""
CANCELLED = -32800
TOO_LARGE = "the result is too large to be shown here"
CLIENT: Json = {"name": "mcpx admin", "version": __version__}

Said = Callable[[str, CallProgress | CallMessage | CallQuestion], None]


class _Voice:
    """Hears what a server says while a call runs (`model.call.Voice`)."""

    def __init__(self, say: Said, redact: Callable[[str], str]) -> None:
        self._say = say
        self._redact = redact

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        text = self._shown(as_object(params).get("message"), 4_000) or ""
        question = CallQuestion(server=server, method=method, message=text, answer="decline")
        self._say("question", question)
        if method == "elicitation/create":
            return {"action": "decline"}
        raise RpcError(-32601, f"the admin cannot answer {method}")

    def tell(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            told = CallProgress(
                progress=_number(params.get("progress")) or 0.0,
                total=_number(params.get("total")),
                message=self._shown(params.get("message"), 1_000),
            )
            self._say("progress", told)
        elif method == "notifications/message":
            data, level = params.get("data"), params.get("level")
            if not isinstance(data, str):
                data = _json(data)
            if not isinstance(level, str):
                level = "info"
            text = (self._shown(data, 5_000) or "")[:4_000]
            self._say("message", CallMessage(level=level, text=text))

    def _shown(self, text: object, most: int) -> str | None:
        return plain(self._redact(text[:most])) if isinstance(text, str) else None

    def pause(self, retry_ms: int) -> None:
        """Nobody polls here."""


class Calling:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._tasks = Tasks("calls of the admin")
        self._running: dict[str, asyncio.Task[CallResult]] = {}
        self._cancelled: set[str] = set()

    async def close(self) -> None:
        await self._tasks.close()

    def cancel(self, id: str) -> None:
        task = self._running.get(id)
        if task is None:
            raise ApiError(404, None, "no call runs under this id", hint="it may be over already")
        self._cancelled.add(id)
        task.cancel()

    async def answer(self, name: str, given: CallGiven, gone: asyncio.Event) -> CallResult:
        """The result. The call is cancelled when the client disconnects."""
        task = self._begin(name, given, _unheard)

        async def result() -> CallResult:
            return await task

        return await attended(result(), gone)

    def frames(
        self, name: str, given: CallGiven
    ) -> tuple[AsyncGenerator[bytes], Callable[[], object]]:
        """Events while it runs, its result last; and what ends it when nobody reads them any
        more."""
        said: deque[bytes] = deque()
        news = asyncio.Event()

        def say(event: str, told: CallProgress | CallMessage | CallQuestion) -> None:
            if len(said) < MOST_SAID or event == "question":
                said.append(frame(event, told))
                news.set()

        task = self._begin(name, given, say)
        task.add_done_callback(lambda _: news.set())
        return _told(task, said, news), task.cancel

    # One call
    # ----------------------------------------------------------------------------------------------

    def _begin(self, name: str, given: CallGiven, say: Said) -> asyncio.Task[CallResult]:
        if len(self._running) >= MOST:
            message, again = f"{MOST} calls are running already", {"retry-after": "1"}
            hint = "cancel one, or wait"
            raise ApiError(429, "too_many_calls", message, hint=hint, headers=again)
        id = given.call_id or secrets.token_hex(8)
        if id in self._running:
            raise ApiError(409, None, "a call runs under this id already", "call_id")
        self._desk.check_profile(given.profile)
        work = self._call(name, given.arguments, given.profile, id, say)
        task = self._tasks.start(work, awaited=True, apart=True)
        self._running[id] = task
        task.add_done_callback(lambda _: self._over(id))
        return task

    def _over(self, id: str) -> None:
        self._running.pop(id, None)
        self._cancelled.discard(id)

    async def _call(
        self, name: str, arguments: Json, profile: str | None, id: str, say: Said
    ) -> CallResult:
        gateway, session = self._desk.gateway, f"admin-{secrets.token_urlsafe(12)}"
        bare = Caller(OWNER, profile, client=CLIENT, mode="direct", session=session)
        offer = gateway.catalogs.of(bare).find("tools", name)
        caller = Caller(
            OWNER,
            profile,
            client=CLIENT,
            mode="direct",
            session=session,
            capabilities=self._capabilities(offer),
            voice=_Voice(say, gateway.redactor.redact),
            since=time.monotonic(),
        )
        params: Json = {"name": name, "arguments": arguments, "_meta": {"progressToken": id}}
        call = Call("tools/call", params, caller)
        began = time.perf_counter()
        try:
            result = await gateway.handle(call)
            told = self._told(result, _since(began))
            if offer is not None:
                told.model = await self._seen_by_model(call, offer, arguments, result)
            return told
        except RpcError as error:
            message = error.message
            if offer is None and (missing := missing_error(gateway, name, profile, "name")):
                message = f"{missing.message}; {missing.hint}"
            failure = {"code": error.code, "message": message, "data": error.data}
            failure = plain(gateway.redactor.redact_values(failure))
            return CallResult(ok=False, ms=_since(began), error=failure)
        except asyncio.CancelledError:
            if id not in self._cancelled:
                raise
            failure = {"code": CANCELLED, "message": "the call was cancelled"}
            return CallResult(ok=False, ms=_since(began), error=failure)
        finally:
            self._tasks.start(gateway.sessions.end_session(session), apart=True)

    def _capabilities(self, offer: Offer | None) -> Json:
        """A server that is known to ask may ask. Others would be started again for it."""
        upstreams = self._desk.gateway.generation.upstreams
        if offer is None or offer.server not in upstreams:
            return {}
        return (
            {"elicitation": {}} if "elicitation" in upstreams[offer.server].traits.may_ask else {}
        )

    def _told(self, result: Json, ms: float) -> CallResult:
        is_ok = result.get("isError") is not True
        if len(_json(result)) > LARGEST:
            shortened = {"content": [{"type": "text", "text": TOO_LARGE}]}
            return CallResult(ok=is_ok, ms=ms, result=shortened, shortened=True)
        redacted = plain(self._desk.gateway.redactor.redact_values(result))
        return CallResult(ok=is_ok, ms=ms, result=redacted)

    async def _seen_by_model(
        self, call: Call, offer: Offer, arguments: Json, result: Json
    ) -> ModelSees:
        """The result as the configured compact mode shows it, or as `search` does."""
        generation = self._desk.gateway.generation
        mode: Any = generation.config.mode
        if mode not in COMPACT:
            mode = "search"
        surface = generation.surfaces.of(mode)
        assert isinstance(surface, Compact)
        how = surface.settings.of(offer.server)
        shown = await surface.bounded(call, result, how, lambda: not reads_files(offer, arguments))
        text, raw = _text(shown), _text(result)
        redact = self._desk.gateway.redactor
        blocks = map(as_object, as_list(shown.get("content")))
        content = [block for block in blocks if "text" not in block]
        if len(_json(content)) > LARGEST:
            content = []
        return ModelSees(
            mode=mode,
            text=plain(redact.redact(text))[:SHOWN],
            tokens=estimate(text),
            raw_tokens=estimate(raw),
            content=plain(redact.redact_values(content)),
        )


async def _told(
    task: asyncio.Task[CallResult], said: deque[bytes], news: asyncio.Event
) -> AsyncGenerator[bytes]:
    while True:
        news.clear()
        while said:
            yield said.popleft()
        if task.done():
            break
        try:
            async with asyncio.timeout(BEAT):
                await news.wait()
        except TimeoutError:
            yield COMMENT
    if not task.cancelled():
        yield frame("result", task.result())


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)


def _text(result: Json) -> str:
    texts = [as_object(block).get("text") for block in as_list(result.get("content"))[:1_000]]
    return "\n".join(text for text in texts if isinstance(text, str))


def _json(value: object) -> str:
    try:
        return codec.dump(value).decode()
    except codec.Unencodable:
        return ""


def _unheard(event: str, told: CallProgress | CallMessage | CallQuestion) -> None:
    """Where nobody reads while the call runs."""
