"""Composition root: the only module that wires the packages together.

`run` starts one gateway in the current event loop and returns when it has ended. `serve` gives it a
process: signal handlers, the log, resource limits, and the garbage collector's settings belong to
the process, not to the gateway.
"""

import asyncio
import errno
import gc
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpx import __version__
from mcpx.base.aio import Tasks
from mcpx.config import refuse_admin_exposure, refuse_exposure
from mcpx.core.gateway import Gateway
from mcpx.front.dispatch import Dispatcher
from mcpx.greeting import admin_text, greet
from mcpx.model.call import Caller
from mcpx.model.errors import ConfigError
from mcpx.model.events import CallFinished
from mcpx.model.redaction import Redactor
from mcpx.processes import process, signals
from mcpx.telemetry.telemetry import Telemetry
from mcpx.upkeep import GRACE, Run, Upkeep, say
from mcpx.wire import codec, descriptors, logs
from mcpx.wire.logs import OURS

if TYPE_CHECKING:
    from mcpx.front.dispatch import Tracker
    from mcpx.front.http import HttpFront
    from mcpx.replicas.replicas import Replicas

log = logging.getLogger("mcpx")

ROOM = 2.0
"""Seconds between looks whether anything more can be opened."""
TIDY = 5
"""So many looks between two occasions to hand back memory."""
DRAIN = 5.0
"""Seconds a replica goes on serving when it is told to end, if the configuration does not say."""
SHARING = 3.0
"""Seconds that a start waits for the files that other replicas have; it goes on without them then,
and takes them up when they come."""
SNAPSHOTS = 512
"""Servers of which replicas share what they last offered."""
ENDING = 15.0
"""Seconds after which an end that does not end is cut short; children are ended by then or by the
keeper."""


class Host:
    """The program that a gateway runs in.

    This base class is a program with other work to do, such as a test: it keeps its signal
    handlers, and the gateway ends only the child processes that it started itself.
    """

    def created(self, upkeep: Upkeep) -> None:
        """The gateway exists and starts its servers next."""

    def listening(self, options: Run, url: str, login_url: str | None) -> None:
        """Clients can connect to `url` over HTTP. The admin UI may still be loading."""

    def admin_loaded(self) -> None:
        """The admin UI answers requests."""

    async def end_children(self) -> None:
        """End the processes that the gateway has not ended itself."""
        await process.let_go()


class _GatewayProcess(Host):
    """A process that does nothing but run one gateway."""

    def __init__(self, stop: asyncio.Event, tasks: Tasks) -> None:
        self._stop = stop
        self._tasks = tasks

    def created(self, upkeep: Upkeep) -> None:
        _listen_for_signals(self._stop, upkeep)
        process.adopt_orphans()
        self._tasks.start(_watch_room())

    def listening(self, options: Run, url: str, login_url: str | None) -> None:
        greet(options, url, login_url)

    def admin_loaded(self) -> None:
        gc.freeze()  # The modules of the admin UI stay loaded: the collector need not visit them.

    async def end_children(self) -> None:
        await process.end_all()


def serve(run: Run, environ: Mapping[str, str]) -> int:
    """Run the gateway in this process until it ends, and return the exit code."""
    redactor = checked(run)
    _start_log(run, redactor)
    _make_room()
    _leave_no_core()
    try:
        import uvloop

        start = uvloop.run
    except ImportError:
        start = asyncio.run
    # What is loaded by now stays, and what a call makes goes without the collector: it need not
    # look so often.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    try:
        return start(_serve(run, environ, redactor))
    except asyncio.CancelledError:
        return 0  # a second signal cut the grace short; everything was ended all the same
    finally:
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
        ):  # nothing is left to cut short but the exit code
            signal.signal(number, signal.SIG_IGN)


def checked(run: Run) -> Redactor:
    """Refuse to open tools to the network by accident, and return the redactor that knows the
    secrets of the run.

    Raises ConfigError.
    """
    if run.transport == "http":
        # With a store, tokens may come from other replicas. Until then no client is authenticated.
        refuse_exposure(
            run.host, run.config, lambda: run.store is not None or _has_tokens(run.state)
        )
    redactor = Redactor()
    redactor.learn("config", run.config.secrets)
    if run.admin is not None:
        refuse_admin_exposure(run.admin.host, run.admin.token or run.config.server.admin_token)
        redactor.learn("admin", [run.admin.token] if run.admin.token else [])
    return redactor


def _has_tokens(state: Path | None) -> bool:
    from mcpx.front.identity.store import has_tokens

    return has_tokens(state)


def _make_room() -> None:
    """For connections and servers: each takes descriptors."""
    limit = descriptors.raise_limit()
    if limit < descriptors.FEW:
        log.warning(
            "only %d files and connections may be open at once: few clients and servers will fit. "
            "Raise the hard limit: `ulimit -Hn` shows it; LimitNOFILE= sets it for systemd, "
            "--ulimit for a container",
            limit,
        )


def _leave_no_core() -> None:
    """A crash must not write other people's secrets into a file; nor that of a server, which gets
    some of them."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


async def _serve(options: Run, environ: Mapping[str, str], redactor: Redactor) -> int:
    asyncio.get_running_loop().set_exception_handler(report_loop_error)
    stop = asyncio.Event()
    tasks = Tasks("process")
    try:
        return await run(options, environ, stop, redactor, _GatewayProcess(stop, tasks))
    finally:
        await tasks.close()


async def run(
    options: Run,
    environ: Mapping[str, str],
    stop: asyncio.Event,
    redactor: Redactor,
    host: Host | None = None,
) -> int:
    """Run one gateway in this event loop until `stop` is set or its client leaves; return the exit
    code.

    Several gateways may run in one process, in the same loop or in several threads with a loop
    each. Calls in flight may finish within `GRACE`, then everything that was started is ended.
    `redactor` comes from `checked`.
    """
    host = host or Host()
    for warning in options.config.warnings:
        log.warning("%s", warning, extra=OURS)
    replicas = None if options.store is None else _replicas(options.store, environ, redactor)
    if replicas is not None:
        replicas.start()
        await _share_files(replicas, options.state)  # Before they are read for the first time.
    gateway = Gateway(
        options.config,
        environ,
        options.state,
        itself=options.itself,
        redactor=redactor,
        replicas=replicas,
    )
    if log.isEnabledFor(logging.DEBUG):
        gateway.bus.subscribe(_log_call, CallFinished)
    dispatcher = Dispatcher(gateway)
    tasks = Tasks("app")
    fronts: list[HttpFront] = []

    def set_tracker(tracker: "Tracker | None") -> None:
        dispatcher.tracker = tracker

    telemetry = Telemetry(
        gateway,
        state=options.state,
        set_tracker=set_tracker,
        env=options.env,
        redactor=gateway.redactor,
        environ=environ,
        counts=(lambda: fronts[0].counts() if fronts else None)
        if options.transport == "http"
        else None,
    )
    telemetry.take_up(options.config)
    upkeep = Upkeep(options, gateway, tasks, telemetry, dispatcher, environ)
    if not upkeep.take_admin_port():
        await _leave(replicas)
        await telemetry.close()
        return 1
    host.created(upkeep)
    note = _look_for_leftovers(options)
    if replicas is not None and replicas.files is not None:
        replicas.files.hear("auth", gateway.sign_ins_changed)
        replicas.files.hear("pins", gateway.pins_changed)
    try:
        await upkeep.start()
        if options.linger is not None:
            return await _serve_in_background(options, dispatcher, stop, upkeep, tasks, host)
        if options.transport == "stdio":
            await _serve_stdio(options, dispatcher, stop, upkeep, tasks, host)
        else:
            return await _serve_http(
                options, dispatcher, stop, upkeep, telemetry, host, fronts.append
            )
    finally:
        try:
            async with asyncio.timeout(ENDING):
                await upkeep.close()
                await tasks.close()
                await gateway.close()
                await host.end_children()
                await _leave(replicas)
                if note is not None:
                    note.unlink(missing_ok=True)
        except TimeoutError:
            log.error("some servers did not end in time; their processes are ended by force")
        await telemetry.close()
    return 0


def _replicas(store: str, environ: Mapping[str, str], redactor: Redactor) -> "Replicas":
    from mcpx.replicas.address import parse
    from mcpx.replicas.replicas import Replicas

    address = parse(store)
    redactor.learn("store", [address.password] if address.password else [])
    return Replicas(address, environ, __version__)


async def _leave(replicas: "Replicas | None") -> None:
    if replicas is not None:
        if replicas.files is not None:
            await replicas.files.close()
        await replicas.close()


async def _share_files(replicas: "Replicas", state: Path | None) -> None:
    if state is None:
        return
    from mcpx.auth.shared import SIGN_INS
    from mcpx.front.identity.shared import SharedTokens
    from mcpx.policy.pins.pin_file import SharedPins
    from mcpx.replicas.file_sync import FileSync
    from mcpx.replicas.merge_rules import Whole
    from mcpx.upstreams.snapshot import LARGEST, NAMES

    snapshots = Whole("snapshots", NAMES, SNAPSHOTS, LARGEST, lasting=False)
    replicas.files = files = FileSync(
        replicas, state, (SharedTokens(), SIGN_INS, SharedPins(), snapshots)
    )
    replicas.preparations.append(lambda: files.complete(SHARING))  # should the store come late
    await files.start()
    await files.complete(SHARING)


def _log_call(call: CallFinished) -> None:
    """Who called what, how long it took and how it ended; never what was said."""
    ended = call.outcome if call.code is None else f"{call.outcome} {call.code}"
    passage, milliseconds = call.passage, call.seconds * 1000
    client = passage.caller.client.get("name") or passage.caller.principal
    log.debug(
        "[%s] %s %s for %s: %s, %.1f ms",
        passage.server,
        passage.method,
        passage.name,
        client,
        ended,
        milliseconds,
    )


def _listen_for_signals(stop: asyncio.Event, upkeep: Upkeep) -> None:
    myself = asyncio.current_task()

    def end() -> None:
        # Once: an end with grace. Twice: without. More than that must not cut the cleaning up.
        if stop.is_set() and myself is not None and not myself.cancelling():
            myself.cancel()
        stop.set()

    in_terminal = os.isatty(0)

    def hang_up() -> None:
        # A terminal that was closed is an end; otherwise SIGHUP asks a daemon to read its file
        # again.
        if in_terminal and not os.isatty(0):
            stop.set()
        else:
            upkeep.reload_soon()

    signals.listen(end, hang_up)


def _look_for_leftovers(run: Run) -> Path | None:
    """End processes and delete temporary files that earlier runs have left. Return the note for
    later runs."""
    if run.config.path is not None:
        from mcpx.core.saving import remove_leftovers_of

        remove_leftovers_of(run.config.path)
    if run.state is None:
        return None
    from mcpx.processes import leftovers

    leftovers.end(run.state / "runs")
    return leftovers.note(run.state / "runs", process.RUN)


async def _serve_stdio(
    run: Run, dispatcher: Dispatcher, stop: asyncio.Event, upkeep: Upkeep, tasks: Tasks, host: Host
) -> None:
    from mcpx.front.stdio import StdioFront
    from mcpx.front.visitor import Visitor

    visitor = Visitor("local", run.profile)
    front = StdioFront(dispatcher, run.config.global_.max_request, visitor)
    await front.start()
    if (login := upkeep.login_url()) is not None:
        say(run, f"  Admin {admin_text(run, login)}")
        tasks.start(_open_admin(run, upkeep, host))  # The client does not wait for the admin UI.
    await _first_of(stop, front.ended)
    dispatcher.gateway.wind_down()
    await front.close(GRACE)


async def _serve_in_background(
    run: Run, dispatcher: Dispatcher, stop: asyncio.Event, upkeep: Upkeep, tasks: Tasks, host: Host
) -> int:
    """For clients that attach. Whoever had it started waits for a word on standard output, and
    looks who is there when none comes: another may have been quicker."""
    if not upkeep.found:
        return 1
    upkeep.clients.wait_for_first()
    if run.log_file is not None:
        tasks.start(logs.keep_small(run.log_file))
    dispatcher.gateway.start()
    if run.admin is not None:
        tasks.start(_open_admin(run, upkeep, host))
    log.info(
        "mcpx %s runs in the background on %s, process %d",
        __version__,
        run.config.path,
        os.getpid(),
    )
    if run.started is not None:
        run.started()
    await _first_of(stop, upkeep.clients.over)
    why = (
        "another gateway takes its place"
        if upkeep.clients.retired
        else "asked to"
        if stop.is_set()
        else "no client is left"
    )
    log.info("mcpx ends: %s", why)
    if not upkeep.clients.retired:
        dispatcher.gateway.wind_down()
    parting = asyncio.ensure_future(upkeep.part())
    ended = asyncio.ensure_future(stop.wait())  # while it retires it can still be asked to be quick
    await asyncio.wait((parting, ended), return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if not parting.done():
        await asyncio.wait((parting,), timeout=GRACE)
        parting.cancel()
    return 0


async def _serve_http(
    run: Run,
    dispatcher: Dispatcher,
    stop: asyncio.Event,
    upkeep: Upkeep,
    telemetry: Telemetry,
    host: Host,
    made: "Callable[[HttpFront], None]",
) -> int:
    from mcpx.front.http import HttpFront
    from mcpx.front.reception import House, Reception
    from mcpx.front.visitor import Visitor

    server = run.config.server
    house = House(run.host, run.itself, run.state)
    reception = Reception(
        house, dispatcher.gateway.generation.config, lambda: dispatcher.gateway.provisions.fetcher
    )

    def metrics(visitor: Visitor) -> tuple[bytes, str] | None:
        return telemetry.metrics_for(Caller(visitor.principal, visitor.profile, visitor.address))

    max_request = run.config.global_.max_request
    upkeep.front = front = HttpFront(
        dispatcher, reception, max_request=max_request, pages={"/metrics": metrics}
    )
    made(front)
    tls = (server.tls.cert, server.tls.key) if server.tls else None
    try:
        port = await _listen(front, run, tls)
    except (OSError, ValueError) as error:  # ValueError: not even in form a host
        number = error.errno if isinstance(error, OSError) else None
        what = (
            "not a possible host"
            if not isinstance(error, OSError)
            else os.strerror(number)
            if number
            else str(error)
        )
        say(
            run,
            f"mcpx: cannot listen on {run.host}:{run.port}: {what}. Another port: --port 0 takes "
            "any free one.",
            logging.ERROR,
        )
        return 1
    dispatcher.gateway.start()
    shown_host = f"[{run.host}]" if ":" in run.host else run.host
    scheme = "https" if server.tls else "http"
    upkeep.verbs.url = url = f"{scheme}://{shown_host}:{port}/mcp"
    host.listening(run, url, upkeep.login_url())
    ready = await _open_admin(run, upkeep, host)
    if ready:
        await stop.wait()
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # behind the ^C that the terminal shows
        await front.drain(_draining(dispatcher.gateway), GRACE)
    dispatcher.gateway.wind_down()
    await asyncio.gather(front.close(GRACE), upkeep.part())
    return 0 if ready else 1


async def _open_admin(run: Run, upkeep: Upkeep, host: Host) -> bool:
    """Load the admin UI if the run has one. Returns False if it cannot be loaded."""
    ready = await upkeep.open_admin()
    if ready and run.admin is not None:
        host.admin_loaded()
    return ready


def _draining(gateway: Gateway) -> float:
    """Seconds in which load balancers may notice that the end is near."""
    given = gateway.generation.config.server.drain
    return given if given is not None else DRAIN if gateway.replicas is not None else 0.0


async def _listen(front: "HttpFront", run: Run, tls: tuple[str, str] | None) -> int:
    try:
        return await front.start(run.host, run.port, tls)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not run.or_another_port:
            raise
        return await front.start(run.host, 0, tls)


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
        file = (
            run.config.path.parent if run.config.path is not None else Path.cwd()
        ) / settings.log_file
    try:
        logs.start(run.log_level, settings.log_format, file, redactor.redact)
    except OSError as error:
        raise ConfigError(
            [f"error: the log file {file} cannot be written: {error.strerror}"]
        ) from None


async def _watch_room() -> None:
    """Says when no more can be opened: uvloop closes a connection that it can take no longer, and
    tells nobody. Hands back memory that nobody needs any more."""
    for tick in itertools.count(1):
        await asyncio.sleep(ROOM)
        if tick % TIDY == 0:
            codec.release_memory()
        try:
            os.close(os.dup(2))
        except OSError as error:
            report_loop_error(
                asyncio.get_running_loop(), {"exception": error, "message": "no descriptor"}
            )


def report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the event loop could tell nobody else: a task that died unheard, a connection that could
    not be taken."""
    error = context.get("exception")
    if descriptors.ran_out(error):
        log.warning(
            "no connection or file more can be opened: %s (the limit is %d). It goes on when "
            "others are closed",
            error,
            descriptors.soft_limit(),
        )
    else:
        log.error("in the event loop: %s", context.get("message"), exc_info=error)
