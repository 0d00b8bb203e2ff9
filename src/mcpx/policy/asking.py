"""Has a person decide about a call: who sits at the client where they can be asked, else who looks
after the gateway.

An older client that can be asked (`elicitation`) is asked while the call waits. A modern one is
given the question as a result, and calls again with the answer. Of everybody else the call is
refused and kept as a pending approval; once that is approved, the same call passes, once.

Promised: nothing is forwarded before somebody said yes to exactly this call; no answer, an answer
that is not a clear yes, and an answer that comes too late are a no. A call that is given up takes
its question back. An approval is used up by a call that is made: one that a limit refuses, or that
is given up while it waits for its turn, leaves it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from mcpx.model.call import Caller, Json, Voice, as_object
from mcpx.model.errors import DENIED, NEEDS_APPROVAL, Denied, RpcError
from mcpx.model.events import Passage
from mcpx.policy.approvals import Approval, Binding, binding_of
from mcpx.policy.book import Away, Book
from mcpx.policy.rules import OURS, Rule, arguments_of
from mcpx.policy.seals import Seals
from mcpx.policy.showing import line, shown

if TYPE_CHECKING:
    from mcpx.policy.shared_book import SharedBook

PATIENCE = 300.0
"""Seconds somebody at a client may take to answer."""
KEY: Final = "mcpx-approval"
"""What our question is called among those of a result."""
BY_RESULT = frozenset(("tools/call", "prompts/get", "resources/read"))
"""Methods whose result may be a question."""
NOT_ASKED = frozenset(("resources/unsubscribe",))
"""Takes back what was asked for; nobody has to approve that."""
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
"""The rest of a call's way: it may be stopped before it is forwarded."""


def _straight(forward: Forward) -> Awaitable[Json]:
    return forward()


class Asking:
    def __init__(self, book: "Book | SharedBook") -> None:
        self._book = book

    async def pass_if_approved(
        self, passage: Passage, rule: Rule, forward: Forward, through: Through = _straight
    ) -> Json:
        """The result of the call; or, for a modern client, the question whether it may be made."""
        if passage.method in NOT_ASKED:
            return await through(forward)
        what = f"{passage.server}.{line(passage.name, LONGEST_NAME)}"
        if passage.method == "completion/complete":
            raise Denied(DENIED, f"{what} needs approval for each call, so nothing is completed")
        arguments = arguments_of(passage)
        try:
            binding = binding_of(passage, arguments)
        except (ValueError, RecursionError):
            raise Denied(
                DENIED, f"{what} needs approval, and these arguments cannot be shown to anybody"
            ) from None
        state = passage.params.get("requestState")
        came_back = await self._came_back(passage, binding, what)
        approval = None if came_back else await self._granted(passage, binding, what)
        if not came_back and approval is None:
            question = _question(passage, what, arguments, rule)
            if not _can_be_asked(passage):
                raise await self._has_to_wait(passage, binding, what, arguments, rule)
            if passage.caller.modern:
                asked = {KEY: {"method": "elicitation/create", "params": question}}
                sealed = await self._book.seal(passage.caller.principal, binding)
                return {
                    "resultType": "input_required",
                    "inputRequests": asked,
                    "requestState": sealed,
                }
            if not await self._says_yes(passage, question, what):
                raise await self._has_to_wait(passage, binding, what, arguments, rule)
        made = False

        def make() -> Awaitable[Json]:
            nonlocal made
            made = True
            return forward()

        try:
            result = await through(make)
        except (Exception, asyncio.CancelledError) as error:
            if not made or isinstance(
                error, Denied
            ):  # a limit was in the way, or it was given up: no server heard it
                if approval is not None:
                    await self._book.give_back(approval)
                elif came_back and not Seals.ours(state):
                    await self._book.goes_on(passage.caller.principal, binding, state)
            raise
        if passage.caller.modern and result.get("resultType") == "input_required":
            await self._book.goes_on(passage.caller.principal, binding, result.get("requestState"))
        return result

    async def _granted(self, passage: Passage, binding: Binding, what: str) -> Approval | None:
        usable = not _brings_answers(
            passage
        )  # else to a question not known here: not the call that was approved
        try:
            approval = await self._book.claim(binding, usable=usable)
        except Away:
            if _can_be_asked(passage) and not passage.caller.modern:
                return None  # whoever sits there decides, and nothing has to be kept for that
            raise
        if approval is None or approval.state == "pending":
            return None
        if approval.state == "denied":
            raise _decided_against(approval, what)
        return approval if usable else None

    async def _came_back(self, passage: Passage, binding: Binding, what: str) -> bool:
        """Whether a modern client brings a yes, or what the server asked of a call that was let
        through."""
        if not _brings_answers(passage):
            return False
        state: object = passage.params.get("requestState")
        if not Seals.ours(state):
            return await self._book.is_going_on(passage.caller.principal, binding, state)
        answer = as_object(passage.params.get("inputResponses")).get(KEY)
        strip(passage)
        if not await self._book.redeem(passage.caller.principal, str(state), binding):
            return False  # of another call, too old or used already: it is asked again
        if not _is_yes(answer):
            raise _refused(what)
        return True

    async def _says_yes(self, passage: Passage, question: Json, what: str) -> bool:
        """False: the client cannot be asked after all. A no is raised."""
        voice = passage.call.voice
        assert voice is not None
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await _put(voice, question)
        except TimeoutError:
            raise Denied(
                DENIED, f"{what} needs approval, and nobody answered in {PATIENCE:.0f} seconds"
            ) from None
        except RpcError:
            return False
        if not _is_yes(answer):
            raise _refused(what)
        return True

    async def _has_to_wait(
        self, passage: Passage, binding: Binding, what: str, arguments: object, rule: Rule
    ) -> Denied:
        approval = await self._book.wait_for(passage, binding, arguments, rule.label, rule.reason)
        if approval.state == "denied":  # just now
            return _decided_against(approval, what)
        because = f" ({rule.reason})" if rule.reason else ""
        told = (
            f"{what} needs approval{because}: ask for `mcpx approve {approval.id}` where the "
            "gateway runs"
        )
        data: Json = {"approval": approval.id, "expires": round(approval.expires_at)}
        return Denied(NEEDS_APPROVAL, f"{told}, then call again with the same arguments", data)


def strip(passage: Passage) -> None:
    """Take out what a modern client brings back to us: the server must not see it. In place, since
    what forwards the call has these very objects."""
    for params in (passage.params, passage.call.params):
        if Seals.ours(params.get("requestState")):
            del params["requestState"]
            params.pop("inputResponses", None)  # all of it: the server has asked nothing yet


async def _put(voice: Voice, question: Json) -> Json:
    return await voice.ask(OURS, "elicitation/create", question)


def _brings_answers(passage: Passage) -> bool:
    return passage.caller.modern and not passage.params.keys().isdisjoint(
        ("requestState", "inputResponses")
    )


def _question(passage: Passage, what: str, arguments: object, rule: Rule) -> Json:
    because = f"\nReason: {line(rule.reason, 1_000)}" if rule.reason else ""
    given = "" if arguments is None else f"\nArguments: {shown(arguments)}"
    return {
        "message": f"Allow {passage.method} of {what}?{given}{because}",
        "requestedSchema": SCHEMA,
    }


def _can_be_asked(passage: Passage) -> bool:
    caller = passage.caller
    if not _takes_forms(caller):
        return False
    return passage.method in BY_RESULT if caller.modern else passage.call.voice is not None


def _takes_forms(caller: Caller) -> bool:
    """Elicitation without further words is by forms; one that says how may do without them."""
    able = caller.capabilities.get("elicitation")
    return isinstance(able, dict) and ("form" in able or "url" not in able)


def _is_yes(answer: object) -> bool:
    said = as_object(answer)
    return said.get("action") == "accept" and as_object(said.get("content")).get("approve") is True


def _refused(what: str) -> Denied:
    return Denied(DENIED, f"{what} was not approved by the user")


def _decided_against(approval: Approval, what: str) -> Denied:
    return Denied(
        DENIED, f"{what} was refused by whoever looks after the gateway", {"approval": approval.id}
    )
