"""SUR-7: JSON is said again only where nothing is lost by it."""

import json

import pytest

from mcpx.surfaces.large.reading import read
from mcpx.surfaces.large.shaping import decide
from mcpx.surfaces.settings import Rendering


def rendered(text: str) -> str | None:
    return decide([text], None, Rendering(), alone=True).shown[0]


@pytest.mark.parametrize(
    "value",
    [
        '{"a": 1, "a": 2}',
        '[{"id": 1, "k": 1, "k": 2}, {"id": 2, "k": 1}]',
        '{"pi": 3.14159265358979323846264338327950288}',
        '{"money": 12345678901234567.89}',
        '{"small": 1e-400}',
        '{"deep": [{"x": {"y": 0.1234567890123456789}}]}',
    ],
)
@pytest.mark.parametrize("indent", [False, True])
def test_a_text_that_its_value_does_not_say_whole_stays_as_it_came(
    value: str, indent: bool
) -> None:
    text = value.replace(", ", ",\n    ") if indent else value
    assert rendered(text) is None


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": [1.5, 0.1, 2.50, 1e100, -3, 10**30]},
        {"text": 'quoted " and \\ and \n', "é": "😀"},
        [{"id": n, "price": n + 0.25} for n in range(20)],
        {"third": 1 / 3},
    ],
)
def test_what_only_differs_in_white_space_is_said_shorter(value: object) -> None:
    text = json.dumps(value, indent=4)
    shown = rendered(text)
    assert shown is not None and len(shown) < len(text)


def test_a_text_that_is_too_deep_to_be_data_is_read_as_the_text_its_hint_speaks_of() -> None:
    """SUR-11: the preview and the reader take it for the same."""
    text = '{"n": ' * 300 + "1" + "}" * 300
    text = f'{{"pad": "{"x" * 20_000}", "n": {text}}}'
    piece = decide([text], None, Rendering(), alone=True).piece
    assert piece is not None and piece.begins.unit == "character"
    page = read(text.encode(), {"handle": "h", "offset": piece.begins.count}, limit_bytes=16_000)
    assert page.text.startswith(text[piece.begins.count :][:1_000])


def test_no_next_rows_are_offered_where_there_are_none() -> None:
    """SUR-11: one long string in a list is shown cut, and there is no second row."""
    piece = decide([json.dumps(["lorem ipsum " * 4_000])], None, Rendering(), alone=True).piece
    assert piece is not None and piece.begins.rows is None
    assert read(
        json.dumps(["lorem ipsum " * 4_000]).encode(),
        {"handle": "h", "jmespath": piece.begins.find},
        limit_bytes=16_000,
    )
