"""How many files may be open: raised for us, not for our children. Each case runs in a process of
its own."""

import json
import subprocess
import sys
from typing import Any

import pytest

resource = pytest.importorskip("resource")

BEGIN = """
import json, os, resource, subprocess, sys
from mcpx.wire import descriptors
def limits(): return list(resource.getrlimit(resource.RLIMIT_NOFILE))
CHILD = [sys.executable, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"]
"""


def run(code: str, soft: int, hard: int) -> Any:
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
    done = subprocess.run(
        [sys.executable, "-c", limited + BEGIN + code], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_soft_limit_goes_up_to_the_hard_one() -> None:
    assert run(
        "print(json.dumps([descriptors.raise_limit(), descriptors.soft_limit(), *limits()]))",
        256,
        4000,
    ) == [
        4000,
        4000,
        4000,
        4000,
    ]


def test_a_limit_that_is_high_or_final_is_left_alone() -> None:
    assert run("print(json.dumps([descriptors.raise_limit(), *limits()]))", 64, 64) == [64, 64, 64]


def test_a_child_gets_the_limit_of_the_start_and_we_keep_ours() -> None:
    code = """
descriptors.raise_limit()
with descriptors.as_found():
    child = subprocess.run(CHILD, capture_output=True, text=True)
print(json.dumps([int(child.stdout), limits()[0]]))
"""
    assert run(code, 256, 4000) == [256, 4000]


def test_with_more_open_than_the_old_limit_a_child_can_still_be_started() -> None:
    code = """
descriptors.raise_limit()
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]
with descriptors.as_found():
    child = subprocess.Popen(["cat", "/proc/self/limits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
descriptors.give_back(child.pid)
child.communicate()
print(json.dumps([child.returncode, limits()[0]]))
"""
    assert run(code, 256, 4000) == [0, 4000]


def test_a_reserve_lets_something_be_looked_at_when_nothing_more_can_be_opened() -> None:
    code = """
reserve = descriptors.Reserve(2)
reserve.fill()
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error: assert descriptors.ran_out(error)
opening = lambda: os.open("/proc/self/stat", os.O_RDONLY)
got = [reserve.use(opening), reserve.use(opening)]
try: reserve.use(opening)
except OSError as error: got.append(descriptors.ran_out(error))
for fd in got[:2] : os.close(fd)
reserve.fill()
try: opening()
except OSError: got.append("full again")
print(json.dumps(got[2:]))
"""
    assert run(code, 64, 64) == [True, "full again"]
