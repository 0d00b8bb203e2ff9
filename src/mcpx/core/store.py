"""The one door for a changed configuration: whoever proposes one, it is read, judged, planned and applied here.

The watcher of the file, SIGHUP and `mcpx reload` propose what the file says; a program may propose a text instead. A
proposal that is wrong changes nothing and says why (CFG-5). Proposals come one after the other, and each that changed
something is a revision.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mcpx.config import Config
from mcpx.core.gateway import Gateway
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.model.events import ConfigApplied
from mcpx.wire.logs import OURS

log = logging.getLogger(__name__)

REMEMBERED = 100
"""Revisions that are told of."""

Read = Callable[[str | None], Config]
"""Reads the configuration; with a text, as if its file said that."""


@dataclass(frozen=True, slots=True)
class Revision:
    number: int
    at: str
    by: str
    """Who proposed it: the file, a signal, somebody who asked."""
    plan: str
    """What it changed, in words."""


class ConfigStore:
    def __init__(
        self,
        gateway: Gateway,
        read: Read | None,
        applied: Callable[[Config], None],
        coming: Callable[[Config], None] = lambda config: None,
    ) -> None:
        """`read` is None where there is no file; `applied` hears of every configuration that was taken up, `coming`
        before that: servers that start may take their time."""
        config = gateway.generation.config
        self.sources: Sequence[Path] = config.sources
        """Where a change may change the outcome; also after a file was refused, so that its mending is noticed."""
        self.history: deque[Revision] = deque([Revision(1, _now(), "start", "the first configuration")], REMEMBERED)
        self._gateway = gateway
        self._read = read
        self._applied = applied
        self._coming = coming
        self._turn = asyncio.Lock()
        self._last: Json | None = None
        self._unheard: Revision | None = None
        """What was taken up unasked since somebody last asked."""

    @property
    def revision(self) -> int:
        return self.history[-1].number

    async def propose(self, text: str | None = None, *, by: str) -> Json:
        """Take up what the file says, or what `text` says in its place; what came of it."""
        if self._read is None:
            return {"ok": False, "error": "there is no config file to read again"}
        async with self._turn:
            try:
                # In a thread: a keyring or the opening of what is encrypted may take its time.
                config = await asyncio.to_thread(self._read, text)
            except ConfigError as error:
                answer = self._refused(error)
            else:
                answer = await self._take_up(config, by)
            self._last = {**answer, "at": _now()}
            plan = str(answer.get("plan") or f"{len(answer.get('problems', ()))} mistakes")
            self._gateway.bus.publish(ConfigApplied(by, answer["ok"], plan))
            return answer

    def _refused(self, error: ConfigError) -> Json:
        self.sources = getattr(error, "sources", self.sources)
        for problem in error.problems:
            log.error("%s", problem, extra=OURS)
        log.error("nothing was changed; the gateway keeps its last good configuration")
        return {"ok": False, "problems": error.problems}

    async def _take_up(self, config: Config, by: str) -> Json:
        self.sources = config.sources
        self._gateway.redactor.learn("config", config.secrets)  # before anything is said of it
        for warning in config.warnings:
            log.warning("%s", warning, extra=OURS)
        self._coming(config)
        plan = await self._gateway.apply(config)
        log.info("reloaded: %s", plan)
        if not plan.empty:
            self._unheard = Revision(self.revision + 1, _now(), by, str(plan))
            self.history.append(self._unheard)
        self._applied(config)
        return {"ok": True, "plan": str(plan), "changed": not plan.empty, "revision": self.revision}

    async def asked(self) -> Json:
        """For somebody who edited and asked, and whom the watcher or a signal may have forestalled."""
        answer = await self.propose(by="somebody who asked")
        before = self._unheard
        if answer["ok"]:
            self._unheard = None
            if not answer["changed"] and before is not None:
                answer = {**answer, "plan": f"{answer['plan']} (taken up already at {before.at[11:19]}: {before.plan})"}
        return answer

    def status(self) -> Json:
        return {
            "revision": self.revision,
            "last_reload": self._last,
            "history": [asdict(revision) for revision in self.history],
        }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
