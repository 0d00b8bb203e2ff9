"""What the `bench` script calls: the benchmark of the repository that this file stands in."""

import sys
from pathlib import Path


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from bench.__main__ import main as run

    return run()
