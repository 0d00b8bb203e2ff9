"""For every test: no property is judged by how long a busy machine takes over one example; what is slow as a whole;
what is begun first; what is left out where the system has not what it needs (`systems`); signals as a terminal leaves
them."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import systems

os.environ["MCPX_STANDALONE"] = "true"  # a test that wants a gateway to be shared says so: nothing outlives the others

for number in (signal.SIGINT, signal.SIGTERM, *(() if os.name == "nt" else (signal.SIGHUP,))):
    if signal.getsignal(number) == signal.SIG_IGN:  # `nohup`, or a script's background: what we start would inherit it
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")

HERE = Path(__file__).parent
BALANCED = tuple(f"replicas/test_{what}_balanced.py" for what in ("conformance", "matrix", "questions"))
SMOKE = ("bench/test_bench_smoke.py", "bench/test_soak_smoke.py", "bench/test_fuzz_smoke.py")
SLOW = [
    HERE / part
    for part in (
        *("attacks", "e2e", "conformance", "behaviour/test_matrix.py", "behaviour/test_portable.py", *SMOKE),
        *BALANCED,
    )
]
"""Many processes, all of the machine, or other people's programs: left out of the quick suite (`-m "not slow"`)."""

LONG = [
    HERE / part
    for part in (
        *("processes/test_portable.py", "behaviour/test_matrix.py", "replicas/test_matrix_balanced.py", "processes"),
        *("conformance", "replicas", "attacks", "cli/test_using.py", "behaviour", "web", "e2e", "packaging", "bench"),
    )
]
"""Begun first where several workers share the tests, in this order: a file is one worker's from its beginning to its
end, and no worker should begin a long one when the others are done."""


def turn(item: pytest.Item) -> int:
    """Whose file is begun first."""
    return next((number for number, part in enumerate(LONG) if item.path.is_relative_to(part)), len(LONG))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=turn)
    for item in items:
        if any(item.path.is_relative_to(part) for part in SLOW):
            item.add_marker(pytest.mark.slow)
    systems.skip(items)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if systems.is_left_out(collection_path) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, module in sorted(systems.left_out.items()):
        terminalreporter.write_line(f"left out: {name} (imports {module}, which is not there)")
