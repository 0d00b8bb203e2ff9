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
from functools import partial
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


class ControlVerbs:
    """Answers the command line over the control channel."""

    def __init__(
        self, run: Run, gateway: Gateway, telemetry: Telemetry, store: ConfigStore
    ) -> None:
        self._run = run
        self._gateway = gateway
        self._telemetry = telemetry
        self._store = store
        self._started_at = now()
        self.chronicle = Chronicle(gateway)  # What servers print at their start explains failures.
        self.office: Office | None = None
        self.clients: AttachedClients | None = None
        self.url: str | None = None
        """The address for clients over HTTP, when it is open."""

    def verbs(self) -> dict[str, Verb]:
        gateway = self._gateway
        # A gateway without pins never builds them.
        pins: dict[str, Verb] = {
            verb: lambda request, verb=verb: gateway.pinning.verbs[verb](request)
            for verb in ("pins", "pins.waiting", "pins.approve")
        }
        return {
            "status": self._status,
            "reload": self._reload,
            "admin": self._admin,
            "activity": self._telemetry.tell_activity,
            "search": self._search,
            "missing": self._missing,
            "logs": self._logs,
            "names": self._names,
            **SignIns(gateway).verbs,
            **PendingCalls(gateway).verbs,
            **pins,
        }

    async def _status(self, _: Json) -> Json:
        config, url, attached = self._gateway.generation.config, None, list[Json]()
        if self.office is not None:
            url = self.office.url
        assert self.clients is not None
        if self.clients.attached is not None:
            attached = self.clients.attached.describe()
        about = {
            "version": __version__,
            "config": str(config.path),
            "url": self.url,
            "role": self._run.role,
            "attached": attached,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "log_file": self._log_file(),
            "admin_url": url,
            "clients": self.clients.sessions,
            "replicas": self._store.replicas(),
        }
        told = {"ok": True, **about, **self._store.status(), **await self._gateway.describe()}
        return self._gateway.redactor.redact_values(told)

    async def _reload(self, request: Json) -> Json:
        return await self._store.asked(author=str(request.get("author") or "")[:100])

    async def _admin(self, request: Json) -> Json:
        if self.office is None:
            hint = "this gateway was started without --admin; end it, and start it with it"
            return {"ok": False, "error": hint}
        return await self.office.tell_login(request)

    async def _search(self, request: Json) -> Json:
        """The catalog's search, for `mcpx search`."""
        from mcpx.core.view import search

        caller = Caller("local", _text(request.get("profile")), since=time.monotonic())
        await self._gateway.access.prepare(caller)
        limit = _positive(request.get("limit")) or SEARCHED
        query = str(request.get("query") or "")
        matches, total = await search(self._gateway, caller, query, limit)
        tools = [
            {"definition": each.offer.definition, "score": each.score, "strong": each.strong}
            for each in matches
        ]
        return {"ok": True, "tools": tools, "total": total}

    async def _missing(self, request: Json) -> Json:
        """Why a tool or a server is not offered, for `mcpx call` and `mcpx tools`."""
        from mcpx.core.missing import why_missing

        await self._gateway.catalogs.ready()
        profile = _text(request.get("profile"))
        found = why_missing(self._gateway, str(request.get("name")), profile)
        if found is None:
            return {"ok": True, "missing": None}
        return {"ok": True, "missing": self._gateway.redactor.redact_values(found.told())}

    async def _names(self, _: Json) -> Json:
        """All names, for the completion of shells."""
        from mcpx.core.names import names_of

        await self._gateway.catalogs.ready()
        offers = self._gateway.catalog.offers
        listed = {
            kind: ((each.server, each.name, each.definition) for each in offers[kind])
            for kind in KINDS
        }
        return {"ok": True, **names_of(self._gateway.generation.config, listed)}

    async def _logs(self, request: Json) -> Json:
        """The output of one server or of all, after the given line numbers, for `mcpx logs`."""
        wanted, after = request.get("server"), as_object(request.get("after"))
        names = list(self._gateway.generation.upstreams)
        if wanted is not None and wanted not in names:
            return {"ok": False, "error": "no such server", "names": names}
        limit = min(_positive(request.get("limit")) or PRINTED, PRINTED)
        told: Json = {}
        for name in [wanted] if wanted is not None else names:
            lines, last = self.chronicle.lines(name, _positive(after.get(name)) or 0, limit)
            told[name] = {"lines": [asdict(line) for line in lines], "last": last}
        return {"ok": True, "servers": told, "log_file": self._log_file()}

    def _log_file(self) -> str | None:
        """The gateway's own log."""
        config, file = self._gateway.generation.config, self._run.log_file
        if config.global_.log_file is not None:
            folder = Path.cwd() if config.path is None else config.path.parent
            file = folder / config.global_.log_file
        return None if file is None else str(file)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


class AttachedClients:
    """The clients that attach over the control channel.

    A gateway in the background ends some time after its last client, or when another gateway takes
    its place.
    """

    def __init__(
        self,
        run: Run,
        dispatcher: Dispatcher,
        environ: Mapping[str, str],
        has_admin: Callable[[], bool],
    ) -> None:
        self._run = run
        self._dispatcher = dispatcher
        self._environ = environ
        self._has_admin = has_admin
        self._leaving: asyncio.TimerHandle | None = None
        self.attached: Attached | None = None
        self.over = asyncio.Event()
        """The gateway in the background has to end."""
        self.retired = False
        """Another gateway takes its place."""

    @property
    def sessions(self) -> int:
        return len(self._dispatcher.audience.callers())

    def admit(self, request: Json) -> "tuple[Json, asyncio.Protocol | None]":
        """For `Control`: a client attaches."""
        if self._run.role == "alone":
            error = "this gateway is one client's alone"
            about = {"version": __version__, "role": "alone"}
            return {"ok": False, "reason": "alone", "error": error, **about}, None
        if self.attached is None:
            from mcpx.front.attached import Attached  # Most gateways have no such client.

            self.attached = Attached(
                self._dispatcher,
                self._environ,
                grace=GRACE,
                about=self._about,
                on_change=self._counted,
            )
        return self.attached.admit(request)

    def _about(self) -> Json:
        level = logging.getLevelName(logging.getLogger("mcpx").level)
        log_file = None
        if self._run.log_file is not None:
            log_file = str(self._run.log_file)
        role, admin = self._run.role, self._has_admin()
        return {"role": role, "admin": admin, "log_level": level, "log_file": log_file}

    def _counted(self) -> None:
        if self._run.linger is None:
            return
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if not self.attached:
            self._end_after(self._run.linger)

    def wait_for_first(self) -> None:
        """End if no client attaches soon."""
        self._end_after(max(self._run.linger or 0.0, FIRST_CLIENT))

    def _end_after(self, seconds: float) -> None:
        self._leaving = asyncio.get_running_loop().call_later(seconds, self.over.set)

    def retire(self) -> None:
        if self._run.role == "background":
            self.retired = True
            self.over.set()

    async def part(self) -> None:
        """Let the clients finish, or move to the gateway that takes the place."""
        if self.attached is not None:
            if self.retired:
                await self.attached.retire(RETIRING)
            await self.attached.close()


class Upkeep:
    """Reloads the configuration of a running gateway, and opens its control channel and its admin
    port."""

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
        self._gateway = gateway
        self._tasks = tasks
        self._control: Control | None = None
        self._office: Office | None = None
        self.store = self._make_store(environ)
        self.verbs = ControlVerbs(run, gateway, telemetry, self.store)
        self.clients = AttachedClients(run, dispatcher, environ, lambda: self._office is not None)
        self.verbs.clients = self.clients
        self.front: HttpFront | None = None
        """Applies a new configuration to clients over HTTP."""

    # Admin port
    # ----------------------------------------------------------------------------------------------

    def take_admin_port(self) -> bool:
        """Return whether to go on. Over stdio, the tools matter more than the admin port."""
        run = self._run
        if run.admin is None:
            return True
        from mcpx.office import Office

        office = Office(run.admin, run.config)
        if (problem := office.bind()) is None:
            self._office = self.verbs.office = office
            self.store.keep_history(run.state)
            office.watch(self.verbs.chronicle)
            return True
        say(run, f"mcpx: {problem}", logging.ERROR)
        return run.transport == "stdio"

    async def open_admin(self) -> bool:
        """Return whether to go on."""
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
            url=lambda: self.verbs.url,
            state=run.state,
            env=run.env,
        )
        try:
            await self._office.open(room)
        except ImportError as error:  # Other versions of its dependencies are installed.
            advice = "Install mcpx anew, or leave --admin out."
            say(run, f"mcpx: the admin UI cannot be loaded: {error}. {advice}", logging.ERROR)
            return False
        return True

    def login_url(self) -> str | None:
        """A login URL of the admin UI. A browser that opens it before the UI is loaded waits."""
        return None if self._office is None else self._office.login_url()

    # Control channel
    # ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        run, config = self._run, self._run.config
        if self._gateway.replicas is not None:
            # Replicas share their configuration, with or without an admin UI.
            if self._office is None:
                self.store.keep_history(run.state)
            self.store.follow()
        if config.path is None:
            return
        if run.state is not None:
            await self._listen(run.state, config.path)
        if run.reload is not None:
            self._watch()

    async def _listen(self, state: Path, config: Path) -> None:
        path = socket_path(state, config, self._run.env)
        verbs = {**self.verbs.verbs(), "retire": self._retire}
        self._control = Control(path, verbs, self.clients, role=self._run.role)
        await self._control.start()

    @property
    def found(self) -> bool:
        """Whether commands for this configuration reach this gateway."""
        return self._control is not None and self._control.listening

    async def _retire(self, _: Json) -> Json:
        """Leave the place to another gateway."""
        if self._run.role == "http" or self._control is None:
            return {"ok": False, "error": "this gateway was started by somebody, and stays"}
        self._control.leave_place()
        self.clients.retire()
        return {"ok": True}

    async def part(self) -> None:
        """Accept no more clients, and let the attached ones finish."""
        if self._control is not None:
            self._control.leave_place()
        await self.clients.part()

    async def close(self) -> None:
        if self._office is not None:
            await self._office.close()
        await self.store.close()
        if self._control is not None:
            await self._control.close()

    # Configuration
    # ----------------------------------------------------------------------------------------------

    def _make_store(self, environ: Mapping[str, str]) -> ConfigStore:
        run, replicas = self._run, self._gateway.replicas
        where = fresh = read = None
        if run.config.path is not None:
            where = Where(run.config.path, environ, run.env)
        if run.fresh is not None:
            file, read_fresh, state = run.fresh

            def begin() -> None:
                self._watch()
                self._tasks.start(self._listen(state, file))

            fresh = Fresh(Where(file, environ, run.env), self._judging(read_fresh), begin, state)
        if run.reload is not None:
            read = self._judging(run.reload)
        make = ConfigStore
        if replicas is not None:
            from mcpx.core.joint import JointStore

            make = partial(JointStore, replicas=replicas)
        return make(self._gateway, read, self._applied, self._coming, where=where, fresh=fresh)

    def _judging(self, read: Read) -> Read:
        """Refuse a new configuration, too, if it opens the tools to the network by accident."""
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

    def _watch(self) -> None:
        async def changed() -> None:
            if self._gateway.generation.config.global_.hot_reload:
                await self.store.file_changed()

        watcher = Watcher(
            lambda: self.store.sources,
            lambda: self._gateway.generation.config.global_.hot_reload_interval,
            changed,
        )
        self._tasks.start(watcher.run())

    def reload_soon(self) -> None:
        self._tasks.start(self.store.propose(by="SIGHUP"))

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
