"""The gateway as an entry of a client's file, and that entry as text.

Promised: an entry says only what the client's shape has a place for; a token stands in it as the
variable that the client reads, never itself. What is written is read again as the same value. Not
done here: finding the place in a file.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpx.clients.catalogue import Client, Format, Shape, Transport
from mcpx.config.emit import Manner, pair
from mcpx.config.tree import as_map, is_list, is_map

Json = dict[str, Any]

NAME = "mcpx"
"""What the gateway is called in clients: short, since some put it before every tool's name."""
VARIABLE = "MCPX_TOKEN"
"""The variable that holds the token, where a client can read one."""
PLACEHOLDER = "PUT-YOUR-TOKEN-HERE"
"""Where it cannot."""
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Target:
    """Where the gateway is found."""

    url: str | None
    """Over HTTP; None: it is not."""
    command: Sequence[str]
    """What starts one over stdio."""
    token: bool
    """Whether one has to be shown over HTTP."""


def entry(client: Client, shape: Shape, transport: Transport, target: Target) -> Json:
    values: Json = {
        "{command}": target.command[0],
        "{args}": list(target.command[1:]),
        "{words}": list(target.command),
        "{url}": target.url,
        "{name}": NAME,
        "{headers}": _NOTHING,
        "{variable}": _NOTHING,
    }
    if target.token:
        values["{headers}"] = {"Authorization": f"Bearer {client.token or PLACEHOLDER}"}
        values["{variable}"] = VARIABLE
    template = {"http": shape.http, "stdio": shape.stdio}[transport]
    return _filled(template, values)


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A copy of a template without keys that have no value."""
    if isinstance(value, str):
        return values.get(value, value)
    table = as_map(value)
    if table is None:
        return value
    filled = {key: _filled(each, values) for key, each in table.items()}
    return {key: each for key, each in filled.items() if each is not _NOTHING} or _NOTHING


def asks(shape: Shape, transport: Transport, target: Target) -> Mapping[str, Mapping[str, Any]]:
    """Items of other lists of the file, which the entry needs."""
    if transport == "http" and target.token:
        return shape.asks
    return {}


def needs_hand(client: Client, transport: Transport, target: Target) -> bool:
    """Return True if the user has to write the token into the file."""
    return transport == "http" and target.token and not client.token


# Text


def whole(
    shape: Shape, root: Sequence[str], made: Json, beside: Mapping[str, Mapping[str, Any]]
) -> Json:
    """The values of a file with this entry only."""
    held: Any = {NAME: made}
    if shape.listed:
        held = [made]
    for key in reversed(root):
        held = {key: held}
    return {**held, **{key: [dict(item)] for key, item in beside.items()}}


def as_text(tree: Mapping[str, Any], format: Format, root: Sequence[str] = ()) -> str:
    """`root`: the keys of the entries in TOML, where the entry becomes a table."""
    if format == "yaml":
        return "".join(f"{pair(key, value, '', Manner('yaml'))}\n" for key, value in tree.items())
    if format != "toml":
        return json.dumps(tree, indent=2, ensure_ascii=False)
    held: Any = tree
    for key in root:
        held = held[key]
    return toml_table((*root, NAME), held[NAME])


def toml_table(path: Sequence[str], table: Mapping[str, Any]) -> str:
    header = ".".join(map(_toml_key, path))
    return "".join([f"[{header}]\n", *(f"{line}\n" for line in _toml_pairs(table))])


def toml_value(value: Any) -> str:
    """The value on one line. TOML reads texts, numbers, and lists of JSON, except DEL."""
    if is_map(value):
        return f"{{ {', '.join(_toml_pairs(value))} }}"
    if is_list(value):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_toml_key(key)} = {toml_value(value)}" for key, value in table.items()]


def _toml_key(key: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]+", key):
        return key
    return toml_value(key)
