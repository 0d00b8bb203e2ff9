"""SUR-9: cuts fall at the end of a sentence or of a word; what a model is told to say can be
copied."""

import json

import pytest

from mcpx.surfaces.texts.phrases import (
    LONGEST_TO_COPY,
    exact,
    passages,
    sentences,
    short,
    words_within,
)


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
