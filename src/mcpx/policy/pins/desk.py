"""Requests about pins, for a running gateway and for files alone.

Each answer is an object with `ok`, for the command line and the API. Texts of servers are made
visible (`review`), except names, which identify things.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from mcpx.base.aio import Work, in_slices
from mcpx.model.call import Json, as_list
from mcpx.policy.pins.diff import diff
from mcpx.policy.pins.fingerprint import Item, Key
from mcpx.policy.pins.pin_file import Approved, Held
from mcpx.policy.pins.pinned import Pinned, Pins, is_waiting
from mcpx.policy.pins.review import grown, one_line

Trusts = Mapping[str, Literal["open", "pin", "quarantine"]]
BY = "command line"
VERBS = ("pins", "pins.waiting", "pins.approve")
"""For the control socket."""


class UnknownServer(Exception):
    pass


class Desk:
    def __init__(
        self, pins: Pins, trusts: Callable[[], Trusts], save: Callable[[str], Awaitable[str | None]]
    ) -> None:
        """`trusts` returns all servers. `save` applies and saves a decision, and returns what
        failed."""
        self._pins = pins
        self._trusts = trusts
        self._save = save
        self.verbs: Mapping[str, Callable[[Json], Awaitable[Json]]] = {
            "pins": self.pins,
            "pins.waiting": self.waiting,
            "pins.approve": self.approve,
        }

    async def pins(self, request: Json) -> Json:
        """Approved and withheld definitions, of all pinned servers or of one."""
        wanted = request.get("server")
        try:
            servers = self._pinned(wanted)
        except UnknownServer:
            return self._unknown(wanted)
        told = [await in_slices(_told(pinned, wanted is not None)) for pinned in servers.values()]
        return {"ok": True, "servers": told, "kept": self._pins.folder is not None}

    async def waiting(self, request: Json) -> Json:
        """Definitions that wait, of all servers, one server, or one name.

        Of one server with the differences, or with `definitions` before and after the change.
        """
        wanted, name = request.get("server"), request.get("name")
        with_definitions = request.get("definitions") is True
        with_diff = wanted is not None and not with_definitions
        try:
            servers = self._pinned(wanted)
        except UnknownServer:
            return self._unknown(wanted)
        waiting = [
            _waiting(pinned, name, with_diff, with_definitions)
            for pinned in servers.values()
            if wanted is not None or is_waiting(pinned)
        ]
        told = [await in_slices(work) for work in waiting]
        return {"ok": True, "servers": told}

    async def approve(self, request: Json) -> Json:
        """Approve definitions by their fingerprints. `release` releases the whole server."""
        wanted = str(request.get("server"))
        try:
            pinned = self._pinned(wanted).get(wanted)
        except UnknownServer:
            return self._unknown(wanted)
        if pinned is None:
            error = f"{wanted} has trust: open, so nothing of it is withheld"
            return {"ok": False, "error": error}
        prints = [one for one in as_list(request.get("fingerprints")) if isinstance(one, str)]
        by = request.get("by")
        if not isinstance(by, str):
            by = BY
        approved = pinned.approve(prints, by, release=request.get("release") is True)
        problem = await self._save(wanted)
        got = {held.item.fingerprint for held in approved}
        answer: Json = {
            **_state(pinned),
            "ok": problem is None,
            "approved": [held.item.called for held in approved],
            "missing": sum(one not in got for one in prints),
            "held": pinned.held,
        }
        if problem is not None:
            answer["error"] = f"it counts now, but could not be saved: {problem}"
        return answer

    def _pinned(self, wanted: object) -> dict[str, Pinned]:
        """All pinned servers, or the wanted one. Raises `UnknownServer`."""
        trusts = self._trusts()
        if wanted is not None and wanted not in trusts:
            raise UnknownServer
        found: dict[str, Pinned] = {}
        for name, trust in trusts.items():
            if trust != "open" and wanted in (None, name):
                found[name] = self._pins.of(name, trust)
        return found

    def _unknown(self, wanted: object) -> Json:
        error = f"no server is called {one_line(str(wanted))!r}"
        return {"ok": False, "unknown": True, "error": error, "names": list(self._trusts())}


def _told(pinned: Pinned, with_hints: bool) -> Work[Json]:
    approved: list[Json] = []
    for key, one in pinned.kept.approved.items():
        approved.append(_approved(pinned, key, one, with_hints))
        yield
    held = [_held(pinned, held) for held in pinned.kept.held.values()]
    return {**_state(pinned), "approved": approved, "held": held}


def _approved(pinned: Pinned, key: Key, one: Approved, with_hints: bool) -> Json:
    kind, name = key
    latest = one.fingerprints[0]
    entry: Json = {"kind": kind, "name": name, "fingerprint": latest, "at": one.at, "by": one.by}
    if with_hints and one.definition is not None:
        entry["hints"] = list(pinned.hints(Item(kind, name, latest, one.definition)))
    return entry


def _waiting(pinned: Pinned, name: object, with_diff: bool, with_definitions: bool) -> Work[Json]:
    waiting: list[Json] = []
    for held in list(pinned.kept.held.values()):
        if name is not None and held.item.name != name:
            continue
        entry, after = _held(pinned, held), held.item.definition
        approved = pinned.kept.approved.get(held.item.key)
        before = None
        if approved is not None:
            before = approved.definition
        if with_diff:
            entry["grown"] = []
            if before is not None:
                entry["grown"] = list(grown(before, after))
            entry["diff"] = diff(before, after)
        if with_definitions:
            entry["before"], entry["after"] = before, after
        waiting.append(entry)
        yield
    return {**_state(pinned), "also": list(pinned.also), "waiting": waiting}


def _state(pinned: Pinned) -> Json:
    if pinned.broken is not None:
        state = "damaged"
    elif not pinned.shown:
        state = "quarantine"
    elif pinned.seen:
        state = "pinned"
    else:
        state = "not seen yet"
    return {
        "name": pinned.server,
        "trust": pinned.trust,
        "state": state,
        "since": pinned.kept.since,
        "released": pinned.kept.released,
        "problem": pinned.broken,
    }


def _held(pinned: Pinned, held: Held) -> Json:
    item = held.item
    how = "new"
    if item.key in pinned.kept.approved:
        how = "changed"
    return {
        "kind": item.kind,
        "name": item.name,
        "fingerprint": item.fingerprint,
        "how": how,
        "since": held.since,
        "for_some": held.for_some,
        "hints": list(pinned.hints(item)),
    }
