"""Runs the official conformance suite and reads its verdicts, check by check.

The suite writes one folder with a `checks.json` per scenario. A check's id may repeat within its
scenario (a loop over cases), so a verdict is named by scenario, id and the how-manieth it is of
that id.
"""

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.node import node, npm_bin

Verdicts = dict[tuple[str, str, int], str]
Named = dict[tuple[str, str], str]

PACKAGES = {"0.1.16": "conformance", "0.2.0-alpha.12": "conformance-next"}
LATEST = "0.2.0-alpha.12"

TIME_LIMIT = 100.0
"""Seconds for a whole server run, which takes 2 to 6. Lost notifications do not fail a run but hang
it."""

SCENARIO_LIMIT_MS = 15_000
CLIENT_LIMIT_MS = 60_000

PASSED, SKIPPED = "SUCCESS", "SKIPPED"
SEVERITY = (SKIPPED, "INFO", PASSED, "WARNING", "FAILURE")


@dataclass(frozen=True, slots=True)
class Run:
    """One way of running the suite against a server, and what a server that passes gets from it."""

    version: str
    spec: str | None
    passed: int

    @property
    def name(self) -> str:
        return self.version if self.spec is None else f"{self.version} at {self.spec}"


SERVER_RUNS = (
    Run("0.1.16", None, 40),
    Run("0.2.0-alpha.12", "2025-11-25", 84),
    Run("0.2.0-alpha.12", "2026-07-28", 152),
)


class SuiteError(RuntimeError):
    """The suite itself did not finish; the message holds the end of what it printed."""


def run(
    version: str, spec: str | None, url: str, out: Path, *, seconds: float = TIME_LIMIT
) -> Verdicts:
    """Every verdict of one suite version on the server at `url`. For 0.1.16 `spec` is None."""
    command = [node(), npm_bin(PACKAGES[version]), "server", "--url", url, "-o", str(out)]
    if spec is not None:
        command += ["--suite", "all", "--spec-version", spec, "--timeout", str(SCENARIO_LIMIT_MS)]
    printed = _finish(command, seconds)
    verdicts = read(out)
    if "=== SUMMARY ===" not in printed or not verdicts:
        raise SuiteError(f"{' '.join(command)}\n{printed[-4000:]}")
    return verdicts


def run_client(
    scenario: str,
    spec: str | None,
    command: str,
    out: Path,
    *,
    version: str = LATEST,
    seconds: float = TIME_LIMIT,
) -> Named:
    """The verdicts of one client scenario: the suite serves, and `command URL` is the client under
    test. For 0.1.16 `spec` is None.

    How often a client does a thing is its own affair, so equal checks are one here, the worst of
    them.
    """
    arguments = [node(), npm_bin(PACKAGES[version]), "client", "--command", command]
    arguments += ["--scenario", scenario, "-o", str(out), "--timeout", str(CLIENT_LIMIT_MS)]
    arguments += [] if spec is None else ["--spec-version", spec]
    printed = _finish(arguments, seconds)
    verdicts: Named = {}
    for _, check in _checks(out):
        key = check["id"], check["name"]
        verdicts[key] = max(verdicts.get(key, SKIPPED), check["status"], key=SEVERITY.index)
    if not verdicts or re.search(r"^Client (exited with code|timed out)", printed, re.MULTILINE):
        raise SuiteError(f"{' '.join(arguments)}\n{printed[-8000:]}")
    return verdicts


def _finish(command: list[str], seconds: float) -> str:
    """Run to the end and return what was printed; the exit code only repeats what the verdicts
    say."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that a client under test can be ended together with the suite
    ) as process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed = process.communicate()[0]
            raise SuiteError(
                f"not done after {seconds:.0f} s: {' '.join(command)}\n{printed[-4000:]}"
            ) from None


def read(out: Path) -> Verdicts:
    """The verdicts in a results folder."""
    verdicts: Verdicts = {}
    seen: Counter[tuple[str, str]] = Counter()
    for scenario, check in _checks(out):
        verdicts[scenario, check["id"], seen[scenario, check["id"]]] = check["status"]
        seen[scenario, check["id"]] += 1
    return verdicts


def _checks(out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(out.glob("**/checks.json")):
        folder = file.parent.relative_to(
            out
        ).as_posix()  # server-tools-list-2026-11-15T09-44-47-796Z
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder)
        for check in json.loads(file.read_text(encoding="utf-8")):
            if check["status"] != "INFO" or check.get(
                "specReferences"
            ):  # else the suite's log of the wire
                yield scenario, check


def count(verdicts: Verdicts, status: str) -> int:
    return sum(verdict == status for verdict in verdicts.values())


def differences(direct: Verdicts, through: Verdicts) -> list[str]:
    """Every check on which two runs disagree, as a line to read."""
    return [
        f"{scenario}: {check} #{nth}: {direct.get((scenario, check, nth), 'absent')} directly, "
        f"{through.get((scenario, check, nth), 'absent')} through mcpx"
        for scenario, check, nth in sorted(direct.keys() | through.keys())
        if direct.get((scenario, check, nth)) != through.get((scenario, check, nth))
    ]


def worse(direct: Named, through: Named) -> list[str]:
    """Every check of a client scenario on which mcpx gets less than the SDK's client, as a line to
    read.

    mcpx may do more than that client (a method it skipped), as long as it does it well.
    """
    lines = []
    for check, name in sorted(direct.keys() | through.keys()):
        expected, got = direct.get((check, name), SKIPPED), through.get((check, name), "absent")
        if got != expected and not (expected == SKIPPED and got in ("INFO", PASSED)):
            lines.append(f"{check} ({name}): {expected} directly, {got} through mcpx")
    return lines
