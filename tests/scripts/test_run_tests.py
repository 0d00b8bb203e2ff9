"""`scripts/run_tests.py`: the second run of failed tests, the exit code, and the last lines of the
output."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

RUNNER = Path(__file__).resolve().parents[2] / "scripts" / "run_tests.py"
LIMIT_SECONDS = 110

SETTINGS = """
[pytest]
testpaths = tests
timeout = 60
disable_test_id_escaping_and_forfeit_all_rights_to_community_support = true
"""

HEADER = """
import os, time
from pathlib import Path

import pytest


def is_first(name):
    marker = Path(__file__).parents[1] / f"{name}.marker"
    first = not marker.exists()
    marker.touch()
    return first

"""

PASS_OR_SKIP = """
def test_passes():
    end = time.process_time() + 1
    while time.process_time() < end:
        pass

@pytest.fixture
def slow_fixture():
    time.sleep(0.5)
    yield
    time.sleep(0.25)

def test_uses_a_slow_fixture(slow_fixture):
    pass

@pytest.mark.xfail(strict=True)
def test_fails_as_expected():
    assert False

@pytest.mark.skip
def test_is_skipped():
    pass
"""

FAIL_ONCE = """
def test_passes():
    pass

@pytest.mark.parametrize("value", ["plain", "two words", "a[0]::b/c.py", "-k é 中"])
def test_fails(value):
    assert not is_first("fails " + value.replace("/", ""))

def test_ends_its_worker():
    if is_first("ends"):
        os._exit(0)

@pytest.mark.timeout(1, method="thread")
def test_hangs():
    if is_first("hangs"):
        time.sleep(60)

@pytest.fixture
def setup_fails():
    assert not is_first("setup")

@pytest.fixture
def teardown_fails():
    yield
    assert not is_first("teardown")

def test_setup(setup_fails):
    pass

def test_teardown(teardown_fails):
    pass
"""

FAIL_TWICE = """
def test_passes():
    pass

def test_fails():
    assert False

def test_ends_its_worker():
    os._exit(0)

@pytest.mark.timeout(1, method="thread")
def test_hangs():
    time.sleep(60)

@pytest.mark.timeout(0)
def test_hangs_without_a_timeout():
    assert not is_first("hangs")
    time.sleep(60)

@pytest.fixture
def teardown_fails():
    yield
    assert False

def test_teardown(teardown_fails):
    pass

def test_is_skipped_the_second_time():
    assert not is_first("skipped")
    pytest.skip("no result")
"""


@dataclass(frozen=True)
class Result:
    code: int
    output: str

    @property
    def last_lines(self) -> list[str]:
        """The lines after the last empty line."""
        return self.output.rstrip("\n").rpartition("\n\n")[2].splitlines()

    @property
    def second_runs(self) -> int:
        return self.output.count("\nSecond run, test ")


@dataclass(frozen=True)
class Project:
    """A project with one test file."""

    folder: Path

    def run(self, tests: str, *arguments: str, rerun_timeout_seconds: int = 60) -> Result:
        (self.folder / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
        (self.folder / "tests" / "test_x.py").write_text(HEADER + tests, encoding="utf-8")
        plugins = ("-p", "xdist.plugin", "-p", "pytest_timeout")
        command = [
            sys.executable,
            str(RUNNER),
            *plugins,
            "-n",
            "2",
            "--dist",
            "worksteal",
            *arguments,
        ]
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "COV_"))
        }
        environ = inherited | {
            # The tests need only two plugins, and the others load slowly.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONIOENCODING": "utf-8",
            "MCPX_TEST_RERUN_TIMEOUT": str(rerun_timeout_seconds),
        }
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=LIMIT_SECONDS,
        )
        return Result(done.returncode, done.stdout)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "tests").mkdir()
    return Project(tmp_path)


def test_passing_run_prints_a_summary_durations_and_cpu_time(project: Project) -> None:
    result = project.run(PASS_OR_SKIP)
    assert (result.code, result.last_lines) == (0, ["3 passed, 0 failed, 1 skipped"]), result.output
    assert result.second_runs == 0
    _, _, printed = result.output.partition("Slowest 50 of ")
    written = (project.folder / ".durations.txt").read_text("utf-8").splitlines()
    for line in (
        r"\d+\.\d\ds call     tests/test_x\.py::test_passes",
        r"0\.\d\ds setup    tests/test_x\.py::test_uses_a_slow_fixture",
        r"0\.\d\ds teardown tests/test_x\.py::test_uses_a_slow_fixture",
    ):
        assert re.search(f"^{line}$", printed, re.MULTILINE), result.output
        assert any(re.fullmatch(line, found) for found in written), written
    times = re.search(
        r"^CPU time: (\S+) s \(user \S+ s, system \S+ s\)\. Wall time: (\S+) s\.$",
        printed,
        re.MULTILINE,
    )
    assert times is not None, result.output
    if os.name == "posix":  # Windows does not report the CPU time of child processes.
        assert float(times[1]) >= 1
    assert float(times[2]) > 0


def test_test_that_passes_the_second_time_is_flaky(project: Project) -> None:
    result = project.run(FAIL_ONCE)
    assert result.code == 0, result.output
    *lines, summary = result.last_lines
    names = ["test_ends_its_worker", "test_hangs", "test_setup", "test_teardown"]
    names += [f"test_fails[{value}]" for value in ("plain", "two words", "a[0]::b/c.py", "-k é 中")]
    assert sorted(lines) == sorted(f"flaky: tests/test_x.py::{name}" for name in names), (
        result.output
    )
    assert summary == "9 passed, 0 failed, 0 skipped"


def test_test_that_does_not_pass_the_second_time_fails_the_run(project: Project) -> None:
    result = project.run(FAIL_TWICE, rerun_timeout_seconds=10)
    assert result.code == 1, result.output
    *lines, summary = result.last_lines
    names = ["test_fails", "test_ends_its_worker", "test_hangs", "test_hangs_without_a_timeout"]
    names += ["test_teardown", "test_is_skipped_the_second_time"]
    assert sorted(lines) == sorted(f"failed twice: tests/test_x.py::{name}" for name in names), (
        result.output
    )
    assert summary == "1 passed, 6 failed, 0 skipped"
    assert result.second_runs == 6
    assert "pytest did not end within 10 s." in result.output


@pytest.mark.parametrize(
    ("tests", "arguments", "skipped"),
    [
        ("def test_a(): pytest.skip()", (), 1),
        ("pytest.skip(allow_module_level=True)", (), 1),
        ("def test_a(): pass", ("-k", "other"), 0),
    ],
    ids=["skipped", "file skipped", "deselected"],
)
def test_run_without_an_executed_test_fails(
    project: Project, tests: str, arguments: tuple[str, ...], skipped: int
) -> None:
    result = project.run(tests, *arguments)
    assert result.code == 1, result.output
    error, summary = result.last_lines
    assert error.startswith("error: no test was executed.")
    assert summary == f"0 passed, 1 failed, {skipped} skipped"


def test_file_that_cannot_be_collected_fails_the_run(project: Project) -> None:
    (project.folder / "tests" / "test_broken.py").write_text(
        "import no_such_module", encoding="utf-8"
    )
    result = project.run("def test_a(): assert not is_first('a')")
    assert result.code == 1, result.output
    assert result.last_lines == [
        "error: cannot collect tests/test_broken.py. See the traceback above.",
        "flaky: tests/test_x.py::test_a",
        "1 passed, 1 failed, 0 skipped",
    ], result.output


def test_too_many_failures_are_not_run_again(project: Project) -> None:
    result = project.run("@pytest.mark.parametrize('n', range(51))\ndef test_a(n): assert False")
    assert result.code == 1, result.output
    error, *failed, summary = result.last_lines
    assert error == "error: 51 tests failed. No test ran a second time because the limit is 50."
    assert sorted(failed) == sorted(
        f"failed: tests/test_x.py::test_a[{number}]" for number in range(51)
    )
    assert summary == "0 passed, 51 failed, 0 skipped"
    assert result.second_runs == 0


def test_test_that_never_ran_fails_the_run(project: Project) -> None:
    """A worker that is not replaced leaves tests behind, while its crash itself is only a flaky
    test."""
    tests = (
        "@pytest.mark.parametrize('n', range(8))\ndef test_a(n):\n    if is_first(f'n{n}'): "
        "os._exit(1)"
    )
    result = project.run(tests, "--max-worker-restart", "0")
    assert result.code == 1, result.output
    error, *flaky, summary = result.last_lines
    assert re.match(
        r"error: \d of 8 tests did not run, for example tests/test_x\.py::test_a\[\d\]\.$", error
    )
    assert flaky and all(line.startswith("flaky: tests/test_x.py::test_a[") for line in flaky)
    assert summary == f"{len(flaky)} passed, 1 failed, 0 skipped"


def test_crash_of_a_worker_after_its_tests_fails_the_run(project: Project) -> None:
    (project.folder / "conftest.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "def pytest_sessionfinish(session):\n"
        "    marker = Path(__file__).parent / 'ended'\n"
        "    if hasattr(session.config, 'workerinput') and not marker.exists():\n"
        "        marker.touch()\n"
        "        os._exit(1)\n",
        encoding="utf-8",
    )
    result = project.run("def test_a(): pass\ndef test_b(): pass")
    assert result.code == 1, result.output
    error, summary = result.last_lines
    assert re.match(r"error: worker gw\d ended while no test ran: ", error)
    assert summary == "2 passed, 1 failed, 0 skipped"
