"""Descriptions that were docstrings: what is said of parameters belongs to the parameters."""

import random
import time

import pytest

from mcpx.surfaces.docstrings import LONGEST, Docstring, read

GOOGLE = """Search the archive.

    Newest first.

    Args:
        query: What to look for,
            in any language
        limit (int, optional): At most so many

    Returns:
        List[str]: Titles and links

    Raises:
        ValueError: if it is empty

    Example:
        search("x")
    """
NUMPY = """Search the archive.

Newest first.

Parameters
----------
query : str
    What to look for,
    in any language
limit : int, optional
    At most so many

Returns
-------
Titles and links
"""
REST = """Search the archive.

Newest first.

:param query: What to look for,
    in any language
:param int limit: At most so many
:type limit: int
:returns: Titles and links
:rtype: list
"""
JSDOC = """Search the archive.

Newest first.

@param {string} query - What to look for, in any language
@param {number} [limit] At most so many
@returns Titles and links
"""
MARKDOWN = """Search the archive.

Newest first.

**Parameters:**
- `query` (string, required): What to look for, in any language
- **limit**: At most so many

### Returns
Titles and links
"""
WORDY = """Search the archive.

Newest first.

The parameters explained:
- query: What to look for, in any language
- limit: At most so many

Returns:
Titles and links
"""
FLAT = (
    "Search the archive. Newest first. Args: query: What to look for, in any language limit "
    "(int): At most so many "
    "Returns: Titles and links"
)
PARAMETERS = {"query": "", "limit": ""}


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST, JSDOC, MARKDOWN, WORDY, FLAT])
def test_what_is_said_of_a_parameter_is_its_note(text: str) -> None:
    found = read(text, PARAMETERS)
    assert " ".join(found.text.split()) == "Search the archive. Newest first."
    assert found.notes == {"query": "What to look for, in any language", "limit": "At most so many"}
    assert found.returns == "Titles and links"


def test_examples_and_errors_are_kept_apart() -> None:
    found = read(GOOGLE, PARAMETERS)
    assert found.examples == 'search("x")'
    assert found.raises == "ValueError: if it is empty"


def test_chinese_blocks_are_understood() -> None:
    found = read("查询天气。\n\n参数：\n    city：城市名称\n返回值：\n    天气预报\n", {"city": ""})
    assert found == Docstring("查询天气。", {"city": "城市名称"}, "天气预报")


def test_a_note_stands_for_the_schema_where_it_says_more_and_behind_it_where_it_says_something_else() -> (
    None
):
    """SUR-2: what only the description says is not lost."""
    text = (
        "Reads.\n\nArgs:\n    path: The path, absolute\n    mode: fast or slow\n    size: size "
        "of it\n"
    )
    said = {"path": "The path", "mode": "How careful it is.", "size": "The size of all of it"}
    notes = {"path": "The path, absolute", "mode": "How careful it is; fast or slow"}
    assert read(text, said).notes == notes


@pytest.mark.parametrize(
    "text",
    [
        "Shows the parameters: all of them.",
        "Parameters: none",
        "Reads.\n\nArgs:\n    other: nobody has it",
        "Returns the first of them.",
        "See the example below.\nParameters are explained there.",
        "Takes these arguments:\n- one\n- two",
    ],
)
def test_what_tells_of_no_parameter_stays_text(text: str) -> None:
    assert read(text, {"path": ""}) == Docstring(text)


def test_what_the_signature_does_not_have_stays_text() -> None:
    found = read(
        "Reads.\n\nArgs:\n    path: Where\n    secret: Set by the server\n\nThen it closes it.",
        {"path": ""},
    )
    assert found.notes == {"path": "Where"}
    assert found.text.split() == [
        "Reads.",
        "secret:",
        "Set",
        "by",
        "the",
        "server",
        "Then",
        "it",
        "closes",
        "it.",
    ]


def test_what_follows_a_block_is_text_again() -> None:
    found = read(
        "Deletes.\n\nArgs:\n    path: Where\n\nWarning:\n    Cannot be undone.", {"path": ""}
    )
    assert found.text == "Deletes.\n\nWarning:\n    Cannot be undone."


def test_code_is_not_taken_for_blocks() -> None:
    text = "Runs.\n```\nArgs:\n    path: not a note\n```"
    assert read(text, {"path": ""}).notes == {}


def test_any_text_is_read_soon_and_nothing_of_it_is_lost_to_an_error() -> None:
    """Hostile texts: pieces in any order, and long runs of what patterns repeat."""
    pieces = [
        "Args:",
        "\n",
        "    ",
        "a",
        "a:",
        ":param a:",
        "@param",
        "---",
        "(",
        "[",
        "`",
        "*",
        "- ",
        "Returns:",
        " ",
        "。",
    ]
    chance = random.Random(7)
    for _ in range(2_000):
        read("".join(chance.choices(pieces, k=40)), {"a": "", "b": "text"})
    began = time.perf_counter()
    for piece in (*pieces, "Args: a: ", "a (", "\n:param ", "{", "# ", "\nArgs:\n"):
        read(piece * (LONGEST // len(piece)), {"a": "", "b": ""})
    assert time.perf_counter() - began < 5
    assert read("x" * 1_000_000, {}).text == "x" * 1_000_000
