"""Calls that wait for somebody to approve them, and what was decided.

An approval is for one call: this caller, this profile, this tool, exactly these arguments. It is
used by the next such call, once, and within `GRANTED` seconds. Whoever calls the same again while
nobody has decided waits under the same id. A refusal is told to whoever calls the same again, until
it is forgotten.

Kept in memory only: what nobody decided before the gateway ended is asked again. Bounded in number,
for each caller too, and in bytes, since only what people are shown of the arguments is kept. With
replicas this is what one of them knows of all that wait anywhere, and `shared_book` decides.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import orjson

from mcpx.model.call import Json
from mcpx.model.errors import OVERLOADED, Denied
from mcpx.model.events import ApprovalChanged, ApprovalState, Passage
from mcpx.policy.showing import line, shown

WAITS = 900.0
"""Seconds a call waits for somebody to decide."""
GRANTED = 900.0
"""Seconds an approval can be used."""
REFUSED = 900.0
"""Seconds a refusal is told."""
MOST = 512
"""Calls that wait, are approved or refused, at a time."""
MOST_EACH = 64
"""Those of one caller."""
LONGEST_NAME = 300
"""Characters of a name that are kept."""

_BESIDE = ("_meta", "requestState", "inputResponses")
"""Params of a modern client that are no part of what is called; who goes by them must look at them
himself."""

Binding = bytes
"""Stands for one call: who, through which profile, what, with exactly which arguments."""


def binding_of(passage: Passage, arguments: object) -> Binding:
    """`arguments`: as they will be acted on. Raises `ValueError` or `RecursionError` for what is no
    JSON."""
    caller = passage.caller
    beside = _BESIDE if caller.modern else ("_meta",)
    said = {key: value for key, value in passage.params.items() if key not in beside}
    if "arguments" in said and said["arguments"] is arguments:
        said["arguments"] = "as they are"  # written once: they may be megabytes
    whole = (
        caller.principal,
        caller.profile,
        passage.method,
        passage.server,
        passage.name,
        said,
        arguments,
    )
    return hashlib.sha256(_written(whole)).digest()


def _written(whole: object) -> bytes:
    """The same for what is the same JSON, whatever the order of keys."""
    try:
        return b"q" + orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, half an emoji, very deep
        return b"s" + json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()


@dataclass(slots=True)
class Approval:
    """One call that waits, or was decided."""

    id: str
    binding: Binding
    principal: str
    profile: str | None
    server: str
    tool: str
    method: str
    arguments: str
    """As people are shown them: one line, shortened, without what is secret."""
    rule: str
    reason: str
    asked_at: float
    expires_at: float
    """By the calendar, for people; `ends` counts."""
    ends: float
    state: Literal["pending", "approved", "denied"] = "pending"
    by: str = ""
    """Who decided."""
    elsewhere: bool = False
    """It was asked for at another replica."""

    def told(self) -> Json:
        return {
            "id": self.id,
            "server": self.server,
            "tool": self.tool,
            "method": self.method,
            "principal": self.principal,
            "profile": self.profile,
            "arguments": self.arguments,
            "rule": self.rule,
            "reason": self.reason,
            "state": self.state,
            "asked_at": self.asked_at,
            "expires_at": self.expires_at,
        }


class Approvals:
    def __init__(
        self,
        publish: Callable[[ApprovalChanged], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publish = publish
        self.clock = clock
        self._by_binding: dict[Binding, Approval] = {}
        self._by_id: dict[str, Approval] = {}

    def of(self, binding: Binding) -> Approval | None:
        """What there is about such a call."""
        self._forget_old()
        return self._by_binding.get(binding)

    def use(self, approval: Approval) -> None:
        """Its call is made now; no other one is let through by it."""
        self.drop(approval, "used")

    def give_back(self, approval: Approval) -> None:
        """The call it was used for was certainly not made."""
        if approval.binding not in self._by_binding and self.clock() < approval.ends:
            self._put(approval)

    def wait_for(
        self, passage: Passage, binding: Binding, arguments: object, rule: str, reason: str
    ) -> Approval:
        """A call that somebody has to approve; the same one for the same call."""
        known = self.of(binding)
        if known is not None:
            return known
        principal = line(passage.caller.principal, LONGEST_NAME)
        of_each = sum(approval.principal == principal for approval in self._by_id.values())
        if len(self._by_id) >= MOST or of_each >= MOST_EACH:
            raise too_many()
        approval = self.made(passage, binding, arguments, rule, reason)
        self.add(approval)
        return approval

    def made(
        self, passage: Passage, binding: Binding, arguments: object, rule: str, reason: str
    ) -> Approval:
        """One that waits, under a new id; nobody knows of it yet."""
        now = time.time()
        return Approval(
            id=self._new_id(),
            binding=binding,
            principal=line(passage.caller.principal, LONGEST_NAME),
            profile=passage.caller.profile,
            server=passage.server,
            tool=line(passage.name, LONGEST_NAME),
            method=passage.method,
            arguments=shown(arguments),
            rule=rule,
            reason=reason,
            asked_at=now,
            expires_at=now + WAITS,
            ends=self.clock() + WAITS,
        )

    def add(self, approval: Approval, *, elsewhere: bool = False) -> None:
        """It waits, or was decided, from now on."""
        self._put(approval)
        self._tell(approval, approval.state, elsewhere=elsewhere)

    def decide(self, id: str, *, allow: bool, by: str) -> Approval | None:
        """None: nothing waits under that id."""
        self._forget_old()
        approval = self._by_id.get(id)
        if approval is None or approval.state != "pending":
            return None
        lasts = GRANTED if allow else REFUSED
        self.settle(
            approval,
            "approved" if allow else "denied",
            by,
            time.time() + lasts,
            self.clock() + lasts,
        )
        return approval

    def settle(
        self,
        approval: Approval,
        state: Literal["pending", "approved", "denied"],
        by: str,
        expires_at: float,
        ends: float,
        *,
        elsewhere: bool = False,
    ) -> None:
        """How it stands from now on."""
        changed = approval.state != state
        approval.state, approval.by, approval.expires_at, approval.ends = (
            state,
            by,
            expires_at,
            ends,
        )
        self._by_binding[approval.binding] = (
            approval  # with replicas another one may have waited for a moment
        )
        if changed:
            self._tell(approval, state, elsewhere=elsewhere)

    def all(self) -> list[Approval]:
        """Those that wait, and those that were decided."""
        self._forget_old()
        return list(self._by_id.values())

    def find(self, id: str) -> Approval | None:
        return self._by_id.get(id)

    def pending(self) -> list[Approval]:
        """Those that nobody has decided, the oldest first."""
        self._forget_old()
        return [approval for approval in self._by_id.values() if approval.state == "pending"]

    def _forget_old(self) -> None:
        now = self.clock()
        for approval in [each for each in self._by_id.values() if each.ends <= now]:
            self.drop(approval, "expired", elsewhere=approval.elsewhere)

    def drop(
        self, approval: Approval, state: Literal["used", "expired"], *, elsewhere: bool = False
    ) -> None:
        """It is not there any more. Of a refusal that is forgotten nobody is told."""
        self._by_id.pop(approval.id, None)
        if self._by_binding.get(approval.binding) is approval:
            del self._by_binding[approval.binding]
        if state == "used" or approval.state != "denied":
            self._tell(approval, state, elsewhere=elsewhere)

    def _put(self, approval: Approval) -> None:
        self._by_binding[approval.binding] = self._by_id[approval.id] = approval

    def _new_id(self) -> str:
        while (id := secrets.token_hex(4)) in self._by_id:
            pass
        return id

    def _tell(self, approval: Approval, state: ApprovalState, *, elsewhere: bool) -> None:
        self._publish(
            ApprovalChanged(
                approval.id,
                state,
                approval.server,
                approval.tool,
                approval.principal,
                approval.profile,
                approval.rule,
                approval.by,
                elsewhere,
            )
        )


def too_many() -> Denied:
    return Denied(
        OVERLOADED, "too many calls wait for approval; have some decided first", retry_after=60
    )
