"""Asks a person about a call: the client's user if possible, else an administrator (SEC-7).

A client of an older era that supports elicitation is asked while the call waits. A modern client
gets the question as a result, and calls again with the answer. For other clients, the call is
refused and kept as a pending approval. After the approval, the same call passes once.

A call is forwarded only after a clear yes to exactly this call. A call that is cancelled withdraws
its question. A call that a limit refuses, or that is cancelled while it waits, does not use its
approval.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from mcpx.model.call import Caller, Json, Voice, as_object
from mcpx.model.errors import DENIED, NEEDS_APPROVAL, Denied, RpcError
from mcpx.model.events import Passage
from mcpx.policy.approvals import Approval, ApprovalStore, Binding, StoreAway, binding_of
from mcpx.policy.rules import OURS, Rule, arguments_of
from mcpx.policy.showing import line, shown

PATIENCE = 300.0
"""Seconds for an answer of the client's user."""
KEY: Final = "mcpx-approval"
"""Name of the gateway's question in a result."""
STATE_PREFIX: Final = "mcpx-ask."
"""Begins each `requestState` of the gateway."""
BY_RESULT = frozenset(("tools/call", "prompts/get", "resources/read"))
"""Methods whose result may be a question."""
NOT_ASKED = frozenset(("resources/unsubscribe",))
"""Methods that release something need no approval."""
LONGEST_NAME = 300

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Allow this call, once", "default": False}
    },
    "required": ["approve"],
}

Forward = Callable[[], Awaitable[Json]]
Through = Callable[[Forward], Awaitable[Json]]
"""The rest of the way of a call. It may end before the call is forwarded."""


class Asking:
    def __init__(self, store: ApprovalStore) -> None:
        self._store = store

    async def pass_if_approved(
        self, passage: Passage, rule: Rule, forward: Forward, through: Through
    ) -> Json:
        """Return the result of the call, or for a modern client the question about it."""
        if passage.method in NOT_ASKED:
            return await through(forward)
        request = _Request(passage, rule)
        state: object = passage.params.get("requestState")
        has_answer = await self._has_answer(request)
        approval = None
        if not has_answer:
            approval = await self._claimed(request)
        if not has_answer and approval is None:
            if request.by_result:
                return await self._question_result(request)
            if not await self._says_yes(request):
                raise await self._has_to_wait(request)
        made = False

        def make() -> Awaitable[Json]:
            nonlocal made
            made = True
            return forward()

        try:
            result = await through(make)
        except (Exception, asyncio.CancelledError) as error:
            if not made or isinstance(error, Denied):  # The server has not received the call.
                if approval is not None:
                    await self._store.give_back(approval)
                elif has_answer and not is_own_state(state):
                    await self._expect(request, state)
            raise
        if passage.caller.modern and result.get("resultType") == "input_required":
            await self._expect(request, result.get("requestState"))
        return result

    async def _expect(self, request: "_Request", state: object) -> None:
        """A server may ask something. Its question continues this call, which was approved."""
        try:
            await self._store.expect(request.principal, request.binding, state)
        except StoreAway:
            pass  # The person is asked again.

    async def _has_answer(self, request: "_Request") -> bool:
        """Return whether a modern client brings a yes, or continues a call that was approved."""
        if not request.brings_answers:
            return False
        params = request.passage.params
        state: object = params.get("requestState")
        if not is_own_state(state):
            return await self._store.redeem(request.principal, request.binding, state)
        answer = as_object(params.get("inputResponses")).get(KEY)
        strip(request.passage)
        if not await self._store.redeem(request.principal, request.binding, state):
            return False  # Of another call, expired, or used: ask again.
        if not _is_yes(answer):
            raise request.refused()
        return True

    async def _claimed(self, request: "_Request") -> Approval | None:
        # A call that answers an unknown question is not the call that was approved.
        usable = not request.brings_answers
        try:
            approval = await self._store.claim(request.binding, usable=usable)
        except StoreAway:
            if request.has_person:
                return None
            raise
        if approval is None or approval.state == "pending":
            return None
        if approval.state == "denied":
            raise request.decided_against(approval)
        if not usable:
            return None
        return approval

    async def _question_result(self, request: "_Request") -> Json:
        state = STATE_PREFIX + secrets.token_urlsafe(16)
        await self._store.expect(request.principal, request.binding, state)
        question = {"method": "elicitation/create", "params": request.question()}
        return {
            "resultType": "input_required",
            "inputRequests": {KEY: question},
            "requestState": state,
        }

    async def _says_yes(self, request: "_Request") -> bool:
        """Return False if the person cannot be asked. Raises `Denied` for a no."""
        voice = request.passage.call.voice
        if voice is None or not request.has_person:
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await _put(voice, request.question())
        except TimeoutError:
            text = f"{request.target} needs approval, and nobody answered in {PATIENCE:.0f} seconds"
            raise Denied(DENIED, text) from None
        except RpcError:
            return False
        if not _is_yes(answer):
            raise request.refused()
        return True

    async def _has_to_wait(self, request: "_Request") -> Denied:
        rule = request.rule
        approval = await self._store.wait_for(
            request.passage, request.binding, request.arguments, rule.label, rule.reason
        )
        if approval.state == "denied":
            return request.decided_against(approval)
        text = f"{request.target} needs approval"
        if rule.reason:
            text = f"{text} ({rule.reason})"
        text = f"{text}: ask for `mcpx approve {approval.id}` where the gateway runs"
        data: Json = {"approval": approval.id, "expires": round(approval.expires_at)}
        return Denied(NEEDS_APPROVAL, f"{text}, then call again with the same arguments", data)


class _Request:
    """A call that needs approval."""

    def __init__(self, passage: Passage, rule: Rule) -> None:
        """Raises `Denied` if the call cannot be approved."""
        self.passage = passage
        self.rule = rule
        self.principal = passage.caller.principal
        self.target = f"{passage.server}.{line(passage.name, LONGEST_NAME)}"
        if passage.method == "completion/complete":
            text = f"{self.target} needs approval for each call, so nothing is completed"
            raise Denied(DENIED, text)
        self.arguments = arguments_of(passage)
        try:
            self.binding: Binding = binding_of(passage, self.arguments)
        except (ValueError, RecursionError):
            text = f"{self.target} needs approval, and these arguments cannot be displayed"
            raise Denied(DENIED, text) from None
        is_modern = passage.caller.modern
        self.brings_answers = is_modern and bool(
            passage.params.keys() & {"requestState", "inputResponses"}
        )
        takes_forms = _takes_forms(passage.caller)
        self.by_result = takes_forms and is_modern and passage.method in BY_RESULT
        """The question can be a result."""
        self.has_person = takes_forms and not is_modern and passage.call.voice is not None
        """A person can be asked while the call waits."""

    def question(self) -> Json:
        text = f"Allow {self.passage.method} of {self.target}?"
        if self.arguments is not None:
            text = f"{text}\nArguments: {shown(self.arguments)}"
        if self.rule.reason:
            text = f"{text}\nReason: {line(self.rule.reason, 1_000)}"
        return {"message": text, "requestedSchema": SCHEMA}

    def refused(self) -> Denied:
        return Denied(DENIED, f"{self.target} was not approved by the user")

    def decided_against(self, approval: Approval) -> Denied:
        text = f"{self.target} was refused by an administrator of the gateway"
        return Denied(DENIED, text, {"approval": approval.id})


def is_own_state(state: object) -> bool:
    return isinstance(state, str) and state.startswith(STATE_PREFIX)


def strip(passage: Passage) -> None:
    """Remove what a modern client sends back to the gateway. In place: the forwarder has these
    objects."""
    for params in (passage.params, passage.call.params):
        if is_own_state(params.get("requestState")):
            del params["requestState"]
            params.pop("inputResponses", None)  # The server has not asked anything yet.


async def _put(voice: Voice, question: Json) -> Json:
    return await voice.ask(OURS, "elicitation/create", question)


def _takes_forms(caller: Caller) -> bool:
    """Elicitation without further details is by forms."""
    able = caller.capabilities.get("elicitation")
    return isinstance(able, dict) and ("form" in able or "url" not in able)


def _is_yes(answer: object) -> bool:
    said = as_object(answer)
    return said.get("action") == "accept" and as_object(said.get("content")).get("approve") is True
