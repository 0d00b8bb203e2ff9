"""What is written in a configuration, without its literal secrets; and those put back.

Promised: a secret that stands in the file itself is shown as `MASK`, the rest of its text stays (`Bearer ••••••••`,
`https://user:••••••••@host`); references are no secrets and are shown. `unmask` finds for every mask what it stands
for, by its place, also in lists that were reordered and under keys that were renamed; a mask for which there is
nothing, or whose secret would be shown where it stands now, is a mistake with its path. Works on any shape of config
file. Not done here: secrets in comments (`blotting`).
"""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from mcpx.config.align import matches
from mcpx.config.environment import is_encrypted
from mcpx.config.secrets import PLAIN_HEADERS
from mcpx.config.tree import KeyPath, as_list, as_map
from mcpx.model.redaction import FORMS, is_secret_name, is_worth_hiding

MASK = "••••••••"

_TABLES = frozenset({"env", "environment", "headers", "http_headers", "params", "body"})
"""Keys below which names are the user's own."""
_LINES = frozenset({"args", "command"})
_FIELDS = frozenset({"token", "password", "client_secret", "admin_token"})
_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_DEFAULT = re.compile(r"\$\{[^{}]*?:-([^{}]*)\}")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token)[ \t]+")
_IN_ADDRESS = re.compile(r"://(?:[^\s/@:?#]*:)?([^\s/@?#]+)@")
_IN_QUERY = re.compile(r"[?&]([^=&?\s#]+)=([^&\s#]+)")
_LOOKS = re.compile(rf"\b(?:{FORMS})")
Span = tuple[int, int]
Shown = Callable[[str, KeyPath], str]
"""What stands in the place of a secret, which stands at a path."""


def _mask(text: str, path: KeyPath) -> str:
    return MASK


def mask(value: Any, known: Collection[str] | None = None) -> Any:
    """A tree or a part of one. `known`: secrets that were there before; others are marked as new."""

    def shown(text: str, path: KeyPath) -> str:
        return MASK if known is None or text in known else f"{MASK} (new)"

    return replaced(value, shown)


def replaced(value: Any, by: Shown) -> Any:
    """The same with its secrets replaced."""
    return _masked(value, (), by)


def secrets_written(value: Any) -> set[str]:
    """The literal secrets of a tree."""
    found: set[str] = set()

    def note(text: str, path: KeyPath) -> str:
        found.add(text)
        return MASK

    replaced(value, note)
    return found


class Unknown(Exception):
    """A mask that stands for nothing; `args[0]` is its path."""

    def __init__(self, path: KeyPath) -> None:
        super().__init__(path)
        self.path = path


def unmask(new: Any, old: Any, path: KeyPath = (), among: list[Any] | None = None) -> Any:
    """`new` with what `old` has at the places of its masks. `path`: where both stand; `among`: the list that `new` is
    an item of. Raises `Unknown`."""
    if isinstance(new, str):
        return _text_unmasked(new, old, path, among) if MASK in new else new
    if (table := as_map(new)) is not None:
        return _table_unmasked(table, as_map(old) or {}, path)
    if (items := as_list(new)) is not None:
        before = as_list(old) or []
        found = matches(_masked(before, path, _mask), items)
        # In a line of arguments a secret follows its option; elsewhere the position is all there is.
        return [
            unmask(item, None if at is None else _in_its_list(before, at, path), (*path, index), items)
            for index, (item, at) in enumerate(zip(items, found, strict=True))
        ]
    return new


def has_mask(value: Any) -> bool:
    if isinstance(value, str):
        return MASK in value
    if (table := as_map(value)) is not None:
        return any(map(has_mask, table.values()))
    return any(map(has_mask, as_list(value) or ()))


class _Item(str):
    """A text of a list, with what of it is secret there."""

    spans: list[Span]


def _in_its_list(items: list[Any], at: int, path: KeyPath) -> Any:
    item = items[at]
    if isinstance(item, str):
        marked = _Item(item)
        marked.spans = _spans(item, (*path, at), items)
        return marked
    return item


def _table_unmasked(new: dict[str, Any], old: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    gone = {key: value for key, value in old.items() if key not in new}
    told: dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if before is None and has_mask(value):
            # Renamed: the one that went and looks the same when masked.
            alike = [was for was, item in gone.items() if _masked(item, (*path, was), _mask) == value]
            if len(alike) == 1:
                told[key] = unmask(value, gone[alike[0]], (*path, key))  # under a name that keeps it masked
                continue
        told[key] = unmask(value, before, (*path, key))
    return told


def _text_unmasked(new: str, old: Any, path: KeyPath, among: list[Any] | None) -> Any:
    if new == MASK and isinstance(old, int | float) and not isinstance(old, bool):
        return _still_hidden(old, path)
    if not isinstance(old, str):
        raise Unknown(path)
    spans = old.spans if isinstance(old, _Item) else _spans(old, path)
    hidden = [str(old)[start:end] for start, end in spans]
    masks = new.count(MASK)
    if new == MASK and hidden:
        if isinstance(old, _Item) and spans != [(0, len(old))]:
            raise Unknown(path)  # a whole word of a line stands for no part of another
        told = str(old)
    elif not hidden or (masks != len(hidden) and len(set(hidden)) != 1):
        raise Unknown(path)
    else:
        hidden = hidden if masks == len(hidden) else hidden[:1] * masks
        parts = new.split(MASK)
        told, spans = "", list[Span]()
        for part, secret in zip(parts, [*hidden, ""], strict=True):
            spans.append((len(told) + len(part), len(told) + len(part) + len(secret)))
            told += part + secret
    covered = _spans(told, path, among)
    if not all(start == end or _within((start, end), covered) for start, end in spans):
        raise Unknown(path)  # the place says no longer that it is a secret: it would be shown from now on
    return told


def _still_hidden(number: int | float, path: KeyPath) -> int | float:
    if _masked(number, path, _mask) != MASK:
        raise Unknown(path)
    return number


def _masked(value: Any, path: KeyPath, shown: Shown, among: list[Any] | None = None) -> Any:
    if isinstance(value, str):
        parts, at = list[str](), 0
        for start, end in _spans(value, path, among):
            parts += [value[at:start], shown(value[start:end], path)]
            at = end
        return "".join([*parts, value[at:]])
    if (table := as_map(value)) is not None:
        return {key: _masked(item, (*path, key), shown) for key, item in table.items()}
    if (items := as_list(value)) is not None:
        return [_masked(item, (*path, index), shown, items) for index, item in enumerate(items)]
    if isinstance(value, int | float) and not isinstance(value, bool) and _named(path) and len(str(value)) > 3:
        return shown(str(value), path)
    return value


def _spans(text: str, path: KeyPath, among: list[Any] | None = None) -> list[Span]:
    """What of a text must not be shown, in order, without overlaps."""
    if len(text) > 100_000 or is_encrypted(text):
        return []
    references = [found.span() for found in _REFERENCE.finditer(text)]
    found = [span for span in _found(text, path, among) if not _overlaps(span, references)]
    if _named(path) or among is not None:
        found += [each.span(1) for each in _DEFAULT.finditer(text) if is_worth_hiding(each[1]) and _named(path)]
    spans: list[Span] = []
    for span in sorted(found):
        if span[0] < span[1] and (not spans or span[0] >= spans[-1][1]):
            spans.append(span)
    return spans


def _found(text: str, path: KeyPath, among: list[Any] | None) -> Iterator[Span]:
    if _named(path) or _in_header(text, path):
        # A text made of references and a scheme holds nothing itself; `{city}` is an argument of a call.
        scheme = _SCHEME.match(text)
        begin = scheme.end() if scheme else 0
        if "${" in text:
            yield from (span for span in _between(text, begin) if is_worth_hiding(text[slice(*span)]))
        elif not text.startswith("{"):
            yield begin, len(text)
            return
    if among is not None:
        yield from _in_line(text, path, among)
    for address in _IN_ADDRESS.finditer(text):
        yield address.span(1)
    for pair in _IN_QUERY.finditer(text):
        if is_secret_name(pair[1]) and not pair[2].startswith(("{", "$")):
            yield pair.span(2)
    for known in _LOOKS.finditer(text):
        yield known.span()


def _between(text: str, begin: int) -> Iterator[Span]:
    """The stretches of a text that are no references."""
    for reference in _REFERENCE.finditer(text):
        yield begin, max(begin, reference.start())
        begin = max(begin, reference.end())
    yield begin, len(text)


def _named(path: KeyPath) -> bool:
    """Whether its place says that it is a secret."""
    steps = [step for step in path if isinstance(step, str)]
    if not steps or isinstance(path[-1], int):
        return False
    last, above = steps[-1], steps[:-1]
    if last in _FIELDS or (last == "value" and "api_key" in above):
        return True
    if "custom_header" in above:
        return last.lower() not in PLAIN_HEADERS
    return any(step in _TABLES for step in above) and is_secret_name(last)


def _in_header(text: str, path: KeyPath) -> bool:
    """A header may have any name; what is only a word or a number there is no secret."""
    if len(path) < 2 or path[-2] not in ("headers", "http_headers") or str(path[-1]).lower() in PLAIN_HEADERS:
        return False
    return len(text) >= 16 and any(map(str.isdigit, text)) and not any(map(text.__contains__, " /"))


def _in_line(text: str, path: KeyPath, among: list[Any]) -> Iterator[Span]:
    """What follows an option such as `--token` on a command line."""
    if len(path) < 2 or path[-2] not in _LINES or not isinstance(at := path[-1], int):
        return
    option, equals, _ = text.partition("=")
    if equals and is_secret_name(option) and not text.startswith(("{", "$")):
        yield len(option) + 1, len(text)
    before = among[at - 1] if at else None
    told = isinstance(before, str) and before.startswith("-") and "=" not in before and is_secret_name(before)
    if told and not text.startswith(("-", "{", "$")):
        yield 0, len(text)


def _overlaps(span: Span, others: list[Span]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in others)


def _within(span: Span, others: list[Span]) -> bool:
    return any(start <= span[0] and span[1] <= end for start, end in others)
