"""Changes entries in the text of a client's file.

Everything else stays byte for byte, including a BOM and line ends. The new text is read back. If it
does not have exactly the wanted values, the change is refused with a reason. A text that cannot be
read is refused with the place of the mistake.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpx.clients import toml_text
from mcpx.clients.catalogue import Place, Shape
from mcpx.clients.entry import NAME, Json, as_text, whole
from mcpx.config.emit import Form, Manner, in_json
from mcpx.config.problems import Findings, GaveUpError, Refused, explain, tell
from mcpx.config.source import Source
from mcpx.config.textedit import Unchangeable, rewritten
from mcpx.config.tree import as_list, as_map, is_list, is_map, maps_in
from mcpx.model.errors import ConfigError

MAX_BYTES = 16 * 1024 * 1024
"""Claude Code keeps its history in the file of its servers."""
MAX_VALUES = 2_000_000
BARE = ""
"""The key of an entry that is not a table."""
_BOM = "\ufeff"
_FORMS: Mapping[str, Form] = {"yaml": "yaml"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A client's file and its entries."""

    place: Place
    file: Path
    text: str
    """Without its BOM."""
    has_bom: bool
    tree: Json
    shape: Shape
    """The shape of the existing entries, or the preferred one."""
    root: tuple[str, ...]
    entries: Json
    """By name."""

    @property
    def entry(self) -> Json | None:
        """The entry of the gateway."""
        found = self.entries.get(NAME)
        if found is None or is_map(found):
            return found
        return {BARE: found}

    def encoded(self, text: str) -> bytes:
        return (_BOM * self.has_bom + text).encode()


def read(place: Place, file: Path, data: bytes) -> Reading:
    """`data`: empty for a file that does not exist. Raises ConfigError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = "not UTF-8 text"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            what = "UTF-16 text"
        problem = f"error: {file} is {what} (line {line}); save it as UTF-8. Nothing was changed"
        raise ConfigError([problem]) from None
    bare = text.removeprefix(_BOM)
    tree = _parsed(file, bare)
    at = _shape_index(place, tree)
    root = place.roots[at]
    entries = _entries(_value_at(tree, root))
    return Reading(place, file, bare, bare != text, tree, place.spec.shapes[at], root, entries)


def _parsed(file: Path, text: str) -> Json:
    if not text.strip():
        return {}
    source = Source(file, text, MAX_VALUES)
    findings = Findings(source.trace)
    tree: Json = {}
    try:
        tree = source.parse(findings)
    except GaveUpError:
        if source.form == "yaml" and _has_only_comments(text):
            return {}
    if findings:
        raise Refused([*tell(findings), "Nothing was changed."], [file], explain(findings))
    if file.suffix == ".toml":
        return tomllib.loads(text)  # Keeps the types of dates.
    return tree


def _has_only_comments(text: str) -> bool:
    return all(line.lstrip()[:1] in ("", "#") for line in text.splitlines())


def _shape_index(place: Place, tree: Json) -> int:
    """The shape of the existing entries, or the first one."""
    for index, root in enumerate(place.roots):
        servers = as_map(_value_at(tree, root))
        if servers and all(isinstance(entry, dict) for entry in servers.values()):
            return index
    return 0


def _value_at(tree: Json, path: Iterable[str]) -> Any:
    value: Any = tree
    for key in path:
        value = (as_map(value) or {}).get(key)
    return value


def _entries(held: Any) -> Json:
    listed = {str(entry.get("name")): entry for _, entry in maps_in(held)}
    return as_map(held) or listed


# Changing


def connected(reading: Reading, entry: Json, asks: Mapping[str, Mapping[str, Any]]) -> str:
    """The text with the entry of the gateway. `asks`: items of other lists."""
    wanted = _with_entries(reading, {NAME: entry})
    for key, item in asks.items():
        items = as_list(wanted.get(key)) or []
        if item["id"] not in _ids(items):
            wanted[key] = [*items, dict(item)]
    if not reading.text.strip():
        return _new_text(reading, entry, asks)
    return _changed(reading, wanted)


def without_entry(reading: Reading, former: Json | None = None) -> str:
    """The text without the entry of the gateway, or with its former entry."""
    if former is not None:
        return connected(reading, former.get(BARE, former), {})
    if reading.entry is None:
        return reading.text
    wanted = _with_entries(reading, {NAME: None})
    for key, item in reading.shape.asks.items():
        items = as_list(wanted.get(key)) or []
        rest = [each for each in items if (as_map(each) or {}).get("id") != item["id"]]
        if rest:
            wanted[key] = rest
        elif items:
            del wanted[key]
    return _changed(reading, wanted)


def without_own(reading: Reading, names: Sequence[str]) -> str:
    """The text in which entries of the client are disabled, or removed if that is impossible."""
    off = reading.shape.off
    entries: dict[str, Any] = dict.fromkeys(names)
    if off:
        entries = {name: {**reading.entries[name], **off} for name in names}
    return _changed(reading, _with_entries(reading, entries), names)


def with_own(reading: Reading, entries: Mapping[str, Json]) -> str:
    """The text in which entries of the client are as they were before `without_own`."""
    return _changed(reading, _with_entries(reading, entries), list(entries))


def changed_by_us(now: Reading, former: Reading, names: Sequence[str]) -> dict[str, Json]:
    """The former entries of these names that were only disabled or removed since."""
    found: dict[str, Json] = {}
    for name in names:
        then, current = former.entries.get(name), now.entries.get(name)
        if then is not None and (current is None or _same(current, {**then, **now.shape.off})):
            found[name] = then
    return found


def _ids(items: Iterable[Any]) -> list[Any]:
    return [(as_map(item) or {}).get("id") for item in items]


def _with_entries(reading: Reading, entries: Mapping[str, Any]) -> Json:
    """The values of the file with these entries. None removes an entry."""
    wanted = deepcopy(reading.tree)
    holder: Any = wanted
    *above, last = reading.root
    for index, key in enumerate(reading.root):
        is_listed = reading.shape.listed and index == len(above)
        expected: type = dict
        if is_listed:
            expected = list
        if holder.get(key) is None:
            holder[key] = expected()
        if not isinstance(holder[key], expected):
            what = {list: "list"}.get(expected, "table")
            path = ".".join(reading.root[: index + 1])
            raise _refusal(reading, f"'{path}' is no {what}", [NAME])
        if index < len(above):
            holder = holder[key]
    changed = {name: entry for name, entry in entries.items() if entry is not None}
    if not reading.shape.listed:
        kept = {name: each for name, each in holder[last].items() if name not in entries}
        ordered = {name: changed.get(name, each) for name, each in holder[last].items()}
        holder[last] = {name: ordered[name] for name in ordered if name in kept or name in changed}
        holder[last] |= changed
        return wanted
    items: list[Any] = []
    for item in holder[last]:
        name = (as_map(item) or {}).get("name")
        if name in changed:
            items.append(changed.pop(name))
        elif name not in entries:
            items.append(item)
    holder[last] = [*items, *changed.values()]
    return wanted


def _new_text(reading: Reading, entry: Json, asks: Mapping[str, Mapping[str, Any]]) -> str:
    spec = reading.place.spec
    tree = whole(reading.shape, reading.root, entry, asks)
    text = as_text(tree, spec.format, reading.root)
    if spec.format in ("json", "jsonc"):
        text = in_json(tree, "", Manner("json"))
    return f"{spec.fresh}{text.rstrip()}\n"


def _changed(reading: Reading, wanted: Json, names: Sequence[str] = (NAME,)) -> str:
    if _same(reading.tree, wanted):
        return reading.text
    reason = f"'{'.'.join(reading.root)}' is written in a way that cannot be changed in place"
    try:
        text = _rewritten(reading, wanted)
        if _same(
            _without_empty(reading, _parsed(reading.file, text)), _without_empty(reading, wanted)
        ):
            return text
        reason = "it would not say the same any more"
    except (Unchangeable, ConfigError):
        pass
    raise _refusal(reading, reason, names)


def _rewritten(reading: Reading, wanted: Json) -> str:
    text, form = reading.text, reading.place.spec.format
    if form == "toml":
        return toml_text.rewritten(
            text, reading.root, reading.entries, _entries(_value_at(wanted, reading.root))
        )
    line_break = toml_text.line_break(text)
    bare = text.replace("\r\n", "\n")
    if form == "yaml" and not reading.tree:
        kept = ""
        if _has_only_comments(bare):
            kept = bare + "\n" * (not bare.endswith("\n"))
        return (kept + as_text(wanted, "yaml")).replace("\n", line_break)
    new = rewritten(bare, _FORMS.get(form, "json"), wanted, MAX_VALUES)
    return _with_line_ends(text, bare, new, line_break)


def _with_line_ends(text: str, bare: str, new: str, line_break: str) -> str:
    """Apply the change from `bare` to `new` to `text`, which has mixed line ends."""
    if text == bare:
        return new
    limit = min(len(bare), len(new))
    start = next((at for at in range(limit) if bare[at] != new[at]), limit)
    limit -= start
    end = next((at for at in range(limit) if bare[-1 - at] != new[-1 - at]), limit)
    changed = new[start : len(new) - end].replace("\n", line_break)
    pieces = text.split("\r\n")
    ends: list[int] = []
    at = 0
    for piece in pieces:
        at += len(piece) + 1
        ends.append(at - 1)

    def position(bare_at: int) -> int:
        return bare_at + sum(1 for each in ends[:-1] if each < bare_at)

    return text[: position(start)] + changed + text[position(len(bare) - end) :]


def _refusal(reading: Reading, reason: str, names: Sequence[str]) -> ConfigError:
    below = f"below '{'.'.join(reading.root)}' by hand"
    hint = f"change the entry '{NAME}' {below}; mcpx connect --print shows it"
    if list(names) != [NAME]:
        hint = f"disable the entries {', '.join(names)} {below}, and connect without --replace"
    return ConfigError([f"error: {reading.file}: {reason}. Nothing was changed; {hint}"])


def _without_empty(reading: Reading, tree: Json) -> Json:
    """In TOML, an empty table may be written or not."""
    if reading.place.spec.format != "toml" or tree.get(reading.root[0]) != {}:
        return tree
    return {key: value for key, value in tree.items() if key != reading.root[0]}


def _same(one: Any, other: Any) -> bool:
    """Compare values and types. NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if is_map(one):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if is_list(one):
        return len(one) == len(other) and all(map(_same, one, other))
    return repr(one) == repr(other)
