"""Everything at once, at random: servers are killed, frozen, slow, noisy and restarted while
clients call them all.

    MCPX_CHAOS_SECONDS=600 MCPX_CHAOS_RESTARTS=1000 MCPX_CHAOS_SEED=7 pytest
    tests/behaviour/test_chaos.py

What must hold at the end stands in the tests; the seed is printed with a failure.
"""

import http.client
import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kit.client import ACCEPT_BOTH, WAIT_SECONDS, Session, health
from kit.gateway import GatewayProcess
from kit.http_client import Reply
from kit.messages import Json, modern_headers, modern_request, request, structured_content, text_of
from kit.process import START, Child
from kit.process_tree import ProcessWatch, descendants
from kit.servers import raw_server
from kit.until import wait_until

SECONDS = float(os.environ.get("MCPX_CHAOS_SECONDS", "20"))
RESTARTS = int(os.environ.get("MCPX_CHAOS_RESTARTS", "150"))
SEED = int(os.environ.get("MCPX_CHAOS_SEED", str(random.SystemRandom().randrange(2**32))))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.timeout(120 + 3 * SECONDS + RESTARTS),
]

CALL, CONNECT = 3, 5
"""`call_timeout` and `timeout` of every server that is hit; the others get as long as a busy
machine takes."""
DEADLINE = 2 * (CALL + CONNECT) + 4
"""Seconds a call may take at the very worst: connect, die, connect, time out; and a busy
machine."""

LONGEST_PAUSE = 60
"""Seconds between two tries of a server, at most."""

CLIENTS = 6
CALM = ("calm", "noisy", "still")
"""Servers that nobody touches: no call to them may fail."""

REMOTE = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

known = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(405)

    do_DELETE = do_GET

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params, headers, result = message.get("method"), message.get("params") or {}, {}, {}
        if method == "server/discover":
            return self.answer(400)
        if method == "initialize":
            headers["Mcp-Session-Id"] = session = f"{id(message)}-{len(known)}"
            known.add(session)
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "remote"}}
        elif self.headers.get("mcp-session-id") not in known:
            return self.answer(404)
        elif "id" not in message:
            return self.answer(202)
        elif method == "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, headers)

    def answer(self, status, message=None, headers={}):
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready x", flush=True)
server.serve_forever()
"""


class Remote:
    """An HTTP server as a process, that comes back at the same address; nobody else gets it
    meanwhile."""

    def __init__(self) -> None:
        self._kept = (
            socket.socket()
        )  # bound, but never listening: it refuses whom the server does not take
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._kept.bind(("127.0.0.1", 0))
        self.port = self._kept.getsockname()[1]
        self.entry: Json = {
            "name": "remote",
            "prefix": "remote",
            "timeout": CONNECT,
            "call_timeout": CALL,
            "connection": {"type": "http", "url": f"http://127.0.0.1:{self.port}/mcp"},
        }
        self._child: Child | None = None
        self.start()

    def start(self) -> None:
        self._child = Child([sys.executable, "-I", "-S", "-c", REMOTE, str(self.port)]).__enter__()
        assert self._child.stdout.wait_for(r"^ready", START) is not None, self._child.stderr.text

    def kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.process.kill()
            child.end()

    def close(self) -> None:
        self.kill()
        self._kept.close()


def entry(name: str, number: int, *flags: str, **keys: Any) -> Json:
    """The number of its tools is how its processes are told from others."""
    return raw_server(
        name,
        "--name-count",
        str(number),
        *flags,
        **{"timeout": CONNECT, "call_timeout": CALL, **keys},
    )


NUMBERS = {
    name: number for number, name in enumerate(("mortal", "frozen", "sluggish", "rough"), start=101)
}


def pids_of(gateway: GatewayProcess, name: str) -> list[int]:
    """All processes of a server: also links that are private to a client."""
    mark = f"\0--name-count\0{NUMBERS[name]}\0".encode()
    found = []
    for pid in descendants(gateway.process.pid):
        with suppress(OSError):
            if mark in Path("/proc", str(pid), "cmdline").read_bytes():
                found.append(pid)
    return found


def post_aside(port: int, message: Json, headers: Mapping[str, str]) -> Json:
    """The answer to one POST. `raw.post` would make clients of several threads wait for each other:
    up to Python 3.11 a `cached_property`, as `Stream.response` is one, holds one lock for all of
    them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2 * WAIT_SECONDS)
    try:
        usual = {"Content-Type": "application/json", "Accept": ACCEPT_BOTH}
        connection.request("POST", "/mcp", json.dumps(message), {**usual, **headers})
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read()).message
    finally:
        connection.close()


class Load:
    """Clients of all kinds that call all servers and check every answer against its question."""

    def __init__(self, port: int, names: tuple[str, ...]) -> None:
        self.port = port
        self.names = names
        self.answered: Counter[str] = Counter()
        self.errors: list[tuple[str, Any]] = []
        self.wrong: list[tuple[str, Any]] = []
        self.longest = (0.0, "")
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(number,)) for number in range(CLIENTS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[threading.Thread]:
        """Those that are stuck."""
        self._stop.set()
        deadline = time.monotonic() + DEADLINE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread for thread in self._threads if thread.is_alive()]

    def _guarded(self, number: int) -> None:
        try:
            self._run(number)
        except Exception as error:  # noqa: BLE001 - the test that waits for this thread must hear of it
            self.wrong.append(("a client", repr(error)))

    def _run(self, number: int) -> None:
        chance = random.Random(f"{SEED}/{number}")
        ask = self._client(number)
        turn = 0
        while not self._stop.is_set():
            turn += 1
            server = chance.choice(self.names)
            question = f"{number}/{turn}/" + "x" * chance.choice((0, 10, 10_000))
            began = time.monotonic()
            message = ask(f"{server}_echo", question)
            self.longest = max(self.longest, (time.monotonic() - began, server))
            if "error" in message:
                self.errors.append((server, message["error"]))
            elif text_of(message) == question:
                self.answered[server] += 1
            else:
                self.wrong.append((server, message))

    def _client(self, number: int) -> Callable[[str, str], Json]:
        """Older clients on shared links, older ones with links of their own, and modern ones."""
        if number % 3 == 2:

            def ask(tool: str, text: str) -> Json:
                message = modern_request("tools/call", {"name": tool, "arguments": {"text": text}})
                return post_aside(self.port, message, modern_headers(message))

            return ask
        session = Session(self.port, capabilities={"roots": {}} if number % 3 == 1 else {})

        def call(tool: str, text: str) -> Json:
            message = request(
                "tools/call", {"name": tool, "arguments": {"text": text}}, session.next_id()
            )
            return post_aside(self.port, message, session.headers)

        return call


class Chaos:
    """What goes wrong, chosen by the seed."""

    def __init__(self, gateway: GatewayProcess, remote: Remote) -> None:
        self.gateway = gateway
        self.remote = remote
        self.done: Counter[str] = Counter()
        self._chance = random.Random(SEED)
        self._frozen: list[int] = []
        self._pause = threading.Event()
        """Never set: a clock that could be stopped."""

    def run(self, seconds: float) -> None:
        deeds = (self.kill, self.kill, self.kill_all, self.freeze, self.thaw, self.restart_remote)
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                deed = self._chance.choice(deeds)
                deed()
                self.done[deed.__name__] += 1
                self._pause.wait(self._chance.uniform(0.05, 0.5))
        finally:
            self.thaw()
            self.remote.kill()
            self.remote.start()

    def _hit(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def kill(self) -> None:
        pids = pids_of(self.gateway, self._chance.choice(("mortal", "sluggish", "rough")))
        if pids:
            self._hit(self._chance.choice(sorted(pids)), signal.SIGKILL)

    def kill_all(self) -> None:
        for pid in pids_of(
            self.gateway, self._chance.choice(("mortal", "sluggish", "rough", "frozen"))
        ):
            self._hit(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """A server that hangs."""
        for pid in pids_of(self.gateway, "frozen"):
            self._hit(pid, signal.SIGSTOP)
            self._frozen.append(pid)

    def thaw(self) -> None:
        alive = set(pids_of(self.gateway, "frozen"))
        for pid in self._frozen:
            if pid in alive:
                self._hit(pid, signal.SIGCONT)
        self._frozen.clear()

    def restart_remote(self) -> None:
        self.remote.kill()
        self._pause.wait(self._chance.uniform(0, 0.3))
        self.remote.start()


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid: int) -> int:
    """Bytes of memory a process holds."""
    status = Path("/proc", str(pid), "status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def zombies(pid: int) -> list[int]:
    found = []
    for child in descendants(pid):
        with suppress(OSError):
            if (
                Path("/proc", str(child), "stat")
                .read_text(errors="replace")
                .rpartition(")")[2]
                .split()[0]
                == "Z"
            ):
                found.append(child)
    return found


def not_back(session: Session, name: str, seconds: float) -> Any:
    """The last error of a server that does not answer within so many seconds; of one whose circuit
    is open, within so many of the try that its error announces (LIF-4)."""
    began = time.monotonic()
    deadline = began + seconds
    while "error" in (message := session.call(f"{name}_echo", text="back")):
        announced = re.search(r"next try in (\d+) s", message["error"]["message"])
        if announced is not None:
            sys.stdout.write(f"{name}: {message['error']['message']}\n")
            deadline = max(
                deadline, min(time.monotonic() + int(announced[1]), began + LONGEST_PAUSE) + seconds
            )
        if time.monotonic() > deadline:
            return message["error"]
        time.sleep(0.05)
    return None


@contextmanager
def chaos_gateway() -> Iterator[tuple[GatewayProcess, Remote]]:
    with ExitStack() as stack:
        remote = Remote()
        stack.callback(remote.close)
        servers = [
            entry("calm", 1, call_timeout=DEADLINE),
            entry("still", 2, "--era", "dual", call_timeout=DEADLINE),
            entry("noisy", 3, "--garbage", call_timeout=DEADLINE),
            entry("mortal", NUMBERS["mortal"], health_check_interval=0.5),
            entry("frozen", NUMBERS["frozen"], health_check_interval=0.3),
            entry("sluggish", NUMBERS["sluggish"], "--start-delay", "0.5"),
            entry("rough", NUMBERS["rough"], "--garbage", "--era", "dual"),
            remote.entry,
        ]
        settings = {
            "global": {
                "startup_wait": 15,
                "first_start_wait": 15,
                "retry_delay": 0.2,
                "max_retries": 50,
            },
            "mcp_servers": servers,
        }
        yield stack.enter_context(GatewayProcess(settings)), remote


def test_chaos_harms_nobody_who_is_not_hit_and_leaves_nothing_behind() -> None:
    """SRC-8, LIF-3, LIF-4, LIF-6, LIF-7: no wrong answer, no error on servers that were not
    touched, no call beyond its deadline, every server back at the end, and neither processes nor
    descriptors nor memory left over."""
    sys.stdout.write(f"MCPX_CHAOS_SEED={SEED}\n")
    with chaos_gateway() as (gateway, remote):
        pid = gateway.process.pid
        first = Session(gateway.port)
        names = tuple(sorted(health(gateway.port)["servers"]))
        for name in names:
            assert text_of(first.call(f"{name}_echo", text=name)) == name
        open_before, held_before = descriptors(pid), resident(pid)
        load, chaos = Load(gateway.port, names), Chaos(gateway, remote)
        load.start()
        try:
            chaos.run(SECONDS)
        finally:
            stuck = load.finish()
        failed = Counter(name for name, _ in load.errors)
        sys.stdout.write(
            f"done {chaos.done}\nanswered {load.answered}\nfailed {failed}\nlongest "
            f"{load.longest}\n"
        )
        assert stuck == [], "calls without an answer"
        assert load.wrong == []
        assert [error for error in load.errors if error[0] in CALM] == []
        strange = [
            error for error in load.errors if not error[1]["message"].startswith(f"{error[0]}: ")
        ]
        assert strange == []
        assert load.longest[0] < DEADLINE, load.longest
        assert all(load.answered[name] > 0 for name in names), load.answered
        for name in names:
            assert (trouble := not_back(first, name, 30)) is None, trouble
        wait_until(lambda: zombies(pid) == [])
        # Each client that can be asked holds a link of its own to each older server: some
        # descriptors a link.
        assert descriptors(pid) <= open_before + 8 * len(names) * CLIENTS
        assert resident(pid) <= held_before + 96 * 2**20
        assert "Traceback" not in gateway.stderr(), gateway.stderr()
        watch = ProcessWatch(descendants(pid))
    with watch:
        assert watch.left(WAIT_SECONDS) == []


def test_restarts_without_number_cost_neither_descriptors_nor_processes_nor_memory() -> None:
    """LIF-4, LIF-7: `MCPX_CHAOS_RESTARTS` deaths of one server, each noticed, each followed by an
    answer."""
    with GatewayProcess(
        {
            "global": {"startup_wait": 15, "first_start_wait": 15},
            "mcp_servers": [raw_server("mortal")],
        }
    ) as gateway:
        session = Session(gateway.port)
        pid = gateway.process.pid
        marks: list[tuple[int, int, int]] = []
        for turn in range(RESTARTS):
            victim = structured_content(session.call("mortal_whoami"))["pid"]
            with ProcessWatch([victim]) as watch:
                os.kill(victim, signal.SIGKILL)
                assert watch.left(WAIT_SECONDS) == []
            assert text_of(session.call("mortal_echo", text=str(turn))) == str(turn)
            if turn in (RESTARTS // 5, RESTARTS - 1):
                wait_until(
                    lambda: zombies(pid) == [] and len(descendants(pid)) == 2
                )  # the server and the keeper
                marks.append((descriptors(pid), len(descendants(pid)), resident(pid)))
        (open_before, _, held_before), (open_after, _, held_after) = marks
        assert open_after <= open_before + 3, marks
        assert held_after <= held_before + 8 * 2**20 + RESTARTS * 4096, marks
        assert health(gateway.port)["servers"]["mortal"]["restarts"] == RESTARTS
        assert json.dumps(session.tools()).count("mortal_echo") == 1
        assert "Traceback" not in gateway.stderr()
