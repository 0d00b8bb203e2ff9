"""Where mcpx keeps what is not configuration (RUN-6)."""

import sys
from collections.abc import Mapping
from pathlib import Path

STORE = "store:"
"""The name of a configuration that is kept in the store of all replicas."""


def laid_down(name: str, environ: Mapping[str, str]) -> str:
    """The folder of the configuration that is kept in the store, as it was fetched last; another
    name is what it is."""
    return str(state_folder(environ) / "shared") if name == STORE else name


def state_folder(environ: Mapping[str, str]) -> Path:
    if given := environ.get("MCPX_STATE_DIR"):
        return Path(given).expanduser().absolute()
    home = Path(environ.get("HOME") or "~").expanduser()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "mcpx"
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "mcpx"
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "mcpx"
