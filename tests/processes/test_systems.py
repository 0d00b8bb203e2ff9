"""LIF-7: which file owns processes where, and what those promise that are not Linux's; Windows' own
calls aside, which are played by a stand-in, for they are nowhere but there."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.processes import keeper, signals
from mcpx.processes.environment import child_environment, find_program
from mcpx.processes.systems import posix, windows
from mcpx.processes.systems.tree import MARK, Popen, Tree
from mcpx.processes.systems.windows import command_line, quoted

# --- which


def test_linux_owns_by_proc_and_says_so_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    code = "from mcpx.processes.systems import system; print(system.NAME)"
    said = {
        forced: subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "MCPX_SYSTEM": forced},
            capture_output=True,
            text=True,
        ).stdout.strip()
        for forced in ("", "portable")
    }
    native = {"win32": "windows", "linux": "linux"}.get(sys.platform, "posix")
    assert said == {"": native, "portable": "windows" if sys.platform == "win32" else "posix"}


# --- ps


SAID = """\
    1     0     1 Ss   Tue Nov  3 09:05:07 2026 /sbin/launchd
  700     1   700 S    Tue Nov 17 23:29:05 2026 node server.js GATEWAY_OWNER=outer.1,run.00000001 HOME=/Users/me
  701   700   700 S    Tue Nov 17 23:29:06 2026 -
  702     1   702 S+   Tue Nov 17 23:29:06 2026 chrome GATEWAY_OWNER=run.00000001
  703     1   703 Z    Tue Nov 17 23:29:06 2026 (gone)
  704     1   704 S    Tue Nov 17 23:29:06 2026 look GATEWAY_OWNER=run.000000011
  705     1   705 S    Tue Nov 17 23:29:06 2026 grep run.00000001
  706   702   706 S    Tue Nov 17 23:29:07 2026 helper
"""


def test_ps_names_what_is_in_the_group_marked_or_a_child_of_such_and_nobody_else() -> None:
    rows = dict(posix._parsed(SAID))
    assert 703 not in rows and rows[700].start == 172329052026 and rows[1].start == 309050720_26
    tree = Tree(700, 0, b"run.00000001")
    assert sorted(posix._members(tree, {}, rows)) == [700, 701, 702, 706]
    assert tree.start == rows[700].start


def test_a_number_that_was_given_to_somebody_else_is_not_ours_any_more() -> None:
    rows = dict(posix._parsed(SAID))
    tree = Tree(700, 162329052026, b"none")
    assert posix._members(tree, {700: 162329052026, 705: 172329052026}, rows) == {
        705: 172329052026
    }  # a second off


@pytest.mark.parametrize(
    ("start", "other", "one"),
    [
        (172329052026, 172329052026, True),
        (172329592026, 172330002026, True),
        (172359592026, 180000002026, True),
        (172329052026, 172329072026, False),
        (72329052026, 172329052026, False),
    ],
)
def test_dates_a_second_apart_may_be_of_one_process(start: int, other: int, one: bool) -> None:
    assert posix.are_one(start, other) is one
    assert posix.are_one(other, start) is one


@pytest.mark.needs("programs", "ps")
def test_ps_tells_of_a_real_process_its_mark_its_group_and_its_start() -> None:
    env = {**os.environ, MARK: "run.7"}
    with subprocess.Popen(["sleep", "60"], env=env, start_new_session=True) as marked:
        try:
            rows = posix.table()
            assert rows is not None
            while b"run.7" not in posix.marks(rows[marked.pid].said):  # it is being started
                rows = posix.table()
                assert rows is not None
            assert (rows[marked.pid].group, rows[marked.pid].parent) == (marked.pid, os.getpid())
            tree = Tree(
                marked.pid,
                0,
                b"run.7",
                alive=posix._members(Tree(marked.pid, 0, b"run.7"), {}, rows),
            )
            assert posix.still_alive(tree)
            tree.alive = {marked.pid + 0: 1} | {
                os.getpid(): 1
            }  # as if both numbers had been given to others
            tree.pid = 0
            posix.kill(tree)
            assert marked.poll() is None
        finally:
            marked.kill()


@pytest.mark.needs("programs")
def test_without_ps_the_group_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posix, "_ps", lambda *words: "")
    child = posix.popen(["sh", "-c", "sleep 300 & echo $!; wait"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    inner = int(child.stdout.readline())
    tree = posix.tree(child, "token", 0)
    assert posix.survey([tree]) == [{child.pid: 0}]
    posix.kill(tree)
    assert child.wait(10) == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while posix._is_there(inner):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.stdout.close()


@pytest.mark.needs("programs", "ps")
def test_the_keeper_without_proc_ends_what_was_named_or_marked_and_nobody_else() -> None:
    run = "5" * 32
    groups: list[Popen] = []

    def start(env: dict[str, str] | None = None) -> Popen:
        groups.append(subprocess.Popen(["sleep", "300"], env=env, start_new_session=True))
        return groups[-1]

    named, marked, reused, other = (
        start(),
        start({MARK: f"x.1,{run}.3"}),
        start(),
        start({MARK: f"{run}9.1"}),
    )
    try:
        rows = posix.table()
        assert rows is not None
        told = f"{named.pid}:{rows[named.pid].start} {reused.pid}:1"
        guard = subprocess.Popen(
            ["/bin/sh", "-c", keeper.SCRIPT, "mcpx-keeper", run, "0", posix.LOOK],
            stdin=subprocess.PIPE,
        )
        guard.communicate(f"\n{told}\n".encode(), timeout=30)
        assert (named.wait(10), marked.wait(10)) == (-signal.SIGTERM, -signal.SIGTERM)
        assert (reused.poll(), other.poll()) == (None, None)
    finally:
        for popen in groups:
            popen.kill()
            popen.wait()


# --- signals


@pytest.mark.needs("signals")
@pytest.mark.parametrize("listen", [signals._by_loop, signals._by_python])
def test_signals_are_heard_in_the_loop(listen: Callable[..., None]) -> None:
    """LIF-8"""
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    heard: list[str] = []

    async def main() -> None:
        listen(lambda: heard.append("end"), lambda: heard.append("hang up"))
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
            said = len(heard)
            async with asyncio.timeout(10):
                while len(heard) == said:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    try:
        asyncio.run(main())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert heard == ["hang up", "end", "end"]


# --- Windows, in words and sizes


def test_structures_are_as_large_as_windows_expects_them() -> None:
    """On 64 bits; a wrong size is refused by Windows at the first start."""
    assert ctypes.sizeof(windows.BasicLimits) == 64
    assert ctypes.sizeof(windows.Limits) == 144
    assert windows.BasicLimits.flags.offset == 16
    assert windows.Pids.pids.offset == 8


class Kernel:
    """Stands in for Windows: jobs of real processes, which can be refused."""

    def __init__(self, *, refuses: bool = False, stuck: bool = False) -> None:
        self.refuses, self.stuck = refuses, stuck
        self.jobs: dict[int, list[subprocess.Popen[bytes]]] = {}
        self.said: list[str] = []
        self.started: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        argv: str | Sequence[str],
        *,
        creationflags: int,
        executable: str | None,
        **options: Any,
    ) -> Popen:
        assert creationflags & windows.SUSPENDED and creationflags & windows.NEW_GROUP
        assert bool(creationflags & windows.NO_WINDOW) is not self.has_console()
        self.started.append(subprocess.Popen(argv, **options))
        self.started[-1]._handle = len(self.started)  # type: ignore[attr-defined]
        self.said.append("start")
        return self.started[-1]

    def new_job(self) -> int:
        self.said.append("job")
        self.jobs[100 + len(self.jobs)] = []
        return 99 + len(self.jobs)

    def assign(self, job: int, process: int) -> bool:
        self.said.append("assign")
        if not self.refuses:
            self.jobs[job].append(self.started[process - 1])
        return not self.refuses

    def resume(self, process: int) -> bool:
        self.said.append("resume")
        return not self.stuck

    def pids(self, job: int) -> list[int]:
        return [popen.pid for popen in self.jobs[job] if popen.poll() is None]

    def terminate(self, job: int) -> None:
        self.said.append("terminate")
        for popen in self.jobs[job]:
            popen.kill()
            popen.wait()

    def close(self, job: int) -> None:
        self.said.append("close")
        self.terminate(job)
        del self.jobs[job]

    def has_console(self) -> bool:
        return True


def played(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> Kernel:
    monkeypatch.setattr(windows, "api", lambda: kernel)
    monkeypatch.setattr(windows, "_last_error", lambda: 5)
    return kernel


WAITS = [sys.executable, "-I", "-S", "-c", "input()"]


def test_a_child_of_windows_is_in_its_job_before_it_runs_and_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = played(monkeypatch, Kernel())
    child = windows.popen(WAITS, stdin=subprocess.PIPE)
    assert kernel.said == ["start", "job", "assign", "resume"]
    tree = windows.tree(child, "token", 0)
    assert windows.survey([tree]) == [{child.pid: 1}] and windows.still_alive(tree)
    windows.kill(tree)
    assert windows.survey([tree]) == [{}] and not windows.still_alive(tree)
    windows.release(tree)
    windows.release(tree)
    assert kernel.jobs == {} and kernel.said.count("close") == 1
    child.communicate()


def test_letting_go_of_a_child_of_windows_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, Kernel())
    child = windows.popen(WAITS, stdin=subprocess.PIPE)
    windows.release(windows.tree(child, "token", 0))
    assert child.poll() is not None
    child.communicate()


def test_a_child_that_windows_lets_into_no_job_is_ended_all_the_same_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = played(monkeypatch, Kernel(refuses=True))
    child = windows.popen(WAITS, stdin=subprocess.PIPE)
    assert "not owned as a whole" in caplog.text and kernel.jobs == {}
    tree = windows.tree(child, "token", 0)
    assert windows.survey([tree]) == [{child.pid: 1}]
    windows.kill(tree)
    child.communicate()
    assert windows.survey([tree]) == [{}]


def test_a_child_that_cannot_be_let_run_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = played(monkeypatch, Kernel(stuck=True))
    with pytest.raises(OSError, match="could not be let run"):
        windows.popen(WAITS, stdin=subprocess.PIPE)
    assert kernel.jobs == {} and kernel.started[0].returncode is not None
    kernel.started[0].communicate()


# --- what Windows runs


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("plain-1.2/x:y", "plain-1.2/x:y"),
        ("", '""'),
        ("two words", '"two words"'),
        ("C:\\dir\\", '"C:\\dir\\\\"'),
        ("a&calc", '"a&calc"'),
        ('"&calc.exe', '"""&calc.exe"'),
        ('\\"', '"\\\\"""'),
        ("%PATH%", '"%%cd:~,%PATH%%cd:~,%"'),
        ("größe 北京", '"größe 北京"'),
    ],
)
def test_arguments_of_a_batch_file_stay_arguments(word: str, said: str) -> None:
    assert quoted(word) == said


@given(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=("Cs",))))
def test_nothing_of_an_argument_stands_outside_of_quotes_that_cmd_could_take_for_its_own(
    word: str,
) -> None:
    text = quoted(word)
    outside = "".join(part for at, part in enumerate(text.split('"')) if at % 2 == 0)
    assert not set(outside) & set("&|<>^()%!;, \t=") and text.count('"') % 2 == 0


@pytest.mark.parametrize("word", ["a\nb", "a\r", "a\0"])
def test_a_line_break_is_not_given_to_a_batch_file(word: str) -> None:
    with pytest.raises(OSError, match="line break"):
        quoted(word)


def test_a_batch_file_is_run_by_the_systems_own_cmd_and_a_program_by_itself() -> None:
    environ = {"SYSTEMROOT": "D:\\Win"}
    line, program = command_line(["C:\\n\\npx.CMD", "-y", "a b"], environ)
    assert (line, program) == (
        'cmd.exe /e:ON /v:OFF /d /c ""C:\\n\\npx.CMD" -y "a b""',
        "D:\\Win\\System32\\cmd.exe",
    )
    assert command_line(["C:\\n\\node.exe", "a b"], environ) == (["C:\\n\\node.exe", "a b"], None)
    with pytest.raises(OSError, match="no name"):
        command_line(['C:\\a" & calc.cmd'], environ)


def test_npx_is_found_as_windows_spells_it(tmp_path: Path) -> None:
    """npm puts a shell script beside it, which Windows cannot run."""
    for name in ("npx", "npx.cmd", "uvx.exe", "run.py"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": str(tmp_path), "PATHEXT": ".COM;.EXE;.BAT;.CMD"}
    for command, found in (
        ("npx", "npx.cmd"),
        ("npx.cmd", "npx.cmd"),
        ("uvx", "uvx.exe"),
        ("uvx.EXE", None),
    ):
        if found is None:  # no other system takes capitals for small letters
            continue
        assert find_program(command, env, None, windows=True) == str(tmp_path / found)
    with pytest.raises(FileNotFoundError):
        find_program("run.py", env, None, windows=True)


def test_a_child_on_windows_gets_what_programs_need_there_under_one_spelling() -> None:
    own = {
        "Path": "C:\\a",
        "SystemRoot": "C:\\Windows",
        "APPDATA": "C:\\me",
        "SECRET": "x",
        "mcpx_token": "y",
    }
    given_env = child_environment(own, {"path": "C:\\b", "Own": "1"}, ("Secret",), windows=True)
    assert given_env == {
        "PATH": "C:\\b",
        "SYSTEMROOT": "C:\\Windows",
        "APPDATA": "C:\\me",
        "SECRET": "x",
        "OWN": "1",
    }


def test_every_system_offers_the_same() -> None:
    offered = {name for name in vars(windows) if not name.startswith("_")}
    needed = {
        *(
            "popen",
            "undo",
            "tree",
            "watch",
            "survey",
            "still_alive",
            "ask",
            "kill",
            "release",
            "has_forked",
        ),
        *(
            "branding",
            "runaway",
            "chase",
            "adopt_orphans",
            "adopting",
            "adopted",
            "reap_strays",
            "put_aside",
        ),
        *("NAME", "LOOK"),
    }
    assert needed <= offered and needed <= set(vars(posix))
