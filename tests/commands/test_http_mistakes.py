"""SRC-3, SEC-4: what is wrong with an HTTP command is told when the file is read, with its
place."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpx.commands.http import HttpRequest
from mcpx.config import load
from mcpx.model.errors import ConfigError


def told(
    parameters: list[str] | None = None, **fields: Any
) -> list[tuple[str, tuple[str | int, ...], str]]:
    request = HttpRequest(**{"url": "https://api.example/x", **fields})
    return [(wrong.what, wrong.path, wrong.hint) for wrong in request.mistakes(parameters)]


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example",
        "https://api.example/v1/{city}/now?q={city}&x=1",
        "http://127.0.0.1:8080?q={city}",
        "http://[::1]:80/{city}.json",
        "HTTPS://api.example/%7Bx%7D",
    ],
)
def test_a_good_address_is_taken(url: str) -> None:
    assert told(["city"], url=url) == []


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("{city}/x", "must begin with http:// or https://"),
        ("{city}://api.example/x", "must begin with http:// or https://"),
        ("ftp://api.example/", "must begin with http:// or https://"),
        ("https://{city}/x", "scheme, host and port are fixed, and take no placeholder"),
        ("https://{city}.example/x", "scheme, host and port are fixed, and take no placeholder"),
        (
            "https://api.example:{city}/x",
            "scheme, host and port are fixed, and take no placeholder",
        ),
        ("https://api.example{city}", "scheme, host and port are fixed, and take no placeholder"),
        ("https://{city}@api.example/", "scheme, host and port are fixed, and take no placeholder"),
        ("https://me:pw@api.example/", "a user name or password in an address"),
        ("https://api.example:0/", "not a possible port"),
        ("https://api.example/x y", "not a possible address"),
        ("https://api.example/#{city}", "a placeholder after '#', which is never sent"),
        ("https://api.example/{city", "a brace that belongs to no placeholder"),
        ("https://api.example/{?city}", "a brace that belongs to no placeholder"),
    ],
)
def test_an_address_that_cannot_be_or_may_move_is_refused(url: str, what: str) -> None:
    """SEC-4."""
    assert [(said, path) for said, path, _ in told(["city"], url=url)] == [(what, ("url",))]


def test_a_placeholder_that_names_no_parameter_is_told_with_what_was_meant() -> None:
    wrong = told(
        ["city", "unit"],
        url="https://api.example/{ctiy}",
        params={"u": "{units}"},
        headers={"X-A": "{nothing}", "X-B": "{ city }"},
    )
    assert wrong == [
        ("no parameter named 'ctiy'", ("url",), "did you mean {city}?"),
        ("no parameter named 'units'", ("params", "u"), "did you mean {unit}?"),
        ("no parameter named 'nothing'", ("headers", "X-A"), "declare it in 'parameters'"),
        ("no parameter named 'city'", ("headers", "X-B"), "did you mean {city}?"),
    ]


def test_braces_that_look_like_no_name_are_text_in_parameters_and_headers() -> None:
    assert told(["a"], params={"filter": '{"x": 1}'}, headers={"X": "{}"}) == []


def test_with_a_schema_that_takes_any_argument_every_name_may_be_one() -> None:
    assert (
        told(None, url="https://api.example/{x}", params={"y": "{y}"}, headers={"Z": "{z}"}) == []
    )


def test_in_a_body_what_names_no_parameter_is_text() -> None:
    assert told(["a"], method="POST", body={"query": "{ user { name } } {b}"}) == []


@pytest.mark.parametrize(
    ("fields", "what", "path"),
    [
        ({"body_format": "json"}, "'body_format' without a 'body'", ("body_format",)),
        ({"method": "HEAD", "body": {"a": 1}}, "a HEAD request has no body", ("body",)),
        (
            {"body": {"a": 1}, "body_format": "text"},
            "a body that is sent as text must be a text",
            ("body",),
        ),
        (
            {"body": [1], "body_format": "form"},
            "a form is a mapping, or a text like a=1&b={b}",
            ("body",),
        ),
        ({"body": '{"a": {a}', "body_format": "json"}, "the body is no JSON text", ("body",)),
        (
            {"body": "hello", "headers": {"Content-Type": "application/json"}},
            "the body is no JSON text",
            ("body",),
        ),
        (
            {"body": {"a": 1}, "headers": {"content-type": "Text/XML; charset=utf-8"}},
            "a mapping or a list is sent as JSON, but 'Content-Type' is text/xml",
            ("body",),
        ),
        (
            {"body": {"a": 1}, "headers": {"Content-Type": "multipart/form-data"}},
            "a body of several parts is not made",
            ("body",),
        ),
        (
            {"params": {"{a}": "1"}},
            "the name of a query parameter takes no placeholder",
            ("params", "{a}"),
        ),
        ({"headers": {"Host": "x"}}, "the header 'Host' is set by mcpx", ("headers", "Host")),
        (
            {"headers": {"X": "a\nb"}},
            "holds a line break or NUL or the like, which a header cannot",
            ("headers", "X"),
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(
    fields: Any, what: str, path: tuple[str, ...]
) -> None:
    assert [(said, at) for said, at, _ in told(["a"], **fields)] == [(what, path)]


@pytest.mark.parametrize("expression", ["items[", "", "no_such(@, ", "a.`"])
def test_an_expression_that_is_none_is_refused(expression: str) -> None:
    ((what, path, _),) = told(["a"], result=expression)
    assert what.startswith("not a JMESPath expression: ") and path == ("result",)


def test_a_get_may_have_a_body() -> None:
    """Some search engines ask for it."""
    assert told(["a"], method="GET", body={"query": "{a}"}) == []


def test_a_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "commands:\n"
        "  - name: weather\n"
        "    type: http\n"
        "    http:\n"
        "      url: https://api.example/v1\n"
        "      params: {city: '{ctiy}'}\n"
        "    parameters: [{name: city}]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    said = str(caught.value)
    assert (
        "config.yaml:6:22" in said
        and "no parameter named 'ctiy'" in said
        and "did you mean {city}?" in said
    )


def test_a_command_that_declares_no_parameters_takes_what_its_placeholders_name(
    tmp_path: Path,
) -> None:
    """As the short examples have it."""
    file = tmp_path / "config.yaml"
    file.write_text(
        "commands:\n  - {name: w, type: http, http: {url: 'https://api.example/{a}', params: "
        "{city: '{city}'}}}\n"
    )
    (command,) = load(file, {}).commands
    assert command.schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "city": {"type": "string"}},
        "additionalProperties": False,
        "required": ["a", "city"],
    }


@pytest.mark.parametrize(
    ("command", "place", "what"),
    [
        (
            {"parameters": [{"name": "p", "pattern": "(("}]},
            "parameters[0]",
            "no JSON Schema that can be checked",
        ),
        (
            {"parameters": [{"name": "p", "pattern": "^(?!x)"}]},
            "parameters[0]",
            "no JSON Schema that can be checked",
        ),
        (
            {"parameters": [{"name": "p", "type": "array", "items": {"type": "odd"}}]},
            "parameters[0]",
            "no JSON Schema",
        ),
        (
            {"parameters": [{"name": "p", "pattern": "^a$", "default": "b"}]},
            "parameters[0].default",
            "the default is",
        ),
        (
            {"parameters": [{"name": "p", "type": "integer", "max": 9, "default": 10}]},
            "default",
            "beyond 'min' or",
        ),
        (
            {"input_schema": {"properties": {"p": {"pattern": "(("}}}},
            "input_schema",
            "no JSON Schema that can be",
        ),
        (
            {"input_schema": {"properties": {"p": {"$ref": "#/no"}}}},
            "input_schema",
            "refers to what is not in it",
        ),
        ({"input_schema": {"$ref": "#"}}, "input_schema", "goes in circles"),
    ],
)
def test_a_rule_that_could_not_be_checked_is_told(
    command: dict[str, Any], place: str, what: str, tmp_path: Path
) -> None:
    """SRC-5: it would let everything through."""
    file = tmp_path / "config.json"
    it = {"name": "it", "type": "http", "http": {"url": "https://api.example/x"}, **command}
    file.write_text(json.dumps({"commands": [it]}))
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    assert what in str(refused.value) and place in str(refused.value)


def test_a_number_that_is_not_finite_is_told() -> None:
    wrong = told(method="POST", body={"a": [1.0, float("nan")]})
    assert wrong == [("a number that is not finite, which JSON has not", ("body",), "")]
