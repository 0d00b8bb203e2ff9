"""Masks for the literal secrets of a configuration, and the way back.

A mask is `••••••••` and eight hexadecimal digits that name its secret. The name is a digest of the
path of the secret, so replicas, restarts, and the command line use the same masks. Paths name the
items of lists by their `name`, if they have one. The text around a secret stays readable:
`Bearer ••••••••5f0a11c2`. References are not secrets.

`unmask` looks each mask up by its name, wherever the mask is now. A mask without a name means
"unchanged" if exactly one value fits. A mask that no secret belongs to is a mistake, and so is a
mask in a place where its secret would be shown from then on.

Texts that are not parsed, such as comments, are masked by their looks. There the name is a digest
of the text before the mask on its line. A secret that is neither named nor looks like one stays
visible.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import blake2b
from typing import Any

from mcpx.config.textedit import name_of
from mcpx.config.tree import KeyPath, as_list, as_map, is_list, is_map, map_leaves
from mcpx.model.redaction import is_secret_name
from mcpx.model.secret_rules import (
    VARIABLES,
    Secret,
    find_secrets,
    is_secret_number,
    replace_secrets,
)
from mcpx.model.secret_shapes import Span, find_shapes

MASK = "••••••••"
OMITTED = "(omitted)"
_NAMED = re.compile(rf"{MASK}([0-9a-f]{{8}})?")

Lookup = Callable[[Any], Any]
"""Returns the secret with a name, or None."""


class Unknown(Exception):
    """A mask without a secret."""

    def __init__(self, path: KeyPath, text: str = "") -> None:
        super().__init__(path)
        self.path = path
        self.text = text
        """The line, if the mask is in a comment."""


class Masks:
    def __init__(self, known: Collection[str] | None = None) -> None:
        """`known`: former secrets. If it is not None, other secrets are marked as new."""
        self.secrets: dict[str, Any] = {}
        """By name. A secret that is a number is a number here, too."""
        self.hidden: dict[KeyPath, list[Any]] = {}
        """The secrets of each value, by the path of the value."""
        self.values: dict[KeyPath, Any] = {}
        """Values with secrets, by path."""
        self._known = known
        self._counts = Counter[KeyPath]()

    def of_tree(self, tree: Any) -> Any:
        """A masked copy of a tree or of a part that begins at the root."""

        def masked(secret: str, path: KeyPath, presumed: bool) -> str:
            place, value = _named_path(tree, path)
            self.values[place] = value
            hidden: Any = value  # A number.
            if isinstance(value, str):
                hidden = secret
            self.hidden.setdefault(place, []).append(hidden)
            is_new = self._known is not None and secret not in self._known
            return f"{self._mask(hidden, place)}{' (new)' * is_new}"

        return replace_secrets(tree, (), masked)

    def of_text(self, text: str, secrets: Iterable[str] = ()) -> str:
        """A masked text that has not been parsed. `secrets`: other secrets to mask."""
        parts: list[str] = []
        at = 0
        line = ""
        for start, end in sorted([*_spans_in_text(text), *_spans_of(secrets, text)]):
            if start >= at:
                line = (line + text[at:start]).rpartition("\n")[2]
                parts += [text[at:start], self._mask(text[start:end], ("text", line.strip()))]
                line += MASK
            at = max(at, end)
        return "".join([*parts, text[at:]])

    def of_comments(self, text: str) -> str:
        return COMMENT.sub(lambda found: self.of_text(found[0]), text)

    def _mask(self, secret: Any, path: KeyPath) -> str:
        self._counts[path] += 1
        identity = json.dumps([*path, self._counts[path]])
        name = blake2b(identity.encode(errors="replace"), digest_size=4).hexdigest()
        self.secrets[name] = secret
        return f"{MASK}{name}"


def mask(tree: Any) -> Any:
    return Masks().of_tree(tree)


def without_texts(text: str, secrets: Iterable[str]) -> str:
    """Replace these secrets by masks without a name."""
    for start, end in sorted(set(_spans_of(secrets, text)), reverse=True):
        text = text[:start] + MASK + text[end:]
    return text


def secrets_written(tree: Any) -> set[str]:
    """The literal secrets of a tree."""
    masks = Masks()
    masks.of_tree(tree)
    return set(map(str, masks.secrets.values()))


def replaced(tree: Any, by: Callable[[str, KeyPath], str], *, presumed: bool = True) -> Any:
    """A copy with other texts for its secrets.

    `presumed`: also replace values that only their place marks as secret.
    """

    def replace(secret: str, path: KeyPath, is_presumed: bool) -> str:
        if is_presumed and not presumed:
            return secret
        return by(secret, path)

    return replace_secrets(tree, (), replace)


def outlined(value: Any) -> Any:
    """A copy for a problem report, without the values of environments and without arguments."""
    if is_map(value):
        return {key: _outlined_field(key, item) for key, item in value.items()}
    if is_list(value):
        return [outlined(item) for item in value]
    return value


def _outlined_field(key: str, value: Any) -> Any:
    if key in VARIABLES and (table := as_map(value)) is not None:
        return dict.fromkeys(table, OMITTED)
    if key == "args":
        return OMITTED
    if key == "command" and (line := as_list(value)):
        return [line[0], OMITTED]
    return outlined(value)


def _named_path(tree: Any, path: KeyPath) -> tuple[KeyPath, Any]:
    """The path with the names of list items, and the value there."""
    steps: list[str | int] = []
    for step in path:
        tree = tree[step]
        if isinstance(step, int):
            step = name_of(tree) or step
        steps.append(step)
    return tuple(steps), tree


# The way back


def unmask(new: Any, old: Any, find: Lookup | None = None) -> Any:
    """Put the secrets back into a tree. `old`: the stored tree. `find`: looks up other secrets.

    Raises Unknown.
    """
    if MASK not in json.dumps(new, ensure_ascii=False, default=str):
        return new
    masks = Masks()
    masks.of_tree(old)

    def restored(value: Any, path: KeyPath) -> Any:
        if not isinstance(value, str) or MASK not in value:
            return value
        place, _ = _named_path(new, path)
        hidden = masks.hidden.get(place, [])

        def look_up(name: str | None) -> Any:
            if name is None and len(set(hidden)) == 1:
                return hidden[0]
            secret = masks.secrets.get(name or "")
            if secret is None and name and find is not None:
                return find(name)
            return secret

        if value == MASK and hidden:
            told = masks.values[place]
            spans = _spans(told, path, new)
            if [str(told)[start:end] for start, end in spans] != list(map(str, hidden)):
                raise Unknown(path)
            return told
        return _restored(value, path, new, look_up)

    return map_leaves(new, restored)


def _restored(text: str, path: KeyPath, tree: Any, look_up: Lookup) -> Any:
    told, at = "", 0
    spans: list[Span] = []
    for found in _NAMED.finditer(text):
        secret = look_up(found[1])
        if secret is None:
            raise Unknown(path)
        if found[0] == text and not isinstance(secret, str):
            told, spans = secret, [(0, len(str(secret)))]
            break
        told += text[at : found.start()]
        spans.append((len(told), len(told) + len(str(secret))))
        told += str(secret)
        at = found.end()
    else:
        told += text[at:]
    covered = _spans(told, path, tree)
    for start, end in spans:
        if not any(first <= start and end <= last for first, last in covered):
            raise Unknown(path)  # It would be shown from now on.
    return told


def _spans(value: Any, path: KeyPath, tree: Any) -> list[Span]:
    """Where a value of the tree is secret."""
    if not isinstance(value, str):
        return [(0, len(str(value)))] * is_secret_number(value, path)
    for step in path[:-1]:
        tree = tree[step]
    return [secret.span for secret in find_secrets(value, path, as_list(tree))]


def restore_text(text: str, masks: Masks) -> str:
    """Put the secrets back into a text that is not parsed. Raises Unknown."""
    used: set[str] = set()

    def secret_of(found: re.Match[str]) -> str:
        secret = masks.secrets.get(found[1] or "")
        if secret is None:
            start = text.rfind("\n", 0, found.start()) + 1
            line = text[start:].partition("\n")[0]
            raise Unknown((), line.strip())
        used.add(str(secret))
        return str(secret)

    told = _NAMED.sub(secret_of, text)
    shown = Masks().of_text(told)
    if any(secret in shown for secret in used):
        raise Unknown((), text.strip())
    return told


def restore_comments(text: str, masks: Masks) -> str:
    """Raises Unknown."""
    return COMMENT.sub(lambda found: restore_text(found[0], masks), text)


# Texts that are not parsed

COMMENT = re.compile(r"(?m)^[ \t]*(?:#|//).*$")
"""Comments behind a value on its line are not masked."""
_PAIR = re.compile(
    r"""(["']?)(?<![\w.-])([\w.-]++)\1([ \t]*+[:=][ \t]*)"""
    r"""("[^"\n]*"|'[^'\n]*'|(?:(?i:bearer|basic|token)[ \t]+)?[^\s,{}\[\]#"']+)"""
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")
"""A name that only variables of an environment have, and no word of a comment."""
_LINE = re.compile(
    r"""(?m)^[ \t]*(?:[-#][ \t]+|//)?["']?"""
    r"""(?:([A-Z][A-Z0-9]*_[A-Z0-9_]+)["']?[ \t]*[:=][ \t]*["']?)?(\S.*?)["']?,?$"""
)
"""A value on a separate line, behind the name of a variable or the mark of a list item."""
_OPTION = re.compile(
    r"""(?<![\w-])(--?[A-Za-z][\w-]*)["']?(?:[ \t]*,\s*|[ \t]+)"""
    r"""("[^"\n]*"|'[^'\n]*'|[^\s"',\[\]]+)"""
)
_OPTION_ON_ITS_LINE = re.compile(
    r"""(?<![\w-])(--?[A-Za-z][\w-]*)["']?[ \t]*\n[ \t]*-[ \t]+(\S[^\n]*)"""
)
_SCHEME = re.compile(r"(?i)^(?:bearer|basic|token)[ \t]+")


def _spans_in_text(text: str) -> Iterator[Span]:
    yield from find_shapes(text)
    for pair in _PAIR.finditer(text):
        start, end = _unquoted(pair, 4)
        value = text[start:end]
        if _VARIABLE.fullmatch(pair[2]):
            yield from _moved(find_secrets(value, ("env", pair[2])), start)
        elif is_secret_name(pair[2]) and value and not value.startswith("$"):
            bare = _SCHEME.sub("", value, count=1)
            yield end - len(bare), end
    for line in _LINE.finditer(text):
        if line[1]:
            found = find_secrets(line[2], ("env", line[1]))
        else:
            found = find_secrets(line[2], ("args", 0), [line[2]])
        yield from _moved(found, line.start(2))
    for option in (*_OPTION.finditer(text), *_OPTION_ON_ITS_LINE.finditer(text)):
        start, end = _unquoted(option, 2)
        words = [option[1], text[start:end]]
        yield from _moved(find_secrets(words[1], ("args", 1), words), start)


def _spans_of(secrets: Iterable[str], text: str) -> Iterator[Span]:
    """Where the text has these secrets, also with escapes."""
    for secret in secrets:
        for spelling in {secret, json.dumps(secret)[1:-1]}:
            if len(secret) > 3:
                yield from (found.span() for found in re.finditer(re.escape(spelling), text))


def _moved(found: Iterable[Secret], by: int) -> Iterator[Span]:
    return ((each.start + by, each.end + by) for each in found)


def _unquoted(found: re.Match[str], group: int) -> Span:
    start, end = found.span(group)
    if found[group][:1] in ("'", '"'):
        return start + 1, end - 1
    return start, end
