"""What a server that comes from elsewhere wants to be told: keys, folders, switches.

Promised: what is secret becomes a reference to a variable and is kept beside; what a stranger
proposes holds no references of ours, what the user says may. Not done here: asking.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcpx.imports.names import constant
from mcpx.imports.texts import one_line
from mcpx.model.errors import ConfigError

_REFERENCE = re.compile(r"\$\{[^{}]*\}")


@dataclass(frozen=True, slots=True)
class Input:
    key: str
    """What it is called with `--set`."""
    title: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None
    kind: str = "string"
    """`string`, `number`, `boolean`, `directory`, `file`."""
    choices: tuple[str, ...] = ()
    several: bool = False


@dataclass(slots=True)
class Answers:
    """Values by key, ready to be written, and the secrets behind the references among them."""

    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    def first(self, key: str) -> str | None:
        found = self.values.get(key)
        return found[0] if found else None


def literal(text: str) -> str:
    """A stranger's text, so that a configuration looks nothing up for it."""
    return text.replace("$", "$$")


def unanswered(inputs: Sequence[Input], given: Mapping[str, Sequence[str]]) -> list[Input]:
    """Those somebody must be asked."""
    return [
        each for each in inputs if each.required and each.key not in given and each.default is None
    ]


def answers(inputs: Sequence[Input], given: Mapping[str, Sequence[str]], owner: str) -> Answers:
    """`given`: what somebody said, by key; `owner`: the server, for the names of variables. Raises
    `ConfigError`."""
    known = {each.key: each for each in inputs}
    problems = [
        f"error: --set {one_line(key, 60)}: {_there_is(known)}" for key in given if key not in known
    ]
    made = Answers()
    for each in inputs:
        told = list(given.get(each.key, ()))
        if len(told) > 1 and not each.several:
            problems.append(f"error: --set {one_line(each.key, 60)}: it takes one value")
        told = told or ([] if each.default is None else [literal(each.default)])
        if not told and each.required:
            key = one_line(each.key, 60)
            what = f" ({one_line(each.title, 120)})" if each.title else ""
            # Without the quotes, a shell would replace the reference.
            setting = f"'{key}=${{VARIABLE}}'" if each.secret else f"{key}=VALUE"
            problems.append(f"error: it needs {key}{what}: --set {setting}")
        problems += [problem for value in told if (problem := _odd(each, value))]
        if told:
            made.values[each.key] = _kept(each, told, owner, made.secrets)
    if problems:
        raise ConfigError(problems)
    return made


def _there_is(known: Mapping[str, Input]) -> str:
    return (
        f"there is {', '.join(one_line(key, 60) for key in known)}"
        if known
        else "it takes no settings"
    )


def _odd(wanted: Input, value: str) -> str | None:
    if _REFERENCE.search(value):
        return None
    begin = f"error: --set {one_line(wanted.key, 60)}:"
    if wanted.choices and value not in wanted.choices:
        return f"{begin} one of {', '.join(one_line(each, 40) for each in wanted.choices[:20])}"
    if wanted.kind == "boolean" and value not in ("true", "false"):
        return f"{begin} true or false"
    if wanted.kind == "number" and not re.fullmatch(r"-?\d+(?:\.\d+)?", value):
        return f"{begin} a number"
    return None


def _kept(wanted: Input, told: list[str], owner: str, secrets: dict[str, str]) -> list[str]:
    if not wanted.secret:
        return told
    kept: list[str] = []
    for value in told:
        if _REFERENCE.search(value):  # it is kept somewhere already
            kept.append(value)
            continue
        name = (
            wanted.key
            if re.fullmatch(r"[A-Z][A-Z0-9_]*", wanted.key)
            else constant(owner, wanted.key)
        )
        while secrets.get(name, value) != value:
            name += "_2"
        secrets[name] = value
        kept.append(f"${{{name}}}")
    return kept
