"""For every test: no property is judged by how long a busy machine takes over one example; what is slow as a whole;
what is left out where the system has not what it needs (`systems`)."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import systems

os.environ["MCPX_STANDALONE"] = "true"  # a test that wants a gateway to be shared says so: nothing outlives the others

settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")

HERE = Path(__file__).parent
SMOKE = ("bench/test_bench_smoke.py", "bench/test_soak_smoke.py", "bench/test_fuzz_smoke.py")
SLOW = [
    HERE / part
    for part in ("attacks", "e2e", "conformance", "behaviour/test_matrix.py", "behaviour/test_portable.py", *SMOKE)
]
"""Many processes, all of the machine, or other people's programs: left out of the quick suite (`-m "not slow"`)."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(part) for part in SLOW):
            item.add_marker(pytest.mark.slow)
    systems.skip(items)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if systems.is_left_out(collection_path) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, module in sorted(systems.left_out.items()):
        terminalreporter.write_line(f"left out: {name} (imports {module}, which is not there)")
