"""Entry point of the command line: finds the command, runs it, and returns its exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from mcpx.cli import codes
from mcpx.cli.command_table import COMMANDS
from mcpx.cli.parsing import command_first, near, parser_of
from mcpx.cli.running import leave, mistake, print_mistakes, wants_json
from mcpx.cli.target import looks_like_file
from mcpx.model.errors import ConfigError

ELSEWHERE = {
    "rollback": "config rollback",
    "history": "config history",
    "list": "servers",
    "login": "auth login",
}
"""Words that users try first, and the command that they mean."""


def main(argv: Sequence[str] | None = None) -> int:
    _open_standard_streams()
    arguments = command_first(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["__complete"]:  # Called by the script of `mcpx completion`.
        from mcpx.cli.completion import complete

        return complete(arguments[1:])
    try:
        command = COMMANDS[_command(arguments)]
        options = parser_of(command).read(arguments)
        module, _, function = options.function.partition(":")
        return getattr(import_module(f"mcpx.cli.{module}"), function)(options)
    except ConfigError as error:
        print_mistakes(error, wants_json(arguments))
        return codes.MISTAKE
    except BrokenPipeError:  # The reader of the output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return codes.DONE
    except KeyboardInterrupt:
        leave()


def _command(arguments: list[str]) -> str:
    """Remove the name of the command from the arguments and return it. The default is `serve`,
    with the first word as its CONFIG (RUN-2)."""
    word = next(iter(arguments), "")
    if word == "help":
        return _command_of_help(arguments)
    if word in COMMANDS:
        return arguments.pop(0)
    is_file = os.path.exists(word) or looks_like_file(word)
    if word and not word.startswith("-") and not is_file:
        raise _unknown(word)
    return "serve"


def _command_of_help(arguments: list[str]) -> str:
    word = next(iter(arguments[1:]), "serve")
    if word not in (*COMMANDS, "help"):
        raise _unknown(word)
    arguments[:] = [*arguments[2:], "--help"]  # `help import curl` is `import curl --help`.
    return word if word in COMMANDS else "serve"


def _unknown(word: str) -> ConfigError:
    meant = ELSEWHERE.get(word) or near(word, [*COMMANDS, "help"])
    hint = f"did you mean 'mcpx {meant}'?" if meant else "'mcpx help' lists the commands"
    return mistake(f"{word!r} is neither a command nor a file; {hint}")


def _open_standard_streams() -> None:
    """Replace a closed standard stream by the null device. Otherwise, the next opened file gets its
    number. Characters that the encoding of the terminal does not have are escaped."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Gets the lowest free number, which is this one.
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # As stderr does.
