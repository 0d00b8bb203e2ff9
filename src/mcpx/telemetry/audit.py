"""The audit trail: who called what, when, and what came of it (OBS-1). One JSON object a line.

Promised: every call that came through the middle has a row, whatever became of it; a row holds no result, no words of
an error, no token and no session id (only what tells one session from another), and of arguments what the configuration
allows: nothing, names and types, or values. Of values those are left out that are secret by their name or known to be
secrets, and long ones. What somebody else chose to say (names, arguments) is bounded in each row.
"""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from mcpx.config import Audit, Config
from mcpx.model.call import Json, is_array, is_object
from mcpx.model.events import ApprovalChanged, Bus, CallFinished, ConfigApplied, DoorRefused, Noted
from mcpx.model.redaction import is_secret_name
from mcpx.telemetry.targets import HIDDEN, LONGEST, session_mark, target_of
from mcpx.telemetry.trail import Redacts, Trail

LONGEST_VALUE = 1_000
"""Characters of one value; longer ones are told by their length."""
MOST_VALUES = 100
"""Names and values that are told of one call's arguments."""
DEEPEST = 5
TELL_REFUSED = 1.0
LONGEST_GATHERING = 60.0
"""Seconds for which refused requests are gathered, at first and where they go on and on: strangers must not fill the
trail, nor push out of it what others did."""
PLACES = 50
"""Addresses that are told apart then."""


def trail_file(config: Config, state: Path | None, env: str | None) -> Path | None:
    """Where the trail of a configuration is; None when none is kept, or there is no place for it."""
    audit = config.global_.audit
    if audit is None:
        return None
    if audit.file is not None:
        folder = config.path.parent if config.path is not None else Path.cwd()
        return folder / Path(audit.file).expanduser()
    if state is None or config.path is None:
        return None
    mark = hashlib.sha256(f"{config.path}\0{env or ''}".encode()).hexdigest()[:8]
    return state / "audit" / f"{config.path.stem[:50]}-{mark}.jsonl"


class AuditLog:
    def __init__(self, bus: Bus, file: Path, how: Audit, redactor: Redacts | None = None) -> None:
        self.file = file
        self.how = how
        self._bus = bus
        self._trail = Trail(file, how.max_bytes, how.keep, redactor, private=how.file is None)
        self._refused: dict[tuple[str, str], int] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._gathering = TELL_REFUSED
        self._told_at = -LONGEST_GATHERING
        self._second = (0, "")
        bus.subscribe(self._finished, CallFinished)
        bus.subscribe(self._turned_away, DoorRefused)
        bus.subscribe(self._reloaded, ConfigApplied)
        bus.subscribe(self._noted, Noted)
        bus.subscribe(self._approval, ApprovalChanged)

    @property
    def lost(self) -> int:
        """Rows that are nowhere."""
        return self._trail.lost

    def close(self) -> Trail:
        """Hear nothing more. What was heard is being written: the trail says when it is done."""
        for listener in (self._finished, self._turned_away, self._reloaded, self._noted, self._approval):
            self._bus.unsubscribe(listener)
        if self._telling is not None:
            self._telling.cancel()
            self._tell_refused()
        self._trail.finish()
        return self._trail

    # What happens ------------------------------------------------------------------------------------------------

    def _finished(self, event: CallFinished) -> None:
        passage = event.passage
        caller, method = passage.caller, passage.method
        row: Json = {"time": self._now(), "event": "call"}
        if (id := passage.call.id) is not None:
            row["id"] = id
        row["principal"] = caller.principal[:LONGEST]
        if caller.profile is not None:
            row["profile"] = caller.profile
        if caller.client:
            row["client"] = " ".join(_told(caller.client.get(key)) for key in ("name", "version")).strip()
        if caller.address:
            row["address"] = caller.address
        if caller.session is not None:
            row["session"] = session_mark(caller.session)
        row["method"] = method
        row["server"] = passage.server
        row["name"] = target_of(passage)
        if self.how.arguments != "none" and "arguments" in passage.params:
            row["arguments"] = self._arguments(passage.params["arguments"])
        if passage.rule is not None:
            row["rule"] = passage.rule[:LONGEST]
        row["decision"] = "denied" if event.outcome == "denied" else "allowed"
        row["outcome"] = event.outcome
        if event.code is not None:
            row["code"] = event.code
        row["ms"] = round(event.seconds * 1000, 1)
        self._write(row)

    def _turned_away(self, event: DoorRefused) -> None:
        key = (event.reason, event.address)
        if key not in self._refused and len(self._refused) >= PLACES:
            key = (event.reason, "others")
        self._refused[key] = self._refused.get(key, 0) + 1
        if self._telling is None:
            goes_on = time.monotonic() - self._told_at < self._gathering
            self._gathering = min(2 * self._gathering, LONGEST_GATHERING) if goes_on else TELL_REFUSED
            self._telling = asyncio.get_running_loop().call_later(self._gathering, self._tell_refused)

    def _tell_refused(self) -> None:
        self._telling = None
        self._told_at = time.monotonic()
        refused, self._refused = self._refused, {}
        for (reason, address), count in refused.items():
            row: Json = {"time": self._now(), "event": "refused", "reason": reason, "address": address, "count": count}
            self._write(row)

    def _reloaded(self, event: ConfigApplied) -> None:
        told: Json = {"by": event.by, "ok": event.ok, "plan": event.plan[:LONGEST_VALUE]}
        self._write({"time": self._now(), "event": "reload", **told})

    def _approval(self, event: ApprovalChanged) -> None:
        facts = {key: getattr(event, key) for key in ("id", "state", "principal", "profile", "server", "name", "rule")}
        self._noted(Noted("approval", {**facts, "by": event.by or None}))

    def _noted(self, event: Noted) -> None:
        row: Json = {"time": self._now(), "event": event.what}
        for key, value in event.facts.items():
            if value is not None:
                row[key] = value[:LONGEST] if isinstance(value, str) else value
        self._write(row)

    def _write(self, row: Json) -> None:
        self._trail.write(row, row["time"])

    def _now(self) -> str:
        at = time.time()
        second = int(at)
        if self._second[0] != second:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{int((at - second) * 1000):03d}Z"

    # What was said -----------------------------------------------------------------------------------------------

    def _arguments(self, arguments: object) -> Any:
        if self.how.arguments == "shape":
            if not is_object(arguments):
                return _kind(arguments)
            return {name[:LONGEST]: _kind(value) for name, value in islice(arguments.items(), MOST_VALUES)}
        return _Values().told(arguments)


class _Values:
    """The values of one call's arguments, as far as they are told."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def told(self, value: object, depth: int = 0) -> Any:
        self._left -= 1
        if isinstance(value, str):
            return value if len(value) <= LONGEST_VALUE else f"[{len(value):,} characters]"
        if is_object(value):
            return self._members(value, depth) if depth < DEEPEST else "[object]"
        if is_array(value):
            return self._items(value, depth) if depth < DEEPEST else "[array]"
        return value

    def _items(self, value: list[Any], depth: int) -> list[Any]:
        told: list[Any] = []
        for each in value:
            if self._left <= 0:
                told.append(f"[{len(value) - len(told)} more]")
                break
            told.append(self.told(each, depth + 1))
        return told

    def _members(self, value: Mapping[str, object], depth: int) -> Json:
        told: Json = {}
        for name, its in value.items():
            if self._left <= 0:
                told["…"] = f"{len(value) - len(told)} more"
                break
            told[name[:LONGEST]] = HIDDEN if is_secret_name(name) else self.told(its, depth + 1)
        return told


_KINDS: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "null" if value is None else "number")


def _told(value: object) -> str:
    return value[:100] if isinstance(value, str) else ""
