"""The commands that serve, manage servers, and use tools, in the order of the help."""

import argparse
from collections.abc import Mapping

from mcpx.cli.options import (
    ALLOW_PRIVATE,
    CONFIG,
    CONFIG_WORD,
    DRY_RUN,
    FORCE,
    FROM_API,
    JSON,
    JSON_LINES,
    LEVELS,
    NAMES,
    OUTPUT,
    SECRETS,
    SERVER,
    SWITCH,
    TIMEOUT,
    USE,
    YES,
    Command,
    Modes,
    Option,
    action,
    choice,
    flag,
    repeated,
    value,
    word,
)

SERVER_GROUPS: Mapping[str, tuple[Command, ...]] = {
    "run": (
        Command(
            "serve",
            "[CONFIG]",
            "One MCP gateway in front of many MCP servers; what 'mcpx [CONFIG]' does.",
            "attach:run",
            (
                *CONFIG_WORD,
                flag("--strict", "an unset variable of one server is an error"),
                choice("--transport", "how clients reach mcpx", "stdio", "http"),
                value("--host", None, "address to bind (default 127.0.0.1)"),
                value("--port", None, "port to bind (default 8000; 0 takes any free one)"),
                value(
                    "--mode",
                    "MODE",
                    "what clients see by default: %(choices)s",
                    choices=Modes(),
                ),
                value(
                    "--profile", "NAME", "over stdio: show the client this profile only", "profiles"
                ),
                value("--log-level", "LEVEL", ", ".join(LEVELS)),
                Option(
                    "--admin",
                    {
                        "action": argparse.BooleanOptionalAction,
                        "default": None,
                        "help": "start the admin UI and API too; the demo in a terminal has it "
                        "unless --no-admin",
                    },
                ),
                value("--admin-port", "PORT", "the same, on this port (default 8080; 0: any free)"),
                flag("--standalone", "over stdio: a gateway for this client alone"),
                value(
                    "--linger",
                    "SECONDS",
                    "how long a shared gateway outlives its last client (60)",
                ),
                Option("--version", {"action": "version"}),
            ),
        ),
        Command(
            "status",
            "[CONFIG]",
            "Whether a gateway runs on this config, since when, and how it is.",
            "status:status",
            (*CONFIG_WORD, JSON),
        ),
        Command(
            "reload",
            "[CONFIG]",
            "Have the gateway that runs on this config read it again.",
            "status:reload",
            (*CONFIG_WORD, JSON),
        ),
        Command(
            "logs",
            "[SERVER] [CONFIG]",
            "What servers and the gateway have printed.",
            "logs:logs",
            (
                word(
                    "words",
                    "SERVER",
                    "the server, or mcpx; then the config file",
                    "*",
                    "servers mcpx",
                ),
                *CONFIG,
                flag("-f --follow", "go on with what comes, until Ctrl-C"),
                value("-n --lines", "N", "how many lines (default 50)", type=int, default=50),
                JSON_LINES,
            ),
            """\
  mcpx logs              the last lines of every server, in the order they came
  mcpx logs github -f    of one, and what comes, until Ctrl-C
  mcpx logs mcpx         the gateway's own log, where it goes to a file""",
        ),
        Command(
            "admin",
            "[CONFIG]",
            "Open the admin UI of the gateway that runs: a login URL that is good once.",
            "status:admin",
            (*CONFIG_WORD, flag("--no-browser", "only print the URL"), JSON),
        ),
    ),
    "servers": (
        Command(
            "servers",
            "[CONFIG]",
            "Every server and how it is; without a running gateway they are connected to.",
            "status:servers",
            (
                *CONFIG_WORD,
                flag("--json", "one JSON object instead of a table"),
                flag("--links", "also every connection, and why there is one"),
            ),
        ),
        Command(
            "add",
            "ANYTHING",
            "Add a server: a command line, a URL, JSON, OpenAPI, curl, .mcpb, a registry name.",
            "add:run",
            (
                word(
                    "words",
                    "ANYTHING",
                    "what there is of the server",
                    argparse.REMAINDER,
                    "files",
                ),
                value(
                    "--config", "FILE", "the config file; one that is not there is made", "files"
                ),
                value("--name", "N", "what it is called"),
                repeated("-e --env", "KEY=VALUE", "a variable for its program"),
                repeated("--header", "KEY=VALUE", "a header for its address"),
                value("--prefix", "P", "begin the names of its tools with this"),
                value("--description", "TEXT", "what it is for"),
                flag("--disabled", "add it switched off"),
                choice(
                    "--trust", "how its tools' definitions are guarded", "open", "pin", "quarantine"
                ),
                choice("--secrets", "where secrets are kept; default: env", *SECRETS),
                repeated(
                    "--set",
                    "KEY=VALUE",
                    "a setting of a bundle, a registry entry, or an OpenAPI document",
                ),
                value("--into", "FOLDER", "bundles: unpack it here"),
                choice(
                    "--package",
                    "registries: which of several ways to run it",
                    "remote",
                    "npm",
                    "pypi",
                    "oci",
                    "nuget",
                    "mcpb",
                ),
                repeated(
                    "--only",
                    "ONLY",
                    "OpenAPI: take operations whose id, name or 'METHOD /path' match this pattern",
                ),
                repeated("--skip", "SKIP", "OpenAPI: leave out operations that match this pattern"),
                repeated("--tag", "TAG", "OpenAPI: take operations with this tag"),
                ALLOW_PRIVATE,
                flag("--replace", "in the place of one that has its name"),
                flag("--no-test", "add it without trying it"),
                DRY_RUN,
                YES,
                flag("--force", "add a server although its trial start failed"),
                JSON,
            ),
            """\
  mcpx add npx -y @modelcontextprotocol/server-filesystem .     a command line; also after --
  mcpx add -e API_KEY=VALUE npx -y example-mcp                  a variable for the program
  mcpx add example -e API_KEY=VALUE -- npx -y example-mcp       with a name, as in 'claude mcp add'
  mcpx add https://example.com/mcp --header 'Authorization=Bearer ${TOKEN}'
  mcpx add claude_desktop_config.json        a client's file; - reads standard input
  mcpx add '{"mcpServers": {"a": {"command": "npx", "args": ["-y", "a"]}}}'
  mcpx add openapi.yaml --tag pets           HTTP commands of an API
  mcpx add 'curl https://api.example.com/v1/pets'
  mcpx add server.mcpb --set api_key='${API_KEY}'
                                             a bundle; it is unpacked below the state folder
  mcpx add io.github.owner/name              a name in a registry (MCPX_REGISTRY), or a server.json

Options of mcpx go before a command line, and before or after anything else. A server is tried
before it is written.""",
        ),
        Command(
            "remove",
            "NAME",
            "Take a server or command out of the config.",
            "entries:run",
            (
                NAMES,
                *CONFIG,
                choice("--kind", "which of two that have the name", "server", "command", "auth"),
                flag("--force", "although something refers to it"),
                flag("--purge", "with the files of a bundle"),
                YES,
                DRY_RUN,
                JSON,
            ),
        ),
        Command("enable", "NAME", "Switch a server or command on.", "entries:run", SWITCH),
        Command(
            "disable",
            "NAME",
            "Switch a server or command off; it stays in the config.",
            "entries:run",
            SWITCH,
        ),
        Command(
            "import",
            "[CLIENT | FILE]",
            "Take over the servers of your client programs, OpenAPI or curl.",
            "",
            (),
            """\
  mcpx import                              every client program on this machine
  mcpx import cursor claude-code           these
  mcpx import ~/old/mcp.json --dry-run     any client's file, or another config: what would change
  mcpx import openapi https://api.example.com/openapi.json --tag pets -o pets.yaml
  mcpx import curl 'curl https://api.example.com/v1/pets?limit=5 -H "Authorization: Bearer $TOKEN"'

'clients' is what is meant where no kind is named. It adds to your config and changes nothing in a
client's own file; 'mcpx connect' does. Commands made of OpenAPI or curl go to standard output, or
to a file with -o.""",
            (
                Command(
                    "clients",
                    "client programs, or a config file of any shape (this is meant where no kind "
                    "is named)",
                    "Take over the servers of client programs, or of a config file of any shape.",
                    "importing:run",
                    (
                        word(
                            "what",
                            "CLIENT | FILE",
                            "a client program (cursor, claude-desktop, …), a config file, or - for "
                            "standard input; none: every program",
                            "*",
                            "clients files",
                        ),
                        repeated("--only", "NAME", "take servers of this name (* and ?)"),
                        repeated("--skip", "NAME", "leave out servers of this name"),
                        value(
                            "--into --config",
                            "FILE",
                            "write into this config, instead of the one in use",
                            "files",
                            dest="config",
                        ),
                        value(
                            "--env",
                            "NAME",
                            "the environment whose files lie over the config",
                            "overlays",
                        ),
                        flag("--replace", "replace servers of the same name that differ"),
                        choice(
                            "--secrets",
                            "where secrets go that stand in the files: a .env file beside the "
                            "config (what is done where nobody can be asked), the system's "
                            "keyring, or the config itself",
                            *SECRETS,
                        ),
                        DRY_RUN,
                        flag("-y --yes", "write without asking"),
                        JSON,
                    ),
                ),
                Command(
                    "openapi",
                    "an OpenAPI document, 3.0 or 3.1",
                    "The operations of an OpenAPI document.",
                    "imports:run",
                    (
                        word(
                            "document",
                            "DOCUMENT",
                            "a file, or an http or https address; JSON or YAML",
                            completes="files",
                        ),
                        repeated(
                            "--only",
                            "ONLY",
                            "take operations whose id, name or 'METHOD /path' match this pattern "
                            "(* and ?)",
                        ),
                        repeated("--skip", "SKIP", "leave out operations that match this pattern"),
                        repeated("--tag", "TAG", "take operations with this tag"),
                        repeated("--method", "METHOD", "take operations with this method"),
                        flag("--deprecated", "take deprecated operations, too"),
                        value(
                            "--server", "URL", "where the API is, instead of what the document says"
                        ),
                        value("--prefix", "P", "begin every name with this", default=""),
                        flag("--list", "show the operations and write nothing"),
                        *FROM_API,
                    ),
                ),
                Command(
                    "curl",
                    "a curl command line",
                    "One curl command line as a command.",
                    "imports:run",
                    (
                        word(
                            "line", "LINE", "the command line in quotes, or its words after --", "*"
                        ),
                        value("--name", "N", "the command's name"),
                        repeated(
                            "--param",
                            "NAME",
                            "make an argument of this query parameter, field or header, and keep "
                            "the rest as it is",
                        ),
                        *FROM_API,
                    ),
                ),
            ),
        ),
        Command(
            "export",
            "[CONFIG]",
            "The configuration for somebody else, without its secrets.",
            "config_files:export",
            (
                *CONFIG_WORD,
                choice("--format", "default: yaml", "yaml", "json", "mcpServers", default="yaml"),
                OUTPUT,
                FORCE,
                JSON,
            ),
        ),
        Command(
            "auth",
            "ACTION [NAME]",
            "Sign in to servers, sign out, and see who is signed in where.",
            "auth:run",
            (
                action("status", "login", "logout"),
                word("words", "NAME", "the server; then the config file", "*", "servers"),
                *CONFIG,
                flag("--json", "status: one JSON object instead of a table"),
                flag("--no-browser", "login: only say where to sign in"),
            ),
        ),
    ),
    "tools": (
        Command(
            "tools",
            "[SERVER]",
            "Every tool, or those of a server, with what they take.",
            "listing:tools",
            (
                SERVER,
                flag("--schema", "function signatures in TypeScript; with --json schemas"),
                *USE,
            ),
            """\
  mcpx tools                   every tool of every server
  mcpx tools github            those of one; without a running gateway only that one is started
  mcpx tools github --schema   as functions in TypeScript, with what each argument is""",
        ),
        Command(
            "search",
            "WORDS",
            "Find tools by words, English or Chinese.",
            "listing:search",
            (
                word("words", "WORDS", "what the tool shall do, or its name", "+"),
                value("--limit", "N", "how many are shown (default 10)", type=int, default=10),
                *USE,
            ),
            """\
  mcpx search read a file
  mcpx search 发送邮件 --limit 5

By the ranking that models get. Exit code 1: nothing was found.""",
        ),
        Command(
            "call",
            "SERVER.TOOL [key=value]",
            "Call a tool and print its result.",
            "calling:call",
            (
                word("tool", "SERVER.TOOL", "the tool; its public name does, too", None, "tools"),
                word("arguments", "key=value", "its arguments; see below", "*", "arguments"),
                value(
                    "-o --output",
                    "FILE",
                    "save an image, audio or other bytes; else the text",
                    "files",
                ),
                TIMEOUT,
                value("--jmespath", "EXPR", "print what this expression finds in the result"),
                *USE,
            ),
            """\
  mcpx call fs.read_file path=notes.txt head=5      values become what the tool's schema wants
  mcpx call shop.order items:='[{"id": 1}]'         := is JSON
  mcpx call mail.send body=@letter.txt to=a to=b    @ reads a file (@- stdin, @@ is a plain @);
                                                    twice is a list
  mcpx call fs.read_file '{"path": "notes.txt"}'    all arguments at once; - reads standard input
  mcpx call fs.read_file --json '{"path": "x"}'     --json prints the raw result

Ctrl-C cancels the call at its server. Exit codes: 0 done, 1 the tool says that it failed, 2 no such
tool or wrong arguments, 4 its server is down, 5 somebody has to sign in, 6 refused or waits for
approval, 124 took too long.""",
        ),
        Command(
            "read",
            "URI",
            "Read a resource; without one, list them.",
            "offers:read",
            (
                word("uri", "URI", "the resource", "?", "resources"),
                value("-o --output", "FILE", "write what was read into a file", "files"),
                TIMEOUT,
                *USE,
            ),
            """\
  mcpx read                          every resource, and templates of more
  mcpx read file:///etc/hosts        by its own URI, or the one it is listed under
  mcpx read res://logo -o logo.png   bytes go into a file""",
        ),
        Command(
            "prompt",
            "NAME [key=value]",
            "Get a prompt; without one, list them.",
            "offers:prompt",
            (
                word(
                    "name", "NAME", "the prompt: SERVER.PROMPT, or its public name", "?", "prompts"
                ),
                word("arguments", "key=value", "its arguments, as for mcpx call", "*", "arguments"),
                TIMEOUT,
                *USE,
            ),
            """\
  mcpx prompt                                 every prompt and its arguments
  mcpx prompt docs.review file=@main.py       filled in""",
        ),
    ),
}
