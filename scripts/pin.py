"""Writes the whole resolved dependency tree into `[tool.uv] constraint-dependencies` of
pyproject.toml.

`uv.lock` names the registry it was made with, so it stays out of git; the pins take its place.
"""

import re
import subprocess
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
EXPORT = [
    "uv",
    "export",
    "--all-groups",
    "--all-extras",
    "--no-hashes",
    "--no-emit-local",
    "--no-header",
    "--no-annotate",
]


def main() -> None:
    exported = subprocess.run(
        EXPORT, cwd=PYPROJECT.parent, check=True, capture_output=True, text=True
    ).stdout
    pins = "".join(f'  "{line.strip()}",\n' for line in exported.splitlines() if line.strip())
    text = PYPROJECT.read_text(encoding="utf-8")
    block = f"constraint-dependencies = [\n  # The whole tree, exactly: scripts/pin.py.\n{pins}]\n"
    text, count = re.subn(
        r"constraint-dependencies = \[\n.*?\n\]\n", lambda _: block, text, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit("pyproject.toml has no constraint-dependencies to replace")
    PYPROJECT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
