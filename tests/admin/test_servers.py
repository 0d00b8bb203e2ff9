"""ADM-2, ADM-3: servers are seen, tried, changed, connected anew and looked into over the API."""

import json
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kit.admin_api import AdminApi, Json
from kit.client import Session
from kit.gateway import GatewayProcess
from kit.http_client import Reply
from kit.masks import plain_masks
from kit.process_tree import ProcessWatch, descendants
from kit.servers import raw_server
from kit.until import wait_until

SECRET = "a-secret-of-the-file-42"
MASK = "••••••••"


def script(name: str, code: str, **keys: Any) -> Json:
    return {
        "name": name,
        "connection": {"type": "stdio", "command": sys.executable, "args": ["-c", code]},
        **keys,
    }


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    first = raw_server("first")
    first["connection"]["env"] = {"API_TOKEN": SECRET, "PLAIN": "seen", "OTHER": "${HOME}"}
    with GatewayProcess({"mcp_servers": [first, raw_server("second")]}, admin=True) as started:
        api = AdminApi(started)
        wait_until(lambda: api.status("first") == api.status("second") == "connected")
        yield started


@pytest.fixture
def api(gateway: GatewayProcess) -> AdminApi:
    return AdminApi(gateway)


def test_a_server_is_told_as_it_is_written_and_as_it_is_without_its_secrets(
    api: AdminApi, gateway: GatewayProcess
) -> None:
    """ADM-3"""
    listed = api.ask("GET", "/api/mcp-servers")
    rows = {row["name"]: row for row in listed.json["servers"]}
    assert list(rows)[:2] == ["first", "second"]
    row = rows["first"]
    assert row["status"] == "connected" and row["tools_count"] > 0 and row["transport"] == "stdio"
    assert plain_masks(row["connection"]["env"]) == {
        "API_TOKEN": MASK,
        "PLAIN": MASK,
        "OTHER": "${HOME}",
    }
    assert row["source"]["file"] == str(gateway.file) and row["source"]["line"] > 1
    assert SECRET not in listed.text
    detail = api.server("first")
    assert detail["protocol"] and detail["entry"]["name"] == "first"
    assert listed.headers["etag"].startswith('"')


def test_an_unknown_server_is_a_404_with_the_one_that_was_meant(api: AdminApi) -> None:
    for method, path in (
        ("GET", "/api/mcp-servers/frist"),
        ("GET", "/api/mcp-servers/frist/tools"),
        ("GET", "/api/mcp-servers/frist/logs"),
        ("GET", "/api/mcp-servers/frist/health"),
        ("POST", "/api/mcp-servers/frist/test"),
        ("POST", "/api/mcp-servers/frist/reconnect"),
        ("POST", "/api/mcp-servers/frist/sign-in"),
        ("DELETE", "/api/mcp-servers/frist/sign-in"),
    ):
        answer = api.ask(method, path)
        assert (answer.status, answer.code) == (404, "not_found"), (method, path, answer.body)
        assert "'first'" in answer.json["error"]["hint"]
    for method, body in (("DELETE", b""), ("PUT", raw_server("frist"))):
        answer = api.change(method, "/api/mcp-servers/frist", body)
        assert answer.status == 404 and "'first'" in answer.json["error"]["hint"]


def test_what_is_added_switched_renamed_and_removed_is_listed_to_a_client_listed(
    api: AdminApi, gateway: GatewayProcess
) -> None:
    """ADM-3"""
    session = Session(gateway.port)

    def listed(wanted: bool, prefix: str) -> None:
        wait_until(lambda: any(name.startswith(prefix) for name in session.tools()) is wanted)

    entry = raw_server("extra", prefix="extra")
    done = api.changed("POST", "/api/mcp-servers", entry)
    assert done["plan"]["started"] == ["extra"] and done["file"] == str(gateway.file)
    listed(True, "extra")
    assert api.changed("PATCH", "/api/mcp-servers/extra/toggle")["plan"]["stopped"] == ["extra"]
    listed(False, "extra")
    assert api.status("extra") == "disabled"
    api.changed("PATCH", "/api/mcp-servers/extra/toggle", {"enabled": True})
    listed(True, "extra")
    api.changed("PUT", "/api/mcp-servers/extra", {**entry, "name": "other/name", "prefix": "other"})
    listed(True, "other")
    assert api.ask("GET", "/api/mcp-servers/extra").status == 404
    assert api.server("other/name")["status"] == "connected"
    api.changed("DELETE", "/api/mcp-servers/other%2Fname")
    listed(False, "other")


def test_a_change_needs_to_know_what_it_changes(api: AdminApi, gateway: GatewayProcess) -> None:
    """CFG-6: two editors cannot overwrite each other unseen."""
    before = gateway.file.read_bytes()
    entry = api.server("second")["entry"]
    old = api.etag
    blind = api.ask("PUT", "/api/mcp-servers/second", entry)
    assert (blind.status, blind.code) == (428, "precondition_required")
    api.ask("PUT", "/api/mcp-servers/second", {**entry, "description": "mine"}, if_match=old)
    stale = api.ask(
        "PUT", "/api/mcp-servers/second", {**entry, "description": "theirs"}, if_match=old
    )
    assert (stale.status, stale.code) == (412, "stale") and stale.headers["etag"] == api.etag != old
    assert api.server("second")["description"] == "mine"
    api.changed("PUT", "/api/mcp-servers/second", entry)
    assert gateway.file.read_bytes() == before


def test_two_that_write_at_once_are_both_told_the_truth(api: AdminApi) -> None:
    etag = api.etag
    entry = api.server("second")["entry"]
    answers: list[Reply] = []

    def write(number: int) -> None:
        body = {**entry, "description": f"number {number}"}
        answers.append(api.ask("PUT", "/api/mcp-servers/second", body, if_match=etag))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(answer.status for answer in answers) == [200, 412, 412, 412]
    api.changed("PUT", "/api/mcp-servers/second", entry)


def test_a_dry_run_shows_the_difference_and_changes_nothing(
    api: AdminApi, gateway: GatewayProcess
) -> None:
    before = gateway.file.read_bytes()
    entry = api.server("first")["entry"]
    entry["connection"]["env"]["API_TOKEN"] = "another-secret-77"
    answer = api.ask("PUT", "/api/mcp-servers/first?dry_run=true", entry)
    assert (
        answer.status == 200 and answer.json["ok"] and answer.json["plan"]["restarted"] == ["first"]
    )
    assert "API_TOKEN" in answer.json["diff"] and "another-secret-77" not in answer.text
    created = api.ask("POST", "/api/mcp-servers?dry_run=true", raw_server("new"))
    assert created.status == 200 and created.json["plan"]["started"] == ["new"]
    wrong = api.ask(
        "POST", "/api/mcp-servers?dry_run=true", {"name": "new", "connection": {"type": "stdio"}}
    )
    assert wrong.status == 200 and not wrong.json["ok"] and wrong.json["plan"] is None
    assert wrong.json["problems"][0]["path"].startswith("connection")
    assert gateway.file.read_bytes() == before


def test_a_masked_secret_stays_what_it_is(api: AdminApi, gateway: GatewayProcess) -> None:
    entry = api.server("first")["entry"]
    api.changed("PUT", "/api/mcp-servers/first", {**entry, "description": "told"})
    written = json.loads(gateway.file.read_text())["mcp_servers"][0]
    assert (
        written["connection"]["env"]["API_TOKEN"] == SECRET
        and written["connection"]["env"]["OTHER"] == "${HOME}"
    )
    api.changed("PUT", "/api/mcp-servers/first", entry)


def test_mistakes_are_told_with_their_places_and_conflicts_as_such(api: AdminApi) -> None:
    bad = {"name": "new", "connection": {"type": "stdio", "comand": "x"}, "timeout": "soon"}
    answer = api.change("POST", "/api/mcp-servers", bad)
    assert (answer.status, answer.code) == (422, "invalid_config")
    told = {problem["path"]: problem for problem in answer.json["error"]["errors"]}
    assert (
        told["connection.comand"]["hint"] == "did you mean 'command'?"
        and told["connection.comand"]["line"] > 1
    )
    assert "timeout" in told
    again = api.change("POST", "/api/mcp-servers", raw_server("first"))
    assert (again.status, again.code) == (409, "exists")
    onto = api.change("PUT", "/api/mcp-servers/first", raw_server("second"))
    assert (onto.status, onto.code) == (409, "exists")
    for nameless in (
        {"connection": {"type": "stdio", "command": "x"}},
        {"name": 7},
        {"name": ""},
        {},
    ):
        assert api.change("POST", "/api/mcp-servers", nameless).status == 422
    for name in ("a\nb", " ", "x" * 500, "mcpx"):
        assert api.change("POST", "/api/mcp-servers", raw_server(name)).status == 422


def test_a_trial_connects_beside_what_runs_and_leaves_nothing(
    api: AdminApi, gateway: GatewayProcess
) -> None:
    children = descendants(gateway.process.pid)
    tried = api.ask("POST", "/api/mcp-servers/first/test").json
    assert tried["ok"] and tried["protocol"] and tried["tools"] and tried["seconds"] > 0
    entry = {**raw_server("unsaved"), "enabled": False}
    assert api.ask("POST", "/api/mcp-servers/test", {"entry": entry}).json["ok"]
    with ProcessWatch(descendants(gateway.process.pid) - children) as watch:
        assert watch.left(5.0) == []
    assert api.status("first") == "connected"
    assert api.ask("GET", "/api/mcp-servers/unsaved").status == 404


def test_a_trial_takes_the_secrets_that_are_masked_from_what_is_saved_and_tells_none(
    api: AdminApi,
) -> None:
    code = (
        "import os, sys; sys.exit('it has ' + os.environ['API_TOKEN'] + ' and ' + "
        "os.environ['PLAIN'])"
    )
    entry = api.server("first")["entry"]
    entry["connection"] |= {"command": sys.executable, "args": ["-c", code]}
    for named, stored in (("first", None), ("renamed", "first")):
        answer = api.ask(
            "POST", "/api/mcp-servers/test", {"entry": {**entry, "name": named}, "stored": stored}
        )
        assert not answer.json["ok"] and "it has *** and seen" in answer.json["error"]
        assert SECRET not in answer.text
    entry["connection"]["env"]["API_TOKEN"] = MASK
    unknown = api.ask("POST", "/api/mcp-servers/test", {"entry": {**entry, "name": "nobody"}})
    assert unknown.status == 422 and unknown.json["error"]["path"] == "connection.env.API_TOKEN"


@pytest.mark.parametrize(
    ("connection", "cause", "fix"),
    [
        ({"type": "stdio", "command": "no-such-program"}, "no-such-program was not "
                                                          "found", "install no-such-program"),
        ({"type": "stdio", "command": "/no/such/program"}, "no program at "
                                                           "/no/such/program", "correct `command`"),
        ({"type": "stdio", "command": "python3 -m x"}, "name of one "
                                                       "program", "put the arguments into "
                                                                              "`args`"),
        ({"type": "stdio", "command": "python3", "args": ["/no/such.py"]}, "not there: "
                                                                           "/no/such.py", "the path"),
        ({"type": "stdio", "command": "python3", "args": ["-c", "import no_such"]}, "a module: no_such", "install"),
        ({"type": "stdio", "command": "python3", "cwd": "/no/folder"}, "/no/folder is not "
                                                                       "there", "cwd"),
        ({"type": "stdio", "command": "cat"}, "what it prints is not MCP", "check its arguments"),
        ({"type": "http", "url": "http://127.0.0.1:9/mcp"}, "Nothing listens at "
                                                            "127.0.0.1:9", "start the server"),
        ({"type": "http", "url": "http://no-such-host.invalid/mcp"}, "no host named "
                                                                     "no-such-host.invalid", "spelling"),
    ],
)  # fmt: skip
def test_what_does_not_work_is_told_in_plain_words(
    api: AdminApi, connection: Json, cause: str, fix: str
) -> None:
    entry = {"name": "trial", "connection": connection, "timeout": 10}
    tried = api.ask("POST", "/api/mcp-servers/test", {"entry": entry}).json
    assert not tried["ok"] and cause in tried["cause"] and fix in tried["fix"], tried


def test_words_of_one_program_come_with_what_would_mend_them(api: AdminApi) -> None:
    entry = {"name": "trial", "connection": {"type": "stdio", "command": "python3 -m mcp_server"}}
    tried = api.ask("POST", "/api/mcp-servers/test", {"entry": entry}).json
    assert tried["repair"] == {
        "connection.command": "python3",
        "connection.args": ["-m", "mcp_server"],
    }


def test_a_variable_that_is_not_set_is_told_by_a_trial(api: AdminApi) -> None:
    entry = raw_server("trial")
    entry["connection"]["env"] = {"KEY": "${NOT_SET_ANYWHERE_AT_ALL}"}
    tried = api.ask("POST", "/api/mcp-servers/test", {"entry": entry}).json
    assert not tried["ok"] and "NOT_SET_ANYWHERE_AT_ALL" in tried["error"] and tried["fix"]


def test_no_more_than_four_trials_run_at_a_time(api: AdminApi) -> None:
    hanging = {"entry": {**raw_server("mute", "--hang-initialize", "--mute-probe"), "timeout": 3}}
    statuses: list[int] = []

    def attempt() -> None:
        statuses.append(api.ask("POST", "/api/mcp-servers/test", hanging).status)

    trials = [threading.Thread(target=attempt) for _ in range(6)]
    for trial in trials:
        trial.start()
    for trial in trials:
        trial.join()
    assert sorted(statuses) == [200, 200, 200, 200, 429, 429]


def test_a_trial_that_nobody_waits_for_any_more_is_an_answer_the_document_knows(
    api: AdminApi,
) -> None:
    paths = api.get("/api/openapi.json")["paths"]
    for section in ("mcp-servers", "commands"):
        for path in ("test", "{name}/test"):
            assert "408" in paths[f"/api/{section}/{path}"]["post"]["responses"]


def test_the_tools_of_a_server_are_told_with_their_cost(api: AdminApi) -> None:
    told = api.get("/api/mcp-servers/first/tools")
    assert told["total"] == len(told["tools"]) == api.server("first")["tools_count"]
    assert all(tool["server"] == "first" and tool["tokens"] > 0 for tool in told["tools"])
    assert told["tokens"] == sum(tool["tokens"] for tool in told["tools"])


def test_connecting_anew_starts_another_process_and_calls_go_on(
    api: AdminApi, gateway: GatewayProcess
) -> None:
    children = descendants(gateway.process.pid)
    answer = api.ask("POST", "/api/mcp-servers/second/reconnect")
    assert answer.status == 200 and answer.json["status"] in ("connecting", "connected")
    wait_until(lambda: api.status("second") == "connected")
    assert descendants(gateway.process.pid) - children
    assert Session(gateway.port).tools()


def test_connecting_anew_again_and_again_beside_reloads_ends_well(
    api: AdminApi, gateway: GatewayProcess
) -> None:
    def press() -> None:
        for _ in range(5):
            assert api.ask("POST", "/api/mcp-servers/second/reconnect").status == 200

    pressing = [threading.Thread(target=press) for _ in range(2)]
    for each in pressing:
        each.start()
    for number in range(3):
        entry = api.server("second")["entry"]
        entry["connection"]["env"] = {"N": str(number)}
        api.changed("PUT", "/api/mcp-servers/second", entry)
    for each in pressing:
        each.join()
    wait_until(lambda: api.status("second") == "connected")
    names = Session(gateway.port).tools()
    assert names and "error" not in Session(gateway.port).call("second_whoami")


def test_a_call_that_runs_while_its_server_is_connected_anew_is_answered_all_the_same(
    api: AdminApi, gateway: GatewayProcess
) -> None:
    session = Session(gateway.port)
    with session.start_call("second_sleep", seconds=60) as stream:
        wait_until(lambda: any(link["calls"] for link in api.server("second")["links"]))
        assert api.ask("POST", "/api/mcp-servers/second/reconnect").status == 200
        told = stream.reply().message
        assert "second" in json.dumps(told)
    wait_until(lambda: api.status("second") == "connected")
    assert "error" not in session.call("second_whoami")


def test_one_that_pauses_or_sleeps_is_tried_at_once(api: AdminApi, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'tries')!r}, 'a').write('x'); raise SystemExit(1)"
    api.changed("POST", "/api/mcp-servers", script("down", code, retry_delay=50, max_retries=9))
    api.changed("POST", "/api/mcp-servers", raw_server("lazy", lazy=True, idle_timeout=0.2))

    def tries() -> int:
        return len((tmp_path / "tries").read_text()) if (tmp_path / "tries").exists() else 0

    wait_until(lambda: api.status("down") == "disconnected")
    assert api.server("down")["next_try"] is not None
    before = tries()
    api.ask("POST", "/api/mcp-servers/down/reconnect")
    wait_until(lambda: tries() > before)
    wait_until(lambda: api.status("lazy") == "sleeping")
    api.ask("POST", "/api/mcp-servers/lazy/reconnect")
    woken = api.get("/api/mcp-servers/lazy/logs")["last"]

    def is_woken() -> bool:
        lines = api.get(f"/api/mcp-servers/lazy/logs?after={woken - 1}")["lines"]
        return any(line["text"].startswith("connected") for line in lines)

    wait_until(is_woken)
    for name in ("down", "lazy"):
        api.changed("DELETE", f"/api/mcp-servers/{name}")


def test_a_server_that_is_off_is_not_connected_anew(api: AdminApi) -> None:
    api.changed("POST", "/api/mcp-servers", {**raw_server("off"), "enabled": False})
    answer = api.ask("POST", "/api/mcp-servers/off/reconnect")
    assert (answer.status, answer.code) == (409, "disabled")
    api.changed("DELETE", "/api/mcp-servers/off")


def test_what_a_server_printed_over_several_lives_is_told_line_by_line(api: AdminApi) -> None:
    code = (
        f"import sys; print('life \\x1b[31mbegan\\x1b[0m with {SECRET}', file=sys.stderr); "
        "sys.exit(3)"
    )
    api.changed("POST", "/api/mcp-servers", script("loud", code, retry_delay=0.1))

    def lives() -> Json | None:
        found = api.get("/api/mcp-servers/loud/logs")
        return found if sum(line["stream"] == "stderr" for line in found["lines"]) > 3 else None

    logs = wait_until(lives)
    texts = [line["text"] for line in logs["lines"] if line["stream"] == "stderr"]
    assert set(texts) == {"life began with ***"}
    assert any(
        "exited with code 3" in line["text"] for line in logs["lines"] if line["stream"] == "mcpx"
    )
    numbers = [line["number"] for line in logs["lines"]]
    assert numbers == sorted(set(numbers)) and logs["last"] >= numbers[-1]
    rest = api.get(f"/api/mcp-servers/loud/logs?after={numbers[1]}&limit=2")["lines"]
    assert [line["number"] for line in rest] == [numbers[1] + 1, numbers[1] + 2]
    assert api.get("/api/mcp-servers/loud/logs?limit=1")["lines"][0]["number"] >= numbers[-1]
    health = api.get("/api/mcp-servers/loud/health")
    assert health["ready_share"] == 0.0 and health["spans"][-1]["end"] is None
    api.changed("DELETE", "/api/mcp-servers/loud")
    assert api.ask("GET", "/api/mcp-servers/loud/logs").status == 404


def test_the_states_of_a_server_follow_one_another(api: AdminApi) -> None:
    spans = api.get("/api/mcp-servers/first/health")["spans"]
    assert [span["status"] for span in spans][:2] == ["connecting", "connected"]
    assert all(one["end"] == other["start"] for one, other in pairwise(spans))
    assert spans[-1]["end"] is None


def test_who_need_not_sign_in_is_told_so(api: AdminApi) -> None:
    assert api.ask("POST", "/api/mcp-servers/first/sign-in").json["state"] == "not_needed"
    assert api.ask("DELETE", "/api/mcp-servers/first/sign-in").status == 409


def test_hostile_texts_stay_texts(api: AdminApi) -> None:
    name = "<img src=x onerror=alert(1)> {{7*7}}"
    api.changed("POST", "/api/mcp-servers", script(name, "import sys; sys.exit('</script>')"))
    assert api.server(name)["name"] == name
    api.changed("DELETE", f"/api/mcp-servers/{quote(name, safe='')}")
    assert api.change("POST", "/api/mcp-servers", raw_server("a\u202eb")).status == 422
