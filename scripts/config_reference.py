"""Writes docs/configuration.md: every key of the configuration, its type, default and meaning, from
the schema itself.

uv run python scripts/config_reference.py          # write
uv run python scripts/config_reference.py --check  # exit 1 when the page is out of date
"""

import dataclasses
import sys
import typing
from pathlib import Path
from typing import Any

from mcpx.auth import AUTHS
from mcpx.catalog import naming
from mcpx.commands import COMMANDS
from mcpx.commands.parameters import Parameter
from mcpx.config import schema, sections
from mcpx.config.json_schema import docs_of
from mcpx.model.family import Family
from mcpx.model.kinds import Inside, OfType
from mcpx.surfaces import settings
from mcpx.transports import TRANSPORTS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"

INTRO = """\
# Configuration

*Generated from the schema by `scripts/config_reference.py`.*

One file, YAML or JSON (comments and trailing commas are fine). `mcpx check FILE` reports every mistake at once with
`file:line:column`, and warns of programs that are not found. A commented example is
[examples/mcpx.yaml](../examples/mcpx.yaml).

**Variables.** `${VAR}`, `${VAR:-default}`, `${env:VAR}` and `${file:path}` in any value; `$$` is a literal `$`. A
`.env` file beside the config is read, the process environment wins over it. What cannot be had (an unset variable
without a default, a file that is not there) is never passed on as it stands: it switches off the server or command it
stands in, with a warning that names variable and place, and the rest runs. `mcpx check`, `mcpx doctor`, and the admin
API (for a draft) report the same warning. With `--strict` (`mcpx`, `mcpx check`) or `MCPX_STRICT=true`, it is an
error. Elsewhere, and in a name, it is always one. The variables of a disabled server or command are not looked up.

**Several files.** A folder in the place of a file: its `*.yaml`, `*.yml` and `*.json` files are one configuration, in
the order of their names; hidden files are left out. Lists of servers, commands, auth configs and profiles are joined,
mappings are merged; a name or a key that two files give differently is an error that names both places.

**Overlays.** With `--env prod` (or `MCPX_ENV=prod`) the file `mcpx.prod.yaml` lies over `mcpx.yaml`; in a folder, all
files named `*.prod.yaml` lie over the rest. What an overlay says wins: mappings are merged deeply, entries with a
`name` by that name, new names are appended, all other lists and values are replaced, and a key without value changes
nothing. `enabled: false` switches a server of the base off. An environment without any overlay is an error.

**Other shapes** load as they are: a flat `mcp_servers` list with `command` or `url` at the top of each entry,
`servers: [{id, command: [...]}]`, and the files of client programs ([examples](../examples/clients)): the `mcpServers`
map of Claude, Cursor, Copilot and others, VS Code's `mcp.json` and `settings.json`, Codex's `config.toml`, opencode's
`mcp`, Zed's `context_servers`, and `~/.claude.json`, of which the user's servers are taken and those of the project
that holds the working folder. In a client's file
- keys that are not ours are passed over with one warning, while in the native shape below they are errors;
- `${workspaceFolder}` is the folder of the file, or the one above `.vscode`, `.cursor` and their like;
- `envFile` is read, `env` wins over it, and where the file is not there the server is switched off;
- so is one that needs VS Code's `${input:…}`, until that says `${VAR}` or `${file:path}`;
- lists of allowed tools, OAuth settings and servers that come with an extension are not taken over.

`$schema` and keys that begin with `x-` are always allowed.

**Names.** The server names `mcpx` and `commands` are reserved: an error, in a client's file the entry gets another name
(`mcpx-2`) and a warning.

**Itself.** An entry that is this gateway is left out with a warning: one that runs mcpx on the same file, or, over
HTTP, one whose URL is where it listens.

**Paths** (`cwd`, script paths, `log_file`) are relative to the config's folder; in a client's file `cwd` and `envFile`
are relative to `${workspaceFolder}`.

A key of `global` marked ◦ may also stand at a server and then counts for that server.
"""

SECTIONS: list[tuple[str, str, type]] = [
    ("top", "Top level", schema.Config),
    ("naming", "`naming`", naming.Naming),
    ("server", "`server`", sections.FrontServer),
    ("server.auth", "`server.auth`", sections.FrontAuth),
    ("server.auth.tokens[]", "`server.auth.tokens[]`", sections.Token),
    ("server.tls", "`server.tls`", sections.Tls),
    ("server.admin", "`server.admin`", sections.Admin),
    ("server.limits", "`server.limits`", sections.FrontLimits),
    ("mcp_servers[]", "`mcp_servers[]`", schema.Server),
    ("limits", "`mcp_servers[].limits`, `profiles[].limits`", sections.Limits),
    *(
        (f"connection {name}", f"`mcp_servers[].connection` with `type: {name}`", part)
        for name, part in TRANSPORTS.items()
    ),
    ("global", "`global`", schema.Global),
    ("global.tool_proxy", "`global.tool_proxy`", schema.ToolProxy),
    ("global.audit", "`global.audit`", sections.Audit),
    ("global.traces", "`global.traces`", sections.Traces),
    ("global.auto_rules[]", "`global.auto_rules[]`", settings.AutoRule),
    ("commands[]", "`commands[]`", sections.Command),
    ("commands[].parameters[]", "`commands[].parameters[]`", Parameter),
    *((f"commands {name}", f"`commands[].{name}`", part) for name, part in COMMANDS.items()),
    ("auth_configs[]", "`auth_configs[]`", sections.AuthConfig),
    *((f"auth {name}", f"`auth_configs[].{name}`", part) for name, part in AUTHS.items()),
    ("profiles[]", "`profiles[]`", schema.Profile),
    ("policy", "`policy`", sections.Policy),
    ("policy.rules[]", "`policy.rules[]`", sections.PolicyRule),
]

SHOWN_AS = {"global_": "global"}


def type_of(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        if inside := [mark for mark in arguments[1:] if isinstance(mark, Inside)]:
            return f"text or `{{{inside[0].key}: …}}`"
        families = [mark for mark in arguments[1:] if isinstance(mark, Family)]
        return ", ".join(f"`{name}`" for name in families[0]) if families else type_of(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {type_of(arguments[0])}"
    if origin is not None and "Mapping" in str(origin):
        return "map"
    if arguments:
        return " or ".join(type_of(part) for part in arguments if part is not type(None))
    if dataclasses.is_dataclass(hint):
        return "section"
    return {str: "text", int: "number", float: "seconds", bool: "true/false"}.get(hint, "any")


def default_of(field: "dataclasses.Field[Any]") -> str:
    if field.default is dataclasses.MISSING:
        return "" if field.default_factory is not dataclasses.MISSING else "**required**"
    value = field.default
    if value is None or value == () or value == "" or dataclasses.is_dataclass(value):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value:}`"


def rows(part: type) -> list[str]:
    hints, docs = typing.get_type_hints(part, include_extras=True), docs_of(part)
    shared = {field.name for field in dataclasses.fields(schema.PerServer)}
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    if part in TRANSPORTS.values():
        lines.append("| `type` | text | **required** | How the server is reached. |")
    for field in dataclasses.fields(part):
        if not field.metadata.get("in_file", True):
            continue
        if part is schema.Server and field.name in shared:
            continue
        parts = [
            mark for mark in typing.get_args(hints[field.name])[1:] if isinstance(mark, OfType)
        ]
        if parts:
            names = ", ".join(f"`{name}`" for name in parts[0].classes)
            lines.append(f"| `type` | {names} | **required** | {docs.get(field.name, '')} |")
            continue
        name = SHOWN_AS.get(field.name, field.name)
        mark = " ◦" if part is schema.Global and field.name in shared else ""
        kind = "section" if name == "connection" else type_of(hints[field.name])
        meaning = docs.get(field.name, "")
        lines.append(f"| `{name}`{mark} | {kind} | {default_of(field)} | {meaning} |")
    return lines


def page() -> str:
    parts = [INTRO]
    for _, title, part in SECTIONS:
        parts.append(f"## {title}\n\n" + "\n".join(rows(part)) + "\n")
    return "\n".join(parts)


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
