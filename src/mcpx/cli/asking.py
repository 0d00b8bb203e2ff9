"""Settings that a server wants: given by `--set`, or asked for; secrets are typed unseen."""

import argparse
import sys
from collections.abc import Sequence

from mcpx.cli.output import can_ask, plain
from mcpx.cli.running import mistake
from mcpx.imports.launch import Answers, Input, answers, unanswered


def settings(inputs: Sequence[Input], options: argparse.Namespace, owner: str) -> Answers:
    """Raises `ConfigError`."""
    given = pairs(options.set, "--set")
    if can_ask() and not options.yes:
        for wanted in unanswered(inputs, given):
            if (value := _asked(wanted)) != "":
                given[wanted.key] = [value]
    return answers(inputs, given, owner)


def pairs(given: Sequence[str], option: str) -> dict[str, list[str]]:
    """`KEY=VALUE`, each key perhaps several times."""
    found: dict[str, list[str]] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise mistake(f"{option} {plain(key, 40)!r}: say KEY=VALUE")
        found.setdefault(key, []).append(value)
    return found


def _asked(wanted: Input) -> str:
    what = f" ({plain(wanted.title)})" if wanted.title else ""
    choices = (
        f" [{', '.join(plain(each, 30) for each in wanted.choices[:10])}]" if wanted.choices else ""
    )
    prompt = f"{plain(wanted.key, 60)}{what}{choices}: "
    if wanted.secret:
        from getpass import getpass

        return getpass(prompt, sys.stderr)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\r\n")
