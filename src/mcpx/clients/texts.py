"""The text of a client's file, with the gateway's entry put in or taken out.

Promised: what is not ours stays byte for byte (a BOM and line ends, too); read again, the text says
exactly what it said and the entry, or nothing is given back and the reason told. A text that cannot
be read is refused with the place of the mistake. Not done here: opening and writing files.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpx.clients import json_text, toml_text
from mcpx.clients.catalogue import Place, Shape
from mcpx.clients.entry import NAME, Json, as_text, whole
from mcpx.config.emit import Manner, in_json
from mcpx.config.problems import Findings, GaveUpError, Refused, explain, tell
from mcpx.config.source import Source
from mcpx.config.textedit import Unchangeable, rewritten
from mcpx.config.tree import as_list, as_map
from mcpx.model.errors import ConfigError

MOST_BYTES = 16 * 1024 * 1024
"""Claude Code keeps its history beside its servers."""
_MOST_VALUES = 2_000_000
_BOM = "\ufeff"
BARE = ""
"""The key of an entry that is no table, which somebody wrote by hand: a text, a number."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A client's file as it is."""

    place: Place
    file: Path
    text: str
    """Without its BOM."""
    bom: bool
    tree: Json
    shape: Shape
    """The one it has, or would get."""
    root: tuple[str, ...]

    @property
    def entry(self) -> Json | None:
        """The gateway's; None: there is none."""
        holder = _held(self.tree, self.root)
        if self.shape.listed:
            return next(
                (
                    each
                    for each in map(as_map, as_list(holder) or [])
                    if each and each.get("name") == NAME
                ),
                None,
            )
        found = (as_map(holder) or {}).get(NAME)
        return (
            None
            if found is None
            else (as_map(found) if as_map(found) is not None else {BARE: found})
        )

    @property
    def servers(self) -> Json:
        """The entries by name. Empty if the client has a list of entries."""
        return as_map(_held(self.tree, self.root)) or {}

    def own(self, name: str) -> Json | None:
        """An entry of the client."""
        holder = _held(self.tree, self.root)
        if self.shape.listed:
            items = filter(None, map(as_map, as_list(holder) or []))
            return next((each for each in items if each.get("name") == name), None)
        return as_map((as_map(holder) or {}).get(name))

    @property
    def bytes(self) -> bytes:
        return encoded(self.text, self.bom)


def encoded(text: str, bom: bool) -> bytes:
    return ((_BOM if bom else "") + text).encode()


def read(place: Place, file: Path, data: bytes) -> Reading:
    """`data`: nothing for a file that is not there. Raises `ConfigError`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = "UTF-16 text" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "not UTF-8 text"
        raise ConfigError(
            [f"error: {file} is {what} (line {line}); save it as UTF-8. Nothing was changed"]
        ) from None
    bom, text = text.startswith(_BOM), text.removeprefix(_BOM)
    tree = _tree(file, text)
    at = _which(place, tree)
    return Reading(place, file, text, bom, tree, place.spec.shapes[at], place.roots[at])


def _tree(file: Path, text: str) -> Json:
    if not text.strip():
        return {}
    tree = _parsed(file, text)
    return tomllib.loads(text) if file.suffix == ".toml" else tree  # with dates and all


def _parsed(file: Path, text: str) -> Json:
    source = Source(file, text, _MOST_VALUES)
    findings = Findings(source.trace)
    try:
        tree = source.parse(findings)
    except GaveUpError:
        if source.form == "yaml" and _only_comments(text):
            return {}
        tree = {}
    if findings:
        raise Refused([*tell(findings), "Nothing was changed."], [file], explain(findings))
    return tree


def _only_comments(text: str) -> bool:
    return all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())


def _which(place: Place, tree: Json) -> int:
    """The shape that a file has already; else the first."""
    for at, root in enumerate(place.roots):
        servers = as_map(_held(tree, root))
        if servers and all(as_map(entry) is not None for entry in servers.values()):
            return at
    return 0


def _held(tree: Json, path: Sequence[str]) -> Any:
    value: Any = tree
    for key in path:
        value = (as_map(value) or {}).get(key)
    return value


# Putting in, taking out
# -----------------------------------------------------------------------------------------------


def connected(reading: Reading, made: Json, beside: Mapping[str, Mapping[str, Any]]) -> str:
    """The text with the entry in it; the same where it is there already."""
    _refuse_misplaced(reading)
    wanted = _with(reading, made, beside)
    if _same(reading.tree, wanted):
        return reading.text
    if not reading.text.strip():
        return _new(reading, made, beside)
    return _checked(reading, wanted, lambda: _put(reading, made, beside, wanted))


def _refuse_misplaced(reading: Reading) -> None:
    for length in range(1, len(reading.root) + 1):
        value, listed = (
            _held(reading.tree, reading.root[:length]),
            reading.shape.listed and length == len(reading.root),
        )
        if value is not None and (as_list(value) if listed else as_map(value)) is None:
            what = f"'{'.'.join(reading.root[:length])}' is no {'list' if listed else 'table'}"
            raise _refusal(reading, what)


def _new(reading: Reading, made: Json, beside: Mapping[str, Mapping[str, Any]]) -> str:
    tree, format = whole(reading.shape, reading.root, made, beside), reading.place.format
    in_lines = format in ("json", "jsonc")
    told = in_json(tree, "", Manner("json")) if in_lines else as_text(tree, format, reading.root)
    return f"{reading.place.spec.fresh}{told.rstrip()}\n"


def without_entry(reading: Reading, former: Json | None = None) -> str:
    """The text without the entry, or with another one that was there before."""
    if former is not None:
        return connected(reading, former.get(BARE, former), {})
    wanted, asked = _without(reading)
    if _same(reading.tree, wanted):
        return reading.text
    return _checked(reading, wanted, lambda: _take_out(reading, asked, wanted))


def without_own(reading: Reading, names: Sequence[str]) -> str:
    """The text in which entries of the client are disabled, or removed if the client cannot disable
    an entry."""
    off = reading.shape.off
    wanted = deepcopy(reading.tree)
    holder = _held(wanted, reading.root)
    if reading.shape.listed:
        holder[:] = [each for each in holder if (as_map(each) or {}).get("name") not in names]
    for name in names if not reading.shape.listed else ():
        if off:
            holder[name] |= off
        else:
            del holder[name]

    def make() -> str:
        if reading.place.format == "yaml":
            return _in_yaml(reading, wanted)
        text = reading.text
        for name in names:
            text = _own_off(text, reading, name)
        return text

    return _checked(reading, wanted, make, names)


def _own_off(text: str, reading: Reading, name: str) -> str:
    path, off = (*reading.root, name), reading.shape.off
    is_toml = reading.place.format == "toml"
    if not off:
        return toml_text.take_out(text, path) if is_toml else json_text.take_out(text, path)
    for key, value in off.items():
        put_key = toml_text.put_key if is_toml else _put_json_key
        text = put_key(text, path, key, value)
    return text


def _put_json_key(text: str, path: Sequence[str], key: str, value: Any) -> str:
    return json_text.put(text, (*path, key), value)


def with_own(reading: Reading, entries: Mapping[str, Json]) -> str:
    """The text in which entries of the client are as they were before `without_own`."""
    wanted = deepcopy(reading.tree)
    above, last = _holder(wanted, reading.root)
    if reading.shape.listed:
        others = [
            each
            for each in as_list(above.get(last)) or []
            if (as_map(each) or {}).get("name") not in entries
        ]
        above[last] = [*others, *entries.values()]
    else:
        above[last] = {**(as_map(above.get(last)) or {}), **entries}

    def make() -> str:
        if reading.place.format == "yaml":
            return _in_yaml(reading, wanted)
        put = toml_text.put if reading.place.format == "toml" else json_text.put
        text = reading.text
        for name, each in entries.items():
            text = put(text, (*reading.root, name), each)
        return text

    return _checked(reading, wanted, make, list(entries))


def changed_by_us(now: Reading, former: Reading, names: Sequence[str]) -> dict[str, Json]:
    """The former entries of these names that are now disabled or removed, and otherwise
    unchanged."""
    found: dict[str, Json] = {}
    for name in names:
        then, current = former.own(name), now.own(name)
        if then is not None and (current is None or _same(current, {**then, **now.shape.off})):
            found[name] = then
    return found


def _put(
    reading: Reading, made: Json, beside: Mapping[str, Mapping[str, Any]], wanted: Json
) -> str:
    text, path = reading.text, (*reading.root, NAME)
    match reading.place.format:
        case "toml":
            if reading.entry is not None and not _is_table(text, path):
                raise toml_text.Unwritten
            return toml_text.put(text, path, made)
        case "yaml":
            return _in_yaml(reading, wanted)
        case _:
            for key, item in beside.items():
                if not _asked(reading.tree, key, item):
                    text = json_text.put_item(text, (key,), dict(item))
            return json_text.put(text, path, made)


def _take_out(reading: Reading, asked: Sequence[tuple[str, int]], wanted: Json) -> str:
    text, path = reading.text, (*reading.root, NAME)
    match reading.place.format:
        case "toml":
            return toml_text.take_out(text, path)
        case "yaml":
            return _in_yaml(reading, wanted)
        case _:
            text = json_text.take_out(text, path)
            for key, index in asked:
                alone = len(as_list(reading.tree.get(key)) or []) == 1
                text = (
                    json_text.take_out(text, (key,))
                    if alone
                    else json_text.take_out_item(text, (key,), index)
                )
            return text


def _is_table(text: str, path: Sequence[str]) -> bool:
    try:
        return toml_text.take_out(text, path) != text
    except toml_text.Unwritten:
        return False


def _in_yaml(reading: Reading, wanted: Json) -> str:
    text = reading.text
    if not reading.tree:  # comments alone, or a text that says {}
        told = as_text(wanted, "yaml").rstrip("\n")
        kept = text if _only_comments(text) else ""
        opening = "" if not kept or kept.endswith("\n") else "\n"
        return f"{kept}{opening}{told}\n".replace("\r\n", "\n").replace(
            "\n", json_text.line_break(text)
        )
    # Lines may end in both ways: only what is new gets the one that most have.
    bare = text.replace("\r\n", "\n")
    return _spliced(text, bare, rewritten(bare, "yaml", wanted))


def _spliced(text: str, bare: str, new: str) -> str:
    """What `new` changed of `bare`, changed in `text`, which differs from it by its line ends."""
    if text == bare:
        return new
    most = min(len(bare), len(new))
    start = next((at for at in range(most) if bare[at] != new[at]), most)
    most -= start
    end = next((at for at in range(most) if bare[-1 - at] != new[-1 - at]), most)
    changed = new[start : len(new) - end].replace("\n", json_text.line_break(text))
    return text[: _raw(text, start)] + changed + text[_raw(text, len(bare) - end) :]


def _raw(text: str, at: int) -> int:
    """The place in a text of what stands at `at` once its line ends are one character each."""
    raw = 0
    for _ in range(at):
        raw += 2 if text.startswith("\r\n", raw) else 1
    return raw


def _checked(
    reading: Reading, wanted: Json, make: Callable[[], str], names: Sequence[str] = (NAME,)
) -> str:
    where = ".".join(reading.root)
    try:
        text = make()
        if _same(_tidy(reading, _tree(reading.file, text)), _tidy(reading, wanted)):
            return text
        reason = "it would not say the same any more"
    except (toml_text.Unwritten, Unchangeable, ConfigError):
        reason = f"'{where}' is written in a way that cannot be changed in place"
    raise _refusal(reading, reason, names)


def _refusal(reading: Reading, reason: str, names: Sequence[str] = (NAME,)) -> ConfigError:
    below = f"below '{'.'.join(reading.root)}' by hand"
    hint = f"change the entry '{NAME}' {below}; mcpx connect --print shows it"
    if list(names) != [NAME]:
        hint = f"disable the entries {', '.join(names)} {below}, and connect without --replace"
    return ConfigError([f"error: {reading.file}: {reason}. Nothing was changed; {hint}"])


def _tidy(reading: Reading, tree: Json) -> Json:
    """A table of TOML that holds nothing may or may not be written."""
    *above, last = reading.root
    if reading.place.format != "toml" or above or tree.get(last) != {}:
        return tree
    return {key: value for key, value in tree.items() if key != last}


# What it should say
# --------------------------------------------------------------------------------------------------


def _with(reading: Reading, made: Json, beside: Mapping[str, Mapping[str, Any]]) -> Json:
    wanted = deepcopy(reading.tree)
    holder, last = _holder(wanted, reading.root)
    if reading.shape.listed:
        items = as_list(holder.get(last)) or []
        at = next(
            (at for at, each in enumerate(items) if (as_map(each) or {}).get("name") == NAME),
            len(items),
        )
        holder[last] = [*items[:at], made, *items[at + 1 :]]
    else:
        holder[last] = {**(as_map(holder.get(last)) or {}), NAME: made}
    for key, item in beside.items():
        if not _asked(wanted, key, item):
            wanted[key] = [*(as_list(wanted.get(key)) or []), dict(item)]
    return wanted


def _holder(tree: Json, root: Sequence[str]) -> tuple[Json, str]:
    """The table that holds the entries' table or list, and its key there. Missing tables are
    made."""
    holder: Any = tree
    *above, last = root
    for key in above:
        if as_map(holder.get(key)) is None:
            holder[key] = {}
        holder = holder[key]
    return holder, last


def _asked(tree: Json, key: str, item: Mapping[str, Any]) -> bool:
    return any(
        (as_map(each) or {}).get("id") == item["id"] for each in as_list(tree.get(key)) or []
    )


def _without(reading: Reading) -> tuple[Json, list[tuple[str, int]]]:
    """And which items of lists beside it go with it."""
    wanted = deepcopy(reading.tree)
    if reading.entry is None:
        return wanted, []
    holder = _held(wanted, reading.root)
    if reading.shape.listed:
        holder[:] = [each for each in holder if (as_map(each) or {}).get("name") != NAME]
    else:
        del holder[NAME]
    asked: list[tuple[str, int]] = []
    for key, item in reading.shape.asks.items():
        items = as_list(wanted.get(key)) or []
        at = next(
            (at for at, each in enumerate(items) if (as_map(each) or {}).get("id") == item["id"]),
            None,
        )
        if at is not None:
            asked.append((key, at))
            del items[at]
            if not items:
                del wanted[key]
    return wanted, asked


def _same(one: Any, other: Any) -> bool:
    if (table := as_map(one)) is not None:
        its = as_map(other)
        return (
            its is not None
            and table.keys() == its.keys()
            and all(_same(table[key], its[key]) for key in table)
        )
    if (items := as_list(one)) is not None:
        others = as_list(other)
        return others is not None and len(items) == len(others) and all(map(_same, items, others))
    return type(one) is type(other) and repr(one) == repr(other)  # NaN is not equal to itself
