"""Operations of OpenAPI documents as commands."""

from pathlib import Path
from typing import Any

import pytest

from mcpx.config import load
from mcpx.imports.imported import Imported, fits, to_yaml
from mcpx.imports.openapi import DETAILS, Choice, OpenApiOptions, import_openapi, operations
from mcpx.imports.openapi_document import Document, read
from mcpx.model.errors import ConfigError

Json = dict[str, Any]
URL = "https://api.example.com/v1"


def made(paths: Json, wishes: OpenApiOptions | None = None, **top: Any) -> Imported:
    """Of a document with these paths; what comes out must load."""
    tree = {
        "openapi": "3.0.3",
        "info": {"title": "Pet API"},
        "servers": [{"url": URL}],
        "paths": paths,
        **top,
    }
    return import_openapi(Document(tree), wishes or OpenApiOptions())


def command(
    operation: Json, tmp_path: Path, path: str = "/a", method: str = "get", **top: Any
) -> Json:
    found = made({path: {method: operation}}, **top)
    assert found.skipped == []
    file = tmp_path / "made.yaml"
    file.write_text(to_yaml(found.tree))
    config = load(file, dict.fromkeys(found.variables, "x"), strict=True)
    assert [each.name for each in config.commands] == [each["name"] for each in found.commands]
    assert not [line for line in config.warnings if "not applied" not in line]
    return found.commands[0]


def parameter(name: str, place: str, schema: Json | None = None, **more: Any) -> Json:
    return {"name": name, "in": place, "schema": schema or {"type": "string"}, **more}


def json_body(schema: Json, kind: str = "application/json", **more: Any) -> Json:
    return {"required": True, "content": {kind: {"schema": schema}}, **more}


# ---- names, servers, choices


def test_names_are_unique_and_safe_for_clients() -> None:
    item = {
        "get": {"operationId": "pets.list all"},
        "post": {"operationId": "pets/list/all"},
        "put": {},
        "patch": {"operationId": "é"},
        "delete": {"operationId": "x" * 100},
        "head": {"operationId": "x" * 99},
    }
    found = {
        each.method: each.name
        for each in operations(Document({"openapi": "3.1.0", "paths": {"/p/{id}": item}}))
    }
    assert found == {
        "get": "pets_list_all",
        "put": "put_p_id",
        "post": "pets_list_all_2",
        "delete": "x" * 64,
        "head": "x" * 62 + "_2",
        "patch": "patch_p_id",
    }
    prefixed = operations(
        Document({"openapi": "3.1.0", "paths": {"/p": {"get": {"operationId": "all"}}}}), "pet_"
    )
    assert prefixed[0].name == "pet_all"


@pytest.mark.parametrize(
    ("choice", "picked"),
    [
        (Choice(), ["list", "make", "drop"]),
        (Choice(only=("LIST",)), ["list"]),
        (Choice(only=("* /pets",)), ["list", "make"]),
        (Choice(only=("get *", "drop")), ["list", "drop"]),
        (Choice(skip=("d*",)), ["list", "make"]),
        (Choice(tags=("read*",)), ["list"]),
        (Choice(methods=("POST", "delete")), ["make", "drop"]),
        (Choice(deprecated=True), ["list", "make", "old", "drop"]),
        (Choice(only=("old",)), ["old"]),
    ],
    ids=str,
)
def test_operations_are_picked_by_id_path_tag_and_method(choice: Choice, picked: list[str]) -> None:
    paths = {
        "/pets": {
            "get": {"operationId": "list", "tags": ["reading"]},
            "post": {"operationId": "make"},
        },
        "/old": {"get": {"operationId": "old", "deprecated": True}},
        "/pets/{id}": {"delete": {"operationId": "drop"}},
    }
    found = made(paths, OpenApiOptions(choice))
    assert [each["name"] for each in found.commands] == picked
    assert len(found.commands) + len(found.skipped) == 4


@pytest.mark.parametrize(
    ("servers", "base", "url"),
    [
        ([{"url": "https://a.example/"}], None, "https://a.example/a"),
        ([{"url": "/v2"}], "https://docs.example/x/openapi.json", "https://docs.example/v2/a"),
        ([{"url": "v2/"}], "https://docs.example/x/openapi.json", "https://docs.example/x/v2/a"),
        ([], "https://docs.example/x/openapi.json", "https://docs.example/a"),
        (
            [{"url": "https://{r}.a.example:{p}", "variables": {"r": {"default": "eu"}, "p": {"default": "8443"}}}],
            None,
            "https://eu.a.example:8443/a",
        ),
        ([{"url": "https://me:pw@a.example/x?y#z"}], None, "https://a.example/x/a"),
    ],
)  # fmt: skip
def test_the_address_is_that_of_the_first_server(
    servers: list[Json], base: str | None, url: str
) -> None:
    document = Document(
        {"openapi": "3.1.0", "servers": servers, "paths": {"/a": {"get": {}}}}, base
    )
    (found,) = import_openapi(document, OpenApiOptions()).commands
    assert found["http"]["url"] == url


def test_the_nearest_list_of_servers_counts_and_the_users_word_wins() -> None:
    item = {
        "get": {"servers": [{"url": "https://op.example"}]},
        "post": {},
        "servers": [{"url": "https://path.example"}],
    }
    urls = [each["http"]["url"] for each in made({"/a": item}).commands]
    assert sorted(urls) == ["https://op.example/a", "https://path.example/a"]
    assert {
        each["http"]["url"]
        for each in made({"/a": item}, OpenApiOptions(server="http://mine.example/x/")).commands
    } == {"http://mine.example/x/a"}
    (found,) = made({"/a$b": {"get": {}}}, OpenApiOptions(server="${API}")).commands
    assert "${API}/a$$b" in to_yaml({"commands": [found]})


@pytest.mark.parametrize(
    "url",
    ["/relative", "ftp://a.example", "https://{x}.example", "https://a b", "http://[::1", "\x1b"],
)
def test_a_server_that_cannot_be_used_is_a_reason(url: str) -> None:
    found = made({"/a": {"get": {}}}, servers=[{"url": url}])
    assert not found.commands and "--server" in found.skipped[0][1]


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "168.63.129.16", "192.88.99.1", "224.0.0.1", "[64:ff9b::a00:1]"]
)
def test_a_private_server_is_kept_and_told_and_let_through_only_when_asked(host: str) -> None:
    """Private is what a call would not reach (`wire.reach`); each Python's own `is_global` says
    something else."""
    servers = [{"url": f"http://{host}/latest"}]
    found = made({"/a": {"get": {}}}, servers=servers)
    assert "allow_private" not in found.commands[0]["http"] and "--allow-private" in found.notes[0]
    found = made({"/a": {"get": {}}}, OpenApiOptions(allow_private=True), servers=servers)
    assert found.commands[0]["http"]["allow_private"] is True and not found.notes


# ---- parameters


def test_parameters_go_where_they_belong(tmp_path: Path) -> None:
    asked = [
        parameter("id", "path", {"type": "integer"}, required=True),
        parameter(
            "q",
            "query",
            {"type": "array", "items": {"type": "string"}},
            description="what to look for",
        ),
        parameter("X-Trace", "header"),
        parameter("Accept", "header"),
        parameter("filter[name]", "query", {"type": "string", "default": "all"}),
    ]
    found = command({"operationId": "a", "parameters": asked}, tmp_path, "/a/{id}/b/{undeclared}")
    assert found["http"] == {
        "method": "GET",
        "url": f"{URL}/a/{{id}}/b/{{undeclared}}",
        "params": {"q": "{q}", "filter[name]": "{filter_name}"},
        "headers": {"X-Trace": "{X-Trace}"},
    }
    schema = found["input_schema"]
    assert schema["required"] == ["id", "undeclared"] and schema["additionalProperties"] is False
    assert schema["properties"]["q"]["description"] == "what to look for"
    assert schema["properties"]["filter_name"] == {
        "type": "string",
        "description": 'Default: "all"',
    }


def test_two_of_one_name_are_told_apart(tmp_path: Path) -> None:
    asked = [parameter("id", "query"), parameter("id", "path"), parameter("id", "header")]
    operation = {
        "parameters": asked,
        "requestBody": json_body({"properties": {"id": {"type": "integer"}, "a": {}}}),
    }
    found = command(operation, tmp_path, "/a/{id}", "post")
    assert found["http"]["url"].endswith("/a/{id}")
    assert found["http"]["params"] == {"id": "{query_id}"}
    assert found["http"]["headers"] == {"id": "{header_id}"}
    assert found["http"]["body"] == {"id": "{body_id}", "a": "{a}"}


def test_ways_of_writing_lists_and_objects_in_a_query(tmp_path: Path) -> None:
    listed = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    fields = {
        "type": "object",
        "properties": {"from": {"type": "integer"}, "to": {"type": "integer"}},
    }
    asked = [
        parameter("ids", "query", listed, explode=False),
        parameter("when", "query", fields, style="deepObject", explode=True),
        parameter("json", "query", content={"application/json": {"schema": fields}}),
    ]
    found = command({"parameters": asked}, tmp_path)
    assert found["http"]["params"] == {
        "ids": "{ids}",
        "when[from]": "{when_from}",
        "when[to]": "{when_to}",
        "json": "{json}",
    }
    ids = found["input_schema"]["properties"]["ids"]
    assert (
        ids["type"] == "string"
        and "separated by commas" in ids["description"]
        and "a, b" in ids["description"]
    )


def test_a_parameter_that_cannot_be_sent_is_left_out_or_a_reason() -> None:
    for place, name in (("cookie", "session"), ("header", "Host"), ("query", "a\x00b")):
        found = made({"/a": {"get": {"parameters": [parameter(name, place)]}}})
        assert len(found.commands) == len(found.notes) == 1
        found = made({"/a": {"get": {"parameters": [parameter(name, place, required=True)]}}})
        assert not found.commands and len(found.skipped) == 1


# ---- bodies


def test_the_fields_of_a_json_body_become_arguments(tmp_path: Path) -> None:
    base = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    own = {
        "properties": {
            "id": {"readOnly": True},
            "tags": {"type": "array"},
            "on": {"type": "boolean", "default": True},
        }
    }
    body = json_body({"allOf": [{"$ref": "#/components/schemas/Base"}, own]})
    found = command(
        {"requestBody": body}, tmp_path, method="patch", components={"schemas": {"Base": base}}
    )
    assert found["http"]["body"] == {"name": "{name}", "tags": "{tags}", "on": "{on}"}
    assert "body_format" not in found["http"]
    assert found["input_schema"]["required"] == ["name"]
    # A default that is sent would set back what a change leaves out.
    assert "default" not in found["input_schema"]["properties"]["on"]


@pytest.mark.parametrize(
    ("schema", "kind", "http"),
    [
        (
            {"type": "array", "items": {}},
            "application/json",
            {"body": "{body}", "body_format": "json"},
        ),
        (
            {"oneOf": [{}, {}]},
            "application/json; charset=utf-8",
            {"body": "{body}", "body_format": "json"},
        ),
        (
            {"properties": {"a": {}}},
            "application/vnd.api+json",
            {"body": {"a": "{a}"}, "headers": {"Content-Type": "application/vnd.api+json"}},
        ),
        (
            {"properties": {"a": {}}},
            "application/x-www-form-urlencoded",
            {"body": {"a": "{a}"}, "body_format": "form"},
        ),
        (
            {"type": "string"},
            "text/csv",
            {"body": "{body}", "body_format": "text", "headers": {"Content-Type": "text/csv"}},
        ),
    ],
)
def test_other_bodies_are_sent_as_what_they_are(
    tmp_path: Path, schema: Json, kind: str, http: Json
) -> None:
    found = command({"requestBody": json_body(schema, kind)}, tmp_path, method="post")
    assert {
        key: value for key, value in found["http"].items() if key not in ("method", "url")
    } == http


@pytest.mark.parametrize("kind", ["multipart/form-data", "application/octet-stream", "image/png"])
def test_a_body_that_mcpx_does_not_send_is_a_reason(kind: str) -> None:
    found = made({"/a": {"post": {"requestBody": json_body({}, kind)}}})
    assert not found.commands and kind in found.skipped[0][1]


@pytest.mark.parametrize(
    ("kinds", "answers"),
    [
        ([], None),
        (["application/json", "text/csv"], None),
        (["application/xml"], "xml"),
        (["text/plain"], "text"),
    ],
)
def test_answers_are_read_as_what_they_are(
    tmp_path: Path, kinds: list[str], answers: str | None
) -> None:
    responses = {
        "200": {"content": {kind: {} for kind in kinds}},
        "404": {"content": {"text/html": {}}},
    }
    assert command({"responses": responses}, tmp_path)["http"].get("response_format") == answers


# ---- security


def secured(scheme: Json, requirement: Any = None, **schemes: Json) -> Imported:
    components = {"securitySchemes": {"main": scheme, **schemes}}
    return made({"/a": {"get": {"security": requirement or [{"main": []}]}}}, components=components)


@pytest.mark.parametrize(
    ("scheme", "auth", "variables"),
    [
        (
            {"type": "apiKey", "in": "header", "name": "X-Key"},
            {
                "type": "api_key",
                "api_key": {"location": "header", "name": "X-Key", "value": "${PET_MAIN}"},
            },
            ["PET_MAIN"],
        ),
        (
            {"type": "apiKey", "in": "query", "name": "key"},
            {
                "type": "api_key",
                "api_key": {"location": "query", "name": "key", "value": "${PET_MAIN}"},
            },
            ["PET_MAIN"],
        ),
        (
            {"type": "http", "scheme": "Bearer"},
            {"type": "bearer_token", "bearer_token": {"token": "${PET_MAIN_TOKEN}"}},
            ["PET_MAIN_TOKEN"],
        ),
        (
            {"type": "http", "scheme": "basic"},
            {
                "type": "basic_auth",
                "basic_auth": {
                    "username": "${PET_MAIN_USERNAME}",
                    "password": "${PET_MAIN_PASSWORD}",
                },
            },
            ["PET_MAIN_USERNAME", "PET_MAIN_PASSWORD"],
        ),
        (
            {
                "type": "oauth2",
                "flows": {
                    "clientCredentials": {"tokenUrl": "https://a.example/token", "scopes": {}}
                },
            },
            {
                "type": "oauth2",
                "oauth2": {
                    "client_id": "${PET_MAIN_CLIENT_ID}",
                    "client_secret": "${PET_MAIN_CLIENT_SECRET}",
                    "token_url": "https://a.example/token",
                },
            },
            ["PET_MAIN_CLIENT_ID", "PET_MAIN_CLIENT_SECRET"],
        ),
        (
            {"type": "oauth2", "flows": {"authorizationCode": {}}},
            {"type": "bearer_token", "bearer_token": {"token": "${PET_MAIN_TOKEN}"}},
            ["PET_MAIN_TOKEN"],
        ),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) else "",
)
def test_what_an_api_asks_for_becomes_an_auth_config_with_variables(
    tmp_path: Path, scheme: Json, auth: Json, variables: list[str]
) -> None:
    found = secured(scheme)
    assert found.auths == [{"name": "pet_main", **auth}] and list(found.variables) == variables
    assert found.commands[0]["http"]["auth"] == {"ref": "pet_main"}
    file = tmp_path / "a.yaml"
    file.write_text(to_yaml(found.tree))
    load(file, dict.fromkeys(variables, "secret"), strict=True)


def test_of_several_ways_the_first_possible_one_is_taken() -> None:
    key = {"type": "apiKey", "in": "header", "name": "X-Key"}
    cookie = {"type": "apiKey", "in": "cookie", "name": "sid"}
    found = secured(cookie, [{"main": []}, {"key": []}], key=key)
    assert [each["name"] for each in found.auths] == ["pet_key"] and not found.notes
    found = secured(cookie)
    assert (
        not found.auths
        and len(found.commands) == 1
        and "cookie" in found.notes[0]
        and not found.variables
    )
    found = secured(key, [{"main": [], "other": []}], other={"type": "http", "scheme": "bearer"})
    headers = {"X-Key": "${PET_MAIN}", "Authorization": "Bearer ${PET_OTHER_TOKEN}"}
    assert found.auths[0]["custom_header"] == {"headers": headers}
    found = secured(key, [{}, {"main": []}])
    assert not found.auths


def test_an_operation_without_security_needs_no_auth_config() -> None:
    """SRC-7: an empty `security` of an operation replaces that of the document."""
    components = {"securitySchemes": {"main": {"type": "http", "scheme": "bearer"}}}
    paths = {"/open": {"get": {"security": []}}, "/closed": {"get": {}}}
    public, private = made(paths, components=components, security=[{"main": []}]).commands
    assert "auth" not in public["http"]
    assert private["http"]["auth"] == {"ref": "pet_main"}


def test_the_users_own_auth_config_is_used_and_none_written() -> None:
    components = {"securitySchemes": {"main": {"type": "http", "scheme": "bearer"}}}
    found = made(
        {"/a": {"get": {}}},
        OpenApiOptions(auth="mine"),
        components=components,
        security=[{"main": []}],
    )
    assert (
        found.commands[0]["http"]["auth"] == {"ref": "mine"}
        and not found.auths
        and not found.variables
    )


# ---- strangers' documents


def test_a_hostile_document_is_only_text(tmp_path: Path) -> None:
    """Names, texts and addresses that mean something to a shell, a terminal, a template or a
    loader."""
    text = "\x1b[2J${HOME} ${file:/etc/passwd} {id} $(rm) \u202e"
    operation = {
        "operationId": text,
        "summary": text,
        "tags": [text, 5],
        "parameters": [
            parameter(
                text.replace("\x1b", "").replace("\u202e", ""), "query", {"description": text}
            ),
            7,
            None,
        ],
        "requestBody": json_body(
            {"properties": {"${HOME}": {"default": text, "enum": [text]}, "{id}": {}, "<<": {}}}
        ),
        "responses": {"200": 5, "default": {"$ref": "#/nowhere"}},
    }
    found = made({"/a/${HOME}/{id}": {"post": operation}})
    file = tmp_path / "a.yaml"
    file.write_text(to_yaml(found.tree))
    (loaded,) = load(file, {"HOME": "/wrong"}, strict=True).commands
    assert loaded.description == "[2J${HOME} ${file:/etc/passwd} {id} $(rm)"
    assert loaded.schema == found.commands[0]["input_schema"]
    assert getattr(loaded.action, "url", None) == f"{URL}/a/${{HOME}}/{{id}}"
    assert "/wrong" not in repr(loaded) and "\x1b" not in file.read_text()


@pytest.mark.parametrize(
    "paths",
    [None, [], {"/a": None}, {"/a": []}, {"/a": {"get": None}}, {"/a": {"$ref": "#/paths/~1a"}},
     {"/a": {"$ref": "x.yaml"}},
     {"a": {"get": {}}}, {"/{": {"get": {}}}, {"/{a{b}}": {"get": {}}}, {"/a\n": {"get": {}}},
     {"/a": {"get": {"parameters": 5, "requestBody": [], "responses": 5, "security": 5, "servers": 5, "tags": 5}}},
     {"/a": {"get": {"parameters": [{"$ref": "other.json#/p"}]}}}, {"/a": {"get": {"requestBody": {"$ref": "#"}}}}],
    ids=str,
)  # fmt: skip
def test_nonsense_is_left_out_and_never_an_accident(paths: Any) -> None:
    found = made(paths)
    assert len(found.commands) + len(found.skipped) <= 1 and fits(found)


LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n + 1}: &a{n + 1} [{f'*a{n},' * 10}]\n" for n in range(9)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("[1]", "not a mapping"),
        ("{}", "no key 'openapi'"),
        ('{"openapi": "3.0.0"', "not valid JSON"),
        ("openapi: [", "not valid YAML"),
        ("swagger: '2.0'", "Swagger 2.0"),
        ("openapi: 4.0.0", "4.0.0"),
        ("openapi: 3.0.0\na: &a [x]\nb: !!python/object:os.system {}", "tag"),
        ("openapi: 3.0.0\nx: " + "[" * 5_000, "nested more than"),
        (LAUGHS, "values"),
    ],
    ids=lambda value: value[:20],
)  # fmt: skip
def test_what_is_no_document_is_refused_with_the_reason(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "document"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read(str(file), {})
    assert said in str(refused.value)


def test_json_and_yaml_say_the_same(tmp_path: Path) -> None:
    yaml_file, json_file = tmp_path / "a.yaml", tmp_path / "a.json"
    yaml_file.write_text(
        "openapi: 3.1.0\npaths:\n  /a:\n    get:\n      responses:\n        200: {description: "
        "2027-01-31}\n"
    )
    said = (
        '{"openapi": "3.1.0", "paths": {"/a": {"get": {"responses": {"200": {"description": '
        '"2027-01-31"}}}}}}'
    )
    json_file.write_text("\ufeff" + said)
    assert read(str(yaml_file), {}).tree == read(str(json_file), {}).tree


def test_what_is_too_much_is_cut_until_it_fits() -> None:
    fields = {
        f"field_{n}": {"type": "object", "description": "x" * 500, "properties": {"a": {}, "b": {}}}
        for n in range(30)
    }
    operation = {"description": "y" * 2_000, "requestBody": json_body({"properties": fields})}
    small = made({f"/a{n}": {"post": operation} for n in range(5)})
    large = made({f"/a{n}": {"post": operation} for n in range(100)})
    assert not small.shortened and large.shortened and fits(large) and len(large.commands) == 100
    assert (
        len(large.commands[0]["description"])
        < len(small.commands[0]["description"])
        <= DETAILS[0].text
    )


def test_rules_that_cannot_be_checked_are_left_out_and_told(tmp_path: Path) -> None:
    asks = [
        parameter("p", "query", {"type": "string", "pattern": "^(?!x)"}),
        parameter("q", "query", {"type": "integer", "minimum": 1}),
    ]
    found = made({"/a": {"get": {"parameters": asks}}})
    assert any("patterns cannot be checked" in note for note in found.notes)
    taken = command({"parameters": asks}, tmp_path)["input_schema"]["properties"]
    assert "pattern" not in taken["p"] and taken["q"]["minimum"] == 1
