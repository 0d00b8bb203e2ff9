"""RUN-5: mcpx is written into each client's file exactly so, and taken back byte for byte."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcpx.clients.catalogue import (
    Client,
    Place,
    Transport,
    client,
    clients,
    home_folder,
    places_here,
)
from mcpx.clients.changes import Change, make, to_connect, to_disconnect, to_undo
from mcpx.clients.entry import Target
from mcpx.clients.ledger import Ledger
from mcpx.config.json_reader import read_json
from mcpx.config.nodes import values_of
from mcpx.config.problems import Findings
from mcpx.config.source import Source

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(f"{case.parent.name}/{case.name}" for case in GOLDEN.glob("*/*"))
WORDS = ["/opt/my tools/mcpx", "/home/ada/config.yaml", "--transport", "stdio"]
LABELS = {"windsurf/older-http": "Before"}
"""Files that are not the first of their client."""
FILLS = os.environ.get("MCPX_FILL_GOLDEN")
"""Set by hand to write what a new case gives; then it is read before it is committed."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "COPILOT_HOME", "CLINE_DIR", "KIMI_CODE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def place_of(case: str, project: Path) -> tuple[Client, Place]:
    known = client(case.partition("/")[0])
    assert known is not None and home_folder() != Path("~").expanduser().parent
    places = [place for place in places_here(known, project) if not place.spec.reads]
    own = [place for place in places if place.scope == "user"] or places
    return known, next(place for place in own if place.label == LABELS.get(case, place.label))


def target_of(case: str) -> tuple[Transport, Target]:
    over_http = case.endswith(("-http", "-token"))
    url = "http://127.0.0.1:8000/mcp" if over_http else None
    return ("http" if over_http else "stdio"), Target(url, WORDS, case.endswith("-token"))


def planned(case: str, tmp_path: Path, before: bytes | None) -> Change:
    known, place = place_of(case, tmp_path)
    file = Path(place.path)
    assert file.is_relative_to(tmp_path)
    file.parent.mkdir(parents=True, exist_ok=True)
    if before is not None:
        file.write_bytes(before)
    transport, target = target_of(case)
    return to_connect(known, place, file, transport, target)


@pytest.mark.parametrize("case", CASES)
def test_connect_gives_exactly_this_and_undo_gives_back_what_was(case: str, tmp_path: Path) -> None:
    """RUN-5"""
    before = (GOLDEN / case / "before").read_bytes()
    change = planned(case, tmp_path, before)
    ledger = Ledger(tmp_path / "state")
    make(change, ledger, "run", tmp_path)
    if FILLS:
        (GOLDEN / case / "after").write_bytes(change.file.read_bytes())
    assert change.file.read_bytes() == (GOLDEN / case / "after").read_bytes()
    again = planned(case, tmp_path, None)
    assert again.is_none, "what is there already is not written twice"
    back = to_undo(ledger.records()[-1], ledger)
    assert back is not None and back.exact
    make(back, ledger, "run", tmp_path)
    assert change.file.read_bytes() == before and ledger.records() == []


@pytest.mark.parametrize("case", [case for case in CASES if "old-entry" not in case])
def test_nothing_of_a_file_is_lost(case: str) -> None:
    """RUN-5: letter by letter what was there stands in what is there then, in its order."""
    before, after = ((GOLDEN / case / name).read_bytes() for name in ("before", "after"))
    left = iter(after)
    assert all(byte in left for byte in before)
    assert (b"\r\n" in before) == (b"\r\n" in after)


def read(text: str, format: str) -> Any:
    if format == "toml":
        return tomllib.loads(text)
    if format == "yaml":
        return yaml.safe_load(text)
    source = Source(Path("x.json"))
    found = Findings(source.trace)
    tree = values_of(read_json(text, found))
    assert not found
    return tree


@pytest.mark.parametrize("case", CASES)
def test_what_was_written_is_what_a_reader_of_that_format_finds(case: str, tmp_path: Path) -> None:
    known, place = place_of(case, tmp_path)
    tree = read((GOLDEN / case / "after").read_bytes().decode("utf-8-sig"), place.format)
    told = json.dumps(tree, default=str)
    assert ("http://127.0.0.1:8000/mcp" if target_of(case)[0] == "http" else WORDS[0]) in told
    assert known.id == case.partition("/")[0]


def test_there_is_a_case_for_every_client_that_has_a_file() -> None:
    able = {
        each.id
        for each in clients()
        if not each.imports_only and any(s.scope != "gui" for s in each.specs)
    }
    assert able == {case.partition("/")[0] for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_disconnect_leaves_what_was_there(case: str, tmp_path: Path) -> None:
    """RUN-5: also without any record of who wrote the entry."""
    (tmp_path / "home").mkdir()
    change = planned(case, tmp_path, (GOLDEN / case / "after").read_bytes())
    gone = to_disconnect(change.client, change.place, change.file, Ledger(tmp_path / "state"))
    assert gone is not None and gone.after is not None
    make(gone, Ledger(tmp_path / "state"), "run", tmp_path)
    assert (
        to_disconnect(change.client, change.place, change.file, Ledger(tmp_path / "state")) is None
    )
    before = (GOLDEN / case / "before").read_bytes()
    rest = read(gone.after.decode("utf-8-sig"), change.place.format) or {}
    was = read(before.decode("utf-8-sig"), change.place.format) or {} if before.strip() else {}
    if all(
        key in was for key in rest
    ):  # else a table or list that holds nothing any more is left, or a line end
        assert gone.after == before or "old-entry" in case or "null" in case or b"\n" not in before
    assert {
        key: value for key, value in was.items() if key not in change.place.roots[0]
    }.items() <= rest.items()
