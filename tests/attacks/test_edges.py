"""What reaches the edges of the process, through the real program: log lines, addresses, daemons,
descriptors."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kit.client import health
from kit.until import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

WAIT = 20.0
LISTENS = r"http://127\.0\.0\.1:(\d+)/mcp"

SERVER = r'''
import json, os, resource, sys
mode, *words = sys.argv[1:]

def answer(message, **reply):
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)

def daemon(out, unbranded):
    """Forks twice, leaves the session, keeps no descriptor and no environment."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.setsid()
    if unbranded:
        resource.setrlimit(resource.RLIMIT_RTTIME, (resource.RLIM_INFINITY,) * 2)
    os.closerange(0, 256)
    code = f"import os, time\nout = {out!r}\nopen(out + '.new', 'w').write(str(os.getpid()))\n"
    code += "os.rename(out + '.new', out)\ntime.sleep(600)"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})

if mode in ("daemon", "unbranded"):
    daemon(words[0], mode == "unbranded")
if mode == "limit":
    open(words[0], "w").write(str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        if mode == "chatty":
            data = "\x1b[31mred\r\n00:00:00 ERROR forged\x85\u2028\u202e\nx"
            note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}}
            for _ in range(20000):
                print(json.dumps(note))
            print(json.dumps({**note, "method": "notifications/tools/list_changed"}), flush=True)
    elif message["method"] == "initialize" and mode == "unlicensed":
        answer(message, error={"code": -32000, "message": "the licence has run out"})
    elif message["method"] == "initialize":
        capabilities = {"tools": {"listChanged": True}, "logging": {}}
        info = {"name": "edge", "version": "1"}
        answer(message, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
    elif message["method"] == "tools/list":
        answer(message, result={"tools": []})
    elif message["method"] == "ping":
        answer(message, result={})
    else:
        answer(message, error={"code": -32601, "message": "that was the probe"})
'''


def edge(name: str, *args: str) -> dict[str, Any]:
    return {
        "name": name,
        "connection": {"type": "stdio", "command": sys.executable, "args": ["-c", SERVER, *args]},
    }


class Mcpx:
    """One gateway in a folder of its own."""

    def __init__(self, folder: Path, *servers: Mapping[str, Any]) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.file = folder / "config.json"
        self.error = folder / "stderr"
        ours = {name: value for name, value in os.environ.items() if not name.startswith("MCPX_")}
        self.env = {
            **ours,
            "MCPX_STANDALONE": "true",
            "MCPX_STATE_DIR": str(self.state),
            "HOME": str(folder),
        }
        self.write(*servers)
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, *servers: Mapping[str, Any], **more: Any) -> None:
        self.file.write_text(json.dumps({"mcp_servers": servers, **more}), encoding="utf-8")
        self.file.chmod(0o600)

    def run(self, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "mcpx", *args],
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    @contextlib.contextmanager
    def running(self, *args: str, files: tuple[int, int] | None = None) -> Iterator[int]:
        """Its port."""
        command = [sys.executable, "-m", "mcpx", str(self.file), "--port", "0", *args]
        if files is not None:
            limit = (
                f"import os, resource, sys\nresource.setrlimit(resource.RLIMIT_NOFILE, {files})\n"
            )
            command = [
                sys.executable,
                "-c",
                limit + "os.execv(sys.argv[1], sys.argv[1:])",
                *command,
            ]
        with open(self.error, "wb") as error:
            self.process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stderr=error
            )
        try:
            yield int(self.said(LISTENS)[1])
        finally:
            self.process.terminate()
            try:
                self.process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        assert "Traceback" not in self.text, self.text

    @property
    def text(self) -> str:
        return self.error.read_text(encoding="utf-8", errors="surrogateescape")

    def said(self, pattern: str) -> "re.Match[str]":
        return wait_until(lambda: re.search(pattern, self.text))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# Log lines
# --------------------------------------------------------------------------------------------------


def test_a_server_that_logs_without_end_gets_a_few_lines_and_a_count_and_forges_none(
    tmp_path: Path,
) -> None:
    """LIF-7, SRC-8."""
    mcpx = Mcpx(tmp_path, edge("chatty", "chatty"))
    with mcpx.running() as port:
        wait_until(lambda: mcpx.text.count("[chatty] info: ") >= 20)
        wait_until(lambda: health(port)["servers"]["chatty"]["status"] == "connected")
    assert re.search(r"\[chatty\] … and [\d,]+ more like", mcpx.text)  # at the latest when it ends
    lines = mcpx.error.read_bytes().decode().split("\n")
    assert len(lines) < 60
    assert all(line.isprintable() for line in lines), lines
    assert not any(line.startswith("00:00:00") for line in lines)


def test_a_failed_handshake_is_told_with_its_own_error(tmp_path: Path) -> None:
    """SRC-8."""
    mcpx = Mcpx(tmp_path, edge("paid", "unlicensed"))
    with mcpx.running():
        mcpx.said("the licence has run out")
        assert "that was the probe" not in mcpx.text


# Addresses and headers
# -----------------------------------------------------------------------------------------


def connection(**settings: Any) -> dict[str, Any]:
    return {"name": "a", "connection": {"type": "http", **settings}}


WRONG = {
    "password": connection(url="http://user:hunter2@h/mcp"),
    "socket's password": connection(type="websocket", url="ws://user:hunter2@h/mcp"),
    "port": connection(url="http://h:70000/mcp"),
    "no number": connection(url="http://h:²/mcp"),
    "zone": connection(url="http://[fe80::1%eth0]/mcp"),
    "length": connection(url="http://h", headers={"Content-Length": "5"}),
    "host": connection(url="http://h", headers={"hOST": "x"}),
    "session": connection(url="http://h", headers={"Mcp-Session-Id": "x"}),
    "break": connection(url="http://h", headers={"X": "a\r\nb"}),
    "script": connection(url="http://h", headers={"X": "文"}),
}


def test_check_start_and_reload_refuse_what_cannot_be_dialled(tmp_path: Path) -> None:
    """CFG-4, CFG-5: with the place, and without what is secret."""
    mcpx = Mcpx(tmp_path, edge("good", "plain"))
    with mcpx.running() as port:
        wait_until(lambda: health(port)["servers"]["good"]["status"] == "connected")
        mcpx.write(*({**server, "name": name} for name, server in WRONG.items()))
        for command in (["check"], ["--port", "0"], ["reload"]):
            done = (
                mcpx.run(*command[:1], str(mcpx.file))
                if len(command) == 1
                else mcpx.run(str(mcpx.file), *command)
            )
            assert done.returncode == 2, done.stderr
            assert done.stderr.count("error: ") == len(WRONG), done.stderr
            assert len(re.findall(r"config\.json:1:\d+", done.stderr)) >= len(WRONG)
            assert "hunter2" not in done.stderr
        assert health(port)["servers"]["good"]["status"] == "connected"
    assert "hunter2" not in mcpx.text


@pytest.mark.parametrize("port", ["²", "٣", "70000", "-1", "1_0", ""])
def test_a_port_that_is_none_is_refused_in_words(port: str, tmp_path: Path) -> None:
    """RUN-2."""
    mcpx = Mcpx(tmp_path)
    ways = [mcpx.run(str(mcpx.file), f"--port={port}")]
    if port:
        ways.append(mcpx.run("check", str(mcpx.file), MCPX_PORT=port))
    for done in ways:
        assert done.returncode == 2, done.stderr
        assert "a port is a number from 0" in done.stderr


def test_a_socks_proxy_is_refused_in_words(tmp_path: Path) -> None:
    """CFG-4."""
    mcpx = Mcpx(tmp_path, connection(url="https://example.test/mcp"))
    done = mcpx.run("check", str(mcpx.file), HTTPS_PROXY="socks5://u:hunter2@p:1080")
    assert done.returncode == 2
    assert "HTTPS_PROXY: a proxy reached by socks5 is not supported" in done.stderr
    assert "hunter2" not in done.stderr


class _Odd(BaseHTTPRequestHandler):
    """Notes what is asked for; an event stream names an endpoint that is not ASCII, the rest is
    sent elsewhere."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"GET {self.path}")
        if "stream" not in self.path:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("event: endpoint\ndata: /mä ssages?ü=\x01文%\n\n".encode())
        self.wfile.flush()
        wait_until(lambda: any("POST /m%C3" in asked for asked in self.asked))

    def do_POST(self) -> None:
        self.asked.append(f"POST {self.path}")
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(307)
        self.send_header("location", "http://u:p@\xff:²/\x1b[31m")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_addresses_of_any_script_are_dialled_and_what_a_server_names_gives_no_traceback(
    tmp_path: Path,
) -> None:
    """SRC-1, SRC-8."""
    asked: list[str] = []
    site = ThreadingHTTPServer(("127.0.0.1", 0), type("Odd", (_Odd,), {"asked": asked}))
    threading.Thread(target=site.serve_forever, daemon=True).start()
    try:
        base = f"127.0.0.1:{site.server_port}/mä%20/stream?q=ü"
        kinds = {"http": "http", "sse": "http", "websocket": "ws"}
        servers = [
            {"name": kind, **connection(type=kind, url=f"{scheme}://{base}")}
            for kind, scheme in kinds.items()
        ]
        mcpx = Mcpx(
            tmp_path,
            *({**server, "name": kind} for kind, server in zip(kinds, servers, strict=True)),
        )
        with mcpx.running():
            mcpx.said(r"\[http\] .")
            wait_until(
                lambda: any(
                    one.startswith("POST /m%C3%A4%20ssages?%C3%BC=%01%E6%96%87%25") for one in asked
                )
            )
            wait_until(
                lambda: len([one for one in asked if one == "GET /m%C3%A4%20/stream?q=%C3%BC"]) >= 2
            )
            mcpx.said(r"\[websocket\] ")
    finally:
        site.shutdown()
        site.server_close()
    assert all(one.isascii() for one in asked)
    assert "\x1b" not in mcpx.text


# Daemons
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "how"),
    [("daemon", signal.SIGTERM), ("daemon", signal.SIGKILL), ("unbranded", signal.SIGTERM)],
)
def test_a_daemon_that_rid_itself_of_everything_ends_with_the_gateway(
    mode: str, how: signal.Signals, tmp_path: Path
) -> None:
    """LIF-7: killed at once, before any census could have named it."""
    out = tmp_path / "pid"
    mcpx = Mcpx(tmp_path, edge("d", mode, str(out)))
    with mcpx.running():
        pid = int(wait_until(lambda: out.exists() and out.read_text()))
        try:
            assert is_alive(pid)
            assert Path(f"/proc/{pid}/environ").read_bytes() == b""
            assert mcpx.process is not None
            mcpx.process.send_signal(how)
            wait_until(lambda: not is_alive(pid))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_daemon_goes_with_its_server_and_leaves_no_zombie_and_the_other_one_stays(
    tmp_path: Path,
) -> None:
    """LIF-7."""
    first, second = tmp_path / "first", tmp_path / "second"
    mcpx = Mcpx(tmp_path, edge("a", "daemon", str(first)), edge("b", "daemon", str(second)))
    with mcpx.running():
        gone, stays = (
            int(wait_until(lambda out=out: out.exists() and out.read_text()))
            for out in (first, second)
        )
        mcpx.write(edge("b", "daemon", str(second)))
        assert mcpx.run("reload", str(mcpx.file)).returncode == 0
        wait_until(lambda: not is_alive(gone))
        assert is_alive(stays)
        wait_until(lambda: not Path(f"/proc/{gone}").exists())  # waited for, too
    wait_until(lambda: not is_alive(stays))


# Folders
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["link", "open", "other user"])
def test_a_control_folder_that_others_can_write_is_refused_and_the_gateway_runs_on(
    kind: str, tmp_path: Path
) -> None:
    """RUN-6."""
    mcpx = Mcpx(tmp_path, edge("a", "plain"))
    control = mcpx.state / "control"
    mcpx.state.mkdir(0o700)
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(0o700)
        control.symlink_to(tmp_path / "elsewhere")
    else:
        control.mkdir(0o700)
        control.chmod(0o777 if kind == "open" else 0o700)
    if kind == "other user":
        if os.geteuid() != 0:
            pytest.skip("only root can make a folder of another user")
        os.chown(control, 12345, 12345)
    with mcpx.running() as port:
        mcpx.said(
            "no control socket: .*(is not a folder|belongs to another user|can be written by "
            "other users)"
        )
        wait_until(lambda: health(port)["servers"]["a"]["status"] == "connected")
        assert list(control.iterdir()) == []
        assert mcpx.run("reload", str(mcpx.file)).returncode == 3


def test_everything_in_the_state_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """RUN-6."""
    mcpx = Mcpx(tmp_path, edge("a", "plain"))
    before = os.umask(0)
    try:
        with mcpx.running() as port:
            wait_until(lambda: health(port)["servers"]["a"]["status"] == "connected")
            made = wait_until(
                lambda: (
                    (found := list(mcpx.state.rglob("*.sock"))) and [*mcpx.state.rglob("*"), *found]
                )
            )
            open_to_others = [path for path in made if stat.S_IMODE(path.lstat().st_mode) & 0o077]
            assert open_to_others == []
            assert mcpx.process is not None
            assert "Umask:\t0000" in Path(f"/proc/{mcpx.process.pid}/status").read_text()
    finally:
        os.umask(before)


# Descriptors
# --------------------------------------------------------------------------------------------------


def test_the_limit_of_open_files_is_raised_for_the_gateway_and_not_for_its_servers(
    tmp_path: Path,
) -> None:
    """SEC-6, SRC-8."""
    out = tmp_path / "limit"
    mcpx = Mcpx(tmp_path, edge("a", "limit", str(out)))
    with mcpx.running(files=(256, 4000)):
        assert wait_until(lambda: out.exists() and out.read_text()) == "256"
        assert mcpx.process is not None
        pid = mcpx.process.pid
        wait_until(
            lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE) == (4000, 4000)
        )  # while it starts one it is lower


def test_with_few_descriptors_it_starts_says_so_and_recovers_when_they_were_all_used(
    tmp_path: Path,
) -> None:
    """SEC-6, SRC-8."""
    mcpx = Mcpx(tmp_path, edge("a", "plain"))
    with mcpx.running(
        files=(40, 40)
    ) as port:  # half of them for clients: with what it has itself, too many
        mcpx.said("only 40 files and connections may be open at once")
        wait_until(lambda: health(port)["servers"]["a"]["status"] == "connected")
        held: list[socket.socket] = []
        try:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", port), 1))
            mcpx.said("no connection or file more can be opened: .*Too many open files")
        finally:
            for connection in held:
                connection.close()

        def is_well() -> bool:
            with contextlib.suppress(OSError):
                return health(port)["servers"]["a"]["status"] == "connected"
            return False

        wait_until(is_well)
    assert len(mcpx.text.splitlines()) < 60
