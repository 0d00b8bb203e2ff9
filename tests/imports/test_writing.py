"""What is written loads again as what was meant, whatever texts it holds."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.config import load
from mcpx.imports.imported import (
    MAX_IMPORT_NODES,
    Imported,
    config_value,
    fits,
    reference,
    to_file,
    to_yaml,
)
from mcpx.imports.source import clean
from mcpx.model.errors import ConfigError

NASTY = [
    *(
        "${HOME}",
        "$${HOME}",
        "$HOME",
        "$",
        "$$",
        "${file:/etc/passwd}",
        "${",
        "{x}",
        "{}",
        "a: b",
        "- a",
        "# a",
        "yes",
    ),
    *(
        "null",
        "~",
        "1.10",
        "0x10",
        "1e3",
        "2027-01-31",
        "12:30:00",
        "<<",
        "=",
        "'",
        '"',
        "\\",
        "%",
        "@",
        "`",
        "&a",
        "*a",
    ),
    *(
        "!!python/object",
        "|",
        ">",
        " leading",
        "trailing ",
        "two\nlines",
        "\n\nbreaks\n\n",
        " \n indented\n  more",
    ),
    *("tab\there", "\ttab", "a\n\n b\n", "é…漢字😀", "\u00a0"),
]


def loaded(tmp_path: Path, description: str, default: object = "") -> tuple[str, object]:
    schema = {"type": "object", "properties": {"x": {"default": default}}}
    http = {"url": "https://a.example/"}
    command = {
        "name": "a",
        "description": description,
        "type": "http",
        "http": http,
        "input_schema": schema,
    }
    file = tmp_path / "a.yaml"
    file.write_text(to_yaml(config_value({"commands": [command]})), encoding="utf-8")
    (found,) = load(file, {"HOME": "/wrong"}, strict=True).commands
    return found.description, found.schema["properties"]["x"]["default"]


@pytest.mark.parametrize("text", NASTY)
def test_a_text_that_means_something_elsewhere_is_only_a_text(tmp_path: Path, text: str) -> None:
    assert loaded(tmp_path, text, [text, {"k": text}]) == (text, [text, {"k": text}])


@given(st.text())
def test_any_text_loads_as_it_was_but_for_what_nobody_sees(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    assert loaded(folder, text, text) == (clean(text), clean(text))


def test_control_characters_and_turns_of_direction_are_taken_out() -> None:
    assert clean("a\x1b[31mb\x00\u202ec\r\nd\u2028e\x9f\ufeff") == "a[31mbc\nd\ne"


def test_a_reference_that_is_meant_is_one(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    auth = {"name": "a", "type": "bearer_token", "bearer_token": {"token": reference("TOKEN")}}
    file.write_text(to_yaml(config_value({"auth_configs": [auth]})))
    (found,) = load(file, {"TOKEN": "t"}).auth_configs
    assert getattr(found.auth, "token", None) == "t"


def test_a_file_is_for_its_owner_alone_and_never_instead_of_another(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    to_file(file, "a: 1\n")
    assert file.read_text() == "a: 1\n" and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="--force"):
        to_file(file, "a: 2\n")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="--force"):
        to_file(tmp_path / "link.yaml", "a: 2\n")
    to_file(file, "a: 3\n", force=True)
    assert file.read_text() == "a: 3\n" and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="cannot be written"):
        to_file(tmp_path / "no" / "such.yaml", "")
    assert sorted(os.listdir(tmp_path)) == ["link.yaml", "new.yaml"]


def test_what_a_configuration_cannot_hold_does_not_fit() -> None:
    small = {"name": "a", "type": "http", "http": {"url": "https://a.example"}}
    assert fits(Imported([small]))
    assert not fits(Imported([{"list": [0] * MAX_IMPORT_NODES}]))
    assert not fits(Imported([{"text": "x" * 1024 * 1024}]))
