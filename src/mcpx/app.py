"""The composition root: the only place that wires the rooms together, and the life of the process.

Starts a front, runs until the client leaves or a signal comes, lets calls in flight finish within a grace, then ends
everything it started.
"""

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mcpx import __version__
from mcpx.config import Config, refuse_admin_exposure, refuse_exposure
from mcpx.config.load import Texts
from mcpx.config.watch import Watcher
from mcpx.core.approvals import PendingCalls
from mcpx.core.gateway import Gateway
from mcpx.core.proposals import Proposals, Read
from mcpx.core.sign_ins import SignIns
from mcpx.front.control import Control, Verb, socket_path
from mcpx.front.dispatch import Dispatcher
from mcpx.model.call import Caller, Json
from mcpx.model.errors import ConfigError
from mcpx.model.events import CallFinished
from mcpx.model.redaction import Redactor
from mcpx.processes import process
from mcpx.telemetry.telemetry import Telemetry
from mcpx.wire import descriptors, logs, memory
from mcpx.wire.logs import OURS
from mcpx.wire.tasks import Tasks

if TYPE_CHECKING:
    from mcpx.core.store import ConfigStore
    from mcpx.front.dispatch import Tracker
    from mcpx.front.http import HttpFront
    from mcpx.office import AdminPlace, Office
    from mcpx.telemetry.following import Following

log = logging.getLogger("mcpx")

GRACE = 3.0
"""Seconds calls in flight may take to finish once the end has begun."""
NAMED = 20
"""Servers and commands that are greeted by name."""
ROOM = 2.0
"""Seconds between looks whether anything more can be opened."""
TIDY = 5
"""So many looks between two occasions to hand back memory."""
ENDING = 6.0
"""Seconds after which an end that does not end is cut short; children are ended by then or by the keeper."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for on the command line, after defaults."""

    config: Config
    transport: Literal["stdio", "http"]
    host: str
    port: int
    log_level: str
    log_level_given: bool = False
    """On the command line or in the environment: a changed file does not change it."""
    state: Path | None = None
    """Folder for what is not configuration; None writes nothing."""
    reload: Read | None = None
    """Reads the configuration again; None where there is no file."""
    fresh: tuple[Path, Read, Path] | None = None
    """Without a file: the one that the first write of the admin API makes, what reads it, and its state folder."""
    env: str | None = None
    """The overlay that is laid over the file (`--env`)."""
    profile: str | None = None
    """The named view that a client over stdio gets; None: everything."""
    itself: str = ""
    """What marks this gateway to itself, should one of its servers turn out to be the gateway."""
    admin: "AdminPlace | None" = None
    """Where the admin UI is wanted; None: nowhere."""


def serve(run: Run, environ: Mapping[str, str]) -> int:
    """Run the gateway in this process until it ends; the exit code."""
    if run.transport == "http":
        refuse_exposure(run.host, run.config, lambda: _has_tokens(run.state))
    redactor = Redactor()
    redactor.learn("config", run.config.secrets)
    if run.admin is not None:
        refuse_admin_exposure(run.admin.host, run.admin.token or run.config.server.admin_token)
        redactor.learn("admin", [run.admin.token] if run.admin.token else [])
    _start_log(run, redactor)
    _make_room()
    _leave_no_core()
    for warning in run.config.warnings:
        log.warning("%s", warning, extra=OURS)
    try:
        import uvloop

        start = uvloop.run
    except ImportError:
        start = asyncio.run
    # What is loaded by now stays, and what a call makes goes without the collector: it need not look so often.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    try:
        return start(_serve(run, environ, redactor))
    except asyncio.CancelledError:
        return 0  # a second signal cut the grace short; everything was ended all the same
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # nothing is left to cut short but the exit code
            signal.signal(number, signal.SIG_IGN)


def _has_tokens(state: Path | None) -> bool:
    from mcpx.front.identity.store import has_tokens

    return has_tokens(state)


def _make_room() -> None:
    """For connections and servers: each takes descriptors."""
    limit = descriptors.raise_limit()
    if limit < descriptors.FEW:
        log.warning(
            "only %d files and connections may be open at once: few clients and servers will fit. "
            "Raise the hard limit: `ulimit -Hn` shows it; LimitNOFILE= sets it for systemd, --ulimit for a container",
            limit,
        )


def _leave_no_core() -> None:
    """A crash must not write other people's secrets into a file; nor that of a server, which gets some of them."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


async def _serve(run: Run, environ: Mapping[str, str], redactor: Redactor) -> int:
    asyncio.get_running_loop().set_exception_handler(_report)
    stop = asyncio.Event()
    gateway = Gateway(run.config, environ, run.state, itself=run.itself, redactor=redactor)
    if log.isEnabledFor(logging.DEBUG):
        gateway.bus.subscribe(_log_call, CallFinished)
    dispatcher = Dispatcher(gateway)
    tasks = Tasks("app")
    fronts: list[HttpFront] = []
    telemetry = Telemetry(
        gateway,
        state=run.state,
        env=run.env,
        redactor=gateway.redactor,
        counts=(lambda: fronts[0].counts() if fronts else {}) if run.transport == "http" else None,
    )
    telemetry.take_up(run.config)
    upkeep = Upkeep(run, gateway, tasks, telemetry, dispatcher, environ)
    if not upkeep.take_admin_port():
        await telemetry.close()
        return 1
    _listen_for_signals(stop, upkeep)
    process.adopt_orphans()
    note = _look_for_leftovers(run)
    tasks.start(_watch_room())
    try:
        await upkeep.start()
        if run.transport == "stdio":
            await _serve_stdio(run, dispatcher, stop, upkeep, tasks)
        else:
            return await _serve_http(run, dispatcher, stop, upkeep, telemetry, fronts.append)
    finally:
        try:
            async with asyncio.timeout(ENDING):
                await upkeep.close()
                await tasks.close()
                await gateway.close()
                await process.end_all()
                if note is not None:
                    note.unlink(missing_ok=True)
        except TimeoutError:
            log.error("some servers did not end in time; their processes are ended by force")
        await telemetry.close()
    return 0


def _log_call(call: CallFinished) -> None:
    """Who called what, how long it took and how it ended; never what was said."""
    ended = call.outcome if call.code is None else f"{call.outcome} {call.code}"
    passage, milliseconds = call.passage, call.seconds * 1000
    client = passage.caller.client.get("name") or passage.caller.principal
    log.debug(
        "[%s] %s %s for %s: %s, %.1f ms", passage.server, passage.method, passage.name, client, ended, milliseconds
    )


def _listen_for_signals(stop: asyncio.Event, upkeep: "Upkeep") -> None:
    loop = asyncio.get_running_loop()
    myself = asyncio.current_task()

    def end() -> None:
        # Once: an end with grace. Twice: without. More than that must not cut the cleaning up.
        if stop.is_set() and myself is not None and not myself.cancelling():
            myself.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    if hasattr(signal, "SIGHUP"):
        in_terminal = os.isatty(0)

        def hang_up() -> None:
            # A terminal that was closed is an end; otherwise SIGHUP asks a daemon to read its file again.
            if in_terminal and not os.isatty(0):
                stop.set()
            else:
                upkeep.reload_soon()

        loop.add_signal_handler(signal.SIGHUP, hang_up)


def _look_for_leftovers(run: Run) -> Path | None:
    if run.state is None:
        return None
    from mcpx.processes import leftovers

    leftovers.end(run.state / "runs")
    return leftovers.note(run.state / "runs", process.RUN)


class Upkeep:
    """What a running gateway does besides serving: reload its file, and answer whoever looks after it."""

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
        self._following: Following | None = None
        self._gateway = gateway
        self._tasks = tasks
        self._control: Control | None = None
        self._writable = self._make_store(environ) if run.admin is not None else None
        self.store: Proposals = self._writable or Proposals(gateway, self._reading(), self._applied, self._coming)
        self._office: Office | None = None
        self.front: HttpFront | None = None
        """Who takes up what of a new configuration concerns clients over HTTP."""
        self.url: str | None = None
        """Where clients find it over HTTP, once it listens."""

    def take_admin_port(self) -> bool:
        """Whether to go on: where it cannot be had, clients over stdio get their tools all the same."""
        run = self._run
        if run.admin is None:
            return True
        from mcpx.office import Office

        office = Office(run.admin, run.config)
        if (problem := office.bind()) is None:
            self._office = office
            if self._writable is not None:
                self._writable.keep_history(run.state)
            office.watch(self._gateway)
            return True
        _say(run, f"mcpx: {problem}", logging.ERROR)
        return run.transport == "stdio"

    async def open_admin(self) -> bool:
        """Whether to go on."""
        if self._office is None or self._writable is None:
            return True
        from mcpx.office import Room

        run = self._run
        room = Room(
            gateway=self._gateway,
            store=self._writable,
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
            _say(
                run,
                f"mcpx: the admin UI cannot be loaded: {error}. Install mcpx anew, or leave --admin out.",
                logging.ERROR,
            )
            return False
        _say(run, f"  Admin {self._office.login_url()}")
        return True

    async def start(self) -> None:
        config = self._run.config
        self._follow(config)
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
                "reload": lambda _: self.store.asked(),
                **sign_ins.verbs,
                **PendingCalls(self._gateway).verbs,
                **pins,
                "admin": self._tell_login,
                "activity": self._telemetry.tell_activity,
            },
        )
        await self._control.start()

    def _watch(self) -> None:
        watcher = Watcher(
            lambda: self.store.sources,
            lambda: self._gateway.generation.config.global_.hot_reload_interval,
            self._changed,
        )
        self._tasks.start(watcher.run())

    def _make_store(self, environ: Mapping[str, str]) -> "ConfigStore":
        from mcpx.config.edits import Where
        from mcpx.core.store import ConfigStore, Fresh

        run, path = self._run, self._run.config.path
        where = None if path is None else Where(path, environ, run.env)
        fresh = None
        if run.fresh is not None:
            file, read, state = run.fresh

            def begin() -> None:
                self._watch()
                self._tasks.start(self._listen(state, file))

            fresh = Fresh(Where(file, environ, run.env), self._judging(read), begin, state)
        return ConfigStore(self._gateway, self._reading(), self._applied, self._coming, where=where, fresh=fresh)

    def _reading(self) -> Read | None:
        return None if self._run.reload is None else self._judging(self._run.reload)

    async def _tell_login(self, request: Json) -> Json:
        if self._office is None:
            return {"ok": False, "error": "this gateway was started without --admin"}
        return await self._office.tell_login(request)

    def _pins(self, verb: str) -> Verb:
        return lambda request: self._gateway.pinning.verbs[verb](request)  # who never asks does without

    async def close(self) -> None:
        if self._office is not None:
            await self._office.close()
        await self.store.close()
        if self._control is not None:
            await self._control.close()
        if self._following is not None:
            await self._following.close()

    def _follow(self, config: Config) -> None:
        """Requests are followed while somebody wants to know: JSON logs, an audit trail, traces."""
        settings = config.global_
        if self._following is None:
            if settings.log_format == "text" and settings.audit is None and settings.traces is None:
                return
            from mcpx.telemetry.following import Following

            def set_tracker(tracker: "Tracker | None") -> None:
                self._dispatcher.tracker = tracker

            self._following = Following(self._gateway, set_tracker)
        self._following.take_up(config)

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
        self._follow(config)

    async def status(self) -> Json:
        about = {"version": __version__, "config": str(self._gateway.generation.config.path), "url": self.url}
        told = {"ok": True, **about, **self.store.status(), **await self._gateway.describe()}
        return self._gateway.redactor.redact_values(told)


async def _serve_stdio(run: Run, dispatcher: Dispatcher, stop: asyncio.Event, upkeep: Upkeep, tasks: Tasks) -> None:
    from mcpx.front.stdio import StdioFront
    from mcpx.front.visitor import Visitor

    visitor = Visitor("local", run.profile)
    front = StdioFront(dispatcher, run.config.global_.max_request, visitor)
    await front.start()
    if run.admin is not None:
        tasks.start(upkeep.open_admin())  # beside it: a client does not wait for a page
    await _first_of(stop, front.ended)
    dispatcher.gateway.wind_down()
    await front.close(GRACE)


async def _serve_http(
    run: Run,
    dispatcher: Dispatcher,
    stop: asyncio.Event,
    upkeep: Upkeep,
    telemetry: Telemetry,
    made: "Callable[[HttpFront], None]",
) -> int:
    from mcpx.front.http import HttpFront
    from mcpx.front.reception import House, Reception
    from mcpx.front.visitor import Visitor

    server = run.config.server
    house = House(run.host, run.itself, run.state)
    reception = Reception(house, dispatcher.gateway.generation.config, lambda: dispatcher.gateway.fetcher)

    def metrics(visitor: Visitor) -> tuple[bytes, str] | None:
        return telemetry.metrics_for(Caller(visitor.principal, visitor.profile, visitor.address))

    max_request = run.config.global_.max_request
    upkeep.front = front = HttpFront(dispatcher, reception, max_request=max_request, pages={"/metrics": metrics})
    made(front)
    try:
        port = await front.start(run.host, run.port, (server.tls.cert, server.tls.key) if server.tls else None)
    except (OSError, ValueError) as error:  # ValueError: not even in form a host
        number = error.errno if isinstance(error, OSError) else None
        what = (
            "not a possible host" if not isinstance(error, OSError) else os.strerror(number) if number else str(error)
        )
        _say(
            run,
            f"mcpx: cannot listen on {run.host}:{run.port}: {what}. Another port: --port 0 takes any free one.",
            logging.ERROR,
        )
        return 1
    dispatcher.gateway.start()
    host = f"[{run.host}]" if ":" in run.host else run.host
    upkeep.url = f"{'https' if server.tls else 'http'}://{host}:{port}/mcp"
    _greet(run, upkeep.url)
    ready = await upkeep.open_admin()
    if ready:
        await stop.wait()
    dispatcher.gateway.wind_down()
    await front.close(GRACE)
    return 0 if ready else 1


def _greet(run: Run, url: str) -> None:
    if run.config.path is not None:
        servers = _named([server.name for server in run.config.mcp_servers if server.enabled])
        commands = [command.name for command in run.config.commands if command.enabled]
        told = f" · commands: {_named(commands)}" if commands else ""
        _say(run, f"mcpx {__version__} · {url} · servers: {servers}{told} · Ctrl-C ends it")
        return
    _say(run, f"mcpx {__version__} · no config found, running the built-in demo (nothing is written)")
    _say(run, f"  MCP   {url}")
    _say(run, f"  Try   npx @modelcontextprotocol/inspector --cli {url} --transport http --method tools/list")
    _say(run, "  Next  put your servers into mcpx.yaml and start mcpx again · Ctrl-C ends it")


def _named(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "") or "none"


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _start_log(run: Run, redactor: Redactor) -> None:
    """Log lines go to stderr or the log file, never to stdout."""
    settings, file = run.config.global_, None
    if settings.log_file is not None:
        file = (run.config.path.parent if run.config.path is not None else Path.cwd()) / settings.log_file
    try:
        logs.start(run.log_level, settings.log_format, file, redactor.redact)
    except OSError as error:
        raise ConfigError([f"error: the log file {file} cannot be written: {error.strerror}"]) from None


async def _watch_room() -> None:
    """Says when no more can be opened: uvloop closes a connection that it can take no longer, and tells nobody. Hands
    back memory that nobody needs any more."""
    for tick in itertools.count(1):
        await asyncio.sleep(ROOM)
        if tick % TIDY == 0:
            memory.give_back()
        try:
            os.close(os.dup(2))
        except OSError as error:
            _report(asyncio.get_running_loop(), {"exception": error, "message": "no descriptor"})


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the event loop could tell nobody else: a task that died unheard, a connection that could not be taken."""
    error = context.get("exception")
    if descriptors.ran_out(error):
        log.warning(
            "no connection or file more can be opened: %s (the limit is %d). It goes on when others are closed",
            error,
            descriptors.soft_limit(),
        )
    else:
        log.error("in the event loop: %s", context.get("message"), exc_info=error)


def _say(run: Run, line: str, level: int = logging.INFO) -> None:
    """To whoever started it, whatever is logged."""
    if run.config.global_.log_format == "json":
        line = logs.AsJson().format(logging.LogRecord("mcpx", level, "", 0, "%s", (line.strip(),), None))
    with contextlib.suppress(OSError):  # a client that reads no stderr may have closed it
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
