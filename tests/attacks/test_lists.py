"""Lists and names without measure: the server that offers them is cut, said, and nobody else pays
(NAM-6, SEC-6)."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from behaviour.load import cpu_of
from kit.gateway import GatewayProcess
from kit.servers import raw_server, stdio_server
from kit.until import wait_until

Json = dict[str, Any]

SERVER = Path(__file__).with_name("listing_server.py")
MIB = 2**20
QUIET = 0.5
"""Seconds in which the healthy client finds out how long a call takes when nobody attacks."""


def hostile(name: str, *args: object, **keys: Any) -> Json:
    return stdio_server(name, [sys.executable, "-I", "-S", str(SERVER), *map(str, args)], **keys)


def config(*servers: Json) -> Json:
    return {"global": {"startup_wait": 1, "first_start_wait": 1}, "mcp_servers": list(servers)}


class KeepAliveSession:
    """A session over one HTTP connection. Large results are not parsed unless a test needs them."""

    def __init__(self, port: int, capabilities: Json | None = None) -> None:
        self._port = port
        self._http = HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities or {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        self.greeting = self.ask("initialize", params)["result"]

    def ask(self, method: str, params: Json) -> Json:
        return json.loads(self._send(method, params))

    def _send(self, method: str, params: Json) -> bytes:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._http.request("POST", "/mcp", json.dumps(message), self._headers)
        reply = self._http.getresponse()
        if (session := reply.getheader("mcp-session-id")) is not None:
            self._headers["mcp-session-id"] = session
        body = reply.read()
        if (reply.getheader("content-type") or "").startswith("text/event-stream"):
            data = [
                line[5:]
                for line in body.splitlines()
                if line.startswith(b"data:") and len(line) > 6
            ]
            body = data[-1]
        return body

    def call(self, name: str, **arguments: Any) -> Json:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def count(self) -> int:
        """Tools that are listed. Not parsed: that would hold up the healthy client, which is a
        thread beside this."""
        return self._send("tools/list", {}).count(b'"inputSchema"')

    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.ask("tools/list", {})["result"]["tools"]]

    def close(self) -> None:
        self._http.close()


def worked(process: int) -> float:
    """Seconds that it was at work; where the system does not tell, all there were."""
    return cpu_of(process) if sys.platform.startswith("linux") else time.monotonic()


class Healthy:
    """Calls a good server all the time, and keeps how long the gateway let each call wait: never
    longer than it was at work meanwhile, for what the machine had to do besides is not its
    delay."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._client = KeepAliveSession(gateway.port)
        self._gateway = gateway.process.pid
        self._stop = threading.Event()
        self.took: list[float] = []
        self.wrong: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            began, used = time.monotonic(), worked(self._gateway)
            answer = self._client.call("well_echo", text=f"n{number}")
            self.took.append(min(time.monotonic() - began, worked(self._gateway) - used))
            if f"n{number}" not in json.dumps(answer):
                self.wrong.append(answer)
            self._stop.wait(0.004)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)
        self._client.close()

    def figures(self, since: int = 0) -> tuple[float, float]:
        """The 99th percentile and the worst, in milliseconds."""
        took = sorted(self.took[since:])
        return took[int(0.99 * (len(took) - 1))] * 1000, took[-1] * 1000


@contextmanager
def healthy(gateway: GatewayProcess) -> Iterator[Healthy]:
    """A client that must not pay for what is done meanwhile."""
    ready = KeepAliveSession(gateway.port)
    wait_until(lambda: "well_echo" in ready.tools())
    ready.close()
    client = Healthy(gateway)
    time.sleep(QUIET)
    quiet, calls = client.figures()[0], len(client.took)
    try:
        yield client
    finally:
        client.end()
    p99, worst = client.figures(calls)
    assert client.wrong == []
    told = (
        f"quiet p99 {quiet:.1f} ms, p99 {p99:.1f} ms, worst {worst:.1f} ms of "
        f"{len(client.took) - calls} calls"
    )
    sys.stderr.write(told + "\n")
    assert p99 <= max(100.0, min(300.0, 20 * quiet)), told
    assert worst < 1000.0, told


def resident(gateway: GatewayProcess) -> int:
    """MiB the gateway holds."""
    fields = Path(f"/proc/{gateway.process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // MIB


def servers(gateway: GatewayProcess) -> dict[str, Json]:
    """What `mcpx servers` says."""
    command = [sys.executable, "-m", "mcpx", "servers", str(gateway.file), "--json"]
    told = subprocess.run(
        command, env=gateway.env, capture_output=True, text=True, timeout=60, check=False
    )
    return {server["name"]: server for server in json.loads(told.stdout)["servers"]}


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")


@linux
def test_a_server_that_pages_for_ever_is_cut_in_bytes_and_what_it_listed_is_kept() -> None:
    """NAM-6, SEC-6: 2 GB in 14 s, once."""
    with GatewayProcess(
        config(raw_server("well"), hostile("endless", "endless", 4, 250_000))
    ) as gateway:
        client = KeepAliveSession(gateway.port)
        wait_until(lambda: {"well_echo", "endless_begin"} <= set(client.tools()))
        with healthy(gateway):
            client.call("endless_begin")
            wait_until(lambda: "are cut" in gateway.stderr(), 40)
        assert resident(gateway) < 300
        told = servers(gateway)["endless"]
        assert told["status"] == "connected" and 100 < told["tools"] < 220
        assert any("its tools are cut" in note and "48 MiB" in note for note in told["notes"])
        assert gateway.stderr().count("are cut") == 1
        assert "endless_tool_1" in client.tools()
        client.close()


@linux
def test_ten_thousand_tools_and_a_storm_of_changes_cost_nobody_else_a_turn() -> None:
    """LIF-1, NAM-1: lists are read, named, kept and announced beside everything else."""
    with GatewayProcess(
        config(raw_server("well"), hostile("many", "many", 9_999, 1_000))
    ) as gateway:
        client = KeepAliveSession(gateway.port)
        wait_until(lambda: {"well_echo", "many_begin"} <= set(client.tools()))
        with healthy(gateway):
            client.call("many_begin")
            wait_until(lambda: client.count() >= 10_000, 60)
            time.sleep(2)
            assert client.count() >= 10_000
        assert resident(gateway) < 400
        client.close()


def test_a_server_that_says_no_end_about_itself_is_taken_in_measure() -> None:
    """SEC-6."""
    with GatewayProcess(
        config(raw_server("well"), hostile("large", "large", 0, 2_000_000))
    ) as gateway:
        client = KeepAliveSession(gateway.port)
        wait_until(lambda: {"well_echo", "large_begin"} <= set(client.tools()))
        late = KeepAliveSession(gateway.port)
        assert "word word" in json.dumps(late.greeting) and len(json.dumps(late.greeting)) < 20_000
        folder = gateway.folder / "state" / "snapshots"
        wait_until(lambda: len(list(folder.glob("*.json"))) == 2)
        assert max(file.stat().st_size for file in folder.glob("*.json")) < 200_000
        client.close()
        late.close()


def test_a_flood_of_questions_is_refused_beyond_a_measure_and_nobody_else_pays() -> None:
    """SEC-6, PRO-5."""
    with GatewayProcess(
        config(raw_server("well"), hostile("asks", "questions", 3_000, 20_000))
    ) as gateway:
        client = KeepAliveSession(gateway.port, {"elicitation": {}})
        wait_until(lambda: {"well_echo", "asks_begin"} <= set(client.tools()))
        with healthy(gateway):
            client.call("asks_begin")
            time.sleep(1)
        assert resident(gateway) < 200 if sys.platform.startswith("linux") else True
        client.close()


@linux
def test_names_that_nobody_has_are_not_kept() -> None:
    """SEC-6: 4,000 requests once left 190 MB behind."""
    with GatewayProcess(config(raw_server("well"))) as gateway:
        client = KeepAliveSession(gateway.port)
        wait_until(lambda: "well_echo" in client.tools())
        before = resident(gateway)
        http = HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        envelope = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        for number in range(2_000):
            name = f"{number}_" + "n" * 48_000
            params = {"name": name, "arguments": {}, "_meta": envelope}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            headers = {
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "tools/call",
                "Mcp-Name": name,
            }
            http.request("POST", "/mcp", json.dumps(message), headers)
            answer = http.getresponse().read()
            assert b"Unknown tool" in answer, answer[:300]
        http.close()
        assert resident(gateway) - before < 70
        client.close()


def test_whatever_lies_in_the_place_of_a_snapshot_the_gateway_starts(tmp_path: Path) -> None:
    """LIF-1: comfort, never function."""
    with GatewayProcess(config(raw_server("well"))) as gateway:
        folder = gateway.folder / "state" / "snapshots"
        wait_until(lambda: list(folder.glob("*.json")))
        (name,) = (file.name for file in folder.glob("*.json"))
        definitions = {"tools": [{"name": "a"}], "prompts": [], "resources": [], "templates": []}
        body = json.dumps(
            {"format": 1, "definitions": definitions, "traits": {"asks": [{}, []], "declares": 7}}
        )
        for what in ("fifo", "endless", "nan", "garbage"):
            file = tmp_path / what / "snapshots" / name
            file.parent.mkdir(parents=True)
            if what == "fifo":
                os.mkfifo(file)
            elif what == "endless":
                file.symlink_to("/dev/zero")
            else:
                file.write_text(body.replace('"a"', "NaN") if what == "nan" else body)
            command = [sys.executable, "-m", "mcpx", str(gateway.file), "--transport", "stdio"]
            hello = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            }
            first = (
                json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
                + "\n"
            )
            env = {**gateway.env, "MCPX_STATE_DIR": str(tmp_path / what)}
            told = subprocess.run(
                command,
                input=first,
                env=env,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert '"serverInfo"' in told.stdout and "Traceback" not in told.stderr, told.stderr
