"""SUR-11, SEC-6: large results, expressions over them and hostile schemas are nobody else's loss.

Each through the real program, with a healthy client beside it whose calls are timed alone and under
the attack.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from behaviour.compact import Json, Visitor, config, meta_call, text, told
from kit.gateway import GatewayProcess
from kit.messages import notification, request
from kit.servers import stdio_server

SERVER = Path(__file__).with_name("large_server.py")
WORKER = b"mcpx.surfaces.large.offload"
ATTEMPTS = 3
PATIENCE = 400.0
"""Milliseconds of the gateway's own work that 99 of 100 calls of a healthy client may have to wait
for."""
ALONE, BESIDE = 0.4, 1.2
"""Seconds of calls without and with an attack."""


def large(name: str, **keys: Any) -> Json:
    return stdio_server(name, [sys.executable, "-I", "-S", str(SERVER)], **keys)


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess(config(large("well"), large("heavy"))) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


class Kept(Visitor):
    """A visitor on one connection."""

    every: "list[Kept]" = []  # noqa: RUF012 - emptied after each test

    def __init__(self, port: int, mode: str) -> None:
        super().__init__(port, mode)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.every.append(self)

    def ask(self, method: str, params: Json | None = None) -> Json:
        self._count += 1
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self.headers,
        }
        body = json.dumps(self._message(method, params or {}, self._count))
        self.connection.request("POST", self.path, body, headers)
        reply = self.connection.getresponse().read().decode()
        if not reply.startswith("{"):
            reply = [line[6:] for line in reply.splitlines() if line.startswith("data: {")][-1]
        return json.loads(reply)


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    while Kept.every:
        Kept.every.pop().connection.close()


def worked(process: int) -> float:
    """Milliseconds of CPU that a process has used, its children not counted."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def waited(call: Callable[[], object], gateway: int, seconds: float) -> float:
    """The 99th of 100 calls, in milliseconds; what the machine had to do besides is not the
    gateway's delay."""
    took: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began, used = time.monotonic(), worked(gateway)
        call()
        took.append(min((time.monotonic() - began) * 1000, worked(gateway) - used))
        time.sleep(0.003)
    return sorted(took)[len(took) * 99 // 100]


@contextmanager
def meanwhile(*works: Callable[[], object]) -> Iterator[list[int]]:
    """Each again and again in a thread of its own; how often, once the block is left. What they
    raise is raised."""
    stop, failed = threading.Event(), list[BaseException]()
    done = [0] * len(works)

    def again(at: int) -> None:
        try:
            while not stop.is_set():
                works[at]()
                done[at] += 1
        except BaseException as error:  # noqa: BLE001 - told by the one who waits
            failed.append(error)

    threads = [threading.Thread(target=again, args=(at,)) for at in range(len(works))]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    if failed:
        raise failed[0]


def unharmed(gateway: int, call: Callable[[], object], *works: Callable[[], object]) -> None:
    """Tried again before it fails: on a machine with more to do than cores the same work takes
    longer."""
    said = ""
    for _ in range(ATTEMPTS):
        alone = waited(call, gateway, ALONE)
        with meanwhile(*works) as done:
            beside = waited(call, gateway, BESIDE)
        assert all(done), f"nothing was done beside it: {done}"
        if beside <= max(PATIENCE, 20 * alone):
            return
        said += f"{beside:.0f} ms, alone {alone:.0f} ms; "
    pytest.fail(said)


CASES = [
    ("json", 2.8, "inspect"),
    ("json", 9.7, "describe"),
    ("pretty", 9.7, "search"),
    ("text", 15.0, "inspect"),
    ("structured", 9.7, "search"),
    ("both", 6.0, "describe"),
    ("blocks", 5.0, "inspect"),
]


@pytest.mark.parametrize(("kind", "megabytes", "mode"), CASES)
def test_large_results_of_others_do_not_delay_a_small_call(
    gateway: GatewayProcess, kind: str, megabytes: float, mode: str
) -> None:
    """SUR-11: neither shaping them, nor keeping them, nor reading in them with `jmespath` or
    `grep`."""
    healthy = Kept(gateway.port, "inspect")
    fetching, reading = Kept(gateway.port, mode), Kept(gateway.port, mode)
    asked = {"kind": kind, "megabytes": megabytes}

    def fetch(client: Visitor) -> Json:
        result = client.run("heavy", "give", asked)
        assert len(json.dumps(result)) < 20_000, "it is bounded"
        return client.structured(result)

    handle = fetch(reading)["handle"]
    by = (
        {"grep": "line 7"}
        if kind in ("text", "blocks")
        else {"jmespath": "[length(@), keys(@[0] || @)]"}
    )
    unharmed(
        gateway.process.pid,
        lambda: healthy.run("well", "small"),
        lambda: fetch(fetching),
        lambda: reading.run("mcpx", "result", {"handle": handle, **by}),
    )


def test_large_results_on_the_same_pipe_do_not_delay_a_small_call() -> None:
    """SUR-11: one client on stdio, whose calls run beside each other."""
    with GatewayProcess(
        config(large("well"), large("heavy"), mode="describe"), transport="stdio"
    ) as gateway:
        process = subprocess.Popen(
            gateway.stdio_command,
            env=gateway.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdin is not None and process.stdout is not None
        answered: dict[Any, Json] = {}
        news = threading.Condition()

        def listen() -> None:
            for line in process.stdout or ():
                message = json.loads(line)
                with news:
                    answered[message.get("id")] = message
                    news.notify_all()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        numbers = iter(range(1_000_000))
        writing = threading.Lock()

        def say(message: Json) -> None:
            with writing:
                assert process.stdin is not None
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.flush()

        def ask(method: str, params: Json) -> Json:
            number = next(numbers)
            say(request(method, params, number))
            with news:
                assert news.wait_for(lambda: number in answered, 60)
                return answered.pop(number)["result"]

        def run(server: str, tool: str, arguments: Json) -> Json:
            name, given = meta_call("describe", server, tool, arguments)
            return ask("tools/call", {"name": name, "arguments": given})

        try:
            hello = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "x", "version": "1"},
            }
            ask("initialize", hello)
            say(notification("notifications/initialized"))
            big = {"kind": "json", "megabytes": 9.7}
            handle = run("heavy", "give", big)["structuredContent"]["handle"]
            unharmed(
                process.pid,
                lambda: run("well", "small", {}),
                lambda: run("heavy", "give", big),
                lambda: run("mcpx", "result", {"handle": handle, "grep": "row number 77"}),
            )
        finally:
            process.stdin.close()
            process.wait(20)
            thread.join(10)
            process.stdout.close()


@pytest.mark.parametrize("mode", ["inspect", "describe", "search"])
def test_a_large_structured_content_is_kept_back_and_read_by_offset(
    gateway: GatewayProcess, mode: str
) -> None:
    """SUR-7, SUR-11: handle, size, shape and preview for programs; the text is as the server said
    it."""
    client = Kept(gateway.port, mode)
    result = client.run("heavy", "give", {"kind": "structured", "megabytes": 2.8})
    assert text(result) == "see there"
    kept = client.structured(result)
    assert kept.keys() == {"handle", "total_bytes", "shape", "preview"}
    assert (
        kept["total_bytes"] > 2_000_000
        and "rows: array of" in kept["shape"]
        and len(kept["preview"]) <= 2_000
    )
    page = client.run(
        "mcpx", "result", {"handle": kept["handle"], "jmespath": "rows", "offset": 500, "limit": 1}
    )
    assert "row number 500" in text(page)


def test_direct_passes_everything_through_untouched(gateway: GatewayProcess) -> None:
    """SUR-1: also what is large."""
    client = Kept(gateway.port, "direct")
    result = client.use("heavy_give", kind="both", megabytes=2.8)
    assert len(result["content"][0]["text"]) > 2_000_000
    assert {"result": json.loads(result["content"][0]["text"])} == result["structuredContent"]


def workers(gateway: GatewayProcess) -> list[int]:
    """The processes of this gateway that work on large results."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == gateway.process.pid and WORKER in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


def gone(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if WORKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_small_results_need_no_process_and_large_ones_at_most_two() -> None:
    """SUR-11: started when needed; one that is killed is replaced, and all end with the gateway."""
    with GatewayProcess(config(large("heavy"))) as gateway:
        clients = [Kept(gateway.port, "inspect") for _ in range(4)]
        clients[0].run("heavy", "small")
        assert workers(gateway) == []
        asked = {"kind": "json", "megabytes": 2.8}
        handle = clients[0].structured(clients[0].run("heavy", "give", asked))["handle"]
        assert len(workers(gateway)) == 1
        os.kill(workers(gateway)[0], signal.SIGKILL)
        works = [lambda client=client: client.run("heavy", "give", asked) for client in clients[1:]]
        most = 0
        with meanwhile(*works):
            for _ in range(5):
                page = clients[0].run("mcpx", "result", {"handle": handle, "jmespath": "[7].name"})
                assert "row number 7" in text(page)
                most = max(most, len(workers(gateway)))
        assert most == 2
        left = workers(gateway)
    assert left and all(gone(pid, 5) for pid in left)


def test_no_process_outlives_a_gateway_that_was_killed() -> None:
    """LIF-7: in the midst of a job that would never end."""
    gateway = GatewayProcess(config(large("heavy")))
    try:
        gateway.__enter__()
        client = Kept(gateway.port, "inspect")
        handle = client.structured(client.run("heavy", "give", {"kind": "json", "megabytes": 1}))[
            "handle"
        ]
        endless = {"handle": handle, "jmespath": "[@, @][]" + " | [@, @][]" * 50}

        def ask() -> None:
            with pytest.raises((OSError, http.client.HTTPException)):
                client.run("mcpx", "result", endless)

        thread = threading.Thread(target=ask)
        thread.start()
        until = time.monotonic() + 20
        while len(workers(gateway)) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        pids = workers(gateway)
        assert len(pids) == 2
        gateway.process.kill()
        thread.join(30)
        assert all(gone(pid, 5) for pid in pids)
    finally:
        with pytest.raises(AssertionError):  # its exit code is not 0: it was killed
            gateway.__exit__(None, None, None)


def resident(gateway: GatewayProcess) -> int:
    """Megabytes."""
    pages = int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def test_what_was_large_is_let_go(gateway: GatewayProcess) -> None:
    """SEC-6: fetching again and again takes no more memory than a few times."""
    client = Kept(gateway.port, "inspect")

    def fetch(times: int) -> int:
        for _ in range(times):
            client.run("heavy", "give", {"kind": "text", "megabytes": 9.7})
        return resident(gateway)

    before = fetch(4)
    assert fetch(12) < before + 60


def hostile(number: int) -> Json:
    """Schemas of up to a megabyte: wide, deep in references, full of patterns and of choices."""
    match number % 5:
        case 0:
            schema: Json = {
                "properties": {
                    f"p{n}": {"type": "string", "description": "x" * 200} for n in range(4_000)
                }
            }
        case 1:
            targets = {
                f"d{n}": {
                    "properties": {
                        f"x{k}": {"$ref": f"#/$defs/d{(7 * n + k) % 400}"} for k in range(8)
                    }
                }
                for n in range(400)
            }
            schema = {"$defs": targets, "properties": {"a": {"$ref": "#/$defs/d0"}}}
        case 2:
            words = ["|".join(f"w{n}x{k}" for k in range(3_000)) for n in range(20)]
            schema = {"properties": {f"p{n}": {"pattern": word} for n, word in enumerate(words)}}
        case 3:
            schema = {
                "properties": {"a": {"anyOf": [{"const": str(n)} for n in range(3_900)]}},
                "required": ["a"],
            }
        case _:
            schema = {"required": [f"p{n}" for n in range(100_000)]}
    return {"name": f"tool{number}", "inputSchema": {"type": "object", **schema}}


def test_hostile_schemas_and_ten_thousand_tools_do_not_delay_a_small_call(tmp_path: Path) -> None:
    """SRC-8, SUR-9, SUR-10: shown, searched, checked against, called wrongly: within bounds."""
    plain = {"type": "object", "properties": {"path": {"type": "string"}}}
    many = [
        {"name": f"t{n}", "description": f"Does the thing {n}", "inputSchema": plain}
        for n in range(9_996)
    ]
    servers = (
        large("well"),
        told("bad", tmp_path, {"tools": [hostile(number) for number in range(15)]}),
        told("many", tmp_path, {"tools": many}, result_limit=16_000),
    )
    with GatewayProcess(config(*servers)) as gateway:
        healthy, bad, other = (Kept(gateway.port, "inspect") for _ in range(3))
        described = Kept(gateway.port, "describe")
        bad.tools()
        numbers = iter(range(1_000_000))

        def misuse() -> None:
            number = next(numbers)
            bad.run("bad", f"tool{number % 15}", {"a": 5, "p1": [], "x" * 300: number})
            bad.use("inspect", server_name="bad")

        def look() -> None:
            other.tools()
            assert "10,000 tools" in text(other.use("inspect", server_name="many"))
            described.tools()

        unharmed(gateway.process.pid, lambda: healthy.run("well", "small"), misuse, look)
        assert "Traceback" not in gateway.stderr(), gateway.stderr()
