"""What a running gateway does besides serving: its file is read again when it changes, whoever
looks after it gets answers, and the admin UI is opened where it is wanted. Nothing of it stands in
the way of a call.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mcpx import __version__
from mcpx.base.aio import Tasks
from mcpx.config import Config, refuse_admin_exposure, refuse_exposure
from mcpx.config.edits import Where
from mcpx.config.load import Texts
from mcpx.config.watch import Watcher
from mcpx.core.chronicle import Chronicle
from mcpx.core.gateway import Gateway
from mcpx.core.sign_ins import PendingCalls, SignIns
from mcpx.core.store import ConfigStore, Fresh, Read, now
from mcpx.front.control import Control, Role, Verb, socket_path
from mcpx.front.dispatch import Dispatcher
from mcpx.model.call import Caller, Json, as_object
from mcpx.model.offer import KINDS
from mcpx.telemetry.telemetry import Telemetry
from mcpx.wire import logs

if TYPE_CHECKING:
    from mcpx.front.attached import Attached
    from mcpx.front.http import HttpFront
    from mcpx.office import AdminPlace, Office

GRACE = 3.0
"""Seconds calls in flight may take to finish once the end has begun."""
RETIRING = 300.0
"""The same, where another gateway has taken the place and nobody waits for this one to end."""
PRINTED = 1_000
"""Lines of a server that are told at a time."""
SEARCHED = 20
"""Tools that a search tells of where nobody says how many."""
FIRST_CLIENT = 15.0
"""Seconds a gateway in the background waits for its first client, however short it lingers."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for on the command line, after defaults."""

    config: Config
    transport: Literal["stdio", "http"]
    host: str
    port: int
    log_level: str
    or_another_port: bool = False
    """Any other will do where it is taken: the demo, and nobody has named one."""
    log_level_given: bool = False
    """On the command line or in the environment: a changed file does not change it."""
    state: Path | None = None
    """Folder for what is not configuration; None writes nothing."""
    reload: Read | None = None
    """Reads the configuration again; None where there is no file."""
    fresh: tuple[Path, Read, Path] | None = None
    """Without a file: the one that the first write of the admin API makes, what reads it, and its
    state folder."""
    env: str | None = None
    """The overlay that is laid over the file (`--env`)."""
    profile: str | None = None
    """The named view that a client over stdio gets; None: everything."""
    itself: str = ""
    """What marks this gateway to itself, should one of its servers turn out to be the gateway."""
    admin: "AdminPlace | None" = None
    """Where the admin UI is wanted; None: nowhere."""
    linger: float | None = None
    """Seconds to stay after the last client that was attached has left; None: it does not run in
    the background."""
    log_file: Path | None = None
    """In the background: where its standard error goes."""
    started: Callable[[], None] | None = None
    """Called in the background once clients can come."""
    store: str | None = field(default=None, repr=False)
    """Address of the store that replicas share; None: there are none. Only over HTTP."""

    @property
    def role(self) -> Role:
        return (
            "background"
            if self.linger is not None
            else "alone"
            if self.transport == "stdio"
            else "http"
        )


def say(run: Run, line: str, level: int = logging.INFO) -> None:
    """To whoever started it, whatever is logged."""
    if run.config.global_.log_format == "json":
        line = logs.AsJson().format(
            logging.LogRecord("mcpx", level, "", 0, "%s", (line.strip(),), None)
        )
    with contextlib.suppress(OSError):  # a client that reads no stderr may have closed it
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Upkeep:
    """What a running gateway does besides serving: reload its file, and answer whoever looks after
    it."""

    def __init__(
        self,
        run: Run,
        gateway: Gateway,
        tasks: Tasks,
        telemetry: Telemetry,
        dispatcher: Dispatcher,
        environ: Mapping[str, str],
    ) -> None:
        self._run = run
        self._telemetry = telemetry
        self._dispatcher = dispatcher
        self._started_at = now()
        self._gateway = gateway
        self._tasks = tasks
        self._chronicle = Chronicle(
            gateway
        )  # from before servers start: what they print then says why they do not
        self._control: Control | None = None
        self.store = self._make_store(environ)
        self._office: Office | None = None
        self._environ = environ
        self._attached: Attached | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self.over = asyncio.Event()
        """In the background: nobody needs it any more, or another gateway takes its place."""
        self.retired = False
        self.front: HttpFront | None = None
        """Who takes up what of a new configuration concerns clients over HTTP."""
        self.url: str | None = None
        """Where clients find it over HTTP, once it listens."""

    def take_admin_port(self) -> bool:
        """Whether to go on: where it cannot be had, clients over stdio get their tools all the
        same."""
        run = self._run
        if run.admin is None:
            return True
        from mcpx.office import Office

        office = Office(run.admin, run.config)
        if (problem := office.bind()) is None:
            self._office = office
            self.store.keep_history(run.state)
            office.watch(self._chronicle)
            return True
        say(run, f"mcpx: {problem}", logging.ERROR)
        return run.transport == "stdio"

    async def open_admin(self) -> bool:
        """Whether to go on."""
        if self._office is None:
            return True
        from mcpx.office import Room

        run = self._run
        room = Room(
            gateway=self._gateway,
            store=self.store,
            telemetry=self._telemetry,
            audience=self._dispatcher.audience,
            transport=run.transport,
            url=lambda: self.url,
            state=run.state,
            env=run.env,
        )
        try:
            await self._office.open(room)
        except ImportError as error:  # somebody installed other versions of what it is made of
            say(
                run,
                f"mcpx: the admin UI cannot be loaded: {error}. Install mcpx anew, or leave "
                "--admin out.",
                logging.ERROR,
            )
            return False
        return True

    def login_url(self) -> str | None:
        """Of the admin UI, where there is one; whoever follows it before it is loaded waits a
        moment."""
        return None if self._office is None else self._office.login_url()

    async def start(self) -> None:
        config = self._run.config
        self._share()
        if config.path is None:
            return
        if self._run.state is not None:
            await self._listen(self._run.state, config.path)
        if self._run.reload is not None:
            self._watch()

    async def _listen(self, state: Path, config: Path) -> None:
        """To `mcpx status` and its kin."""
        sign_ins = SignIns(self._gateway)
        pins = {verb: self._pins(verb) for verb in ("pins", "pins.waiting", "pins.approve")}
        self._control = Control(
            socket_path(state, config, self._run.env),
            {
                "status": lambda _: self.status(),
                "retire": lambda _: self._retire(),
                "reload": lambda request: self.store.asked(
                    author=str(request.get("author") or "")[:100]
                ),
                **sign_ins.verbs,
                **PendingCalls(self._gateway).verbs,
                **pins,
                "admin": self._tell_login,
                "activity": self._telemetry.tell_activity,
                "search": self._search,
                "missing": self._missing,
                "logs": self._logs,
                "names": self._names,
            },
            self,
            role=self._run.role,
        )
        await self._control.start()

    @property
    def found(self) -> bool:
        """Whether it is this gateway that is found on the config."""
        return self._control is not None and self._control.listening

    # Clients that attach
    # -----------------------------------------------------------------------------------------

    def admit(self, request: Json) -> "tuple[Json, asyncio.Protocol | None]":
        """For `Control`: somebody wants to come in."""
        if self._run.role == "alone":
            about = {"version": __version__, "role": "alone"}
            return {
                "ok": False,
                "reason": "alone",
                "error": "this gateway is one client's alone",
                **about,
            }, None
        return self._host().admit(request)

    def _host(self) -> "Attached":
        if self._attached is None:
            from mcpx.front.attached import Attached  # nobody may ever come

            self._attached = Attached(
                self._dispatcher,
                self._environ,
                grace=GRACE,
                about=self._about,
                on_change=self._counted,
            )
        return self._attached

    def _about(self) -> Json:
        level = logging.getLevelName(logging.getLogger("mcpx").level)
        admin = self._office is not None
        log_file = None if self._run.log_file is None else str(self._run.log_file)
        return {"role": self._run.role, "admin": admin, "log_level": level, "log_file": log_file}

    def _counted(self) -> None:
        """In the background: the last that leaves puts out the light, after a while."""
        if self._run.linger is None:
            return
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if not self._attached:
            self._leaving = asyncio.get_running_loop().call_later(self._run.linger, self.over.set)

    def wait_for_clients(self) -> None:
        """In the background: whoever had it started comes at once, or not at all."""
        wait = max(self._run.linger or 0.0, FIRST_CLIENT)
        self._leaving = asyncio.get_running_loop().call_later(wait, self.over.set)

    async def _retire(self) -> Json:
        """Leave the place to another."""
        if self._run.role == "http" or self._control is None:
            return {"ok": False, "error": "this gateway was started by somebody, and stays"}
        self._control.leave_place()
        if self._run.role == "background":
            self.retired = True
            self.over.set()
        return {"ok": True}

    async def part(self) -> None:
        """Nobody comes in any more; those who are there finish, or move on."""
        if self._control is not None:
            self._control.leave_place()
        if self._attached is not None:
            if self.retired:
                await self._attached.retire(RETIRING)
            await self._attached.close()

    def _watch(self) -> None:
        watcher = Watcher(
            lambda: self.store.sources,
            lambda: self._gateway.generation.config.global_.hot_reload_interval,
            self._changed,
        )
        self._tasks.start(watcher.run())

    def _make_store(self, environ: Mapping[str, str]) -> ConfigStore:
        run, path = self._run, self._run.config.path
        where = None if path is None else Where(path, environ, run.env)
        fresh = None
        if run.fresh is not None:
            file, read, state = run.fresh

            def begin() -> None:
                self._watch()
                self._tasks.start(self._listen(state, file))

            fresh = Fresh(Where(file, environ, run.env), self._judging(read), begin, state)
        read, replicas = self._reading(), self._gateway.replicas
        if replicas is None:
            return ConfigStore(
                self._gateway, read, self._applied, self._coming, where=where, fresh=fresh
            )
        from mcpx.core.joint import JointStore

        return JointStore(
            self._gateway,
            read,
            self._applied,
            self._coming,
            where=where,
            fresh=fresh,
            replicas=replicas,
        )

    def _share(self) -> None:
        """With other replicas a change of the configuration is that of all, with or without an
        admin UI here."""
        if self._gateway.replicas is not None:
            if self._office is None:
                self.store.keep_history(self._run.state)
            self.store.follow()

    def _reading(self) -> Read | None:
        return None if self._run.reload is None else self._judging(self._run.reload)

    async def _tell_login(self, request: Json) -> Json:
        if self._office is None:
            return {
                "ok": False,
                "error": "this gateway was started without --admin; end it, and start it with it",
            }
        return await self._office.tell_login(request)

    async def _search(self, request: Json) -> Json:
        """The catalog's own search, for `mcpx search`."""
        from mcpx.core.view import search

        query, limit, profile = request.get("query"), request.get("limit"), request.get("profile")
        caller = Caller(
            "local", profile if isinstance(profile, str) else None, since=time.monotonic()
        )
        await self._gateway.prepare(caller)
        most = limit if isinstance(limit, int) and limit > 0 else SEARCHED
        matches, total = await search(self._gateway, caller, str(query or ""), most)
        tools = [
            {"definition": each.offer.definition, "score": each.score, "strong": each.strong}
            for each in matches
        ]
        return {"ok": True, "tools": tools, "total": total}

    async def _missing(self, request: Json) -> Json:
        """Why a tool or a server is not offered, for `mcpx call` and `mcpx tools`."""
        from mcpx.core.missing import why_missing

        profile = request.get("profile")
        await self._gateway.catalogs.ready()
        found = why_missing(
            self._gateway, str(request.get("name")), profile if isinstance(profile, str) else None
        )
        told = None if found is None else self._gateway.redactor.redact_values(found.told())
        return {"ok": True, "missing": told}

    async def _names(self, _: Json) -> Json:
        """All that can be named, for shells that complete it."""
        from mcpx.core.names import names_of

        await self._gateway.catalogs.ready()
        offers = self._gateway.catalog.offers
        listed = {
            kind: ((each.server, each.name, each.definition) for each in offers[kind])
            for kind in KINDS
        }
        return {"ok": True, **names_of(self._gateway.generation.config, listed)}

    async def _logs(self, request: Json) -> Json:
        """What servers have printed, for `mcpx logs`: of one or of all, after the numbers that are
        known."""
        wanted, after, limit = (
            request.get("server"),
            as_object(request.get("after")),
            request.get("limit"),
        )
        names = list(self._gateway.generation.upstreams)
        if wanted is not None and wanted not in names:
            return {"ok": False, "error": "no such server", "names": names}
        most = min(limit, PRINTED) if isinstance(limit, int) and limit > 0 else PRINTED
        told: Json = {}
        for name in names if wanted is None else [wanted]:
            known = after.get(name)
            lines, last = self._chronicle.lines(name, known if isinstance(known, int) else 0, most)
            told[name] = {"lines": [asdict(line) for line in lines], "last": last}
        return {"ok": True, "servers": told, "log_file": self._log_file()}

    def _log_file(self) -> str | None:
        """Where the gateway's own log is."""
        config = self._gateway.generation.config
        if config.global_.log_file is not None:
            return str(
                (config.path.parent if config.path is not None else Path.cwd())
                / config.global_.log_file
            )
        return None if self._run.log_file is None else str(self._run.log_file)

    def _pins(self, verb: str) -> Verb:
        return lambda request: self._gateway.pinning.verbs[verb](
            request
        )  # who never asks does without

    async def close(self) -> None:
        if self._office is not None:
            await self._office.close()
        await self.store.close()
        if self._control is not None:
            await self._control.close()

    def reload_soon(self) -> None:
        self._tasks.start(self.store.propose(by="SIGHUP"))

    async def _changed(self) -> None:
        if self._gateway.generation.config.global_.hot_reload:
            await self.store.file_changed()

    def _judging(self, read: Read) -> Read:
        """What opens the tools to the network by accident is refused when it is read again too."""
        run = self._run
        if run.transport != "http" and run.admin is None:
            return read

        def judged(texts: Texts | None) -> Config:
            config = read(texts)
            if run.transport == "http":
                refuse_exposure(run.host, config)
            if run.admin is not None:
                refuse_admin_exposure(run.admin.host, run.admin.token or config.server.admin_token)
            return config

        return judged

    def _coming(self, config: Config) -> None:
        if self.front is not None:
            self.front.narrow(config)

    def _applied(self, config: Config) -> None:
        if self.front is not None:
            self.front.take_up(config)
        if self._office is not None:
            self._office.take_up(config)
        if not self._run.log_level_given:
            logs.set_level(config.global_.log_level)
        logs.set_format(config.global_.log_format)
        self._telemetry.take_up(config)

    async def status(self) -> Json:
        about = {
            "version": __version__,
            "config": str(self._gateway.generation.config.path),
            "url": self.url,
        }
        about |= {
            "role": self._run.role,
            "attached": [] if self._attached is None else self._attached.describe(),
        }
        about |= {"pid": os.getpid(), "started_at": self._started_at, "log_file": self._log_file()}
        about |= {
            "admin_url": None if self._office is None else self._office.url,
            "clients": len(self._dispatcher.audience.callers()),
        }
        about["replicas"] = self.store.replicas()
        told = {"ok": True, **about, **self.store.status(), **await self._gateway.describe()}
        return self._gateway.redactor.redact_values(told)
