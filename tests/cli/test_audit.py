"""OBS-1, RUN-2: `mcpx audit` as a function: which rows, from which files, in which words."""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mcpx.base.jsonl_file import backup_path
from mcpx.cli import audit as module
from mcpx.cli.audit import moment, show
from mcpx.cli.command_table import COMMANDS
from mcpx.cli.logs import appended_lines
from mcpx.cli.main import main
from mcpx.cli.parsing import parser_of
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError


def options(*words: str) -> argparse.Namespace:
    return parser_of(COMMANDS["audit"]).read(words)


def row(number: int, **more: object) -> Json:
    base = {
        "event": "call",
        "principal": "alice",
        "server": "mail",
        "name": "send",
        "outcome": "ok",
        "ms": 1.5,
    }
    return {"time": f"2026-01-{number:02d}T00:00:00.000Z", "method": "tools/call", **base, **more}


def written(folder: Path, *files: Sequence[Json]) -> None:
    """The newest file last, as the rows are."""
    for age, rows in enumerate(reversed(files)):
        name = "trail.jsonl" if age == 0 else f"trail.jsonl.{age}"
        (folder / name).write_text("".join(json.dumps(each) + "\n" for each in rows))


def days(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[int]:
    assert show(folder / "trail.jsonl", options("--json", *words)) == 0
    return [int(json.loads(line)["time"][8:10]) for line in capsys.readouterr().out.splitlines()]


def test_the_latest_come_last_through_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, [row(1), row(2)], [row(3), row(4)], [row(5)])
    assert days(tmp_path, capsys) == [1, 2, 3, 4, 5]
    assert days(tmp_path, capsys, "--limit", "2") == [4, 5]
    assert days(tmp_path, capsys, "--limit", "4") == [2, 3, 4, 5]


def test_a_trail_whose_newest_file_was_just_turned_over_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, [row(1)], [row(2)])
    (tmp_path / "trail.jsonl").rename(tmp_path / "trail.jsonl.2")
    (tmp_path / "trail.jsonl.1").rename(tmp_path / "x")
    (tmp_path / "trail.jsonl.2").rename(tmp_path / "trail.jsonl.1")
    (tmp_path / "x").rename(tmp_path / "trail.jsonl.2")
    assert days(tmp_path, capsys) == [1, 2]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--server", "web"], [2]),
        (["--tool", "get"], [2, 3]),
        (["--principal", "bob"], [3]),
        (["--outcome", "denied"], [3]),
        (["--tool", "get", "--principal", "alice"], [2]),
        (["--since", "2026-01-03"], [3, 4]),
        (["--since", "2026-01-02T12:00"], [3, 4]),
        (["--since", "2026-01-03T02:00:00+02:00"], [3, 4]),
        (["--since", "1h"], []),
    ],
)
def test_rows_are_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], found: list[int]
) -> None:
    written(
        tmp_path,
        [
            row(1),
            row(2, server="web", name="get"),
            row(3, name="get", principal="bob", outcome="denied"),
            row(4),
        ],
    )
    assert days(tmp_path, capsys, *words) == found


def test_what_is_no_row_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, [row(1), row(2)])
    file = tmp_path / "trail.jsonl"
    file.write_bytes(
        b'\n{"half":\n[]\nnull\n\xff\xfe\n' + file.read_bytes() + b'{"time":"being wri'
    )
    assert days(tmp_path, capsys) == [1, 2]


def test_people_get_a_table_without_commands_to_their_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        row(1, name="\x1b[31mred\nline", rule="policy.rules[0]", code=-33008, outcome="denied"),
        {
            "time": "2026-01-02T00:00:00.000Z",
            "event": "refused",
            "reason": "token",
            "address": "::1",
            "count": 7,
        },
        row(3, method="resources/read", name="file:///x"),
    ]
    written(tmp_path, events)
    assert show(tmp_path / "trail.jsonl", options()) == 0
    out = capsys.readouterr().out
    head, first, second, third = out.splitlines()
    assert head.split()[:3] == ["TIME", "(UTC)", "WHO"] and "\x1b" not in out
    assert (
        "policy.rules[0]" in first and "code -33008" in first and "2026-01-01 00:00:00.000" in first
    )
    assert "refused" in second and "count=7" in second
    assert "resources/read file:///x" in third


def test_without_a_trail_it_says_what_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mcpx.yaml"
    file.write_text("mcp_servers: []\n")
    assert main(["audit", str(file)]) == 1
    told = capsys.readouterr()
    assert told.out == "" and "audit: {}" in told.err


def test_a_trail_with_nothing_in_it_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(tmp_path / "trail.jsonl", options()) == 0
    assert "nothing was written yet" in capsys.readouterr().err
    written(tmp_path, [row(1)])
    assert show(tmp_path / "trail.jsonl", options("--tool", "none")) == 0
    assert "nothing to show" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--since", "soon"), ("--since", "99999999999d"), ("--limit", "0"), ("--limit", "x")]
)
def test_a_mistake_on_the_command_line_is_said(
    tmp_path: Path, words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mcpx.yaml"
    file.write_text("global: {audit: {}}\nmcp_servers: []\n")
    file.chmod(0o600)
    assert main(["audit", *words, str(file)]) == 2
    assert words[0] in capsys.readouterr().err
    with pytest.raises(ConfigError):
        show(tmp_path / "trail.jsonl", options(*words))


def test_a_span_is_counted_back_from_now() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    assert moment("90m", now) == "2026-01-01T22:30:00.000Z"
    assert moment("1w", now) == "2025-12-26T00:00:00.000Z"


def test_rows_of_short_names_fit_a_terminal_and_long_ones_are_not_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, [row(1), row(2, name="list_directory", outcome="tool_error")])
    assert show(tmp_path / "trail.jsonl", options()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        max(map(len, lines)) <= 80
        and [line.index("mail") for line in lines[1:]] == [lines[0].index("SERVER")] * 2
    )
    written(tmp_path, [row(1, name="x" * 100)])
    assert show(tmp_path / "trail.jsonl", options()) == 0
    assert "x" * 100 in capsys.readouterr().out


def test_an_outcome_that_no_call_has_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--outcome", "refused"]) == 2
    assert "tool_error" in capsys.readouterr().err


def test_rows_are_followed_through_a_file_that_is_turned_over(tmp_path: Path) -> None:
    """As by `tail -F`: the renamed file is read to its end, then the new one."""
    written(tmp_path, [row(1), row(2)])
    file = tmp_path / "trail.jsonl"
    _, position = module._latest(file, lambda _: True, 1)  # pyright: ignore[reportPrivateUsage]
    opened = module._reopened(file, position)  # pyright: ignore[reportPrivateUsage]
    following = appended_lines(file, opened)
    assert opened is not None
    with file.open("a") as lines:
        lines.write(json.dumps(row(3)) + "\n" + json.dumps(row(4)) + '\n{"time": "half')
    assert [json.loads(next(following)) for _ in range(2)] == [row(3), row(4)]
    with file.open("a") as lines:
        lines.write('"}\n')
    file.rename(backup_path(file, 1))
    file.write_text(json.dumps(row(5)) + "\n")
    assert [json.loads(next(following)) for _ in range(2)] == [{"time": "half"}, row(5)]
    following.close()
