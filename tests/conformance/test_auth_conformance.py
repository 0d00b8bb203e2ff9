"""The official suite's client scenarios `auth/*`, of every revision and both versions, with mcpx as
the client (PRO-7).

Left out are extensions for which mcpx has no way of signing in: `client-credentials-jwt` and
`wif-jwt-bearer` (the client signs assertions with a key of its own),
`cross-app-access-complete-flow` and `enterprise-managed-authorization` (an identity provider of an
enterprise exchanges tokens), `dpop` and `dpop-nonce` (tokens bound to a key).
`client-credentials-basic` is what type `oauth2` does.
"""

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance import suite
from conformance.signing_in import MACHINE
from conformance.suite import Named

DRIVER = Path(__file__).with_name("client_driver.py")
NEXT, FIRST = "0.2.0-alpha.12", "0.1.16"

TOKEN = ["token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none"]
BOTH = [
    *(
        "metadata-default",
        "metadata-var1",
        "metadata-var2",
        "metadata-var3",
        "basic-cimd",
        "pre-registration",
    ),
    *("scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined"),
    *("scope-step-up", "scope-retry-limit", *TOKEN),
]
FALLBACK = ["2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback"]
DRAFT = ["resource-mismatch", "offline-access-scope", "offline-access-not-supported"]
MODERN = [
    *DRAFT,
    *(
        "authorization-server-migration",
        "metadata-issuer-mismatch",
        "iss-supported",
        "iss-not-advertised",
    ),
    *("iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "iss-normalized"),
]

RUNS: list[tuple[str, str | None, str]] = [
    *[(NEXT, "2025-03-26", name) for name in FALLBACK],
    *[(NEXT, "2025-06-18", name) for name in TOKEN],
    *[(NEXT, "2025-11-25", name) for name in BOTH],
    *[(NEXT, "2026-07-28", name) for name in (*BOTH, *MODERN)],
    *[(FIRST, None, name) for name in (*FALLBACK, *BOTH, *DRAFT)],
    (NEXT, None, MACHINE.removeprefix("auth/")),
    (FIRST, None, MACHINE.removeprefix("auth/")),
]


COMPARED = {"2025-03-26", "2026-07-28", None}
"""Revisions in which the SDK's client is run too: between them they have every scenario. The suite
itself counts it as a failure where a client leaves out what it should do, so that the others need
no comparison."""


@pytest.mark.parametrize(("version", "spec", "name"), RUNS)
def test_mcpx_signs_in_as_well_as_the_sdks_own_client(
    version: str, spec: str | None, name: str, tmp_path: Path
) -> None:
    """PRO-7, section 6: no check worse, in each revision's own scenarios."""

    def verdicts(way: str) -> Named:
        command = shlex.join([sys.executable, str(DRIVER), way])
        return suite.run_client(f"auth/{name}", spec, command, tmp_path / way, version=version)

    compared = version == NEXT and spec in COMPARED
    with ThreadPoolExecutor(2) as pool:
        direct = pool.submit(verdicts, "direct") if compared else None
        through = verdicts("through")
    assert not {check for check, verdict in through.items() if verdict in ("WARNING", "FAILURE")}
    if direct is not None:
        assert suite.worse(direct.result(), through) == []
