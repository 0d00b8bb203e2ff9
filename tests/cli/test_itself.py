"""CFG-2: a start over HTTP leaves out the entry at the address it was told to listen on, also after
a reload."""

import json
from pathlib import Path

import pytest

from mcpx import app
from mcpx.cli.main import main


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (["--transport", "http"], ["b"]),
        (["--host", "0.0.0.0"], ["b"]),
        (["--port", "9000"], ["a"]),
        (["--transport", "stdio"], ["a", "b"]),
    ],
)
def test_it_is_the_address_of_this_start_that_counts(
    flags: list[str], left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[app.Run] = []

    def serve(run: app.Run, *_: object) -> int:
        started.append(run)
        return 0

    monkeypatch.setattr(app, "serve", serve)
    for name in ("MCPX_TRANSPORT", "MCPX_PORT", "MCPX_HOST"):
        monkeypatch.delenv(name, raising=False)
    servers = {"a": {"url": "http://localhost:8000/mcp"}, "b": {"url": "http://localhost:9000/mcp"}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    assert main([str(file), *flags]) == 0
    (run,) = started
    assert [server.name for server in run.config.mcp_servers] == left
    # The port of a changed file is taken up by a new process only: the address stays what it is.
    file.write_text(json.dumps({"mcpServers": servers, "server": {"port": 1}}))
    assert run.reload is not None
    assert [server.name for server in run.reload().mcp_servers] == left
