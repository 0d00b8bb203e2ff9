"""Every command with its options, in the order of the help.

This table is all that `--help` needs. A command's code is imported when the command runs, so help
and shell completion start no gateway.
"""

from collections.abc import Mapping

from mcpx.cli.options import (
    CLIENTS,
    CONFIG,
    CONFIG_WORD,
    DRY_RUN,
    FORCE,
    JSON,
    OUTCOMES,
    SERVER,
    Command,
    action,
    choice,
    flag,
    value,
    word,
)
from mcpx.cli.server_commands import SERVER_GROUPS

GROUPS: Mapping[str, tuple[Command, ...]] = {
    **SERVER_GROUPS,
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
