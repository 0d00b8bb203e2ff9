"""Whatever somebody pastes to add a server: a config file of any client, a command line, an address.

Promised: native entries with what is worth a warning, or one error that says what was expected; nothing is run, read
or connected, and no reference is looked up. A pasted secret stays where it was pasted. Not done here: OpenAPI
documents and curl lines, which are another room's.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from mcpx.config.dialects import CLIENT_DIALECTS, TOP_KEYS, Reading, Translation, translate
from mcpx.config.edits import EditError
from mcpx.config.lines import EXPECTED, is_address, of_address, of_line
from mcpx.config.problems import Findings, GaveUpError, Refused, explain, tell
from mcpx.config.server_names import name_of_command, name_of_url
from mcpx.config.source import MAX_BYTES, Source
from mcpx.config.tree import Tree, as_list, as_map, maps_in, shorten
from mcpx.model.call import Json

Kind = Literal["native", "client", "command", "url"]


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
    """As `dialects.Translation` has them."""
    tree: Tree = field(default_factory=dict[str, Any])
    """What was read, before it was made native."""


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
        return _of_tree(_wrapped({"servers": _parsed("pasted.json", f'{{"servers": {text}}}')["servers"]}))
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
    known = {*TOP_KEYS, "mcpServers", "servers", "context_servers", "mcp", "mcp.servers", "projects"}
    known |= {"amp.mcpServers", "extensions"}
    if tree.keys() & known and not _is_entry(tree):
        listed = as_list(tree.get("servers"))
        if listed and any("connection" in entry for _, entry in maps_in(listed)):
            return {"mcp_servers": listed}
        return tree
    if _is_entry(tree):
        name = tree.get("name") or tree.get("id")
        if "connection" in tree or ("type" in tree and isinstance(name, str) and tree.get("type") in tree):
            return {"mcp_servers" if "connection" in tree else _section_of(tree): [tree]}
        bare = {key: value for key, value in tree.items() if key not in ("name", "id")}
        return {"mcpServers": {str(name or _name_of_entry(tree)): bare}}
    if tree and all(as_map(entry) is not None and _is_entry(cast(Tree, entry)) for entry in tree.values()):
        return {"mcpServers": tree}
    raise EditError("invalid", "no server was recognised in what was pasted", hint=f"expected {EXPECTED}")


def _section_of(tree: Tree) -> str:
    return "commands" if tree.get("type") in ("http", "script") and tree.get("type") in tree else "auth_configs"


def _is_entry(tree: Tree) -> bool:
    url = tree.get("url") or tree.get("serverUrl") or tree.get("httpUrl")
    command = tree.get("command")
    section = tree.get("type")
    of_kind = isinstance(section, str) and as_map(tree.get(section)) is not None
    reached = isinstance(url, str) or isinstance(command, str | list) or as_map(tree.get("connection")) is not None
    return reached or of_kind


def _name_of_entry(entry: Tree) -> str:
    command, args = entry.get("command"), as_list(entry.get("args")) or []
    if isinstance(command, list):
        command, *args = cast("list[Any]", command) or [""]
    if isinstance(command, str):
        return name_of_command([command, *map(str, args)])
    return name_of_url(str(entry.get("url") or entry.get("serverUrl") or entry.get("httpUrl") or ""))


def _of_tree(tree: Tree, name: str = "pasted.json") -> Pasted:
    source = Source(Path(name), "")
    findings = Findings(source.trace)
    try:
        result = translate(tree, source, Reading(findings, _as_it_is))
    except GaveUpError:
        result = Translation("native", {}, cast(Any, None))
    if findings:
        raise Refused(tell(findings), (), explain(findings))
    native, warnings = result.tree, list(result.warnings)
    if result.passed_over:
        names = ", ".join(dict.fromkeys(result.passed_over))
        warnings.append(f"keys mcpx does not know are passed over: {shorten(names, 200)}")
    for new, own in result.renamed.items():
        warnings.append(f"server {own!r} is called {new!r} here: its own name is reserved")
    lists = {key: [entry for _, entry in maps_in(native.get(key))] for key in _LISTS}
    for server in lists["mcp_servers"]:
        if "default_timeout" in server:
            server.setdefault("timeout", server.pop("default_timeout"))
    if not any(lists.values()) and not native.keys() - _LISTS:
        raise EditError("invalid", "no server was recognised in what was pasted", hint=f"expected {EXPECTED}")
    kind: Kind = "client" if result.dialect in CLIENT_DIALECTS else "native"
    others = {key: value for key, value in native.items() if key not in _LISTS and key in TOP_KEYS}
    servers, commands, auths, profiles = (lists[key] for key in _ORDER)
    return Pasted(kind, result.dialect, servers, commands, auths, profiles, others, warnings, result.references, tree)


_ORDER = ("mcp_servers", "commands", "auth_configs", "profiles")
_LISTS = frozenset(_ORDER)


def _as_it_is(value: Any) -> Any:
    return value
