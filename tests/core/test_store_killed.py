"""CFG-6: a program that is killed while it saves leaves the old file or the new one, never a part of either."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mcpx.config import load
from mcpx.core.history import Archive

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")

LOOP = Path(__file__).with_name("saving_loop.py")
KILLS = 200
HEAD = "# head\nmcp_servers:\n  - name: a   # named\n    enabled: false\n    connection: {type: stdio, command: x}\n"
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
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loops:
        assert loops.stdin is not None and loops.stdout is not None
        for _ in range(KILLS):
            loops.stdin.write("go\n")
            loops.stdin.flush()
            child = int(loops.stdout.readline())
            time.sleep(chance.uniform(0.0, 0.15))  # a save takes some milliseconds of reading, writing and renaming
            os.kill(child, signal.SIGKILL)
            assert loops.stdout.readline() == "ended\n"
            text = path.read_text()
            assert text == f"{HEAD}# end\n" or SAVED.fullmatch(text), text[:400]
            seen.add(text)
        loops.stdin.close()
    assert len(seen) > KILLS // 10, "the saves were hardly met"
    assert load(path, {}).mcp_servers[0].name == "a"
    (folder,) = (state / "history").iterdir()
    kept = Archive(folder)
    numbers = [revision.number for revision in kept.revisions]
    assert numbers == sorted(set(numbers)) and len(numbers) > KILLS // 10
    assert all(kept.texts(number) for number in numbers)
