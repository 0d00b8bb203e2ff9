"""The gateway as an entry of a client's file, and that entry as text.

Promised: an entry says only what the client's shape has a place for; a token stands in it as the
variable that the client reads, never itself. What is written is read again as the same value. Not
done here: finding the place in a file.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpx.clients.catalogue import Client, Format, Shape, Transport
from mcpx.config.emit import Manner, pair
from mcpx.config.tree import as_list, as_map

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
    header = {"Authorization": f"Bearer {client.token or PLACEHOLDER}"}
    values: Json = {
        "{command}": target.command[0],
        "{args}": list(target.command[1:]),
        "{words}": list(target.command),
        "{url}": target.url,
        "{name}": NAME,
        "{headers}": header if target.token else _NOTHING,
        "{variable}": VARIABLE if target.token else _NOTHING,
    }
    filled: Json = _filled(shape.http if transport == "http" else shape.stdio, values)
    return filled


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return values.get(value, value)
    if (table := as_map(value)) is None:
        return value
    filled = {key: _filled(each, values) for key, each in table.items()}
    told = {key: each for key, each in filled.items() if each is not _NOTHING}
    return told or _NOTHING


def asks(shape: Shape, transport: Transport, target: Target) -> Mapping[str, Mapping[str, Any]]:
    """What has to stand in lists beside the entries."""
    return shape.asks if transport == "http" and target.token else {}


def needs_hand(client: Client, transport: Transport, target: Target) -> bool:
    """Whether a token would have to be written into the file itself."""
    return transport == "http" and target.token and not client.token


# As text
# --------------------------------------------------------------------------------------------------


def whole(
    shape: Shape, root: Sequence[str], made: Json, beside: Mapping[str, Mapping[str, Any]]
) -> Json:
    """A file that holds nothing else."""
    held: Any = [made] if shape.listed else {NAME: made}
    for key in reversed(root):
        held = {key: held}
    return {**held, **{key: [dict(item)] for key, item in beside.items()}}


def as_text(tree: Mapping[str, Any], format: Format, root: Sequence[str] = ()) -> str:
    """`root`: of TOML, below which the entry is a table of its own."""
    if format == "yaml":
        return "".join(f"{pair(key, value, '', Manner('yaml'))}\n" for key, value in tree.items())
    if format != "toml":
        return json.dumps(tree, indent=2, ensure_ascii=False)
    held: Any = tree
    for key in root:
        held = held[key]
    return toml_table((*root, NAME), held[NAME])


def toml_table(path: Sequence[str], table: Mapping[str, Any]) -> str:
    lines = [f"{_toml_key(key)} = {toml_value(value)}\n" for key, value in table.items()]
    return "".join((f"[{'.'.join(map(_toml_key, path))}]\n", *lines))


def toml_value(value: Any) -> str:
    """On one line: what JSON writes of texts, numbers and lists is TOML too, all but one
    character."""
    if (table := as_map(value)) is not None:
        return f"{{ {', '.join(f'{_toml_key(key)} = {toml_value(each)}' for key, each in table.items())} }}"
    if (items := as_list(value)) is not None:
        return f"[{', '.join(map(toml_value, items))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return (
        key
        if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum()
        else toml_value(key)
    )
