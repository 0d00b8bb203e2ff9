"""What a server is like towards clients that can be asked something: learnt from what it does, kept
with its snapshot.

A question of an older server (sampling, elicitation, roots) must have exactly one possible
addressee (decision 0004). That costs connections, so it is paid for only where a server has shown
that it asks: one that answered many calls of such clients without ever asking is *quiet*, and is
shared like one that never could.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from mcpx.model.call import Caller, Json, as_list, as_object
from mcpx.model.errors import SERVER_GARBAGE, Unavailable
from mcpx.upstreams.negotiate import Era
from mcpx.wire import era

QUESTIONS = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""Methods a server may send to a client, and the capability each needs."""

ROOTS = "roots/list"
"""The one question that is about no call: a server has it on its own account, as soon as it is
greeted."""

PROOF = 50
"""Calls of clients that could have been asked after which a server that never asked is quiet."""

_PARTS = {"sampling": ("tools", "context"), "elicitation": ("form", "url"), "roots": ()}
"""Per capability, what within it makes a difference to a server; everything else is one kind."""
_IMPLIED = {"elicitation": "form"}
"""`elicitation: {}` is what revisions before 2025-11-25 called `{form: {}}`."""

Kind = frozenset[str]
"""What a client can be asked, with the wordings that mean the same made one."""
NOTHING: Kind = frozenset()


def kind_of(capabilities: Mapping[str, Any]) -> Kind:
    if not capabilities:
        return NOTHING
    found: set[str] = set()
    for name, parts in _PARTS.items():
        if name not in capabilities:
            continue
        found.add(name)
        inside = as_object(capabilities[name])
        said = [part for part in parts if part in inside]
        found.update(
            f"{name}.{part}" for part in said or ([_IMPLIED[name]] if name in _IMPLIED else ())
        )
    return frozenset(found)


class Needs(NamedTuple):
    """What the connection must have been opened with that a caller's calls go over."""

    kind: Kind
    version: str

    def covers(self, other: "Needs") -> bool:
        """Whether who needs the other is served as well."""
        return self.kind >= other.kind and self.version >= other.version

    @classmethod
    def of(cls, caller: Caller) -> "Needs":
        return cls(kind_of(caller.capabilities), older_version(caller))


NOBODY = Needs(NOTHING, "")
"""Of a caller that cannot be asked anything."""


def both(one: Mapping[str, Any], other: Mapping[str, Any]) -> Json:
    """Capabilities by which both can be asked; all else is as the first has it."""
    merged = dict(one)
    for name in _PARTS:
        if name in other:
            inside = as_object(other[name]) or ({_IMPLIED[name]: {}} if name in _IMPLIED else {})
            own = as_object(one.get(name)) or (
                {_IMPLIED[name]: {}} if name in one and name in _IMPLIED else {}
            )
            merged[name] = {**inside, **own} if name not in one or own != inside else one[name]
    return merged


def older_version(caller: Caller) -> str:
    return caller.version if caller.version in era.OLDER else era.LATEST_OLDER


class Traits:
    """Of one server; what it has shown so far, in this run and in earlier ones."""

    def __init__(self) -> None:
        self.asks: set[str] = set()
        """The capabilities it made use of."""
        self.asks_late = False
        """Whether it asks when nobody has a call there: nothing tells then who is meant."""
        self.declares: Json = {}
        """What the main link was opened with, as far as clients can be asked it: it serves them all
        in turn."""
        self.era: Era | None = None
        """The era it spoke when it was last greeted."""
        self.differing: frozenset[Kind] = frozenset()
        """Kinds of clients to which it offers other lists than to all others. Kept by `offers`, not
        in `to_json`."""
        self._unasked = 0

    @property
    def quiet(self) -> bool:
        return self._unasked >= PROOF and not self.asks

    @property
    def may_ask(self) -> Collection[str]:
        """The capabilities with which the server asks, or was connected."""
        return self.asks | self.declares.keys()

    @property
    def asks_for_roots(self) -> bool:
        return "roots" in self.asks

    def lists_alike(self, one: Kind, other: Kind) -> bool:
        """Whether clients of both kinds get the same lists."""
        return one == other or not (one in self.differing or other in self.differing)

    def answered_unasked(self) -> bool:
        """One more call of a client that could have been asked is over; whether that made the
        server quiet."""
        self._unasked += 1
        return self._unasked == PROOF and not self.asks

    def asked(self, method: str) -> bool:
        """It did ask; whether that is news."""
        capability = QUESTIONS.get(method)
        if capability is None or capability in self.asks:
            return False
        self.asks.add(capability)
        return True

    def to_json(self) -> Json:
        known = {
            "asks": sorted(self.asks),
            "asks_late": self.asks_late,
            "unasked": min(self._unasked, PROOF),
        }
        return {**known, "declares": self.declares, "era": self.era}

    def take_up(self, kept: Mapping[str, Any]) -> None:
        """Go on from an earlier run; what cannot be understood is passed over."""
        unasked, spoke = kept.get("unasked"), kept.get("era")
        self.asks_late = self.asks_late or kept.get("asks_late") is True
        self.asks.update(
            name for name in as_list(kept.get("asks")) if isinstance(name, str) and name in _PARTS
        )
        declares = as_object(kept.get("declares"))
        self.declares = {name: as_object(declares[name]) for name in _PARTS if name in declares}
        if isinstance(unasked, int) and not isinstance(unasked, bool):
            self._unasked = max(self._unasked, min(unasked, PROOF))
        if spoke in ("modern", "older"):
            self.era = spoke


# Protocol extensions (EXT-1)
# --------------------------------------------------------------------------------------------------
#
# A server may use every extension that a request declares. The gateway therefore declares only
# extensions whose return traffic it routes. All other extensions of a client, tasks included, stop
# here.

FORWARDED_EXTENSIONS = frozenset({"io.modelcontextprotocol/ui"})
"""Extensions that clients may declare to servers through the gateway, and that the gateway may
announce to clients."""

_LISTS = ("extensions", "experimental")
"""Capabilities that are objects with the identifier of an extension as each key."""
_TASKS = "tasks"
"""The capability for tasks of revision 2025-11-25."""
_FILTERED = frozenset((*_LISTS, _TASKS))


def forwarded_capabilities(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """The capabilities of a client that servers receive."""
    if _FILTERED.isdisjoint(capabilities):
        return capabilities
    forwarded = {name: value for name, value in capabilities.items() if name not in _FILTERED}
    for name in _LISTS:
        declared = as_object(capabilities.get(name))
        allowed = {key: value for key, value in declared.items() if key in FORWARDED_EXTENSIONS}
        if allowed:
            forwarded[name] = allowed
    return forwarded


def without_task(params: Json) -> Json:
    """Parameters of a tool call without the request for a task (2025-11-25). The specification
    tells receivers that do not declare tasks to ignore it."""
    if "task" not in params:
        return params
    return {name: value for name, value in params.items() if name != "task"}


def is_task(method: str, result: Json) -> bool:
    """Whether a result is the handle of a task, of either generation (SEP-2663 or SEP-1686)."""
    if method != "tools/call":
        return False
    if result.get("resultType") == "task":
        return True
    return "content" not in result and "taskId" in as_object(result.get("task"))


def task_refused(server: str) -> Unavailable:
    """The error for a call whose result is a task."""
    reason = (
        "the call was made, but the server returned a task instead of a result, and mcpx does not "
        "support tasks. "
        "The server may still be working on the task. Check its effect before you repeat the "
        "call, and make the "
        "server return results directly"
    )
    return Unavailable(server, SERVER_GARBAGE, reason)
