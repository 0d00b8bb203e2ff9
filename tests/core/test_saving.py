"""CFG-6: a save does not overwrite a change that another editor made since the file was read."""

from pathlib import Path

import pytest

from mcpx.core.saving import Overtaken, replace_file


def test_a_file_that_changed_since_it_was_read_is_not_replaced(tmp_path: Path) -> None:
    """CFG-6"""
    file = tmp_path / "config.yaml"
    file.write_bytes(b"mode: direct\n")
    before = file.read_bytes()
    file.write_bytes(b"mode: search\n")
    with pytest.raises(Overtaken):
        replace_file(file, b"mode: auto\n", before)
    assert file.read_bytes() == b"mode: search\n"
    assert [each.name for each in tmp_path.iterdir()] == ["config.yaml"]
    replace_file(file, b"mode: auto\n", b"mode: search\n")
    assert file.read_bytes() == b"mode: auto\n"
