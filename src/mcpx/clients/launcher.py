"""The command line that starts this mcpx again tomorrow.

Promised: absolute, since programs with a window have another PATH than a shell. Of an installation
that is kept (uv tool, pipx, a virtual environment) it is its program; of one that lives in a cache
(uvx, pipx run), which may be emptied at any time, what made it. Not done here: what it is started
with.
"""

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mcpx import __version__

DISTRIBUTION = "mcpx-gateway"
_UV_CACHE = re.compile(r"[/\\](?:archive|environments|builds)-v\d+[/\\]")
_PIPX_CACHE = re.compile(r"[/\\]pipx[/\\]\.?cache[/\\]|[/\\]\.cache[/\\]pipx[/\\]")


@dataclass(frozen=True, slots=True)
class Launcher:
    words: tuple[str, ...]
    about: str
    """What was chosen, and why it will be there tomorrow, or what it takes."""


def launcher(prefix: str = sys.prefix, executable: str = sys.executable) -> Launcher:
    if (found := cached(prefix)) is not None:
        return found
    name = "mcpx.exe" if sys.platform == "win32" else "mcpx"
    beside = Path(executable).with_name(name)
    if not beside.exists():
        return Launcher((executable, "-m", "mcpx"), f"the Python that runs now ({executable})")
    # The name a tool's installer has put on PATH outlives a new environment of that tool.
    known = shutil.which(name)
    if (
        known is not None
        and os.path.isabs(known)
        and os.path.realpath(known) == os.path.realpath(beside)
    ):
        return Launcher((known,), f"the mcpx on your PATH ({known})")
    return Launcher(
        (str(beside),), f"the mcpx of this environment ({beside}); it must stay where it is"
    )


def cached(prefix: str) -> Launcher | None:
    """How to start one that lives in a cache; None: it lives somewhere that stays."""
    if _UV_CACHE.search(f"{prefix}{os.sep}"):
        uvx, uv = shutil.which("uvx"), shutil.which("uv")
        words = [uvx] if uvx else [uv or "uv", "tool", "run"]
        return Launcher(
            (*words, "--from", _source(), "mcpx"), "uvx, as this mcpx lives in uv's cache"
        )
    if _PIPX_CACHE.search(f"{prefix}{os.sep}"):
        pipx = shutil.which("pipx") or "pipx"
        return Launcher(
            (pipx, "run", "--spec", _source(), "mcpx"),
            "pipx run, as this mcpx lives in pipx's cache",
        )
    return None


def _source() -> str:
    """What it was installed from: a folder, an address, or a version of the distribution."""
    try:
        told: dict[str, Any] = json.loads(
            metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}"
        )
    except (metadata.PackageNotFoundError, ValueError):
        told = {}
    url = str(told.get("url") or "")
    if url.startswith("file://"):
        from urllib.request import url2pathname

        return url2pathname(url.removeprefix("file://"))
    if url and (vcs := told.get("vcs_info")):
        return f"{vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', '')}".rstrip("@")
    return url or f"{DISTRIBUTION}=={__version__}"
