"""Options and words of the command line: argparse, with mistakes told as everywhere else."""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn, cast

from mcpx.model.errors import ConfigError

PARTS = ("message", "hint", "path", "file", "line", "column")
"""Of a mistake in a config (`config.problems.Told`)."""


class Parser(argparse.ArgumentParser):
    """Options may stand between words. A mistake is a `ConfigError`, with what was meant."""

    otherwise: "tuple[str, Parser] | None" = None
    """Of several kinds of a command (`kind`) the one that is meant where none is named, and its
    parser."""

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        kinds = [
            name
            for action in self._actions
            for name in (action.choices or ())
            if action.dest == "kind"
        ]
        if self.otherwise is not None and not {*arguments[:1]} & {*kinds, "-h", "--help"}:
            kind, parser = self.otherwise
            return argparse.Namespace(**{**vars(parser.read(arguments)), "kind": kind})
        whole = (argparse.PARSER, argparse.REMAINDER)  # these take everything behind them
        if any(action.nargs in whole for action in self._actions):
            return self.parse_args(arguments)
        for action in self._actions:
            if action.nargs == argparse.ZERO_OR_MORE:
                action.required = (
                    False  # up to Python 3.13 it was told to be lacking, with what really is
                )
        return _unmarked(self.parse_intermixed_args(_marked(arguments)))

    def error(self, message: str) -> NoReturn:
        told = message[:1].lower() + message[1:]
        if (
            unknown := re.match(r"unrecognized arguments: (--?[a-zA-Z][\w-]*)", message)
        ) is not None:
            known = [option for action in self._actions for option in action.option_strings]
            meant = (
                near(unknown[1], known) if unknown[1].startswith("--") else None
            )  # a letter is near to every other
            told = f"unknown option {unknown[1]}" + (f"; did you mean {meant}?" if meant else "")
        elif message.startswith("unrecognized arguments: "):
            told = f"too many words: {message.removeprefix('unrecognized arguments: ')}"
        told = told.replace(_WORD, "").replace(repr(_WORD)[1:-1], "")  # it quotes some and some not
        raise ConfigError([f"error: {told}\n  {self.prog} --help says what there is"])


_WORD = "\0"
"""Before a word that begins like an option and is none. No argument of a program can hold it."""


def _marked(arguments: Sequence[str]) -> list[str]:
    """Behind `--` there are words only. What argparse makes of that between words is another thing
    in each Python."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    words = [_WORD + word if word.startswith("-") else word for word in arguments[at + 1 :]]
    return [*arguments[: at + 1], *words]


def _unmarked(options: argparse.Namespace) -> argparse.Namespace:
    for name, value in vars(options).items():
        if isinstance(value, str):
            setattr(options, name, value.removeprefix(_WORD))
        elif isinstance(value, list):
            setattr(options, name, [word.removeprefix(_WORD) for word in cast("list[str]", value)])
    return options


def near(word: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # only somebody who made a mistake pays for it

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.5)), None)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether whoever called reads JSON; asked before anything is parsed, for mistakes in that are
    told so too."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(word == "--json" for word in own)


def tell_mistakes(error: ConfigError, as_json: bool) -> None:
    if not as_json:
        sys.stderr.write("\n\n".join(error.problems) + "\n")
        return
    import json

    texts = [problem.removeprefix("error: ") for problem in error.problems]
    parts = [{name: getattr(told, name) for name in PARTS} for told in getattr(error, "told", ())]
    problems = parts or [{"message": text} for text in texts]
    told = {"error": {"code": "mistake", "message": "\n".join(texts), "problems": problems}}
    sys.stderr.write(json.dumps(told) + "\n")  # ASCII: nothing in it steers a terminal
