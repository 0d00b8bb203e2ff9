"""Which configuration a command is about, and where its state is (RUN-2): the same for every
command."""

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.model.errors import ConfigError
from mcpx.model.state import STORE

if TYPE_CHECKING:
    from mcpx.config import Config


def config_options(parser: argparse.ArgumentParser, *, positional: bool = True) -> None:
    if positional:
        parser.add_argument(
            "config_file", metavar="CONFIG", nargs="?", help="the config file, or a folder of them"
        )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the same, as an option" if positional else "the config file",
    )
    parser.add_argument(
        "--env", metavar="NAME", help="lay the files of an environment over it (mcpx.NAME.yaml)"
    )


def json_option(parser: argparse.ArgumentParser, instead: str = "text") -> None:
    parser.add_argument("--json", action="store_true", help=f"one JSON object instead of {instead}")


def use_options(parser: argparse.ArgumentParser) -> None:
    """What every command has that uses tools."""
    config_options(parser, positional=False)
    parser.add_argument("--profile", metavar="NAME", help="see and call only what this profile may")
    json_option(parser)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 86_400:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds (more than 0, a day at most)"
        )
    return number


def named(options: argparse.Namespace) -> str | None:
    """The config file named on the command line, once."""
    by_word: str | None = getattr(options, "config_file", None)
    if "" in (options.config, by_word):
        raise ConfigError(
            ["error: the name of the config file is empty"]
        )  # `mcpx "$CONFIG"`, and CONFIG is not set
    if options.config and by_word:
        raise ConfigError(["error: the config file is named twice, as an argument and by --config"])
    return options.config or by_word


def target(options: argparse.Namespace) -> tuple[str, ...]:
    """Options that name this configuration in another command, as the user wrote them."""
    name = named(options)
    config = () if name is None else ("--config", name)
    return (*config, "--env", options.env) if options.env else config


def same_target(options: argparse.Namespace) -> str:
    """`target` as the end of a command line that is shown."""
    return "".join(f" {shlex.quote(word)}" for word in target(options))


def found(options: argparse.Namespace) -> Path | None:
    from mcpx.config import find

    return find(named(options), os.environ, Path.cwd())


def required(options: argparse.Namespace, command: str, hint: str = "") -> Path:
    """As `Config.path` has it: a running gateway is found by it."""
    path = found(options)
    if path is None:
        raise ConfigError(
            [f"error: no config file found here; name one: mcpx {command} FILE{hint}"]
        )
    return Path(os.path.abspath(path))


def load(path: Path, options: argparse.Namespace) -> "Config":
    from mcpx.config import load as read

    return read(path, os.environ, options.env)


def overlay(options: argparse.Namespace) -> str | None:
    return options.env or os.environ.get("MCPX_ENV") or None


def looks_like_file(word: str) -> bool:
    return (
        word == STORE
        or "/" in word
        or os.sep in word
        or Path(word).suffix.lower() in (".yaml", ".yml", ".json", ".jsonc", ".toml")
    )


def about(options: argparse.Namespace) -> str | None:
    """What `words` are about, if anything; another word, or a single one that is a file, is the
    config."""
    words = list[str](options.words)
    is_config = bool(words) and looks_like_file(words[0]) and os.path.exists(words[0])
    options.config_file = words.pop() if words and (len(words) > 1 or is_config) else None
    if len(words) > 1 or "" in words:
        raise ConfigError(["error: say one thing at a time, then the config file"])
    return words[0] if words else None
