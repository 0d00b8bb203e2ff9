"""Calls that wait for approval, decisions about them, and one-time tokens of pending questions.

An approval is for one call: caller, profile, tool, and exact arguments. The next such call uses it,
once and within `GRANTED` seconds. The same call has the same id until a decision. A refusal is
reported to later calls until it expires.

Approvals are kept in memory. Their number is limited, also for each caller, and only the shortened
arguments are kept. `cluster_approvals` has the implementation for replicas.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import orjson

from mcpx.model.call import Json
from mcpx.model.errors import OVERLOADED, Denied
from mcpx.model.events import ApprovalChanged, ApprovalState, Passage
from mcpx.policy.showing import line, shown

if TYPE_CHECKING:
    from mcpx.policy.cluster_approvals import ClusterTokens

WAITS = 900.0
"""Seconds in which a decision is possible."""
GRANTED = 900.0
"""Seconds in which an approval can be used."""
REFUSED = 900.0
"""Seconds for which a refusal is reported."""
MOST = 512
"""Pending, approved, and refused calls."""
MOST_EACH = 64
"""Those of one caller."""
LONGEST_NAME = 300
STORE_RETRY_SECONDS: Final = 2.0
TOKEN_SECONDS = 300.0
"""Time to answer a question, of the gateway or of a server."""
MAX_TOKENS = 4_096
MAX_TOKENS_EACH = 64
"""Tokens of one caller."""

_BESIDE = ("_meta", "requestState", "inputResponses")
"""Params of a modern client that are no part of what is called; who goes by them must look at them
himself."""

Binding = bytes
"""Stands for one call: who, through which profile, what, with exactly which arguments."""


def binding_of(passage: Passage, arguments: object) -> Binding:
    """`arguments`: as they will be acted on. Raises `ValueError` or `RecursionError` for what is no
    JSON."""
    caller = passage.caller
    beside = ("_meta",)
    if caller.modern:
        beside = _BESIDE
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
    """A call that waits, or that was decided."""

    id: str
    server: str
    tool: str
    method: str
    principal: str
    profile: str | None
    arguments: str
    """One line, shortened, without secrets."""
    rule: str
    reason: str
    asked_at: float
    expires_at: float
    """Unix time, for people. `ends` is the time that counts."""
    state: Literal["pending", "approved", "denied"] = "pending"
    binding: Binding = field(repr=False, default=b"")
    ends: float = 0.0  # Monotonic time.
    by: str = ""
    """The user who decided."""
    elsewhere: bool = False
    """Another replica created it."""

    def told(self) -> Json:
        fields = asdict(self)
        for internal in ("binding", "ends", "by", "elsewhere"):
            del fields[internal]
        return fields


def new_approval(
    passage: Passage, binding: Binding, arguments: object, rule: str, reason: str
) -> Approval:
    now = time.time()
    return Approval(
        id=secrets.token_hex(4),
        server=passage.server,
        tool=line(passage.name, LONGEST_NAME),
        method=passage.method,
        principal=line(passage.caller.principal, LONGEST_NAME),
        profile=passage.caller.profile,
        arguments=shown(arguments),
        rule=rule,
        reason=reason,
        asked_at=now,
        expires_at=now + WAITS,
        binding=binding,
    )


class Approvals:
    """The approvals that this process knows. Publishes an event for each change."""

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
        self._remove_expired()
        return self._by_binding.get(binding)

    def find(self, id: str) -> Approval | None:
        return self._by_id.get(id)

    def all(self) -> list[Approval]:
        self._remove_expired()
        return list(self._by_id.values())

    def pending(self) -> list[Approval]:
        """Oldest first."""
        return [approval for approval in self.all() if approval.state == "pending"]

    def wait_for(
        self, passage: Passage, binding: Binding, arguments: object, rule: str, reason: str
    ) -> Approval:
        """Return the approval of this call, or create a pending one. Raises `Denied`."""
        known = self.of(binding)
        if known is not None:
            return known
        approval = new_approval(passage, binding, arguments, rule, reason)
        callers = [each.principal for each in self._by_id.values()]
        is_full = len(callers) >= MOST or callers.count(approval.principal) >= MOST_EACH
        if is_full or approval.id in self._by_id:
            raise too_many()
        approval.ends = self.clock() + WAITS
        self.add(approval)
        return approval

    def add(self, approval: Approval, *, elsewhere: bool = False) -> None:
        self._put(approval)
        self._tell(approval, approval.state, elsewhere=elsewhere)

    def give_back(self, approval: Approval) -> None:
        """The call that used the approval was not made."""
        if approval.binding not in self._by_binding and self.clock() < approval.ends:
            self._put(approval)

    def decide(self, id: str, *, allow: bool, by: str) -> Approval | None:
        """Return None if no call waits under this id."""
        self._remove_expired()
        approval = self._by_id.get(id)
        if approval is None or approval.state != "pending":
            return None
        state, seconds = decision(allow)
        approval.by, approval.ends = by, self.clock() + seconds
        approval.expires_at = time.time() + seconds
        self.set_state(approval, state)
        return approval

    def set_state(
        self,
        approval: Approval,
        state: Literal["pending", "approved", "denied"],
        *,
        elsewhere: bool = False,
    ) -> None:
        if approval.state != state:
            approval.state = state
            self._tell(approval, state, elsewhere=elsewhere)

    def drop(
        self, approval: Approval, state: Literal["used", "expired"], *, elsewhere: bool = False
    ) -> None:
        """The end of a refusal is not reported."""
        self._by_id.pop(approval.id, None)
        if self._by_binding.get(approval.binding) is approval:
            del self._by_binding[approval.binding]
        if state == "used" or approval.state != "denied":
            self._tell(approval, state, elsewhere=elsewhere)

    def _remove_expired(self) -> None:
        now = self.clock()
        for approval in list(self._by_id.values()):
            if approval.ends <= now:
                self.drop(approval, "expired", elsewhere=approval.elsewhere)

    def _put(self, approval: Approval) -> None:
        self._by_binding[approval.binding] = self._by_id[approval.id] = approval

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


class OneTimeTokens:
    """What a caller may bring back, once and in time. `ClusterTokens` has the same methods."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expiries: dict[str, dict[bytes, float]] = {}
        """By caller, oldest first."""

    async def add(self, caller: str, token: bytes) -> None:
        """Of too many tokens, the oldest of the caller with the most is dropped."""
        self._take(caller, token)
        own = self._expiries.setdefault(caller, {})
        own[token] = self._clock() + TOKEN_SECONDS
        if len(own) > MAX_TOKENS_EACH:
            del own[next(iter(own))]
        if sum(map(len, self._expiries.values())) > MAX_TOKENS:
            self._drop_one()

    async def take(self, caller: str, token: bytes) -> bool:
        """Remove the token. Return whether it was known and had not expired."""
        return self._take(caller, token)

    def _take(self, caller: str, token: bytes) -> bool:
        own = self._expiries.get(caller, {})
        expiry = own.pop(token, 0.0)
        if not own:
            self._expiries.pop(caller, None)
        return self._clock() < expiry

    def _drop_one(self) -> None:
        now = self._clock()
        for caller, own in list(self._expiries.items()):
            for token, expiry in list(own.items()):
                if expiry <= now:
                    self._take(caller, token)
        if sum(map(len, self._expiries.values())) > MAX_TOKENS:
            longest = max(self._expiries, key=lambda caller: len(self._expiries[caller]))
            self._take(longest, next(iter(self._expiries[longest])))


def resume_token(binding: Binding, state: object) -> bytes:
    """Stands for one call that continues with a state."""
    try:
        text = json.dumps(state, sort_keys=True)
    except (ValueError, RecursionError):
        return secrets.token_bytes(32)  # Matches no other state.
    return hashlib.sha256(binding + text.encode()).digest()


class ApprovalStore:
    """Approvals and resume tokens. Methods are asynchronous for `ClusterApprovalStore`, which also
    raises `StoreAway`."""

    def __init__(self, approvals: Approvals) -> None:
        self.approvals = approvals
        self._tokens: OneTimeTokens | ClusterTokens = OneTimeTokens(approvals.clock)

    async def claim(self, binding: Binding, *, usable: bool) -> Approval | None:
        """Return the approval of this call. If it is approved and `usable`, this call uses it."""
        approval = self.approvals.of(binding)
        if approval is not None and approval.state == "approved" and usable:
            self.approvals.drop(approval, "used")
        return approval

    async def give_back(self, approval: Approval) -> None:
        """The call that claimed the approval was not made."""
        self.approvals.give_back(approval)

    async def wait_for(
        self, passage: Passage, binding: Binding, arguments: object, rule: str, reason: str
    ) -> Approval:
        return self.approvals.wait_for(passage, binding, arguments, rule, reason)

    async def decide(self, id: str, *, allow: bool, by: str) -> Approval | None:
        """Return None if no call waits under this id."""
        return self.approvals.decide(id, allow=allow, by=by)

    async def pending(self) -> list[Approval]:
        """Oldest first."""
        return self.approvals.pending()

    async def expect(self, caller: str, binding: Binding, state: object) -> None:
        """The caller may continue this call with this state, once."""
        await self._tokens.add(caller, resume_token(binding, state))

    async def redeem(self, caller: str, binding: Binding, state: object) -> bool:
        """Return whether the caller continues an expected call."""
        return await self._tokens.take(caller, resume_token(binding, state))

    async def close(self) -> None:
        """Nothing to close without a cluster."""


class StoreAway(Denied):
    def __init__(self, what: str) -> None:
        text = f"{what} while the store of the replicas is away; try again"
        super().__init__(OVERLOADED, text, retry_after=STORE_RETRY_SECONDS)


def decision(allow: bool) -> tuple[Literal["approved", "denied"], float]:
    """Return the state, and for how many seconds it counts."""
    if allow:
        return "approved", GRANTED
    return "denied", REFUSED


def too_many() -> Denied:
    text = "too many calls wait for approval; have some decided first"
    return Denied(OVERLOADED, text, retry_after=60)
