"""Which file is the configuration when none, or only a name, was given (RUN-2).

Promised: a path that exists, or None for the demo. Not done here: reading it for good.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from mcpx.base import WINDOWS
from mcpx.config.dialects import TOP_KEYS
from mcpx.config.problems import Findings, GaveUpError
from mcpx.config.source import Source, UnreadableError, read_text
from mcpx.config.tree import is_extra
from mcpx.model.errors import ConfigError
from mcpx.model.state import STORE, laid_down

WORKING_FOLDER_NAMES = ("mcpx.yaml", "config.yaml", "config.json")

_UNMISTAKABLE = ("mcp_servers", "mcpServers", "auth_configs")
"""Top keys only an MCP program uses. `server`, `mode` and the like stand in many another program's
file."""


def find(argument: str | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The file to load (RUN-2); None when there is none and the demo shall run."""
    for name, origin in ((argument, ""), (environ.get("MCPX_CONFIG"), " (named by MCPX_CONFIG)")):
        if name:
            path = cwd / os.path.expanduser(laid_down(name, environ))
            if not os.path.exists(path) and name == STORE:
                raise ConfigError(
                    [
                        "error: nothing was fetched from the store yet: 'mcpx --config store:' "
                        "does it"
                    ]
                )
            if not os.path.exists(path):
                raise ConfigError([f"error: {name}{origin} does not exist"])
            return path
    for name in WORKING_FOLDER_NAMES:
        if _is_ours(cwd / name):
            return cwd / name
    path = own_file(environ)
    return path if os.path.isfile(path) else None


def own_file(environ: Mapping[str, str]) -> Path:
    """The user's own, looked at last."""
    path = os.path.join(config_home(environ), "mcpx", "config.yaml")
    return Path(os.path.abspath(os.path.expanduser(path)))


def config_home(environ: Mapping[str, str]) -> str:
    """Where people's configs lie, as they would spell it."""
    return environ.get("XDG_CONFIG_HOME") or (WINDOWS and environ.get("APPDATA")) or "~/.config"


def _is_ours(path: Path) -> bool:
    """Whether a file under a common name is meant for us: others have a `config.json` too."""
    if not os.path.isfile(path):
        return False
    try:
        source = Source(path)
        keys = {key for key in source.parse(Findings(source.trace)) if not is_extra(key)}
    except GaveUpError:
        try:
            text = read_text(path)
        except UnreadableError:
            return False
        return any(key in text for key in _UNMISTAKABLE)  # ours and broken: worth saying so
    return bool(keys.intersection(_UNMISTAKABLE)) or (
        bool(keys) and keys <= {*TOP_KEYS, "servers", "inputs"}
    )
