"""The gateway in its own configuration: easily so, since the files of clients name it. It would
start itself for ever.

Promised: an entry that runs mcpx on the same file, or whose address is where this gateway listens,
is left out and told. Nothing is started or asked. Not done here: what the file does not tell (a
script that starts mcpx in the end).
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from mcpx.config.locate import find
from mcpx.config.schema import Config, Server
from mcpx.model.errors import ConfigError
from mcpx.processes.environment import child_environment
from mcpx.transports import Http, Sse, Stdio, Websocket

_DEEPEST = 8
"""Wrappers in wrappers that are looked through."""
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish")
_PREFIXES = {
    "nohup": "",
    "setsid": "",
    "exec": "",
    "time": "",
    "command": "",
    "caffeinate": "",
    "nice": "-n",
}
"""Programs that run the rest of their command line, and their options that take a value."""
_UV_VALUES = (
    "--directory",
    "--project",
    "--from",
    "--with",
    "-w",
    "--with-editable",
    "--with-requirements",
    "--python",
    "-p",
    "--index",
    "-i",
    "--default-index",
    "--find-links",
    "-f",
    "--env-file",
    "--package",
    "--extra",
    "--group",
    "--only-group",
    "--config-file",
    "--cache-dir",
    "--refresh-package",
    "--upgrade-package",
    "-P",
    "--constraints",
    "-c",
    "--overrides",
    "--spec",
)
_MCPX_VALUES = (
    "--config",
    "--env",
    "--transport",
    "--host",
    "--port",
    "--mode",
    "--profile",
    "--log-level",
    "--admin-port",
)


def without_itself(config: Config, host: str, port: int) -> Config:
    """Without the servers that are found at the address listened on, whatever the file says of
    it."""

    def own(server: Server) -> str | None:
        connection = server.connection
        if isinstance(connection, Http | Sse | Websocket) and _is_ours(connection.url, host, port):
            return "its URL is where mcpx listens"
        return None

    return _without(config, own)


def without_runs_of(
    path: Path, config: Config, environ: Mapping[str, str], own_names: Mapping[str, str]
) -> Config:
    """Without the servers that run mcpx on this file or folder. `own_names`: of those that were
    renamed."""

    def own(server: Server) -> str | None:
        connection = server.connection
        if isinstance(connection, Stdio) and _runs(path, connection, environ):
            return "it runs mcpx on this file"
        return None

    return _without(config, own, own_names)


def is_mcpx(name: str, connection: Mapping[str, object]) -> bool:
    """Whether an entry of a client's file is this program, on whatever configuration: it runs it,
    or has the name that it goes by there and an address of this machine."""
    command, args = connection.get("command"), connection.get("args")
    if isinstance(command, str):
        given = [str(word) for word in cast("list[object]", args)] if isinstance(args, list) else []
        return _mcpx_in(_Words((command, *given), Path.cwd())) is not None
    url = connection.get("url")
    try:
        host = urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        return False
    return name.startswith("mcpx") and host is not None and _is_this_machine(host)


def _without(
    config: Config, own: Callable[[Server], str | None], own_names: Mapping[str, str] | None = None
) -> Config:
    reasons = {
        server.name: why for server in config.mcp_servers if server.enabled and (why := own(server))
    }
    if not reasons:
        return config
    called = {name: (own_names or {}).get(name, name) for name in reasons}
    told = [
        f"server {called[name]!r} is left out, it is this gateway itself: {why}"
        for name, why in reasons.items()
    ]
    servers = tuple(server for server in config.mcp_servers if server.name not in reasons)
    return replace(config, mcp_servers=servers, warnings=(*config.warnings, *told))


def _is_ours(url: str, host: str, port: int) -> bool:
    try:
        parts = urlsplit(url)
        found = parts.port or (443 if parts.scheme.lower() in ("https", "wss") else 80)
    except ValueError:
        return False
    path = parts.path.rstrip("/")
    if found != port or not (path.endswith(("/mcp", "/sse", "/ws")) or path.startswith("/mcp/")):
        return False
    name = (parts.hostname or "").lower()
    return name == host.lower().strip("[]") or (
        _is_this_machine(name) and _is_this_machine(host.strip("[]"))
    )


def _is_this_machine(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() in ("localhost", "")
    return address.is_loopback or address.is_unspecified


@dataclass(frozen=True, slots=True)
class _Words:
    """A command line, and where it would run."""

    words: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])


def _runs(path: Path, connection: Stdio, environ: Mapping[str, str]) -> bool:
    env = child_environment(environ, connection.env, connection.inherit_env)
    run = _mcpx_in(
        _Words((connection.command, *connection.args), Path(connection.cwd or Path.cwd()), env)
    )
    return run is not None and _is_run_on(path, run)


def _mcpx_in(run: _Words) -> _Words | None:
    """The run of mcpx that a command line comes down to."""
    for _ in range(_DEEPEST):
        name = _program(run)
        if name in ("mcpx", "mcpx-gateway"):
            return run
        inner = _unwrap(name, run)
        if inner is None:
            return None
        run = inner
    return None


def _program(run: _Words) -> str:
    name = os.path.basename(run.words[0]).lower().removesuffix(".exe") if run.words else ""
    return name.partition("@")[0]  # as `uvx` takes it: mcpx@1.2


def _is_run_on(path: Path, run: _Words) -> bool:
    words = list(run.words[1:])
    if words[:1] == ["serve"]:
        words.pop(0)
    try:
        found = find(_named(words), run.env, run.cwd)
        return found is not None and os.path.samefile(found, path)
    except (ConfigError, OSError, ValueError):  # it would not start
        return False


def _named(words: Sequence[str]) -> str | None:
    """The config a command line of mcpx names."""
    left, plain = list(words), None
    while left:
        options, left = _split_options(left, _MCPX_VALUES)
        for option, value in options:
            if option == "--config":
                return value
        plain, left = plain or next(iter(left), None), left[1:]
    return plain


def _unwrap(name: str, run: _Words) -> _Words | None:
    """What a program that only runs another one would run; None for all others."""
    rest = run.words[1:]
    if name in ("uv", "uvx", "pipx"):
        return _of_uv(name, run)
    if name.startswith("python") or name in ("py", "pypy3"):
        return _of_python(run)
    if name == "env":
        return _of_env(run)
    if name in _SHELLS:
        options, rest = _split_options(rest, ())
        return (
            _of_shell(rest[0], run)
            if rest and any("c" in option for option, _ in options)
            else None
        )
    if name == "cmd":
        return replace(run, words=[word for word in rest if not word.startswith("/")])
    if name == "timeout":
        return replace(run, words=_split_options(rest, ("-k", "-s"))[1][1:])
    return (
        replace(run, words=_split_options(rest, _PREFIXES[name].split())[1])
        if name in _PREFIXES
        else None
    )


def _of_uv(name: str, run: _Words) -> _Words | None:
    options, rest = _split_options(run.words[1:], _UV_VALUES)
    if name != "uvx" and rest[:2] == ["tool", "run"]:
        rest = rest[1:]
    if name != "uvx":
        if rest[:1] != ["run"]:
            return None
        more, rest = _split_options(rest[1:], _UV_VALUES)
        options += more
    folders = [value for option, value in options if option == "--directory"]
    if any(option in ("-m", "--module") for option, _ in options):
        rest = ["python", "-m", *rest]
    return replace(run, words=rest, cwd=run.cwd.joinpath(*folders))


def _of_python(run: _Words) -> _Words | None:
    words = list(run.words[1:])
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option.startswith("-m"):
            module = option[2:] or (words.pop(0) if words else "")
            return (
                replace(run, words=["mcpx", *words])
                if module in ("mcpx", "mcpx.__main__")
                else None
            )
        if option in ("-X", "-W") and words:
            words.pop(0)
    return replace(run, words=words) if words and os.path.basename(words[0]) == "mcpx" else None


def _of_env(run: _Words) -> _Words:
    options, rest = _split_options(
        run.words[1:], ("-u", "--unset", "-C", "--chdir", "-S", "--split-string")
    )
    folders = [value for option, value in options if option in ("-C", "--chdir")]
    split = [
        word
        for option, value in options
        if option in ("-S", "--split-string")
        for word in _words_of(value)
    ]
    return _assigned(replace(run, words=[*split, *rest], cwd=run.cwd.joinpath(*folders)))


def _of_shell(script: str, run: _Words) -> _Words | None:
    """The last of several commands, after its `cd`."""
    cwd, part = run.cwd, list[str]()
    for word in [*_words_of(script), "&&"]:
        if word not in ("&&", ";"):
            part.append(word)
            continue
        if part[:1] == ["cd"] and len(part) == 2:
            cwd = cwd / os.path.expanduser(part[1])
        elif part:
            inner = _assigned(replace(run, words=part, cwd=cwd))
            if _program(inner) in ("mcpx", "uv", "uvx", "env", "exec") or _program(
                inner
            ).startswith("python"):
                return inner
        part = []
    return None


def _assigned(run: _Words) -> _Words:
    """With the assignments before a command taken from its words."""
    words, env = list(run.words), dict(run.env)
    while words and "=" in words[0] and (parts := words[0].partition("="))[0].isidentifier():
        env[parts[0]] = parts[2]
        words.pop(0)
    return replace(run, words=words, env=env)


def _words_of(script: str) -> list[str]:
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an open quote
        return []


def _split_options(
    words: Sequence[str], with_value: Sequence[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """The options before the first plain word, each with its value, and what follows."""
    options: list[tuple[str, str]] = []
    left = list(words)
    while left and left[0].startswith("-") and len(left[0]) > 1:
        word = left.pop(0)
        if word == "--":
            break
        option, given, value = word.partition("=")
        if not given and (
            option in with_value or option.endswith("-url")
        ):  # an address is always to follow
            value = left.pop(0) if left else ""
        options.append((option, value))
    return options, left


def config_named(words: Sequence[str]) -> str | None:
    """The config that a command line names which comes down to mcpx."""
    run = _mcpx_in(_Words(words, Path.cwd()))
    if run is None:
        return None
    rest = list(run.words[1:])
    return _named(rest[1:] if rest[:1] == ["serve"] else rest)
