"""Which files make up a configuration (CFG-7): one, or those of a folder, and the overlays of an
environment.

Promised: names only, in a fixed order; nothing is opened. `mcpx.prod.yaml` is the overlay of
`mcpx.yaml` for the environment `prod`; in a folder every file with such a double name is an
overlay.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from mcpx.config.problems import Findings, GaveUpError
from mcpx.config.tree import shorten

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Files:
    base: list[Path]
    overlays: list[Path]
    looked_for: list[Path]
    """Whatever would change the outcome by coming, going or changing."""
    warnings: list[str] = field(default_factory=list[str])


def find_files(path: Path, env: str | None, findings: Findings) -> Files:
    if env and not re.fullmatch(r"[\w-]+", env):
        findings.add(
            f"{shorten(env)!r} is not a possible environment name",
            hint="letters, digits, '-' and '_'",
        )
        raise GaveUpError
    is_folder = os.path.isdir(path)
    files = _of_folder(path, env, findings) if is_folder else _of_file(path, env)
    if env and not files.overlays:
        beside = [file for file in members(path if is_folder else path.parent) if _env_of(file)]
        names = ", ".join(file.name for file in beside if is_folder or _base_of(file) == path.stem)
        hint = f"overlays found: {shorten(names, 200) or 'none'}"
        findings.add(f"no overlay for the environment {shorten(env)!r}", hint=hint)
    return files


def members(folder: Path) -> list[Path]:
    """The config files of a folder and their overlays, by name; hidden files are none of them."""
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (OSError, ValueError):  # gone, not ours to read, or a NUL in its name
        return []
    return [folder / name for name in names if Path(name).suffix.lower() in SUFFIXES]


def is_base(file: Path) -> bool:
    """Whether a file of this name is found in a folder, and is no overlay there."""
    return not file.name.startswith(".") and file.suffix.lower() in SUFFIXES and not _env_of(file)


def _of_file(path: Path, env: str | None) -> Files:
    candidates = (
        [path.with_name(f"{path.stem}.{env}{suffix}") for suffix in SUFFIXES] if env else []
    )
    return Files(
        [path], [file for file in candidates if os.path.lexists(file)], [path, *candidates]
    )


def _of_folder(path: Path, env: str | None, findings: Findings) -> Files:
    found = members(path)
    base = [file for file in found if not _env_of(file)]
    overlays = [file for file in found if env and _env_of(file) == env]
    if not base:
        findings.add(
            "the folder holds no config file",
            hint=f"expected {', '.join(f'*{end}' for end in SUFFIXES)}",
        )
    stems = {file.stem for file in base}
    warnings = [
        (
            f"{file.name} is left out: its name makes it an overlay for the environment "
            f"{_env_of(file)!r}"
        )
        for file in found
        if _env_of(file) not in ("", env) and _base_of(file) not in stems
    ]
    return Files(base, overlays, [path, *base, *overlays], warnings)


def _env_of(file: Path) -> str:
    """`prod` of `mcpx.prod.yaml`; nothing of `mcpx.yaml`."""
    return Path(file.stem).suffix[1:]


def _base_of(file: Path) -> str:
    return Path(file.stem).stem
