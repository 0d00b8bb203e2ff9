"""RUN-5: what several programs do to one client's file at the same time can be taken back."""

from pathlib import Path

from mcpx.clients.catalogue import client, places_here
from mcpx.clients.changes import make, to_connect, to_undo
from mcpx.clients.entry import Target
from mcpx.clients.ledger import Ledger

TARGET = Target(None, ["/opt/mcpx", "c.yaml"], False)


def test_who_finds_the_entry_written_already_leaves_nothing_before_what_can_be_taken_back(
    tmp_path: Path,
) -> None:
    """Another one wrote it between our first look at the file and our plan."""
    ledger, file = Ledger(tmp_path / "state"), tmp_path / "home" / ".cursor" / "mcp.json"
    cursor = client("cursor")
    assert cursor is not None
    place = places_here(cursor, tmp_path, {"HOME": str(tmp_path / "home")})[0]
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    for run in ("theirs", "ours"):
        make(to_connect(cursor, place, file, "stdio", TARGET), ledger, run, tmp_path)

    (record,) = ledger.records()
    assert record.run == "theirs"
    undo = to_undo(record, ledger)
    assert undo is not None and undo.exact and undo.after == b"{}"
