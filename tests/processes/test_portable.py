"""The ways of the other systems, gone on this one: `MCPX_SYSTEM=portable` takes away /proc, Unix
sockets, and signals and inherited pipes in the event loop. Each file of tests is run once more so,
by the real program and real processes.

LIF-7, LIF-8: what only Linux's way promises is marked `needs("linux")`, and skipped in these runs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.gateway import REPOSITORY

pytestmark = [pytest.mark.needs("linux"), pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("file", "expression"),
    [
        ("processes/test_process.py", "asyncio or host or shell"),
        ("processes/test_process.py", "uvloop and not host"),
        ("behaviour/test_process_life.py", ""),
        ("behaviour/test_stdio_rules.py", ""),
        ("surfaces/test_worker.py", ""),
        ("transports/test_stdio_transport.py", ""),
    ],
)
def test_promises_about_processes_and_streams_hold_without_anything_of_linux(
    file: str, expression: str, tmp_path: Path
) -> None:
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "COV_"))
    }
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                f"--basetemp={tmp_path / 'inner'}",
            ),
            *(str(REPOSITORY / "tests" / file), "-k", expression),
        ],
        cwd=REPOSITORY,
        env={**ours, "MCPX_SYSTEM": "portable"},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
