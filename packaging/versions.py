"""Writes the version of the package (`src/mcpx/__init__.py`) into the files that have to repeat it.

python packaging/versions.py            writes
python packaging/versions.py --check    fails, and says what differs
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = (HERE / "server.json", HERE / "mcpb" / "manifest.json")
FIELD = re.compile(r'(?<="version": ")[^"]*(?=")')


def version() -> str:
    source = (HERE.parent / "src" / "mcpx" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise SystemExit("src/mcpx/__init__.py has no __version__")
    return found[1]


def main() -> int:
    current, stale = version(), False
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        written, count = FIELD.subn(current, text)
        if not count:
            raise SystemExit(f"{file} has no version to write")
        if written == text:
            continue
        if "--check" in sys.argv[1:]:
            stale = True
            sys.stderr.write(
                f"{file} is not of version {current}: run python packaging/versions.py\n"
            )
        else:
            file.write_text(written, encoding="utf-8")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
