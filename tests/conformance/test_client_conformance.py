"""The official suite's client scenarios, with the back edge of mcpx as the client (PRO-7).

The scenarios `auth/*` are in `test_auth_conformance`. Left out: `sep-2640-*`, because skills are an
extension that a host implements, not a gateway.
"""

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance import suite
from conformance.client_driver import SCENARIOS
from conformance.suite import Named

DRIVER = Path(__file__).with_name("client_driver.py")

OLDER, MODERN = "2025-11-25", "2026-07-28"

RUNS = [
    ("initialize", OLDER),
    ("tools_call", OLDER),
    ("tools_call", MODERN),
    ("elicitation-sep1034-client-defaults", OLDER),
    ("sse-retry", OLDER),
    ("request-metadata", MODERN),
    ("sep-2322-client-request-state", MODERN),
    ("http-standard-headers", MODERN),
    ("http-custom-headers", MODERN),
    ("http-invalid-tool-headers", MODERN),
    ("json-schema-ref-no-deref", MODERN),
    ("json-schema-2020-12-preservation", OLDER),
    ("json-schema-2020-12-preservation", MODERN),
]


def verdicts(scenario: str, spec: str, way: str, out: Path) -> Named:
    return suite.run_client(scenario, spec, shlex.join([sys.executable, str(DRIVER), way]), out)


def test_every_scenario_with_a_driver_is_run() -> None:
    assert {scenario for scenario, _ in RUNS} == SCENARIOS.keys()


@pytest.mark.parametrize(("scenario", "spec"), RUNS)
def test_mcpx_gets_the_verdicts_of_the_sdks_own_client(
    scenario: str, spec: str, tmp_path: Path
) -> None:
    """PRO-7: what an upstream sees of mcpx is what it sees of a client that passes."""
    with ThreadPoolExecutor(2) as pool:
        direct, through = (
            pool.submit(verdicts, scenario, spec, way, tmp_path / way)
            for way in ("direct", "through")
        )
    assert {
        check for check, verdict in direct.result().items() if verdict in ("WARNING", "FAILURE")
    } == set()
    assert suite.worse(direct.result(), through.result()) == []
