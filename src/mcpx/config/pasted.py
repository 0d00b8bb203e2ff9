"""Whatever somebody pastes to add a server: a config file of any client, a command line, an
address.

Promised: native entries with what is worth a warning, or one error that says what was expected;
nothing is run, read or connected, and no reference is looked up. A pasted secret stays where it was
pasted. Not done here: OpenAPI documents and curl lines, which are another room's.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from mcpx.config.dialects import CLIENT_DIALECTS, TOP_KEYS, Reading, Translation, translate
from mcpx.config.edits import EditError
from mcpx.config.lines import EXPECTED, is_address, of_address, of_line
from mcpx.config.problems import (
    Findings,
    GaveUpError,
    Refused,
    Told,
    explain,
    explain_finding,
    tell,
)
from mcpx.config.server_names import name_of_command, name_of_url
from mcpx.config.source import MAX_BYTES, Source
from mcpx.config.tool_filters import FILTER_KEYS
from mcpx.config.tree import KeyPath, Tree, as_list, as_map, maps_in, shorten
from mcpx.model.call import Json

Kind = Literal["native", "client", "command", "url"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry with a mistake, in a text whose other entries are good."""

    name: str
    told: tuple[Told, ...]

    @property
    def reason(self) -> str:
        return "; ".join(
            f"{told.message} ({told.hint})" if told.hint else told.message for told in self.told
        )


@dataclass(frozen=True, slots=True)
class Pasted:
    """What was recognised, in the native shape."""

    kind: Kind
    dialect: str = ""
    servers: list[Json] = field(default_factory=list[Json])
    commands: list[Json] = field(default_factory=list[Json])
    auth_configs: list[Json] = field(default_factory=list[Json])
    profiles: list[Json] = field(default_factory=list[Json])
    sections: Json = field(default_factory=dict[str, Any])
    """Other top keys that were found."""
    warnings: list[str] = field(default_factory=list[str])
    references: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """See `dialects.Translation.hidden_tools`."""
    tree: Tree = field(default_factory=dict[str, Any])
    """What was read, before it was made native."""
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    hidden_tools: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """See `dialects.Translation.hidden_tools`."""


def import_text(text: str) -> Pasted:
    """Raises `EditError` for what is not recognised, `Refused` for what is and is wrong."""
    bare = _unfenced(text.strip().removeprefix("\ufeff"))
    if not bare:
        raise EditError("invalid", "nothing was pasted", hint=f"expected {EXPECTED}")
    if len(bare) > MAX_BYTES:
        raise EditError("invalid", f"more than {MAX_BYTES:,} characters")
    if is_address(bare):
        return Pasted("url", servers=[of_address(bare)])
    if re.search(r"(?m)^[ \t]*\[[\w.\"' -]+\][ \t]*$", bare) and "=" in bare:
        return _file("pasted.toml", bare)
    if bare[0] in "{[" or (bare.startswith(("//", "/*")) and "{" in bare):
        return _json(bare)
    if bare[0] == '"':  # an entry taken out of its braces: "name": {…}
        return _json("{" + bare.rstrip().rstrip(",") + "}")
    if re.search(r"(?m)^[ \t]*(?:- )?[\w.$-]+:(?:\s|$)", bare) and not _is_line(bare):
        return _yaml(bare)
    line = of_line(bare)
    if line.entry is not None:
        name, entry = line.entry
        return _of_tree({"mcpServers": {name: _parsed("pasted.json", entry)}})
    return Pasted("command", servers=[line.server], warnings=list(line.warnings))


def _unfenced(text: str) -> str:
    """Out of the fence of a README."""
    found = re.fullmatch(r"(?s)```[^\n]*\n(.*?)\n?```", text)
    text = found[1].strip() if found else text
    return re.sub(r"^\$ ", "", text)


def _is_line(text: str) -> bool:
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return len(lines) == 1 and not re.match(r"\s*(?:- )?[\w.$-]+:(?:\s|$)", lines[0])


# Files


def _json(text: str) -> Pasted:
    if text[0] == "[":
        return _of_tree(
            _wrapped({"servers": _parsed("pasted.json", f'{{"servers": {text}}}')["servers"]})
        )
    return _of_tree(_wrapped(_parsed("pasted.json", text)))


def _yaml(text: str) -> Pasted:
    if re.match(r"\s*- ", text):
        text = "servers:\n" + "\n".join(f"  {line}" for line in text.splitlines())
        tree = _parsed("pasted.yaml", text)
        return _of_tree(_wrapped(tree))
    return _of_tree(_wrapped(_parsed("pasted.yaml", text)))


def _file(name: str, text: str) -> Pasted:
    return _of_tree(_wrapped(_parsed(name, text)), name)


def _parsed(name: str, text: str) -> Tree:
    source = Source(Path(name), text)
    findings = Findings(source.trace)
    try:
        tree = source.parse(findings)
    except GaveUpError:
        tree = {}
    if findings:
        raise Refused(tell(findings), (), explain(findings))
    return tree


def _wrapped(tree: Tree) -> Tree:
    """A whole file's tree of what may be only a part of one."""
    known = {
        *TOP_KEYS,
        "mcpServers",
        "servers",
        "context_servers",
        "mcp",
        "mcp.servers",
        "projects",
    }
    known |= {"amp.mcpServers", "extensions"}
    if tree.keys() & known and not _is_entry(tree):
        listed = as_list(tree.get("servers"))
        if listed and any("connection" in entry for _, entry in maps_in(listed)):
            return {"mcp_servers": listed}
        return tree
    if _is_entry(tree):
        name = tree.get("name") or tree.get("id")
        if "connection" in tree or (
            "type" in tree and isinstance(name, str) and tree.get("type") in tree
        ):
            return {"mcp_servers" if "connection" in tree else _section_of(tree): [tree]}
        bare = {key: value for key, value in tree.items() if key not in ("name", "id")}
        return {"mcpServers": {str(name or _name_of_entry(tree)): bare}}
    if tree and all(
        as_map(entry) is not None and _is_entry(cast(Tree, entry)) for entry in tree.values()
    ):
        return {"mcpServers": tree}
    raise EditError(
        "invalid", "no server was recognised in what was pasted", hint=f"expected {EXPECTED}"
    )


def _section_of(tree: Tree) -> str:
    return (
        "commands"
        if tree.get("type") in ("http", "script") and tree.get("type") in tree
        else "auth_configs"
    )


def _is_entry(tree: Tree) -> bool:
    url = tree.get("url") or tree.get("serverUrl") or tree.get("httpUrl")
    command = tree.get("command")
    section = tree.get("type")
    of_kind = isinstance(section, str) and as_map(tree.get(section)) is not None
    reached = (
        isinstance(url, str)
        or isinstance(command, str | list)
        or as_map(tree.get("connection")) is not None
    )
    return reached or of_kind


def _name_of_entry(entry: Tree) -> str:
    command, args = entry.get("command"), as_list(entry.get("args")) or []
    if isinstance(command, list):
        command, *args = cast("list[Any]", command) or [""]
    if isinstance(command, str):
        return name_of_command([command, *map(str, args)])
    return name_of_url(
        str(entry.get("url") or entry.get("serverUrl") or entry.get("httpUrl") or "")
    )


def _of_tree(tree: Tree, name: str = "pasted.json") -> Pasted:
    result, findings = _translated(tree, name)
    left_out: list[LeftOut] = []
    if findings and (bad := _bad_entries(findings)):
        rest = _without(tree, bad)
        without_bad, remaining = _translated(rest, name)
        if not remaining and any(without_bad.tree.get(key) for key in _LISTS):
            left_out = [LeftOut(_name_at(tree, path), tuple(told)) for path, told in bad.items()]
            tree, result, findings = rest, without_bad, remaining
    if findings:
        raise Refused(tell(findings), (), explain(findings))
    native, warnings = result.tree, list(result.warnings)
    passed_over = [key for key in dict.fromkeys(result.passed_over) if key not in FILTER_KEYS]
    if passed_over:
        names = ", ".join(passed_over)
        warnings.append(f"keys mcpx does not know are passed over: {shorten(names, 200)}")
    for new, own in result.renamed.items():
        warnings.append(f"server {own!r} is called {new!r} here: its own name is reserved")
    lists = {key: [entry for _, entry in maps_in(native.get(key))] for key in _LISTS}
    for server in lists["mcp_servers"]:
        if "default_timeout" in server:
            server.setdefault("timeout", server.pop("default_timeout"))
    if not any(lists.values()) and not native.keys() - _LISTS:
        raise EditError(
            "invalid", "no server was recognised in what was pasted", hint=f"expected {EXPECTED}"
        )
    kind: Kind = "client" if result.dialect in CLIENT_DIALECTS else "native"
    others = {key: value for key, value in native.items() if key not in _LISTS and key in TOP_KEYS}
    servers, commands, auths, profiles = (lists[key] for key in _ORDER)
    return Pasted(
        kind,
        result.dialect,
        servers,
        commands,
        auths,
        profiles,
        others,
        warnings,
        result.references,
        tree,
        left_out,
        result.hidden_tools,
    )


def _translated(tree: Tree, name: str) -> tuple[Translation, Findings]:
    source = Source(Path(name), "")
    findings = Findings(source.trace)
    try:
        return translate(tree, source, Reading(findings, _as_it_is)), findings
    except GaveUpError:
        return Translation("native", {}, cast(Any, None)), findings


_CONTAINERS = (
    *("mcp_servers", "commands", "auth_configs"),
    *("mcpServers", "servers", "context_servers", "extensions", "amp.mcpServers", "mcp.servers"),
)
"""Keys whose values are entries, by name or in a list."""


def _bad_entries(findings: Findings) -> dict[KeyPath, list[Told]]:
    """The findings by the path of their entry; empty if a finding is outside of the entries."""
    bad: dict[KeyPath, list[Told]] = {}
    for finding in findings:
        path = _entry_path(finding.path)
        if path is None:
            return {}
        bad.setdefault(path, []).append(explain_finding(finding))
    return bad


def _entry_path(path: KeyPath) -> KeyPath | None:
    opencode = 0 if path[:1] == ("mcp",) else None
    depth = next((index for index, step in enumerate(path) if step in _CONTAINERS), opencode)
    return path[: depth + 2] if depth is not None and len(path) > depth + 1 else None


def _name_at(tree: Any, path: KeyPath) -> str:
    """The name of the entry at a path, in a table or in a list."""
    for step in path:
        tree = tree[step]
    entry = as_map(tree) or {}
    last = path[-1]
    default = f"entry {last + 1}" if isinstance(last, int) else last
    return str(entry.get("name") or entry.get("id") or default)


def _without(tree: Any, paths: Collection[KeyPath]) -> Any:
    """A copy of a tree without the values at some paths."""
    below: dict[str | int, list[KeyPath]] = {}
    for first, *rest in paths:
        below.setdefault(first, []).append(tuple(rest))
    kept = {step: inner for step, inner in below.items() if () not in inner}
    gone = below.keys() - kept.keys()
    if (table := as_map(tree)) is not None:
        return {
            key: _without(value, kept.get(key, ()))
            for key, value in table.items()
            if key not in gone
        }
    if (items := as_list(tree)) is not None:
        return [
            _without(value, kept.get(index, ()))
            for index, value in enumerate(items)
            if index not in gone
        ]
    return tree


_ORDER = ("mcp_servers", "commands", "auth_configs", "profiles")
_LISTS = frozenset(_ORDER)


def _as_it_is(value: Any) -> Any:
    return value
