"""LIF-7: child processes are owned; they and all their descendants end on every exit path, and
nobody else does."""

import asyncio
import contextlib
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kit.until import until, wait_until
from mcpx.processes import child as ending
from mcpx.processes import keeper, process
from mcpx.processes.process import Child, Spawn, spawn
from mcpx.processes.stderrlog import StderrLog
from mcpx.processes.systems import linux as descendants
from mcpx.processes.systems.tree import Tree

pytestmark = pytest.mark.needs("proc")

PROGRAMS = Path(__file__).with_name("programs")
PATIENCE = 20.0
"""Seconds for anything to happen on a busy machine. What should end by itself never would, or only
after a minute."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Name = tuple[int, int]


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(loop_kind: str) -> Iterator[Run]:
    """Run a coroutine on the loop under test; whatever it started is ended, and it is checked that
    it is."""
    with asyncio.Runner(
        loop_factory=uvloop.new_event_loop if loop_kind == "uvloop" else None
    ) as runner:
        try:
            yield runner.run
        finally:
            runner.run(process.end_all())
            assert [pid for pid in pids() if process.RUN in environ(pid)] == []
            assert children() == []


@pytest.fixture
def clean_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that means to end with its input does so, however long a busy machine takes over
    it."""
    monkeypatch.setattr(ending, "EOF_GRACE", 2 * PATIENCE)
    monkeypatch.setattr(ending, "END_BOUND", 3 * PATIENCE)


class Heard:
    """What the three callbacks heard, in order."""

    def __init__(self) -> None:
        self.out = b""
        self.err = b""
        self.codes: list[int] = []
        self.out_at_exit = b""
        self.err_at_exit = b""
        self.news = asyncio.Event()

    def on_stdout(self, data: bytes) -> None:
        self.out += data
        self.news.set()

    def on_stderr(self, data: bytes) -> None:
        self.err += data
        self.news.set()

    def on_exit(self, code: int) -> None:
        self.codes.append(code)
        self.out_at_exit, self.err_at_exit = self.out, self.err
        self.news.set()

    async def until(self, condition: Callable[["Heard"], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                self.news.clear()
                await self.news.wait()


async def start(heard: Heard, command: str, *args: str, env: dict[str, str] | None = None) -> Child:
    spec = Spawn(command, args, dict(os.environ) if env is None else env, None)
    return await spawn(
        spec, on_stdout=heard.on_stdout, on_stderr=heard.on_stderr, on_exit=heard.on_exit
    )


async def start_family(heard: Heard, notes: Path, *words: str) -> Child:
    """Returns when the server and its relatives are ready."""
    child = await start(
        heard, sys.executable, "-I", "-S", str(PROGRAMS / "family.py"), str(notes), *words
    )
    child.write(b"hello\n")
    if "crashes" not in words:
        await heard.until(lambda heard: heard.out == b"hello\n")
    return child


def noted(notes: Path, *names: str) -> list[Name]:
    found: list[Name] = []
    for name in names:
        pid, start = (notes / name).read_text().split()
        found.append((int(pid), int(start)))
    return found


def alive(names: list[Name]) -> list[Name]:
    stats = [(name, descendants.read_stat(name[0])) for name in names]
    return [
        name for name, stat in stats if stat is not None and stat.start == name[1] and stat.alive
    ]


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def children(of: int | None = None) -> list[int]:
    """Zombies included. Those of the suite itself that other tests keep are not ours to judge: none
    carries a session of its own."""
    own = of or os.getpid()
    stats = {pid: descendants.read_stat(pid) for pid in pids()}
    return [pid for pid, stat in stats.items() if stat and stat.ppid == own and stat.session == pid]


def stranger(env: dict[str, str] | None = None, **options: Any) -> "subprocess.Popen[bytes]":
    """Somebody who is not ours."""
    return subprocess.Popen(["sleep", "1000"], env=env, **options)


# --- one child


def test_the_graces_leave_time_to_kill_within_three_seconds() -> None:
    """LIF-7: the bound on an ending; the tests of endings below only see that they come."""
    assert ending.EOF_GRACE + ending.TERM_GRACE + 0.5 <= ending.END_BOUND < 3.0


@pytest.mark.usefixtures("clean_exits")
def test_a_server_that_ends_with_its_input_ends_cleanly_and_at_once(
    run: Run, tmp_path: Path
) -> None:
    """LIF-7: the grace, here longer than our patience, is not waited out."""

    async def main() -> None:
        heard = Heard()
        child = await start_family(heard, tmp_path)
        async with asyncio.timeout(PATIENCE):
            await child.end()
        assert child.returncode == 0 and child.exited.result() == 0 and heard.codes == [0]
        await child.end()
        child.write(b"into the void")
        await child.drain()
        assert heard.codes == [0]

    run(main())


def test_a_child_has_its_own_session_real_pipes_and_no_descriptor_of_ours(
    run: Run, tmp_path: Path
) -> None:
    """LIF-7: a script that writes to /dev/stderr works, and nothing of the gateway leaks into
    it."""

    async def main() -> None:
        heard = Heard()
        extra, _ = pair = os.pipe()
        os.set_inheritable(extra, True)
        # Into a file: for a pipe the shell would hold descriptors of its own, a moment longer or
        # shorter.
        script = (
            "cut -d' ' -f6 /proc/$$/stat; echo ouch >/dev/stderr; ls /proc/$$/fd "
            f">'{tmp_path}/fds'; true"
        )
        child = await start(heard, "sh", "-c", script)
        await heard.until(lambda heard: bool(heard.codes))
        assert int(heard.out) == child.pid
        assert heard.err == b"ouch\n"
        fds = (tmp_path / "fds").read_text().split()
        assert fds in (["0", "1", "2"], ["0", "1", "10", "2"])  # dash may keep its own at 10
        for fd in pair:
            os.close(fd)

    run(main())


def test_exit_is_told_once_after_all_output_and_with_the_signal_that_caused_it(run: Run) -> None:
    """LIF-7"""

    async def main() -> None:
        heard = Heard()
        script = "head -c 1000000 /dev/zero; echo last words >&2; kill -9 $$"
        child = await start(heard, "sh", "-c", script)
        await heard.until(lambda heard: bool(heard.codes))
        assert heard.codes == [-9] and child.returncode == -9
        assert len(heard.out_at_exit) == 1_000_000 and heard.err_at_exit == b"last words\n"
        await child.end()
        assert heard.codes == [-9]

    run(main())


def test_what_was_said_last_is_heard_before_the_exit_by_a_process_that_was_held_up(
    run: Run,
) -> None:
    """LIF-7: for longer than it waits for a descendant that is never quiet."""

    async def main() -> None:
        heard, loop = Heard(), asyncio.get_running_loop()
        told = heard.on_stdout

        def slowly(data: bytes) -> None:
            time.sleep(0.002)
            told(data)

        heard.on_stdout = slowly
        child = await start(heard, "head", "-c", "60000", "/dev/zero")
        child.exited.add_done_callback(lambda _: loop.call_soon(time.sleep, ending.END_BOUND + 0.5))
        await heard.until(lambda heard: bool(heard.codes))
        assert len(heard.out_at_exit) == 60_000
        await child.end()

    run(main())


def test_exit_is_not_held_up_by_a_grandchild_that_holds_the_output(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-7: it is told of while the grandchild still has the time it is given to end."""
    monkeypatch.setattr(ending, "TERM_GRACE", 2 * PATIENCE)
    monkeypatch.setattr(ending, "END_BOUND", 3 * PATIENCE)

    async def main() -> None:
        heard = Heard()
        child = await start_family(heard, tmp_path, "clinger", "crashes")
        await heard.until(lambda heard: bool(heard.codes))
        clinger = noted(tmp_path, "clinger")
        assert heard.codes == [3] and heard.err_at_exit == b"last words\n"
        assert alive(clinger) == clinger
        os.kill(clinger[0][0], signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            await child.end()
        assert alive(clinger) == []

    run(main())


@pytest.mark.parametrize(
    ("command", "cwd", "error"),
    [
        ("no-such-command-anywhere", None, FileNotFoundError),
        ("/no/such/command", None, FileNotFoundError),
        ("", None, FileNotFoundError),
        ("/etc/passwd", None, PermissionError),
        ("/etc", None, PermissionError),
        ("cat", "/no/such/folder", FileNotFoundError),
        ("cat", "/etc/passwd", NotADirectoryError),
    ],
)
def test_a_command_that_cannot_run_is_refused_as_what_it_is(
    run: Run, command: str, cwd: str | None, error: type[OSError]
) -> None:
    """LIF-7"""

    async def main() -> None:
        heard = Heard()
        spec = Spawn(command, (), dict(os.environ), cwd)
        with pytest.raises(error) as caught:
            await spawn(
                spec, on_stdout=heard.on_stdout, on_stderr=heard.on_stderr, on_exit=heard.on_exit
            )
        assert caught.value.filename == (cwd or command)

    run(main())


def test_arguments_and_names_no_system_can_carry_are_refused(run: Run) -> None:
    """LIF-7"""

    async def main() -> None:
        for args, env in ((("a\0b",), {}), ((), {"A": "b\0"}), ((), {"A=B": "c"})):
            with pytest.raises(OSError, match="NUL"):
                await start(Heard(), "/bin/cat", *args, env=env)

    run(main())


def test_the_command_is_looked_up_in_the_childs_path_and_folder(run: Run, tmp_path: Path) -> None:
    """LIF-7"""

    async def main() -> None:
        (tmp_path / "bin").mkdir()
        tool = tmp_path / "bin" / "only-here"
        tool.write_text("#!/bin/sh\npwd\n")
        tool.chmod(0o755)
        for command, path in (
            ("only-here", str(tool.parent)),
            ("bin/only-here", "/usr/bin"),
            ("only-here", "bin"),
        ):
            heard = Heard()
            spec = Spawn(command, (), {"PATH": path}, str(tmp_path))
            await spawn(
                spec, on_stdout=heard.on_stdout, on_stderr=heard.on_stderr, on_exit=heard.on_exit
            )
            await heard.until(lambda heard: bool(heard.codes))
            assert heard.out.decode().strip() == str(tmp_path)

    run(main())


def test_a_child_that_does_not_read_is_congested_and_one_that_is_gone_is_not(run: Run) -> None:
    """LIF-7"""

    async def main() -> None:
        heard = Heard()
        child = await start(heard, "sleep", "1000")
        assert not child.congested
        child.write(b"x" * 1_000_000)
        assert child.congested
        drained = asyncio.create_task(child.drain())
        await asyncio.sleep(0)
        assert not drained.done()
        await child.end()
        async with asyncio.timeout(PATIENCE):
            await drained
        assert not child.congested

        child = await start(heard, "cat")
        child.write(b"x" * 1_000_000)
        async with asyncio.timeout(PATIENCE):
            await child.drain()
        await heard.until(lambda heard: len(heard.out) == 1_000_000)

    run(main())


def test_writing_to_a_child_that_closed_its_input_is_quiet(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """LIF-7"""

    async def main() -> None:
        heard = Heard()
        child = await start(heard, "sh", "-c", "exec <&-; echo closed; exec sleep 1000")
        await heard.until(lambda heard: heard.out == b"closed\n")
        for _ in range(20):
            child.write(b"x" * 100_000)
        async with asyncio.timeout(PATIENCE):
            await child.drain()
        child.write(b"x")
        assert not child.congested and heard.codes == []

    run(main())
    assert caplog.records == []


def test_a_flood_on_stderr_leaves_the_loop_and_the_log_alone(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """LIF-7"""
    caplog.set_level(logging.INFO)

    async def main() -> None:
        log = StderrLog("noisy")
        size = at_once = most_at_once = 0
        heard = Heard()

        def on_stderr(data: bytes) -> None:
            nonlocal size, at_once, most_at_once
            size += len(data)
            at_once += len(data)
            most_at_once = max(most_at_once, at_once)
            log.feed(data)

        async def turn() -> None:
            nonlocal at_once
            while True:
                at_once = 0
                await asyncio.sleep(0)

        spec = Spawn("sh", ("-c", "yes flooding >&2 & exec cat"), dict(os.environ), None)
        child = await spawn(
            spec, on_stdout=heard.on_stdout, on_stderr=on_stderr, on_exit=heard.on_exit
        )
        turning = asyncio.create_task(turn())
        while size < 10_000_000:  # a million lines, and more than twice what one turn may take
            heard.out = b""
            child.write(b"ping\n")
            await heard.until(lambda heard: heard.out == b"ping\n")
        turning.cancel()
        assert most_at_once <= 4 * 1024 * 1024  # in one turn of the loop; then others have theirs
        whole, last = log.tail(2)
        assert whole == "flooding"
        assert whole.startswith(last)  # of which the rest is yet to be worked off
        await child.end()

    run(main())
    assert len(caplog.records) < 1000


# --- the tree


@pytest.mark.parametrize(
    "words",
    [
        ("deaf", "stays"),
        ("plain",),
        ("setsid",),
        ("daemon",),
        ("bare",),
        ("odd",),
        ("deaf", "stays", "plain", "setsid", "daemon", "bare", "stubborn", "holder", "odd"),
    ],
    ids=" ".join,
)
def test_end_leaves_nobody_behind(
    run: Run, tmp_path: Path, words: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """LIF-7"""
    if "stays" not in words:
        request.getfixturevalue("clean_exits")

    async def main() -> None:
        heard = Heard()
        child = await start_family(heard, tmp_path, *words)
        everyone = noted(tmp_path, "server", *(set(words) - {"deaf", "stays"}))
        assert len(alive(everyone)) == len(everyone)
        async with asyncio.timeout(PATIENCE):
            await child.end()
        assert alive(everyone) == []
        assert heard.codes == [-9 if "deaf" in words else 0]

    run(main())


@pytest.mark.parametrize("word", ["plain", "setsid", "daemon", "bare", "stubborn", "holder"])
def test_a_server_that_exits_by_itself_leaves_nobody_behind(
    run: Run, tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-7: nobody calls `end`. One that left the session and has no mark must have been seen
    before."""
    monkeypatch.setattr(process, "CENSUS", 0.1)

    async def main() -> None:
        heard = Heard()
        child = await start_family(heard, tmp_path, word)
        everyone = noted(tmp_path, "server", word)

        def seen() -> bool:
            child.write(
                b"hello\n"
            )  # a survey is made only after traffic, and on a busy machine one may see too little
            return everyone[1][0] in child.tree.alive

        await until(seen)
        os.kill(child.pid, signal.SIGKILL)
        await heard.until(lambda heard: bool(heard.codes))
        await until(lambda: alive(everyone) == [])

    run(main())


@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "setsid",
        "daemon",
        pytest.param("bare", marks=pytest.mark.needs("linux")),
        "stubborn",
    ],
)
def test_a_server_that_crashes_at_once_leaves_nobody_behind(
    run: Run, tmp_path: Path, word: str
) -> None:
    """LIF-7"""

    async def main() -> None:
        heard = Heard()
        child = await start_family(heard, tmp_path, word, "crashes")
        await heard.until(lambda heard: heard.codes == [3])
        async with asyncio.timeout(PATIENCE):
            await child.end()
        assert alive(noted(tmp_path, word)) == []

    run(main())


def test_a_server_that_turns_itself_into_a_daemon_is_ended(run: Run) -> None:
    """LIF-7: the hardest moment is its making, when the parent is just gone and the child not yet
    there."""
    script = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execv("/bin/sleep", ["sleep", "1000"])
os._exit(0)
"""

    async def main() -> None:
        async def life() -> None:
            heard = Heard()
            child = await start(heard, sys.executable, "-I", "-S", "-c", script)
            await heard.until(lambda heard: heard.codes == [0])
            await child.end()
            assert [pid for pid in pids() if child.tree.token in descendants.tokens(pid)] == []

        for _ in range(10):
            await asyncio.gather(*(life() for _ in range(4)))

    run(main())


def test_a_stopped_child_is_ended(run: Run, tmp_path: Path) -> None:
    """LIF-7"""

    async def main() -> None:
        child = await start_family(Heard(), tmp_path, "plain")
        everyone = noted(tmp_path, "server", "plain")
        for pid, _ in everyone:
            os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            await child.end()
        assert alive(everyone) == []

    run(main())


def test_an_ending_is_finished_though_nobody_waits_for_it(run: Run, tmp_path: Path) -> None:
    """LIF-7"""

    async def main() -> None:
        child = await start_family(Heard(), tmp_path, "deaf", "stays", "stubborn")
        everyone = noted(tmp_path, "server", "stubborn")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await child.end()
        async with asyncio.timeout(PATIENCE):
            await child.end()
        assert alive(everyone) == []

    run(main())


def test_a_start_that_is_cancelled_leaves_nobody_behind(run: Run) -> None:
    """LIF-7"""

    async def main() -> None:
        heard = Heard()
        task = asyncio.create_task(start(heard, "sleep", "1000"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(PATIENCE):
            await process.end_all()
        assert children() == [] and heard.codes == []

    run(main())


def test_only_what_is_certainly_ours_is_ended(run: Run, tmp_path: Path) -> None:
    """LIF-7: not what has another run's mark, our mark under another name or as a part, or a reused
    pid."""

    async def main() -> None:
        child = await start_family(Heard(), tmp_path, "daemon")
        token = child.tree.token.decode()
        lookalikes = [
            {"GATEWAY_OWNER": token[:-1] + ("0" if token[-1] != "0" else "1")},
            {"GATEWAY_OWNER": "0" * 32 + token[32:]},
            {"GATEWAY_OWNER": token + "0"},
            {"GATEWAY_OWNER": "x" + token},
            {"OTHER_GATEWAY_OWNER": token},
            {"OTHER": f"GATEWAY_OWNER={token}"},
        ]
        others = [stranger(env, start_new_session=True) for env in lookalikes]
        others.append(stranger())
        # As if the pid of a descendant we once saw had been given to someone else.
        child.tree.alive[others[-1].pid] = 1
        descendants.send({others[-1].pid: 1}, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            await child.end()
        try:
            assert [other.poll() for other in others] == [None] * len(others)
        finally:
            for other in others:
                other.kill()
                other.wait()

    run(main())


def test_a_gateway_behind_a_gateway_leaves_both_able_to_find_theirs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-7"""
    monkeypatch.setenv("GATEWAY_OWNER", "outer.1")

    async def main() -> None:
        child = await start(Heard(), "cat")
        wait_until(lambda: descendants.tokens(child.pid) == [b"outer.1", child.tree.token])

    run(main())


# --- many


@pytest.mark.usefixtures("clean_exits")
def test_fifty_start_and_end_side_by_side(run: Run, tmp_path: Path) -> None:
    """LIF-7: all have been told to end before one of them has."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"setsid sleep 1000 & cat; echo told; read go <'{gate}'"

    async def main() -> None:
        heard = [Heard() for _ in range(50)]
        opened = os.open(gate, os.O_RDWR)
        await asyncio.gather(*(start(one, "sh", "-c", script) for one in heard))
        ended = asyncio.create_task(process.end_all())
        try:
            await asyncio.gather(
                *(one.until(lambda heard: heard.out == b"told\n") for one in heard)
            )
            assert [one.codes for one in heard] == [[]] * 50
        finally:
            os.write(opened, b"\n" * 50)
        async with asyncio.timeout(PATIENCE):
            await ended
        os.close(opened)
        assert [one.codes for one in heard] == [[0]] * 50

    run(main())


@pytest.mark.usefixtures("clean_exits")
def test_two_hundred_lives_leave_no_descriptor_no_zombie_and_no_thread(run: Run) -> None:
    """LIF-7"""

    async def main() -> None:
        async def life() -> None:
            heard = Heard()
            child = await start(heard, "cat")
            child.write(b"hello\n")
            await heard.until(lambda heard: heard.out == b"hello\n")
            await child.end()
            assert heard.codes == [0]

        for _ in range(10):
            await life()
        fds, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        for _ in range(20):
            await asyncio.gather(*(life() for _ in range(10)))
        assert len(os.listdir("/proc/self/fd")) <= fds
        assert len(asyncio.all_tasks()) == tasks
        assert children() == [process._KEEPER.pid]

    run(main())


# --- the end of the host


@contextlib.contextmanager
def host(loop_kind: str, end: str, notes: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    popen = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "host.py"), loop_kind, end, str(notes), *words],
        stderr=subprocess.PIPE,
    )
    try:
        wait_until(lambda: (notes / "host").exists() or popen.poll() is not None)
        yield popen
    finally:
        popen.kill()
        popen.communicate()


KIN = ("plain", "setsid", "daemon", "bare", "stubborn", "odd")


@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], ids=lambda sent: sent.name
)
def test_a_killed_host_leaves_nobody_behind(
    loop_kind: str, tmp_path: Path, sent: signal.Signals
) -> None:
    """LIF-7: also not the keeper."""
    with host(loop_kind, "waits", tmp_path, "deaf", "stays", *KIN) as popen:
        everyone = noted(tmp_path, "server", *KIN)
        [keeper_pid] = [pid for pid in children(popen.pid) if pid != everyone[0][0]]
        stat = descendants.read_stat(keeper_pid)
        assert stat is not None
        everyone.append((keeper_pid, stat.start))
        wait_until(lambda: ignores(keeper_pid, signal.SIGTERM))  # it has begun
        os.kill(keeper_pid, signal.SIGINT)  # Ctrl-C reaches many
        os.kill(keeper_pid, signal.SIGTERM)
        assert len(alive(everyone)) == len(everyone)
        popen.send_signal(sent)
        wait_until(lambda: alive(everyone) == [])


@pytest.mark.parametrize("end", ["raises", "returns", "exits", "clean"])
def test_a_host_that_ends_itself_leaves_nobody_behind(
    loop_kind: str, tmp_path: Path, end: str
) -> None:
    """LIF-7"""
    with host(loop_kind, end, tmp_path, "deaf", "stays", *KIN) as popen:
        _, stderr = popen.communicate(timeout=PATIENCE)
        everyone = noted(tmp_path, "server", *KIN)
        wait_until(lambda: alive(everyone) == [])
        assert popen.returncode == {"raises": 1, "returns": 0, "exits": 4, "clean": 0}[end]
        assert (stderr == b"") == (end != "raises"), stderr.decode()
        if end == "clean":
            mark = (tmp_path / "run").read_bytes()
            assert [pid for pid in pids() if mark in _cmdline(pid)] == []


def ignores(pid: int, number: signal.Signals) -> bool:
    [mask] = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigIgn:")
    ]
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def shells() -> list[list[str]]:
    found = [[name] for name in ("sh", "dash") if shutil.which(name)]
    found += [["bash", "--posix"]] if shutil.which("bash") else []
    return found + ([["busybox", "sh"]] if shutil.which("busybox") else [])


@pytest.mark.parametrize("shell", shells(), ids=" ".join)
def test_the_keeper_ends_what_is_marked_or_named_and_nobody_else(
    shell: list[str], tmp_path: Path
) -> None:
    """LIF-7: in every shell there is."""
    run, other = "1" * 32, "2" * 32
    marked = [stranger({"GATEWAY_OWNER": f"{run}.1"}, start_new_session=True)]
    family = [sys.executable, "-I", "-S", str(PROGRAMS / "family.py"), str(tmp_path)]
    env = {"GATEWAY_OWNER": f"outer.1,{run}.2"}
    marked.append(subprocess.Popen([*family, "stubborn", "odd"], env=env, stdin=subprocess.PIPE))
    bare = stranger({}, start_new_session=True)
    inside = subprocess.Popen(
        ["sh", "-c", "env -i sleep 1000 & env -i setsid sleep 1001 & wait"],
        env={},
        start_new_session=True,
    )
    others = [stranger({"GATEWAY_OWNER": f"{other}.1"}, start_new_session=True)]
    others.append(stranger({"A": run}, start_new_session=True))
    mine = [bare, inside, *marked]
    try:
        wait_until(lambda: (tmp_path / "server").exists())
        names = [
            (popen.pid, stat.start) for popen in mine if (stat := descendants.read_stat(popen.pid))
        ]
        wait_until(lambda: len(descendants.survey([Tree(*names[1], b"none")])[0]) == 3)
        names += descendants.survey([Tree(*names[1], b"none")])[0].items()
        names += noted(tmp_path, "stubborn", "odd")
        guard = subprocess.Popen(
            [*shell, "-c", keeper.SCRIPT, "mcpx-keeper", run], stdin=subprocess.PIPE
        )
        told = [f"{pid}:{start}" for pid, start in names[:2]] + [f"{others[0].pid}:1"]
        guard.communicate(
            b"\n1:2\n\n" + " ".join(told).encode() + b"\n\n9:9 cut off", timeout=PATIENCE
        )
        assert guard.returncode == 0
        assert alive(names) == []
        assert [popen.poll() for popen in others] == [None, None]
    finally:
        for popen in (*mine, *others):
            popen.kill()
            popen.communicate()


def test_the_keeper_goes_at_once_when_all_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-7: by itself, and without one of the pauses it makes when there is somebody to end."""
    nap = tmp_path / "sleep"
    nap.write_text(f"#!/bin/sh\ntouch '{tmp_path}/slept'\n")
    nap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    async def main() -> None:
        guard = keeper.Keeper("3" * 32)
        guard.start()
        shell = guard._shell
        assert shell is not None
        guard.tell([(1, 1)])
        guard.tell([])
        await guard.close()
        assert guard.pid is None and shell.returncode == 0
        assert not (tmp_path / "slept").exists()
        await guard.close()

    asyncio.run(main())


def test_a_keeper_that_was_killed_is_replaced_at_the_next_start(run: Run) -> None:
    """LIF-7"""

    async def main() -> None:
        await start(Heard(), "cat")
        first = process._KEEPER.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: (stat := descendants.read_stat(first)) is None or not stat.alive)
        child = await start(Heard(), "cat")
        assert process._KEEPER.pid not in (None, first)
        await child.end()

    run(main())


@pytest.mark.needs("linux")
def test_as_process_one_it_reaps_the_orphans_that_fall_to_it() -> None:
    """LIF-7: in a container mcpx is often pid 1."""
    script = """
import asyncio, os, sys
from mcpx.processes import process
from mcpx.processes.systems import linux as descendants
process.CENSUS = 0.05
async def main():
    assert os.getpid() == 1
    orphans = "for i in 1 2 3; do sh -c 'setsid sleep 0.01 & echo $!'; done; exec cat"
    spec = process.Spawn("sh", ("-c", orphans), os.environ, None)
    told = bytearray()
    child = await process.spawn(spec, on_stdout=told.extend, on_stderr=print, on_exit=print)
    async with asyncio.timeout(20):
        while told.count(10) < 3: await asyncio.sleep(0.005)
        while any(descendants.read_stat(int(pid)) for pid in told.split()): await asyncio.sleep(0.005)
    await process.end_all()
asyncio.run(main())
"""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*command, "true"], capture_output=True).returncode
    ):
        pytest.skip("no namespaces here")
    done = subprocess.run(
        [*command, sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.needs("linux")
def test_descriptors_that_ran_out_neither_fail_an_ending_nor_make_it_forget(
    run: Run, tmp_path: Path
) -> None:
    """LIF-7: what cannot be looked at is not taken for gone."""

    async def main() -> None:
        child = await start_family(Heard(), tmp_path, "daemon")
        everyone = noted(tmp_path, "server", "daemon")
        descendants.RESERVE.fill()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        held = [os.dup(2)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, before[1]))
        try:
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.dup(2))
            await child.end()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for fd in held:
                os.close(fd)
        assert alive(everyone) == []

    run(main())


# ---- what a short program needs


def test_a_child_without_input_finds_an_empty_one_and_limits_and_its_end_is_told(run: Run) -> None:
    """LIF-7: as scripts are started."""

    async def go() -> tuple[bytes, list[str]]:
        heard, order = Heard(), list[str]()
        gone = asyncio.Event()

        def on_exit(code: int) -> None:
            order.append(f"exit {code}")
            heard.on_exit(code)

        def on_gone() -> None:
            order.append("gone")
            gone.set()

        # They are imposed right after the start: on a busy machine that may be later than its first
        # words.
        code = (
            "import resource, sys, time\n"
            "until = time.monotonic() + 10\n"
            "while resource.getrlimit(resource.RLIMIT_CORE)[1] and time.monotonic() < until: "
            "time.sleep(0.01)\n"
            "print(repr(sys.stdin.read()), resource.getrlimit(resource.RLIMIT_CORE))\n"
        )
        limits = {resource.RLIMIT_CORE: 0}
        spec = Spawn(
            sys.executable,
            ("-c", code),
            dict(os.environ),
            None,
            input=False,
            grace=0,
            limits=limits,
        )
        await spawn(
            spec,
            on_stdout=heard.on_stdout,
            on_stderr=heard.on_stderr,
            on_exit=on_exit,
            on_gone=on_gone,
        )
        async with asyncio.timeout(PATIENCE):
            await heard.until(lambda heard: bool(heard.codes))
            await gone.wait()
        return heard.out, order

    out, order = run(go())
    assert out == b"'' (0, 0)\n"
    assert sorted(order) == ["exit 0", "gone"]


def test_a_child_that_gets_no_grace_is_told_at_once(run: Run) -> None:
    """LIF-7: one that would never end with its input."""

    async def go() -> float:
        heard = Heard()
        spec = Spawn("sleep", ("300",), dict(os.environ), None, input=False, grace=0)
        child = await spawn(
            spec, on_stdout=heard.on_stdout, on_stderr=heard.on_stderr, on_exit=heard.on_exit
        )
        began = time.monotonic()
        await child.end()
        assert heard.codes == [-signal.SIGTERM]
        return time.monotonic() - began

    assert run(go()) < PATIENCE / 2


def test_what_confines_the_starting_thread_may_refuse(run: Run) -> None:
    """LIF-7: nothing is started then."""

    def refuse() -> None:
        raise PermissionError("not so")

    async def go() -> None:
        heard = Heard()
        spec = Spawn("sleep", ("300",), dict(os.environ), None, confine=refuse)
        with pytest.raises(PermissionError, match="not so"):
            await spawn(
                spec, on_stdout=heard.on_stdout, on_stderr=heard.on_stderr, on_exit=heard.on_exit
            )

    run(go())
    assert len(children()) == 1  # the keeper


@pytest.mark.parametrize("what", ["Child", "_limit_resources"])
def test_a_start_that_fails_after_the_program_began_leaves_nobody(
    run: Run, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-7: no descriptor may be left to look at it, and then nobody would own it."""
    begun: list[int] = []

    def fail(popen: Any, *_: object, **__: object) -> None:
        begun.append(popen if isinstance(popen, int) else popen.pid)
        raise OSError("too many open files")

    async def go() -> None:
        heard = Heard()
        monkeypatch.setattr(f"mcpx.processes.process.{what}", fail)
        spec = Spawn("sleep", ("300",), dict(os.environ), None, limits={resource.RLIMIT_CORE: 0})
        with pytest.raises(OSError, match="too many"):
            await spawn(
                spec, on_stdout=heard.on_stdout, on_stderr=heard.on_stderr, on_exit=heard.on_exit
            )

    before = len(os.listdir("/proc/self/fd"))
    run(go())
    assert len(begun) == 1 and begun[0] not in pids()
    assert len(os.listdir("/proc/self/fd")) <= before + 12  # the keeper, the reserve, the loop


# ---- whether a child has forked, and whether /proc can tell

NAMESPACE = ["unshare", "--user", "--map-root-user"]


def inside(*more: str) -> list[str]:
    command = [*NAMESPACE, *more]
    if (
        not shutil.which("unshare")
        or subprocess.run([*command, "true"], capture_output=True).returncode
    ):
        pytest.skip("no namespaces here")
    return command


@contextlib.contextmanager
def stranger_running(code: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One that has done all of it but for the `input` in the end."""
    pipe = subprocess.PIPE
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        code.replace("input()", "print(flush=True)\ninput()"),
    ]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        yield process
        process.kill()


@pytest.mark.needs("linux")
def test_a_process_that_has_started_anything_is_not_taken_for_one_that_has_not() -> None:
    """LIF-7: by a fork, a thread, or in a namespace of its own; nor once others were started."""
    quiet, loud = (
        "input()",
        "import threading, time\nthreading.Thread(target=time.sleep, args=[0]).start()\ninput()",
    )
    forks = "import os\nos.fork() or os._exit(0)\ninput()"
    for code in (loud, forks):
        with stranger_running(code) as process:
            assert descendants.has_forked(process.pid)
    with stranger_running(quiet) as process:
        subprocess.run(["true"], check=True)
        assert descendants.has_forked(process.pid)


@pytest.mark.needs("linux")
def test_a_number_that_the_kernel_does_not_tell_itself_is_not_believed(tmp_path: Path) -> None:
    """LIF-7: containers put a file over /proc/loadavg that is seconds old (lxcfs)."""
    told = tmp_path / "loadavg"
    told.write_text("0.00 0.00 0.00 1/1 1\n")
    script = f"""
import asyncio, os, subprocess, sys
sys.path[:0] = {sys.path!r}
subprocess.run(["mount", "--bind", {str(told)!r}, "/proc/loadavg"], check=True)
from mcpx.processes import process
async def main():
    code = 'echo "0.00 0.00 0.00 1/1 $$" > {told}; setsid sleep 300 > /dev/null 2>&1 < /dev/null & echo $!'
    over, heard = asyncio.Event(), []
    spec = process.Spawn("sh", ("-c", code), dict(os.environ), None, input=False, grace=0)
    await process.spawn(
        spec, on_stdout=heard.append, on_stderr=print, on_exit=lambda code: None, on_gone=over.set
    )
    await asyncio.wait_for(over.wait(), 20)
    pid = int(b"".join(heard))
    print(os.path.exists(f"/proc/{{pid}}/environ") and open(f"/proc/{{pid}}/stat").read().split()[2] not in "ZX")
    await process.end_all()
asyncio.run(main())
"""
    done = subprocess.run(
        [*inside("--mount"), sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_a_proc_that_counts_otherwise_is_not_used() -> None:
    """LIF-7: in a namespace of processes that kept the outer /proc, each number there is somebody
    else's."""
    script = f"""
import asyncio, os, sys
sys.path[:0] = {sys.path!r}
from mcpx.processes import process
from mcpx.processes.systems import system
async def main():
    spec = process.Spawn("sleep", ("300",), dict(os.environ), None, input=False, grace=0)
    codes = []
    child = await process.spawn(spec, on_stdout=print, on_stderr=print, on_exit=codes.append)
    await child.end()
    await process.end_all()
    print(system.NAME, codes)
asyncio.run(main())
"""
    command = [*inside("--pid", "--fork"), sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "posix [-15]\n", "")


@pytest.mark.needs("linux")
def test_the_process_started_last_is_a_runaway_only_if_it_is_of_the_tree() -> None:
    """LIF-7: nothing else is ever signalled."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            tree = Tree(1, 0, b"some-token")
            assert stranger.pid not in descendants.head(tree)
            descendants.chase(tree, 0.05)
            assert stranger.poll() is None
        finally:
            stranger.kill()
