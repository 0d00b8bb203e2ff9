"""What the tests need of the system they run on, in one table: where it is missing, they are
skipped with the reason.

A test needs something when its own text has one of the words that stand beside it, or its module
one of those for modules; whole modules are left out that import what is not there.
`@pytest.mark.needs("…")` says it where no word does. On Linux nothing is missing but programs that
are not installed; `scripts/test` installs them.
"""

import importlib.util
import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from mcpx.processes.systems import system

_POSIX = os.name == "posix"
SBIN = ("/usr/sbin", "/usr/local/sbin")
"""Where Debian puts what runs as a service; not on everybody's path."""


def program(*names: str) -> str | None:
    """The first of them that is installed."""
    where = os.pathsep.join((os.environ.get("PATH", ""), *SBIN))
    return next(
        (found for name in names if (found := shutil.which(name, path=where)) is not None), None
    )


@dataclass(frozen=True)
class Need:
    present: bool
    reason: str
    words: str = ""
    """A pattern over the text of a test."""
    modules: str = ""
    """The same over the text and the name of a whole module."""


NEEDS = {
    "linux": Need(
        system.NAME == "linux",
        "only Linux's way of owning processes promises it",
        r"linux\.|leftovers\.",
    ),
    "proc": Need(
        os.path.exists("/proc/self/stat"),
        "looks into /proc",
        r"/proc\b|\b(descendants|peak_memory|resident|zombies|descriptors|children|alive|environ)\(|has_forked",
    ),
    "pidfd": Need(
        hasattr(os, "pidfd_open"), "follows processes by pidfds", r"\bProcessWatch\(|pidfd"
    ),
    "signals": Need(
        _POSIX, "sends signals that Windows has not", r"signal\.SIG|\bos\.kill\(|\.send_signal\("
    ),
    "fork": Need(hasattr(os, "fork"), "forks", r"os\.(fork|mkfifo|killpg|setsid)\b"),
    "modes": Need(
        _POSIX, "is about file modes and owners", r"chmod|st_mode|0o[0-7]{3}|umask|st_uid"
    ),
    "programs": Need(
        _POSIX,
        "runs programs of Unix",
        r"\"(sh|bash|cat|sleep|true|false|env|printf|yes)\"|/bin/|#!/|'sh'",
    ),
    "links": Need(_POSIX, "makes symbolic links, which Windows lets few users do", r"symlink"),
    "sockets": Need(
        hasattr(__import__("socket"), "AF_UNIX") and _POSIX, "opens Unix sockets", r"AF_UNIX|unix_"
    ),
    "ps": Need(program("ps") is not None, "needs ps (Debian: procps)"),
    "bwrap": Need(program("bwrap") is not None, "needs bwrap (Debian: bubblewrap)"),
    "store": Need(
        program("valkey-server", "redis-server") is not None and program("haproxy") is not None,
        "needs valkey-server or redis-server, and haproxy",
        modules=r"(?m)^from (kit\.replicas|kit import replicas|replicas\.)|_balanced\.py\Z",
    ),
    "paths": Need(
        _POSIX, "spells paths as Unix does", r"\"/(etc|tmp|no|nowhere|dev|usr|home|srv)\b"
    ),
}
_MISSING = {name: need for name, need in NEEDS.items() if not need.present}
_UNIX_MODULES = ("fcntl", "pty", "pwd", "grp", "resource", "termios", "uvloop")
_ABSENT = [name for name in _UNIX_MODULES if importlib.util.find_spec(name) is None]
_IMPORTS = (
    re.compile(rf"^(?:import|from) ({'|'.join(_ABSENT)})\b", re.MULTILINE) if _ABSENT else None
)

left_out: dict[str, str] = {}
"""Modules that were not collected, and what they import that is not there."""


def is_left_out(path: Path) -> bool:
    """Whether a module of tests cannot be imported here."""
    if _IMPORTS is None or path.suffix != ".py":
        return False
    found = _IMPORTS.search(path.read_text("utf-8"))
    if found is not None:
        left_out[path.name] = found[1]
    return found is not None


def skip(items: Iterable[pytest.Item]) -> None:
    if not _MISSING:
        return
    for item in items:
        for reason in _reasons(item):
            item.add_marker(pytest.mark.skip(reason=f"{reason} ({system.NAME}, {sys.platform})"))


def _reasons(item: pytest.Item) -> Iterable[str]:
    asked = {str(name) for mark in item.iter_markers("needs") for name in mark.args}
    text = ""
    if isinstance(item, pytest.Function) and not sys.platform.startswith(
        "linux"
    ):  # there every word has its meaning
        text = inspect.getsource(item.function)
    for name, need in _MISSING.items():
        in_test = bool(text and need.words and re.search(need.words, text))
        if name in asked or in_test or (need.modules and re.search(need.modules, _text(item.path))):
            yield need.reason


@cache
def _text(module: Path) -> str:
    return f"{module.read_text('utf-8')}\n{module.name}"
