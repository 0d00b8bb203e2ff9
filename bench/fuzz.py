"""`fuzz`: mutated requests and replies at both edges of one gateway, while a healthy client beside
checks every answer.

    uv run fuzz --minutes 5 --seed 1

Starts mcpx over HTTP on a config of its own in a temporary folder, with one server that is well and
others that answer nearly right (`fuzz_server.py`), over stdio, streamable HTTP in both eras,
HTTP+SSE and WebSocket; and a second mcpx on standard input and output. Raw clients send what is
nearly right (`fuzz_inputs.py`): HTTP requests, WebSocket handshakes and frames, HTTP+SSE, lines and
blocks on standard input. What must hold:

* no mcpx ends, and none logs a traceback, an error of its own, or answers with status 500;
* the healthy client gets each of its answers, and nobody who calls a server that mixes up its
  replies gets another's;
* every call is answered or refused; memory and descriptors are in the end about where they were.

A finding is told with the seed and with what was sent last; all of that is kept in a file that the
report names. The same seed makes the same inputs, not the same timing. Exit code 1 when something
was found.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any

from bench.client import GREETING as GIVEN
from bench.client import Refused
from bench.fuzz_inputs import (
    MODERN,
    block,
    encoded,
    frame,
    frames,
    handshake,
    http,
    line,
    message,
    nonce,
    nonces,
    pieces,
)
from bench.gateway import free_port, listening
from bench.http_client import Connections, HttpClient, field_of
from bench.processes import PAGE, Started
from bench.soak_clients import Account
from bench.tables import table

Json = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parent.parent
MCPX = [sys.executable, "-m", "mcpx"]
FUZZ_SERVER = [sys.executable, "-m", "bench.fuzz_server"]
SERVERS = ("web", "web_modern", "sse", "socket", "pipe")
TOOLS = (*(f"{name}_echo" for name in SERVERS), "well_echo", "unknown", "", "x" * 200)

GREETING: Json = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": GIVEN}

BOUND = 30.0
"""Seconds after which a call counts as never answered; servers get `CALL_TIMEOUT`, and may be
opened anew before."""
CALL_TIMEOUT = 1.5
KEPT = 200
"""Newest sends of each kind that are kept."""
GROWTH = 80.0
"""MB that the gateway may have more at the end than after the first tenth of the run."""
DESCRIPTORS = 30
WORKERS = {"http": 10, "websocket": 4, "sse": 3, "stdio": 2, "call": 12}
ERROR = re.compile(
    r"Traceback|Exception in callback|never retrieved|^\d\d:\d\d:\d\d (?:ERROR|CRITICAL) .*",
    re.MULTILINE,
)
LISTENS = re.compile(r"http://127\.0\.0\.1:(\d+)/mcp")


@dataclass
class Fuzz:
    """One run: what was sent, what was found."""

    port: int
    servers: int
    gateway: Started
    folder: Path
    options: argparse.Namespace
    account: Account = field(default_factory=Account)
    sends: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    last: dict[str, deque[bytes]] = field(default_factory=dict[str, deque[bytes]])
    memory: list[float] = field(default_factory=list[float])
    descriptors: list[int] = field(default_factory=list[int])
    latencies: list[float] = field(default_factory=list[float])
    evidence: list[Json] = field(default_factory=list[Json])
    ending: bool = False

    def sent(self, kind: str, data: bytes) -> bytes:
        self.sends[kind] += 1
        self.last.setdefault(kind, deque(maxlen=KEPT)).append(data)
        return data

    async def found(self, what: str, words: str, *kinds: str) -> None:
        """Keeps what was sent last, by these kinds or all, and by the servers."""
        self.account.must_not(what, words)
        if self.account.wrong[what] > 3:
            return
        newest = {
            kind: list(map(repr, data))
            for kind, data in self.last.items()
            if not kinds or kind in kinds
        }
        served: Any = None
        with contextlib.suppress(Refused, ValueError):
            _, _, body = await Connections(self.servers).send("GET", "/last", "", b"")
            served = json.loads(body)
        self.evidence.append({"what": what, "words": words, "sent": newest, "served": served})

    # -- the run

    async def run(self) -> None:
        seconds = self.options.minutes * 60
        self._sample()
        jobs: list[Coroutine[Any, Any, None]] = [self._healthy("older"), self._healthy("modern")]
        jobs += [self._watch(), self._tell(seconds)]
        by_kind: dict[str, Callable[[Random, str], Coroutine[Any, Any, None]]] = {
            "http": self._http,
            "websocket": self._websocket,
            "sse": self._sse,
            "stdio": self._stdio,
            "call": self._call,
        }
        for kind, work in by_kind.items():
            for number in range(WORKERS[kind]):
                name = f"{kind}-{number}"
                jobs.append(self._again(work, Random(f"{self.options.seed}-{name}"), name))
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done() and (error := task.exception()):
                    raise error
        finally:
            self.ending = True
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await asyncio.sleep(self.options.rest)
        self._sample()
        await self.look_at_log()

    async def _again(
        self, work: Callable[[Random, str], Coroutine[Any, Any, None]], rng: Random, name: str
    ) -> None:
        while True:
            try:
                await work(rng, name)
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                self.outcomes["connections it ended"] += 1
            if not self.gateway.running:
                await self.found("the gateway ended", self.gateway.complaint())
                return
            await asyncio.sleep(0)

    # -- beside

    async def _healthy(self, era: Any) -> None:
        """One call after another; each must have its own answer, all the time."""
        client = HttpClient(era, self.port)
        for number in itertools.count():
            try:
                if number == 0:
                    await client.open()
                text = nonce(f"healthy-{era}-{number}")
                began = time.monotonic()
                async with asyncio.timeout(BOUND):
                    result = await client.request(
                        "tools/call", {"name": "well_echo", "arguments": {"text": text}}
                    )
                self.latencies.append(time.monotonic() - began)
                said = result["content"][0]["text"]
                if said != text:
                    await self.found(
                        "the healthy client got a wrong answer", f"asked {text}, got {said}"
                    )
                self.outcomes["healthy answers"] += 1
            except (Refused, TimeoutError, LookupError) as error:
                await self.found(
                    "the healthy client was not answered", f"{type(error).__name__}: {error}"
                )
                client = HttpClient(era, self.port)
                with contextlib.suppress(Refused):
                    await client.open()
            await asyncio.sleep(0.01)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self._sample()
            await self.look_at_log()
            if not self.gateway.running:
                await self.found("the gateway ended", self.gateway.complaint())
                return

    def _sample(self) -> None:
        pid = self.gateway.process.pid
        with contextlib.suppress(OSError):
            pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
            self.memory.append(int(pages) * PAGE / 2**20)
            self.descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))

    _looked = 0

    async def look_at_log(self) -> None:
        with (self.folder / "gateway" / "stderr.log").open("rb") as log:
            log.seek(self._looked)
            said = log.read()
        end = said.rfind(b"\n") + 1
        text = said[:end].decode(errors="replace")
        at = 0
        while found := ERROR.search(text, at):
            await self.found(
                "an error in the log", text[max(0, found.start() - 200) : found.start() + 3000]
            )
            at = found.end() + 3000
        self._looked += end

    async def _tell(self, seconds: float) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(30)
            gone, wrong = time.monotonic() - began, sum(self.account.wrong.values())
            sends = sum(self.sends.values())
            say(
                f"{gone:.0f} of {seconds:.0f} s: {sends} sends, {self.memory[-1]:.0f} MB, {wrong} "
                "findings"
            )

    # -- calls to servers that mix up their answers

    async def _call(self, rng: Random, name: str) -> None:
        client = HttpClient(rng.choice(("older", "modern")), self.port)
        try:
            await client.open()
            for number in range(rng.randrange(20, 200)):
                server = rng.choice(SERVERS)
                text = nonce(f"{name}-{rng.randrange(10**9)}-{number}")
                self.sends["call"] += 1
                try:
                    async with asyncio.timeout(BOUND):
                        result = await client.request(
                            "tools/call", {"name": f"{server}_echo", "arguments": {"text": text}}
                        )
                except Refused as error:
                    self.outcomes["calls refused"] += 1
                    result = {"refused": str(error)}
                except TimeoutError:
                    await self.found("a call was never answered", f"{server}: {text}")
                    return
                if foreign := nonces(json.dumps(result)) - {text}:
                    await self.found("another's answer", f"{server}: asked {text}, got {foreign}")
                elif "refused" not in result:
                    self.outcomes["calls answered"] += 1
            if client.era == "older":
                await client.end_session()
        except Refused:
            self.outcomes["sessions refused"] += 1
        finally:
            await client.close()

    # -- raw clients

    async def _http(self, rng: Random, name: str) -> None:
        session = await self._session() if rng.random() < 0.8 else ""
        for _ in range(rng.randrange(1, 40)):
            await self._http_connection(rng, session)
        if (
            session and rng.random() < 0.9
        ):  # sessions are kept for half an hour, which is not what is looked for here
            connections = Connections(self.port)
            with contextlib.suppress(Refused):
                await connections.send("DELETE", "/mcp", f"mcp-session-id: {session}\r\n", b"")
            connections.close()

    async def _session(self) -> str:
        """The id of a new one."""
        connections = Connections(self.port)
        accept = "accept: application/json, text/event-stream\r\n"
        try:
            _, head, _ = await connections.send("POST", "/mcp", accept, encoded(GREETING))
            return field_of(head, "mcp-session-id")
        except Refused:
            return ""
        finally:
            connections.close()

    async def _http_connection(self, rng: Random, session: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        try:
            requests = [
                http(rng, self.port, TOOLS, session) for _ in range(rng.choice((1, 1, 1, 2, 5)))
            ]
            data = self.sent("http", b"".join(requests))
            self.sends["http requests"] += len(requests) - 1
            for piece in pieces(rng, data):
                writer.write(piece)
                await writer.drain()
            if rng.random() < 0.1:
                return  # leaves without waiting
            if rng.random() < 0.2:
                writer.write_eof()
            answer = await _heard(reader, rng.choice((0.01, 0.03, 0.2)))
            for status in re.findall(rb"^HTTP/1\.1 (\d+)", answer, re.MULTILINE):
                self.outcomes[f"HTTP {status.decode()}"] += 1
                if status == b"500":
                    await self.found(
                        "a status 500", repr(answer[:500]) + " to " + repr(data[:1500]), "http"
                    )
            if answer and not answer.startswith(b"HTTP/1.1 "):
                await self.found("no HTTP", repr(answer[:300]) + " to " + repr(data[:1500]), "http")
        finally:
            writer.close()

    async def _websocket(self, rng: Random, name: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        try:
            writer.write(self.sent("websocket handshake", handshake(rng, self.port)))
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
            self.outcomes[f"WebSocket {head[9:12].decode(errors='replace')}"] += 1
            if b" 500 " in head[:14]:
                await self.found("a status 500", repr(head), "websocket handshake")
            if b" 101 " not in head[:14]:
                return
            reading = asyncio.create_task(_heard(reader, BOUND))
            try:
                if rng.random() < 0.7:
                    writer.write(frame(encoded(GREETING)))
                for _ in range(rng.randrange(1, 60)):
                    data = self.sent("websocket", frames(rng, message(rng, TOOLS), masked=True))
                    for piece in pieces(rng, data):
                        writer.write(piece)
                        await writer.drain()
                    await asyncio.sleep(rng.choice((0, 0, 0.01)))
            finally:
                reading.cancel()
                await asyncio.wait([reading])
        except TimeoutError:
            self.outcomes["WebSocket handshakes not answered"] += 1
        finally:
            writer.close()

    async def _sse(self, rng: Random, name: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        try:
            host = f"host: 127.0.0.1:{self.port}\r\n"
            writer.write(f"GET /sse HTTP/1.1\r\n{host}accept: text/event-stream\r\n\r\n".encode())
            async with asyncio.timeout(5):
                said = await reader.readuntil(b"\n\n")
            path = said.rpartition(b"data: ")[2].strip().decode()
            reading = asyncio.create_task(_heard(reader, BOUND))
            connections = Connections(self.port)
            try:
                for number in range(rng.randrange(1, 40)):
                    greets = number == 0 and rng.random() < 0.8
                    data = self.sent("sse", encoded(GREETING) if greets else message(rng, TOOLS))
                    status, _, body = await connections.send("POST", path, "", data)
                    self.outcomes[f"HTTP+SSE {status}"] += 1
                    if status == 500:
                        await self.found(
                            "a status 500", repr(body[:300]) + " to " + repr(data[:1500]), "sse"
                        )
                    if status == 404:
                        return
            except Refused:
                self.outcomes["connections it ended"] += 1
            finally:
                connections.close()
                reading.cancel()
                await asyncio.wait([reading])
        except TimeoutError:
            self.outcomes["SSE streams not answered"] += 1
        finally:
            writer.close()

    # -- standard input and output

    async def _stdio(self, rng: Random, name: str) -> None:
        """One mcpx of its own; after every few inputs it must still answer, as long as the framing
        was not broken."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        config = folder / "config.json"
        write_config(config, [well()])
        started = await Started.start(
            [*MCPX, str(config), "--transport", "stdio"], folder, pipes=True
        )
        blocks = name.endswith("1")
        try:
            await self._pipe(rng, started, blocks, name)
        except (BrokenPipeError, ConnectionResetError, EOFError):
            await self._pipe_ended(started, name)
        finally:
            await started.stop()
        said = (folder / "stderr.log").read_text(encoding="utf-8", errors="replace")
        if found := ERROR.search(said):
            await self.found(
                "an error in the log of a stdio gateway",
                said[max(0, found.start() - 300) :][:3000],
                name,
            )
            (folder / "stderr.log").write_text("")

    async def _pipe_ended(self, started: Started, name: str) -> None:
        if not self.ending:
            await self.found("a stdio gateway ended", started.complaint(), name)

    async def _pipe(self, rng: Random, started: Started, blocks: bool, name: str) -> None:
        process = started.process
        assert process.stdin is not None and process.stdout is not None

        def framed(body: bytes) -> bytes:
            return b"Content-Length: %d\r\n\r\n%b" % (len(body), body) if blocks else body + b"\n"

        process.stdin.write(framed(encoded(GREETING)))
        for round_ in range(rng.randrange(20, 200)):
            lies = False
            for _ in range(rng.randrange(1, 20)):
                body = message(rng, TOOLS)
                if blocks:
                    data = block(rng, body)
                    lies = lies or not data.endswith(
                        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
                    )
                else:
                    data = line(rng, body)
                process.stdin.write(self.sent(name, data))
            text = nonce(f"{name}-{round_}-{rng.randrange(10**9)}")
            call = {"name": "well_echo", "arguments": {"text": text}}
            # A modern request stands for itself, whatever was negotiated or cancelled before.
            call["_meta"] = {"io.modelcontextprotocol/protocolVersion": MODERN}
            call["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {}
            process.stdin.write(
                framed(
                    encoded({"jsonrpc": "2.0", "id": text, "method": "tools/call", "params": call})
                )
            )
            await process.stdin.drain()
            try:
                async with asyncio.timeout(3.0 if lies else BOUND):
                    while b'"id":"' + text.encode() not in await _message(process.stdout, blocks):
                        pass
                self.outcomes["answers on standard output"] += 1
            except TimeoutError:
                if not lies:
                    await self.found(
                        "standard input is not answered any more", started.complaint(), name
                    )
                return


async def _message(reader: asyncio.StreamReader, blocks: bool) -> bytes:
    """The next one on standard output."""
    if blocks:
        head = await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(int(head.partition(b":")[2]))
    return await reader.readuntil(b"\n")


async def _heard(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """What comes until the end, or until nothing has come for so long; at most 64 KB of it are
    kept."""
    kept = b""
    with contextlib.suppress(TimeoutError, OSError):
        data = b"x"
        while data:
            async with asyncio.timeout(
                seconds
            ):  # not `wait_for`: before 3.12 it may swallow that we are cancelled
                data = await reader.read(2**16)
            kept += data if len(kept) < 2**16 else b""
    return kept


# ---- start, end, report


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def well() -> Json:
    stdio = {
        "type": "stdio",
        "command": FUZZ_SERVER[0],
        "args": [*FUZZ_SERVER[1:], "--stdio", "--well"],
    }
    return {"name": "well", "prefix": "well", "connection": {**stdio, "cwd": str(REPOSITORY)}}


def entries(port: int, seed: int) -> list[Json]:
    base = f"127.0.0.1:{port}"
    stdio = {
        "command": FUZZ_SERVER[0],
        "args": [*FUZZ_SERVER[1:], "--stdio", "--seed", f"{seed}-stdio"],
    }
    connections: dict[str, Json] = {
        "web": {"type": "http", "url": f"http://{base}/older"},
        "web_modern": {"type": "http", "url": f"http://{base}/modern"},
        "sse": {"type": "sse", "url": f"http://{base}/sse"},
        "socket": {"type": "websocket", "url": f"ws://{base}/ws"},
        "pipe": {"type": "stdio", **stdio, "cwd": str(REPOSITORY)},
    }
    keys = {
        "timeout": CALL_TIMEOUT,
        "call_timeout": CALL_TIMEOUT,
        "retry_delay": 0.1,
        "max_retries": 1000,
    }
    return [
        {"name": name, "prefix": name, "connection": connections[name], **keys} for name in SERVERS
    ]


def write_config(path: Path, servers: list[Json]) -> None:
    path.write_text(json.dumps({"mcp_servers": servers}), encoding="utf-8")
    path.chmod(0o600)


@asynccontextmanager
async def started_fuzz(folder: Path, options: argparse.Namespace) -> AsyncGenerator[Fuzz]:
    async with AsyncExitStack() as stack:
        port = free_port()
        argv = [*FUZZ_SERVER, "--port", str(port), "--seed", str(options.seed)]
        home = folder / "servers"
        home.mkdir()
        servers = await Started.start(argv, home, env={"PYTHONPATH": str(REPOSITORY)})
        stack.push_async_callback(servers.stop)
        await listening(port, servers)
        home = folder / "gateway"
        home.mkdir()
        config = home / "config.json"
        write_config(config, [well(), *entries(port, options.seed)])
        argv = [*MCPX, str(config), "--transport", "http", "--host", "127.0.0.1", "--port", "0"]
        gateway = await Started.start(argv, home)
        stack.push_async_callback(gateway.stop)
        fuzz = Fuzz(await _port_of(home / "stderr.log", gateway), port, gateway, folder, options)
        await _settled(fuzz)
        yield fuzz
        with contextlib.suppress(Refused, ValueError):
            _, _, body = await Connections(port).send("GET", "/counts", "", b"")
            fuzz.sends.update(
                {f"server: {kind}": number for kind, number in json.loads(body).items()}
            )
        if not servers.running:
            raise SystemExit(f"the fuzzing server itself ended: {servers.complaint()}")
        gateway.process.terminate()
        try:
            await asyncio.wait_for(gateway.process.wait(), 20)
        except TimeoutError:
            await fuzz.found("the gateway did not end", gateway.complaint())
        if gateway.process.returncode not in (0, None):
            await fuzz.found(
                "the gateway ended badly", f"{gateway.process.returncode}: {gateway.complaint()}"
            )
        await fuzz.look_at_log()


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


async def _port_of(log: Path, gateway: Started) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and gateway.running:
        if found := LISTENS.search(_read(log)):
            return int(found[1])
        await asyncio.sleep(0.02)
    raise SystemExit(f"mcpx does not start: {gateway.complaint()}")


async def _settled(fuzz: Fuzz) -> None:
    """Until no server is starting any more, or ten seconds."""
    connections = Connections(fuzz.port)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        _, _, body = await connections.send("GET", "/health", "", b"")
        states = json.loads(body)["servers"].values()
        if all(state["status"] != "connecting" for state in states):
            break
        await asyncio.sleep(0.1)
    connections.close()


def judge_rest(fuzz: Fuzz) -> None:
    """In the end: what is more than it was when all had begun."""
    early = fuzz.memory[len(fuzz.memory) // 10]
    if fuzz.memory[-1] > early + GROWTH:
        fuzz.account.must_not(
            "memory that stays", f"{early:.0f} MB at first, {fuzz.memory[-1]:.0f} in the end"
        )
    if fuzz.descriptors[-1] > fuzz.descriptors[0] + DESCRIPTORS:
        words = f"{fuzz.descriptors[0]} before, {fuzz.descriptors[-1]} after"
        fuzz.account.must_not("descriptors that stay", words)


def report(fuzz: Fuzz) -> str:
    rows = [[kind, f"{number:,}"] for kind, number in sorted(fuzz.sends.items())]
    lines = [table(["sent", "times"], rows)]
    lines.append(
        table(
            ["came back", "times"],
            [[kind, f"{number:,}"] for kind, number in sorted(fuzz.outcomes.items())],
        )
    )
    first, last = fuzz.memory[0], fuzz.memory[-1]
    lines.append(f"memory: {first:.0f} MB before, {max(fuzz.memory):.0f} at most, {last:.0f} after")
    numbers = fuzz.descriptors
    lines.append(f"descriptors: {numbers[0]} before, {max(numbers)} at most, {numbers[-1]} after")
    if len(fuzz.latencies) > 1:
        cuts = [cut * 1000 for cut in quantiles(fuzz.latencies, n=100)]
        worst = max(fuzz.latencies) * 1000
        lines.append(
            f"the healthy client: median {cuts[49]:.0f} ms, 99 % {cuts[98]:.0f} ms, longest "
            f"{worst:.0f} ms"
        )
    lines.append(f"{sum(fuzz.sends.values()):,} sends with seed {fuzz.options.seed}")
    for what, number in fuzz.account.wrong.most_common():
        lines.append(f"FOUND: {what}: {number}")
        lines += [f"    {words}" for words in fuzz.account.examples[what]]
    return "\n".join(lines) + "\n"


def kept_evidence(fuzz: Fuzz) -> Path | None:
    """The file with all that was sent before each finding."""
    if not fuzz.evidence:
        return None
    folder = Path(fuzz.options.keep)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"fuzz-{fuzz.options.seed}-{time.strftime('%H%M%S')}.json"
    file.write_text(json.dumps(fuzz.evidence, indent=1), encoding="utf-8")
    return file


async def fuzzed(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="mcpx-fuzz-", ignore_cleanup_errors=True) as name:
        async with started_fuzz(Path(name), options) as fuzz:
            await fuzz.run()
            judge_rest(fuzz)
    sys.stdout.write(report(fuzz))
    if file := kept_evidence(fuzz):
        say(f"what was sent before each finding: {file}")
    say("nothing was found" if not fuzz.account.wrong else "see FOUND above")
    return 1 if fuzz.account.wrong else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=_minutes, default=5.0, help="default 5")
    parser.add_argument(
        "--seed", type=int, default=1, help="of what is sent; timing is the machine's own"
    )
    parser.add_argument(
        "--rest", type=float, default=3.0, help="seconds before memory is judged, default 3"
    )
    kept = REPOSITORY / "bench" / "results"
    parser.add_argument(
        "--keep", default=str(kept), help="where findings are kept, default bench/results"
    )
    options = parser.parse_args(arguments)
    random.seed(options.seed)
    return asyncio.run(_until_signal(fuzzed(options)))


def _minutes(text: str) -> float:
    if not 0.02 <= float(text) <= 24 * 60:
        raise argparse.ArgumentTypeError("between 0.02 and 1440")
    return float(text)


async def _until_signal(work: Coroutine[Any, Any, int]) -> int:
    task = asyncio.ensure_future(work)

    def stop() -> None:
        if not task.cancelling():  # a second Ctrl-C must not disturb the cleaning up
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    await asyncio.wait([task])
    if task.cancelled():
        say("interrupted; everything that was started is ended")
        return 130
    return task.result()


if __name__ == "__main__":
    raise SystemExit(main())
