"""Configuration of all tests: the slow tier, skips by platform, hypothesis, and signal handlers."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import systems

if TYPE_CHECKING:
    from kit.gateway import Gateway

os.environ["MCPX_STANDALONE"] = (
    "true"  # No gateway outlives its test, unless the test asks for a shared one.
)

for number in (signal.SIGINT, signal.SIGTERM, *(() if os.name == "nt" else (signal.SIGHUP,))):
    if (
        signal.getsignal(number) == signal.SIG_IGN
    ):  # `nohup` and background jobs ignore signals; children inherit that.
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )

settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")

HERE = Path(__file__).parent
SLOW = [
    HERE / part
    for part in (
        "attacks",
        "bench",
        "behaviour/test_bridge.py",
        "behaviour/test_chaos.py",
        "behaviour/test_leases.py",
        "behaviour/test_load.py",
        "behaviour/test_matrix.py",
        "behaviour/test_process_life.py",
        "behaviour/test_recovery.py",
        "behaviour/test_reload.py",
        "behaviour/test_replicas_approvals.py",
        "behaviour/test_replicas_config.py",
        "behaviour/test_replicas_events.py",
        "behaviour/test_stdio_rules.py",
        "conformance",
        "docs/test_snippets.py",
        "e2e",
        "families/test_dropped_in.py",
        "fixtures",
        "packaging",
        "processes/test_portable.py",
        "processes/test_process.py",
        "replicas",
        "scripts",
        "web",
    )
]
"""Tests that start many processes, a browser, a load balancer, replicas as processes, or MCP
servers and clients from npm and PyPI, and tests that wait for time limits. `-m "not slow"` leaves
them out."""


@cache
def is_slow(path: Path) -> bool:
    return any(path.is_relative_to(part) for part in SLOW)


def pytest_configure() -> None:
    gc.disable()  # Collecting tests makes a million objects that stay.


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    systems.skip(items)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = slow_modules_first(items, workers)


def slow_modules_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Order the tests so that each worker begins with slow modules.

    Each worker first gets one part of the list, and the parts have nearly equal lengths. The quick
    tests remain for the end of the run, when workers without tests take over tests of other
    workers.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    slow = [path for path in modules if is_slow(path)]
    for number, path in enumerate(slow):
        parts[number % workers] += modules.pop(path)
    for module in modules.values():
        min(parts, key=len).extend(module)
    return [item for part in parts for item in part]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # Importing the slow modules takes longer than many tests.
    if config.option.markexpr == "not slow" and is_slow(collection_path):
        return True
    return True if systems.is_left_out(collection_path) else None


@pytest.fixture
def served() -> "Iterator[Callable[..., Gateway]]":
    """Start a gateway in this process: `served(config, *options, admin=True)`. It ends with the
    test."""
    from kit.gateway import Gateway

    with ExitStack() as stack:
        yield lambda config, *args, **options: stack.enter_context(
            Gateway(config, *args, **options)
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, module in sorted(systems.left_out.items()):
        terminalreporter.write_line(f"left out: {name} (imports {module}, which is not there)")
