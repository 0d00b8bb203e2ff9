"""SRC-7: what `mcpx import` writes is called through the program, against an API on this
machine."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.client import Session
from kit.command import mcpx
from kit.gateway import Gateway
from kit.http_api import ApiRequest, HttpApi
from kit.messages import text_of
from kit.node import NPM, NotInstalledError

Json = dict[str, Any]


def imported(folder: Path, *args: str) -> Json:
    done = mcpx(folder, "import", *args)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


@pytest.fixture
def document() -> Path:
    """Of a chat service, with 120 operations."""
    file = NPM / "node_modules" / "revolt-api" / "OpenAPI.json"
    if not file.is_file():
        raise NotInstalledError("The npm package revolt-api")
    return file


def test_a_document_of_120_operations_is_imported_checked_and_called(
    tmp_path: Path, document: Path
) -> None:
    """SRC-7: all of it at once; path, query, body and key arrive as the document says."""
    file = tmp_path / "revolt.yaml"
    with HttpApi() as api:
        api.otherwise(lambda asked: {"method": asked.method, "path": asked.path})
        done = mcpx(
            *(
                tmp_path,
                "import",
                "openapi",
                str(document),
                "--server",
                f"{api.url}/api",
                "--allow-private",
            ),
            *("-o", str(file)),
        )
        assert done.returncode == 0, done.stderr
        assert "119 commands imported, 1 skipped" in done.stderr
        assert "its body is application/octet-stream" in done.stderr
        assert "set REVOLT_SESSION_TOKEN: header x-session-token" in done.stderr
        assert file.stat().st_mode & 0o777 == 0o600
        secrets = {"REVOLT_SESSION_TOKEN": "session-1", "REVOLT_VALID_MFA_TICKET": "ticket-1"}
        checked = mcpx(tmp_path, "check", str(file), **secrets)
        assert checked.returncode == 0, checked.stderr
        assert "119 commands" in checked.stdout
        with Gateway(yaml.safe_load(file.read_text()), env=secrets) as gateway:
            session = Session(gateway.port)
            assert len(session.tools()) == 119
            found = json.loads(
                text_of(session.call("message_query_query", target="01/2", limit=5, sort="Latest"))
            )
            assert found == {"method": "GET", "path": "/api/channels/01%2F2/messages"}
            assert api.last.pairs == [("limit", "5"), ("sort", "Latest")]
            assert api.last.get("x-session-token") == "session-1"
            session.call(
                "message_send_message_send", target="7", content="hello {target} $5", replies=[]
            )
            assert (api.last.method, api.last.path) == ("POST", "/api/channels/7/messages")
            assert api.last.json == {"content": "hello {target} $5", "replies": []}
            session.call("edit_user_edit", target="7", status={"text": "away"})
            assert api.last.json == {"status": {"text": "away"}}
            count = len(api.seen)
            refused = session.call("message_query_query", target="1", limit="many")
            assert (
                refused["result"]["isError"]
                and "limit" in text_of(refused)
                and len(api.seen) == count
            )


def test_a_document_is_fetched_and_its_server_is_found_beside_it(tmp_path: Path) -> None:
    """SRC-7, SEC-4: a relative server is one of the document's own address; loopback has to be let
    through."""
    operation = {
        "operationId": "ping",
        "parameters": [{"name": "X-Trace", "in": "header", "schema": {}}],
    }
    paths = {"/ping": {"get": operation}}
    with HttpApi() as api:
        api.on(
            "GET",
            "/v1/openapi.json",
            lambda _: {"openapi": "3.1.0", "servers": [{"url": "../v2"}], "paths": paths},
        )
        api.on("GET", "/v2/ping", lambda asked: {"trace": asked.get("x-trace")})
        url = f"{api.url}/v1/openapi.json"
        refused = mcpx(tmp_path, "import", "openapi", url)
        assert refused.returncode == 2 and "--allow-private" in refused.stderr and not api.seen
        config = imported(tmp_path, "openapi", url, "--allow-private")
        with Gateway(config) as gateway:
            assert json.loads(text_of(Session(gateway.port).call("ping", **{"X-Trace": "a"}))) == {
                "trace": "a"
            }


JSON = b'{"a":1,"b":[true,null],"c":"{a}"}'
LINES = [
    (
        "curl {url}/items?limit=5&tag=a&tag=b",
        "GET",
        [("limit", "5"), ("tag", "a"), ("tag", "b")],
        b"",
    ),
    (
        "curl -G {url}/items -d limit=5 -d 'q=a+b%26c'",
        "GET",
        [("limit", "5"), ("q", "a b&c")],
        b"",
    ),
    ("curl -sS -XPUT {url}/items -d a=1 -d 'b=x y'", "PUT", [], b"a=1&b=x+y"),
    (
        """curl {url}/items --json '{"a": 1, "b": [true, null], "c": "{a}"}'""",
        "POST",
        [],
        b'{"a":1,"b":[true,null],"c":"{a}"}',
    ),
    (
        """curl {url}/items -H 'Content-Type: text/plain' -d 'just {text} $5'""",
        "POST",
        [],
        b"just {text} $5",
    ),
    ("""curl {url}/items --data-raw $'{"a": "it\\'s \\u0021"}'""", "POST", [], b'{"a":"it\'s !"}'),
    ("curl -X HEAD {url}/items", "HEAD", [], b""),
]


@pytest.mark.parametrize(
    ("line", "method", "pairs", "body"), LINES, ids=[line.split()[1] for line, *_ in LINES]
)
def test_a_command_made_of_a_curl_line_asks_what_the_line_asks(
    tmp_path: Path, line: str, method: str, pairs: list[tuple[str, str]], body: bytes
) -> None:
    """SRC-7: without any argument."""

    def same(asked: ApiRequest) -> bool:
        return (asked.method, asked.path, asked.pairs, asked.body) == (
            method,
            "/items",
            pairs,
            body,
        )

    with HttpApi() as api:
        api.on(method, "/items", lambda _: {"good": True})
        config = imported(
            tmp_path, "curl", line.replace("{url}", api.url), "--allow-private", "--name", "asked"
        )
        with Gateway(config) as gateway:
            answer = Session(gateway.port).call("asked")
            assert "isError" not in answer["result"], answer
        assert same(api.last), api.last


def test_a_secret_of_a_curl_line_is_shown_to_the_api_and_written_nowhere(tmp_path: Path) -> None:
    """SRC-7: it comes from the variable that the import names."""
    with HttpApi() as api:
        api.on("POST", "/items", lambda asked: {"given": asked.json["name"]})
        line = (
            f"""curl '{api.url}/items' -H 'Authorization: Bearer CANARY' --json '{{"name": "x"}}'"""
        )
        done = mcpx(tmp_path, "import", "curl", "--allow-private", "--name", "make", stdin=line)
        assert done.returncode == 0 and "CANARY" not in done.stdout + done.stderr
        assert "set LOCAL_TOKEN" in done.stderr
        with Gateway(yaml.safe_load(done.stdout), env={"LOCAL_TOKEN": "CANARY"}) as gateway:
            assert json.loads(text_of(Session(gateway.port).call("make", name="y"))) == {
                "given": "y"
            }
        assert api.last.get("authorization") == "Bearer CANARY"
