"""Approvals over the admin API: calls that wait for a person, and definitions that are held back
(SEC-5).

What is approved is what was shown: by its fingerprints. What has changed since stays held, and
whoever asked is told.
"""

import asyncio

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.definitions import held
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, told_at
from mcpx.admin.shapes.common import Done
from mcpx.admin.shapes.guarding import Approvals, Decision, DefinitionDecision, PendingCall
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import Denied

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
