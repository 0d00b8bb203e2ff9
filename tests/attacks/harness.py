"""Attacks on mcpx as a user starts it, with a healthy client beside them that must not pay.

    with Siege([hostile.server("bad", "websocket")]) as siege:
        siege.stays_fair(attack)

A `Siege` is one gateway (a process, its state and its log in a folder of its own), one server that
is well, and one client of it that is well, each in its own process: what an attacker's threads do
here slows neither of them. The client has a quiet time first and is judged by its own figures
(`Figures.complaint`):

* no call fails, and none gets another answer than its own, ever;
* the 99th percentile stays within 20 times its own, at least `FLOOR` (a busy machine) and at most
  `CEILING`;
* no call takes `FREEZE` or longer.

Percentiles are of what a client that asks on a fixed beat would see: a call that took a second
stands for all that would have been asked meanwhile. One stall shorter than `FREEZE` is left out,
and who was too slow is attacked twice more: a neighbour on a busy machine is no attacker, while a
gateway that can be frozen is frozen again.

Nothing here sleeps to synchronise, but an attack has to last a while.
"""

import base64
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kit.client import wait_until_settled
from kit.process import START, Child
from kit.servers import raw_server, stdio_server

Json = dict[str, Any]

HERE = Path(__file__).resolve().parent
MIB = 2**20

FLOOR, CEILING, FREEZE = 200.0, 300.0, 1000.0
"""Milliseconds."""
BEAT = 5.0
"""Milliseconds between two calls of the healthy client."""
QUIET = 0.5
"""Seconds of its quiet time."""
LASTING = 2.0
"""Seconds of an attack."""
STOP = 20.0
LISTENS = re.compile(r"http://127\.0\.0\.1:(\d+)/mcp")


# ---- the healthy client


@dataclass(frozen=True)
class Figures:
    """How a client fared for a while: milliseconds of each call in order, what failed, what was
    answered wrongly."""

    latencies: tuple[float, ...]
    failures: int
    errors: int
    examples: tuple[str, ...]

    @property
    def calls(self) -> int:
        return len(self.latencies)

    @property
    def worst(self) -> float:
        return max(self.latencies, default=0.0)

    def percentile(self, share: float, outliers: int = 0) -> float:
        """Of a steady beat, the longest `outliers` calls left out."""
        seen: list[float] = []
        for latency in sorted(self.latencies)[: len(self.latencies) - outliers]:
            seen += [latency - late * BEAT for late in range(max(1, int(latency / BEAT)))]
        return sorted(seen)[int(share * (len(seen) - 1))] if seen else 0.0

    def bound(self) -> float:
        """Of the 99th percentile under an attack, where these are the figures of the quiet time."""
        return min(CEILING, max(FLOOR, 20 * self.percentile(0.99, 1)))

    def slow(self, quiet: "Figures") -> str:
        """What is too slow; empty if nothing is."""
        p99, bound = self.percentile(0.99, 1), quiet.bound()
        if self.worst >= FREEZE:
            return f"one call took {self.worst:.0f} ms ({self})"
        return (
            f"p99 of {p99:.0f} ms, {bound:.0f} are allowed ({self}; quiet: {quiet})"
            if p99 > bound
            else ""
        )

    def bad(self) -> str:
        """What went wrong; empty if nothing did."""
        return (
            f"{self.failures} calls failed, {self.errors} were answered wrongly: {self.examples}"
            * (self.failures + self.errors > 0)
        )

    def complaint(self, quiet: "Figures") -> str:
        return self.bad() or self.slow(quiet)

    def __str__(self) -> str:
        halves = f"p50 {self.percentile(0.5):.1f}, p99 {self.percentile(0.99):.1f}"
        return f"{self.calls} calls, {halves}, worst {self.worst:.0f} ms"


class HealthyClient:
    """`healthy_client.py` beside us. Its calls go on all the time; `begin` and `end` mark the
    account."""

    def __init__(
        self, gateway: "Program", tool: str = "well_echo", token: str = "", beat: float = BEAT
    ) -> None:
        script = str(HERE / "healthy_client.py")
        pids = ",".join(map(str, (gateway.process.pid, *gateway.server_pids())))
        self._command = [
            sys.executable,
            "-I",
            "-S",
            script,
            str(gateway.port),
            tool,
            str(beat),
            pids,
        ]
        self._command += [token] * bool(token)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._line() != "ready\n":
            self.__exit__()
            raise RuntimeError("the healthy client did not get ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(STOP)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def begin(self) -> None:
        self._say("begin")

    def end(self) -> Figures:
        self._say("end")
        told = json.loads(self._line())
        examples = (*told["failed"], *told["wrong"])
        return Figures(tuple(told["ms"]), told["failures"], told["errors"], examples)

    def during(self, seconds: float) -> Figures:
        self.begin()
        time.sleep(seconds)
        return self.end()

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


# ---- the program


class Program:
    """One mcpx over HTTP. What it says goes to a file, so that a flood of it cannot stop it;
    SIGTERM must end it.

    `nofile` is its limit of descriptors, soft and hard; `(soft, hard)` sets them apart.
    """

    def __init__(
        self, config: Json, *args: str, nofile: int | tuple[int, int] | None = None
    ) -> None:
        self._config = config
        self._args = args
        self._nofile = nofile

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(
            prefix="mcpx-attack-", ignore_cleanup_errors=True
        )
        self.folder = Path(self._folder.name)
        self.file = self.folder / "config.json"
        self.file.write_text(json.dumps(self._config), encoding="utf-8")
        self.file.chmod(0o600)
        self._log = self.folder / "stderr.log"
        env = {**os.environ, "MCPX_STATE_DIR": str(self.folder / "state")}
        command = [
            sys.executable,
            "-m",
            "mcpx",
            str(self.file),
            "--transport",
            "http",
            "--host",
            "127.0.0.1",
        ]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._limited([*command, "--port", "0", *self._args]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=env,
            )
        try:
            self.port = int(self._wait_for(LISTENS)[1])
        except BaseException:
            self._clean_up()
            raise
        return self

    def _limited(self, command: list[str]) -> list[str]:
        if self._nofile is None:
            return command
        soft, hard = (
            self._nofile if isinstance(self._nofile, tuple) else (self._nofile, self._nofile)
        )
        limits = f"ulimit -S -n {soft} && ulimit -H -n {hard} && exec {shlex.join(command)}"
        return ["/bin/sh", "-c", limits]

    def _wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        deadline = time.monotonic() + START
        while (found := pattern.search(self.said())) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"mcpx did not get ready:\n{self.said()}")
            time.sleep(0.01)
        return found

    def said(self) -> str:
        """Its log so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def complaint(self) -> str:
        """The first traceback or failed callback of its log, with what stands around it; empty if
        there is none."""
        said = self.said()
        at = min(
            (
                at
                for word in ("Traceback", "callback failed", "never retrieved")
                if (at := said.find(word)) >= 0
            ),
            default=-1,
        )
        return said[max(0, at - 300) : at + 2000] if at >= 0 else ""

    def server_pids(self) -> list[int]:
        """The processes of `raw_server.py` that the gateway has started."""
        children = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        )
        return [
            int(pid)
            for pid in children
            if b"raw_server.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def memory(self) -> float:
        """Its resident memory in MiB, that of its children left out."""
        return _status(self.process.pid, "VmRSS")

    @contextlib.contextmanager
    def peak(self) -> Iterator[Callable[[], float]]:
        """Within the block: how many MiB its memory rose above where it stood, at most."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text(
            "5"
        )  # the high-water mark falls back to the present
        before = self.memory()
        yield lambda: _status(self.process.pid, "VmHWM") - before

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            code: int | None = self.process.poll()
            if code is None:
                self.process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = self.process.wait(STOP)
            if error is None:
                assert code == 0, f"mcpx ended with {code} after SIGTERM\n{self.said()[-3000:]}"
                assert not self.complaint(), self.complaint()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP)
        self._folder.cleanup()


def _status(pid: int, field: str) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0]) / 1024


# ---- hostile servers


class Hostile:
    """`hostile_server.py` beside us: HTTP, HTTP+SSE and WebSocket servers on one port, bad in the
    way their path says.

    Its tools say what is done and when; `told` waits for what it reports on standard output.
    """

    def __enter__(self) -> Self:
        self._child = Child(
            [sys.executable, "-I", "-S", str(HERE / "hostile_server.py")]
        ).__enter__()
        ready = self._child.stdout.wait_for(r"^ready (\d+)$", START)
        if ready is None:
            said = self._child.stderr.text
            self.__exit__()
            raise RuntimeError(f"the hostile server did not get ready:\n{said}")
        self.port = int(ready[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def server(self, name: str, habit: str = "pour", kind: str = "http", **keys: Any) -> Json:
        """An entry of `mcp_servers`; its tools are called `<name>_<tool>`. One on stdio is a
        process of its own."""
        if kind == "stdio":
            return stdio_server(
                name, [sys.executable, "-I", "-S", str(HERE / "hostile_server.py"), "stdio"], **keys
            )
        scheme = "ws" if kind == "websocket" else "http"
        connection = {"type": kind, "url": f"{scheme}://127.0.0.1:{self.port}/{habit}/{kind}"}
        return {"name": name, "prefix": name, "connection": connection, **keys}

    def told(self, pattern: str, seconds: float) -> re.Match[str] | None:
        return self._child.stdout.wait_for(pattern, seconds)

    @property
    def said(self) -> str:
        return self._child.stdout.text


# ---- a siege


class Siege(Program):
    """A gateway before `servers` and one that is well, all of them settled, and the healthy client
    at work."""

    def __init__(
        self,
        servers: Sequence[Json] = (),
        *,
        config: Mapping[str, Any] | None = None,
        nofile: int | tuple[int, int] | None = None,
        token: str = "",
        wait: bool = True,
    ) -> None:
        whole = {
            "global": {"startup_wait": 15, "first_start_wait": 15},
            "mcp_servers": [raw_server("well", "--era", "older"), *servers],
            **(config or {}),
        }
        super().__init__(whole, nofile=nofile)
        self._token = token
        self._wait = wait
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            if self._wait and not self._token:
                self.states = wait_until_settled(self.port)
            self.healthy = self._stack.enter_context(HealthyClient(self, token=self._token))
        except BaseException:
            self._stack.close()
            self._clean_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._stack.close()
        finally:
            super().__exit__(kind, error, trace)

    def stays_fair(
        self, attack: Callable[[], Any], seconds: float = LASTING, rounds: int = 3
    ) -> Figures:
        """`attack` begins something and returns at once, or does it and returns; the client goes on
        `seconds` at least.

        Returns the client's figures if it was not hurt in one of the rounds.
        """
        complaint = ""
        for _ in range(rounds):
            quiet = self.healthy.during(QUIET)  # each time: how quiet it is, other tests decide
            assert not quiet.bad(), quiet.bad()
            self.healthy.begin()
            until = time.monotonic() + seconds
            attack()
            time.sleep(max(0.0, until - time.monotonic()))
            figures = self.healthy.end()
            assert not figures.bad(), figures.bad()
            if not (complaint := figures.slow(quiet)):
                return figures
        raise AssertionError(f"the healthy client paid for it: {complaint}\n{self.said()[-1500:]}")


class Attackers:
    """Threads that do the same for a while. What a gateway does to defend itself (a reset, an end)
    ends one of them.

    `work(ending)` is called again and again until it is over; it may look at `ending`, and its
    sockets have a time-out.
    """

    def __init__(self, work: Callable[[threading.Event], Any], number: int = 1) -> None:
        self.ending = threading.Event()
        self._work = work
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(number)]

    def _run(self) -> None:
        while not self.ending.is_set():
            try:
                self._work(self.ending)
            except (OSError, ValueError):  # cut, or answered with what is no message
                self.ending.wait(0.01)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        for thread in self._threads:
            thread.join(STOP)


# ---- raw sockets


def connected(port: int, timeout: float = 2.0, receive_buffer: int | None = None) -> socket.socket:
    """A connection to the gateway; with a small `receive_buffer` what nobody reads stays with the
    sender."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.settimeout(timeout)
    try:
        made.connect(("127.0.0.1", port))
    except BaseException:
        made.close()
        raise
    return made


def http_request(
    port: int,
    method: str = "POST",
    target: str = "/mcp",
    body: bytes | None = b"",
    host: str | None = None,
    **headers: str,
) -> bytes:
    """A request as it stands on the wire; `_` in a header's name is `-`."""
    usual = {"host": host or f"127.0.0.1:{port}"}
    if body is not None and method == "POST":
        usual |= {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        usual["content-length"] = str(len(body))
    usual |= {name.replace("_", "-").lower(): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in usual.items() if value)
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")


def read_head(connection: socket.socket) -> tuple[int, bytes, bytes]:
    """Status, head, and what came behind it. Status 0: the connection ended before."""
    data = b""
    while b"\r\n\r\n" not in data:
        try:
            more = connection.recv(65536)
        except ConnectionError:
            more = b""
        if not more:
            return 0, data, b""
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head, rest


def drained(connection: socket.socket, seconds: float) -> bytes:
    """All that comes until the other side ends it, or for so long."""
    deadline = time.monotonic() + seconds
    data = bytearray()
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            more = connection.recv(1 << 18)
        except TimeoutError:
            break
        except OSError:
            return bytes(data)
        if not more:
            return bytes(data)
        data += more
    return bytes(data)


# ---- WebSocket by hand

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0


def frame(
    payload: bytes = b"", opcode: int = TEXT, fin: bool = True, mask: bytes | None = b"\0\0\0\0"
) -> bytes:
    """One frame; a mask of zeros is a mask, and leaves the payload as it is."""
    first = opcode | (0x80 if fin else 0)
    masked = 0x80 if mask is not None else 0
    if len(payload) < 126:
        head = struct.pack("!BB", first, masked | len(payload))
    elif len(payload) < 65536:
        head = struct.pack("!BBH", first, masked | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first, masked | 127, len(payload))
    if mask:
        cycle = (mask * (len(payload) // 4 + 1))[: len(payload)]
        payload = (int.from_bytes(payload, "big") ^ int.from_bytes(cycle, "big")).to_bytes(
            len(payload), "big"
        )
    return head + (mask or b"") + payload


class WebSocket:
    """A client that sends what it is told to, and reads only when asked to."""

    def __init__(
        self, port: int, path: str = "/ws", receive_buffer: int | None = None, **headers: str
    ) -> None:
        self.socket = connected(port, 10.0, receive_buffer)
        key = base64.b64encode(os.urandom(16)).decode()
        asked = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}
        asked |= {"sec-websocket-key": key, "sec-websocket-protocol": "mcp", **headers}
        self.socket.sendall(http_request(port, "GET", path, None, **asked))
        self.status, _, self._buffer = read_head(self.socket)

    def send(self, message: Any) -> None:
        self.socket.sendall(frame(json.dumps(message).encode()))

    def greet(self) -> None:
        client = {"name": "raw", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        self.send({"jsonrpc": "2.0", "id": "greet", "method": "initialize", "params": params})
        assert self.reply("greet")["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def reply(self, id: Any) -> Json:
        """The next reply with this id; whatever comes before it is passed over."""
        if self.status != 101:
            raise ConnectionError(f"the handshake was answered with {self.status}")
        while True:
            message = self.message()
            if message.get("id") == id and "method" not in message:
                return message

    def message(self) -> Json:
        while True:
            opcode, payload = self.frame()
            if opcode == CLOSE:
                raise ConnectionError(f"closed: {payload!r}")
            if opcode in (TEXT, BINARY):
                return json.loads(payload)

    def frame(self) -> tuple[int, bytes]:
        first, second = self._take(2)
        length = second & 127
        if length >= 126:
            length = int.from_bytes(self._take(2 if length == 126 else 8), "big")
        return first & 15, self._take(length)

    def _take(self, number: int) -> bytes:
        while len(self._buffer) < number:
            more = self.socket.recv(1 << 18)
            if not more:
                raise ConnectionError("the connection has ended")
            self._buffer += more
        taken, self._buffer = self._buffer[:number], self._buffer[number:]
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
