"""What every format keeps, whoever wrote it, and what becomes of one that does not (FMT-1, FMT-2,
RUN-8)."""

import copy
import json
import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from mcpx.formats import FORMATS, SCHEMA_FORMATS, VALUE_FORMATS
from mcpx.formats.json import as_json
from mcpx.formats.writing import schema_writer, value_writer

ROWS = [{"id": n, "name": f"row {n}", "size": n * 3} for n in range(5)]
VALUES = [
    ROWS,
    {"rows": ROWS},
    {},
    [],
    "text",
    "",
    1,
    1.5,
    2**80,
    True,
    None,
    "\ud83d",
    [[[]]],
    {"ä": "🎉"},
]
SCHEMAS: list[Any] = [
    {},
    True,
    {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where"}},
        "required": ["path"],
    },
    {"$ref": "#"},
    {"type": "array", "items": {"enum": [1, "a", None]}},
]


def test_the_formats_are_those_that_are_promised() -> None:
    """FMT-1, FMT-2"""
    assert sorted(FORMATS) == ["json", "toon", "typescript"]
    assert sorted(VALUE_FORMATS) == ["json", "toon"]
    assert sorted(SCHEMA_FORMATS) == ["json", "typescript"]


@pytest.mark.parametrize("name", sorted(VALUE_FORMATS))
def test_a_value_has_one_text_and_stays_as_it_is(name: str) -> None:
    part = VALUE_FORMATS[name]()
    for value in VALUES:
        before = copy.deepcopy(value)
        text = part.value(value)
        assert text is None or isinstance(text, str)
        assert part.value(value) == text and value == before
        assert isinstance(value_writer(name)(value), str)


@pytest.mark.parametrize("name", sorted(SCHEMA_FORMATS))
def test_a_schema_has_one_text_and_stays_as_it_is(name: str) -> None:
    part = SCHEMA_FORMATS[name]()
    for schema in SCHEMAS:
        before = copy.deepcopy(schema)
        text = part.schema(schema)
        assert text is None or isinstance(text, str)
        assert part.schema(schema) == text and schema == before
        assert schema_writer(name).signature("tool", schema).startswith("tool")


def test_json_is_the_value() -> None:
    for value in VALUES:
        assert json.loads(as_json(value)) == value


# ---- of somebody else


@dataclass(frozen=True)
class Odd:
    """Whatever a test wants of it."""

    type: ClassVar[str] = "odd"
    answer: ClassVar[Any] = None

    min_size: int = 0
    max_description_len: int | None = None

    def value(self, value: object) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer

    schema = value


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One more format in the family."""
    monkeypatch.setitem(FORMATS.loaded, "odd", Odd)
    monkeypatch.setattr(Odd, "answer", None)
    value_writer.cache_clear()
    schema_writer.cache_clear()
    yield Odd
    value_writer.cache_clear()
    schema_writer.cache_clear()


@pytest.mark.parametrize("answer", [None, ValueError("secret"), 7, b"bytes"], ids=str)
def test_what_a_format_has_no_words_for_or_fails_on_is_json(
    answer: Any, odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    odd.answer = answer
    with caplog.at_level(logging.WARNING):
        write = value_writer("odd")
        assert [write({"a": 1}), write([1, 2])] == ['{"a":1}', "[1,2]"]
        assert write.better({"a": 1}, '{ "a": 1 }') == '{"a":1}'
        assert write.better({"a": 1}, '{"a":1}') is None
        assert schema_writer("odd").signature("tool", {"a": 1}) == 'tool {"a":1}'
    assert len(caplog.messages) == (0 if answer is None else 2)  # once for values, once for schemas
    assert "secret" not in caplog.text


def test_a_chosen_format_is_used_though_it_is_longer(odd: Any) -> None:
    odd.answer = "a text that is longer than the JSON"
    assert value_writer("odd").better({"a": 1}, '{"a":1}') == odd.answer


def test_a_format_gets_what_the_config_says_of_the_fields_it_has(odd: Any) -> None:
    odd.answer = lambda self, _=None: f"{self.min_size} {self.max_description_len}"
    assert value_writer("odd", 7)(0) == "7 None"
    assert schema_writer("odd", 9).signature("tool", {}) == "tool 0 9"


def test_a_format_that_cannot_be_made_is_json(
    monkeypatch: pytest.MonkeyPatch, odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(Odd, "__post_init__", refuse, raising=False)
    monkeypatch.setattr(Odd, "__init__", refuse)
    with caplog.at_level(logging.WARNING):
        assert value_writer("odd")([1]) == "[1]"
        assert value_writer("odd")([2]) == "[2]"
    assert len(caplog.messages) == 1 and "'odd'" in caplog.text
