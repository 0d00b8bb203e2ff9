"""`soak`: one gateway for a long time, with clients of every kind coming and going and servers that
fail.

    uv run soak --minutes 20 --clients 50 --seed 1

Starts mcpx over HTTP on a config of its own in a temporary folder. Behind it stand servers that are
quiet, that ask, that want roots, over stdio and HTTP, lazy, isolated, mute, silent and crashing
ones; the file is rewritten every ten seconds, processes are ended with SIGKILL. Every call carries
a value of its own. What must hold:

* each call is answered once, with its own value, or with an error that names its server when that
  server was at fault;
* nobody is asked another client's question, or anything it said it cannot be asked;
* after all clients have left, processes, descriptors and memory are where they were before the
  first came.

Everything is on loopback and is ended on every way out. Exit code 1 when something did not hold.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from bench.gateway import free_port, listening
from bench.processes import PAGE, Identity, Started, family
from bench.soak_clients import (
    Account,
    Client,
    Era,
    Exchange,
    Gone,
    HttpClient,
    Json,
    PipeClient,
    SocketClient,
    SseClient,
)
from bench.tables import table

SERVER = str(Path(__file__).with_name("soak_server.py"))
MCPX = [sys.executable, "-m", "mcpx"]

LINK_IDLE = 5.0
CALL_TIMEOUT = 4.0
"""Of the servers that never answer."""
BOUND = 45.0
"""Seconds after which a call counts as never answered."""
RELOAD_EVERY = 10.0
KILL_EVERY = 4.0
SAMPLE_EVERY = 5.0
SHADOW = 6.0
"""Seconds after a kill or a reload in which a server that was hit may still fail calls."""
PIPES = 2
"""Most clients at a time that start a gateway of their own."""


# ---- the servers


@dataclass(frozen=True)
class Kind:
    name: str
    era: Era = "older"
    habit: str = ""
    http: bool = False
    keys: Json = field(default_factory=dict[str, object])
    weight: int = 4
    """How often it is called, beside the others."""
    shaky: bool = False
    """May fail a call at any time; it must be named then."""
    killed: bool = False
    """Its processes are ended now and then."""


KINDS = (
    Kind("quiet", killed=True, weight=8),
    Kind("quiet_modern", "modern", killed=True),
    Kind("asks", killed=True, weight=6),
    Kind("asks_modern", "modern"),
    Kind("homely", killed=True, weight=4),
    Kind("web", http=True, weight=6),
    Kind("web_modern", "modern", http=True),
    Kind("sleepy", keys={"lazy": True, "idle_timeout": 3}, weight=2),
    Kind("apart", keys={"isolation": "per_session", "max_links": 64}, weight=2),
    Kind("once", keys={"isolation": "per_call", "max_links": 64}, weight=1),
    Kind("silent", habit="silent", keys={"call_timeout": CALL_TIMEOUT}, weight=1, shaky=True),
    Kind("mute", habit="mute", keys={"timeout": CALL_TIMEOUT}, weight=1, shaky=True),
    Kind("crash", habit="crash", weight=3, shaky=True),
    # Those two are what reloads change.
    Kind("comes", weight=2, shaky=True),
    Kind("changes", weight=2, shaky=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}
NAPS = ("quiet", "asks", "web", "apart", "once", "quiet_modern")
ASKS = ("asks", "asks_modern", "quiet", "apart", "once")
ROOTS = ("homely", "asks_modern", "apart")


def command(kind: Kind, *more: str) -> list[str]:
    habit = ["--habit", kind.habit] if kind.habit else []
    return [
        sys.executable,
        "-I",
        "-S",
        SERVER,
        "--name",
        kind.name,
        "--era",
        kind.era,
        *habit,
        *more,
    ]


def entry(kind: Kind, port: int = 0, edition: int = 0) -> Json:
    if kind.http:
        connection: Json = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
    else:
        program, *args = command(kind, "--edition", str(edition))
        connection = {"type": "stdio", "command": program, "args": args}
    return {"name": kind.name, "prefix": kind.name, "connection": connection, **kind.keys}


class ConfigFile:
    """The gateway's file; each edition has something added, removed or changed."""

    def __init__(self, path: Path, kinds: Sequence[Kind], ports: dict[str, int]) -> None:
        self.path = path
        self._kinds = kinds
        self._ports = ports
        self.edition = 0

    def write(self) -> None:
        servers: list[Json] = []
        for kind in self._kinds:
            if kind.name == "comes" and self.edition % 2:
                continue
            edition = self.edition // 2 if kind.name == "changes" else 0
            servers.append(entry(kind, self._ports.get(kind.name, 0), edition))
        common = {"hot_reload_interval": 0.5, "link_idle": LINK_IDLE, "log_level": "WARNING"}
        fresh = self.path.with_suffix(".new")
        fresh.write_text(
            json.dumps({"mode": "direct", "global": common, "mcp_servers": servers}),
            encoding="utf-8",
        )
        fresh.chmod(0o600)
        fresh.rename(self.path)
        self.edition += 1


# ---- what is looked at


@dataclass(frozen=True)
class Sample:
    at: float
    processes: int
    """Below the gateway."""
    descriptors: int
    rss: float
    """Megabytes of the gateway itself."""
    family_rss: float
    """And of all processes below it."""
    tasks: int | None
    """As /health tells, where it does."""
    clients: int


def _rss(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE / 2**20
    except (OSError, IndexError):
        return 0.0


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _alive(members: Sequence[Identity]) -> list[int]:
    return [pid for pid, start in members if _start_of(pid) == start]


def _start_of(pid: int) -> int | None:
    """When a process started; None for one that is gone or only waits to be buried."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def name_of(pid: int) -> str:
    """Which of our servers a process is; empty for any other."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return (
        words[words.index(b"--name") + 1].decode()
        if SERVER.encode() in words and b"--name" in words
        else ""
    )


# ---- the soak


class Soak:
    def __init__(
        self,
        port: int,
        gateway: Started,
        file: ConfigFile,
        folder: Path,
        options: argparse.Namespace,
    ) -> None:
        self.port = port
        self.gateway = gateway
        self.file = file
        self.folder = folder
        self.options = options
        self.random = random.Random(options.seed)
        self.account = Account()
        self.samples: list[Sample] = []
        self.latencies: list[float] = []
        self.hit: defaultdict[str, list[float]] = defaultdict(list)
        """When a server's process was ended."""
        self.present = 0
        self.opened: Counter[str] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._numbers = 0
        self._pipes = asyncio.Semaphore(PIPES)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        seconds = self.options.minutes * 60
        await self.sample()
        async with asyncio.TaskGroup() as group:
            watching = [
                group.create_task(work) for work in (self._watch(), self._reload(), self._kill())
            ]
            slots = [group.create_task(self._slot()) for _ in range(self.options.clients)]
            await self._tell_progress(seconds)
            self._stopping.set()
            await asyncio.wait(slots, timeout=2 * BOUND)
            for slot in slots:
                if not slot.done():
                    self.account.must_not("a client that could not leave", repr(slot))
                    slot.cancel()
            for task in watching[1:]:
                task.cancel()
            await asyncio.sleep(LINK_IDLE + self.options.rest)
            watching[0].cancel()
        await self.sample()

    async def _tell_progress(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 30))
            last = self.samples[-1]
            say(
                f"{seconds - max(ends - time.monotonic(), 0):.0f} s: "
                f"{self.account.counts['calls']} calls, "
                f"{last.processes} processes, {last.descriptors} descriptors, {last.rss:.0f} MB, "
                f"wrong: {dict(self.account.wrong) or 'nothing'}"
            )
            if not self.gateway.running:
                self.account.must_not("the gateway ended", self.gateway.complaint())
                return

    # -- around the clients

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_EVERY)
            await self.sample()

    async def sample(self) -> None:
        pid = self.gateway.process.pid
        members = [member for member, _ in family(pid)]
        tasks: int | None = None
        try:
            health = await Exchange.begin(self.port, "GET", "/health", {})
            async for _, body in health.messages():
                told = json.loads(body).get("tasks")
                tasks = told if isinstance(told, int) else None
            health.cut()
        except (OSError, EOFError, ValueError):
            self.account.must_not("no answer at /health", self.gateway.complaint())
        family_rss = sum(_rss(member) for member in members)
        now = time.monotonic()
        self.samples.append(
            Sample(
                now, len(members) - 1, _descriptors(pid), _rss(pid), family_rss, tasks, self.present
            )
        )

    async def _reload(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_EVERY)
            self.file.write()
            self.account.counts["reloads"] += 1

    async def _kill(self) -> None:
        while True:
            await asyncio.sleep(KILL_EVERY * self.random.uniform(0.5, 1.5))
            victims = [
                (pid, name) for pid, _ in family(self.gateway.process.pid) if (name := name_of(pid))
            ]
            victims = [(pid, name) for pid, name in victims if BY_NAME[name].killed]
            if victims:
                pid, name = self.random.choice(victims)
                self.hit[name].append(time.monotonic())
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.account.counts["kills"] += 1

    # -- clients

    async def _slot(self) -> None:
        """One client after another, until the time is up."""
        while not self._stopping.is_set():
            try:
                await self._visit()
            except (Gone, OSError, EOFError, ValueError) as error:
                self.account.must_not("a client that could not come in", repr(error))
                await asyncio.sleep(0.5)
            except TimeoutError:
                self.account.must_not("a client that was not let in in time", "")
            await asyncio.sleep(self.random.random())

    async def _visit(self) -> None:
        front = self.random.choice(
            ("http", "http", "http", "sse", "websocket", "websocket", "stdio")
        )
        era: Era = "older" if front == "sse" else self.random.choice(("older", "modern"))
        askable = self.random.random() < 0.6
        if front == "stdio":
            if self._pipes.locked():
                front = "http"
            else:
                async with self._pipes:
                    await self._visit_by_pipe(era, askable)
                return
        name = self._name(f"{front}-{era}{'-askable' if askable else ''}")
        match front:
            case "sse":
                client: Client = SseClient(name, askable, self.account, self.port)
            case "websocket":
                client = SocketClient(name, era, askable, self.account, self.port)
            case _:
                client = HttpClient(name, era, askable, self.account, self.port)
        await self._stay(client, KINDS)

    def _name(self, kind: str) -> str:
        self._numbers += 1
        self.opened[kind] += 1
        return f"{kind}-{self._numbers}"

    async def _visit_by_pipe(self, era: Era, askable: bool) -> None:
        """A client that starts a gateway of its own, with servers of its own."""
        name = self._name(f"stdio-{era}{'-askable' if askable else ''}")
        kinds = [BY_NAME["quiet"], BY_NAME["asks"], BY_NAME["asks_modern"]]
        folder = self.folder / name
        folder.mkdir()
        file = ConfigFile(folder / "config.json", kinds, {})
        file.write()
        started = await Started.start(
            [*MCPX, str(file.path), "--transport", "stdio"], folder, pipes=True
        )
        members: list[Identity] = []
        try:
            await self._stay(PipeClient(name, era, askable, self.account, started.process), kinds)
            members = family(started.process.pid)
            if started.process.stdin is not None:
                started.process.stdin.close()
            await asyncio.wait_for(started.process.wait(), 20)
            if started.process.returncode != 0:
                self.account.must_not("a stdio gateway that ended badly", started.complaint())
        except TimeoutError:
            self.account.must_not("a stdio gateway that did not end", started.complaint())
        finally:
            await started.stop()
        await asyncio.sleep(0.5)
        if left := _alive(members):
            self.account.must_not("processes a stdio gateway left behind", f"{name}: {left}")

    async def _stay(self, client: Client, kinds: Sequence[Kind]) -> None:
        self.present += 1
        try:
            async with asyncio.timeout(BOUND):
                await client.open()
            for _ in range(self.random.randint(3, 15)):
                if self._stopping.is_set():
                    break
                await self._act(client, kinds)
                await asyncio.sleep(self.random.expovariate(2))
            if self.random.random() < 0.2:  # leaves in the middle of something
                going = asyncio.create_task(self._nap_and_forget(client, kinds))
                await asyncio.sleep(self.random.random() * 0.1)
                await client.close(politely=False)
                await asyncio.wait([going])
        finally:
            await client.close(politely=self.random.random() < 0.5)
            self.present -= 1

    async def _nap_and_forget(self, client: Client, kinds: Sequence[Kind]) -> None:
        kind = self._one_of(kinds, NAPS)
        try:
            await client.call(f"{kind.name}_nap", {"value": f"{client.name} leaves", "seconds": 2})
        except (Gone, OSError, EOFError):
            pass

    def _one_of(self, kinds: Sequence[Kind], names: Sequence[str]) -> Kind:
        chosen = [kind for kind in kinds if kind.name in names]
        return self.random.choices(chosen, [kind.weight for kind in chosen])[0]

    async def _act(self, client: Client, kinds: Sequence[Kind]) -> None:
        every = [kind.name for kind in kinds]
        match self.random.choices(
            ("echo", "burst", "ask", "roots", "cancel", "list"), (40, 15, 18, 10, 12, 5)
        )[0]:
            case "echo":
                await self._call(client, self._one_of(kinds, every), "echo")
            case "burst":
                together = [self._one_of(kinds, every) for _ in range(5)]
                await asyncio.gather(*(self._call(client, kind, "echo") for kind in together))
            case "ask":
                await self._call(client, self._one_of(kinds, ASKS), "ask")
            case "roots":
                if known := [name for name in ROOTS if name in every]:
                    await self._call(client, self._one_of(kinds, known), "roots")
            case "cancel":
                tool, names = self.random.choice((("nap", NAPS), ("ask", ASKS)))
                await self._cancel(client, self._one_of(kinds, names), tool)
            case _:
                async with asyncio.timeout(BOUND):
                    await client.request("tools/list", {})

    async def _cancel(self, client: Client, kind: Kind, tool: str) -> None:
        seconds = 3 if tool == "nap" else self.random.random() * 0.4
        calling = asyncio.create_task(self._call(client, kind, tool, seconds))
        await asyncio.sleep(self.random.random() * 0.2)
        calling.cancel()
        await asyncio.wait([calling])
        self.account.counts["cancelled"] += 1

    async def _call(self, client: Client, kind: Kind, tool: str, seconds: float = 0) -> None:
        self._numbers += 1
        value = f"{client.name} {kind.name} {self._numbers}"
        self.account.counts["calls"] += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(BOUND):
                reply = await client.call(
                    f"{kind.name}_{tool}", {"value": value, "seconds": seconds}
                )
        except TimeoutError:
            self.account.must_not(
                "never answered",
                f"{tool} of {kind.name} by {client.name}, {self._since_hit(kind, began)}",
            )
            return
        except (Gone, OSError, EOFError) as error:
            self.account.must_not(
                "the connection was lost", f"{tool} of {kind.name} by {client.name}: {error!r}"
            )
            return
        self._judge(client, kind, tool, value, reply, began)

    def _judge(
        self, client: Client, kind: Kind, tool: str, value: str, reply: Json, began: float
    ) -> None:
        words = (
            f"{tool} of {kind.name} by {client.name} got "
            f"{json.dumps(reply, ensure_ascii=False)[:250]}"
        )
        result = reply.get("result", {})
        content = result.get("content") or [{}]
        text = content[0].get("text", "")
        if "error" not in reply and not result.get("isError"):
            extra = {"ask": f" {client.name}", "roots": f" file:///{client.name}"}.get(tool, "")
            if text == value + extra:
                self.outcomes[kind.name, "answered"] += 1
                if tool == "echo":
                    self.latencies.append(time.monotonic() - began)
            else:
                self.account.must_not("a wrong answer", words)
        elif tool in ("ask", "roots") and result.get("isError") and not client.askable:
            self.outcomes[kind.name, "answered"] += (
                1  # the server's own words: it cannot ask, or was refused
            )
        elif not self._at_fault(kind, began):
            self.account.must_not(
                "refused without a cause", f"{words}, {self._since_hit(kind, began)}"
            )
        elif kind.name not in (json.dumps(reply["error"]) if "error" in reply else text):
            self.account.must_not("an error that does not name its server", words)
        else:
            self.outcomes[kind.name, "failed, and said so"] += 1

    def _at_fault(self, kind: Kind, began: float) -> bool:
        return kind.shaky or any(at > began - SHADOW for at in self.hit[kind.name])

    def _since_hit(self, kind: Kind, began: float) -> str:
        times = [began - at for at in self.hit[kind.name]]
        return f"its process was killed {times[-1]:.1f} s before" if times else "never killed"


# ---- start, end, tables


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@asynccontextmanager
async def started_gateway(folder: Path, options: argparse.Namespace) -> AsyncGenerator[Soak]:
    async with AsyncExitStack() as stack:
        ports: dict[str, int] = {}
        for kind in KINDS:
            if kind.http:
                ports[kind.name] = free_port()
                server = await Started.start(command(kind, "--port", str(ports[kind.name])), folder)
                stack.push_async_callback(server.stop)
                await listening(ports[kind.name], server)
        home = folder / "gateway"
        home.mkdir()
        file = ConfigFile(home / "config.json", KINDS, ports)
        file.write()
        argv = [*MCPX, str(file.path), "--transport", "http", "--host", "127.0.0.1", "--port", "0"]
        gateway = await Started.start(argv, home)
        stack.push_async_callback(gateway.stop)
        port = await _port_of(home / "stderr.log", gateway)
        soak = Soak(port, gateway, file, folder, options)
        await _all_started(soak)
        yield soak
        members = family(gateway.process.pid)
        gateway.process.terminate()
        try:
            await asyncio.wait_for(gateway.process.wait(), 20)
        except TimeoutError:
            soak.account.must_not("the gateway did not end", gateway.complaint())
        if gateway.process.returncode not in (0, None):
            soak.account.must_not("the gateway ended badly", gateway.complaint())
        await asyncio.sleep(1)
        if left := _alive(members):
            soak.account.must_not("processes the gateway left behind", f"{len(left)}: {left[:10]}")
        said = _read(home / "stderr.log")
        if (at := said.find("Traceback")) >= 0:
            soak.account.must_not("a traceback", said[max(0, at - 100) : at + 1500])


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


async def _port_of(log: Path, gateway: Started) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and gateway.running:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/mcp", _read(log)):
            return int(found[1])
        await asyncio.sleep(0.02)
    raise SystemExit(f"mcpx does not start: {gateway.complaint()}")


async def _all_started(soak: Soak) -> None:
    """As many processes as there are servers to start, or ten seconds."""
    wanted = {
        kind.name
        for kind in KINDS
        if not kind.http and not kind.keys.keys() & {"lazy", "isolation"}
    }
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if wanted <= {name_of(pid) for pid, _ in family(soak.gateway.process.pid)}:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(CALL_TIMEOUT + 1)


COLUMNS: dict[str, Callable[[Sample], float]] = {
    "clients": lambda sample: sample.clients,
    "processes": lambda sample: sample.processes,
    "descriptors": lambda sample: sample.descriptors,
    "MB of the gateway": lambda sample: sample.rss,
    "MB with its servers": lambda sample: sample.family_rss,
    "tasks": lambda sample: -1 if sample.tasks is None else sample.tasks,
}


def report(soak: Soak) -> str:
    samples = soak.samples
    first, last = samples[0], samples[-1]
    busy = [sample for sample in samples[1:] if sample.clients] or [first]
    minute = min(60.0, (busy[-1].at - busy[0].at) / 2 or 1.0)
    early = [sample for sample in busy if sample.at <= busy[0].at + minute]
    late = [sample for sample in busy if sample.at >= busy[-1].at - minute]
    rows: list[list[str]] = []
    for title, value in COLUMNS.items():
        if value(last) < 0:
            continue
        most = max(map(value, samples))
        numbers = (value(first), mean(map(value, early)), mean(map(value, late)), most, value(last))
        rows.append([title, *(f"{number:.0f}" for number in numbers)])
    lines = [
        table(["", "before", "first minute", "last minute", "most", "all left"], rows),
        f"{soak.account.counts['calls']} calls of {sum(soak.opened.values())} clients, "
        + ", ".join(
            f"{number} {what}" for what, number in soak.account.counts.items() if what != "calls"
        ),
    ]
    if len(soak.latencies) > 1:
        cuts = quantiles(soak.latencies, n=100)
        lines.append(f"echo: median {cuts[49] * 1000:.0f} ms, 99 % {cuts[98] * 1000:.0f} ms")
    outcomes = [
        [name, *(str(soak.outcomes[name, how]) for how in ("answered", "failed, and said so"))]
        for name in BY_NAME
    ]
    lines.append(table(["server", "answered", "failed, and said so"], outcomes))
    for what, number in soak.account.wrong.most_common():
        lines.append(f"WRONG: {what}: {number}")
        lines += [f"    {words}" for words in soak.account.examples[what]]
    return "\n".join(lines) + "\n"


def judge_rest(soak: Soak) -> None:
    """After everybody left: what is more than before the first came."""
    first, last = soak.samples[0], soak.samples[-1]
    if last.processes > first.processes + 2:  # the lazy one may be awake, one may be starting anew
        names = Counter(name_of(pid) or "?" for pid, _ in family(soak.gateway.process.pid)[1:])
        soak.account.must_not(
            "processes that stay", f"{first.processes} before, {last.processes} after: {names}"
        )
    if last.descriptors > first.descriptors + 20:
        soak.account.must_not(
            "descriptors that stay", f"{first.descriptors} before, {last.descriptors} after"
        )


async def soaked(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="mcpx-soak-", ignore_cleanup_errors=True) as name:
        async with started_gateway(Path(name), options) as soak:
            await soak.run()
            judge_rest(soak)
    sys.stdout.write(report(soak))
    say("nothing was wrong" if not soak.account.wrong else "see WRONG above")
    return 1 if soak.account.wrong else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=_between(0.1, 24 * 60), default=20.0, help="default 20")
    parser.add_argument(
        "--clients", type=int, default=50, choices=range(1, 501), metavar="N", help="default 50"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of what is chosen at random; timing is the machine's own",
    )
    text = (
        f"seconds beyond the {LINK_IDLE:g} of link_idle for everything to come to rest, default 20"
    )
    parser.add_argument("--rest", type=float, default=20.0, help=text)
    options = parser.parse_args(arguments)
    random.seed(options.seed)
    return asyncio.run(_until_signal(soaked(options)))


def _between(least: float, most: float) -> Callable[[str], float]:
    def minutes(text: str) -> float:
        if not least <= float(text) <= most:
            raise argparse.ArgumentTypeError(f"between {least:g} and {most:g}")
        return float(text)

    return minutes


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
