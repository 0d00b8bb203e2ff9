"""Where somebody looks at pins and approves: the same for a running gateway and for files alone.

Each answer is an object for a command line or an API, with `ok`. Words of servers in it are made
visible (`marks`); the names by which things are asked for are as they are.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from mcpx.model.call import Json, as_list
from mcpx.model.slices import Work, in_slices
from mcpx.policy.pins.diff import diff
from mcpx.policy.pins.fingerprint import Item
from mcpx.policy.pins.grown import grown
from mcpx.policy.pins.kept import Held
from mcpx.policy.pins.marks import one_line
from mcpx.policy.pins.pinned import Pinned
from mcpx.policy.pins.store import Pins

Trusts = Mapping[str, Literal["open", "pin", "quarantine"]]
BY = "command line"
VERBS = ("pins", "pins.waiting", "pins.approve")
"""For the control socket."""


class Desk:
    def __init__(
        self, pins: Pins, trusts: Callable[[], Trusts], save: Callable[[str], Awaitable[str | None]]
    ) -> None:
        """`trusts`: all servers; `save`: keep what was decided about one, and let it count; what
        went wrong."""
        self._pins = pins
        self._trusts = trusts
        self._save = save
        self.verbs: Mapping[str, Callable[[Json], Awaitable[Json]]] = {
            "pins": self.pins,
            "pins.waiting": self.waiting,
            "pins.approve": self.approve,
        }

    def _pinned(self, wanted: object) -> dict[str, Pinned] | Json:
        """The pinned servers, or that one; else what to answer."""
        trusts = self._trusts()
        if wanted is not None and wanted not in trusts:
            error = f"no server is called {one_line(str(wanted))!r}"
            return {"ok": False, "unknown": True, "error": error, "names": list(trusts)}
        found: dict[str, Pinned] = {}
        for name, trust in trusts.items():
            if trust != "open" and wanted in (None, name):
                found[name] = self._pins.of(name, trust)
        return found

    async def pins(self, request: Json) -> Json:
        """What is approved and what is held, of every pinned server or of one."""
        servers = self._pinned(wanted := request.get("server"))
        if "ok" in servers:
            return servers
        told = [
            await in_slices(self._told(pinned, wanted is not None)) for pinned in servers.values()
        ]
        return {"ok": True, "servers": told, "kept": self._pins.folder is not None}

    def _told(self, pinned: Pinned, fully: bool) -> Work[Json]:
        approved: list[Json] = []
        for (kind, name), one in pinned.kept.approved.items():
            entry: Json = {
                "kind": kind,
                "name": name,
                "fingerprint": one.fingerprints[0],
                "at": one.at,
                "by": one.by,
            }
            if fully and one.definition is not None:
                entry["hints"] = list(
                    pinned.hints(Item(kind, name, one.fingerprints[0], one.definition))
                )
            approved.append(entry)
            yield
        held = [_about(pinned, held) for held in pinned.kept.held.values()]
        return {**_state(pinned), "approved": approved, "held": held}

    async def waiting(self, request: Json) -> Json:
        """What waits for somebody's word, of everything or of one server or one name; of a server
        with the diff. `definitions`: with what was approved and what is offered, as they are,
        instead."""
        wanted, name, whole = (
            request.get("server"),
            request.get("name"),
            request.get("definitions") is True,
        )
        servers = self._pinned(wanted)
        if "ok" in servers:
            return servers
        fully = wanted is not None and not whole
        waiting = [pinned for pinned in servers.values() if pinned.waits or wanted is not None]
        told = [await in_slices(self._waiting(pinned, name, fully, whole)) for pinned in waiting]
        return {"ok": True, "servers": told}

    def _waiting(self, pinned: Pinned, name: object, fully: bool, whole: bool) -> Work[Json]:
        found: list[Json] = []
        for held in list(pinned.kept.held.values()):
            if name is None or held.item.name == name:
                about = _about(pinned, held)
                before = pinned.kept.approved.get(held.item.key)
                old = None if before is None else before.definition
                if fully:
                    about["grown"] = [] if old is None else list(grown(old, held.item.definition))
                    about["diff"] = diff(old, held.item.definition)
                if whole:
                    about["before"], about["after"] = old, held.item.definition
                found.append(about)
                yield
        return {**_state(pinned), "also": list(pinned.also), "waiting": found}

    async def approve(self, request: Json) -> Json:
        """Exactly what was shown, by its fingerprints; `release`: with it the server as a whole."""
        wanted = str(request.get("server"))
        servers = self._pinned(wanted)
        if "ok" in servers:
            return servers
        if (pinned := servers.get(wanted)) is None:
            return {
                "ok": False,
                "error": f"{wanted} is trusted as it comes: nothing of it is held back",
            }
        shown = [one for one in as_list(request.get("fingerprints")) if isinstance(one, str)]
        release, by = request.get("release") is True, request.get("by")
        approved = pinned.approve(shown, by if isinstance(by, str) else BY, release=release)
        problem = await self._save(wanted)
        got = {held.item.fingerprint for held in approved}
        answer: Json = {
            **_state(pinned),
            "ok": problem is None,
            "approved": [held.item.called for held in approved],
            "missing": sum(one not in got for one in shown),
            "held": pinned.held,
        }
        return (
            answer
            if problem is None
            else {**answer, "error": f"it counts now, but could not be kept: {problem}"}
        )


def _state(pinned: Pinned) -> Json:
    if pinned.broken is not None:
        state = "damaged"
    elif not pinned.shown:
        state = "quarantine"
    else:
        state = "pinned" if pinned.seen else "not seen yet"
    return {
        "name": pinned.server,
        "trust": pinned.trust,
        "state": state,
        "since": pinned.kept.since,
        "released": pinned.kept.released,
        "problem": pinned.broken,
    }


def _about(pinned: Pinned, held: Held) -> Json:
    item = held.item
    return {
        "kind": item.kind,
        "name": item.name,
        "fingerprint": item.fingerprint,
        "how": "changed" if item.key in pinned.kept.approved else "new",
        "since": held.since,
        "for_some": held.for_some,
        "hints": list(pinned.hints(item)),
    }
