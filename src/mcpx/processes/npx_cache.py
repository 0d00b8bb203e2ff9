"""Removes half-written packages that an interrupted `npx` leaves in npm's cache (LIF-10).

npx installs a package into `<cache>/_npx/<hash>` and writes `node_modules/.package-lock.json` last.
If it is stopped before that, later runs use the half-written packages, and the server fails until a
user deletes the folder. npm rolls back after SIGINT, but only when all packages are unpacked, and
not after SIGTERM or SIGKILL.

Guarantees: a complete installation and one that another npm works on are not touched. An
installation without a `concurrency.lock` (npm before 11) counts as abandoned after `QUIET` seconds,
or at once if its npx was a child of this process and has ended.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcpx.processes.downloaders import program_name

_log = logging.getLogger("mcpx.process")

LOCK_IS_TOUCHED_WITHIN = 3.0
"""Seconds. npm touches the lock that it holds every second."""
QUIET = 60.0
"""Seconds without a new package after which an installation without a lock counts as abandoned."""
_FLAGS = frozenset(
    {"-y", "--yes", "-q", "--quiet", "--prefer-online", "--prefer-offline", "--offline", "--silent"}
)


def install_folder(command: str, args: Sequence[str], env: Mapping[str, str]) -> Path | None:
    """The folder in which npx installs the packages of this command line. None if the folder is not
    known."""
    packages = _packages(command, args)
    cache = _cache_folder(env)
    if not packages or cache is None:
        return None
    names = "\n".join(sorted(packages))
    digest = hashlib.sha512(names.encode()).hexdigest()
    return cache / "_npx" / digest[:16]


async def remove_half_written(folder: Path, *, ours: bool) -> bool:
    """Remove packages in `folder` that no npm will complete. `ours`: the npx that wrote them was a
    child and has ended.

    Returns whether packages were removed."""
    modules, lock = folder / "node_modules", folder / "concurrency.lock"
    if not _is_half_written(modules) or await _is_held(lock):
        return False
    if not (ours or lock.exists()) and time.time() - _newest(modules) < QUIET:
        return False
    if not _is_half_written(modules):
        return False  # It was completed during the wait.
    await asyncio.to_thread(shutil.rmtree, modules, ignore_errors=True)
    with contextlib.suppress(OSError):
        lock.rmdir()
    _log.info("removed half-written packages that an interrupted npx left in %s", folder)
    return True


def _is_half_written(modules: Path) -> bool:
    return modules.is_dir() and not (modules / ".package-lock.json").exists()


async def _is_held(lock: Path) -> bool:
    """Whether a running npm holds the lock."""
    seen = _changed_at(lock)
    if seen is None:
        return False
    age = time.time() - seen
    if age < LOCK_IS_TOUCHED_WITHIN:
        await asyncio.sleep(LOCK_IS_TOUCHED_WITHIN - max(age, 0.0))
    return _changed_at(lock) not in (seen, None)


def _newest(modules: Path) -> float:
    """The time at which the last package was added."""
    packages = [*modules.glob("*"), *modules.glob("@*/*")]
    return max((_changed_at(each) or 0.0 for each in [modules, *packages]), default=0.0)


def _changed_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _packages(command: str, args: Sequence[str]) -> list[str]:
    """The package specifications, as npx reads them; empty if the command line has options that are
    not known here."""
    words = list(args)
    program = program_name(command)
    if program == "cmd":
        while words and words[0].startswith("/"):
            words.pop(0)
        return _packages(words[0], words[1:]) if words else []
    if program == "npm" and words[:1] in (["exec"], ["x"]):
        words.pop(0)
    elif program != "npx":
        return []
    named: list[str] = []
    while words:
        word = words.pop(0)
        option, given, value = word.partition("=")
        if option in ("-p", "--package"):
            named.append(value if given else words.pop(0) if words else "")
        elif word == "--":
            break
        elif not word.startswith("-"):
            words.insert(0, word)
            break
        elif word not in _FLAGS:
            return []
    packages = named or words[:1]
    if any(not package or package.startswith((".", "/", "~", "file:")) for package in packages):
        return []  # A folder, which npx resolves first.
    return packages


def _cache_folder(env: Mapping[str, str]) -> Path | None:
    variables = {name.lower(): value for name, value in env.items()}
    home = variables.get("home") or variables.get("userprofile")
    if configured := variables.get("npm_config_cache"):
        return Path(configured)
    npmrc = variables.get("npm_config_userconfig") or (
        os.path.join(home, ".npmrc") if home else None
    )
    configured = None if npmrc is None else _cache_setting(Path(npmrc))
    if configured is not None:
        return None if "$" in configured else Path(configured)
    if os.name == "nt":
        local = variables.get("localappdata")
        return Path(local) / "npm-cache" if local else None
    return Path(home) / ".npm" if home else None


def _cache_setting(npmrc: Path) -> str | None:
    try:
        lines = npmrc.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.strip() == "cache":
            return value.strip().strip("\"'")
    return None
