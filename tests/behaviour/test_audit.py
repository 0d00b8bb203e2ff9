"""OBS-1: the audit trail of a running gateway: every call has its row, and none tells a secret."""

import json
import stat
import subprocess
from typing import Any

from kit.client import WAIT_SECONDS, Session, StdioClient, post_modern
from kit.command import MCPX
from kit.gateway import Gateway, GatewayProcess
from kit.http_client import fetch
from kit.messages import Json, modern_request
from kit.servers import raw_server
from kit.until import wait_until

CALM: Json = {"startup_wait": 10, "first_start_wait": 10, "hot_reload": False}
TOKEN = "a-token-of-alice-only"


def config(audit: Json | None, **more: Any) -> Json:
    told = {} if audit is None else {"audit": audit}
    return {"global": {**CALM, **told}, "mcp_servers": [raw_server("one")], **more}


def trail(gateway: Gateway) -> list[Json]:
    """All rows so far, through files that were turned over; the oldest first."""
    folder = gateway.folder / "state" / "audit"
    files = sorted(folder.glob("*.jsonl*"), key=lambda file: -int(file.suffix[1:]) if file.suffix != ".jsonl" else 0)
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


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
    """OBS-1: in both eras, through a compact mode, and whatever became of it; the token and the session id in none."""
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
        assert rows[0]["client"] == "raw 1" and rows[0]["outcome"] == "ok" and rows[1]["outcome"] != "ok"
        assert all(row["ms"] >= 0 and row["decision"] == "allowed" for row in rows)
        text = json.dumps(trail(gateway))
        assert not [secret for secret in ("s3cr3t", TOKEN, session.id) if secret in text]
        (file,) = (gateway.folder / "state" / "audit").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_values_are_written_where_they_are_wanted_but_not_those_of_secrets() -> None:
    """OBS-1."""
    with Gateway(config({"arguments": "values"})) as gateway:
        Session(gateway.port).call("one_echo", text="hello", password="s3cr3t", nested={"api_key": "s3cr3t"})
        (row,) = calls(gateway, 1)
        assert row["arguments"] == {"text": "hello", "password": "[hidden]", "nested": {"api_key": "[hidden]"}}


def test_who_is_not_let_in_and_what_is_reloaded_is_in_the_trail() -> None:
    """OBS-1: a count for each address, not a row for each try; never what was shown at the door."""
    auth = {"auth": {"type": "bearer", "tokens": [{"name": "alice", "token": TOKEN}]}}
    with Gateway(config({}, server=auth)) as gateway:
        for _ in range(20):
            assert fetch(gateway.port, "/mcp", "GET", [("Authorization", "Bearer wr0ng")]).status == 401
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
        wait_until(lambda: 'mcpx_calls_in_flight{server="one"} 1' in fetch(gateway.port, "/metrics").body.decode())
        gateway._end(excused=False)
        hanging.cut()
        rows = [json.loads(line) for line in (gateway.folder / "trail.jsonl").read_text().splitlines()]
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
        assert gateway.stderr().count("cannot be written") == 1


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
        done = mcpx(gateway, "audit", "--json", "--tool", "fail", "--since", "1h", str(gateway.file))
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
