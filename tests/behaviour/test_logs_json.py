"""OBS-1: `log_format: json`, one JSON object a line, whatever is logged."""

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

from kit.client import Session
from kit.command import MCPX
from kit.gateway import GatewayProcess
from kit.servers import odd_server, raw_server
from kit.until import wait_until

Json = dict[str, Any]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
FIELDS = {"time", "level", "logger", "message", "server", "request_id", "trace_id", "error"}


def lines(text: str) -> list[Json]:
    """Each line must be an object, by whatever is taken for the end of a line."""
    read = [json.loads(line) for line in text.splitlines()]
    for line in read:
        assert {"time", "level", "logger", "message"} <= line.keys() <= FIELDS
        assert TIME.fullmatch(line["time"]) and all(
            isinstance(value, str) for value in line.values()
        )
    return read


def test_every_line_on_stderr_and_in_the_log_file_is_a_json_object(tmp_path: Path) -> None:
    """OBS-1: the greeting too; what servers say breaks no line, and their names have a field of
    their own."""
    settings = {"log_format": "json", "log_file": "mcpx.log", "log_level": "DEBUG"}
    server = odd_server("odd", tmp_path / "record")
    broken = {"name": "none", "connection": {"type": "stdio", "command": "/nonexistent/program"}}
    with GatewayProcess({"mcp_servers": [server, broken], "global": settings}) as gateway:
        session = Session(gateway.port)
        session.call("odd_log", text='two\nlines "quoted" \u2028 \x1b[31m\u202e and more')
        session.call("odd_log", text="x" * 100_000)
        file = gateway.folder / "mcpx.log"
        wait_until(
            lambda: (
                file.read_text().count("odd_log") + file.read_text().count("tools/call log") >= 2
            )
        )
        wait_until(lambda: "[none]" in file.read_text() or '"none"' in file.read_text())
        stderr = gateway.stderr()
        raw = file.read_text(encoding="utf-8")
    said, logged = lines(stderr), lines(raw)
    assert said[0]["level"] == "INFO" and gateway.url in said[0]["message"]
    assert any(line.get("server") == "none" and line["level"] == "WARNING" for line in said)
    assert any(line.get("server") == "odd" and "two" in line["message"] for line in logged)
    assert not any(line["message"].startswith("[") for line in logged)
    assert max(map(len, raw.splitlines())) < 40_000 and "\x1b" not in raw and "\u202e" not in raw


def test_an_address_that_cannot_be_bound_is_told_as_json(tmp_path: Path) -> None:
    """OBS-1: also what is said before and after anything is served."""
    config = tmp_path / "mcpx.json"
    config.write_text(json.dumps({"mcp_servers": [], "global": {"log_format": "json"}}))
    config.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*MCPX, str(config), "--transport", "http", "--port", str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (line,) = lines(ended.stderr)
    assert (
        ended.returncode == 1
        and line["level"] == "ERROR"
        and f"cannot listen on 127.0.0.1:{port}" in line["message"]
    )


def test_the_form_of_lines_follows_the_file() -> None:
    """OBS-1, CFG-5: a reload changes it, in both directions."""
    config = {"mcp_servers": [raw_server("raw")], "global": {"hot_reload_interval": 0.05}}
    with GatewayProcess(config) as gateway:
        assert not gateway.stderr().startswith("{")
        gateway.file.write_text(
            json.dumps({**config, "global": {**config["global"], "log_format": "json"}})
        )
        wait_until(lambda: "reloaded" in gateway.stderr())
        gateway.file.write_text("{")
        wait_until(lambda: "nothing was changed" in gateway.stderr())
        refused = gateway.stderr().partition("reloaded")[2].partition("\n")[2]
        assert [line["level"] for line in lines(refused)][-1] == "ERROR"
        gateway.file.write_text(json.dumps(config))
        wait_until(lambda: gateway.stderr().count("reloaded") == 2)
