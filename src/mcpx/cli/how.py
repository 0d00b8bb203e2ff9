"""How `mcpx [CONFIG]` shall run, as flags and environment say it. Imports next to nothing: a client
waits for it.

Promise: the same as the whole program would find (RUN-2), or None where only the whole program can
tell.
"""

import argparse
import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from mcpx.cli.where import named
from mcpx.model.errors import ConfigError
from mcpx.model.state import laid_down

WORKING_FOLDER_NAMES = ("mcpx.yaml", "config.yaml", "config.json")
LINGER = 60.0
"""Seconds a gateway in the background stays after its last client."""
LONGEST_LINGER = 7 * 24 * 3600.0
TRUE, FALSE = ("true", "1"), ("false", "0")

_OURS = re.compile(rb"^(?:mcp_servers|mcpServers|auth_configs)[ \t]*:", re.MULTILINE)
_MOST = 1 << 20


def by_stdio(options: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    wanted = options.transport or choice(environ, "MCPX_TRANSPORT", ("stdio", "http"))
    if wanted is not None:
        return wanted == "stdio"
    return options.host is None and options.port is None and _started_by_a_client()


def _started_by_a_client() -> bool:
    """Standard input is a pipe, a socket (Node programs give one) or a file: RUN-2."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def choice(environ: Mapping[str, str], name: str, allowed: Collection[str]) -> str | None:
    value = environ.get(name)
    if value and value not in allowed:
        raise ConfigError([f"error: {name} is {value!r}; it must be one of {', '.join(allowed)}"])
    return value or None


def is_strict(options: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """`--strict`, or MCPX_STRICT: an unset variable of a server or command is an error."""
    return (
        getattr(options, "strict", False)
        or choice(environ, "MCPX_STRICT", ("true", "false")) == "true"
    )


def alone(options: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """`--standalone`: no other gateway is looked for, and none is started in the background."""
    return options.standalone or choice(environ, "MCPX_STANDALONE", (*TRUE, *FALSE)) in TRUE


def linger(options: argparse.Namespace, environ: Mapping[str, str]) -> float:
    given, name = options.linger, "--linger"
    if given is None:
        given, name = environ.get("MCPX_LINGER") or None, "MCPX_LINGER"
    if given is None:
        return LINGER
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", given) is None or float(given) > LONGEST_LINGER:
        told = (
            f"error: {name} is {given[:40]!r}; it is a number of seconds, a week "
            f"({LONGEST_LINGER:.0f}) at most"
        )
        raise ConfigError([told])
    return float(given)


def config_path(options: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    """The config that `find` would find, absolute; None where that takes a closer look, or there is
    none."""
    for name in (named(options), environ.get("MCPX_CONFIG")):
        if name:
            path = Path.cwd() / os.path.expanduser(laid_down(name, environ))
            return Path(os.path.abspath(path)) if os.path.exists(path) else None
    for name in WORKING_FOLDER_NAMES:
        if os.path.lexists(name):
            return Path(os.path.abspath(name)) if _is_ours(name) else None
    folder = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = Path(os.path.abspath(Path(folder, "mcpx", "config.yaml")))
    return path if os.path.isfile(path) else None


def _is_ours(name: str) -> bool:
    """Whether that can be seen at a glance."""
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            return False
        with open(name, "rb") as file:
            text = file.read(_MOST)
    except OSError:
        return False
    if not name.endswith(".json"):
        return _OURS.search(text) is not None
    import json

    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(keys, dict) and not keys.keys().isdisjoint(
        ("mcp_servers", "mcpServers", "auth_configs")
    )
