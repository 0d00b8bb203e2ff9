"""SUR-9: cuts fall at the end of a sentence or of a word; what a model is told to say can be
copied."""

import json

import pytest

from mcpx.surfaces.text import (
    LONGEST_TO_COPY,
    exact,
    passages,
    purpose,
    sentences,
    short,
    within_tokens,
    words_within,
)
from mcpx.surfaces.view import Service


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("Reads a file. Writes it! Done?", ["Reads a file. ", "Writes it! ", "Done?"]),
        (
            "Takes e.g. a path, i.e. a string. Then stops.",
            ["Takes e.g. a path, i.e. a string. ", "Then stops."],
        ),
        (
            "Yu-Gi-Oh! card data (v2.0) of example.com. More",
            ["Yu-Gi-Oh! card data (v2.0) of example.com. ", "More"],
        ),
        ("读取文件。返回内容！好吗？好", ["读取文件。", "返回内容！", "好吗？", "好"]),
        ("", []),
    ],
)
def test_a_line_is_cut_into_its_sentences(line: str, parts: list[str]) -> None:
    assert sentences(line) == parts


def test_whole_sentences_are_kept_where_they_say_enough() -> None:
    assert short("Lists all commits of a repository. " + "It goes back to the first one. " * 9) == (
        "Lists all commits of a repository. It goes back to the first one."
    )
    assert short("Oh. " + "word " * 40).endswith("word...")
    assert (
        short("读取文件的全部内容并返回。" * 20, 30)
        == "读取文件的全部内容并返回。读取文件的全部内容并返回。"
    )


@pytest.mark.parametrize("most", range(4, 40))
def test_words_are_whole(most: int) -> None:
    line = "several words of one line and some_long_identifier at its end"
    cut = words_within(line, most)
    assert len(cut) <= most and line.startswith(cut)
    assert line[len(cut) :][:1] in ("", " ") or " " not in line[most // 2 : most]


def test_passages_end_where_their_lines_do() -> None:
    assert passages("One sentence\nover two lines.\nNotes:\n- first\n- second\n\nLast") == [
        "One sentence over two lines.",
        "Notes:",
        "- first",
        "- second",
        "Last",
    ]


@pytest.mark.parametrize(
    "name", ["plain", 'quo"te', "back\\slash", "two\nlines", "a  b", "字", "\u202eturned", "\ud83d"]
)
def test_a_name_to_copy_is_a_json_string_on_one_line(name: str) -> None:
    """SUR-9: whatever is in it, it is the name; nothing in it is invisible."""
    assert json.loads(exact(name)) == name
    assert exact(name).isprintable()


def test_a_name_that_is_too_long_is_cut() -> None:
    """SUR-9"""
    assert json.loads(exact("n" * 9000)) == "n" * LONGEST_TO_COPY + "..."


@pytest.mark.parametrize(
    ("description", "instructions", "said"),
    [
        ("A Model Context Protocol (MCP) server that provides rain alerts.", "", "rain alerts"),
        ("An MCP server for reading Outlook mail", "", "reading Outlook mail"),
        ("This server enables LLMs to query databases.", "", "query databases"),
        ("Orders of the shop. They are new.", "", "Orders of the shop"),
        (
            "# Title\n\n[![ci](https://a/b.svg)](https://a)\n\nTrack [DHL](https://d).",
            "",
            "Track DHL",
        ),
        ("", "# Rules\n\nPlans bicycle tours.", "Plans bicycle tours"),
        ("# Rules Plans", "# Rules Plans\n\nPlans bicycle tours.", "Plans bicycle tours"),
        ("一个基于 MCP 的火车票查询工具。", "", "火车票查询工具"),
        ("这是一个 MCP 服务器，用于查询股票行情。", "", "查询股票行情"),
        ("MCP server", "", "MCP server"),
        ("", "", ""),
    ],
)
def test_the_purpose_of_a_server_is_its_first_sentence(
    description: str, instructions: str, said: str
) -> None:
    """SUR-10: without the words that every server says."""
    assert purpose(Service("acme", description, instructions, "connected")) == said


@pytest.mark.parametrize("tokens", range(3, 12))
def test_a_line_within_tokens_ends_with_a_whole_word(tokens: int) -> None:
    """SUR-10"""
    line = "creating, reading and changing presentations with charts and tables"
    cut = within_tokens(line, tokens)
    assert line.startswith(cut) and line[len(cut)] in " ," and len(cut) <= 4 * tokens
