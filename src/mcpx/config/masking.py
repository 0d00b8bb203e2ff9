"""What is written in a configuration, without its literal secrets; and those put back.

Promised: a secret that stands in the file itself is shown as `MASK`, the rest of its text stays
(`Bearer ••••••••`, `https://user:••••••••@host`); references are no secrets and are shown. `unmask`
finds for every mask what it stands for, by its place, also in lists that were reordered and under
keys that were renamed; a mask for which there is nothing, or whose secret would be shown where it
stands now, is a mistake with its path. Works on any shape of config file. Not done here: secrets in
comments (`blotting`).
"""

from collections.abc import Callable, Collection
from typing import Any

from mcpx.config.textedit import matches
from mcpx.config.tree import KeyPath, as_list, as_map
from mcpx.model.secret_rules import VARIABLES, find_secrets, replace_secrets
from mcpx.model.secret_shapes import Span

MASK = "••••••••"
OMITTED = "(omitted)"

Shown = Callable[[str, KeyPath], str]
"""What stands in the place of a secret, which stands at a path."""


def _mask(text: str, path: KeyPath) -> str:
    return MASK


def mask(value: Any, known: Collection[str] | None = None) -> Any:
    """A tree or a part of one. `known`: secrets that were there before; others are marked as
    new."""

    def shown(text: str, path: KeyPath) -> str:
        return MASK if known is None or text in known else f"{MASK} (new)"

    return replaced(value, shown)


def replaced(value: Any, by: Shown, *, presumed: bool = True) -> Any:
    """A copy with its secrets replaced. `presumed`: also replace values that only their place marks
    as secret."""
    return replace_secrets(
        value,
        (),
        lambda secret, path, doubt: secret if doubt and not presumed else by(secret, path),
    )


def outlined(value: Any) -> Any:
    """A copy for a report of a problem: without the values of environments and without
    arguments."""
    if (table := as_map(value)) is not None:
        return {key: _outlined_field(key, item) for key, item in table.items()}
    items = as_list(value)
    return value if items is None else [outlined(item) for item in items]


def _outlined_field(key: str, value: Any) -> Any:
    if key in VARIABLES and (table := as_map(value)) is not None:
        return dict.fromkeys(table, OMITTED)
    if key == "args":
        return OMITTED
    if key == "command" and (line := as_list(value)):
        return [line[0], OMITTED]
    return outlined(value)


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
    """`new` with what `old` has at the places of its masks. `path`: where both stand; `among`: the
    list that `new` is an item of. Raises `Unknown`."""
    if isinstance(new, str):
        return _text_unmasked(new, old, path, among) if MASK in new else new
    if (table := as_map(new)) is not None:
        return _table_unmasked(table, as_map(old) or {}, path)
    if (items := as_list(new)) is not None:
        before = as_list(old) or []
        found = matches(_masked(before, path, _mask), items)
        # In a line of arguments a secret follows its option; elsewhere the position is all there
        # is.
        return [
            unmask(
                item, None if at is None else _in_its_list(before, at, path), (*path, index), items
            )
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
            alike = [
                was for was, item in gone.items() if _masked(item, (*path, was), _mask) == value
            ]
            if len(alike) == 1:
                told[key] = unmask(
                    value, gone[alike[0]], (*path, key)
                )  # under a name that keeps it masked
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
        raise Unknown(
            path
        )  # the place says no longer that it is a secret: it would be shown from now on
    return told


def _still_hidden(number: int | float, path: KeyPath) -> int | float:
    if _masked(number, path, _mask) != MASK:
        raise Unknown(path)
    return number


def _masked(value: Any, path: KeyPath, shown: Shown, among: list[Any] | None = None) -> Any:
    return replace_secrets(value, path, lambda secret, at, _: shown(secret, at), among)


def _spans(text: str, path: KeyPath, among: list[Any] | None = None) -> list[Span]:
    return [secret.span for secret in find_secrets(text, path, among)]


def _within(span: Span, others: list[Span]) -> bool:
    return any(start <= span[0] and span[1] <= end for start, end in others)
