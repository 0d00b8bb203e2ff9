"""What the `bench`, `soak` and `fuzz` scripts call: those of the repository that this file stands
in."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> int:
    from bench.__main__ import main as run

    return run()


def soak() -> int:
    from bench.soak import main as run

    return run()


def fuzz() -> int:
    from bench.fuzz import main as run

    return run()
