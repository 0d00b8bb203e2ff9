"""Server entries that point back to the gateway. Files of client programs often have one.

An entry is left out, with a warning, if it runs mcpx on the same file, or if its URL is where the
gateway listens. Only the common command lines are recognized: `mcpx`, `uvx mcpx`, and
`python -m mcpx`. If a shell or another wrapper starts the gateway, the started gateway notices it
(`MCPX_INSIDE`).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from mcpx.config.locate import find
from mcpx.config.schema import Config, Server
from mcpx.config.tree import as_list
from mcpx.model.errors import ConfigError
from mcpx.processes.downloaders import program_name
from mcpx.processes.environment import child_environment
from mcpx.transports import Http, Sse, Stdio, Websocket

_PROGRAMS = ("mcpx", "mcpx-gateway")
_MODULE = (("-m", "mcpx"), ("-m", "mcpx.__main__"))
_VALUE_OPTIONS = (
    *("--admin-port", "--config", "--env", "--host", "--log-level"),
    *("--mode", "--port", "--profile", "--transport"),
)
_SECURE = ("https", "wss")


def without_itself(config: Config, host: str, port: int) -> Config:
    """Leave out the servers whose URL is the address that the gateway listens on."""

    def reason(server: Server) -> str | None:
        connection = server.connection
        is_remote = isinstance(connection, Http | Sse | Websocket)
        if is_remote and _is_own_url(connection.url, host, port):
            return "its URL is where mcpx listens"
        return None

    return _without(config, reason, {})


def without_runs_of(
    path: Path, config: Config, environ: Mapping[str, str], own_names: Mapping[str, str]
) -> Config:
    """Leave out the servers that run mcpx on this file or folder.

    `own_names`: the names in the file of servers that were renamed.
    """

    def reason(server: Server) -> str | None:
        connection = server.connection
        if isinstance(connection, Stdio) and _runs_on(path, connection, environ):
            return "it runs mcpx on this file"
        return None

    return _without(config, reason, own_names)


def is_mcpx(name: str, connection: Mapping[str, object]) -> bool:
    """Return True if an entry of a client's file is mcpx, with any configuration.

    The entry runs mcpx, or is named like mcpx and has a URL of this machine.
    """
    command = connection.get("command")
    if isinstance(command, str):
        arguments = as_list(connection.get("args")) or []
        return _arguments([command, *map(str, arguments)]) is not None
    try:
        host = urlsplit(str(connection.get("url") or "")).hostname
    except ValueError:
        return False
    return name.startswith("mcpx") and host is not None and _is_this_machine(host)


def config_named(words: Sequence[str]) -> str | None:
    """The configuration that a command line of mcpx names."""
    return _config_of(_arguments(words) or [])


def _without(
    config: Config, reason: Callable[[Server], str | None], own_names: Mapping[str, str]
) -> Config:
    enabled = [server for server in config.mcp_servers if server.enabled]
    reasons = {server.name: why for server in enabled if (why := reason(server))}
    if not reasons:
        return config
    warnings = [
        f"server {own_names.get(name, name)!r} is left out, it is this gateway itself: {why}"
        for name, why in reasons.items()
    ]
    servers = tuple(server for server in config.mcp_servers if server.name not in reasons)
    return replace(config, mcp_servers=servers, warnings=(*config.warnings, *warnings))


def _is_own_url(url: str, host: str, port: int) -> bool:
    host = host.lower().strip("[]")
    try:
        parts = urlsplit(url)
        default_port = 443 if parts.scheme.lower() in _SECURE else 80
        if (parts.port or default_port) != port:
            return False
    except ValueError:
        return False
    path = parts.path.rstrip("/")
    if not path.endswith(("/mcp", "/sse", "/ws")) and not path.startswith("/mcp/"):
        return False
    name = (parts.hostname or "").lower()
    return name == host or (_is_this_machine(name) and _is_this_machine(host))


def _is_this_machine(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() in ("localhost", "")
    return address.is_loopback or address.is_unspecified


def _runs_on(path: Path, connection: Stdio, environ: Mapping[str, str]) -> bool:
    arguments = _arguments([connection.command, *connection.args])
    if arguments is None:
        return False
    env = child_environment(environ, connection.env, connection.inherit_env)
    try:
        found = find(_config_of(arguments), env, Path(connection.cwd or Path.cwd()))
        return found is not None and os.path.samefile(found, path)
    except (ConfigError, OSError, ValueError):  # It would not start.
        return False


def _arguments(words: Sequence[str]) -> list[str] | None:
    """The arguments of mcpx in a command line. None if it runs another program."""
    if not words:
        return None
    if _program(words[0]) in _PROGRAMS:
        return list(words[1:])
    for index, pair in enumerate(pairwise(words)):
        if pair in _MODULE:
            return list(words[index + 2 :])
    own = [index for index, word in enumerate(words) if _program(word) in _PROGRAMS]
    if _program(words[0]) == "uvx" and own:
        return list(words[own[-1] + 1 :])
    return None


def _program(word: str) -> str:
    return program_name(word).partition("@")[0]  # `uvx mcpx@1.2`


def _config_of(arguments: list[str]) -> str | None:
    if arguments[:1] == ["serve"]:
        arguments = arguments[1:]
    for word, following in pairwise([*arguments, ""]):
        option, _, value = word.partition("=")
        if option == "--config":
            return value or following
    previous = ""
    for word in arguments:
        if not word.startswith("-") and previous not in _VALUE_OPTIONS:
            return word
        previous = word
    return None
