"""CFG-5, CFG-9: secrets that are set or changed while the gateway runs."""

import json
import sys
from pathlib import Path

from kit.client import health
from kit.command import run_process
from kit.gateway import GatewayProcess
from kit.messages import Json
from kit.process import FIXTURES
from kit.until import wait_until
from mcpx.auth import sealing

KEY = sealing.new_key()
TELLTALE = str(Path(__file__).parent / "telltale_server.py")


def server(name: str, value: str) -> Json:
    connection = {
        "type": "stdio",
        "command": sys.executable,
        "args": [TELLTALE],
        "env": {"PLAIN_NAME": value},
    }
    return {"name": name, "prefix": name, "connection": connection}


def run(gateway: GatewayProcess, *words: str, given: str = "") -> str:
    done = run_process(words, gateway.folder, gateway.env, given)
    return done.stdout + done.stderr


def test_a_secret_that_is_set_while_it_runs_is_taken_up_by_a_reload_and_kept_secret(
    tmp_path: Path,
) -> None:
    calm = {"log_level": "DEBUG", "hot_reload": False}
    config = {
        "global": calm,
        "mcp_servers": [server("kept", "${keyring:kept}"), server("plain", "nothing")],
    }
    ring = {
        "PYTHONPATH": str(FIXTURES / "rings"),
        "KEYRING_FILE": str(tmp_path / "ring.json"),
        "MCPX_KEY": KEY,
    }
    with GatewayProcess(config, env=ring) as gateway:

        def state(name: str) -> Json:
            return health(gateway.port)["servers"][name]

        assert state("kept")["status"] == "disabled"
        assert "mcpx secret set kept" in gateway.stderr()
        for number, value in enumerate(("zq7canary-first-1", "zq7canary-second-2")):
            run(gateway, "secret", "set", "kept", given=value)
            assert "kept" in run(gateway, "reload", str(gateway.file))
            wait_until(lambda: state("kept")["status"] == "connected")
            wait_until(lambda n=number: gateway.stderr().count('"PLAIN_NAME": "***"') > n)
        encrypted = sealing.encrypt("zq7canary-third-3", {"MCPX_KEY": KEY})
        gateway.file.write_text(json.dumps({**config, "mcp_servers": [server("kept", encrypted)]}))
        assert (
            "restarted" in (told := run(gateway, "reload", str(gateway.file))) or "changed" in told
        ), told
        wait_until(lambda: gateway.stderr().count('"PLAIN_NAME": "***"') > 2)
        # One that cannot be opened changes nothing.
        gateway.file.write_text(
            json.dumps({**config, "mcp_servers": [server("kept", encrypted[:-8])]})
        )
        told = run(gateway, "reload", str(gateway.file))
        assert (
            "an encrypted value" in told
            and "config.json:1:" in told
            and encrypted[7:30] not in told
        )
        assert state("kept")["status"] == "connected"
        assert "zq7canary" not in gateway.stderr() + told + json.dumps(health(gateway.port))
