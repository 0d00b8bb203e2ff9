"""The audit trail: who called what, when, and what came of it (OBS-1, OBS-2). One JSON object a
line.

Promised: every call that came through the middle has a row, whatever became of it (what is in it:
`rows`); so has what was refused at the door, gathered, what was approved and by whom, and every
configuration that somebody proposed. What somebody else chose to say is bounded in each row. A call
of a tool that is not read-only has a row before it is sent, too, so that a crash leaves a trace of
the calls that it cut off. The rows are chained (`chain`).
"""

import asyncio
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mcpx.base.jsonl_file import JsonlFile, Options, event_row
from mcpx.config import Audit, Config
from mcpx.model.call import Json, as_object
from mcpx.model.events import (
    ApprovalChanged,
    Bus,
    CallFinished,
    ConfigApplied,
    DoorRefused,
    Noted,
    Passage,
)
from mcpx.model.redaction import Redactor
from mcpx.telemetry.audit_rows import MAX_VALUE_CHARACTERS, AuditRows
from mcpx.telemetry.chain import Chain, key_from
from mcpx.telemetry.targets import LONGEST
from mcpx.wire import codec

TELL_REFUSED = 1.0
LONGEST_GATHERING = 60.0
"""Seconds for which refused requests are gathered, at first and where they go on and on: strangers
must not fill the trail, nor push out of it what others did."""
BEGIN_SECONDS = 0.1
"""Time for which a call waits until its first row is written."""
PLACES = 50
"""Addresses that are told apart then."""


def trail_file(config: Config, state: Path | None, env: str | None) -> Path | None:
    """Where the trail of a configuration is; None when none is kept, or there is no place for
    it."""
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


def chain_from(environ: Mapping[str, str]) -> Chain:
    """The chain of this process. With a passphrase as `MCPX_KEY`, it takes some 40 ms."""
    writer = environ.get("MCPX_REPLICA") or f"{socket.gethostname()}-{os.getpid()}"
    return Chain(writer, key_from(environ))


class AuditLog:
    def __init__(
        self,
        bus: Bus,
        file: Path,
        how: Audit,
        redactor: Redactor | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        sink: Callable[[bytes], object] | None = None,
    ) -> None:
        """`environ` has `MCPX_KEY` and the replica's name. `sink` receives each row that was
        written."""
        self.file = file
        self.how = how
        self._bus = bus
        options = Options(
            max_bytes=how.max_bytes,
            backup_count=how.kept_files,
            max_days=how.days,
            require_private_folder=how.file is None,
            redactor=redactor,
            build_chain=lambda: chain_from(environ or {}),
            on_written=sink,
        )
        self._rows_file = JsonlFile(file, options)
        self._run = secrets.token_hex(4)
        self._calls_begun = 0
        self._late: asyncio.Future[None] | None = None
        """A row that was not written in time. While it is not, no call waits for its row."""
        self._refused: dict[tuple[str, str], int] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._gathering = TELL_REFUSED
        self._told_at = -LONGEST_GATHERING
        self._rows = AuditRows(how.arguments, redactor)
        bus.subscribe(self._finished, CallFinished)
        bus.subscribe(self._turned_away, DoorRefused)
        bus.subscribe(self._reloaded, ConfigApplied)
        bus.subscribe(self._noted, Noted)
        bus.subscribe(self._approval, ApprovalChanged)

    @property
    def lost(self) -> int:
        """Rows that are nowhere."""
        return self._rows_file.lost_rows

    def close(self) -> JsonlFile:
        """Hear nothing more. What was heard is being written: the trail says when it is done."""
        for listener in (
            self._finished,
            self._turned_away,
            self._reloaded,
            self._noted,
            self._approval,
        ):
            self._bus.unsubscribe(listener)
        if self._telling is not None:
            self._telling.cancel()
            self._tell_refused()
        self._rows_file.close()
        return self._rows_file

    # Calls that begin
    # --------------------------------------------------------------------------------------------

    async def begin(self, passage: Passage) -> None:
        """Write a row before a call with an effect is sent. Waits for the disk for at most
        `BEGIN_SECONDS`."""
        if not has_effect(passage):
            return
        self._calls_begun += 1
        passage.audit_id = f"{self._run}-{self._calls_begun}"
        line, clean = self._rows.begins(passage)
        if self._late is not None and not self._late.done():
            self._rows_file.write(line, is_redacted=clean)
            return
        written = self._rows_file.write_now(line, is_redacted=clean)
        await asyncio.wait((written,), timeout=BEGIN_SECONDS)
        self._late = None if written.done() else written

    # What happens
    # ----------------------------------------------------------------------------------------------

    def _finished(self, event: CallFinished) -> None:
        line, clean = self._rows.finished(event)
        self._rows_file.write(line, is_redacted=clean)

    def _turned_away(self, event: DoorRefused) -> None:
        key = (event.reason, event.address)
        if key not in self._refused and len(self._refused) >= PLACES:
            key = (event.reason, "others")
        self._refused[key] = self._refused.get(key, 0) + 1
        if self._telling is None:
            goes_on = time.monotonic() - self._told_at < self._gathering
            self._gathering = (
                min(2 * self._gathering, LONGEST_GATHERING) if goes_on else TELL_REFUSED
            )
            self._telling = asyncio.get_running_loop().call_later(
                self._gathering, self._tell_refused
            )

    def _tell_refused(self) -> None:
        self._telling = None
        self._told_at = time.monotonic()
        refused, self._refused = self._refused, {}
        for (reason, address), count in refused.items():
            row: Json = {
                "time": self._rows.now(),
                "event": "refused",
                "reason": reason,
                "address": address,
                "count": count,
            }
            self._write(row)

    def _reloaded(self, event: ConfigApplied) -> None:
        told: Json = {"by": event.by, "ok": event.ok, "plan": event.plan[:MAX_VALUE_CHARACTERS]}
        self._write({"time": self._rows.now(), "event": "reload", **told})

    def _approval(self, event: ApprovalChanged) -> None:
        if event.elsewhere:
            return
        facts = {
            key: getattr(event, key)
            for key in ("id", "state", "principal", "profile", "server", "name", "rule")
        }
        self._noted(Noted("approval", {**facts, "by": event.by or None}))

    def _noted(self, event: Noted) -> None:
        row: Json = {"time": self._rows.now(), "event": event.what}
        for key, value in event.facts.items():
            if value is not None:
                row[key] = value[:LONGEST] if isinstance(value, str) else value
        self._write(row)

    def _write(self, row: Json) -> None:
        try:
            line = codec.dump(row) + b"\n"
        except codec.Unencodable:
            line = event_row("unwritable")
        self._rows_file.write(line, is_redacted=False)


def has_effect(passage: Passage) -> bool:
    """Whether the call is of a tool that does not declare itself read-only."""
    offer = passage.offer
    if offer is None or offer.kind != "tools":
        return False
    annotations = as_object(offer.definition.get("annotations"))
    return annotations.get("readOnlyHint") is not True
