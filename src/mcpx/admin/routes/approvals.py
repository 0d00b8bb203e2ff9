"""Approvals over the admin API: calls that wait for a person, and quarantined definitions (SEC-5).

The fingerprints of the definitions that were shown are approved. A definition that has changed
since stays quarantined. Definitions are shown without invisible characters, in a thread, and only
up to `MOST_LETTERS`: a thousand definitions take a second.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, cast

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, told_at
from mcpx.admin.shapes.common import Done
from mcpx.admin.shapes.guarding import (
    Approvals,
    Decision,
    DefinitionDecision,
    HeldDefinition,
    Mark,
    PendingCall,
)
from mcpx.base.text_diff import unified_diff
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import Denied
from mcpx.policy.pins.review import HINTS, PHRASES, UNSEEN, grown, place_of, visible

MOST_LETTERS = 2_000_000
"""Characters of definitions in one answer; of the rest it is told that they are there."""
MOST_PLACES = 200
"""Marks of one answer whose place is looked for."""
CONTEXT = 3
HEADS = ("approved", "offered now")
LEFT_OUT = (
    "too much waits to be shown at once: approve some of it first, or look with `mcpx approve`"
)
_BROKEN = re.compile(r"(?<!\\)((?:\\\\)*)\\n")
_KINDS: dict[str, Literal["tool", "prompt", "instructions"]] = {
    "tools": "tool",
    "prompts": "prompt",
    "instructions": "instructions",
}
_WORDS: dict[str, Literal["destructive", "open_world"]] = {
    HINTS["readOnlyHint"][1]: "destructive",
    HINTS["destructiveHint"][1]: "destructive",
    HINTS["openWorldHint"][1]: "open_world",
}


def held(servers: Iterable[Json]) -> list[HeldDefinition]:
    """Of the answer to `pins.waiting`, with definitions."""
    return list(_Telling().of(servers))


class _Telling:
    def __init__(self) -> None:
        self._letters = MOST_LETTERS
        self._places = MOST_PLACES

    def of(self, servers: Iterable[Json]) -> Iterator[HeldDefinition]:
        for server in servers:
            name = str(server["name"])
            if server["state"] in ("quarantine", "damaged"):
                yield _whole(name, server)
            for entry in map(as_object, as_list(server["waiting"])):
                yield self._one(name, entry)

    def _one(self, server: str, entry: Json) -> HeldDefinition:
        before = None if entry["before"] is None else as_object(entry["before"])
        after = as_object(entry["after"])
        old, new = "" if before is None else as_text(before), as_text(after)
        self._letters -= len(old) + len(new)
        told = HeldDefinition(
            server=server,
            kind=_KINDS[str(entry["kind"])],
            name=str(entry["name"]),
            change="changed" if entry["how"] == "changed" else "new",
            fingerprint=str(entry["fingerprint"]),
            for_some=entry["for_some"] is True,
        )
        if self._letters < 0:
            told.diff = LEFT_OUT
            return told
        told.before = None if before is None else seen(before)
        told.after = seen(after)
        told.diff = unified(old, new)
        told.marks = [*self._hints(entry, after), *_says(before, after)]
        return told

    def _hints(self, entry: Json, after: Json) -> Iterator[Mark]:
        for hint in map(str, as_list(entry.get("hints"))):
            self._places -= 1
            place = place_of(hint, after) if self._places >= 0 else ()
            where = ".".join(visible(step)[:80] for step in place)
            yield Mark(kind=_kind_of(hint), where=where, text=hint)


def _whole(name: str, server: Json) -> HeldDefinition:
    """Of a server nothing of which is shown."""
    facts: dict[str, Any] = {"state": server["state"], "also": as_list(server.get("also"))}
    if server.get("problem"):
        facts["problem"] = str(server["problem"])
    return HeldDefinition(server=name, kind="server", name=name, change="new", after=seen(facts))


def _says(before: Json | None, after: Json) -> Iterator[Mark]:
    for words in grown(before, after):
        kind = _WORDS.get(words)
        yield Mark(kind=kind or "other", where="annotations" if kind else "inputSchema", text=words)


def _kind_of(hint: str) -> Literal["invisible", "phrase", "other"]:
    if hint.startswith(UNSEEN):
        return "invisible"
    return "phrase" if hint.startswith(tuple(PHRASES)) else "other"


def seen(value: Any) -> Any:
    """The same with nothing in it that cannot be seen."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): seen(item) for key, item in cast("dict[str, Any]", value).items()}
    return [seen(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def as_text(definition: Json) -> str:
    """As JSON that people read: a text of several lines has them; those that follow stand further
    in, and a quote in them is escaped, so that no text passes for a field."""
    try:
        written = json.dumps(definition, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "a definition that cannot be written"
    return visible("\n".join(_lines(written)))


def _lines(written: str) -> Iterator[str]:
    for line in written.split("\n"):
        yield _BROKEN.sub(rf"\1\\n\n{' ' * (len(line) - len(line.lstrip()) + 4)}", line)


def unified(old: str, new: str) -> str:
    """The diff of two definitions as text. A new definition is shown whole."""
    before = old.split("\n") if old else []
    return "\n".join(unified_diff(before, new.split("\n"), *HEADS, context=CONTEXT))


router = Router("/api/approvals", "Approvals")

BY = "admin"
"""Who decided, in the trail."""


@router.get("")
async def list_approvals(request: ApiRequest) -> Approvals:
    """Calls that wait for somebody, and definitions that are held back."""
    desk = request.desk
    redact = desk.gateway.redactor.redact_values
    pending = [
        approval.told() for approval in await desk.gateway.provisions.policy_state.book.pending()
    ]
    answer = await _waiting(desk)
    definitions = await asyncio.to_thread(
        held, [as_object(server) for server in as_list(answer["servers"])]
    )
    calls = [_call(redact(call)) for call in pending]
    return Approvals(calls=calls, definitions=definitions, pending=len(calls) + len(definitions))


@router.post("/calls/{id}", 404, 503)
async def decide_call(request: ApiRequest, id: str, decision: Decision) -> Done:
    """Let a waiting call pass, once, or refuse it."""
    try:
        book = request.desk.gateway.provisions.policy_state.book
        decided = await book.decide(id, allow=decision.allow, by=BY)
    except Denied as away:
        raise ApiError(503, None, away.message) from None
    if decided is None:
        hint = "it was decided already, its time is over, or the gateway was started anew"
        raise ApiError(404, None, "no call waits under this id", "path.id", hint)
    return Done()


@router.post("/definitions", 404, 409, 503)
async def approve_definitions(request: ApiRequest, decision: DefinitionDecision) -> Done:
    """Approve what is held of a server."""
    desk = request.desk
    answer = await _waiting(desk, decision.server)
    if answer.get("unknown"):
        raise ApiError(404, None, "there is no server of this name", "server")
    server = next((as_object(one) for one in as_list(answer.get("servers"))), None)
    if server is None:
        hint = "`trust: pin` or `trust: quarantine` of a server holds its definitions back"
        raise ApiError(
            409,
            "not_held",
            "this server is trusted as it comes: nothing of it waits",
            "server",
            hint,
        )
    fingerprints, release = _chosen(decision, server)
    approval: Json = {
        "server": decision.server,
        "fingerprints": fingerprints,
        "release": release,
        "by": BY,
    }
    done = await desk.gateway.pinning.verbs["pins.approve"](approval)
    if not done.get("ok"):
        raise ApiError(503, "not_kept", str(done.get("error")))
    return Done()


async def _waiting(desk: Desk, server: str | None = None) -> Json:
    return await desk.gateway.pinning.verbs["pins.waiting"]({"server": server, "definitions": True})


def _chosen(decision: DefinitionDecision, server: Json) -> tuple[list[str], bool]:
    """What is approved, by its fingerprints, and whether the server as a whole is with it."""
    waiting = {
        str(as_object(one)["fingerprint"]): str(as_object(one)["name"])
        for one in as_list(server["waiting"])
    }
    chosen = list(waiting)
    if decision.fingerprints is not None:
        chosen = decision.fingerprints
        if any(one not in waiting for one in chosen):
            hint = "look again: nothing was approved"
            raise ApiError(
                409,
                "changed",
                "it has changed since it was shown, or is gone",
                "fingerprints",
                hint,
            )
    if decision.names is not None:
        chosen = [one for one in chosen if waiting[one] in decision.names]
        if not set(decision.names) <= {waiting[one] for one in chosen}:
            raise ApiError(
                409, "changed", "not everything that was named is held", "names", "look again"
            )
    whole = server["state"] in ("quarantine", "damaged")
    if whole and set(chosen) != set(waiting):
        hint = "approve all that it offers, or nothing"
        raise ApiError(
            409,
            "quarantined",
            "nothing of this server is shown: it is approved as a whole",
            None,
            hint,
        )
    return chosen, whole


def _call(told: Json) -> PendingCall:
    return PendingCall(
        id=told["id"],
        server=told["server"],
        name=told["tool"],
        principal=told["principal"],
        profile=told["profile"],
        rule=told["rule"],
        reason=told["reason"],
        arguments=told["arguments"],
        asked=told_at(told["asked_at"]),
        expires=told_at(told["expires_at"]),
    )
