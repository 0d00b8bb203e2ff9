"""Arguments of a call on their way into a command line, an environment and standard input (SRC-4,
SEC-3).

Promised: `{name}` in one element stays in one element, whatever the value holds; nothing is parsed
by anybody. A text goes as it is, everything else as JSON. An element of a command line without a
value for one of its placeholders drops out; one that is exactly `{name}` becomes one element for
each item of a list. A value cannot become an option: what begins with a value does not begin with
`-`, unless a literal `--` stands before it or the value is a number. `{*}` is all arguments, as a
JSON object. `{{name}}` is the text `{name}`. No promise: what the script makes of a value (`@file`,
`+x`, an address).
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mcpx.base import WINDOWS
from mcpx.commands.work import CommandFailed
from mcpx.wire import codec

ALL = "*"
"""The placeholder that stands for all arguments."""
LONGEST = 128 * 1024 - 1
"""Bytes of one element or variable; Linux takes no more (MAX_ARG_STRLEN)."""
SPARE = 16 * 1024
"""Bytes of the room for all of them (ARG_MAX) that are left free: pointers, the program's own
name."""

_NAME = r"\*|[^\W\d][\w.\-]*"
_PLACEHOLDER = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a value goes."""

    name: str


@dataclass(frozen=True, slots=True)
class Template:
    """One text of a config, taken apart."""

    pieces: tuple[str | Slot, ...]

    @classmethod
    def parse(cls, text: str) -> "Template":
        pieces: list[str | Slot] = []
        at = 0
        for found in _PLACEHOLDER.finditer(text):
            escaped, name = found.groups()
            pieces += [text[at : found.start()], Slot(name) if name else f"{{{escaped}}}"]
            at = found.end()
        pieces.append(text[at:])
        return cls(tuple(piece for piece in pieces if piece))

    @property
    def names(self) -> list[str]:
        return [piece.name for piece in self.pieces if isinstance(piece, Slot)]

    @property
    def alone(self) -> str | None:
        """The name, if it is one placeholder and nothing else."""
        only = self.pieces[0] if len(self.pieces) == 1 else None
        return only.name if isinstance(only, Slot) else None

    @property
    def literal(self) -> str | None:
        """The text, if there is no placeholder in it."""
        return None if self.names else "".join(map(str, self.pieces))

    def missing(self, values: Mapping[str, Any]) -> bool:
        return any(values.get(name) is None for name in self.names)

    def fill(self, values: Mapping[str, Any]) -> str:
        """What has no value is left out."""
        filled = (
            _spelled(values.get(piece.name)) if isinstance(piece, Slot) else piece
            for piece in self.pieces
        )
        return "".join(filled)

    def beginning(self, values: Mapping[str, Any]) -> str | None:
        """The name of the text that its own begins with; None if that is the config's, or a
        number."""
        for piece in self.pieces:
            if not isinstance(piece, Slot):
                return None
            if _spelled(value := values.get(piece.name)):
                return None if isinstance(value, int | float) else piece.name
        return None


def with_all(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the placeholders."""
    return {**arguments, ALL: dict(arguments)}


def command_line(
    templates: Sequence[Template], values: Mapping[str, Any], *, dashes: bool
) -> list[str]:
    """`dashes`: values may begin with `-`."""
    made: list[str] = []
    before = ""  # the element before this one, if it is the config's own
    for template in templates:
        literal = template.literal
        if literal is not None:
            made.append(literal)
            dashes, before = dashes or literal == "--", literal
            continue
        given: list[Mapping[str, Any]] = [] if template.missing(values) else [values]
        if template.alone and isinstance(several := values.get(template.alone), list):
            given = [
                {template.alone: item} for item in cast("list[Any]", several) if item is not None
            ]
        if not given and template.alone and is_option(before):
            raise CommandFailed(
                f"it cannot be run without argument {template.alone!r}: {before!r} stands before it"
            )
        for one in given:
            name = None if dashes else template.beginning(one)
            text = template.fill(one)
            if name is not None and text.startswith("-"):
                raise CommandFailed(
                    f"argument {name!r} must not begin with '-': the script could take it for an "
                    "option "
                    "('allow_dashes' in the config lets it, and so does a '--' before it)"
                )
            made.append(text)
        before = ""
    return made


def is_option(element: str) -> bool:
    """Whether what stands behind it may be its value."""
    return element.startswith("-") and element not in ("-", "--") and "=" not in element


def variables(templates: Mapping[str, Template], values: Mapping[str, Any]) -> dict[str, str]:
    """An environment; a variable without a value for one of its placeholders is not set."""
    made = {
        name: template.fill(values)
        for name, template in templates.items()
        if not template.missing(values)
    }
    for name, text in made.items():
        if text.startswith("()") and templates[name].literal is None:  # a function, to an old shell
            raise CommandFailed("an argument must not begin with '()' where it becomes a variable")
    return made


def require_room(line: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raises when the system would not take it, in words that help."""
    total = 0
    for text in (*line, *(f"{name}={value}" for name, value in environment.items())):
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise CommandFailed(
                "an argument holds half of a character (a lone surrogate)"
            ) from None
        if "\0" in text:
            raise CommandFailed("an argument holds a NUL character, which no program can be given")
        if size > LONGEST:
            raise CommandFailed(
                f"an argument is too long for a command line: {size:,} bytes, {LONGEST:,} at "
                "most; a script can take "
                "more on standard input ('stdin')"
            )
        total += size + 9  # its end, and a pointer to it
    if total > (most := _room()):
        raise CommandFailed(
            f"the arguments are too long for a command line: {total:,} bytes, {most:,} at most"
        )


def _room() -> int:
    """Bytes of a command line and its environment together."""
    if WINDOWS:
        return 32_000  # of the line alone, in characters; the environment has as much again
    return os.sysconf("SC_ARG_MAX") - SPARE


def unknown(template: Template, parameters: Collection[str] | None) -> Iterator[str]:
    """Its placeholders that are no arguments."""
    if parameters is not None:
        yield from (name for name in template.names if name != ALL and name not in parameters)


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else codec.dump(value).decode("utf-8", "surrogatepass")
