"""The command line: which command, and the exit code."""

import os
import sys
from collections.abc import Sequence

from mcpx.cli import codes
from mcpx.cli.leading_options import command_first
from mcpx.cli.parsing import near, tell_mistakes, wants_json
from mcpx.cli.running import leave
from mcpx.cli.table import COMMANDS
from mcpx.cli.where import looks_like_file
from mcpx.model.errors import ConfigError

ELSEWHERE = {
    "rollback": "config rollback",
    "history": "config history",
    "list": "servers",
    "login": "auth login",
}
"""Words that many would try first."""


def main(argv: Sequence[str] | None = None) -> int:
    _open_standard_streams()
    arguments = command_first(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["__complete"]:  # for shells; see `mcpx completion`
        from mcpx.cli.completing import complete

        return complete(arguments[1:])
    try:
        command = COMMANDS[_command(arguments)]
        return command.module().run(command.parser().read(arguments))
    except ConfigError as error:
        tell_mistakes(error, wants_json(arguments))
        return codes.MISTAKE
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return codes.DONE
    except KeyboardInterrupt:
        leave()


def _command(arguments: list[str]) -> str:
    """The command they begin with, taken off them; none is `serve`, and the first word its CONFIG
    (RUN-2)."""
    word = arguments[0] if arguments else ""
    if word == "help":
        word = arguments[1] if len(arguments) > 1 else "serve"
        if word not in (*COMMANDS, "help"):
            raise ConfigError([_unknown(word)])
        arguments[:] = [*arguments[2:], "--help"]  # `help import curl` is `import curl --help`
        return "serve" if word == "help" else word
    if word in COMMANDS:
        return arguments.pop(0)
    is_file = os.path.exists(word) or looks_like_file(word)
    if word and not word.startswith("-") and not is_file:
        raise ConfigError([_unknown(word)])
    return "serve"


def _unknown(word: str) -> str:
    """What to say of a word that is no command."""
    meant = ELSEWHERE.get(word) or near(word, [*COMMANDS, "help"])
    hint = f"; did you mean 'mcpx {meant}'?" if meant else "; 'mcpx help' lists the commands"
    return f"error: {word!r} is neither a command nor a file{hint}"


def _open_standard_streams() -> None:
    """The null device in the place of a closed standard stream: else the next thing opened gets its
    number. What cannot be written in the terminal's encoding, or in any, is no reason to fail."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, so this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(
            errors="backslashreplace"
        )  # as stderr does: a character that has no bytes is spelled out
