"""Test runner: runs pytest, then runs each failed test a second time.

Usage: python scripts/run_tests.py [pytest arguments]

The second run starts one pytest process per failed test, one after another. A test that passes in
the second run is flaky and does not fail the run. The runner also writes all durations to
`.durations.txt` and prints CPU and wall time. The last lines of the output list the errors of the
run, the flaky tests, and the tests that failed twice. The final line is `N passed, N failed, N
skipped`. The number of failures includes collection errors and is at least 1 if the run fails for
another reason.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

MAX_SECOND_RUNS = 50
"""If more tests fail in the first run, the cause is probably common to all of them."""
SECOND_RUN_TIMEOUT_SECONDS = float(os.environ.get("MCPX_TEST_RERUN_TIMEOUT", "1200"))
"""Limit for one pytest process. pytest-timeout normally ends a test earlier; the longest timeout
mark is 900 s."""
INTERRUPT_GRACE_SECONDS = 30
DURATIONS_FILE = Path(".durations.txt")
MIN_DURATION_SECONDS = 0.005  # The default of pytest's --durations-min.
PRINTED_DURATIONS = 50
PRECEDENCE = ("skipped", "passed", "failed")
"""A test can have several reports: phases, subtests, and the crash of its worker. The last of these
outcomes counts."""
PYTEST_PROCESS = "--pytest-process"


class Recorder:
    """pytest plugin that appends events to a JSON Lines file.

    The plugin is active in the process that starts the pytest-xdist workers, not in the workers, so
    a crashed worker loses no events. With `only`, pytest collects the file of that test and
    deselects all other tests. Comparing node IDs needs no quoting, unlike node IDs on the command
    line.
    """

    def __init__(self, path: str, only: str | None) -> None:
        self._file = open(path, "a", encoding="ascii")  # noqa: SIM115
        self._only = only

    def write(self, event: str, **values: Any) -> None:
        self._file.write(json.dumps({"event": event, **values}) + "\n")
        self._file.flush()

    @pytest.hookimpl
    def pytest_configure(self, config: pytest.Config) -> None:
        if self._only is not None:
            config.args = [str(config.rootpath / self._only.partition("::")[0])]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if self._only is not None:
            config.hook.pytest_deselected(
                items=[item for item in items if item.nodeid != self._only]
            )
            items[:] = [item for item in items if item.nodeid == self._only]

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.write("collected", ids=[item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.write("collected", ids=list(ids))

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self.write("collection", id=report.nodeid, outcome=report.outcome)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # pytest-xdist reports the crash of a worker as a failed report with the phase "???".
        crashed = report.node.gateway.id if report.when == "???" else None  # type: ignore[attr-defined]
        # A failure that the xfail mark expects has the outcome "skipped".
        as_expected = report.when == "call" and hasattr(report, "wasxfail") and report.skipped
        outcome = "passed" if as_expected else report.outcome
        duration = getattr(report, "duration", 0.0)
        self.write(
            "report",
            id=report.nodeid,
            phase=report.when,
            outcome=outcome,
            duration=duration,
            crashed_worker=crashed,
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        if error:
            self.write("worker_lost", worker=node.gateway.id, error=str(error))


def run_pytest_process(settings: dict[str, Any], arguments: list[str]) -> int:
    """Entry point of the child process that `run_pytest` starts."""
    scripts = str(Path(__file__).resolve().parent)
    sys.path[:] = [
        folder for folder in sys.path if folder != scripts
    ]  # Tests must not import modules from scripts/.
    sys.argv = ["pytest", *arguments]
    recorder = Recorder(settings["outcomes"], settings["only"])
    code = int(pytest.main(arguments, plugins=[recorder]))
    recorder.write("end", code=code)
    return code


@dataclass
class Outcomes:
    """The outcomes of one pytest process."""

    exit_code: int | None = None
    """None if pytest ended before the session was over, for example because a test ended the
    process."""
    collected: dict[str, None] = field(default_factory=dict)
    """Node IDs in the order of collection."""
    results: dict[str, str] = field(default_factory=dict)
    """Outcome by node ID: "failed" if any phase failed, else "passed" if the test was executed,
    else "skipped"."""
    collection_errors: dict[str, None] = field(default_factory=dict)
    skipped_files: set[str] = field(default_factory=set)
    lost_workers: dict[str, str] = field(default_factory=dict)
    """Workers that ended while no test ran, with the error. A worker that ended during a test is
    not listed."""
    durations: list[tuple[float, str, str]] = field(default_factory=list)
    """Seconds, phase, and node ID."""

    def ids(self, outcome: str) -> list[str]:
        return [test for test, result in self.results.items() if result == outcome]

    def add(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "collected":
                self.collected.update(dict.fromkeys(event["ids"]))
            case "collection" if event["outcome"] == "failed":
                self.collection_errors[event["id"]] = None
            case "collection":
                self.skipped_files.add(event["id"])
            case "report":
                self._add_report(event)
            case "worker_lost":
                self.lost_workers[event["worker"]] = event["error"]
            case "end":
                self.exit_code = event["code"]

    def _add_report(self, event: dict[str, Any]) -> None:
        test, outcome = event["id"], event["outcome"]
        executed = outcome != "passed" or event["phase"] == "call"
        if executed and PRECEDENCE.index(outcome) >= PRECEDENCE.index(
            self.results.get(test, "skipped")
        ):
            self.results[test] = outcome
        self.durations.append((event["duration"], event["phase"], test))
        if event["crashed_worker"] is not None:
            self.lost_workers.pop(event["crashed_worker"], None)

    def errors(self) -> Iterator[str]:
        """Reasons other than failed tests why the run must fail."""
        for name in self.collection_errors:
            yield f"cannot collect {name}. See the traceback above."
        for worker, error in self.lost_workers.items():
            yield f"worker {worker} ended while no test ran: {error}."
        failures = self.ids("failed")
        if self.exit_code is None:
            yield "pytest ended before the session was over. See the output above."
        elif (
            self.exit_code == pytest.ExitCode.TESTS_FAILED
            and not failures
            and not self.collection_errors
        ):
            yield "pytest exited with code 1, but no test failed. See the output above."
        elif (
            self.exit_code not in (0, 1, pytest.ExitCode.NO_TESTS_COLLECTED)
            and not self.collection_errors
        ):
            yield f"pytest exited with code {self.exit_code}. See the output above."
        unfinished = [test for test in self.collected if test not in self.results]
        if unfinished and not self.collection_errors:
            yield (
                f"{len(unfinished)} of {len(self.collected)} tests did not run, for example "
                f"{unfinished[0]}."
            )
        if not failures and not self.ids("passed"):
            yield (
                "no test was executed. Check the selection of tests and the reasons of skipped "
                "tests."
            )


def run_pytest(
    arguments: list[str], *, only: str | None = None, timeout: float | None = None
) -> Outcomes:
    """Run pytest in a child process. The process and its children are killed after `timeout`
    seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcomes.jsonl"
        settings = json.dumps({"outcomes": str(path), "only": only})
        command = [sys.executable, __file__, PYTEST_PROCESS, settings, *arguments]
        sys.stdout.flush()
        # A separate session makes it possible to kill the children of a test that hangs.
        process = subprocess.Popen(command, start_new_session=timeout is not None)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            sys.stdout.write(f"\npytest did not end within {timeout:g} s.\n")
            kill(process, group=True)
        except KeyboardInterrupt:
            if timeout is None:  # The terminal has sent the signal to pytest, too.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(INTERRUPT_GRACE_SECONDS)
            raise
        finally:
            kill(process, group=timeout is not None)
        outcomes = Outcomes()
        if path.exists():
            for line in path.read_text("ascii").splitlines():
                outcomes.add(json.loads(line))
        return outcomes


def kill(process: subprocess.Popen[bytes], *, group: bool) -> None:
    if process.poll() is not None:
        return
    if group and os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def run_second_time(arguments: list[str], tests: list[str]) -> tuple[list[str], list[str]]:
    """Run each test in a pytest process. Return the flaky tests and the tests that failed again."""
    flaky: list[str] = []
    failed: list[str] = []
    for number, test in enumerate(tests, start=1):
        sys.stdout.write(f"\nSecond run, test {number} of {len(tests)}: {test}\n")
        outcomes = run_pytest(
            [*arguments, "-n", "0"], only=test, timeout=SECOND_RUN_TIMEOUT_SECONDS
        )
        passed = outcomes.exit_code == 0 and outcomes.results == {test: "passed"}
        (flaky if passed else failed).append(test)
    return flaky, failed


def report_durations(durations: list[tuple[float, str, str]]) -> None:
    """Write all durations to a file and print the longest ones. Fixtures run in the phases setup
    and teardown."""
    rows = sorted((row for row in durations if row[0] >= MIN_DURATION_SECONDS), reverse=True)
    lines = [f"{seconds:.2f}s {phase:<8} {test}\n" for seconds, phase, test in rows]
    DURATIONS_FILE.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
    sys.stdout.write(
        f"\nSlowest {PRINTED_DURATIONS} of {len(lines)} durations (all are in {DURATIONS_FILE}):\n"
    )
    sys.stdout.write("".join(lines[:PRINTED_DURATIONS]))


def report_times(start_seconds: float) -> None:
    """Print the CPU time of the runner and of its descendants that have ended, and the wall time
    since the start."""
    times = os.times()
    user, system = times.user + times.children_user, times.system + times.children_system
    wall = time.monotonic() - start_seconds
    sys.stdout.write(
        f"\nCPU time: {user + system:.1f} s (user {user:.1f} s, system {system:.1f} s). Wall "
        f"time: {wall:.1f} s.\n"
    )


def run(arguments: list[str]) -> int:
    start_seconds = time.monotonic()
    first = run_pytest(arguments)
    errors = list(first.errors())
    failed = first.ids("failed")
    passed = len(first.ids("passed"))
    flaky: list[str] = []
    label = "failed"
    if len(failed) > MAX_SECOND_RUNS:
        errors.append(
            f"{len(failed)} tests failed. No test ran a second time because the limit is "
            f"{MAX_SECOND_RUNS}."
        )
    elif first.exit_code in (0, 1):
        label = "failed twice"
        flaky, failed = run_second_time(arguments, failed)
    report_durations(first.durations)
    report_times(start_seconds)
    lines = [f"error: {error}" for error in errors]
    lines += [f"flaky: {test}" for test in flaky]
    lines += [f"{label}: {test}" for test in failed]
    failures = len(failed) + len(first.collection_errors) or min(len(errors), 1)
    skipped = len(first.ids("skipped")) + len(first.skipped_files)
    lines.append(f"{passed + len(flaky)} passed, {failures} failed, {skipped} skipped")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    return 1 if failures else 0


def exit_on_sigterm(_number: int, _frame: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)  # The exception lets run_pytest kill its child process.


def main() -> int:
    if sys.argv[1:2] == [PYTEST_PROCESS]:
        return run_pytest_process(json.loads(sys.argv[2]), sys.argv[3:])
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    signal.signal(signal.SIGTERM, exit_on_sigterm)
    try:
        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
