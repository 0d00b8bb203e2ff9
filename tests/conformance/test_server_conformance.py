"""The official suite's server scenarios: the same verdict through mcpx as directly (PRO-7)."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance import suite
from conformance.suite import Run, Verdicts
from kit.gateway import GatewayProcess
from kit.process import running_server

CHOICE = ("server-sse-multiple-streams", "server-sse-streams-functional", 0)
"""The one check on which a difference is none. It asks for `tools/list` and looks at the kind of
the answer: a server that answers by SSE gets SUCCESS, one that answers in JSON gets INFO ("SSE
streaming is optional"). The specification leaves that choice to the server; the SDK always streams
in the older era, mcpx streams only what has to go out before the result."""

runs = pytest.mark.parametrize("run", suite.SERVER_RUNS, ids=lambda run: run.name)


@pytest.fixture(scope="module")
def fixture() -> Iterator[str]:
    with running_server("conformance_server.py") as url:
        yield url


def config(fixture: str) -> dict[str, Any]:
    """mcpx before that server, without prefix and with plain URIs, so that all names stay as they
    are."""
    return {
        "naming": {"uris": "plain"},
        "mcp_servers": [{"name": "fixture", "connection": {"type": "http", "url": fixture}}],
        "global": {"startup_wait": 10, "first_start_wait": 10},
    }


@pytest.fixture(scope="module")
def gateway(fixture: str) -> Iterator[str]:
    with GatewayProcess(config(fixture)) as running:
        yield running.url


@pytest.fixture(scope="module")
def directly(fixture: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Run], Verdicts]:
    """The verdicts without mcpx; each run is made once, for both tests."""

    @functools.cache
    def verdicts(run: Run) -> Verdicts:
        return suite.run(run.version, run.spec, fixture, tmp_path_factory.mktemp("directly"))

    return verdicts


@runs
def test_the_fixture_itself_passes_every_check(
    run: Run, directly: Callable[[Run], Verdicts]
) -> None:
    """Without this, a check that fails both ways would go unseen."""
    verdicts = directly(run)
    assert [
        check for check, verdict in verdicts.items() if verdict not in ("SUCCESS", "INFO")
    ] == []
    assert suite.count(verdicts, suite.PASSED) == run.passed


@runs
def test_every_verdict_through_mcpx_is_the_direct_one(
    run: Run, gateway: str, directly: Callable[[Run], Verdicts], tmp_path: Path
) -> None:
    """PRO-7"""
    expected = dict(directly(run))
    through = suite.run(run.version, run.spec, gateway, tmp_path)
    if (expected.get(CHOICE), through.get(CHOICE)) == ("SUCCESS", "INFO"):
        del expected[CHOICE], through[CHOICE]
    assert suite.differences(expected, through) == []
