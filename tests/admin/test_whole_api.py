"""ADM-2: the whole API against its own document, with requests that nobody would think of, one
after the other and in sequences: no failure of ours, no status and no shape that the document does
not tell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.gateway import Gateway
from kit.servers import raw_server

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
BOUND = 300.0
"""Seconds on a busy machine; it takes a sixth of that alone."""
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
ENDLESS = "/api/events"


@pytest.mark.slow
@pytest.mark.timeout(BOUND + 60)
def test_whatever_is_asked_is_answered_as_the_document_says(tmp_path: Path) -> None:
    config = {
        "mcp_servers": [raw_server("first"), raw_server("second")],
        "commands": [
            {
                "name": "look",
                "type": "http",
                "http": {"url": "http://127.0.0.1:9/{x}", "allow_private": True, "max_retries": 0},
            }
        ],
        "auth_configs": [
            {"name": "account", "type": "bearer_token", "bearer_token": {"token": "tok-1234567890"}}
        ],
        "profiles": [{"name": "narrow", "servers": ["first"]}],
        "policy": {"rules": [{"effect": "deny", "tools": ["nothing"]}]},
    }
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(f"hooks = {json.dumps(str(HOOKS))}\n")
    # Nothing that an entry names is there to be started.
    with Gateway(config, admin=True, env={"PATH": "/nonexistent"}) as gateway:
        # One worker: `ast` of Python 3.11, which it uses, fails in two threads at once (gh-106905).
        command = [
            *(
                str(Path(sys.executable).with_name("schemathesis")),
                "--config-file",
                str(settings),
                "run",
            ),
            *(
                f"{gateway.admin_url}/api/openapi.json",
                "-H",
                f"Authorization: Bearer {gateway.admin_token}",
            ),
            *(
                "--checks",
                CHECKS,
                "--exclude-path",
                ENDLESS,
                "--phases",
                "examples,coverage,fuzzing,stateful",
            ),
            *("--max-examples", "5", "--workers", "1", "--seed", "1", "--request-timeout", "70"),
            *("--continue-on-failure", "--no-color", "--generation-database", "none"),
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=BOUND,
            cwd=tmp_path,
            env={**os.environ, "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, (
            f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}\n{gateway.stderr()[-4000:]}"
        )
        assert "Traceback" not in gateway.stderr()
