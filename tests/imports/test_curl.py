"""curl command lines as commands."""

import re
from pathlib import Path
from typing import Any

import pytest

from mcpx.config import load
from mcpx.imports.curl import CurlOptions, import_curl
from mcpx.imports.imported import Imported, to_yaml
from mcpx.imports.shell_words import split_words
from mcpx.model.errors import ConfigError

Json = dict[str, Any]
URL = "https://api.example.com/v1/items"


def made(line: str, wishes: CurlOptions | None = None) -> Imported:
    return import_curl([line], wishes or CurlOptions())


def http(line: str, wishes: CurlOptions | None = None) -> Json:
    return made(line, wishes).commands[0]["http"]


@pytest.mark.parametrize(
    ("line", "words", "after"),
    [
        ("curl a  'b c' \"d e\" f\\ g", ["curl", "a", "b c", "d e", "f g"], ""),
        ("curl a \\\n  -X POST \\\r\n b", ["curl", "a", "-X", "POST", "b"], ""),
        ("""curl 'a\\n' "b\\"c" 'd'"e"f""", ["curl", "a\\n", 'b"c', "def"], ""),
        ("curl $'it\\'s\\n\\u00e9 \\x21'", ["curl", "it's\né !"], ""),
        ("curl a | jq . > b", ["curl", "a"], "| jq . > b"),
        ("curl 'a' 2>/dev/null", ["curl", "a"], "2>/dev/null"),
        ("curl a?b=1&c=2 && ls", ["curl", "a?b=1&c=2"], "&& ls"),
    ],
)
def test_a_line_is_split_as_a_shell_does(line: str, words: list[str], after: str) -> None:
    assert split_words(line) == (words, after)


@pytest.mark.parametrize(
    "line", ["curl 'a", 'curl "a', "curl $(ls)", 'curl "`ls`"', "curl ${A:-b}", "curl $'a"]
)
def test_what_only_a_shell_can_do_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="error:"):
        split_words(line)


def test_the_usual_options_make_a_request() -> None:
    found = http(
        f"curl -sSL0 '{URL}' -A me -e https://x.example -H 'X-A: b' -m5 --retry 2 --compressed -o f"
    )
    assert found == {"method": "GET", "url": URL, "headers": {"X-A": "b"}}
    assert http(f"curl --url {URL} -X delete")["method"] == "DELETE"
    assert http("curl example.com/x")["url"] == "http://example.com/x"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-F a=@b", "reads a file"),
        ("-d @file", "reads a file"),
        ("-X PROPFIND", "PROPFIND"),
        ("-H", "no value"),
        ("https://other.example", "two addresses"),
        ("-H 'no colon'", "colon"),
    ],
)
def test_what_cannot_be_imported_is_refused_with_the_reason(options: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        made(f"curl {URL} {options}")
    assert said in str(refused.value)


def test_other_options_are_left_out_and_named() -> None:
    secret = "CANARY"
    line = f"curl -sk {URL} -b sid={secret} --oauth2-bearer {secret} --frobnicate -m5 -X PUT"
    found = made(line)
    names = "-s, -k, -b, --oauth2-bearer, --frobnicate, -m"
    assert found.notes == [f"left out: the options {names}"]
    assert found.commands[0]["http"] == {"method": "PUT", "url": URL}
    assert secret not in to_yaml(found.tree)


def test_fields_of_a_form_are_sent_and_files_are_not() -> None:
    found = http(f"curl {URL} -F a=b -F c=d")
    assert found["body"] == {"a": "{a}", "c": "{c}"} and found["body_format"] == "form"


@pytest.mark.parametrize(
    "line", ["", "curl", "curl -s", "curl ftp://a.example/x", "curl 'http://a b/'"]
)
def test_a_line_without_an_address_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="error:"):
        made(line)


TOKEN = {"token": "${EXAMPLE_TOKEN}"}
PAIR = {"username": "${EXAMPLE_USERNAME}", "password": "${EXAMPLE_PASSWORD}"}
SECRETS: list[tuple[str, str, Json]] = [
    ("-H 'Authorization: Bearer CANARY'", "bearer_token", TOKEN),
    ('-H "Authorization: Bearer $MY_TOKEN"', "bearer_token", {"token": "${MY_TOKEN}"}),
    ("-u me:CANARY", "basic_auth", PAIR),
    ("-u CANARY:", "basic_auth", {"username": "${EXAMPLE_USERNAME}", "password": ""}),
    (
        "-H 'Authorization: Token CANARY'",
        "headers",
        {"Authorization": "Token ${EXAMPLE_TOKEN}"},
    ),
    ("-H 'X-API-Key: CANARY'", "headers", {"X-API-Key": "${EXAMPLE_API_KEY}"}),
    (
        "-H 'X-Thing: ghp_CANARYCANARYCANARYCANARY'",
        "headers",
        {"X-Thing": "${EXAMPLE_THING}"},
    ),
    ("-G -d api_key=CANARY", "params", {"api_key": "${EXAMPLE_API_KEY}"}),
    (
        "-H 'X-Key: CANARY' -H 'X-Token: CANARY'",
        "headers",
        {"X-Key": "${EXAMPLE_KEY}", "X-Token": "${EXAMPLE_TOKEN}"},
    ),
]


def without_canary(found: Imported, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(to_yaml(found.tree))
    assert "CANARY" not in file.read_text() + repr(found.notes) + repr(found.variables)
    assert len(load(file, dict.fromkeys(found.variables, "secret"), strict=True).commands) == 1


@pytest.mark.parametrize(
    ("options", "kind", "section"), SECRETS, ids=[options for options, *_ in SECRETS]
)
def test_a_secret_is_a_variable_and_never_written(
    tmp_path: Path, options: str, kind: str, section: Json
) -> None:
    found = made(f"curl {URL} {options}", CurlOptions(name="x"))
    if kind in ("headers", "params"):
        assert found.commands[0]["http"][kind] == section and not found.auths
    else:
        assert found.auths == [{"name": "x_auth", "type": kind, kind: section}]
    assert list(found.variables) == re.findall(r"\$\{(\w+)\}", str(section))
    without_canary(found, tmp_path)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("-d password=CANARY -d a=b", "EXAMPLE_PASSWORD"),
        ("""--json '{"client_secret": "CANARY", "a": 1}'""", "EXAMPLE_CLIENT_SECRET"),
    ],
)
def test_a_secret_in_a_body_is_a_variable_in_its_place(
    tmp_path: Path, options: str, name: str
) -> None:
    found = made(f"curl {URL} {options}")
    assert list(found.variables) == [name] and not found.auths
    assert f"${{{name}}}" in found.commands[0]["http"]["body"].values()
    without_canary(found, tmp_path)


def test_secrets_in_an_address_are_variables_too() -> None:
    found = made("curl https://me:CANARY@api.example.com/hook/sk_live_CANARYCANARY/x")
    assert "CANARY" not in to_yaml(found.tree) and found.commands[0]["http"]["url"] == (
        "https://api.example.com/hook/${EXAMPLE_KEY}/x"
    )


@pytest.mark.parametrize(
    "name", ["page_token", "nextToken", "sort_key", "max_tokens", "monkey", "idempotency_key"]
)
def test_what_only_sounds_like_a_secret_stays(name: str) -> None:
    found = made(f"curl '{URL}?{name}=7'")
    assert not found.variables and found.commands[0]["http"]["params"] == {name: f"{{{name}}}"}


def test_what_becomes_an_argument_can_be_picked() -> None:
    line = f"""curl '{URL}?a=1&b=2' -H 'X-C: c' --json '{{"d": "4", "e": "{{a}}"}}'"""
    found = made(line, CurlOptions(params=("b", "X-C"))).commands[0]
    assert found["http"]["params"] == {"a": "1", "b": "{b}"}
    assert found["http"]["headers"] == {"X-C": "{X-C}"}
    # A text that would be taken for an argument has to be the value of one.
    assert found["http"]["body"] == {"d": "4", "e": "{e}"}
    assert found["input_schema"]["properties"]["e"]["default"] == "{a}"
    with pytest.raises(ConfigError, match="there is a, b, X-C, d, e"):
        made(line, CurlOptions(params=("nothing",)))


def test_variables_of_the_line_are_references_and_other_dollars_are_not(tmp_path: Path) -> None:
    line = f"""curl "{URL}/$ID/$$?a=$A" -H "X-B: $B" -d '{{"c": "$C", "d": 5}}'"""
    found = made(line.replace("/$$", ""), CurlOptions(name="x"))
    assert set(found.variables) == {"ID", "A", "B"}
    file = tmp_path / "a.yaml"
    file.write_text(to_yaml(found.tree))
    (loaded,) = load(file, {"ID": "1", "A": "2", "B": "3", "C": "wrong"}, strict=True).commands
    assert getattr(loaded.action, "url", None) == f"{URL}/1"
    assert getattr(loaded.action, "headers", None) == {"X-B": "3"}
    assert {name: its["default"] for name, its in loaded.schema["properties"].items()} == {
        "a": "2",
        "c": "$C",
        "d": 5,
    }


def test_a_place_to_be_filled_in_an_address_is_an_argument() -> None:
    found = made("curl https://api.example.com/users/{user_id}/items").commands[0]
    assert found["http"]["url"].endswith("/users/{user_id}/items")
    assert found["input_schema"]["required"] == ["user_id"]


def test_the_name_is_made_of_the_request() -> None:
    assert made(f"curl -d a=b {URL}").commands[0]["name"] == "post_example_v1_items"
    assert made(f"curl {URL}", CurlOptions(name="my items")).commands[0]["name"] == "my_items"
    assert made("curl http://127.0.0.1:8000/x").commands[0]["name"] == "get_local_x"
    assert any("--allow-private" in note for note in made("curl http://127.0.0.1:8000/x").notes)
