"""The command line: which command, which config, and the exit code."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx import __version__
from mcpx.cli.state import state_folder
from mcpx.model.errors import ConfigError

if TYPE_CHECKING:
    from mcpx.config import Config

LATER = ("tools", "search", "call", "add", "remove", "connect", "migrate", "doctor")
"""Commands of a later version (RUN-4): to be told from mistakes."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

EPILOG = """\
commands:
  mcpx check [CONFIG]      validate a config file and say what it holds
  mcpx servers [CONFIG]    every server and how it is
  mcpx explain PROFILE TOOL [CONFIG]   whether a tool is seen and may be called through a profile, and why
  mcpx admin [CONFIG]      open the admin UI of the running gateway: a login URL that is good once
  mcpx reload [CONFIG]     have the running gateway read its config again
  mcpx audit [CONFIG]      who called what, from the audit trail
  mcpx auth status|login NAME|logout NAME [CONFIG]   sign in to servers, and see who is signed in
  mcpx secret ACTION       encrypt values of a config, keep secrets in the system's keyring
  mcpx token new|list|revoke NAME [CONFIG]           tokens that clients over the network show
  mcpx pins [SERVER] [CONFIG]   what was approved of pinned servers, and what of them is held back
  mcpx approve [SERVER | SERVER.TOOL | CALL-ID] [CONFIG]   see what waits for approval, and approve it
  mcpx import KIND …       make commands of an OpenAPI document or a curl command line
  mcpx help [COMMAND]      this, or more about a command

Without --transport: stdio when standard input is a pipe, a socket or a file (a client started it), HTTP when it is a
terminal or when --host or --port is given. Without CONFIG: $MCPX_CONFIG, then mcpx.yaml, config.yaml, config.json in
this folder, then config.yaml in the user's config folder, else the built-in demo.
Exit codes: 0 ended cleanly, 1 could not run, 2 a mistake in the config or on the command line, 3 no gateway runs,
4 some servers are down, 5 somebody has to sign in, 6 something waits for approval; explain: hidden or refused."""


def main(argv: Sequence[str] | None = None) -> int:
    _open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        command = _command(arguments)
        describe, run = COMMANDS[command]
        parser = _parser(command, describe)
        mixed = ("auth", "token", "pins", "approve", "explain")
        parse = parser.parse_intermixed_args if command in mixed else parser.parse_args
        return run(parse(arguments))
    except ConfigError as error:
        sys.stderr.write("\n\n".join(error.problems) + "\n")
        return 2
    except KeyboardInterrupt:
        return 130


def _command(arguments: list[str]) -> str:
    """The command they begin with, taken off them; none is `serve`, and the first word its CONFIG (RUN-2)."""
    word = arguments[0] if arguments else ""
    if word == "help":
        word = arguments[1] if len(arguments) > 1 else "serve"
        if word not in (*COMMANDS, "help"):
            raise ConfigError([_unknown(word)])
        arguments[:] = [*arguments[2:], "--help"]  # `help import curl` is `import curl --help`
        return "serve" if word == "help" else word
    if word in COMMANDS:
        return arguments.pop(0)
    is_file = Path(word).exists() or _looks_like_file(word)
    if word in LATER or (word and not word.startswith("-") and not is_file):
        raise ConfigError([_unknown(word)])
    return "serve"


def _unknown(word: str) -> str:
    """What to say of a word that is no command."""
    if word in LATER:
        file = f"; the file is 'mcpx ./{word}'" if Path(word).exists() else ""
        return f"error: 'mcpx {word}' is not in this version yet; there is: {', '.join([*COMMANDS, 'help'])}{file}"
    from difflib import get_close_matches  # only somebody who made a mistake pays for it

    near = get_close_matches(word, [*COMMANDS, "help"], n=1, cutoff=0.5)
    hint = f"; did you mean 'mcpx {near[0]}'?" if near else "; 'mcpx help' lists the commands"
    return f"error: {word!r} is neither a command nor a file{hint}"


def _open_standard_streams() -> None:
    """The null device in the place of a closed standard stream: else the next thing opened gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, so this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    if command == "import":  # has options of its own, and no config
        from mcpx.cli.imports import parser_of

        return parser_of(description)
    if command == "secret":
        from mcpx.cli import secret

        return secret.parser_of(description)
    if command == "token":
        from mcpx.cli.options import token_parser

        return token_parser(description)
    parser = argparse.ArgumentParser(
        prog="mcpx" if command == "serve" else f"mcpx {command}",
        description=description,
        epilog=EPILOG if command == "serve" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if command == "auth":
        parser.add_argument("action", choices=("status", "login", "logout"), help="what to do")
        parser.add_argument("words", metavar="NAME", nargs="*", help="the server; then the config file")
    elif command in ("pins", "approve"):
        wanted = "SERVER" if command == "pins" else "WHAT"
        help_ = "the server" if command == "pins" else "a server, SERVER.TOOL, or the id of a call"
        parser.add_argument("words", metavar=wanted, nargs="*", help=f"{help_}; then the config file")
    else:
        if command == "explain":
            parser.add_argument("profile", metavar="PROFILE", help="the profile; '-' is without one")
            parser.add_argument("tool", metavar="TOOL", help="the tool by the name it is listed under, or server.tool")
        parser.add_argument("config_file", metavar="CONFIG", nargs="?", help="the config file, or a folder of them")
    parser.add_argument("--config", metavar="FILE", help="the same, as an option")
    parser.add_argument("--env", metavar="NAME", help="lay the files of an environment over it (mcpx.NAME.yaml)")
    if command == "auth":
        parser.add_argument("--json", action="store_true", help="status: one JSON object instead of a table")
        parser.add_argument("--no-browser", action="store_true", help="login: only say where to sign in")
    if command in ("pins", "approve"):
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    if command == "approve":
        parser.add_argument("--yes", action="store_true", help="approve what is shown without asking")
        parser.add_argument("--deny", action="store_true", help="refuse a call")
    if command == "audit":
        from mcpx.cli.options import audit_options

        audit_options(parser)
    if command == "explain":
        parser.add_argument("--principal", metavar="NAME", default="anonymous", help="who calls (default: anonymous)")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    if command == "servers":
        parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
        parser.add_argument("--links", action="store_true", help="also every connection, and why there is one")
    if command == "admin":
        parser.add_argument("--no-browser", action="store_true", help="only print the URL")
    if command == "serve":
        parser.add_argument("--strict", action="store_true", help="an unset variable of one server is an error")
        parser.add_argument("--transport", choices=("stdio", "http"), help="how clients reach mcpx")
        parser.add_argument("--host", help="address to bind (default 127.0.0.1)")
        parser.add_argument("--port", help="port to bind (default 8000; 0 takes any free one)")
        parser.add_argument("--mode", metavar="MODE", choices=_Modes(), help="what clients see by default: %(choices)s")
        parser.add_argument("--profile", metavar="NAME", help="over stdio: show the client this profile only")
        parser.add_argument("--log-level", metavar="LEVEL", help=", ".join(LEVELS))
        parser.add_argument("--admin", action="store_true", help="start the admin UI and API too")
        parser.add_argument("--admin-port", metavar="PORT", help="the same, on this port (default 8080; 0: any free)")
        parser.add_argument("--version", action="version", version=f"mcpx {__version__}")
    return parser


class _Modes:
    """The modes there are, looked for when somebody asks."""

    def __contains__(self, name: object) -> bool:
        from mcpx.surfaces import SURFACES

        return name in SURFACES

    def __iter__(self) -> Iterator[str]:
        from mcpx.surfaces import SURFACES

        return iter(SURFACES)


def _named(options: argparse.Namespace) -> str | None:
    """The config file named on the command line, once."""
    if "" in (options.config, options.config_file):
        raise ConfigError(["error: the name of the config file is empty"])  # `mcpx "$CONFIG"`, and CONFIG is not set
    named: str | None = options.config or options.config_file
    if options.config and options.config_file:
        raise ConfigError(["error: the config file is named twice, as an argument and by --config"])
    return named


def _looks_like_file(word: str) -> bool:
    return "/" in word or os.sep in word or Path(word).suffix.lower() in (".yaml", ".yml", ".json", ".jsonc", ".toml")


def _found(options: argparse.Namespace) -> Path | None:
    from mcpx.config import find

    return find(_named(options), os.environ, Path.cwd())


def _required(options: argparse.Namespace, command: str, hint: str = "") -> Path:
    path = _found(options)
    if path is None:
        raise ConfigError([f"error: no config file found here; name one: mcpx {command} FILE{hint}"])
    return path


def _load(path: Path, options: argparse.Namespace) -> "Config":
    from mcpx.config import load

    return load(path, os.environ, options.env)


def _env(options: argparse.Namespace) -> str | None:
    return options.env or os.environ.get("MCPX_ENV") or None


def _check(options: argparse.Namespace) -> int:
    from mcpx.cli.serve import address
    from mcpx.config import load, program_warnings, refuse_exposure, without_itself
    from mcpx.model.redaction import Redactor

    path = _required(options, "check")
    config = load(path, os.environ, options.env, strict=True)
    binds = os.environ.get("MCPX_TRANSPORT") != "stdio"
    if binds:
        config = without_itself(config, *address(options, os.environ, config))
    redactor = Redactor()
    redactor.learn("config", config.secrets)
    for warning in [*config.warnings, *program_warnings(config, os.environ), *_missing(config, _env(options))]:
        sys.stderr.write(f"warning: {redactor.redact(warning)}\n")
    if binds:
        from mcpx.front.identity.store import has_tokens

        refuse_exposure(address(options, os.environ, config)[0], config, lambda: has_tokens(state_folder(os.environ)))
    enabled = sum(server.enabled for server in config.mcp_servers)
    sys.stdout.write(
        f"{path}: good · {config.dialect} shape · mode {config.mode}"
        f" · {enabled} of {counted(len(config.mcp_servers), 'server')} enabled"
        f" · {counted(len(config.commands), 'command')}\n"
    )
    return 0


def _missing(config: "Config", env: str | None) -> list[str]:
    """What of the guard will not work on this machine."""
    told_of = (config.server.auth, config.global_.audit, config.global_.traces)
    if not config.guarded and all(each is None for each in told_of):
        return []
    from mcpx.config.guard_checks import missing
    from mcpx.front.identity.store import TokenStore, Unreadable
    from mcpx.telemetry.audit import trail_file

    state = state_folder(os.environ)
    told: list[str] = []
    kept: list[str] = []
    try:
        kept += [token.name for token in TokenStore(state).read()]
    except (Unreadable, OSError) as problem:
        told.append(f"tokens made by 'mcpx token new' count for nothing: {problem}")
    return [*told, *missing(config, kept, trail_file(config, state, env))]


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _servers(options: argparse.Namespace) -> int:
    from mcpx.cli.servers import servers

    path = _absolute(_required(options, "servers"))
    return servers(path, lambda: _load(path, options), os.environ, _env(options), options.json, options.links)


def _explain(options: argparse.Namespace) -> int:
    from mcpx.cli.explain import explain

    config = _load(_absolute(_required(options, "explain PROFILE TOOL")), options)
    state = state_folder(os.environ)
    return explain(config, options.profile, options.tool, options.principal, os.environ, state, options.json)


def _reload(options: argparse.Namespace) -> int:
    from mcpx.cli.servers import reload

    return reload(_absolute(_required(options, "reload")), state_folder(os.environ), _env(options))


def _admin(options: argparse.Namespace) -> int:
    from mcpx.cli.admin import admin

    of_the_demo = "\n  The built-in demo has none: start it again for another login URL."
    path = _absolute(_required(options, "admin", of_the_demo))
    return admin(path, state_folder(os.environ), _env(options), not options.no_browser)


def _audit(options: argparse.Namespace) -> int:
    from mcpx.cli.audit import audit

    path = _absolute(_required(options, "audit"))
    return audit(_load(path, options), state_folder(os.environ), _env(options), options)


def _auth(options: argparse.Namespace) -> int:
    from mcpx.cli import auth

    action, words = options.action, list[str](options.words)
    name = words.pop(0) if action != "status" and words else ""
    if (action != "status" and not name) or len(words) > 1:
        wanted = "[CONFIG]" if action == "status" else "NAME [CONFIG]"
        raise ConfigError([f"error: say: mcpx auth {action} {wanted}"])
    options.config_file = words[0] if words else None
    path = _absolute(_required(options, f"auth {action} {name}".rstrip()))
    where = auth.Where(path, lambda: _load(path, options), os.environ, _env(options))
    if action == "status":
        return auth.status(where, options.json)
    return auth.login(where, name, not options.no_browser) if action == "login" else auth.logout(where, name)


def _token(options: argparse.Namespace) -> int:
    from mcpx.cli.token import run

    def load() -> "Config | None":
        path = _found(options)
        return None if path is None else _load(path, options)

    return run(options, load, state_folder(os.environ))


def _pins(options: argparse.Namespace) -> int:
    from mcpx.cli.pins import Where, pins

    server = _about(options)
    path = _absolute(_required(options, "pins --config"))
    return pins(Where(path, lambda: _load(path, options), os.environ, _env(options)), server, options.json)


def _approve(options: argparse.Namespace) -> int:
    from mcpx.cli.approve import approve
    from mcpx.cli.pins import Where

    what = _about(options)
    path = _absolute(_required(options, "approve --config"))
    where = Where(path, lambda: _load(path, options), os.environ, _env(options))
    return approve(where, what, yes=options.yes, deny=options.deny, as_json=options.json)


def _about(options: argparse.Namespace) -> str | None:
    """What it is about, if anything; another word, or a single one that is a file, is the config."""
    words = list[str](options.words)
    options.config_file = words.pop() if words and (len(words) > 1 or _is_config(words[0])) else None
    if len(words) > 1 or "" in words:
        raise ConfigError(["error: say one thing at a time, then the config file"])
    return words[0] if words else None


def _is_config(word: str) -> bool:
    return _looks_like_file(word) and Path(word).exists()


def _absolute(path: Path) -> Path:
    """As `Config.path` has it: a running gateway is found by it."""
    return Path(os.path.abspath(path))


def _serve(options: argparse.Namespace) -> int:
    from mcpx.cli.serve import serve

    path = _found(options)
    return serve(path, options, os.environ, _env(options), state_folder(os.environ))


def _import(options: argparse.Namespace) -> int:
    from mcpx.cli.imports import run

    return run(options)


def _secret(options: argparse.Namespace) -> int:
    from mcpx.cli.secret import run

    return run(options)


COMMANDS: dict[str, tuple[str, Callable[[argparse.Namespace], int]]] = {
    "serve": ("One MCP gateway in front of many MCP servers.", _serve),
    "check": ("Validate a config file and say what it holds.", _check),
    "servers": ("Every server and how it is; without a running gateway they are connected to once.", _servers),
    "explain": ("Whether a tool is seen and may be called through a profile, and what decided it.", _explain),
    "auth": ("Sign in to servers, sign out, and see who is signed in where.", _auth),
    "token": ("Make, list and revoke tokens that clients over the network show (server.auth: {type: bearer}).", _token),
    "pins": ("What was approved of pinned servers, and what of them is held back.", _pins),
    "approve": ("See what waits for approval: definitions of pinned servers, and calls; and approve it.", _approve),
    "admin": ("Open the admin UI of the gateway that runs on this config: a login URL that is good once.", _admin),
    "reload": ("Have the gateway that runs on this config read it again.", _reload),
    "secret": ("Encrypt values of a config file, and keep secrets in the system's keyring.", _secret),
    "audit": ("Who called what, when, and what came of it; the latest last.", _audit),
    "import": ("Make commands of an OpenAPI document or a curl command line.", _import),
}
