"""What large messages took is given back to the system."""

import ctypes
import subprocess
import sys

import pytest

SCRIPT = """
import orjson
from mcpx.wire import codec

def rss():
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * 4096

text = orjson.dumps({"rows": [{"name": "row %d" % n, "text": "x" * 40} for n in range(200_000)]})
held = [codec.load(text) for _ in range(3)]
kept = codec.load(b"{}")  # something young at the top
del held, text
before = rss()
codec.release_memory()
after = rss()
codec.release_memory()  # nothing is owed any more
print(before - after)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc"
)
def test_memory_of_large_messages_goes_back_to_the_system() -> None:
    """SEC-6"""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) > 2**20
