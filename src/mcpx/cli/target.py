"""The configuration that a command is about, and the gateway that runs on it (RUN-2).

A bridge imports this module, so it imports no asyncio and no dataclasses.
"""

import argparse
import os
import shlex
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.cli.running import mistake, warn
from mcpx.model.state import STORE, laid_down, state_folder
from mcpx.wire.channels import socket_path

if TYPE_CHECKING:
    from mcpx.config import Config
    from mcpx.model.call import Json

CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".jsonc", ".toml")
WORKING_FOLDER_NAMES = ("mcpx.yaml", "config.yaml", "config.json")
OWN_KEYS = ("mcp_servers", "mcpServers", "auth_configs")
MAX_GLANCE_BYTES = 1 << 20


class Target:
    def __init__(self, path: Path | None, options: argparse.Namespace) -> None:
        """`path`: absolute; None means the built-in demo."""
        self.path = path
        self.env = overlay(options)
        self.profile: str | None = (
            getattr(options, "profile", None) or os.environ.get("MCPX_PROFILE") or None
        )
        self.state = state_folder(os.environ)
        self.words = words_of(options)
        """Options that name this configuration in another command, as the user wrote them."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Target":
        """The configuration that `options` name. It may be the demo."""
        path = glance(options, os.environ) or found(options)
        return cls(path and Path(os.path.abspath(path)), options)

    @classmethod
    def required(cls, options: argparse.Namespace, command: str, hint: str = "") -> "Target":
        return cls(required(options, command, hint), options)

    @property
    def suffix(self) -> str:
        """`words` as the end of a command line that is shown."""
        return "".join(f" {shlex.quote(word)}" for word in self.words)

    @property
    def channel(self) -> Path | None:
        """The control channel of the gateway that runs on this configuration."""
        return self.path and socket_path(self.state, self.path, self.env)

    def load(self) -> "Config":
        """The configuration, or that of the demo, with a note on a terminal."""
        if self.path is not None:
            from mcpx.config import load

            return load(self.path, os.environ, self.env)
        from mcpx import demo

        if sys.stderr.isatty():
            warn("no config found; this is the built-in demo")
        return demo.config()

    async def ask(self, verb: str, patience: float = 40.0, **more: object) -> "Json | None":
        """Send a request to the gateway that runs. Returns None if no gateway runs."""
        from mcpx.front.control import ask

        if self.channel is None:
            return None
        return await ask(self.channel, verb, patience, **more)

    def ask_now(self, verb: str, patience: float = 40.0, **more: object) -> "Json | None":
        from mcpx.cli.running import result_of

        return result_of(self.ask(verb, patience, **more))


def named(options: argparse.Namespace) -> str | None:
    """The config file that the command line names. It may be named only once."""
    by_word: str | None = getattr(options, "config_file", None)
    if "" in (options.config, by_word):  # `mcpx "$CONFIG"` without a value of CONFIG.
        raise mistake("the name of the config file is empty")
    if options.config and by_word:
        raise mistake("the config file is named twice, as an argument and by --config")
    return options.config or by_word


def words_of(options: argparse.Namespace) -> tuple[str, ...]:
    words: list[str] = []
    name = named(options)
    if name is not None:
        words += ["--config", name]
    if options.env:
        words += ["--env", options.env]
    return tuple(words)


def found(options: argparse.Namespace) -> Path | None:
    from mcpx.config import find

    return find(named(options), os.environ, Path.cwd())


def required(options: argparse.Namespace, command: str, hint: str = "") -> Path:
    """The absolute path. A running gateway is found by it."""
    path = found(options)
    if path is None:
        raise mistake(f"no config file found here; name one: mcpx {command} FILE{hint}")
    return Path(os.path.abspath(path))


def load(path: Path, options: argparse.Namespace) -> "Config":
    from mcpx.config import load as read

    return read(path, os.environ, options.env)


def overlay(options: argparse.Namespace) -> str | None:
    return options.env or os.environ.get("MCPX_ENV") or None


def looks_like_file(word: str) -> bool:
    has_folder = "/" in word or os.sep in word
    return word == STORE or has_folder or Path(word).suffix.lower() in CONFIG_SUFFIXES


def subject_of(options: argparse.Namespace) -> str | None:
    """What `words` name besides the config. Another word, or a single word that is an existing
    file, is the config."""
    words = list[str](options.words)
    is_config = bool(words) and looks_like_file(words[0]) and os.path.exists(words[0])
    options.config_file = None
    if is_config or len(words) > 1:
        options.config_file = words.pop()
    if len(words) > 1 or "" in words:
        raise mistake("say one thing at a time, then the config file")
    return next(iter(words), None)


def folder_of(path: Path) -> Path:
    """The folder of a configuration, which is a file or a folder of files."""
    if path.is_dir():
        return path
    return path.parent


def glance(options: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    """The absolute path of the config, without a parser. Returns None if none exists, or if only
    `found` can tell."""
    for name in (named(options), environ.get("MCPX_CONFIG")):
        if name:
            return _absolute(os.path.expanduser(laid_down(name, environ)), os.path.exists)
    for name in WORKING_FOLDER_NAMES:
        if os.path.lexists(name):
            return _absolute(name, _is_ours)
    folder = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return _absolute(os.path.join(folder, "mcpx", "config.yaml"), os.path.isfile)


def _absolute(name: str, is_usable: Callable[[str], bool]) -> Path | None:
    if not is_usable(name):
        return None
    return Path(os.path.abspath(name))


def _is_ours(name: str) -> bool:
    """Whether the file visibly is a configuration of mcpx."""
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            return False
        with open(name, encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_GLANCE_BYTES)
    except OSError:
        return False
    if not name.endswith(".json"):
        lines = (line.partition(":") for line in text.splitlines())
        return any(colon and key.rstrip() in OWN_KEYS for key, colon, _ in lines)
    import json

    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(keys, dict) and not keys.keys().isdisjoint(OWN_KEYS)
