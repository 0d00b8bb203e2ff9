"""ADM-2: commands are seen, resolved, run, changed and imported; auth configs, profiles and rules
likewise."""

import http.server
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kit.admin_api import AdminApi, Json
from kit.client import Session
from kit.gateway import Gateway
from kit.masks import plain_masks
from kit.servers import raw_server
from kit.until import wait_until

TOKEN = "tok-of-an-auth-config-1234"
HEADER = "header-secret-998877"
MASK = "••••••••"


class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        type(self).seen.append(self.path)
        told = json.dumps(
            {"path": self.path, "authorization": self.headers.get("Authorization")}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    seen: ClassVar[list[str]] = []


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def gateway(echo: str) -> Iterator[Gateway]:
    http_command: Json = {
        "name": "look",
        "description": "Looks something up.",
        "type": "http",
        "http": {
            "url": f"{echo}/find/{{what}}",
            "headers": {"X-Key": HEADER},
            "auth": {"ref": "account"},
            "allow_private": True,
            "max_retries": 0,
        },
    }
    script: Json = {
        "name": "say",
        "type": "script",
        "parameters": [{"name": "word", "required": True}],
        "script": {
            "interpreter": "/bin/sh",
            "path": "say.sh",
            "args": ["{word}"],
            "env": {"MY_TOKEN": HEADER},
        },
    }
    config = {
        "mcp_servers": [raw_server("first"), raw_server("second")],
        "commands": [http_command, script],
        "auth_configs": [
            {"name": "account", "type": "bearer_token", "bearer_token": {"token": TOKEN}},
            {
                "name": "spare",
                "type": "api_key",
                "api_key": {"name": "X-Api-Key", "value": "${HOME}"},
            },
        ],
        "profiles": [{"name": "narrow", "servers": ["first", "commands"]}],
        "policy": {"rules": [{"effect": "deny", "tools": ["forbidden"], "reason": "not today"}]},
    }
    with Gateway(config, admin=True) as started:
        Path(started.folder, "say.sh").write_text('echo "said $1"\n')
        api = AdminApi(started)
        wait_until(lambda: api.status("first") == api.status("second") == "connected")
        yield started


@pytest.fixture
def api(gateway: Gateway) -> AdminApi:
    return AdminApi(gateway)


def test_commands_are_told_with_what_they_do_and_cost(api: AdminApi) -> None:
    rows = {row["name"]: row for row in api.get("/api/commands")["commands"]}
    assert rows["look"]["summary"].startswith("GET http://127.0.0.1") and rows["look"][
        "summary"
    ].endswith("/find/{what}")
    assert (
        rows["look"]["auth"] == "account"
        and rows["look"]["read_only"]
        and rows["look"]["parameters"] == ["what"]
    )
    assert rows["say"]["type"] == "script" and rows["say"]["tokens"] > 0
    detail = api.get("/api/commands/look")
    assert (
        detail["tool"]["inputSchema"]["required"] == ["what"]
        and plain_masks(detail["entry"]["http"]["headers"]["X-Key"]) == MASK
    )
    missing = api.ask("GET", "/api/commands/lok")
    assert missing.status == 404 and "'look'" in missing.json["error"]["hint"]


def test_a_dry_trial_resolves_the_request_masks_its_secrets_and_sends_nothing(
    api: AdminApi,
) -> None:
    Echo.seen.clear()
    answer = api.ask(
        "POST", "/api/commands/look/test", {"arguments": {"what": "a/b ?"}, "dry": True}
    )
    resolved = answer.json["resolved"]
    assert resolved["method"] == "GET" and resolved["url"].endswith("/find/a%2Fb%20%3F")
    assert (
        resolved["headers"]["Authorization"] == f"Bearer {MASK}"
        and resolved["headers"]["X-Key"] == MASK
    )
    assert TOKEN not in answer.text and HEADER not in answer.text and Echo.seen == []


def test_a_trial_runs_as_a_call_would_and_tells_no_secret(api: AdminApi) -> None:
    answer = api.ask("POST", "/api/commands/look/test", {"arguments": {"what": "here"}})
    assert answer.json["ok"] and Echo.seen[-1] == "/find/here" and answer.json["ms"] >= 0
    assert "/find/here" in answer.json["result"]["content"][0]["text"] and TOKEN not in answer.text
    wrong = api.ask("POST", "/api/commands/look/test", {"arguments": {"no": 1}}).json
    assert not wrong["ok"] and "what" in wrong["error"] and wrong["path"] == "arguments"


def test_a_script_is_resolved_to_its_words_and_run(api: AdminApi, gateway: Gateway) -> None:
    dry = api.ask(
        "POST", "/api/commands/say/test", {"arguments": {"word": "a b; rm"}, "dry": True}
    ).json
    assert dry["resolved"]["argv"][-2:] == [str(gateway.folder / "say.sh"), "a b; rm"]
    assert dry["resolved"]["env"] == {"MY_TOKEN": MASK}
    ran = api.ask("POST", "/api/commands/say/test", {"arguments": {"word": "yes"}}).json
    assert ran["ok"] and "said yes" in ran["result"]["content"][0]["text"]


def test_a_script_outside_of_the_allowed_folders_is_not_run_by_a_trial_either(
    api: AdminApi, tmp_path: Path
) -> None:
    """SEC-3"""
    outside = tmp_path / "out.sh"
    outside.write_text("echo ran\n")
    entry = {
        "name": "out",
        "type": "script",
        "script": {"interpreter": "/bin/sh", "path": str(outside)},
    }
    for dry in (True, False):
        answer = api.ask("POST", "/api/commands/test", {"entry": entry, "dry": dry})
        assert answer.status == 422 or not answer.json["ok"], answer.body
        assert "ran" not in json.dumps(answer.json.get("result"))


def test_a_private_address_is_not_reached_by_a_trial_either(api: AdminApi, echo: str) -> None:
    """SEC-4"""
    Echo.seen.clear()
    entry = {"name": "out", "type": "http", "http": {"url": f"{echo}/private", "max_retries": 0}}
    tried = api.ask("POST", "/api/commands/test", {"entry": entry}).json
    assert (
        not tried["ok"]
        and "allow_private" in tried["result"]["content"][0]["text"]
        and Echo.seen == []
    )


def test_a_rule_counts_for_a_trial_too(api: AdminApi, echo: str) -> None:
    """SEC-7"""
    Echo.seen.clear()
    entry = {
        "name": "forbidden",
        "type": "http",
        "http": {"url": f"{echo}/no", "allow_private": True},
    }
    tried = api.ask("POST", "/api/commands/test", {"entry": entry}).json
    assert not tried["ok"] and "not today" in tried["error"] and Echo.seen == []


def test_a_trial_of_an_unsaved_command_keeps_masked_secrets(api: AdminApi) -> None:
    entry = api.get("/api/commands/look")["entry"]
    entry["http"]["url"] = entry["http"]["url"].replace("/find/", "/other/")
    answer = api.ask("POST", "/api/commands/test", {"entry": entry, "arguments": {"what": "x"}})
    assert answer.json["ok"] and Echo.seen[-1] == "/other/x" and HEADER not in answer.text
    assert "/find/" in api.get("/api/commands/look")["summary"]


def test_a_command_that_is_added_switched_and_removed_is_a_tool_at_once(
    api: AdminApi, gateway: Gateway, echo: str
) -> None:
    session = Session(gateway.port)
    entry = {"name": "more", "type": "http", "http": {"url": f"{echo}/more", "allow_private": True}}
    assert api.change("POST", "/api/commands", entry).status == 201
    assert "more" in session.tools()
    api.changed("PATCH", "/api/commands/more/toggle")
    assert "more" not in session.tools()
    api.changed("PUT", "/api/commands/more", {**entry, "name": "renamed"})
    assert "renamed" in session.tools()
    api.changed("DELETE", "/api/commands/renamed")
    assert "renamed" not in session.tools()
    bad = api.change(
        "POST", "/api/commands", {"name": "b", "type": "http", "http": {"url": "x", "metod": "GET"}}
    )
    assert bad.status == 422 and "http.metod" in [
        each["path"] for each in bad.json["error"]["errors"]
    ]


def test_operations_of_a_document_are_listed_and_those_picked_made_into_entries(
    api: AdminApi,
) -> None:
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.example.com"}],
        "paths": {
            "/pets": {
                "get": {"operationId": "listPets", "summary": "All"},
                "post": {"operationId": "addPet"},
            },
            "/pets/{id}": {"get": {}},
        },
    }
    text = json.dumps(document)
    listed = api.ask("POST", "/api/commands/import", {"kind": "openapi", "text": text}).json
    assert listed["title"] == "Pets" and [each["id"] for each in listed["operations"]] == [
        "listPets",
        "addPet",
        "GET /pets/{id}",
    ]
    assert listed["entries"] == []
    picked = {
        "kind": "openapi",
        "text": text,
        "pick": ["listPets", "GET /pets/{id}"],
        "prefix": "p_",
    }
    made = api.ask("POST", "/api/commands/import", picked).json["entries"]
    assert [each["entry"]["name"] for each in made] == ["p_listPets", "p_get_pets_id"]
    assert all(each["yaml"].startswith("- name: p_") and not each["taken"] for each in made)
    assert api.ask("POST", "/api/commands?dry_run=true", made[0]["entry"]).json["ok"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"kind": "openapi", "text": "nothing of the kind"},
        {"kind": "openapi", "text": ""},
        {"kind": "openapi"},
        {"kind": "openapi", "url": "http://127.0.0.1:9/openapi.json"},
        {"kind": "openapi", "url": "file:///etc/passwd"},
        {"kind": "curl", "text": "wget x"},
        {"kind": "curl", "url": "https://example.com"},
    ],
)
def test_what_cannot_be_imported_is_said(api: AdminApi, wanted: Json) -> None:
    answer = api.ask("POST", "/api/commands/import", wanted)
    assert (
        answer.status == 422
        and answer.json["error"]["message"]
        and "--" not in answer.json["error"]["message"]
    )


def test_auth_configs_tell_who_uses_them_and_where_their_secrets_come_from(api: AdminApi) -> None:
    answer = api.ask("GET", "/api/auth-configs")
    rows = {row["name"]: row for row in answer.json["auth_configs"]}
    assert rows["account"]["used_by"] == ["command:look"] and rows["account"]["state"] == "ready"
    assert (
        rows["account"]["kept_in"] == "config file"
        and plain_masks(rows["account"]["entry"]["bearer_token"]["token"]) == MASK
    )
    assert rows["spare"]["state"] == "unused" and rows["spare"]["kept_in"] == "environment"
    assert rows["spare"]["entry"]["api_key"]["value"] == "${HOME}" and TOKEN not in answer.text
    assert api.get("/api/auth-configs/spare")["name"] == "spare"


def test_the_kinds_of_auth_say_what_they_need(api: AdminApi) -> None:
    types = {each["type"]: each["fields"] for each in api.get("/api/auth-types")["types"]}
    assert {
        "api_key",
        "bearer_token",
        "basic_auth",
        "custom_header",
        "oauth2",
        "oauth",
    } <= types.keys()
    assert types["oauth2"]["required"] == ["client_id", "client_secret"]


def test_an_auth_config_that_is_referred_to_is_not_removed(api: AdminApi) -> None:
    refused = api.change("DELETE", "/api/auth-configs/account")
    assert (refused.status, refused.code) == (409, "in_use") and "command:look" in refused.json[
        "error"
    ]["hint"]
    api.changed(
        "POST",
        "/api/auth-configs",
        {"name": "n", "type": "bearer_token", "bearer_token": {"token": "t" * 20}},
    )
    entry = api.get("/api/auth-configs/n")["entry"]
    api.changed("PUT", "/api/auth-configs/n", {**entry, "name": "m"})
    api.changed("DELETE", "/api/auth-configs/m")
    assert api.change("DELETE", "/api/auth-configs/m").status == 404


def test_a_saved_mask_keeps_the_stored_secret_of_an_auth_config(
    api: AdminApi, gateway: Gateway
) -> None:
    entry = api.get("/api/auth-configs/account")["entry"]
    api.changed("PUT", "/api/auth-configs/account", entry)
    assert TOKEN in gateway.file.read_text()
    assert api.ask("POST", "/api/commands/look/test", {"arguments": {"what": "again"}}).json["ok"]


def test_profiles_tell_what_is_seen_through_them(api: AdminApi, gateway: Gateway) -> None:
    told = api.get("/api/profiles")
    narrow, whole = told["profiles"][0], told["default"]
    assert narrow["servers"] == 1 and whole["servers"] == 2 and 0 < narrow["tools"] < whole["tools"]
    assert narrow["url"] == f"http://127.0.0.1:{gateway.port}/p/narrow/mcp"
    api.changed("POST", "/api/profiles", {"name": "none", "servers": ["!*"]})
    assert [row["tools"] for row in api.get("/api/profiles")["profiles"]] == [narrow["tools"], 0]
    api.changed("PUT", "/api/profiles/none", {"name": "second", "servers": ["second"]})
    assert api.get("/api/profiles")["profiles"][1]["servers"] == 1
    api.changed("DELETE", "/api/profiles/second")
    assert api.change("DELETE", "/api/profiles/second").status == 404


def test_a_profile_that_is_being_taken_up_is_not_shown_as_empty(tmp_path: Path) -> None:
    """ADM-2: what is listed beside an entry is what it does, also in the moment in which it is
    written."""
    go = tmp_path / "go"
    with (
        Gateway({"mcp_servers": [raw_server("first")]}, admin=True) as started,
        ThreadPoolExecutor() as pool,
    ):
        api = AdminApi(started)
        wait_until(lambda: api.status("first") == "connected")
        whole = api.get("/api/profiles")["default"]["tools"]
        slow = raw_server("slow", "--start-when", str(go))
        entries = {
            "mcp_servers": [raw_server("first"), slow],
            "profiles": [{"name": "new", "servers": ["first"]}],
        }
        before = api.etag
        writing = pool.submit(api.change, "POST", "/api/config", {"text": json.dumps(entries)})
        wait_until(lambda: api.etag != before)
        reading = pool.submit(
            api.get, "/api/profiles"
        )  # it is written, and waits for its slow server
        wait([reading], timeout=0.5)  # long enough for an answer that would come too early
        go.touch()
        assert [(row["name"], row["tools"]) for row in reading.result()["profiles"]] == [
            ("new", whole)
        ]
        assert writing.result().status == 200


def test_rules_are_told_with_their_lines_and_count_as_soon_as_they_are_saved(
    api: AdminApi, gateway: Gateway
) -> None:
    """SEC-7"""
    before = api.get("/api/policy")
    assert before["rules"][0]["effect"] == "deny" and before["rules"][0]["source"]["line"] > 1
    session = Session(gateway.port)
    assert "look" in session.tools()
    api.changed(
        "PUT",
        "/api/policy",
        {"entry": {"rules": [{"effect": "deny", "tools": ["look"]}, *before["entry"]["rules"]]}},
    )
    assert "look" not in session.tools()
    assert [rule["number"] for rule in api.get("/api/policy")["rules"]] == [1, 2]
    wrong = api.change("PUT", "/api/policy", {"entry": {"rules": [{"effect": "perhaps"}]}})
    assert (
        wrong.status == 422 and wrong.json["error"]["errors"][0]["path"] == "policy.rules[0].effect"
    )
    api.changed("PUT", "/api/policy", {"entry": before["entry"]})
