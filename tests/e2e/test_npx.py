"""An interrupted first download by the real npx: the next start works (LIF-7, LIF-10)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.command import mcpx
from kit.gateway import GatewayProcess
from kit.messages import Json
from kit.npm_registry import NpmRegistry
from kit.process import START
from kit.servers import stdio_server
from kit.until import wait_until

pytestmark = pytest.mark.needs("proc", "programs")


@pytest.fixture
def registry() -> Iterator[NpmRegistry]:
    with NpmRegistry() as registry:
        yield registry


def drip_server(registry: NpmRegistry, folder: Path) -> Json:
    env = registry.environ(folder)
    return stdio_server("drip", ["npx", "-y", "drip-server"], connection={"env": env}, timeout=20)


def npx_processes(folder: Path) -> list[int]:
    """Processes that use the npm cache in this folder."""
    marker = str(folder).encode()
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"npm_config_cache=" + marker in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_the_next_start_works_after_a_download_was_interrupted(
    registry: NpmRegistry, tmp_path: Path, end: str
) -> None:
    """LIF-7, LIF-10: npm leaves half-written packages and its lock, which would make each later
    start fail."""
    server = drip_server(registry, tmp_path)
    registry.hold()
    with GatewayProcess({"mcp_servers": [server]}) as gateway:
        assert registry.half_sent.wait(START)
        assert npx_processes(tmp_path)
        wait_until(lambda: list(tmp_path.glob("npm-cache/_npx/*/node_modules/drip-data/data0.txt")))
        gateway.excused = end == "kill"
        getattr(gateway.process, end)()
        gateway.process.wait(START)
    wait_until(lambda: not npx_processes(tmp_path))
    registry.release()
    (tmp_path / "mcpx.json").write_text(json.dumps({"mcp_servers": [server]}), encoding="utf-8")
    called = mcpx(tmp_path, "call", "drip.drop", "--config", str(tmp_path / "mcpx.json"))
    assert (called.returncode, called.stdout.strip()) == (0, "plop"), called.stderr
