"""How a bundle or a registry entry starts a server, and the inputs that it needs.

Texts of third parties contain no references. A secret input becomes a reference to a variable. The
secret is stored separately.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mcpx.imports.source import clean, one_line, variable_name
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

ENV_OPTIONS = ("-e",)
"""In `Launch.args`: the place of `-e NAME` for each variable. The values stay out of the process
list."""
_INPUT = re.compile(r"\$\$|\$\{input:([^{}]*)\}")
_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_VALUES = {
    "boolean": (re.compile("true|false"), "true or false"),
    "number": (re.compile(r"-?\d+(?:\.\d+)?"), "a number"),
}


@dataclass(frozen=True, slots=True)
class Input:
    key: str
    """The name for `--set`."""
    title: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None
    kind: str = "string"
    """`string`, `number`, `boolean`, `directory`, or `file`."""
    choices: tuple[str, ...] = ()
    repeated: bool = False

    def problem(self, value: str) -> str:
        """The expected form of the value, or an empty text if it fits."""
        if _REFERENCE.search(value):
            return ""
        if self.choices and value not in self.choices:
            return f"one of {', '.join(one_line(each, 40) for each in self.choices[:20])}"
        pattern, expected = _VALUES.get(self.kind, (None, ""))
        if pattern is None or pattern.fullmatch(value):
            return ""
        return expected


@dataclass(slots=True)
class Answers:
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By the keys of the inputs, as they are written to the configuration."""
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Values of the variables that `values` refers to."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A server entry. Its texts contain `${input:KEY}`, see `template`."""

    kind: str
    name: str
    description: str
    connection: Json
    """Without `args`, `env`, and `headers`."""
    inputs: tuple[Input, ...] = ()
    args: Sequence[tuple[str, ...]] = ()
    """Groups of words. A group without a value for its inputs is left out. A group whose input has
    several values is repeated."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()
    sha256: str = ""

    def entry(self, answers: Answers) -> Json:
        values = answers.values
        connection = {key: _filled(text, values) for key, text in self.connection.items()}
        tables = {"env": self.env, "headers": self.headers}
        for key, table in tables.items():
            filled = {name: ",".join(_words((text,), values)) for name, text in table.items()}
            tables[key] = {name: text for name, text in filled.items() if text}
        args: list[str] = []
        for group in self.args:
            if group is ENV_OPTIONS:
                args += [word for name in tables["env"] for word in ("-e", name)]
            else:
                args += _words(group, values)
        connection |= {key: value for key, value in {"args": args, **tables}.items() if value}
        made: Json = {"name": self.name, "connection": connection}
        if self.description:
            made["description"] = escaped(self.description)
        return made


def escaped(text: str) -> str:
    """Text for a configuration, in which `$` is no reference."""
    return clean(text).replace("$", "$$")


def template(text: str, tokens: re.Pattern[str], value: Callable[[str], str | None]) -> str:
    """Escaped text in which `value(name)` replaces each token, unless it is None."""
    parts: list[str] = []
    at = 0
    for token in tokens.finditer(text):
        replacement = value(token[1])
        if replacement is not None:
            parts += [escaped(text[at : token.start()]), replacement]
            at = token.end()
    return "".join([*parts, escaped(text[at:])])


def placeholder(key: str) -> str:
    return f"${{input:{key}}}"


def _filled(text: str, values: Mapping[str, Sequence[str]], index: int = 0) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        given = values.get(found[1]) or [""]
        return given[min(index, len(given) - 1)]

    return _INPUT.sub(value, text)


def _words(group: tuple[str, ...], values: Mapping[str, Sequence[str]]) -> list[str]:
    keys = [key for text in group for key in _INPUT.findall(text) if key]
    repetitions = max((len(values.get(key, ())) for key in keys), default=1)
    return [_filled(text, values, index) for index in range(repetitions) for text in group]


# Answers


def unanswered(inputs: Iterable[Input], given: Mapping[str, Sequence[str]]) -> list[Input]:
    """The inputs that need a value from the user."""
    return [
        each for each in inputs if each.required and each.key not in given and each.default is None
    ]


def answers(inputs: Sequence[Input], given: Mapping[str, Sequence[str]], owner: str) -> Answers:
    """`owner`: the server, for the names of variables. Raises ConfigError."""
    known = {each.key: each for each in inputs}
    possible = "it takes no settings"
    if known:
        possible = f"there is {', '.join(one_line(key, 60) for key in known)}"
    problems = [
        f"error: --set {one_line(key, 60)}: {possible}" for key in given if key not in known
    ]
    made = Answers()
    for each in inputs:
        key = one_line(each.key, 60)
        values = list(given.get(each.key, ()))
        if len(values) > 1 and not each.repeated:
            problems.append(f"error: --set {key}: it takes one value")
        if not values and each.default is not None:
            values = [each.default.replace("$", "$$")]
        if not values and each.required:
            problems.append(_missing(each, key))
        wrong = filter(None, map(each.problem, values))
        problems += [f"error: --set {key}: {problem}" for problem in wrong]
        if each.secret:
            values = [_secret(each.key, value, owner, made.secrets) for value in values]
        if values:
            made.values[each.key] = values
    if problems:
        raise ConfigError(problems)
    return made


def _missing(wanted: Input, key: str) -> str:
    title = ""
    if wanted.title:
        title = f" ({one_line(wanted.title, 120)})"
    setting = f"{key}=VALUE"
    if wanted.secret:  # Without the quotes, a shell would replace the reference.
        setting = f"'{key}=${{VARIABLE}}'"
    return f"error: it needs {key}{title}: --set {setting}"


def _secret(key: str, value: str, owner: str, secrets: dict[str, str]) -> str:
    """A reference to the variable for a secret."""
    if _REFERENCE.search(value):
        return value
    name = key
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key):
        name = variable_name(owner, key)
    while secrets.get(name, value) != value:
        name += "_2"
    secrets[name] = value
    return f"${{{name}}}"
