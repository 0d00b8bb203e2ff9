"""Where mcpx keeps what is not configuration (RUN-6). Losing it costs comfort, never function."""

import sys
from collections.abc import Mapping
from pathlib import Path


def state_folder(environ: Mapping[str, str]) -> Path:
    if given := environ.get("MCPX_STATE_DIR"):
        return Path(given).expanduser().absolute()
    home = Path(environ.get("HOME") or "~").expanduser()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "mcpx"
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "mcpx"
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "mcpx"
