"""What references of client programs become: ours, a value, plain text, or why a server stays off
(CFG-3)."""

import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcpx.config.environment import Environment, peek
from mcpx.config.foreign import Input, Rewriting
from mcpx.config.source import Source
from mcpx.config.tree import Unresolved


def rewriting(*, expands: bool = True) -> Rewriting:
    return Rewriting(
        expands=expands,
        words={"userHome": "/home/me", "/": "/", "odd": "a$$b${c}"},
        missing={"workspaceFolder": "the folder that is open"},
        inputs={
            "key": Input(description="A key"),
            "r": Input(default="eu"),
            "cmd": Input("command"),
        },
    )


def meant(text: str, **environ: str) -> str:
    """As the loader reads it."""
    found = peek(Environment(environ, Path("/nowhere"), {}, []), Source(Path("x")).trace, text)
    assert not isinstance(found, Unresolved)
    return str(found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${env:X}", "${X}"),
        ("a ${env:X} b ${Y:-z}", "a ${X} b ${Y:-z}"),
        ("${X:-${env:Y}}", "${X:-${Y}}"),
        ("${userHome}/notes", "/home/me/notes"),
        ("${input:key}", "${KEY}"),
        ("${input:r}", "${R:-eu}"),
        ("${input:unknown-one}", "${UNKNOWN_ONE}"),
        ("${file:/run/x}", "${file:/run/x}"),
        ("$HOME", "$HOME"),
        ("$$", "$$$$"),
        ("$${X}", "$$${X}"),
        ("${odd}", "a$$$$b$${c}"),
        ("${never closed", "$${never closed"),
    ],
)
def test_a_reference_is_written_as_here(text: str, told: str) -> None:
    assert rewriting().server({"a": text}) == ({"a": told}, None)


@pytest.mark.parametrize(
    "text", ["${workspaceFolder}/x", "${input:cmd}", "${config:editor.x}", "${command:pick}", "${}"]
)
def test_what_has_no_meaning_here_stays_as_it_is_and_is_told(text: str) -> None:
    entry, why = rewriting().server({"a": {"b": [text]}})
    assert entry == {"a": {"b": [text]}} and why is not None and text[: text.index("}") + 1] in why


def test_every_change_is_told_and_so_is_what_has_to_be_set() -> None:
    work = rewriting()
    work.server({"a": "${env:X} ${input:key} ${Y} ${userHome}"})
    assert work.rewritten == {
        "${env:X}": "${X}",
        "${input:key}": "${KEY}",
        "${userHome}": "/home/me",
    }
    assert work.wanted == {"KEY": "A key"}


def test_in_a_program_that_replaces_nothing_a_dollar_is_a_letter() -> None:
    """Unless it is all that a variable is: nobody means that as text."""
    entry = {"connection": {"args": ["-c", "echo ${x} $$"], "env": {"A": "${B}", "C": "x${B}"}}}
    told, why = rewriting(expands=False).server(entry)
    assert why is None
    assert told["connection"] == {
        "args": ["-c", "echo $${x} $$$$"],
        "env": {"A": "${B}", "C": "x$${B}"},
    }


@given(st.text(st.sampled_from("a${}:-$ \\X"), max_size=20))
def test_plain_text_is_read_again_as_itself(text: str) -> None:
    told, why = rewriting(expands=False).server({"args": [text]})
    assert why is None and meant(told["args"][0]) == text


@given(st.lists(st.sampled_from(["${env:X}", "$", "$$", "{", "}", "a", "${userHome}"]), max_size=8))
def test_text_around_references_is_read_again_as_itself(parts: list[str]) -> None:
    text = "".join(parts)
    assume(re.search(r"\$\{a+\}", text) is None)  # which is a reference, to another variable
    told, why = Rewriting(words={"userHome": "/h"}).server({"a": text})
    if why is None:
        wanted = text.replace("${env:X}", "\0").replace("${userHome}", "/h").replace("\0", "value")
        assert meant(told["a"], X="value") == wanted
