"""What the admin API tells of servers, commands, auth configs and profiles: the configuration as it
is written put together with what runs. Nothing here changes anything."""

from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, moment
from mcpx.admin.shapes.common import Place
from mcpx.config.emit import Manner, item_of
from mcpx.config.problems import nearest
from mcpx.config.written import Entry, EntrySection, Written
from mcpx.formats.tokens import estimate
from mcpx.model.call import Json
from mcpx.wire import codec

NOUNS: dict[EntrySection, str] = {
    "mcp_servers": "server",
    "commands": "command",
    "auth_configs": "auth config",
    "profiles": "profile",
}

NOT_TAKEN_UP = "stands in the file, but is not taken up: reload the configuration"


def place_of(entry: Entry | None) -> Place | None:
    return None if entry is None else Place(file=str(entry.file), line=entry.line)


def entry_of(written: Written, section: EntrySection, name: str, *also: str) -> Entry:
    """`also`: names there are that the files do not have. Raises a 404 that says what may have been
    meant."""
    found = written.entry(section, name)
    if found is None:
        names = [*(entry.name for entry in written.entries(section)), *also]
        raise unknown(section, name, names)
    return found


def unknown(section: EntrySection, name: str, names: list[str]) -> ApiError:
    meant = nearest(name, names)
    noun = NOUNS[section]
    few = f"there is {', '.join(names[:10])}" if names else f"there is no {noun} yet"
    hint = f"did you mean {meant!r}?" if meant else few
    return ApiError(404, "not_found", f"there is no {noun} named {name[:100]!r}", "name", hint)


def yaml_of(entry: Json) -> str:
    """As it would stand in a file, below the key of its section."""
    return f"{item_of(entry, '', Manner('yaml'))}\n"


def cost(definition: Json) -> int:
    """Tokens of a tool's definition, about."""
    try:
        return estimate(codec.dump(definition).decode())
    except codec.Unencodable:
        return 0


def figures_of(desk: Desk, server: str, tool: str | None = None) -> Json:
    """How calls of it went, as rows have it."""
    counted = desk.statistics
    if counted is None:
        return {}
    found = counted.server(server) if tool is None else counted.tool(server, tool)
    if found is None:
        return {}
    return {
        "calls_per_minute": found.calls_per_minute,
        "calls": found.calls,
        "errors": found.errors,
        "p50_ms": found.p50_ms,
        "p95_ms": found.p95_ms,
        "last_call": moment(found.last_call or None),
    }
