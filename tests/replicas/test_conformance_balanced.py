"""SCA-1: the official conformance suites give, through a balancer and three replicas, the verdicts
of one process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance import test_server_conformance as alone
from conformance.suite import Run, Verdicts
from conformance.test_server_conformance import directly as directly
from conformance.test_server_conformance import fixture as fixture
from kit.replicas import RedisServer, Replicas
from replicas.conftest import nothing_broke


@pytest.fixture(scope="module")
def balanced(fixture: str) -> Iterator[str]:
    # A page is ours by the address it came from, which is the balancer's: replicas have to believe
    # what that says.
    server = {"drain": 0, "trusted_proxies": ["127.0.0.1"]}
    with (
        RedisServer() as store,
        Replicas(store, {**alone.config(fixture), "server": server}) as replicas,
    ):
        yield replicas.url
        nothing_broke(replicas)


@alone.runs
def test_every_verdict_is_that_of_one_process(
    run: Run, balanced: str, directly: Callable[[Run], Verdicts], tmp_path: Path
) -> None:
    """SCA-1, PRO-7"""
    alone.test_every_verdict_through_mcpx_is_the_direct_one(run, balanced, directly, tmp_path)
