"""OBS-1, OBS-2: the audit trail of a running gateway: every call has its row, and none tells a
secret."""

import json
import re
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from behaviour.compact import told
from kit.client import WAIT_SECONDS, Session, StdioClient, post_modern
from kit.command import MCPX
from kit.gateway import Gateway, GatewayProcess
from kit.http_api import ApiResponse, HttpApi
from kit.http_client import fetch
from kit.messages import Json, modern_request
from kit.servers import raw_server
from kit.until import wait_until
from mcpx.telemetry import exporter

CALM: Json = {"startup_wait": 10, "first_start_wait": 10, "hot_reload": False}
TOKEN = "a-token-of-alice-only"


def config(audit: Json | None, **more: Any) -> Json:
    told = {} if audit is None else {"audit": audit}
    return {"global": {**CALM, **told}, "mcp_servers": [raw_server("one")], **more}


def trail(gateway: Gateway) -> list[Json]:
    """All rows so far, through files that were turned over; the oldest first."""
    folder = gateway.folder / "state" / "audit"
    files = sorted(
        folder.glob("*.jsonl*"),
        key=lambda file: -int(file.suffix[1:]) if file.suffix != ".jsonl" else 0,
    )
    return [row for file in files for row in rows_of(file)]


def rows_of(file: Path) -> list[Json]:
    """The rows of a file without their places in the chain."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        for key in ("chain", "number", "mac", "call"):
            row.pop(key, None)
    return [row for row in rows if row["event"] != "opened"]


def calls(gateway: Gateway, count: int) -> list[Json]:
    """The rows of calls, once there are so many."""

    def look() -> list[Json] | None:
        found = [row for row in trail(gateway) if row["event"] == "call"]
        return found if len(found) >= count else None

    return wait_until(look)


def mcpx(gateway: Gateway, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*MCPX, *words],
        env=gateway.env,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_every_call_has_a_row_that_says_who_and_what() -> None:
    """OBS-1: in both eras, through a compact mode, and whatever became of it; the token and the
    session id in none."""
    auth = {"auth": {"type": "bearer", "tokens": [{"name": "alice", "token": TOKEN}]}}
    with Gateway(config({}, server=auth)) as gateway:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        session = Session(gateway.port, headers=bearer)
        session.call("one_echo", text="s3cr3t")
        session.call("one_fail", text="s3cr3t")
        Session(gateway.port, path="/mcp/search", headers=bearer).call(
            "mcp_execute_tool", tool_name="one_echo", arguments={"text": "s3cr3t"}
        )
        post_modern(
            gateway.port,
            modern_request("tools/call", {"name": "one_echo", "arguments": {"text": "s3cr3t"}}),
            Authorization=bearer["Authorization"],
        )
        rows = calls(gateway, 4)
        assert [row["name"] for row in rows] == ["echo", "fail", "echo", "echo"]
        assert {row["principal"] for row in rows} == {"alice"}
        assert {row["server"] for row in rows} == {"one"}
        assert {row["address"] for row in rows} == {"127.0.0.1"}
        assert {json.dumps(row["arguments"]) for row in rows} == {'{"text": "string"}'}
        assert (
            rows[0]["client"] == "raw 1"
            and rows[0]["outcome"] == "ok"
            and rows[1]["outcome"] != "ok"
        )
        assert all(row["ms"] >= 0 and row["decision"] == "allowed" for row in rows)
        text = json.dumps(trail(gateway))
        assert not [secret for secret in ("s3cr3t", TOKEN, session.id) if secret in text]
        (file,) = (gateway.folder / "state" / "audit").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_values_are_written_where_they_are_wanted_but_not_those_of_secrets() -> None:
    """OBS-1."""
    with Gateway(config({"arguments": "values"})) as gateway:
        Session(gateway.port).call(
            "one_echo", text="hello", password="s3cr3t", nested={"api_key": "s3cr3t"}
        )
        (row,) = calls(gateway, 1)
        assert row["arguments"] == {
            "text": "hello",
            "password": "[hidden]",
            "nested": {"api_key": "[hidden]"},
        }


def test_who_is_not_let_in_and_what_is_reloaded_is_in_the_trail() -> None:
    """OBS-1: a count for each address, not a row for each try; never what was shown at the door."""
    auth = {"auth": {"type": "bearer", "tokens": [{"name": "alice", "token": TOKEN}]}}
    with Gateway(config({}, server=auth)) as gateway:
        for _ in range(20):
            assert (
                fetch(gateway.port, "/mcp", "GET", [("Authorization", "Bearer wr0ng")]).status
                == 401
            )
        assert gateway.reload()["ok"]

        def look() -> list[Json] | None:
            found = trail(gateway)
            refused = sum(row["count"] for row in found if row["event"] == "refused")
            return found if refused == 20 else None

        rows = wait_until(look)
        assert len([row for row in rows if row["event"] == "refused"]) < 10
        assert {row["address"] for row in rows if row["event"] == "refused"} == {"127.0.0.1"}
        (reload,) = [row for row in rows if row["event"] == "reload"]
        assert reload["ok"] is True and reload["by"] == "somebody who asked"
        assert "wr0ng" not in json.dumps(rows)


def test_a_call_that_is_cut_off_by_the_end_is_in_the_trail() -> None:
    """OBS-1: what is left is written when the process ends."""
    with GatewayProcess(config({"file": "trail.jsonl"})) as gateway:
        session = Session(gateway.port)
        session.call("one_echo", text="x")
        hanging = session.start_call("one_hang")
        wait_until(
            lambda: (
                'mcpx_calls_in_flight{server="one"} 1'
                in fetch(gateway.port, "/metrics").body.decode()
            )
        )
        gateway._end(excused=False)
        hanging.cut()
        rows = [row for row in rows_of(gateway.folder / "trail.jsonl") if row["event"] == "call"]
    assert [row["name"] for row in rows] == ["echo", "hang"]
    assert rows[0]["outcome"] == "ok" != rows[1]["outcome"]


def test_it_is_switched_on_and_off_while_the_gateway_runs() -> None:
    """OBS-1, CFG-5."""
    with Gateway(config(None)) as gateway:
        session = Session(gateway.port)
        session.call("one_echo", text="x")
        gateway.reload(config({"arguments": "none"}))
        session.call("one_echo", text="x")
        (row,) = calls(gateway, 1)
        assert "arguments" not in row
        gateway.reload(config(None))
        session.call("one_echo", text="x")
        gateway.reload(config({}))
        session.call("one_echo", text="x")
        rows = calls(gateway, 2)
        assert len(rows) == 2 and "arguments" in rows[1]


def test_full_files_are_turned_over_and_few_are_kept() -> None:
    """OBS-1."""
    with Gateway(config({"max_bytes": 500, "keep": 2})) as gateway:
        session = Session(gateway.port)
        folder = gateway.folder / "state" / "audit"

        def turned() -> bool:
            session.call("one_echo", text="x")
            return len(list(folder.glob("*.jsonl.*"))) == 2

        wait_until(turned)
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_a_disk_that_takes_nothing_breaks_no_call() -> None:
    """OBS-1: said once, counted; calls go on."""
    with Gateway(config({"file": "trail"})) as gateway:
        (gateway.folder / "trail").mkdir()
        session = Session(gateway.port)
        for _ in range(3):
            assert session.call("one_echo", text="x")["result"]

        def lost() -> bool:
            return "mcpx_audit_lost_total 3" in fetch(gateway.port, "/metrics").body.decode()

        wait_until(lost)
        assert gateway.stderr().count("Cannot write") == 1


def test_also_over_stdio() -> None:
    """OBS-1: whoever starts it, and whatever is counted."""
    with (
        GatewayProcess(config({}), transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as pipe,
    ):
        pipe.greet()
        assert pipe.call("one_echo", text="x")["result"]
        assert pipe.finish() == 0
        (row,) = calls(gateway, 1)
        assert (row["principal"], row["name"]) == ("local", "echo")


def test_people_read_it_with_mcpx_audit() -> None:
    """OBS-1, RUN-2: a table, or the rows as they are; filters; what comes while they look."""
    with Gateway(config({})) as gateway:
        session = Session(gateway.port)
        session.call("one_echo", text="x")
        session.call("one_fail")
        calls(gateway, 2)
        done = mcpx(gateway, "audit", str(gateway.file))
        head, *lines = done.stdout.splitlines()
        assert done.returncode == 0 and head.startswith("TIME (UTC)") and len(lines) == 2, done
        assert "echo" in lines[0] and "fail" in lines[1] and "anonymous" in lines[0]
        done = mcpx(
            gateway, "audit", "--json", "--tool", "fail", "--since", "1h", str(gateway.file)
        )
        assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["fail"]
        follow = subprocess.Popen(
            [*MCPX, "audit", "--follow", "--json", "--limit", "1", str(gateway.file)],
            env=gateway.env,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert follow.stdout is not None
            assert json.loads(follow.stdout.readline())["name"] == "fail"
            session.call("one_whoami")
            assert json.loads(follow.stdout.readline())["name"] == "whoami"
        finally:
            follow.terminate()
            follow.wait(WAIT_SECONDS)
            follow.stdout.close()


# Crashes, edits, and collectors
# ------------------------------------------------------------------------------------


def test_a_call_that_a_crash_cuts_off_is_shown_as_unfinished() -> None:
    """OBS-2: the row before a call is written before the server receives the call."""
    with GatewayProcess(config({"file": "trail.jsonl"})) as gateway:
        gateway.excused = True
        session = Session(gateway.port)
        session.call("one_echo", text="x")
        hanging = session.start_call("one_hang")
        file = gateway.folder / "trail.jsonl"
        wait_until(lambda: file.exists() and '"name":"hang"' in file.read_text())
        gateway.process.kill()
        gateway.process.wait(WAIT_SECONDS)
        hanging.cut()
        rows = [
            json.loads(line)
            for line in mcpx(gateway, "audit", "--json", str(gateway.file)).stdout.splitlines()
        ]
        assert [(row["name"], row["outcome"]) for row in rows] == [
            ("echo", "ok"),
            ("hang", "unfinished"),
        ]
        done = mcpx(gateway, "audit", "--outcome", "unfinished", str(gateway.file))
        assert "hang" in done.stdout and "echo" not in done.stdout
        assert mcpx(gateway, "audit", "verify", str(gateway.file)).returncode == 0


def test_only_calls_with_an_effect_have_a_first_row_and_it_can_be_switched_off(
    tmp_path: Path,
) -> None:
    """OBS-2"""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("look", "write")]
    tools[0]["annotations"] = {"readOnlyHint": True}
    server = told("tools", tmp_path, {"tools": tools})
    for begins, expected in ((True, ["write"]), (False, [])):
        with Gateway({**config({"begins": begins}), "mcp_servers": [server]}) as gateway:
            session = Session(gateway.port)
            for tool in ("look", "write"):
                session.call(f"tools_{tool}")
            assert len(calls(gateway, 2)) == 2
            assert [row["name"] for row in trail(gateway) if row["event"] == "begins"] == expected


def test_verify_finds_a_changed_row_and_needs_the_key() -> None:
    """OBS-2"""
    with Gateway(config({"file": "trail.jsonl"}), env={"MCPX_KEY": "a passphrase"}) as gateway:
        Session(gateway.port).call("one_echo", text="x")
        file = gateway.folder / "trail.jsonl"
        wait_until(lambda: file.exists() and '"event":"call"' in file.read_text())
        done = mcpx(gateway, "audit", "verify", str(gateway.file))
        assert done.returncode == 0 and "no row is missing or was changed" in done.stdout, done
        without_key = {name: value for name, value in gateway.env.items() if name != "MCPX_KEY"}
        command = [*MCPX, "audit", "verify", "--json", str(gateway.file)]
        done = subprocess.run(
            command, env=without_key, capture_output=True, text=True, timeout=WAIT_SECONDS
        )
        assert done.returncode == 1 and "another MCPX_KEY" in json.loads(done.stdout)["problems"][0]
        file.write_text(file.read_text().replace('"outcome":"ok"', '"outcome":"denied"'))
        done = mcpx(gateway, "audit", "verify", str(gateway.file))
        assert done.returncode == 1 and "trail.jsonl:2: the row was changed" in done.stdout, done


def test_rows_are_sent_to_an_otlp_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """OBS-2"""
    monkeypatch.setattr(exporter, "BATCH_SECONDS", 0.01)
    with HttpApi() as collector:
        collector.on("POST", "/v1/logs", lambda _: ApiResponse())
        audit = {"sink": collector.url, "sink_headers": {"x-key": "collector key"}}
        with Gateway(config(audit)) as gateway:
            Session(gateway.port).call("one_fail")
            calls(gateway, 1)
        requests = [asked.json["resourceLogs"][0] for asked in collector.seen]
        assert collector.seen[0].get("x-key") == "collector key"
    records = [record for each in requests for record in each["scopeLogs"][0]["logRecords"]]
    rows = [json.loads(record["body"]["stringValue"]) for record in records]
    assert [row["event"] for row in rows] == ["opened", "begins", "call"] and all(
        row["mac"] for row in rows
    )
    assert all(int(record["timeUnixNano"]) > 1.7e18 for record in records)


@pytest.mark.needs("sockets")
@pytest.mark.parametrize("transport", ["udp", "tcp", "unix"])
def test_rows_are_sent_to_syslog(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OBS-2: RFC 5424; over TCP with the length before each message (RFC 6587)."""
    monkeypatch.setattr(exporter, "BATCH_SECONDS", 0.01)
    family = socket.AF_UNIX if transport == "unix" else socket.AF_INET
    kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
    with socket.socket(family, kind) as listener:
        listener.settimeout(WAIT_SECONDS)
        if transport == "unix":
            listener.bind(str(tmp_path / "log"))
            sink = f"syslog+unix://{tmp_path / 'log'}"
        else:
            listener.bind(("127.0.0.1", 0))
            scheme = "syslog+tcp" if transport == "tcp" else "syslog"
            sink = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        if transport == "tcp":
            listener.listen()
        with Gateway(config({"sink": sink})) as gateway:
            Session(gateway.port).call("one_fail")
            received = b""
            while b'"event":"call"' not in received:
                received += _received(listener, is_stream=transport == "tcp")
    header = rb"(\d+ )?<110>1 \d{4}-\d\d-\d\dT\S+Z \S+ mcpx \d+ audit - \{\"time\":"
    assert len(re.findall(header, received)) == 3
    if transport == "tcp":
        length, _, rest = received.partition(b" ")
        assert rest[: int(length)].endswith(b"}")


def _received(listener: socket.socket, *, is_stream: bool) -> bytes:
    if not is_stream:
        return listener.recv(65536)
    connection, _ = listener.accept()
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))
