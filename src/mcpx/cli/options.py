"""Every command with its options, in the order of the help.

This table is all that `--help` needs. A command's code is imported when the command runs, so help
and shell completion start no gateway.
"""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MAX_SECONDS = 86_400
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SECRETS = ("env", "keyring", "config")
OUTCOMES = ("ok", "tool_error", "error", "cancelled", "denied", "unfinished")
"""How a call ends in the audit log. `unfinished`: the call runs, or a crash cut it off."""


# The classes are no dataclasses: the import of `dataclasses` costs a bridge two megabytes.
class Option(NamedTuple):
    names: str
    """Separated by spaces. A positional argument has one name without dashes."""
    settings: Mapping[str, Any]
    """For `add_argument`."""
    completes: str = ""
    """What shell completion offers: lists of names, separated by spaces. See `completion`."""


class Command(NamedTuple):
    name: str
    arguments: str
    summary: str
    function: str
    """`module:function` below `mcpx.cli`."""
    options: tuple[Option, ...]
    epilog: str = ""
    kinds: "tuple[Command, ...]" = ()
    """Subcommands. The first one is meant if no subcommand is named."""


def flag(names: str, help: str, **settings: Any) -> Option:
    return Option(names, {"action": "store_true", "help": help, **settings})


def value(
    names: str, metavar: str | None, help: str, completes: str = "", **settings: Any
) -> Option:
    return Option(names, {"metavar": metavar, "help": help, **settings}, completes)


def repeated(names: str, metavar: str, help: str) -> Option:
    return value(names, metavar, f"{help}; repeatable", action="append", default=[])


def word(
    name: str, metavar: str, help: str, nargs: str | None = None, completes: str = ""
) -> Option:
    return value(name, metavar, help, completes, nargs=nargs)


def choice(names: str, help: str, *choices: str, **settings: Any) -> Option:
    return value(names, None, help, choices=choices, **settings)


def action(*choices: str) -> Option:
    return choice("action", "what to do", *choices)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if 0 < number <= MAX_SECONDS:
        return number
    raise argparse.ArgumentTypeError(
        f"{text!r} is no number of seconds (more than 0, a day at most)"
    )


class _Modes:
    """The names of the modes. They are looked up when a mode is checked or shown."""

    def __contains__(self, name: object) -> bool:
        from mcpx.surfaces import SURFACES

        return name in SURFACES  # Also finds modes of other packages.

    def __iter__(self) -> Iterator[str]:
        from mcpx.surfaces import SURFACES

        return iter(SURFACES)


ENV = value("--env", "NAME", "lay the files of an environment over it (mcpx.NAME.yaml)", "overlays")
CONFIG_FILE = value("--config", "FILE", "the config file", "files")
CONFIG = (CONFIG_FILE, ENV)
CONFIG_WORD = (
    word("config_file", "CONFIG", "the config file, or a folder of them", "?", "files"),
    value("--config", "FILE", "the same, as an option", "files"),
    ENV,
)
JSON = flag("--json", "one JSON object instead of text")
JSON_LINES = flag("--json", "one JSON object a line")
USE = (
    *CONFIG,
    value("--profile", "NAME", "see and call only what this profile may", "profiles"),
    JSON,
)
TIMEOUT = value("--timeout", "S", "give up after so many seconds", type=seconds)
DRY_RUN = flag("--dry-run", "show what would change, and write nothing")
YES = flag("-y --yes", "ask nothing")
OUTPUT = value("-o --output", "FILE", "write a new file instead of standard output", "files")
FORCE = flag("--force", "overwrite FILE")
ALLOW_PRIVATE = flag("--allow-private", "let documents be fetched from private addresses")
SERVER = word("words", "SERVER", "the server; then the config file", "*", "servers")
NAMES = word("names", "NAME", "what it is called; several do", "+", "servers commands")
SWITCH = (
    NAMES,
    *CONFIG,
    choice("--kind", "which of two that have the name", "server", "command"),
    DRY_RUN,
    JSON,
)
CLIENTS = (
    word(
        "clients",
        "CLIENT",
        "claude-code, cursor, vscode, … ('--all --print' has all)",
        "*",
        "clients",
    ),
    flag("--all", "every client that is found"),
    flag("--project", "the file of the project in this folder, not your own"),
)
FROM_API = (
    value("--auth", "NAME", "use this auth config of yours, and write none"),
    flag("--allow-private", "let private addresses be reached"),
    OUTPUT,
    FORCE,
    flag("--json", "one JSON object that says everything"),
)

GROUPS: Mapping[str, tuple[Command, ...]] = {
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
                    choices=_Modes(),
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
    "client programs": (
        Command(
            "connect",
            "[CLIENT]",
            "Write mcpx into client programs: a diff, a backup, a way back.",
            "connect:connect",
            (
                *CLIENTS,
                choice(
                    "--transport",
                    "stdio (default): the client starts mcpx, which joins the one that runs; http: "
                    "one you keep running",
                    "stdio",
                    "http",
                ),
                value(
                    "--profile", "NAME", "what the client sees: a profile of the config", "profiles"
                ),
                flag("--print", "print what to paste, and the vendor's command; write nothing"),
                flag(
                    "--replace",
                    "disable (else remove) the client's own entries for servers of the config",
                ),
                flag("--undo", "take the last change back, or the last one of each CLIENT"),
                DRY_RUN,
                flag("--yes -y", "do not ask"),
                *CONFIG,
                JSON,
            ),
            """\
Without a CLIENT it lists those that are found on this machine. Each change is shown before it is
made, and a copy of the file is kept: 'mcpx connect --undo' takes the last change back.

  mcpx connect cursor             for you, everywhere
  mcpx connect cursor --project   for this folder
  mcpx connect --all --dry-run    what it would change
  mcpx connect --all --replace    also disable the clients' own entries for servers of the config
""",
        ),
        Command(
            "disconnect",
            "[CLIENT]",
            "Take it out again.",
            "disconnect:disconnect",
            (*CLIENTS, DRY_RUN, flag("--yes -y", "do not ask"), JSON),
        ),
        Command(
            "doctor",
            "[SERVER]",
            "Find what breaks first runs, and say how to mend it.",
            "doctor.examining:run",
            (
                word(
                    "words",
                    "SERVER",
                    "a server to start once; then the config file",
                    "*",
                    "servers",
                ),
                *CONFIG,
                JSON,
            ),
            """\
  mcpx doctor               the config, its programs, the gateway, the client programs; nothing is
                            started
  mcpx doctor github        start this server once for real, and say how far it gets
  mcpx doctor --json        the same for programs

Exit code 0: nothing is broken, whatever it warns of; 1: something is.""",
        ),
    ),
    "config": (
        Command(
            "check",
            "[CONFIG]",
            "Validate a config file and say what it holds.",
            "config_files:check",
            (
                *CONFIG_WORD,
                flag("--strict", "an unset variable of a server or command is an error"),
                JSON,
            ),
        ),
        Command(
            "migrate",
            "[CONFIG]",
            "Turn any config into the native shape.",
            "migrate:run",
            (
                *CONFIG_WORD,
                value("-o --output", "FILE", "write a new file, .yaml or .json", "files"),
                flag("--in-place", "change the file itself; what it was stays beside it"),
                FORCE,
                DRY_RUN,
                JSON,
            ),
            """\
  mcpx migrate old.json                 print it
  mcpx migrate old.json -o mcpx.yaml    write a new file
  mcpx migrate config.json --in-place   change the file itself; what it was stays beside it

Mode and naming of the old shape are written out, so that everything goes on as it was.""",
        ),
        Command(
            "config",
            "ACTION",
            "What the config said before, and back to it; push FILE: that of all replicas.",
            "config_files:run",
            (
                action("history", "rollback", "push"),
                word(
                    "what",
                    "NUMBER | FILE",
                    "rollback: the revision; push: the file",
                    "?",
                    "files",
                ),
                *CONFIG,
                DRY_RUN,
                JSON,
            ),
            """\
  mcpx config history           who changed it, when, and what
  mcpx config rollback NUMBER   have it say again what it said then; that is a change like any other
  mcpx config push [FILE]       make it the configuration of all replicas""",
        ),
        Command(
            "secret",
            "ACTION",
            "Encrypt values of a config file, and keep secrets in the system's keyring.",
            "secret:run",
            (
                action("encrypt", "key", "set", "list", "remove"),
                word("name", "NAME", "set, remove: what it is called", "?"),
                flag("--json", "list: one JSON object instead of lines"),
            ),
            """\
  mcpx secret encrypt       read a secret, print it encrypted, for any value of a config file:
                            token: enc:v1:… (by MCPX_KEY, else by a key in the system's keyring)
  mcpx secret key           make a key for MCPX_KEY and print it, once
  mcpx secret set NAME      read a secret into the system's keyring; a config refers to it by
                            ${keyring:NAME}
  mcpx secret list          the names that were set
  mcpx secret remove NAME   take one out again

A secret is read from standard input (echo … | mcpx secret encrypt) or asked for.""",
        ),
    ),
    "guard": (
        Command(
            "token",
            "ACTION [NAME]",
            "Tokens that clients over the network show (server.auth: {type: bearer}).",
            "token:run",
            (
                action("new", "list", "revoke"),
                word("words", "NAME", "the token's name; for 'new' then the config file", "*"),
                value("--config", "FILE", "new: the config file, as an option", "files"),
                value(
                    "--env",
                    "NAME",
                    "new: lay the files of an environment over it (mcpx.NAME.yaml)",
                    "overlays",
                ),
                value("--profile", "P", "new: the profile its bearer finds at /mcp", "profiles"),
                value(
                    "--expires",
                    "WHEN",
                    "new: 30d, 12h, 2027-01-31 or 2027-01-31T12:00Z; else never",
                ),
                JSON,
            ),
            """\
  mcpx token new NAME [CONFIG]   make one and print it, once: TOKEN=$(mcpx token new laptop)
  mcpx token list                those that were made; a config's own are not among them
  mcpx token revoke NAME         end it, and everything it has opened

A config that has server.auth: {type: bearer} lets them in, a running gateway within a second.""",
        ),
        Command(
            "approve",
            "[WHAT]",
            "See what waits for approval, definitions and calls, and approve it.",
            "approve:approve",
            (
                word(
                    "words",
                    "WHAT",
                    "a server, SERVER.TOOL, or the id of a call; then the config file",
                    "*",
                    "servers tools",
                ),
                *CONFIG,
                JSON,
                flag("--yes", "approve what is shown without asking"),
                flag("--deny", "refuse a call"),
            ),
        ),
        Command(
            "pins",
            "[SERVER]",
            "What was approved of pinned servers, and what of them is held back.",
            "approve:pins",
            (SERVER, *CONFIG, JSON),
        ),
        Command(
            "explain",
            "PROFILE TOOL",
            "Whether a tool is seen and may be called through a profile, and why.",
            "explain:explain",
            (
                word("profile", "PROFILE", "the profile; '-' is without one", None, "profiles -"),
                word(
                    "tool",
                    "TOOL",
                    "the tool by the name it is listed under, or server.tool",
                    None,
                    "tools",
                ),
                *CONFIG_WORD,
                value("--principal", "NAME", "who calls (default: anonymous)", default="anonymous"),
                JSON,
            ),
        ),
        Command(
            "audit",
            "[CONFIG]",
            "Who called what, when, and what came of it; the latest last.",
            "audit:run",
            (
                word("words", "[verify] [CONFIG]", "check the rows; the config file", "*", "files"),
                *CONFIG,
                value("--server", "NAME", "only calls of this server", "servers"),
                value(
                    "--tool",
                    "NAME",
                    "only calls of this tool or prompt, as its server names it",
                ),
                value("--principal", "NAME", "only what this one did"),
                value(
                    "--outcome",
                    "OUTCOME",
                    "ok, tool_error, error, cancelled, denied or unfinished",
                    choices=OUTCOMES,
                ),
                value("--since", "WHEN", "1h, 30m, 2d, or a date or time (UTC): 2026-01-31T12:00"),
                value("--limit", "N", "most rows that are shown (default 50)", default=50),
                flag("--follow", "go on with what comes, until Ctrl-C"),
                flag("--json", "the rows as they are, one JSON object a line"),
            ),
            """\
  mcpx audit [CONFIG]             the latest calls
  mcpx audit verify [CONFIG]      whether rows are missing or were changed (exit code 1)""",
        ),
    ),
    "more": (
        Command(
            "completion",
            "SHELL",
            "Completion for bash, zsh, fish or PowerShell.",
            "completion:completion",
            (choice("shell", "the shell", "bash", "zsh", "fish", "powershell"),),
            """\
  bash         in ~/.bashrc:  eval "$(mcpx completion bash)"
  zsh          in ~/.zshrc, below compinit:  eval "$(mcpx completion zsh)"
  fish         mcpx completion fish > ~/.config/fish/completions/mcpx.fish
  PowerShell   in $PROFILE:  mcpx completion powershell | Out-String | Invoke-Expression

Commands, options, files, servers, tools and their arguments are completed; no server is started
for it.""",
        ),
        Command(
            "version",
            "",
            "Which mcpx this is, and on what it runs.",
            "status:version",
            (flag("--json", "one JSON object instead of a line"),),
        ),
    ),
}

COMMANDS: Mapping[str, Command] = {
    command.name: command for group in GROUPS.values() for command in group
}

SERVE_RULES = """\
Without --transport: stdio when standard input is a pipe, a socket or a file (a client started it),
HTTP when it is a terminal or when --host or --port is given. Without CONFIG: $MCPX_CONFIG, then
mcpx.yaml, config.yaml, config.json in this folder, then config.yaml in the user's config folder,
else the built-in demo. `store:` as CONFIG is the one that replicas keep in the store that
$MCPX_STORE names; `mcpx config push FILE` puts it there.

Options of a command may stand before it: `mcpx --config FILE tools` is `mcpx tools --config FILE`.
"""
