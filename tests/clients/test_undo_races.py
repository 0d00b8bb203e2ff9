"""RUN-5: an undo overwrites and deletes nothing that was written after it was planned."""

from pathlib import Path

import pytest

from clients.test_changes import TARGET
from mcpx.clients.catalogue import client, places_here
from mcpx.clients.changes import Change, make, to_connect, to_undo
from mcpx.clients.ledger import Ledger
from mcpx.core.saving import Overtaken


def planned_undo(tmp_path: Path, before: str | None) -> tuple[Change, Ledger]:
    """An undo of `connect`. `before`: what the client's file contained; None: it did not exist."""
    ledger, file = Ledger(tmp_path / "state"), tmp_path / "home" / ".cursor" / "mcp.json"
    cursor = client("cursor")
    assert cursor is not None
    place = places_here(cursor, tmp_path, {"HOME": str(tmp_path / "home")})[0]
    file.parent.mkdir(parents=True)
    if before is not None:
        file.write_text(before)
    make(to_connect(cursor, place, file, "stdio", TARGET), ledger, "run", tmp_path)
    (record,) = ledger.records()
    undo = to_undo(record, ledger)
    assert undo is not None and undo.exact
    return undo, ledger


@pytest.mark.parametrize("before", [None, "{}"])
def test_an_undo_leaves_a_file_alone_that_was_changed_after_it_was_planned(
    tmp_path: Path, before: str | None
) -> None:
    """RUN-5: neither is a file deleted that `connect` made, nor the former text restored."""
    undo, ledger = planned_undo(tmp_path, before)
    undo.file.write_text('{"mcpServers": {"other": {"command": "npx"}}}')
    with pytest.raises(Overtaken):
        make(undo, ledger, "undo", tmp_path)
    assert undo.file.read_text() == '{"mcpServers": {"other": {"command": "npx"}}}'
    assert ledger.records() != []
