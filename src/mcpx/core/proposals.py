"""The one door for a changed configuration: whoever proposes one, it is read, judged, planned and
applied here.

The watcher of the file, SIGHUP and `mcpx reload` propose what the files say. A proposal that is
wrong changes nothing and says why (CFG-5). Proposals come one after the other, and each that
changed something is a revision. Not done here: writing (`store`, for the admin API).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from mcpx.config import Config, Plan
from mcpx.config.load import Texts
from mcpx.core.gateway import Gateway
from mcpx.core.history import History, Outline, Revision, Via, now
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.model.events import ConfigApplied
from mcpx.wire.logs import OURS

log = logging.getLogger(__name__)

Read = Callable[[Texts | None], Config]
"""Reads the configuration; with texts, as if its files said that."""


class Proposals:
    def __init__(
        self,
        gateway: Gateway,
        read: Read | None,
        applied: Callable[[Config], None],
        coming: Callable[[Config], None] = lambda config: None,
    ) -> None:
        """`read` is None where there is no file; `applied` hears of every configuration that was
        taken up, `coming` before that: servers that start may take their time."""
        config = gateway.generation.config
        self.sources: Sequence[Path] = config.sources
        """Where a change may change the outcome; also after a file was refused, so that its mending
        is noticed."""
        self._gateway = gateway
        self._read = read
        self._applied = applied
        self._coming = coming
        self._turn = asyncio.Lock()
        self._history: History = Outline()
        self._history.add(Revision(1, now(), "start", "the first configuration"), {})
        self._last: Json | None = None
        self._unheard: Revision | None = None
        """What was taken up unasked since somebody last asked."""

    @property
    def revision(self) -> int:
        return self._history.revisions[-1].number

    def revisions(self) -> list[Revision]:
        """The newest first."""
        return self._history.revisions[::-1]

    async def close(self) -> None:
        """Waits for what is under way."""
        async with self._turn:
            pass

    async def file_changed(self) -> None:
        """For the watcher."""
        await self.propose(by="the file changed")

    async def propose(
        self, text: str | None = None, *, by: str, via: Via = "file", author: str = ""
    ) -> Json:
        """Take up what the files say, or what `text` says in the place of the only one; what came
        of it."""
        if self._read is None:
            return {"ok": False, "error": "there is no config file to read again"}
        async with self._turn:
            path = self._gateway.generation.config.path
            texts = None if text is None or path is None else {path: text}
            try:
                # In a thread: a keyring or the opening of what is encrypted may take its time.
                config = await asyncio.to_thread(self._read, texts)
            except ConfigError as error:
                answer = self._refused(error)
            else:
                answer = await self._take_up(config, by, via, author)
            self._tell(answer, by)
            return answer

    def _tell(self, answer: Json, by: str) -> None:
        self._last = {**answer, "at": now()}
        plan = str(answer.get("plan") or f"{len(answer.get('problems', ()))} mistakes")
        self._gateway.bus.publish(ConfigApplied(by, answer["ok"], plan))

    def _refused(self, error: ConfigError) -> Json:
        self.sources = getattr(error, "sources", self.sources)
        for problem in error.problems:
            log.error("%s", problem, extra=OURS)
        log.error("nothing was changed; the gateway keeps its last good configuration")
        return {"ok": False, "problems": error.problems}

    async def _take_up(self, config: Config, by: str, via: Via, author: str) -> Json:
        plan = await self._apply(config)
        revision = Revision(self.revision + 1, now(), by, str(plan), via, author)
        await self._note(revision, plan)
        if not plan.empty:
            self._unheard = revision
        return {"ok": True, "plan": str(plan), "changed": not plan.empty, "revision": self.revision}

    async def _note(self, revision: Revision, plan: Plan) -> None:
        """What was taken up becomes a revision, if it changed anything."""
        if not plan.empty:
            self._history.add(revision, {})

    async def _apply(self, config: Config) -> Plan:
        self.sources = config.sources
        self._gateway.redactor.learn("config", config.secrets)  # before anything is said of it
        for warning in config.warnings:
            log.warning("%s", warning, extra=OURS)
        self._coming(config)
        plan = await self._gateway.apply(config)
        log.info("reloaded: %s", plan)
        self._applied(config)
        return plan

    async def asked(self, *, via: Via = "cli", author: str = "") -> Json:
        """For somebody who edited and asked, and whom the watcher or a signal may have
        forestalled."""
        answer = await self.propose(by=author or "somebody who asked", via=via, author=author)
        before = self._unheard
        if answer["ok"]:
            self._unheard = None
            if not answer["changed"] and before is not None:
                answer = {
                    **answer,
                    "plan": (
                        f"{answer['plan']} (taken up already at {before.at[11:19]}: {before.plan})"
                    ),
                }
        return answer

    def replicas(self) -> list[Json]:
        """This one and the others, and which configuration each runs; none where there is no
        store."""
        return []

    def status(self) -> Json:
        return {
            "revision": self.revision,
            "last_reload": self._last,
            "history": [asdict(revision) for revision in self._history.revisions],
        }
