"""Finds the secrets of a configuration by the place and the name of a value, and by its shape.

This is the only rule for views of the admin API, dry runs, exports, diagnostics, and the redactor.
A reference such as `${VAR}` and a placeholder such as `{city}` are not secrets. Values of `env` and
`headers` are secret unless their name or their form is known to be harmless. A value without
another sign of a secret is `presumed`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import unquote

from mcpx.model.redaction import HARMLESS_LAST, is_secret_name, is_worth_hiding, name_words, words
from mcpx.model.secret_shapes import Span, find_pairs, find_shapes, is_random

Path = tuple[str | int, ...]

MAX_TEXT = 100_000
"""Characters. Longer texts are not searched."""
MAX_DEFAULTS = 10
"""Depth of defaults within defaults. A configuration with more levels does not load."""
MAX_LEVELS = 64
"""Nested arrays and objects. A text with more is not read as JSON, because each of its values has a
long path."""
MIN_PRESUMED, MIN_PLAIN = 12, 20
"""Characters from which the redactor learns a presumed secret, with and without digits. A shorter
one may be part of ordinary text."""

PLAIN_HEADERS = words(
    "accept accept-charset accept-encoding accept-language accept-profile baggage cache-control "
    "connection "
    "content-encoding content-language content-length content-profile content-type date dnt "
    "expect from host "
    "if-match if-modified-since if-none-match if-unmodified-since mcp-protocol-version origin "
    "pragma prefer priority "
    "range referer te traceparent upgrade user-agent via x-request-id x-requested-with"
)
"""Headers without secrets, even where all others may have some."""

VARIABLES = frozenset({"env", "environment", "envs"})
"""Keys of tables of environment variables."""
_VARIABLE_NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}")
"""A name that only variables of an environment have. Keys of the configuration are in lower
case."""
_HEADERS = frozenset({"headers", "http_headers", "sink_headers"})
_TABLES = VARIABLES | _HEADERS | {"params", "body"}
"""Keys below which the user chooses the names."""
_LINES = frozenset({"args", "command"})
_CODE = _TABLES | _LINES | {"stdin"}
"""Keys of texts for programs. Only these are searched for pairs of names and values, and for
JSON."""
_FIELDS = frozenset({"token", "password", "client_secret", "admin_token"})
_HARMLESS_NAMES = (HARMLESS_LAST - {"header"}) | words(
    "level log logging debug verbose quiet region zone location locale lang language tz timezone "
    "currency country user "
    "username login email mail sender recipient db database schema table keyspace collection "
    "bucket namespace cluster "
    "project workspace org organization organisation team tenant group account role profile env "
    "environment stage "
    "branch repo repository owner author site domain subdomain transport protocol format encoding "
    "charset color theme "
    "model engine provider backend driver dialect adapter browser device platform os arch toolset "
    "tool feature flag "
    "permission readonly read write only cache root home directory cwd workdir workdirs base "
    "prefix suffix title label "
    "tag description comment agent retry retries attempt delay interval concurrency worker thread "
    "pool batch page "
    "memory ip address interface bind listen threshold temperature unit style sort order filter "
    "proxy allowed disabled "
    "enabled enable disable headless insecure ssl tls verify telemetry analytics tracking editor "
    "shell term display "
    "pager options opts spec index channel date time duration ref sheet drive calendar instance "
    "deployment resource "
    "pghost pguser pgport pgdatabase output input screenshots snapshot network chain edition "
    "product "
    "department board space list"
)
"""Last words of names of variables and headers. Values under them are secret by their shape
only."""
_HARMLESS_VALUES = words(
    "true false yes no on off none null auto default debug info notice warn warning error trace "
    "verbose silent quiet "
    "production development staging test testing local dev prod enabled disabled all always never "
    "only stdio http "
    "https sse streamable-http json text yaml csv utf-8 utf8 utc localhost docker linux darwin "
    "win32 chromium firefox "
    "webkit chrome readonly read-only strict"
)
_HARMLESS_FORM = re.compile(
    r"(?i)-?\d{1,5}(?:\.\d+)?(?:ms|s|m|h|d|k|kb|m|mb|g|gb|%)?|\d{4}-\d\d-\d\d|v?\d+(?:\.\d+){1,3}"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\d+(?:,\d{1,5})+"
)
"""Numbers, sizes, dates, versions, and mail addresses."""
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\n;=]*|~|\.|[\w-]+(?:[/\\][\w .-]+)+\.\w{1,6}")
_ONE_URL = re.compile(r"(?:[A-Za-z][\w+.-]{0,30}:){1,3}//\S*")
_PLACEHOLDER = re.compile(r"\{[\w*.?-]{1,64}\}")
_UNBRACED = re.compile(r"\$[A-Za-z_]\w*")
_AUTHORIZATION = re.compile(r"(?i)(?:bearer|basic|token)[ \t]+")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_HEADER_OPTIONS = words(
    "-H --header --headers --http-header --http-headers --custom-header --add-header"
)
_VARIABLE_OPTIONS = words("-e --env --build-arg")
_USER_OPTIONS = words("-u --user")
_ATTACHED = re.compile(r"(-H(?=[\w-]+:)|-e(?=[A-Z][A-Z0-9_]*=)|-u(?=[^\s:/=]+:))([\s\S]+)")
"""A short option and its value in one word: `-HX-Key: value`."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=([\s\S]*)")
_HEADER_LINE = re.compile(r"\s*([\w-]+)\s*[:=]\s*([\s\S]*)")
_WORD_OF_LINE = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_TOKEN_OF_JSON = re.compile(r'\s*(?:([\[\]{}:,])|("(?:[^"\\]|\\.)*+")|([^\s\[\]{}:,"]+))')
_SEPARATORS = re.compile(r"[\s;,:=&\"'{}]+")
_ENCRYPTED = re.compile(r"enc:v\d+:")


@dataclass(frozen=True, slots=True)
class Secret:
    """A part of a text."""

    start: int
    end: int
    presumed: bool = False
    """The value has no sign of a secret, but it is not known to be harmless."""

    @property
    def span(self) -> Span:
        return self.start, self.end


def find_secrets(
    text: str, path: Path, line: list[Any] | None = None, depth: int = 0
) -> list[Secret]:
    """The secrets of a text in order, without overlaps.

    `path`: the keys and indexes that lead to the text. `line`: the list that the text is an item
    of. `depth`: how many defaults of references the text is in.
    """
    if len(text) > MAX_TEXT or _ENCRYPTED.match(text):
        return []
    references = list(_references(text))
    found = [part for each in _find(text, path, line) for part in _without(each, text, references)]
    for _, end, default_start in references:
        if default_start is not None and depth < MAX_DEFAULTS:
            default = text[default_start : end - 1]
            inner = find_secrets(default, path, line, depth + 1)
            found += [
                _moved(each, default_start)
                for each in inner
                if is_worth_hiding(default[slice(*each.span)])
            ]
    return _merged(found)


def is_secret_number(number: object, path: Path) -> bool:
    return (
        isinstance(number, int | float)
        and not isinstance(number, bool)
        and len(str(number)) > 3
        and _is_named(path)
    )


def replace_secrets(
    value: Any, path: Path, by: Callable[[str, Path, bool], str], line: list[Any] | None = None
) -> Any:
    """A copy of a tree in which `by(secret, path, presumed)` replaces each secret."""
    if isinstance(value, str):
        parts: list[str] = []
        at = 0
        for secret in find_secrets(value, path, line):
            parts += [
                value[at : secret.start],
                by(value[slice(*secret.span)], path, secret.presumed),
            ]
            at = secret.end
        return "".join([*parts, value[at:]]) if parts else value
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {key: replace_secrets(item, (*path, key), by) for key, item in table.items()}
    if isinstance(value, list | tuple):
        items = list(cast("Iterable[Any]", value))
        return [
            replace_secrets(item, (*path, index), by, items) for index, item in enumerate(items)
        ]
    return by(str(value), path, False) if is_secret_number(value, path) else value


def hide_secrets(value: Any, path: Path, mask: str) -> Any:
    """A copy of a tree with `mask` in the place of each secret."""
    return replace_secrets(value, path, lambda secret, path, presumed: mask)


def map_texts(value: Any, by: Callable[[str], str]) -> Any:
    """A copy of a tree with another text for each text; keys stay."""
    if isinstance(value, str):
        return by(value)
    if isinstance(value, dict):
        return {key: map_texts(item, by) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [map_texts(item, by) for item in cast("list[Any]", value)]
    return value


def learnable_secrets(value: Any, path: Path = ()) -> set[str]:
    """The secrets of a tree for a redactor, with the parts of each that a program may print
    alone."""
    found: set[str] = set()

    def note(secret: str, path: Path, presumed: bool) -> str:
        if not presumed or _is_distinctive(secret):
            found.update(_variants(secret))
        return ""

    replace_secrets(value, path, note)
    return found


def secrets_of_environment(environ: Mapping[str, str]) -> set[str]:
    """The secrets of mcpx in the environment of its process: its key, and credentials for
    proxies."""
    found = {environ["MCPX_KEY"]} if "MCPX_KEY" in environ else set[str]()
    for name, value in environ.items():
        if name.lower().endswith("_proxy"):
            found |= {
                part
                for span in find_shapes(value[:MAX_TEXT])
                for part in _variants(value[slice(*span)])
            }
    return found


def _variants(secret: str) -> Iterator[str]:
    yield secret
    if "%" in secret:
        yield unquote(secret)
    if "\\" in secret:
        try:
            yield json.loads(f'"{secret}"')
        except ValueError:
            pass
    if len(secret) > MAX_TEXT:
        return
    for leaf_path, start, end, _ in _json_leaves(secret) or ():
        leaf = secret[start:end]
        if _find_in_variable(str(leaf_path[-1]) if leaf_path else "", leaf):
            yield leaf
            yield leaf.replace("\\n", "\n")
    for start, end in find_shapes(secret):
        yield secret[start:end]
    for piece in _SEPARATORS.split(secret):
        if piece != secret and _is_distinctive(piece):
            yield piece


def _is_distinctive(text: str) -> bool:
    """Return True if a text is so unusual that replacing it changes no ordinary text."""
    if len(text) < MIN_PRESUMED or re.search(r"\s", text):
        return False
    return len(text) >= MIN_PLAIN or (any(map(str.isdigit, text)) and any(map(str.isalpha, text)))


# The rules for a value, by its place.


def _find(text: str, path: Path, line: list[Any] | None) -> list[Secret]:
    last = path[-1] if path else ""
    above = path[-2] if len(path) > 1 else ""
    if isinstance(last, str) and (above in VARIABLES or _VARIABLE_NAME.fullmatch(last)):
        return _find_in_variable(last, text)
    if isinstance(last, str) and above in _HEADERS:
        return _find_in_header(last, text, whole="custom_header" in path)
    is_named = _is_named(path)
    if isinstance(last, int) and line is not None and not is_named:
        return _find_in_argument(text, last, line)  # Also below a key that is misspelled.
    if is_named:
        return [_value_of(text)]
    if not any(step in _CODE for step in path):
        return [Secret(*span) for span in find_shapes(text)]
    found = _find_in_code(text)
    return [*found, *_find_in_line(text)] if last == "command" and " " in text else found


def _is_named(path: Path) -> bool:
    """Return True if the place marks the value as a secret."""
    steps = [step for step in path if isinstance(step, str)]
    if not steps or (path[-1] != steps[-1] and steps[-1] in _LINES):
        return False
    last, above = steps[-1], steps[:-1]
    if path[-1] == last and (last in _FIELDS or (last == "value" and "api_key" in above)):
        return True
    if "custom_header" in above:
        return last.lower() not in PLAIN_HEADERS
    tables = [index for index, step in enumerate(steps) if step in _TABLES]
    if not tables:
        return False
    names = steps[tables[0] + 1 :]
    if not names:
        return False
    return is_secret_name(last) or (any(map(is_secret_name, names)) and not _is_harmless_name(last))


def _find_in_variable(name: str, text: str) -> list[Secret]:
    """Find secrets in the value of an environment variable, or in a field of a variable with
    JSON."""
    bare = _without_references(text).strip()
    if _is_empty_value(bare):
        return []
    if is_secret_name(name):
        return [_value_of(text)]
    shapes = _find_in_code(text)
    if _is_harmless_name(name) or _is_harmless_value(bare):
        return shapes
    leaves = _json_leaves(text)
    if leaves is not None:
        return [*shapes, *_find_in_leaves(text, leaves, _find_in_variable)]
    whole = _value_of(text)
    is_certain = bool(shapes) or is_random(text) or name.lower().endswith("header")
    return [*shapes, replace(whole, presumed=not is_certain)]


def _find_in_header(name: str, text: str, *, whole: bool = False) -> list[Secret]:
    if name.lower() in PLAIN_HEADERS:
        return [Secret(*span) for span in find_shapes(text)]
    return [_value_of(text)] if whole else _find_in_variable(name, text)


def _find_in_argument(text: str, at: int, line: list[Any]) -> list[Secret]:
    """Find secrets in a word of a command line."""
    before = line[at - 1] if at else None
    option = before if isinstance(before, str) and _OPTION.fullmatch(before) else ""
    if option and not (_OPTION.fullmatch(text.partition("=")[0]) and not is_random(text)):
        found = _find_in_option(option, text)
        if found is not None:
            return found
    attached = _ATTACHED.fullmatch(text)
    if attached is not None:
        found = _find_in_option(attached[1], attached[2])
        if found is not None:
            return [_moved(each, len(attached[1])) for each in found]
    name, equals, value = text.partition("=")
    if equals and _OPTION.fullmatch(name):
        found = _find_in_option(name, value)
        if found is not None:
            return [_moved(each, len(name) + 1) for each in found]
    found = _find_in_code(text)
    if " " in text:
        found += _find_in_line(text)
    if (
        "/" not in text
        and not text.startswith(("@", ".", "~"))
        and re.fullmatch(r"[\w+=.:~-]+", text)
        and is_random(text)
    ):
        found.append(Secret(0, len(text)))
    return found


def _find_in_option(option: str, value: str) -> list[Secret] | None:
    """Find secrets in the value of an option. Returns None if the option has no known meaning."""
    if option in _HEADER_OPTIONS:
        leaves = _json_leaves(value)
        if leaves is not None:
            return _find_in_leaves(value, leaves, _find_in_header)
        header = _HEADER_LINE.fullmatch(value)
        if header is None:
            return [_value_of(value)] if _without_references(value).strip() else []
        return [_moved(each, header.start(2)) for each in _find_in_header(header[1], header[2])]
    if option in _VARIABLE_OPTIONS:
        assignment = _ASSIGNMENT.fullmatch(value)
        if assignment is not None:
            return [
                _moved(each, assignment.start(2))
                for each in _find_in_variable(assignment[1], assignment[2])
            ]
        return None
    if (
        option in _USER_OPTIONS
        and re.fullmatch(r"[^\s:/]+:\S+", value)
        and not value.replace(":", "").isdigit()
    ):
        return [Secret(value.index(":") + 1, len(value))]
    if is_secret_name(option) and not option.startswith("--no-") and not _is_empty_value(value):
        return [_value_of(value)]
    return None


def _find_in_line(text: str) -> list[Secret]:
    """Find secrets in a whole command line, as in `sh -c "…"`."""
    found: list[Secret] = []
    option = ""
    for word in _WORD_OF_LINE.finditer(text):
        bare = word[0].strip("\"'")
        start = word.start() + (len(word[0]) - len(word[0].lstrip("\"'")))
        name, equals, value = bare.partition("=")
        if option and not _OPTION.fullmatch(name):
            found += [_moved(each, start) for each in _find_in_option(option, bare) or ()]
        elif equals and _OPTION.fullmatch(name):
            found += [
                _moved(each, start + len(name) + 1)
                for each in _find_in_option(name, value.strip("\"'")) or ()
            ]
        option = bare if _OPTION.fullmatch(bare) else ""
    return found


def _find_in_code(text: str) -> list[Secret]:
    """Find secrets by shapes, pairs of a name and a value, and fields of JSON."""
    found = [Secret(*span) for span in find_shapes(text)]
    leaves = _json_leaves(text)
    if leaves is not None:
        return [*found, *_find_in_leaves(text, leaves, None)]
    return [*found, *(Secret(*span) for span in find_pairs(text))]


Leaf = tuple[Path, int, int, bool]


def _find_in_leaves(
    text: str, leaves: list[Leaf], rule: Callable[[str, str], list[Secret]] | None
) -> list[Secret]:
    """`rule` gets the name and the value of each leaf; by default a name must say that its value is
    secret."""
    found: list[Secret] = []
    for path, start, end, is_text in leaves:
        value = text[start:end]
        name = next((step for step in reversed(path) if isinstance(step, str)), "")
        if not is_text:
            found += (
                [Secret(start, end)] if is_secret_number(_number(value), ("body", *path)) else []
            )
        elif _is_named(("body", *path)) and not _is_empty_value(value):
            found.append(_moved(_value_of(value), start))
        elif rule is not None and name:
            found += [_moved(each, start) for each in rule(name, value)]
        elif any(step in _HEADERS | VARIABLES for step in path):
            found += [_moved(each, start) for each in _find_in_variable(name, value)]
        else:
            found += [Secret(start + span[0], start + span[1]) for span in find_pairs(value)]
    return found


def _number(text: str) -> int | float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _json_leaves(text: str) -> list[Leaf] | None:
    """Return the scalar values of a JSON object or array with their places, or None for another
    text."""
    if text.lstrip()[:1] not in ("{", "[") or _PLACEHOLDER.match(text.strip()):
        return None
    leaves: list[Leaf] = []
    path: list[str | int] = []
    waiting_for_key = False
    at, end = 0, len(text.rstrip())
    while at < end:
        token = _TOKEN_OF_JSON.match(text, at)
        if token is None:
            return None
        at = token.end()
        mark = token[1]
        if mark in ("{", "["):
            if len(path) == MAX_LEVELS:
                return None
            path.append("" if mark == "{" else 0)
            waiting_for_key = mark == "{"
        elif mark in ("}", "]"):
            if not path:
                return None
            path.pop()
            waiting_for_key = False
        elif mark == ",":
            if not path:
                return None
            waiting_for_key = isinstance(path[-1], str)
            path[-1] = "" if waiting_for_key else cast(int, path[-1]) + 1
        elif mark == ":":
            waiting_for_key = False
        elif token[2]:
            if not path:
                return None
            if waiting_for_key:
                path[-1] = token[2][1:-1]
            else:
                leaves.append((tuple(path), token.start(2) + 1, token.end(2) - 1, True))
        elif path:
            leaves.append((tuple(path), token.start(3), token.end(3), False))
        else:
            return None
    return None if path else leaves


# Harmless names and values.


def _is_harmless_name(name: str) -> bool:
    parts = name_words(name)
    if parts[-2:] == ["secret", "id"] or not parts:
        return False
    last = parts[-1]
    return last in _HARMLESS_NAMES or last.removesuffix("s") in _HARMLESS_NAMES


def _is_empty_value(bare: str) -> bool:
    """Return True for values that are never secret, under any name."""
    return len(bare) < 2 or bare.lower() in (
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "none",
        "null",
    )


def _is_harmless_value(bare: str) -> bool:
    if len(bare) <= 3 or bare.lower() in _HARMLESS_VALUES or _HARMLESS_FORM.fullmatch(bare):
        return True
    if _ONE_URL.fullmatch(bare):
        return True
    return _PATH.fullmatch(bare) is not None and not is_random(bare) and not bare.startswith("//")


def _value_of(text: str) -> Secret:
    """All of a text but an authorization scheme."""
    scheme = _AUTHORIZATION.match(text)
    return Secret(scheme.end() if scheme else 0, len(text))


# References and spans.


def _references(text: str) -> Iterator[tuple[int, int, int | None]]:
    """Start, end, and the start of the default of each `${…}` and `{…}`."""
    at = 0
    while (at := text.find("{", at)) >= 0:
        if at and text[at - 1] == "$":
            end = _closing_brace(text, at + 1)
            if end < 0:
                return
            default = text.find(":-", at, end)
            yield at - 1, end + 1, default + 2 if default >= 0 else None
            at = end
        elif placeholder := _PLACEHOLDER.match(text, at):
            yield *placeholder.span(), None
            at = placeholder.end()
        else:
            at += 1
    if _UNBRACED.fullmatch(text):
        yield 0, len(text), None


def _closing_brace(text: str, at: int) -> int:
    depth = 1
    for found in re.finditer(r"\$\{|\}", text[at : at + MAX_TEXT]):
        depth += 1 if found[0] == "${" else -1
        if depth == 0:
            return at + found.start()
    return -1


def _without_references(text: str) -> str:
    for start, end, _ in reversed(list(_references(text))):
        text = text[:start] + text[end:]
    return text


def _without(
    secret: Secret, text: str, references: list[tuple[int, int, int | None]]
) -> Iterator[Secret]:
    """The parts of a secret between references."""
    begin, parts = secret.start, list[Secret]()
    touched = False
    for start, end, _ in references:
        if start < secret.end and secret.start < end:
            touched = True
            parts.append(replace(secret, start=begin, end=max(begin, start)))
            begin = max(begin, end)
    parts.append(replace(secret, start=begin, end=max(begin, secret.end)))
    for part in parts:
        if part.start < part.end and (not touched or is_worth_hiding(text[slice(*part.span)])):
            yield part


def _moved(secret: Secret, by: int) -> Secret:
    return replace(secret, start=secret.start + by, end=secret.end + by)


def _merged(found: list[Secret]) -> list[Secret]:
    """In order; secrets that overlap become one, which is presumed if all of them are."""
    merged: list[Secret] = []
    for each in sorted(found, key=lambda secret: (secret.start, -secret.end)):
        if each.start >= each.end:
            continue
        if merged and each.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Secret(
                last.start, max(last.end, each.end), last.presumed and each.presumed
            )
        else:
            merged.append(each)
    return merged
