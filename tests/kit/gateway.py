"""Runs mcpx for a test: `Gateway` in a thread of the test's process, `GatewayProcess` as a separate
process.

    with Gateway({"mcp_servers": [...]}) as gateway:
        Client(gateway.url)

`Gateway` starts in 3 to 20 ms and listens on real sockets. Its servers are real child processes.
Use `GatewayProcess` for what belongs to a process: signals, standard streams, exit codes, memory,
crashes, log settings. Both have the same attributes, apart from `process` and `excused`.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from kit.process import END, START, Child, Output
from mcpx import app
from mcpx.cli.command_table import COMMANDS
from mcpx.cli.parsing import parser_of
from mcpx.cli.serve import run_options
from mcpx.front.control import ask, socket_path
from mcpx.upkeep import Run
from mcpx.wire.logs import Outlet, Plain

try:
    from uvloop import new_event_loop
except ImportError:  # Windows
    new_event_loop = None

Json = dict[str, Any]
Config = Mapping[str, Any] | str | Path | None
"""The content of a JSON file, the text of a YAML file, an existing file or folder, or None for the
demo."""

LISTENS = r"http://127\.0\.0\.1:(\d+)/mcp"
"""The line on stderr when mcpx listens."""
ADMIN = r"Admin\s+(https?://[^\s/]+)"
"""The line on stderr when the admin UI listens."""

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_SECONDS = 20.0
"""Time limit for the end of a gateway: 3 s for calls in flight, 3 s for servers, and reserve for a
busy machine."""


class _Folder:
    """A temporary folder with the configuration file and the state of one gateway."""

    config: Config
    args: tuple[str, ...]
    env: dict[str, str]
    admin_token: str

    def _make_folder(self, env: Mapping[str, str]) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="mcpx-test-")
        self.folder = Path(self._temporary.name)
        self.env = {**os.environ, "MCPX_STATE_DIR": str(self.folder / "state"), **env}
        if self.config is None:
            return
        if isinstance(self.config, Path):
            self.file = self.config
            return
        if isinstance(self.config, str):
            self.file = self.folder / "config.yaml"
            self.file.write_text(self.config, encoding="utf-8")
        else:
            self.file = self.folder / "config.json"
            self.file.write_text(json.dumps(self.config, indent=2), encoding="utf-8")
        self.file.chmod(0o600)

    def _remove_folder(self) -> None:
        self._temporary.cleanup()

    @property
    def admin_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.admin_token}"}

    @property
    def _program(self) -> list[str]:
        file = [] if self.config is None else [str(self.file)]
        return [sys.executable, "-m", "mcpx", *file]

    @property
    def stdio_command(self) -> list[str]:
        """The command line that a stdio client starts with `env`.

        The command starts another gateway, or a bridge to this gateway if MCPX_STANDALONE is false.
        """
        return [*self._program, "--transport", "stdio", *self.args]

    def control(self, verb: str, **more: object) -> Json:
        """Send one request over the control channel."""
        answer = asyncio.run(
            ask(socket_path(Path(self.env["MCPX_STATE_DIR"]), self.file, None), verb, **more)
        )
        assert answer is not None, "no gateway answers on the control channel"
        return answer

    def reload(self, config: Mapping[str, Any] | None = None) -> Json:
        """Reload the configuration, after replacing it by `config` if given."""
        if config is not None:
            self.file.write_text(json.dumps(config), encoding="utf-8")
        return self.control("reload")


class Gateway(_Folder):
    """One gateway with an event loop in a thread of this process."""

    def __init__(
        self, config: Config, *args: str, env: Mapping[str, str] | None = None, admin: bool = False
    ) -> None:
        """`args` are command line options. `admin` starts the admin API and UI at `admin_url`."""
        self.config = config
        self.args = (*args, "--admin-port", "0") if admin else args
        self.admin_token = secrets.token_urlsafe(32)
        self._admin = admin
        self._env = env or {}

    def __enter__(self) -> Self:
        self._make_folder(self._env)
        if self._admin:
            self.env.setdefault("MCPX_ADMIN_TOKEN", self.admin_token)
        self._thread: _GatewayThread | None = None
        try:
            self._thread = _GatewayThread(self._options(), self.env)
            self._thread.start()
            host = self._thread.host
            self.url = host.url
            self.port = int(self.url.rpartition(":")[2].partition("/")[0])
            if self._admin:
                assert host.login_url is not None
                self.login_url = host.login_url
                self.admin_url = self.login_url.partition("/login")[0]
        except BaseException:
            self._remove_folder()
            raise
        return self

    def _options(self) -> Run:
        arguments = ["--transport", "http", *self.args]
        if self.config is not None:
            arguments += ["--config", str(self.file)]
        for name, value in (("--host", "127.0.0.1"), ("--port", "0")):
            if name not in self.args:
                arguments += [name, value]
        options = parser_of(COMMANDS["serve"]).read(arguments)
        file = None if self.config is None else self.file
        file = None if self.config is None else self.file
        return run_options(file, options, self.env)

    @property
    def pid(self) -> int:
        """The parent of the gateway's servers."""
        return os.getpid()

    def stderr(self) -> str:
        """The log so far."""
        assert self._thread is not None
        return self._thread.log.text

    def wait_for_log(self, pattern: str, seconds: float = START) -> re.Match[str]:
        assert self._thread is not None
        found = self._thread.log.wait_for(pattern, seconds)
        assert found is not None, f"never logged: {pattern}\n{self.stderr()}"
        return found

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.stop(checked=error is None)
        finally:
            self._remove_folder()


class _Host(app.Host):
    """Notes the addresses of a gateway as it starts."""

    def __init__(self, wants_admin: bool, log: "LogText") -> None:
        self._wants_admin = wants_admin
        self._log = log
        self.url = ""
        self.login_url: str | None = None
        self.ready = threading.Event()
        """Set when the gateway is ready, and when it has ended."""

    def listening(self, options: Run, url: str, login_url: str | None) -> None:
        self.url, self.login_url = url, login_url
        self._log.write(f"mcpx · {url}\n")
        if not self._wants_admin:
            self.ready.set()

    def admin_loaded(self) -> None:
        self.ready.set()


class LogText:
    """The log of one gateway as text. Any thread may write and wait."""

    def __init__(self) -> None:
        self._text = ""
        self._changed = threading.Condition()

    def write(self, text: str) -> None:
        with self._changed:
            self._text += text
            self._changed.notify_all()

    def flush(self) -> None:
        """Required of a stream."""

    @property
    def text(self) -> str:
        with self._changed:
            return self._text

    def wait_for(self, pattern: str, seconds: float) -> re.Match[str] | None:
        """Return the first match of `pattern`, or None after `seconds` without a match."""
        expression = re.compile(pattern, re.MULTILINE)
        deadline = time.monotonic() + seconds
        with self._changed:
            while (found := expression.search(self._text)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return found


class _GatewayThread:
    def __init__(self, options: Run, environ: Mapping[str, str]) -> None:
        self._options = options
        self._environ = environ
        self._name = f"gateway-{secrets.token_hex(4)}"
        self.log = LogText()
        self.host = _Host(options.admin is not None, self.log)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._code: int | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        """Return when clients can connect."""
        self._thread.start()
        in_time = self.host.ready.wait(START)
        if in_time and self.host.url and self._code is None and self._failure is None:
            return
        self.stop(checked=False)
        raise RuntimeError(f"the gateway is not ready:\n{self.log.text}") from self._failure

    def stop(self, *, checked: bool) -> None:
        """End the gateway. With `checked`, raise if it does not end in time and in good order."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS)
        if not checked:
            return
        if self._thread.is_alive():
            raise AssertionError(
                f"the gateway still runs {STOP_SECONDS:.0f} s after it was stopped\n{self.log.text}"
            )
        if self._failure is not None:
            raise self._failure
        assert self._code == 0, f"the gateway ended with code {self._code}\n{self.log.text}"

    def _run(self) -> None:
        try:
            redactor = app.checked(self._options)
            with (
                _logging(self._name, self._options.log_level, self.log, redactor.redact),
                asyncio.Runner(loop_factory=new_event_loop) as runner,
            ):
                self._code = runner.run(self._serve(redactor))
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            self._failure = error
        finally:
            self.host.ready.set()

    async def _serve(self, redactor: Any) -> int:
        self._loop = loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(max_workers=8, thread_name_prefix=self._name))
        loop.set_exception_handler(app.report_loop_error)
        self._stop = asyncio.Event()
        return await app.run(self._options, self._environ, self._stop, redactor, self.host)


class _LogRouter(logging.Handler):
    """Gives each log record to the gateway in whose threads it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.outlets: dict[str, Outlet] = {}
        self.changing = threading.Lock()

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the lock of this handler: each outlet has its own.
        name = (record.threadName or "").partition("_")[0]
        outlet = self.outlets.get(name)
        if (
            outlet is None
            and not name.startswith("gateway-")
            and name != "MainThread"
            and len(self.outlets) == 1
        ):
            (outlet,) = (
                self.outlets.values()
            )  # A named thread, such as the writer of the audit log.
        if outlet is not None:
            outlet.handle(record)
        return True


_router = _LogRouter()


@contextlib.contextmanager
def _logging(name: str, level: str, stream: LogText, redact: Any) -> Any:
    """Write the log of the threads called `name` to `stream`."""
    target = logging.StreamHandler(stream)
    target.setFormatter(Plain(datefmt="%H:%M:%S"))
    target.setLevel(level)
    outlet = Outlet([target], redact)
    loggers = [logging.getLogger("mcpx"), logging.getLogger("asyncio")]
    with _router.changing:
        _router.outlets[name] = outlet
        for logger in loggers:
            if _router not in logger.handlers:
                logger.addHandler(_router)
        loggers[0].setLevel(min(logging.INFO, logging.getLevelName(level)))
    try:
        yield
    finally:
        with _router.changing:
            del _router.outlets[name]
            if not _router.outlets:
                for logger in loggers:
                    logger.removeHandler(_router)
                loggers[0].setLevel(logging.NOTSET)
        outlet.close()


def admin_address(stderr: Output) -> str:
    """The address that mcpx prints when its admin UI listens."""
    found = stderr.wait_for(ADMIN, START)
    if found is None:
        raise RuntimeError(f"the admin UI did not get ready:\n{stderr.text}")
    return found[1]


def measured() -> list[str]:
    """The words before `-m mcpx` that include a process in the measured coverage, if the test run
    measures it."""
    coverage = sys.modules.get("coverage")
    if coverage is None or coverage.Coverage.current() is None:
        return []
    kept = [f"--rcfile={REPOSITORY / 'pyproject.toml'}", f"--data-file={REPOSITORY / '.coverage'}"]
    return ["-m", "coverage", "run", "--parallel-mode", *kept]


class GatewayProcess(_Folder):
    """`python -m mcpx`, ended with SIGTERM as a service manager ends it (LIF-8).

    Leaving the block checks for exit code 0 within `stop` seconds. With `transport="stdio"`, the
    test starts the gateway as a client does, from `stdio_command` and `env`.
    """

    def __init__(
        self,
        config: Config,
        *args: str,
        env: Mapping[str, str] | None = None,
        transport: Literal["http", "stdio"] = "http",
        listens: str = LISTENS,
        admin: bool = False,
        counted: bool = True,
        stop: float = STOP_SECONDS,
    ) -> None:
        """Start mcpx when the block is entered.

        `listens` is the pattern of the ready line if mcpx is bound to another address. `counted`
        includes a process with the admin API in the measured coverage.
        """
        self.config = config
        self.args = (*args, "--admin-port", "0") if admin else args
        self.admin_token = secrets.token_urlsafe(32)
        self._admin = admin
        self._counted = counted
        self.transport = transport
        self._env = env or {}
        self._listens = listens
        self._stop = stop
        self._child: Child | None = None
        self.excused = False
        """The test killed the gateway on purpose: do not check the exit code."""

    def __enter__(self) -> Self:
        self._make_folder(self._env)
        if self._admin:
            self.env.setdefault("MCPX_ADMIN_TOKEN", self.admin_token)
        try:
            if self.transport == "http":
                self._start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def _start(self) -> None:
        command = [
            *self._program,
            "--transport",
            "http",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            *self.args,
        ]
        self._child = Child(command, self.env).__enter__()
        listens = self._child.stderr.wait_for(self._listens, START)
        if listens is None:
            raise RuntimeError(
                f"mcpx did not get ready: {' '.join(command)}\n{self._child.stderr.text}"
            )
        self.url, self.port = listens[0], int(listens[1])
        if self._admin:
            self.admin_url = admin_address(self._child.stderr)
            with contextlib.suppress(urllib.error.URLError):  # Any answer will do.
                urllib.request.urlopen(
                    self.admin_url, timeout=START
                ).close()  # The answer comes when the admin UI is loaded.

    @property
    def _program(self) -> list[str]:
        python, *words = super()._program
        counting = measured() if self._admin and self._counted else []
        return [python, *counting, *words]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._child is not None, "with the stdio transport the test starts the gateway"
        return self._child.process

    @property
    def pid(self) -> int:
        return self.process.pid

    def stderr(self) -> str:
        """The text on stderr so far."""
        assert self._child is not None, "with the stdio transport the test starts the gateway"
        return self._child.stderr.text

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._child is not None:
                self._end(excused=self.excused or error is not None)
        finally:
            self._clean_up()

    def _end(self, *, excused: bool) -> None:
        """Send SIGTERM, and check the exit code unless the test has already failed."""
        if self.process.poll() is None:
            self.process.send_signal(END)
        try:
            code = self.process.wait(self._stop)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0 and not excused:
            how = (
                f"still runs {self._stop:.0f} s after"
                if code is None
                else f"exit code {code} after"
            )
            raise AssertionError(f"mcpx: {how} SIGTERM\n{self.stderr()}")

    def _clean_up(self) -> None:
        if self._child is not None:
            self._child.end()
        self._remove_folder()
