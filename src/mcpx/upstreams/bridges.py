"""Questions between the eras (sampling, elicitation, roots): each side sees its own form.

Older servers send a request back during the call; modern ones return `input_required` and are
called again with the answers. `answer_for_older` asks an older client for a modern server;
`Parking` keeps a modern client's call to an older server running while its questions travel as
results. Where both sides speak the same form, nothing is done.

No question is left without an answer: one that is open when a parked call is over for its client is
`Unasked`. One for roots is about no call: the client is asked before it gets the result, whichever
came first.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from mcpx.base.aio import Tasks
from mcpx.model.call import Call, Caller, Json, as_object
from mcpx.model.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    OVERLOADED,
    SERVER_TIMEOUT,
    RpcError,
    Unasked,
    Unavailable,
)
from mcpx.upstreams.traits import QUESTIONS, ROOTS, is_task, task_refused
from mcpx.wire import codec, era

if TYPE_CHECKING:
    from mcpx.upstreams.link import Link

PROGRESS: Final = "notifications/progress"


def client_of(caller: Caller) -> object:
    """What tells one client from another. A modern one over HTTP has no session: each of its calls
    stands alone."""
    if caller.solo:
        return "solo"
    return caller.session or caller.voice or object()


def marked(params: Json, server: str) -> Json:
    """`params` with the name of the server it came from (PRO-4)."""
    return {**params, "_meta": {**era.meta_of(params), "proxy": {"server": server}}}


class Lease:
    """Implements `wire.peer.Meanwhile`."""

    __slots__ = ("call", "client", "link", "parked")

    def __init__(
        self, link: "Link", call: Call, client: object, parked: "Parked | None" = None
    ) -> None:
        self.link = link
        self.call = call
        self.client = client
        self.parked = parked
        """Set where the client gets questions as results and comes back with the answers."""
        link.hold(self)

    @property
    def askable(self) -> bool:
        """Whether a question can reach its client before it is answered; by a completion of a
        modern one, none can."""
        return not self.parked.over if self.parked is not None else not self.call.caller.modern

    async def run(self, params: Json) -> Json:
        """The call, once, and the end of the lease; its result in the client's own era."""
        try:
            result = await self.link.call(self, params)
            if is_task(self.call.method, result):
                # The server still works on the task and may ask about it.
                self.link.haunt(self.client)
                raise task_refused(self.link.name)
            self.link.answered()
            return result
        except asyncio.CancelledError:
            self.link.haunt(self.client)
            raise
        except Unavailable as error:
            if error.code == SERVER_TIMEOUT:
                self.link.haunt(self.client)
            raise
        finally:
            self.link.release(self)

    def end(self) -> None:
        """Of one that was not made use of."""
        self.link.release(self)

    # What the server says meanwhile
    # ------------------------------------------------------------------------------

    def progress(self, params: Json) -> None:
        self.tell(PROGRESS, params)

    def notification(self, method: str, params: Json) -> None:
        """Belongs to this call, so it is this caller's and nobody else's."""
        self.tell(method, params)

    def tell(self, method: str, params: Json) -> None:
        caller, voice = self.call.caller, self.call.voice
        if voice is None or (self.parked is not None and self.parked.hold_back(method, params)):
            return
        if method == PROGRESS:
            # A parked call goes on under another request of its client, which brought a token of
            # its own.
            token = era.meta_of(self.call.params).get("progressToken", params.get("progressToken"))
            params = {**params, "progressToken": token}
        elif method == "notifications/message":
            wanted = caller.log_level is None and not caller.modern
            if not (wanted or era.admits(caller.log_level, params.get("level"))):
                return
        voice.tell(method, marked(params, self.link.name))

    def paused(self, retry_ms: int) -> None:
        if (voice := self.call.voice) is not None:
            voice.pause(retry_ms)

    async def question(self, method: str, params: Json | None) -> Json:
        """A question of the server that came on the stream of this call."""
        with self.link.questions.counted(params):
            return await self.ask(method, params)

    async def ask(self, method: str, params: Json | None) -> Json:
        """Put a question of the server to the client of this call."""
        self.link.asked(method)
        answer = await put(self.call, self.parked, self.link.name, method, params)
        if method == ROOTS:
            self.link.bind(self.call.caller, "it was told this client's roots")
        return answer


async def put(
    call: Call, parked: "Parked | None", server: str, method: str, params: Json | None
) -> Json:
    """One question to the client of one call, in the form of its era."""
    caller = call.caller
    capability = QUESTIONS.get(method)
    if capability is None or capability not in caller.capabilities:
        raise RpcError(METHOD_NOT_FOUND, f"the client cannot answer {method}")
    if parked is not None:
        return await parked.ask(method, params)
    voice = call.voice
    if voice is None or caller.modern:
        raise RpcError(METHOD_NOT_FOUND, f"the client cannot be asked {method} here")
    return await voice.ask(server, method, params)


ROUNDS = 10
"""How often a modern server may ask again for one call of an older client; what the SDKs use."""
QUESTIONS_AT_ONCE = 64
"""Questions that a modern server may have for an older client in one round."""
STATE_ONLY_DELAYS = (0.05, 0.1, 0.2, 0.25)
"""Pauses before a call is repeated for a server that sent no question, only a state."""
PARKED_FOR = 300.0
"""Seconds a question waits for a modern client to come back with the answer."""
PARKED_AT_MOST = 256
HELD_BACK = 64
HELD_BACK_BYTES = 64 << 10
"""What a server says about a parked call while its client is away with a question, the newest of
it."""


async def answer_for_older(
    call: Call, server: str, send: Callable[[Json], Awaitable[Json]], params: Json
) -> Json:
    """Older client, modern server: put each question to the client, call again with the answers."""
    pauses = iter(STATE_ONLY_DELAYS)
    result = await send(params)
    for _ in range(ROUNDS):
        if result.get("resultType") != "input_required":
            break
        questions = as_object(result.get("inputRequests"))
        params = {
            key: value
            for key, value in params.items()
            if key not in ("inputResponses", "requestState")
        }
        if len(questions) > QUESTIONS_AT_ONCE:
            raise Unavailable(server, OVERLOADED, f"asked {len(questions):,} questions at once")
        if questions:
            params["inputResponses"] = await _ask_all(call, server, questions)
        else:
            await asyncio.sleep(next(pauses, STATE_ONLY_DELAYS[-1]))
        if "requestState" in result:
            params["requestState"] = result["requestState"]
        result = await send(params)
    if result.get("resultType") == "input_required":
        raise Unavailable(
            server, INTERNAL_ERROR, f"asked for input more than {ROUNDS} times in one call"
        )
    if is_task(call.method, result):  # `as_older` removes the mark.
        raise task_refused(server)
    return era.as_older(result)


async def _ask_all(call: Call, server: str, questions: Json) -> Json:
    async def ask(question: Any) -> Json:
        method = as_object(question).get("method")
        if not isinstance(method, str):
            raise Unavailable(server, INTERNAL_ERROR, "asked something that is not a request")
        return await put(
            call, None, server, method, era.question_for_older(method, question.get("params"))
        )

    asked = {key: asyncio.ensure_future(ask(question)) for key, question in questions.items()}
    try:
        return dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
    finally:
        # The first error ends the call; the questions still open are taken back.
        for task in asked.values():
            task.cancel()
        await asyncio.wait(asked.values())


async def _caught(work: Awaitable[Json]) -> Json | RpcError:
    try:
        return await work
    except RpcError as error:
        return error


class Parked:
    """A modern client's call to an older server, kept running while its questions travel as
    `input_required`."""

    def __init__(self, owner: tuple[str, ...]) -> None:
        self.token = "mcpx-" + secrets.token_urlsafe(24)
        self.owner = owner
        self.lease: Lease | None = None
        """Its hold on a link, once it has one."""
        self.work: asyncio.Task[Json | RpcError] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self.over = False
        """Its client has the outcome, or comes back no more: nobody can be asked by it."""
        self._open: dict[str, tuple[Json, asyncio.Future[Json]]] = {}
        self._count = 0
        self._asked = asyncio.Event()
        self._away = False
        """The client took the question as a result: no request of its waits at the moment."""
        self._held: deque[tuple[str, Json, int]] = deque()
        self._held_size = 0

    def hold_back(self, method: str, params: Json) -> bool:
        """Keep what the server says for the client's next request; False if one waits and can be
        told now."""
        if not self._away:
            return False
        size = len(codec.dump(params))
        self._held.append((method, params, size))
        self._held_size += size
        while len(self._held) > HELD_BACK or (self._held_size > HELD_BACK_BYTES and self._held):
            self._held_size -= self._held.popleft()[2]
        return True

    def leave(self) -> None:
        self._away = True

    def come_back(self, call: Call) -> None:
        """Under another request, which is told what was held back and all that follows."""
        self._away = False
        if (lease := self.lease) is not None:
            lease.call = call
            for method, params, _ in self._held:
                lease.tell(method, params)
        self._held.clear()
        self._held_size = 0

    async def ask(self, method: str, params: Json | None) -> Json:
        if self.over:
            raise Unasked(method)
        self._count += 1
        key = f"q{self._count}"
        question: Json = (
            {"method": method} if params is None else {"method": method, "params": params}
        )
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._open[key] = (question, future)
        self._asked.set()
        try:
            return await future
        finally:
            self._open.pop(key, None)

    def take(self, answers: Any) -> None:
        for key, answer in as_object(answers).items():
            if key in self._open and isinstance(answer, dict) and not self._open[key][1].done():
                self._open[key][1].set_result(as_object(answer))

    async def until_asked(self) -> Json | RpcError | None:
        """The outcome of the call, or None as soon as it has a question. Gives the call up when
        cancelled.

        A result wins over a question that the server did not wait for, but not over one for roots:
        it asks for those once, on its own account, and on a busy machine the result of a short call
        is there in the same turn."""
        assert self.work is not None
        self._asked.clear()
        if self._unanswered():
            self._asked.set()
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((self.work, asked), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.give_up()
            raise
        finally:
            asked.cancel()
        wants_roots = any(question["method"] == ROOTS for question in self._unanswered().values())
        return self.work.result() if self.work.done() and not wants_roots else None

    def _unanswered(self) -> dict[str, Json]:
        return {
            key: question for key, (question, future) in self._open.items() if not future.done()
        }

    def give_up(self) -> None:
        if self.work is not None:
            self.work.cancel()
        self.end()

    def end(self) -> None:
        """Its client is not heard of any more: what was to be asked is not left waiting for it."""
        self.over = True
        for question, future in self._open.values():
            if not future.done():
                future.set_exception(Unasked(question["method"]))

    def as_result(self) -> Json:
        return {
            "resultType": "input_required",
            "inputRequests": self._unanswered(),
            "requestState": self.token,
        }


class Parking:
    """The parked calls of one upstream: bounded in number and time, each resumed by its owner
    only."""

    def __init__(self, server: str, tasks: Tasks, left: Callable[[], None] = lambda: None) -> None:
        """`left` is told when a call is parked here no more."""
        self._left = left
        self._server = server
        self._tasks = tasks
        self._parked: dict[str, Parked] = {}

    def __bool__(self) -> bool:
        return bool(self._parked)

    @staticmethod
    def _owner(call: Call, params: Json) -> tuple[str, ...]:
        """`params`: as the server gets them; what the client named may be a tool of a surface,
        which stands for all."""
        target = params.get("name", params.get("uri"))
        return (
            call.caller.profile or "",
            call.caller.principal,
            str(call.caller.client.get("name", "")),
            call.method,
            str(target),
        )

    def _find(self, call: Call) -> Parked | None:
        state = call.params.get("requestState")
        return self._parked.get(state) if isinstance(state, str) else None

    def holds(self, call: Call) -> bool:
        return self._find(call) is not None

    async def begin(
        self, call: Call, params: Json, run: Callable[[Parked], Awaitable[Json]]
    ) -> Json:
        parked = Parked(self._owner(call, params))
        parked.work = self._tasks.start(_caught(run(parked)))
        return await self._outcome(parked)

    async def resume(self, call: Call, params: Json) -> Json:
        parked = self._find(call)
        if parked is None or parked.owner != self._owner(call, params):
            raise RpcError(INVALID_PARAMS, "requestState is unknown or has expired")
        self._leave(parked)
        parked.come_back(call)
        parked.take(call.params.get("inputResponses"))
        return await self._outcome(parked)

    async def _outcome(self, parked: Parked) -> Json:
        """The result of the call; or its question as one, with the call left waiting for the
        answer."""
        outcome = await parked.until_asked()
        if outcome is not None:
            parked.end()
            if isinstance(outcome, RpcError):
                raise outcome
            return outcome
        if len(self._parked) >= PARKED_AT_MOST:
            self._give_up(parked)
            raise Unavailable(
                self._server, OVERLOADED, "too many calls wait for an answer of their client"
            )
        self._parked[parked.token] = parked
        parked.expiry = asyncio.get_running_loop().call_later(PARKED_FOR, self._give_up, parked)
        parked.leave()
        return parked.as_result()

    def see_off(self, stays: Callable[[str], bool]) -> None:
        """Give up what nobody can come back for: `stays` says of a principal whether it may still
        come in."""
        for parked in [parked for parked in self._parked.values() if not stays(parked.owner[1])]:
            self._give_up(parked)

    def _leave(self, parked: Parked) -> None:
        self._parked.pop(parked.token, None)
        self._left()
        if parked.expiry is not None:
            parked.expiry.cancel()

    def _give_up(self, parked: Parked) -> None:
        self._leave(parked)
        parked.give_up()
