"""Step 2 through the real program: what dies comes back, and nobody else notices (LIF-1, LIF-3 …
LIF-7).

The server under attack is `frail`: the raw server with a memory. Its folder says how it behaves in
its next life (`crash`, `shut`, `tools`), and keeps what every life of it has read, with the time by
the clock all processes share.
"""

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Self

import pytest

from behaviour.compact import Visitor, text
from kit.client import ACCEPT_BOTH, WAIT_SECONDS, Session, Stream, health
from kit.command import MCPX
from kit.gateway import LISTENS, Gateway, GatewayProcess
from kit.http_client import Reply
from kit.messages import Json, request, structured_content, text_of
from kit.process import FIXTURES, START, Child
from kit.process_tree import ProcessWatch, descendants
from kit.servers import raw_server, stdio_server
from kit.until import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

FAR = 60
"""Seconds of a pause that nobody may be made to wait out: requests of these tests are given up
after `WAIT_SECONDS`."""

FRAIL = (
    f"import sys\nsys.path.insert(0, {str(FIXTURES)!r})\n"
    + """
import json, os, time
import raw_server

FOLDER = sys.argv.pop(1)


def note(what):
    line = json.dumps({"at": time.monotonic(), "pid": os.getpid(), "what": what}) + "\\n"
    with open(os.path.join(FOLDER, "record"), "ab", 0) as record:
        record.write(line.encode())


def told(name, default=""):
    try:
        with open(os.path.join(FOLDER, name)) as file:
            return file.read()
    except OSError:
        return default


class Frail(raw_server.RawServer):
    def __init__(self, options):
        note("start")
        if os.path.exists(os.path.join(FOLDER, "crash")):
            sys.stderr.write("frail: crashing on start, as told\\n")
            os._exit(7)
        while os.path.exists(os.path.join(FOLDER, "shut")):
            time.sleep(0.01)
        super().__init__(options)
        self.subscribed, self.muted, self.ballast = set(), False, b""
        own = (self.work, self.read, self.idempotent, self.plain, self.fatal, self.mute, self.grow, self.touch)
        self.tools |= {tool.__name__: (tool, {}) for tool in own}
        self.tools |= {name: (self.echo, {}) for name in told("tools").split()}
        self.tools |= {"learn": (self.learn, {})}

    def offered_capabilities(self):
        return {"tools": {"listChanged": True}, "resources": {"subscribe": True}}

    def definition(self, name):
        hints = {"read": "readOnlyHint", "fatal": "readOnlyHint", "idempotent": "idempotentHint"}
        return {
            "name": name,
            "inputSchema": {"type": "object"},
            "annotations": {hints[name]: True} if name in hints else {},
        }

    def handle(self, request_id, method, params):
        note(f"{method} {params.get('name', '')}".strip())
        if method == "ping" and self.muted:
            return None
        if method == "resources/list":
            return {"resources": [{"uri": "frail://one", "name": "one"}]}
        if method == "resources/subscribe":
            self.subscribed.add(params["uri"])
            return {}
        result = super().handle(request_id, method, params)
        note(f"answered {method} {params.get('name', '')}".strip())
        return result

    def once(self, name):
        if not os.path.exists(os.path.join(FOLDER, f"died-of-{name}")):
            open(os.path.join(FOLDER, f"died-of-{name}"), "w").close()
            os._exit(9)
        return raw_server.text(name)

    def work(self, request_id, arguments, params):
        return self.sleep(request_id, arguments, params)

    def read(self, request_id, arguments, params):
        return self.once("read")

    def idempotent(self, request_id, arguments, params):
        return self.once("idempotent")

    def plain(self, request_id, arguments, params):
        return self.once("plain")

    def fatal(self, request_id, arguments, params):
        os._exit(9)

    def mute(self, request_id, arguments, params):
        self.muted = True
        return raw_server.text("muted")

    def grow(self, request_id, arguments, params):
        self.ballast = os.urandom(1 << 20) * 80
        time.sleep(arguments.get("seconds", 0))
        return raw_server.text("grown")

    def touch(self, request_id, arguments, params):
        for uri in self.subscribed:
            self.send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
        return raw_server.text("touched")

    def learn(self, request_id, arguments, params):
        self.tools[arguments["name"]] = (self.echo, {})
        self.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return raw_server.text("learned")


raw_server.main(Frail)
"""
)


class Frail:
    """The configuration of one, what it shall do in its next life, and what it did in all of
    them."""

    def __init__(self, folder: Path, name: str = "frail", *flags: str, **keys: Any) -> None:
        self.name = name
        self.folder = folder / f"of-{name}"
        self.folder.mkdir()
        script = self.folder / "frail.py"
        script.write_text(FRAIL)
        command = [sys.executable, "-I", "-S", str(script), str(self.folder), *flags]
        self.entry = stdio_server(name, command, **keys)

    def tell(self, what: str, value: str = "") -> None:
        (self.folder / what).write_text(value)

    def untell(self, what: str) -> None:
        (self.folder / what).unlink()

    def record(self) -> list[Json]:
        file = self.folder / "record"
        return (
            [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []
        )

    def seen(self, what: str) -> list[Json]:
        return [line for line in self.record() if line["what"] == what]

    def pid(self) -> int:
        """Of its latest life."""
        return self.seen("start")[-1]["pid"]

    def kill(self) -> None:
        os.kill(self.pid(), signal.SIGKILL)


def config(*servers: Json | Frail, **settings: Any) -> Json:
    entries = [server.entry if isinstance(server, Frail) else server for server in servers]
    return {
        "global": {"startup_wait": 15, "first_start_wait": 15, **settings},
        "mcp_servers": entries,
    }


def state_of(folder: Path) -> dict[str, str]:
    return {"MCPX_STATE_DIR": str(folder / "state")}


@contextmanager
def mcpx(folder: Path, settings: Json) -> Iterator[tuple[Child, int]]:
    """mcpx over HTTP, ended by the test in whatever way; `Gateway` would insist on a clean exit."""
    file = folder / "config.json"
    file.write_text(json.dumps(settings))
    env = {**os.environ, **state_of(folder)}
    with Child([*MCPX, str(file), "--transport", "http", "--port", "0"], env) as child:
        listens = child.stderr.wait_for(LISTENS, START)
        assert listens is not None, child.stderr.text
        yield child, int(listens[1])


def state(port: int, server: str) -> Json:
    return health(port)["servers"][server]


def until_state(port: int, server: str, status: str, restarts: int = 0) -> Json:
    def look() -> Json | None:
        now = state(port, server)
        return now if now["status"] == status and now["restarts"] >= restarts else None

    return wait_until(look)


def notice(stream: Stream, method: str) -> Json:
    """The next notification of this method on a listening stream; sockets have a time-out of
    `WAIT_SECONDS`."""
    while (event := stream.event()) is not None:
        message = event.get("data")
        if isinstance(message, dict) and message.get("method") == method:
            return message
    raise AssertionError(f"the stream ended without {method}")


# ---- one of three dies


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


def test_one_of_three_servers_is_killed_under_load_three_times_and_only_it_is_missed(
    tmp_path: Path,
) -> None:
    """LIF-4: no error on the others, the call in flight fails at once by name and is not sent
    again, and the killed one answers again long before its `retry_delay`, each of three times in a
    row."""
    frail = Frail(tmp_path, retry_delay=FAR)
    errors: list[tuple[str, Json]] = []
    answered = {"one": 0, "frail": 0, "two": 0}
    stop = threading.Event()

    def load(number: int, port: int) -> None:
        session = Session(port)
        for turn in count():
            for server in answered:
                if stop.is_set():
                    return
                question = f"{number}/{turn}/{server}"
                asked = request(
                    "tools/call",
                    {"name": f"{server}_echo", "arguments": {"text": question}},
                    session.next_id(),
                )
                message = post_aside(port, asked, session.headers)
                if "error" in message:
                    errors.append((server, message["error"]))
                else:
                    assert text_of(message) == question
                    answered[server] += 1

    with (
        GatewayProcess(config(raw_server("one"), frail, raw_server("two"))) as gateway,
        ExitStack() as stack,
    ):
        session = Session(gateway.port)
        assert text_of(session.call("frail_echo", text="there")) == "there"
        threads = [
            threading.Thread(target=load, args=(number, gateway.port)) for number in range(4)
        ]
        for thread in threads:
            thread.start()
            stack.callback(thread.join, WAIT_SECONDS)
        stack.callback(stop.set)
        for turn in range(1, 4):
            before = dict(answered)
            wait_until(
                lambda before=before: all(answered[name] > before[name] for name in answered)
            )
            with session.start_call("frail_work", seconds=60) as flying:
                wait_until(lambda turn=turn: len(frail.seen("tools/call work")) == turn)
                frail.kill()
                message = flying.reply().message
            assert message["error"]["message"].startswith("frail: "), message
            assert text_of(session.call("frail_echo", text="back")) == "back"
        stop.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
        assert [error for error in errors if error[0] != "frail"] == []
        assert all(error["message"].startswith("frail: ") for _, error in errors)
        assert len(frail.seen("tools/call work")) == 3
        assert state(gateway.port, "frail")["restarts"] == 3
        assert "Traceback" not in gateway.stderr()


def test_only_a_call_that_says_it_may_be_repeated_is_repeated_once_after_a_death(
    tmp_path: Path,
) -> None:
    """LIF-4: read-only and idempotent tools are asked once more, others never; and no call more
    than twice."""
    frail = Frail(tmp_path)
    with Gateway(config(frail)) as gateway:
        session = Session(gateway.port)
        assert text_of(session.call("frail_read")) == "read"
        assert text_of(session.call("frail_idempotent")) == "idempotent"
        assert "error" in session.call("frail_plain")
        assert "error" in session.call("frail_fatal")
    calls = {
        tool: len(frail.seen(f"tools/call {tool}"))
        for tool in ("read", "idempotent", "plain", "fatal")
    }
    assert calls == {"read": 2, "idempotent": 2, "plain": 1, "fatal": 2}


def test_a_server_that_dies_of_every_call_opens_its_circuit_and_no_call_hangs(
    tmp_path: Path,
) -> None:
    """LIF-4: also a call that is to be repeated learns at once that the circuit is open, with the
    time to wait."""
    frail = Frail(tmp_path, retry_delay=FAR)
    with Gateway(config(frail)) as gateway:
        session = Session(gateway.port)
        messages = [session.call("frail_fatal")["error"]["message"] for _ in range(6)]
        assert "next try in" in messages[-1]
        lives = len(frail.seen("start"))
        assert "next try in" in session.call("frail_echo")["error"]["message"]
        assert len(frail.seen("start")) == lives


def test_a_crash_loop_slows_down_then_opens_the_circuit_and_disturbs_nobody(tmp_path: Path) -> None:
    """LIF-4: five lives without an answered call; then calls fail at once with the reason and the
    time of the next try. The tools stay listed, and other servers answer as ever."""
    frail = Frail(tmp_path, retry_delay=0.1, max_retries=5)
    with GatewayProcess(config(frail, raw_server("other"))) as gateway:
        session = Session(gateway.port)
        assert text_of(session.call("frail_echo", text="there")) == "there"
        tools = session.tools()
        frail.tell("crash")
        frail.kill()
        until_state(gateway.port, "frail", "disconnected", restarts=6)
        starts = [line["at"] for line in frail.seen("start")][1:]
        pauses = sorted(after - before for before, after in pairwise(starts))[-3:]
        assert pauses[0] >= 0.1 and pauses[-1] >= 0.5, starts
        message = session.call("frail_echo")["error"]["message"]
        assert message.startswith("frail: ") and "next try in" in message, message
        assert text_of(session.call("other_echo", text="here")) == "here"
        assert session.tools() == tools
        assert len(frail.seen("start")) == len(starts) + 1


def test_a_server_is_left_alone_until_a_call_asks_for_it_where_that_is_configured(
    tmp_path: Path,
) -> None:
    """LIF-4: `auto_reconnect: false`, and `retry_on_failure: false`; measured against a server that
    does come back."""
    lost = Frail(tmp_path, "lost", auto_reconnect=False)
    failed = Frail(tmp_path, "failed", retry_on_failure=False, retry_delay=0.01)
    eager = Frail(tmp_path, "eager", retry_delay=0.2)
    all_three = (lost, failed, eager)
    with GatewayProcess(config(*all_three)) as gateway:
        session = Session(gateway.port)
        for frail in all_three:
            assert text_of(session.call(f"{frail.name}_echo", text="x")) == "x"
        failed.tell("crash")
        before = {frail.name: len(frail.seen("start")) for frail in all_three}
        for frail in all_three:
            frail.kill()
        until_state(gateway.port, "eager", "connected", restarts=1)
        until_state(gateway.port, "failed", "disconnected", restarts=2)
        eager.kill()  # a life that served nothing: its return takes the 0.4 s of a pause
        until_state(gateway.port, "eager", "connected", restarts=2)
        assert state(gateway.port, "lost")["status"] == "disconnected"
        assert len(lost.seen("start")) == before["lost"]
        once = len(failed.seen("start"))
        assert once <= before["failed"] + 2, "one attempt, which may ask in both eras"
        failed.untell("crash")
        for frail in (lost, failed):
            assert text_of(session.call(f"{frail.name}_echo", text="y")) == "y"
        assert len(lost.seen("start")) == before["lost"] + 1
        assert len(failed.seen("start")) == once + 1


# ---- never up, nothing known

WAYS: dict[str, tuple[str, Callable[[str], tuple[str, Json]]]] = {
    "exec": ("inspect", lambda name: ("exec", {"server_name": name, "tool_name": "echo"})),
    "call": ("describe", lambda name: ("call", {"method": f"{name}.echo"})),
    "dotted": ("search", lambda name: ("mcp_execute_tool", {"tool_name": f"{name}.echo"})),
    "displayed": ("search", lambda name: ("mcp_execute_tool", {"tool_name": f"{name}_echo"})),
    "direct": ("direct", lambda name: (f"{name}_echo", {})),
}
"""How a call names the tool of a server: the mode, its tool and what that is given; also the
server's name."""


def test_a_server_that_was_down_from_the_start_is_tried_by_a_call_that_names_it(
    tmp_path: Path,
) -> None:
    """LIF-4, LIF-1: one attempt for each call, in every mode; then the call goes on with what the
    server offers. A name that says nothing of its server has nobody tried."""
    servers = [Frail(tmp_path, way, max_retries=0) for way in WAYS]
    for frail in servers:
        frail.tell("crash")
    with Gateway(config(*servers)) as gateway:
        for frail in servers:
            assert (
                until_state(gateway.port, frail.name, "disconnected", restarts=1)["restarts"] == 1
            )
        for way, (mode, spelled) in WAYS.items():
            client = Visitor(gateway.port, mode)
            tool, given = spelled(way)
            failed = client.ask("tools/call", {"name": tool, "arguments": given})
            message = (
                failed["error"]["message"] if mode == "direct" else client.error(failed["result"])
            )
            assert message.startswith(f"{way}: ") and "exited with code 7" in message
            assert "error" in client.ask("tools/call", {"name": "nobody_echo", "arguments": {}})
        assert {
            name: now["restarts"] for name, now in health(gateway.port)["servers"].items()
        } == dict.fromkeys(WAYS, 2)
        for frail in servers:
            mode, spelled = WAYS[frail.name]
            client = Visitor(gateway.port, mode)
            frail.untell("crash")
            tool, given = spelled(frail.name)
            arguments = {"text": "there"}
            shape = arguments if mode == "direct" else {**given, "arguments": arguments}
            assert text(client.use(tool, **shape)) == "there"
            assert state(gateway.port, frail.name)["restarts"] == 2


def test_calls_that_name_a_server_whose_port_was_closed_at_the_start_share_one_attempt() -> None:
    """LIF-4: however many wait for it, also while it lists."""
    with ExitStack() as stack:
        reserved = stack.enter_context(socket.socket())
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        url = f"http://127.0.0.1:{port}/mcp"
        late = {"name": "late", "connection": {"type": "http", "url": url}, "max_retries": 0}
        gateway = stack.enter_context(Gateway(config(late)))
        until_state(gateway.port, "late", "disconnected", restarts=1)
        reserved.close()
        remote = stack.enter_context(Remote(port))
        go, arrived = threading.Event(), threading.Event()
        stack.callback(go.set)

        def slow_to_list(method: str) -> None:
            if method == "tools/list":
                arrived.set()
                go.wait(WAIT_SECONDS)

        remote.refuse = slow_to_list
        session = Session(gateway.port, path="/mcp/describe")
        calling = {"method": "late.echo", "arguments": {"text": "there"}}
        calls = [session.start_call("call", **calling)]
        assert arrived.wait(WAIT_SECONDS)
        calls += [session.start_call("call", **calling) for _ in range(3)]
        assert session.request("ping")["result"] == {}  # those before it have arrived
        go.set()
        assert [text_of(call.reply().message) for call in calls] == ["there"] * 4
        assert len(remote.times("initialize")) == 1


# ---- HTTP upstreams


class Remote(ThreadingHTTPServer):
    """A streamable HTTP server of the older era that can be restarted and can ask for patience."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Remote)
        self.entry: Json = {
            "name": "remote",
            "prefix": "remote",
            "connection": {"type": "http", "url": f"http://127.0.0.1:{self.server_address[1]}/mcp"},
        }
        self.tools = ["echo"]
        self.sessions = count(1)
        self.session = ""
        self.seen: list[tuple[float, str]] = []
        self.refuse: Callable[[str], tuple[int, str] | None] = lambda method: None
        """Status and `Retry-After` for a method."""
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def restart(self, *tools: str) -> None:
        self.session = ""
        self.tools = [*self.tools, *tools]

    def times(self, method: str) -> list[float]:
        return [at for at, seen in list(self.seen) if seen == method]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Remote(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Remote

    def do_GET(self) -> None:
        self._answer(405)

    def do_DELETE(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params, remote = message.get("method", ""), message.get("params") or {}, self.server
        remote.seen.append((time.monotonic(), method))
        result: Json = {}
        headers: dict[str, str] = {}
        if (refusal := remote.refuse(method)) is not None:
            return self._answer(refusal[0], None, {"Retry-After": refusal[1]})
        if method == "server/discover":
            return self._answer(400)
        if method == "initialize":
            remote.session = headers["Mcp-Session-Id"] = f"session-{next(remote.sessions)}"
            info = {"name": "remote", "version": "1"}
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        elif self.headers.get("mcp-session-id") != remote.session:
            return self._answer(404)
        elif "id" not in message:
            return self._answer(202)
        elif method == "tools/list":
            result = {
                "tools": [
                    {"name": name, "inputSchema": {"type": "object"}} for name in remote.tools
                ]
            }
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": params["arguments"].get("text", "")}]}
        return self._answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result}, headers)

    def _answer(
        self, status: int, message: Json | None = None, headers: dict[str, str] | None = None
    ) -> None:
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: pytest's output is for the tests."""


def test_an_http_server_that_was_restarted_is_greeted_again_and_the_call_succeeds() -> None:
    """LIF-4: 404 on a session: initialised again, the tools read again, clients told, the call not
    lost."""
    with Remote() as remote, Gateway(config(remote.entry)) as gateway:
        session = Session(gateway.port)
        assert session.tools() == ["remote_echo"]
        with session.listen() as stream:
            stream.comment()
            remote.restart("new")
            assert text_of(session.call("remote_echo", text="x")) == "x"
            notice(stream, "notifications/tools/list_changed")
        assert session.tools() == ["remote_echo", "remote_new"]
        assert len(remote.times("initialize")) == 2
        assert state(gateway.port, "remote")["status"] == "connected"


@pytest.mark.parametrize("status", [429, 503])
def test_a_call_the_server_puts_off_is_sent_once_more_when_it_asked_for_it(status: int) -> None:
    """LIF-4: `Retry-After` is honoured."""
    with Remote() as remote, Gateway(config(remote.entry)) as gateway:
        session = Session(gateway.port)
        session.tools()
        answers = iter([(status, "1")])
        remote.refuse = lambda method: next(answers, None) if method == "tools/call" else None
        assert text_of(session.call("remote_echo", text="x")) == "x"
        first, second = remote.times("tools/call")
        assert second - first >= 0.99  # An event loop may run a timer a millisecond early.
        assert len(remote.times("initialize")) == 1


def test_a_server_that_asks_not_to_be_tried_is_not_tried_and_calls_are_told_when() -> None:
    """LIF-4: `Retry-After` to a connection counts for every attempt, also for one that a call would
    start."""
    with Remote() as remote, Gateway(config(remote.entry)) as gateway:
        session = Session(gateway.port)
        session.tools()
        greeted = len(remote.times("server/discover")) + len(remote.times("initialize"))
        remote.refuse = lambda method: (
            (503, "4") if method in ("server/discover", "initialize") else None
        )
        remote.restart()
        messages = [session.call("remote_echo")["error"]["message"] for _ in range(3)]
        assert all("503" in message for message in messages)
        assert all("next try in" in message for message in messages[1:]), messages
        tries = [
            at for at, method in list(remote.seen) if method in ("server/discover", "initialize")
        ]
        refused = tries[greeted:]
        remote.refuse = lambda method: None
        until_state(gateway.port, "remote", "connected", restarts=2)
        assert text_of(session.call("remote_echo", text="x")) == "x"
        tries = [
            at for at, method in list(remote.seen) if method in ("server/discover", "initialize")
        ]
        assert refused and tries[greeted + len(refused)] - refused[-1] >= 3.9


# ---- after the return


def test_tools_of_a_server_that_is_down_stay_listed_and_a_changed_list_is_told_on_its_return(
    tmp_path: Path,
) -> None:
    """LIF-4: they go only when the server itself drops them."""
    frail = Frail(tmp_path, auto_reconnect=False)
    frail.tell("tools", "old")
    with GatewayProcess(config(frail)) as gateway:
        session = Session(gateway.port)
        before = session.tools()
        assert "frail_old" in before
        with session.listen() as stream:
            stream.comment()
            frail.tell("tools", "new")
            frail.kill()
            until_state(gateway.port, "frail", "disconnected")
            assert session.tools() == before
            assert text_of(session.call("frail_echo", text="x")) == "x"
            notice(stream, "notifications/tools/list_changed")
        after = session.tools()
        assert "frail_old" not in after and "frail_new" in after


@pytest.mark.parametrize(
    "capabilities", [{}, {"roots": {}}], ids=["shared link", "link of its own"]
)
def test_a_subscription_survives_the_death_of_its_server(
    tmp_path: Path, capabilities: Json
) -> None:
    """LIF-4: it is renewed on return, and the client hears of the resource again."""
    frail = Frail(tmp_path)
    with GatewayProcess(config(frail)) as gateway:
        session, other = Session(gateway.port, capabilities=capabilities), Session(gateway.port)
        uri = session.request("resources/list")["result"]["resources"][0]["uri"]
        assert "result" in session.request("resources/subscribe", {"uri": uri})
        with session.listen() as stream:
            stream.comment()
            for life in (1, 2):
                pids = {line["pid"] for line in frail.seen("resources/subscribe")[life - 1 :]}
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                wait_until(lambda life=life: len(frail.seen("resources/subscribe")) == life + 1)
                assert text_of(other.call("frail_touch")) == "touched"
                assert notice(stream, "notifications/resources/updated")["params"]["uri"] == uri


# ---- health


def test_an_idle_server_that_stops_answering_is_degraded_then_replaced_and_stays_well(
    tmp_path: Path,
) -> None:
    """LIF-3: probes find it; `/health` says so, with the reason, since when and how many
    restarts."""
    frail = Frail(tmp_path, health_check_interval=0.5)  # which is also how long an answer may take
    with Gateway(config(frail)) as gateway:
        session = Session(gateway.port)
        first = structured_content(session.call("frail_whoami"))["pid"]
        wait_until(lambda: frail.seen("ping"))
        assert text_of(session.call("frail_mute")) == "muted"
        degraded = until_state(gateway.port, "frail", "degraded")
        assert degraded["last_error"].startswith("frail: ") and degraded["since"], degraded
        assert health(gateway.port)["status"] == "degraded"
        until_state(gateway.port, "frail", "connected", restarts=1)
        states = set()

        def probed_well() -> bool:
            states.add(state(gateway.port, "frail")["status"])
            return (
                len([line for line in frail.seen("answered ping") if line["pid"] == frail.pid()])
                >= 5
            )

        wait_until(probed_well)
        assert states == {"connected"}
        assert state(gateway.port, "frail")["restarts"] == 1
        assert structured_content(session.call("frail_whoami"))["pid"] != first


def test_no_probe_is_sent_while_a_call_runs(tmp_path: Path) -> None:
    """LIF-3: while there is traffic, the traffic is the proof."""
    frail = Frail(tmp_path, health_check_interval=0.1)
    with Gateway(config(frail)) as gateway:
        session = Session(gateway.port)
        session.tools()
        wait_until(lambda: frail.seen("ping"))
        assert text_of(session.call("frail_work", seconds=1)) == "slept"
        pings = len(frail.seen("ping"))
        wait_until(lambda: len(frail.seen("ping")) > pings)
        record = [line["what"] for line in frail.record()]
        during = record[record.index("tools/call work") : record.index("answered tools/call work")]
        assert "ping" not in during


# ---- sleep and renewal


def test_a_lazy_server_starts_when_called_sleeps_when_idle_and_is_listed_all_along(
    tmp_path: Path,
) -> None:
    """LIF-5: with a snapshot it is not even started to be listed."""
    frail = Frail(tmp_path, lazy=True, idle_timeout=0.6)
    settings = config(frail)
    with Gateway(settings, env=state_of(tmp_path)) as gateway:
        tools = Session(gateway.port).tools()
        until_state(gateway.port, "frail", "sleeping")
        assert len(frail.seen("start")) == 1, "once, to learn what it offers"
    with Gateway(settings, env=state_of(tmp_path)) as gateway:
        session = Session(gateway.port)
        assert session.tools() == tools
        assert state(gateway.port, "frail")["status"] == "sleeping"
        assert len(frail.seen("start")) == 1
        for life in (2, 3):
            with session.start_call("frail_work", seconds=1) as flying:
                until_state(gateway.port, "frail", "connected")
                assert text_of(flying.reply().message) == "slept"
            with ProcessWatch([frail.pid()]) as watch:
                until_state(gateway.port, "frail", "sleeping")
                assert watch.left(WAIT_SECONDS) == []
            assert session.tools() == tools
            assert len(frail.seen("start")) == life
        assert state(gateway.port, "frail")["restarts"] == 0
        assert health(gateway.port)["status"] == "ok"


def test_a_server_that_is_too_old_is_replaced_but_never_under_a_call(tmp_path: Path) -> None:
    """LIF-5: `max_age`."""
    frail = Frail(tmp_path, max_age=0.5)
    with Gateway(config(frail)) as gateway:
        session = Session(gateway.port)
        session.tools()
        assert text_of(session.call("frail_work", seconds=1.5)) == "slept"
        lives = len({line["pid"] for line in frail.seen("start")})
        worked = frail.seen("answered tools/call work")[0]
        assert worked["pid"] == frail.seen("tools/call work")[0]["pid"]
        wait_until(lambda: len(frail.seen("start")) > lives)
        assert state(gateway.port, "frail")["restarts"] == 0
        assert text_of(session.call("frail_echo", text="x")) == "x"


def test_a_server_that_is_too_large_is_replaced_but_never_under_a_call(tmp_path: Path) -> None:
    """LIF-5: `max_memory`."""
    frail = Frail(tmp_path, max_memory=64 * 2**20, health_check_interval=0.2)
    with Gateway(config(frail)) as gateway:
        session = Session(gateway.port)
        first = structured_content(session.call("frail_whoami"))["pid"]
        assert text_of(session.call("frail_grow", seconds=1)) == "grown"
        with ProcessWatch([first]) as watch:
            assert watch.left(WAIT_SECONDS) == []
        assert structured_content(session.call("frail_whoami"))["pid"] != first
        assert len(frail.seen("tools/call grow")) == 1


# ---- the snapshot


def test_the_second_start_lists_everything_at_once_and_a_call_waits_for_its_own_server_only(
    tmp_path: Path,
) -> None:
    """LIF-1: although one server does not come up, and however long a list may wait without a
    snapshot."""
    slow, quick = Frail(tmp_path, "slow"), Frail(tmp_path, "quick")
    with Gateway(config(slow, quick), env=state_of(tmp_path)) as gateway:
        tools = Session(gateway.port).tools()
        assert {"slow_echo", "quick_echo"} <= set(tools)
    slow.tell("shut")
    with Gateway(
        config(slow, quick, startup_wait=FAR, first_start_wait=FAR), env=state_of(tmp_path)
    ) as gateway:
        session = Session(gateway.port)
        assert session.tools() == tools
        with session.start_call("slow_echo", text="late") as waiting:
            assert text_of(session.call("quick_echo", text="early")) == "early"
            assert state(gateway.port, "slow")["status"] == "connecting"
            slow.untell("shut")
            assert text_of(waiting.reply().message) == "late"


def test_a_change_is_in_the_snapshot_a_moment_later_though_mcpx_is_killed_and_no_secret_is(
    tmp_path: Path,
) -> None:
    """LIF-1: not only at exit; only what servers publish."""
    secrets = {"env": {"TOKEN": "hidden-in-env"}}
    frail = Frail(tmp_path, "frail", "--name-count", "31337", connection=secrets)
    frail.entry["connection"]["args"][-1] = "3"
    with Remote() as remote:
        remote.entry["connection"]["headers"] = {"Authorization": "Bearer hidden-in-header"}
        remote.entry["connection"]["url"] += "?key=hidden-in-url"
        settings = config(frail, remote.entry)
        with mcpx(tmp_path, settings) as (child, port):
            session = Session(port)
            assert "frail_echo" in session.tools()
            assert text_of(session.call("frail_learn", name="learned_late")) == "learned"
            wait_until(lambda: "frail_learned_late" in session.tools())
            kept = tmp_path / "state" / "snapshots"
            wait_until(
                lambda: any(b"learned_late" in file.read_bytes() for file in kept.glob("*.json"))
            )
            child.process.kill()
            child.process.wait(WAIT_SECONDS)
        for file in (tmp_path / "state").rglob("*"):
            if file.is_file():
                body = file.read_bytes()
                assert not any(
                    word in body for word in (b"hidden-in", str(frail.folder).encode())
                ), file
        frail.tell("shut")
        with mcpx(tmp_path, settings) as (_, port):
            assert "frail_learned_late" in Session(port).tools()
            assert state(port, "frail")["status"] == "connecting"


def _delete(folder: Path) -> None:
    for file in folder.glob("*"):
        file.unlink()


def _garble(folder: Path) -> None:
    nonsense = (b'{"format":1,"definitions":{"tools":[', b'{"format":1,"definitions":{}}\xff')
    for file, body in zip(sorted(folder.glob("*")), nonsense, strict=True):
        file.write_bytes(body)


def _misshape(folder: Path) -> None:
    """The right shape on the outside, nonsense within."""
    for file in folder.glob("*"):
        lists = {
            kind: [None, 1, {"name": 5}, {}]
            for kind in ("tools", "prompts", "resources", "templates")
        }
        file.write_text(json.dumps({"format": 1, "definitions": lists, "instructions": 7}))


def _replace(folder: Path) -> None:
    _delete(folder)
    folder.rmdir()
    folder.write_text("a file where the folder was")


@pytest.mark.parametrize(
    "harm", [_delete, _garble, _misshape, _replace], ids=lambda harm: harm.__name__.strip("_")
)
def test_a_state_folder_that_is_lost_or_broken_loses_nothing(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """LIF-1: the snapshot is comfort, never function."""
    settings = config(raw_server("one"), raw_server("two"))
    with Gateway(settings, env=state_of(tmp_path)) as gateway:
        tools = Session(gateway.port).tools()
    harm(tmp_path / "state" / "snapshots")
    with Gateway(settings, env=state_of(tmp_path)) as gateway:
        session = Session(gateway.port)
        wait_until(lambda: session.tools() == tools)
        assert text_of(session.call("two_echo", text="x")) == "x"
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


def test_fifty_servers_of_which_one_is_late_and_one_never_answers_delay_no_list(
    tmp_path: Path,
) -> None:
    """LIF-1: within `first_start_wait` at the first start, at once at the next; and only a few
    start at a time."""
    many = [Frail(tmp_path, f"s{number}") for number in range(48)]
    late = raw_server("late", "--start-delay", "300")
    never = raw_server("never", "--hang-initialize", "--mute-probe")
    with Gateway(
        config(never, late, *many, startup_wait=0.5, first_start_wait=0.5), env=state_of(tmp_path)
    ) as gateway:
        session = Session(gateway.port)
        session.tools()
        servers = health(gateway.port)["servers"]
        assert [servers[name]["status"] for name in ("never", "late")] == ["connecting"] * 2
        wait_until(lambda: len({name.split("_")[0] for name in session.tools()}) == 48, 60)
        assert text_of(session.call("s47_echo", text="x")) == "x"
        edges = []
        for frail in many:
            edges.append((frail.seen("start")[0]["at"], 1))
            edges.append((frail.seen("initialize")[0]["at"], -1))
        together = most = 0
        for _, step in sorted(edges):
            together += step
            most = max(most, together)
        assert most <= 8, f"{most} servers were starting at a time"
    with Gateway(
        config(never, late, *many, startup_wait=FAR, first_start_wait=FAR), env=state_of(tmp_path)
    ) as gateway:
        listed = Session(gateway.port).tools()
        assert len({name.split("_")[0] for name in listed}) == 48


# ---- leftovers


def test_what_a_killed_run_and_its_killed_keeper_left_is_ended_at_the_next_start_and_nothing_else(
    tmp_path: Path,
) -> None:
    """LIF-7: only what is ours beyond doubt: neither a process of another run nor one that looks
    like a server."""
    settings = config(raw_server("hard", "--spawn-grandchild", "--ignore-term"))
    stranger = [sys.executable, "-I", "-S", str(FIXTURES / "raw_server.py"), "--start-delay", "300"]
    with (
        mcpx(tmp_path, settings) as (child, port),
        Child(stranger) as lookalike,
        Child(
            stranger, {**os.environ, "GATEWAY_OWNER": "0123456789abcdef0123456789abcdef.00000001"}
        ) as foreign,
    ):
        session = Session(port)
        ours = {
            structured_content(session.call("hard_whoami"))["pid"],
            int(text_of(session.call("hard_grandchild"))),
        }
        keepers = [
            pid
            for pid in descendants(child.process.pid)
            if b"mcpx-keeper" in Path("/proc", str(pid), "cmdline").read_bytes()
        ]
        assert len(keepers) == 1
        with ProcessWatch(ours) as watch:
            try:
                os.kill(keepers[0], signal.SIGKILL)
                child.process.kill()
                child.process.wait(WAIT_SECONDS)
                assert watch.left(0.2) == sorted(ours), "they were left behind"
                with mcpx(tmp_path, settings) as (next_run, port):
                    assert watch.left(WAIT_SECONDS) == []
                    assert text_of(Session(port).call("hard_echo", text="x")) == "x"
                    assert next_run.stderr.wait_for("had left behind", WAIT_SECONDS) is not None, (
                        next_run.stderr.text
                    )
                assert lookalike.process.poll() is None and foreign.process.poll() is None
                assert list((tmp_path / "state" / "runs").iterdir()) == []
            finally:
                for pid in watch.left(0.05):
                    os.kill(pid, signal.SIGKILL)
