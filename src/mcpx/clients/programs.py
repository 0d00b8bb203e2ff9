"""The table of client programs: files, keys and commands, as read in November 2026. They move: look again now and then.

Each says what to paste for a gateway over HTTP, over stdio, or both; where a token has to be shown, it stands in the
form in which the program reads variables, so that the secret itself is in no file. Programs that cannot read variables
there get a placeholder.
"""

import json
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from mcpx.clients.program import (
    NAME,
    PLACEHOLDER,
    TOKEN,
    Json,
    Known,
    Made,
    Place,
    Program,
    Snippet,
    as_json,
    compact,
    here,
    in_base64,
    made_for,
    shell,
    toml,
)

ENV = f"${{env:{TOKEN}}}"
SHELL = f"${{{TOKEN}}}"
SET = f"Set {TOKEN} where the program is started: it holds a token of `mcpx token add`."
BY_HAND = "This program reads no variables there: put a token of `mcpx token add` where the capitals stand."
UNKNOWN_HTTP = "it is not known to use servers over HTTP"


def programs(*, url: str | None, command: Sequence[str], token: bool) -> Iterable[Program]:
    """All of them, for a gateway that is found there."""
    place = Place(url, command, token)
    found = (made_for(known, place) for known in KNOWN)
    return [program for program in found if program is not None]


def _servers(entry: Json, key: str = "mcpServers") -> str:
    return as_json({key: {NAME: entry}})


def _at(place: Place) -> str:
    assert place.url is not None, "asked for only where there is one"
    return place.url


def _told(place: Place, note: str, *more: str) -> tuple[str, ...]:
    return (note, *more) if place.token else more


# Claude ---------------------------------------------------------------------------------------------------------------

_DESKTOP = here(
    "~/Library/Application Support/Claude/claude_desktop_config.json",
    "~/.config/Claude/claude_desktop_config.json",
    r"%APPDATA%\Claude\claude_desktop_config.json",
)


def _claude_code(place: Place) -> Made:
    entry: Json = {"type": "http", "url": _at(place), **place.headers(SHELL)}
    line = shell("claude", "mcp", "add", "--transport", "http", NAME, _at(place), "-s", "user")
    if place.token:
        line = shell("claude", "mcp", "add-json", NAME, compact(entry))
    return Made(
        [
            Snippet("Command", "shell", line),
            Snippet("Project file", "json", _servers(entry), ".mcp.json"),
            Snippet("User file", "json", _servers(entry), "~/.claude.json"),
        ],
        notes=_told(place, SET, "Claude Code asks before it uses a server of a project file."),
    )


def _claude_code_stdio(place: Place) -> Made:
    line = shell("claude", "mcp", "add", "-s", "user", NAME, "--", *place.command)
    return Made(
        [Snippet("Command", "shell", line), Snippet("Project file", "json", _servers(place.stdio()), ".mcp.json")]
    )


def _claude_desktop(place: Place) -> Made:
    return Made(
        [Snippet("Configuration", "json", _servers(place.stdio()), _DESKTOP)],
        notes=["Restart Claude Desktop: it reads this file at its start."],
    )


# Editors --------------------------------------------------------------------------------------------------------------

_VSCODE = here(
    "~/Library/Application Support/Code/User/mcp.json",
    "~/.config/Code/User/mcp.json",
    r"%APPDATA%\Code\User\mcp.json",
)


_CURSOR = here("~/.cursor/mcp.json", "~/.cursor/mcp.json", r"%USERPROFILE%\.cursor\mcp.json")


def _cursor_of(entry: Json, notes: Sequence[str] = ()) -> Made:
    link = f"cursor://anysphere.cursor-deeplink/mcp/install?name={NAME}&config={in_base64(entry)}"
    files = [
        Snippet("Configuration", "json", _servers(entry), _CURSOR),
        Snippet("Project file", "json", _servers(entry), ".cursor/mcp.json"),
    ]
    return Made(files, link, notes)


def _cursor(place: Place) -> Made:
    return _cursor_of({"url": _at(place), **place.headers(ENV)}, _told(place, SET))


def _cursor_stdio(place: Place) -> Made:
    return _cursor_of({"type": "stdio", **place.stdio()})


def _vscode_of(entry: Json, inputs: Sequence[Json] = ()) -> Made:
    whole: Json = {"servers": {NAME: entry}}
    if inputs:
        whole["inputs"] = list(inputs)
    link = None if inputs else f"vscode:mcp/install?{quote(compact({'name': NAME, **entry}), safe='')}"
    line = [] if inputs else [Snippet("Command", "shell", shell("code", "--add-mcp", compact({"name": NAME, **entry})))]
    files = [
        Snippet("Configuration", "json", as_json(whole), _VSCODE),
        Snippet("Project file", "json", as_json(whole), ".vscode/mcp.json"),
    ]
    return Made([*line, *files], link, ["VS Code asks for the token once, and keeps it."] if inputs else [])


def _vscode(place: Place) -> Made:
    ask: Json = {"type": "promptString", "id": "mcpx-token", "description": "Token of mcpx", "password": True}
    entry: Json = {"type": "http", "url": _at(place), **place.headers("${input:mcpx-token}")}
    return _vscode_of(entry, [ask] if place.token else [])


def _vscode_stdio(place: Place) -> Made:
    return _vscode_of({"type": "stdio", **place.stdio()})


def _windsurf_of(new: Json, old: Json, notes: Sequence[str] = ()) -> Made:
    folder = here("~/.config/devin", "~/.config/devin", r"%APPDATA%\devin")
    return Made(
        [
            Snippet("Since 3.9.19", "json", _servers(new), f"{folder}/mcp_config.json"),
            Snippet("Before", "json", _servers(old), "~/.codeium/windsurf/mcp_config.json"),
        ],
        notes=[*notes, "Cascade takes 100 tools in all; a compact mode stays far below."],
    )


def _windsurf(place: Place) -> Made:
    url, headers = _at(place), place.headers(ENV)
    return _windsurf_of({"url": url, "transport": "http", **headers}, {"serverUrl": url, **headers}, _told(place, SET))


def _windsurf_stdio(place: Place) -> Made:
    return _windsurf_of(place.stdio(), place.stdio())


_ZED = here("~/.config/zed/settings.json", "~/.config/zed/settings.json", r"%APPDATA%\Zed\settings.json")


def _zed(place: Place) -> Made:
    entry: Json = {"url": _at(place), **place.headers(PLACEHOLDER)}
    return Made([Snippet("Settings", "json", _servers(entry, "context_servers"), _ZED)], notes=_told(place, BY_HAND))


def _zed_stdio(place: Place) -> Made:
    return Made([Snippet("Settings", "json", _servers(place.stdio(), "context_servers"), _ZED)])


def _cline_of(entry: Json, notes: Sequence[str] = ()) -> Made:
    beside = _VSCODE.replace("mcp.json", "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json")
    return Made(
        [
            Snippet("In VS Code", "json", _servers(entry), beside),
            Snippet("Cline CLI", "json", _servers(entry), "~/.cline/data/settings/cline_mcp_settings.json"),
        ],
        notes=notes,
    )


def _cline(place: Place) -> Made:
    return _cline_of({"type": "streamableHttp", "url": _at(place), **place.headers(ENV)}, _told(place, SET))


def _cline_stdio(place: Place) -> Made:
    return _cline_of(place.stdio())


_JETBRAINS = "Settings > Tools > AI Assistant > MCP, add, As JSON"


def _jetbrains(place: Place) -> Made:
    entry: Json = {"url": _at(place), **place.headers(PLACEHOLDER)}
    return Made([Snippet("As JSON", "json", _servers(entry), _JETBRAINS)], notes=_told(place, BY_HAND))


def _jetbrains_stdio(place: Place) -> Made:
    return Made([Snippet("As JSON", "json", _servers(place.stdio()), _JETBRAINS)])


def _junie(place: Place) -> Made:
    return Made(
        [
            Snippet("Configuration", "json", _servers(place.stdio()), "~/.junie/mcp/mcp.json"),
            Snippet("Project file", "json", _servers(place.stdio()), ".junie/mcp/mcp.json"),
        ]
    )


# Command lines --------------------------------------------------------------------------------------------------------


def _codex(place: Place) -> Made:
    variable = ["--bearer-token-env-var", TOKEN] if place.token else []
    text = f"[mcp_servers.{NAME}]\nurl = {toml(_at(place))}\n"
    if place.token:
        text += f"bearer_token_env_var = {toml(TOKEN)}\n"
    return Made(
        [
            Snippet("Command", "shell", shell("codex", "mcp", "add", NAME, "--url", _at(place), *variable)),
            Snippet("Configuration", "toml", text, "~/.codex/config.toml"),
        ],
        notes=_told(place, SET, "Also for the Codex app and its editor extension: they read the same file."),
    )


def _codex_stdio(place: Place) -> Made:
    command, args = place.command[0], list(place.command[1:])
    text = f"[mcp_servers.{NAME}]\ncommand = {toml(command)}\nargs = {toml(args)}\n"
    return Made(
        [
            Snippet("Command", "shell", shell("codex", "mcp", "add", NAME, "--", *place.command)),
            Snippet("Configuration", "toml", text, "~/.codex/config.toml"),
        ]
    )


_GEMINI = "~/.gemini/settings.json"


def _gemini(place: Place) -> Made:
    entry: Json = {"httpUrl": _at(place), **place.headers(PLACEHOLDER)}
    line = shell("gemini", "mcp", "add", "-s", "user", "-t", "http", NAME, _at(place))
    lines = [] if place.token else [Snippet("Command", "shell", line)]
    return Made([*lines, Snippet("Settings", "json", _servers(entry), _GEMINI)], notes=_told(place, BY_HAND))


def _gemini_stdio(place: Place) -> Made:
    return Made([Snippet("Settings", "json", _servers(place.stdio()), _GEMINI)])


def _opencode_of(entry: Json, notes: Sequence[str] = ()) -> Made:
    path = "~/.config/opencode/opencode.json"
    return Made(
        [
            Snippet("Version 2", "json", as_json({"mcp": {"servers": {NAME: entry}}}), path),
            Snippet("Version 1", "json", as_json({"mcp": {NAME: {**entry, "enabled": True}}}), path),
        ],
        notes=[*notes, "Keep the shape that the file has already."],
    )


def _opencode(place: Place) -> Made:
    return _opencode_of({"type": "remote", "url": _at(place), **place.headers(f"{{env:{TOKEN}}}")}, _told(place, SET))


def _opencode_stdio(place: Place) -> Made:
    return _opencode_of({"type": "local", "command": list(place.command)})


# Others ---------------------------------------------------------------------------------------------------------------


def _lm_studio_of(entry: Json, notes: Sequence[str] = ()) -> Made:
    link = f"lmstudio://add_mcp?name={NAME}&config={in_base64(entry)}"
    return Made([Snippet("Configuration", "json", _servers(entry), "~/.lmstudio/mcp.json")], link, notes)


def _lm_studio(place: Place) -> Made:
    return _lm_studio_of({"url": _at(place), **place.headers(ENV)}, _told(place, SET))


def _lm_studio_stdio(place: Place) -> Made:
    return _lm_studio_of(place.stdio())


_GOOSE = here("~/.config/goose/config.yaml", "~/.config/goose/config.yaml", r"%APPDATA%\Block\goose\config\config.yaml")


def _goose_of(fields: Json, notes: Sequence[str] = ()) -> Made:
    lines = [f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]  # is YAML too
    text = "\n".join(("extensions:", f"  {NAME}:", *lines, "    enabled: true", ""))
    return Made([Snippet("Configuration", "yaml", text, _GOOSE)], notes=notes)


def _goose(place: Place) -> Made:
    fields: Json = {"type": "streamable_http", "name": NAME, "uri": _at(place), **place.headers(PLACEHOLDER)}
    return _goose_of(fields, _told(place, BY_HAND))


def _goose_stdio(place: Place) -> Made:
    return _goose_of({"type": "stdio", "name": NAME, "cmd": place.command[0], "args": list(place.command[1:])})


def _any(place: Place) -> Made:
    told = _told(place, "A token goes with each request: Authorization: Bearer … (`mcpx token add` makes one).")
    return Made([Snippet("Streamable HTTP", "url", _at(place))], notes=told)


def _any_stdio(place: Place) -> Made:
    return Made([Snippet("Command", "shell", shell(*place.command))])


KNOWN: Sequence[Known] = (
    Known("claude-code", "Claude Code", ("claude-code",), _claude_code, _claude_code_stdio),
    Known(
        "claude-desktop",
        "Claude Desktop",
        ("claude-ai",),
        None,
        _claude_desktop,
        why_stdio="its file takes no servers over HTTP, and its connectors are dialled from the cloud",
    ),
    Known("cursor", "Cursor", ("cursor-vscode",), _cursor, _cursor_stdio),
    Known("vscode", "VS Code", ("Visual Studio Code*",), _vscode, _vscode_stdio),
    Known("codex", "Codex", ("codex-mcp-client",), _codex, _codex_stdio),
    Known("gemini-cli", "Gemini CLI", ("gemini-cli-mcp-client*",), _gemini, _gemini_stdio),
    Known("windsurf", "Windsurf", ("windsurf-client*",), _windsurf, _windsurf_stdio),
    Known("zed", "Zed", ("Zed",), _zed, _zed_stdio),
    Known("cline", "Cline", (), _cline, _cline_stdio),
    Known("opencode", "opencode", ("opencode",), _opencode, _opencode_stdio),
    Known("jetbrains", "JetBrains AI Assistant", (), _jetbrains, _jetbrains_stdio),
    Known("junie", "Junie", (), None, _junie, why_stdio=UNKNOWN_HTTP),
    Known("lm-studio", "LM Studio", (), _lm_studio, _lm_studio_stdio),
    Known("goose", "Goose", (), _goose, _goose_stdio),
    Known("other", "Any other client", (), _any, _any_stdio),
)
