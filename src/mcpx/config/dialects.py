"""Other shapes of configuration, turned into the native one.

Promised: each shape keeps the default mode and the naming of its own document; every part of the
native tree knows where it stood in the user's file. In a client's file keys that are not ours are
passed over and named; in the shapes of our own documents they are mistakes. References stay
unexpanded, so that what an overlay replaces is never looked up. Not done here: judging the native
tree.

To add a dialect: its line in `detect`, one function here with its row in `_DIALECTS` (for one more
client only where its servers stand, and in `entries` what it calls things), and a golden file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcpx.config.entries import Entries
from mcpx.config.problems import Findings, Origins
from mcpx.config.schema import Config, Dialect, Global, Mode
from mcpx.config.source import Source
from mcpx.config.tree import KeyPath, Tree, as_list, as_map, is_extra, maps_in, shorten
from mcpx.config.validate import keys_of
from mcpx.transports import TRANSPORTS

TOP_KEYS = frozenset(keys_of(Config))
CLIENT_DIALECTS: tuple[Dialect, ...] = (
    "mcpServers",
    "gemini",
    "vscode",
    "codex",
    "opencode",
    "zed",
    "goose",
)

_GLOBAL_KEYS = frozenset(keys_of(Global))


@dataclass(slots=True)
class Translation:
    dialect: Dialect
    tree: Tree
    """The native shape."""
    origins: Origins
    mode: Mode = "direct"
    """Default mode of this shape."""
    naming: Mapping[str, str] = field(default_factory=dict[str, str])
    """Default naming of this shape."""
    passed_over: list[str] = field(default_factory=list[str])
    """Keys of another program."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Servers that could not keep their name: the one they got, and their own."""
    warnings: list[str] = field(default_factory=list[str])
    """What else did not come over as it stands."""
    references: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Variables that another program writes otherwise: as it has them, and as they are written
    here."""
    hidden_tools: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Patterns of the tools that the client hides, by the name of the server."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one file is read."""

    findings: Findings
    peek: Callable[[Any], Any]
    """What a value will be once its references are replaced."""
    over: Dialect | None = None
    """The shape an overlay lies over; its entries need not be whole."""


def detect(tree: Tree, source: Source, over: Dialect | None = None) -> Dialect:
    if _is_gemini(tree, source):
        return "gemini"
    if "mcpServers" in tree or _projects(tree):
        return "mcpServers"
    listed = tree.get("mcp_servers")
    if source.is_toml and as_map(listed) is not None:
        return "codex"
    if "mcp_servers" not in tree and (section := _client_section(tree)) is not None:
        return section[0]
    if "servers" in tree and "mcp_servers" not in tree:
        return "proxy"
    entries = maps_in(listed)
    is_spread = not any("connection" in entry for _, entry in entries)
    if is_spread and (over == "flat" or (over is None and entries)):
        return "flat"
    return "native"


def _client_section(tree: Tree) -> tuple[Dialect, KeyPath] | None:
    """Where the servers stand in a client's file that does not call them `mcpServers`."""
    below = as_map(tree.get("mcp")) or {}
    if as_map(tree.get("servers")) is not None:
        return "vscode", ("servers",)
    if "context_servers" in tree:
        return "zed", ("context_servers",)
    if "mcp.servers" in tree:
        return "vscode", ("mcp.servers",)
    if "amp.mcpServers" in tree:
        return "mcpServers", ("amp.mcpServers",)
    if any(_GOOSE & entry.keys() for _, entry in _entries(tree.get("extensions"))):
        return "goose", ("extensions",)
    servers = as_map(below.get("servers")) or {}
    if (
        servers and not {"type", "command", "url"} & servers.keys()
    ):  # else it is a server of that name
        kinds = {(as_map(entry) or {}).get("type") for entry in servers.values()}
        if kinds & {"local", "remote"}:
            return "opencode", ("mcp", "servers")
        return "vscode", ("mcp", "servers")
    if below:
        return "opencode", ("mcp",)
    return None


_GOOSE = frozenset({"cmd", "uri", "envs", "env_keys", "bundled"})
"""Keys by which Goose's extensions are told from those of any other program."""


def _entries(value: Any) -> list[tuple[str, Tree]]:
    found = {name: as_map(entry) for name, entry in (as_map(value) or {}).items()}
    return [(name, entry) for name, entry in found.items() if entry is not None]


def _is_gemini(tree: Tree, source: Source) -> bool:
    """To Gemini CLI `url` is an SSE server and `$VAR` a variable: it is known by its file, or by a
    word of its own."""
    file = source.path
    if "mcpServers" not in tree and not _projects(tree):
        return False
    if file.name == "settings.json" and file.parent.name == ".gemini":
        return True
    return any("httpUrl" in entry for _, entry in _entries(tree.get("mcpServers")))


def translate(tree: Tree, source: Source, reading: Reading) -> Translation:
    rivals = [key for key in ("mcp_servers", "mcpServers", "servers") if key in tree]
    for extra in rivals[1:]:
        hint = "keep one of them"
        reading.findings.add(
            f"'{rivals[0]}' and '{extra}' in one file", (extra,), hint=hint, at="key"
        )
    dialect = detect(tree, source, reading.over)
    result = Translation(dialect, {}, Origins(source))
    _DIALECTS[dialect](tree, result, reading)
    return result


def _native(tree: Tree, result: Translation, reading: Reading) -> None:
    result.tree = tree


def _flat(tree: Tree, result: Translation, reading: Reading) -> None:
    """S0 and S1: connections spread over their servers, and the words of `global` at the top."""
    result.mode = "describe"
    findings = reading.findings
    words: Tree = {}
    for key, value in tree.items():
        if key in TOP_KEYS or is_extra(key):
            result.tree[key] = value
            continue
        meant: str | None = key
        if key not in _GLOBAL_KEYS:
            meant = findings.unknown_key(key, (), TOP_KEYS | _GLOBAL_KEYS)
        if meant in _GLOBAL_KEYS:
            words[meant] = value
            result.origins["global", meant] = (key,)
    section = as_map(tree.get("global") or {})
    if words and section is not None:
        for key in words.keys() & section.keys():
            findings.add(
                f"'{key}' stands here and under 'global'", (key,), hint="keep one of them", at="key"
            )
        result.tree["global"] = {**words, **section}
    _put_servers(result, reading, ("mcp_servers",), tree.get("mcp_servers"))


def _proxy(tree: Tree, result: Translation, reading: Reading) -> None:
    """S3: `servers: [{id, command: […], env, timeout | timeouts {init, call}}]`."""
    result.naming = {"separator": "::", "prefix": "always"}
    result.tree = {key: value for key, value in tree.items() if key != "servers"}
    _put_servers(result, reading, ("servers",), tree["servers"])


def _client(tree: Tree, result: Translation, reading: Reading) -> None:
    """Servers by name, in a file of their own (Claude, Cursor, VS Code and their kin), where our
    own keys may stand beside them, or among all the settings of such a program, where no key but
    theirs is ours."""
    result.mode, result.naming = "auto", {"prefix": "always"}
    section: KeyPath = ("mcpServers",)
    if result.dialect == "codex":
        section = ("mcp_servers",)
    elif "mcpServers" not in tree and not _projects(tree):
        section = (_client_section(tree) or ("", ("servers",)))[1]
    if section in (("mcpServers",), ("servers",)):
        result.tree = {key: value for key, value in tree.items() if key in TOP_KEYS}
    projects = _projects(tree)
    known = {*result.tree, section[0], "inputs"}
    value: Any = tree
    for step in section:
        value = (as_map(value) or {}).get(str(step))
    if projects:
        known.add("projects")
        value = value or {}
    result.passed_over += [key for key in tree if key not in known and not is_extra(key)]
    if result.dialect == "gemini":
        value = _as_gemini_allows(value, tree)
    _put_servers(result, reading, section, value, _of_project(projects, result))


def _as_gemini_allows(servers: Any, tree: Tree) -> Any:
    """Gemini CLI says beside its servers which of them it uses."""
    rules = as_map(tree.get("mcp")) or {}
    allowed, excluded = as_list(rules.get("allowed")), as_list(rules.get("excluded")) or []
    for name, entry in _entries(servers):
        if name in excluded or (allowed and name not in allowed):
            servers = {**servers, name: {**entry, "enabled": False}}
    return servers


def _projects(tree: Tree) -> dict[str, Tree]:
    """The servers `~/.claude.json` keeps by project; nothing for any other file."""
    projects = as_map(tree.get("projects")) or {}
    sections = {path: as_map(project) or {} for path, project in projects.items()}
    found = {path: as_map(section.get("mcpServers")) for path, section in sections.items()}
    return {path: servers for path, servers in found.items() if servers is not None}


def _of_project(projects: dict[str, Tree], result: Translation) -> dict[KeyPath, Tree]:
    """The servers of the project that holds the working folder: as Claude Code, they win over those
    of the user."""
    here = [str(folder) for folder in (Path.cwd(), *Path.cwd().parents)]
    mine = next((path for path in here if path in projects), None)
    others = sum(bool(servers) for path, servers in projects.items() if path != mine)
    plural = "s" * (others != 1)
    if mine and projects[mine]:
        left = f"; those of {others} other{plural} are left out" * bool(others)
        what = f"the servers of project {mine} are taken, it holds the working folder"
        result.warnings.append(f"{what}{left}")
    elif others:
        left = f"the servers of {others} project{plural} are left out"
        result.warnings.append(f"{left}: none of them holds the working folder")
    if mine is None:
        return {}
    return {("projects", mine, "mcpServers"): projects[mine]}


_DIALECTS: dict[Dialect, Callable[[Tree, Translation, Reading], None]] = {
    "native": _native,
    "flat": _flat,
    "proxy": _proxy,
    **dict.fromkeys(CLIENT_DIALECTS, _client),
}


def _put_servers(
    result: Translation,
    reading: Reading,
    section: KeyPath,
    value: Any,
    more: Mapping[KeyPath, Tree] | None = None,
) -> None:
    """`more`: servers by name that stand elsewhere in the file and win."""
    entries = Entries(
        result.dialect,
        result.origins,
        reading.findings,
        reading.peek,
        reading.over is None,
    )
    servers = entries.translate(section, value, more or {})
    if servers is not None:
        result.tree["mcp_servers"] = servers
    result.passed_over += entries.passed_over
    result.renamed = entries.renamed
    result.warnings += entries.warnings
    result.references += entries.references
    result.hidden_tools = entries.hidden_tools


# Several files

_CONCATENATED = ("mcp_servers", "commands", "auth_configs", "profiles")


def join(parts: Sequence[Translation], findings: Findings) -> Translation:
    """The files of one layer. Their shape is the one all servers are written in, native when there
    are several."""
    if len(parts) == 1:
        return parts[0]
    first, *rest = parts
    whole = Translation("native", first.tree, Origins(first.origins))
    shapes = [part for part in parts if part.tree.get("mcp_servers") is not None]
    if len({shape.dialect for shape in shapes}) == 1:
        whole = replace(shapes[0], tree=first.tree, origins=Origins(first.origins))
    for part in rest:
        _Merge(whole, part, findings).table(whole.tree, part.tree, (), ())
    return whole


def lay(over: Translation, base: Translation) -> Translation:
    """The overlay over the base, whose shape stays."""
    whole = replace(base, origins=Origins(base.origins))
    _Merge(whole, over).table(whole.tree, over.tree, (), ())
    return whole


class _Merge:
    """One tree put into another, in place. `findings`: within a layer, where neither may win."""

    def __init__(
        self, whole: Translation, part: Translation, findings: Findings | None = None
    ) -> None:
        self._origins = whole.origins
        self._part = part.origins
        self._findings = findings.through(part.origins.trace) if findings is not None else None

    def table(self, into: Tree, table: Tree, at: KeyPath, there: KeyPath) -> None:
        if self._findings is None:
            _make_room(into, table, at)
        for key, value in table.items():
            known = into.get(key)
            if value is None or (known is not None and is_extra(key)):
                continue
            here, from_ = (*at, key), (*there, key)
            if (inner := as_map(known)) is not None and (entries := as_map(value)) is not None:
                self.table(inner, entries, here, from_)
            elif (
                (items := as_list(known)) is not None
                and (more := as_list(value)) is not None
                and self._grows(items, more, here)
            ):
                self._list(items, more, here, from_)
            elif known is None or self._findings is None:
                into[key] = value
                self._origins.adopt(here, self._part, from_)
            elif known != value:
                rival = self._origins.trace(here)
                message = f"{shorten(key)!r} is said twice, and differently"
                self._findings.add(message, from_, hint="keep one of them", rival=rival)

    def _grows(self, items: list[Any], more: list[Any], at: KeyPath) -> bool:
        """Whether a list takes up the entries of another, instead of giving way to it."""
        if self._findings is not None:
            return len(at) == 1 and at[0] in _CONCATENATED
        return any(map(_name, items)) and all(as_map(item) is not None for item in more)

    def _list(self, items: list[Any], more: list[Any], at: KeyPath, there: KeyPath) -> None:
        positions = (
            {_name(item): index for index, item in enumerate(items)}
            if self._findings is None
            else {}
        )
        for position, item in enumerate(more):
            from_ = (*there, position)
            # A second one of the same name is appended, for `checks` to tell.
            index = positions.pop(name, None) if (name := _name(item)) else None
            if index is None:
                self._origins.adopt((*at, len(items)), self._part, from_)
                items.append(item)
            else:
                self.table(items[index], item, (*at, index), from_)


def _name(item: Any) -> str | None:
    name = (as_map(item) or {}).get("name")
    return name if isinstance(name, str) else None


def _make_room(into: Tree, table: Tree, at: KeyPath) -> None:
    """What only the former `type` knows goes with it."""
    former, new = str(into.get("type")).lower(), str(table.get("type")).lower()
    if table.get("type") is None or former == new:
        return
    match at:
        case ("mcp_servers", _, "connection") if new in TRANSPORTS:
            gone = into.keys() - {"type", *keys_of(TRANSPORTS[new])}
        case ("commands" | "auth_configs", _):
            gone = into.keys() & {former}
        case _:
            return
    for key in gone:
        del into[key]
