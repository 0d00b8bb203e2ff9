"""Recognizes commands that download the program they run: `npx`, `uvx`, `docker run` and similar
launchers.

Such a command may take minutes until its program runs, and an abrupt end leaves a half-written
package (LIF-10). The decision needs the words of the command line only: whether the package is
already cached is not known.
"""

import re
from collections.abc import Mapping, Sequence

LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("npx", "pnpx", "bunx", "uvx", "dnx", "deno"), ("",)),
    "npm": ("exec", "x"),
    "pnpm": ("dlx",),
    "yarn": ("dlx",),
    "bun": ("x",),
    "uv": ("run", "tool run"),
    "pipx": ("run",),
    "docker": ("run", "container run"),
    "podman": ("run", "container run"),
}
"""Programs that start other programs, and the subcommands that download these. An empty subcommand
stands for all arguments."""
_WINDOWS_ENDING = re.compile(r"\.(?:exe|cmd|bat|ps1)$")


def downloads_itself(command: str, args: Sequence[str]) -> bool:
    """Whether this command may download the program before it runs it, also behind `cmd /c`."""
    program = program_name(command)
    if program == "cmd":
        return _of_cmd(args)
    if program == "go":
        return _has_subcommand(args, ["run"])
    for subcommand in LAUNCHERS.get(program, ()):
        if not subcommand or _has_subcommand(args, subcommand.split()):
            return True
    return False


def program_name(command: str) -> str:
    """The name of a program without its folder and the endings of Windows: `npx` for
    `C:\\nodejs\\npx.cmd`."""
    file_name = re.split(r"[/\\]", command)[-1].lower()
    return _WINDOWS_ENDING.sub("", file_name)


def _of_cmd(args: Sequence[str]) -> bool:
    words = list(args)
    while words and words[0].startswith("/"):
        words.pop(0)
    if len(words) == 1:  # `cmd /c "npx -y server"`: one argument with the whole line.
        words = words[0].split()
    return bool(words) and downloads_itself(words[0].strip('"'), words[1:])


def _has_subcommand(args: Sequence[str], subcommand: Sequence[str]) -> bool:
    """Whether the first words that are neither an option nor the value of one are this subcommand.

    `uv --directory DIR run` has it, `docker exec NAME run` does not. A word behind an option may be
    its value or the subcommand, so both are tried.
    """
    follows_option = False
    for index, word in enumerate(args):
        if list(args[index : index + len(subcommand)]) == list(subcommand):
            return True
        is_option = word.startswith("-")
        if not is_option and not follows_option:
            return False
        follows_option = is_option
    return False
