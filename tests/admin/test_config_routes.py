"""The configuration over the admin API, through the real program (ADM-2, CFG-6, CFG-8)."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import jsonschema_rs
import pytest

from kit.admin_api import AdminApi
from kit.client import Session
from kit.gateway import Gateway
from kit.masks import plain_masks
from kit.messages import Json
from kit.servers import everything_server
from kit.until import wait_until

MASK = "••••••••"
SECRET = "canary-5f7e3d19aa"
YAML = f"""\
# The servers of the team
mcp_servers:
  - name: one  # the first
    enabled: false
    connection:
      type: http
      url: http://127.0.0.1:9/mcp
      headers: {{Authorization: "Bearer {SECRET}", X-Team: a}}
  - name: two
    enabled: false
    connection: {{type: stdio, command: two, env: {{API_KEY: "${{TWO_KEY}}"}}}}
"""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(YAML, admin=True) as started:
        yield started


@pytest.fixture(scope="module")
def still() -> Iterator[Gateway]:
    """One for tests that leave it as it was."""
    with Gateway(YAML, admin=True) as started:
        yield started


def text_of(api: AdminApi) -> str:
    (file,) = api.get("/api/config")["files"]
    return file["text"]


def test_the_text_is_shown_without_its_secrets_and_saved_with_them(gateway: Gateway) -> None:
    """CFG-6: a masked value sent back keeps the stored one; comments, order and references stay."""
    api = AdminApi(gateway)
    told = api.get("/api/config")
    assert (
        told["path"] == str(gateway.file) and told["dialect"] == "native" and told["revision"] == 1
    )
    (file,) = told["files"]
    assert file["format"] == "yaml" and file["writable"]
    assert plain_masks(file["text"]) == YAML.replace(SECRET, MASK)
    changed = file["text"].replace("X-Team: a", "X-Team: b")
    done = api.post("/api/config", {"text": changed, "message": "other team"}, If_Match=api.etag)
    assert done["revision"] == 2 and done["etag"] == api.etag == api.get("/api/config")["etag"]
    assert gateway.file.read_text() == YAML.replace("X-Team: a", "X-Team: b")
    assert gateway.file.stat().st_mode & 0o777 == 0o600
    (latest, first) = api.get("/api/config/history")["revisions"]
    assert (latest["number"], latest["message"], latest["via"]) == (2, "other team", "api")
    assert first["via"] == "start" and first["restorable"]


def test_several_entries_are_added_in_one_revision_or_none_is(gateway: Gateway) -> None:
    """ADM-2: servers, commands and what they refer to, at once."""
    api = AdminApi(gateway)
    key = {"name": "key", "type": "bearer_token", "bearer_token": {"token": "${TWO_KEY:-none}"}}
    command = {
        "name": "look",
        "type": "http",
        "http": {"url": "https://example.com", "auth": {"ref": "key"}},
    }
    server = {
        "name": "three",
        "enabled": False,
        "connection": {"type": "stdio", "command": "three"},
    }
    given = [("commands", command), ("auth_configs", key), ("mcp_servers", server)]
    body = {"entries": [{"section": section, "entry": entry} for section, entry in given]}
    assert api.refused("POST", "/api/config/entries", body) == (428, "precondition_required")
    assert api.post("/api/config/entries?dry_run=true", body)["ok"]
    assert plain_masks(text_of(api)) == YAML.replace(SECRET, MASK)
    done = api.post("/api/config/entries?message=three%20at%20once", body, 201, If_Match=api.etag)
    assert done["revision"] == 2 and done["etag"] == api.etag == api.get("/api/config")["etag"]
    assert api.get("/api/config/history")["revisions"][0]["message"] == "three at once"
    assert SECRET in gateway.file.read_text() and api.server("three")["status"] == "disabled"
    written = gateway.file.read_text()
    four = {"section": "mcp_servers", "entry": {**server, "name": "four"}}
    for wrong, told in (
        ({"section": "mcp_servers", "entry": server}, (409, "exists")),
        ({"section": "mcp_servers", "entry": {"connection": {}}}, (422, "invalid")),
        ({"section": "commands", "entry": {"name": "x", "type": "http"}}, (422, "invalid_config")),
        ({"section": "policy", "entry": {"name": "x"}}, (422, "invalid")),
        (four, (409, "exists")),
    ):
        both = {"entries": [four, wrong]}
        assert api.refused("POST", "/api/config/entries", both, If_Match=api.etag) == told, wrong
    assert api.refused("POST", "/api/config/entries", {"entries": []}, If_Match=api.etag) == (
        422,
        "invalid",
    )
    assert gateway.file.read_text() == written


@pytest.mark.parametrize("depth", [*range(44, 52), 150, 400, 900])
def test_what_is_nested_too_deeply_is_a_mistake_with_its_place(still: Gateway, depth: int) -> None:
    api = AdminApi(still)
    deep = f"""{{"name": "deep", "connection": {{"type": "http", "url": "http://127.0.0.1:9"}}, "x-deep": {"[" * depth}"""
    entry = f"{deep}{']' * depth}}}"
    for method, path, body in (
        ("POST", "/api/mcp-servers?dry_run=true", entry),
        ("PUT", "/api/mcp-servers/one?dry_run=true", entry),
        ("POST", "/api/mcp-servers/test", f'{{"entry": {entry}}}'),
    ):
        answer = api.ask(method, path, body.encode(), content_type="application/json")
        if depth <= 48:  # in its list, in its section
            assert answer.status == 200, answer.body
        else:
            assert (answer.status, answer.code, answer.error["path"]) == (
                422,
                "invalid",
                "x-deep",
            ), answer.body
    policy = f'{{"entry": {{"rules": [], "x-deep": {"[" * depth}{"]" * depth}}}}}'
    answer = api.ask(
        "PUT", "/api/policy?dry_run=true", policy.encode(), content_type="application/json"
    )
    assert (
        answer.status == 200
        if depth <= 49
        else (answer.status, answer.error["path"]) == (422, "policy")
    )


@pytest.mark.parametrize("odd", ["\x1b[2J", "two\nlines", "\x00", "\x9b"])
def test_a_message_for_the_history_has_no_control_characters(still: Gateway, odd: str) -> None:
    """It is shown in lists, and on terminals."""
    api, text = AdminApi(still), text_of(AdminApi(still))
    for path, body, place in (
        ("/api/config", {"text": text, "message": odd}, "message"),
        ("/api/config/rollback", {"revision": 1, "message": odd}, "message"),
        ("/api/config/import", {"text": "{}", "message": odd}, "message"),
        (f"/api/config?message={quote(odd)}", {"text": text}, "query.message"),
    ):
        answer = api.ask("POST", path, body, if_match="*")
        assert (answer.status, answer.error["path"]) == (422, place)


def test_whoever_saves_what_is_no_longer_there_is_told(gateway: Gateway) -> None:
    api = AdminApi(gateway)
    before, text = api.etag, text_of(api)
    assert api.refused("POST", "/api/config", {"text": text}) == (428, "precondition_required")
    gateway.file.write_text(YAML + "\n# by hand\n")
    assert api.refused("POST", "/api/config", {"text": text + "# mine\n"}, If_Match=before) == (
        412,
        "stale",
    )
    assert gateway.file.read_text().endswith("# by hand\n")


def test_a_dry_run_and_a_plan_change_nothing(still: Gateway) -> None:
    api = AdminApi(still)
    text = (
        text_of(api)
        .replace("enabled: false", "enabled: true", 1)
        .replace("127.0.0.1:9", "127.0.0.1:7")
    )
    for path in ("/api/config/plan", "/api/config?dry_run=true"):
        seen = api.post(path, {"text": text})
        assert seen["ok"] and seen["plan"]["started"] == ["one"]
        assert "-    enabled: false\n+    enabled: true\n" in seen["diff"]
        assert SECRET not in json.dumps(seen) and MASK in seen["text"]
    assert still.file.read_text() == YAML and api.get("/api/config")["revision"] == 1


def test_every_mistake_is_told_with_its_place(still: Gateway) -> None:
    api = AdminApi(still)
    text = text_of(api).replace("url: http", "ulr: http").replace("name: two", "name: one")
    told = api.post("/api/config/validate", {"text": text})
    assert not told["ok"]
    places = {(each["line"], each["column"]): each for each in told["problems"]}
    assert (
        places[7, 7]["path"] == "mcp_servers[0].connection.ulr"
        and "did you mean" in places[7, 7]["hint"]
    )
    assert "two servers are named" in places[9, 11]["message"]
    assert all(
        each["file"] == str(still.file) and each["severity"] == "error" for each in told["problems"]
    )
    answer = api.ask("POST", "/api/config", {"text": text}, If_Match=api.etag)
    assert (answer.status, answer.code) == (422, "invalid_config") and len(
        answer.error["errors"]
    ) == 2
    assert api.post("/api/config/validate", {"text": text_of(api)}) == {"ok": True, "problems": []}


def test_any_text_is_judged(still: Gateway) -> None:
    api = AdminApi(still)
    for text in ("", "\0", "[", "a: [", "- 1", "\t", "mcp_servers: 1", "{" * 2000, "x" * 100_000):
        assert api.post("/api/config/validate", {"text": text})["ok"] is False, text[:20]
        assert api.refused("POST", "/api/config", {"text": text}, If_Match=api.etag)[0] in (
            409,
            422,
        ), text[:20]
    assert still.file.read_text() == YAML


def test_a_mask_that_stands_for_nothing_is_a_mistake(still: Gateway) -> None:
    api = AdminApi(still)
    text = text_of(api) + (
        f"  - {{name: three, connection: {{type: stdio, command: x, env: {{A_TOKEN: "
        f"'{MASK}'}}}}}}\n"
    )
    told = api.post("/api/config/validate", {"text": text})
    assert not told["ok"] and "A_TOKEN" in told["problems"][0]["path"]
    assert api.refused("POST", "/api/config", {"text": text}, If_Match=api.etag) == (422, "invalid")


def test_another_file_is_none_of_the_configuration(still: Gateway) -> None:
    api = AdminApi(still)
    for file in ("/etc/passwd", "../x.yaml", "\0"):
        assert api.refused("POST", "/api/config/validate", {"text": "a: 1", "file": file}) == (
            404,
            "not_found",
        )
    assert api.post("/api/config/validate", {"text": text_of(api), "file": str(still.file)})["ok"]


def test_a_file_that_was_refused_is_shown_with_its_mistakes_while_the_last_good_one_runs(
    gateway: Gateway,
) -> None:
    """CFG-5."""
    api = AdminApi(gateway)
    gateway.file.write_text(YAML.replace("type: http", "type: pigeon"))
    answer = api.post("/api/config/reload")
    assert not answer["ok"] and answer["problems"][0]["line"] == 6
    told = api.get("/api/config")
    assert [each["line"] for each in told["problems"]] == [6] and told["last_reload"]["ok"] is False
    gateway.file.write_text(YAML.replace("name: two", "name: zwei"))
    assert wait_until(lambda: api.post("/api/config/reload")["ok"])
    assert api.get("/api/config")["problems"] == []


def test_a_change_beside_a_mistake_that_was_there_before_says_where_it_stands(
    gateway: Gateway,
) -> None:
    """CFG-5: whoever switches another server hears of the file, and the overview tells of it,
    too."""
    api = AdminApi(gateway)
    loaded = api.get("/api/config")["loaded"]
    gateway.file.write_text(YAML.replace("type: http", "type: pigeon"))
    assert not api.post("/api/config/reload")["ok"]
    told = api.change("PATCH", "/api/mcp-servers/two/toggle").error
    assert told["code"] == "invalid_config" and told["message"].startswith(
        "nothing was written: config.yaml:6 has"
    )
    assert "Config" in told["hint"] and [each["line"] for each in told["errors"]] == [6]
    assert api.get("/api/config")["loaded"] == loaded
    assert api.get("/api/overview")["config_refused"] is True
    gateway.file.write_text(YAML)
    assert wait_until(lambda: api.post("/api/config/reload")["ok"])
    assert api.get("/api/overview")["config_refused"] is False


def test_history_tells_what_it_was_and_goes_back_as_a_new_revision(gateway: Gateway) -> None:
    """CFG-6: secrets are masked in history and differences, and restored all the same."""
    api = AdminApi(gateway)
    changed = (
        plain_masks(text_of(api))
        .replace(f"Bearer {MASK}", "Bearer another-9f9f9f9f9f")
        .replace("name: two", "name: second")
    )
    api.post(
        "/api/config", {"text": changed}, If_Match=api.etag, X_Mcpx_Via="ui", X_Mcpx_Author="ada"
    )
    latest = api.get("/api/config/history?limit=1")["revisions"]
    assert [(each["number"], each["author"], each["via"]) for each in latest] == [(2, "ada", "ui")]
    first = api.get("/api/config/history/1")
    assert (
        plain_masks(first["files"][0]["text"]) == YAML.replace(SECRET, MASK)
        and not first["files"][0]["writable"]
    )
    there, back = (api.post("/api/config/diff", body) for body in ({"before": 1}, {"after": 1}))
    assert (
        "-  - name: two\n" in there["diff"]
        and "+  - name: two\n" in back["diff"]
        and not there["same"]
    )
    assert SECRET not in json.dumps([there, back]) and "another-" not in json.dumps([there, back])
    assert api.post("/api/config/diff", {"before": 2}) == {"diff": "", "same": True}
    seen = api.post("/api/config/rollback?dry_run=true", {"revision": 1})
    assert "+  - name: two\n" in seen["diff"]
    done = api.post("/api/config/rollback", {"revision": 1}, If_Match=api.etag)
    assert done["revision"] == 3 and gateway.file.read_text() == YAML
    for method, path, body in (
        ("GET", "/api/config/history/77", None),
        ("POST", "/api/config/diff", {"before": 77}),
        ("POST", "/api/config/rollback", {"revision": 77}),
    ):
        assert api.refused(method, path, body, If_Match=api.etag) == (404, "not_found")
    for odd in (True, "1", 1.0):
        assert api.refused(
            "POST", "/api/config/rollback", {"revision": odd}, If_Match=api.etag
        ) == (422, "invalid")


def test_servers_of_a_clients_file_are_taken_over_and_served_at_once(gateway: Gateway) -> None:
    api, client = AdminApi(gateway), Session(gateway.port)
    connection = everything_server("any")["connection"]
    command, args = connection["command"], connection["args"]
    file = {"mcpServers": {"one": {"command": command, "args": args}, "not-this": {"command": "y"}}}
    seen = api.post("/api/config/import", {"text": json.dumps(file)})
    assert seen["ok"] and seen["plan"]["started"] == ["one-2", "not-this"]
    assert api.get("/api/config")["revision"] == 1
    body = {"text": json.dumps(file), "pick": ["one"], "message": "from my client"}
    assert api.refused("POST", "/api/config/import", body) == (428, "precondition_required")
    done = api.post("/api/config/import", body, If_Match=api.etag)
    assert done["plan"]["started"] == ["one-2"]
    assert gateway.file.read_text().startswith("# The servers of the team\n")
    assert wait_until(lambda: client.tools())
    again = api.post("/api/config/import", {**body, "on_conflict": "skip"}, If_Match=api.etag)
    assert again["plan"]["started"] == []
    missing = {**body, "pick": ["nobody"]}
    assert api.refused("POST", "/api/config/import", missing, If_Match=api.etag) == (422, "invalid")
    nothing = {**body, "text": "well, well"}
    assert api.refused("POST", "/api/config/import", nothing, If_Match=api.etag) == (422, "invalid")


def test_auth_configs_come_with_the_servers_that_refer_to_them(gateway: Gateway) -> None:
    native = """
auth_configs:
  - {name: key, type: bearer_token, bearer_token: {token: "${KEY:-k}"}}
  - {name: other, type: bearer_token, bearer_token: {token: "${OTHER:-o}"}}
mcp_servers:
  - {name: x, enabled: false, auth: {ref: key}, connection: {type: http, url: "http://127.0.0.1:9/"}}
"""
    api = AdminApi(gateway)
    body = {"text": native, "pick": ["x"]}
    api.post("/api/config/import", body, If_Match=api.etag)
    api.post("/api/config/import", body, If_Match=api.etag)
    text = text_of(api)
    assert text.count("${KEY:-") == 2 and "other" not in text
    assert "name: x-2" in text and "name: key-2" in text and "ref: key-2" in text
    api.post("/api/config/import", {**body, "leave": ["key"]}, If_Match=api.etag)
    bare = text_of(api)
    assert "name: x-3" in bare and "key-3" not in bare and bare.count("ref:") == 2


def test_what_is_exported_has_variables_in_the_place_of_secrets(still: Gateway) -> None:
    api = AdminApi(still)
    for form in ("yaml", "mcp-json"):
        told = api.get(f"/api/config/export?format={form}")
        assert SECRET not in told["text"] and MASK not in told["text"]
        assert told["placeholders"] and all(
            f"${{{name}}}" in told["text"] for name in told["placeholders"]
        )
    assert "mcpServers" in json.loads(told["text"])
    assert api.refused("GET", "/api/config/export?format=xml") == (422, "invalid")


def test_the_schema_is_for_editors_and_the_configuration_is_valid_by_it(still: Gateway) -> None:
    """CFG-8."""
    schema = AdminApi(still).get("/api/schema")
    jsonschema_rs.meta.validate(schema)
    server: Json = {"name": "a", "connection": {"type": "stdio", "command": "x"}}
    validator = jsonschema_rs.Draft202012Validator(schema)
    assert validator.is_valid({"mcp_servers": [server]})
    assert not validator.is_valid({"mcp_servers": [{**server, "conection": {}}]})


def test_a_folder_of_files_is_shown_file_by_file_and_each_is_written_by_its_name(
    tmp_path: Path,
) -> None:
    """CFG-7."""
    folder = tmp_path / "conf.d"
    folder.mkdir(mode=0o700)
    for name in ("a", "b"):
        file = folder / f"{name}.yaml"
        entry = (
            f"  - name: {name}\n    enabled: false\n    connection: {{type: stdio, command: x}}\n"
        )
        file.write_text(f"# {name}\nmcp_servers:\n{entry}")
        file.chmod(0o600)

    with Gateway(folder, admin=True) as gateway:
        api = AdminApi(gateway)
        files = api.get("/api/config")["files"]
        assert [Path(file["path"]).name for file in files] == ["a.yaml", "b.yaml"]
        text = files[1]["text"].replace("command: x", "command: y")
        done = api.post("/api/config", {"text": text, "file": files[1]["path"]}, If_Match=api.etag)
        assert done["file"] == files[1]["path"] and (folder / "b.yaml").read_text() == text
        assert "command: x" in (folder / "a.yaml").read_text()


def test_without_a_file_the_first_change_writes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "MCPX_CONFIG": ""}
    monkeypatch.chdir(tmp_path)
    with Gateway(None, env=home, admin=True) as gateway:
        api = AdminApi(gateway)
        told = api.get("/api/config")
        assert told["path"] is None and told["files"] == [] and told["would_be"]
        assert api.get("/api/overview")["first_run"]
        assert "add a server" in api.ask("POST", "/api/tokens", {"name": "a"}).error["hint"]
        text = (
            "mcp_servers:\n  - name: a\n    enabled: false\n    connection: {type: stdio, "
            "command: x}\n"
        )
        assert api.post("/api/config/validate", {"text": text})["ok"]
        done = api.post("/api/config", {"text": text}, If_Match=api.etag)
        assert done["file"] == told["would_be"] and Path(done["file"]).read_text() == text
        assert api.get("/api/config")["path"] == told["would_be"]
        seen = api.get("/api/overview")
        assert not seen["first_run"] and seen["config_path"] == told["would_be"]
        assert told["would_be"] in str(
            api.get("/api/clients")
        )  # what a client over stdio is to start
        assert "start mcpx again" in api.ask("POST", "/api/tokens", {"name": "a"}).error["hint"]
