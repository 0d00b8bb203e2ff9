"""The file with the numbers: one JSON object, its sections measured one by one, together or on
different days.

{"sections": {"hot": {"when": …, "length": "full", "seconds": …, "loads": […], "machine": {…},
"rows": […]}, …}}
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from bench.upstream import Json
from mcpx import __version__


def load(file: Path) -> Json:
    """Without a section when there is no file, or one of another kind."""
    found: Json = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found if "sections" in found else {"sections": {}}


def keep(
    file: Path, section: str, length: str, found: Json, began: float, loads: Sequence[float]
) -> None:
    """Puts one section into the file, in the place of an older one of that name; the others
    stay."""
    kept = load(file)
    kept["sections"][section] = {
        "when": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "length": length,
        "seconds": time.time() - began,
        "loads": list(loads),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "mcpx": __version__,
            "commit": _commit(),
        },
        **found,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    fresh.replace(file)


def _commit() -> str:
    """The commit that is measured, or an empty text outside of a clone."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def errors(results: Json, own: Collection[str], sections: Collection[str]) -> list[str]:
    """What went wrong with our own systems: a peer's troubles are reported in its row, and are not
    ours."""
    return [
        f"{name}, {row['name']} ({row['era']}): {error}"
        for name, section in results["sections"].items()
        if name in sections
        for row in section["rows"]
        if row["name"] in own
        for error in (*row["errors"], *([row["problem"]] if row["problem"] else ()))
    ]
