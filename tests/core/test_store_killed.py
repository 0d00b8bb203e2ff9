"""CFG-6: a program that is killed while it saves leaves the old file or the new one, never a part
of either."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kit.command import mcpx, private_environ
from kit.gateway import Gateway
from mcpx.base.files import remove_leftovers, temporary_file
from mcpx.config import load
from mcpx.core.config_files import History

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")

LOOP = Path(__file__).with_name("saving_loop.py")
KILLS = 200
HEAD = (
    "# head\nmcp_servers:\n  - name: a   # named\n    enabled: false\n    connection: {type: "
    "stdio, command: x}\n"
)
SAVED = re.compile(rf"{re.escape(HEAD)}    description: (?P<one><\d+>)(?P=one){{199}}\n# end\n")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whenever_a_save_is_killed_the_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    """CFG-6: two hundred times, at random moments; the history goes on, too."""
    path, state = tmp_path / "mcpx.yaml", tmp_path / "state"
    path.write_text(f"{HEAD}# end\n")
    path.chmod(0o600)
    chance, seen = random.Random(6), set[str]()
    command = [sys.executable, LOOP, path, state]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as loops:
        assert loops.stdin is not None and loops.stdout is not None
        for _ in range(KILLS):
            loops.stdin.write("go\n")
            loops.stdin.flush()
            child = int(loops.stdout.readline())
            time.sleep(
                chance.uniform(0.0, 0.15)
            )  # a save takes some milliseconds of reading, writing and renaming
            os.kill(child, signal.SIGKILL)
            assert loops.stdout.readline() == "ended\n"
            text = path.read_text()
            assert text == f"{HEAD}# end\n" or SAVED.fullmatch(text), text[:400]
            seen.add(text)
        loops.stdin.close()
    assert len(seen) > KILLS // 10, "the saves were hardly met"
    assert load(path, {}).mcp_servers[0].name == "a"
    (folder,) = (state / "history").iterdir()
    kept = History(folder)
    numbers = [revision.number for revision in kept.revisions]
    assert numbers == sorted(set(numbers)) and len(numbers) > KILLS // 10
    assert all(kept.texts(number) for number in numbers)


@pytest.mark.parametrize("remedy", ["write", "start"])
def test_leftover_files_of_a_killed_save_are_deleted_at_the_next_write_and_start(
    tmp_path: Path, remedy: str
) -> None:
    """CFG-6: whatever step of the save was the last one."""
    path = tmp_path / "mcpx.yaml"
    text = f"{HEAD}# end\n"
    environ = private_environ(tmp_path)
    leftovers = 0
    command = [
        sys.executable,
        str(LOOP.with_name("interrupted_save.py")),
        "enable",
        "a",
        "--config",
        str(path),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ) as commands:
        assert commands.stdin is not None and commands.stdout is not None
        for step in range(200):
            path.write_text(text)
            path.chmod(0o600)
            commands.stdin.write("go\n")
            commands.stdin.flush()
            code = int(commands.stdout.readline())
            if path.read_text() != text:
                break  # The file is replaced: what follows is the history.
            assert code == -signal.SIGKILL, step
            leftovers += bool(list(tmp_path.glob(".mcpx-*.new")))
            if remedy == "write":
                assert mcpx(tmp_path, "enable", "a", "--config", str(path)).returncode == 0
            else:
                with Gateway(path, env={"MCPX_STATE_DIR": environ["MCPX_STATE_DIR"]}):
                    pass
            assert list(tmp_path.glob(".mcpx-*.new")) == [], step
        commands.stdin.close()
    assert path.read_text() == text.replace("enabled: false", "enabled: true")
    assert leftovers >= 3


def test_a_file_that_is_being_written_is_not_taken_for_a_leftover(tmp_path: Path) -> None:
    """CFG-6: two processes may save at the same time. A folder or link of that name is left
    alone."""
    (tmp_path / ".mcpx-folder.new").mkdir()
    (tmp_path / ".mcpx-link.new").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".mcpx-old.new").write_text("leftover")
    with temporary_file(tmp_path) as (file, name):
        remove_leftovers(tmp_path)
        assert Path(name).exists() and not (tmp_path / ".mcpx-old.new").exists()
        file.write(b"text")
        os.replace(name, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"text"
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        ".mcpx-folder.new",
        ".mcpx-link.new",
        "there",
    ]
