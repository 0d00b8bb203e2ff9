"""Why a server does not work, in plain words, and what to do about it.

Promise: guesses from what the gateway and the server said; where nothing is known, nothing is said.
Looks for programs on this machine, so it belongs into a thread. Changes nothing.
"""

import glob
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from mcpx.config import Server
from mcpx.processes.downloaders import program_name
from mcpx.processes.environment import child_environment, find_program
from mcpx.transports import Stdio

SPEC = "mcp<2"
"""The version that these servers need."""
_ERRORS = re.compile(
    r"'(?:Server|FastMCP|ServerSession|ClientSession)' object has no attribute '\w+'"
    r"|cannot import name '\w+' from (?:partially initialized module )?'mcp(?:\.[\w.]+)?'"
    r"|cannot import name 'McpError'"
    r"|module 'mcp(?:\.[\w.]+)?' has no attribute"
    r"|No module named 'mcp\.[\w.]+'"
    r"|pin 'mcp<2'"
)


def needs_version_1(text: str) -> bool:
    """Whether the output of a server reports an API that version 2 of the SDK does not have."""
    return _ERRORS.search(text) is not None


def args_with_version_1(command: str, args: Sequence[str]) -> list[str] | None:
    """The arguments that make uv run the server with version 1. None if the command is not uv, or
    they have them."""
    if any(SPEC in arg for arg in args):
        return None
    program = program_name(command)
    if program == "uvx":
        return ["--with", SPEC, *args]
    if program == "uv" and "run" in args:
        behind = list(args).index("run") + 1
        return [*args[:behind], "--with", SPEC, *args[behind:]]
    return None


LONGEST = 500
"""Characters of a line that are looked at."""
MOST_FOLDERS = 100
"""Of a PATH that are told."""
_PROGRAM_FOLDERS = (
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "/snap/bin",
    "~/.local/bin",
    "~/.cargo/bin",
    "~/.bun/bin",
    "~/.volta/bin",
    "~/.deno/bin",
    "~/.asdf/shims",
    "~/bin",
    "~/.nvm/versions/node/*/bin",
    "~/.local/share/fnm/node-versions/*/installation/bin",
    "~/.local/share/mise/shims",
    "~/.nodenv/shims",
    "~/.pyenv/shims",
    "~/Library/pnpm",
    "~/go/bin",
    "/usr/local/go/bin",
    "/Applications/Docker.app/Contents/Resources/bin",
    "/opt/node/bin",
    "/usr/local/nodejs/bin",
)
"""Where people's programs are that a service does not have on its PATH."""
_GET = {
    "npx": "install Node.js (https://nodejs.org), which brings npx",
    "npm": "install Node.js (https://nodejs.org), which brings npm",
    "node": "install Node.js (https://nodejs.org)",
    "uvx": "install uv (https://docs.astral.sh/uv), which brings uvx",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "docker": "install Docker, or Podman and use `podman` as the command",
    "bunx": "install Bun (https://bun.sh), which brings bunx",
    "python": "use `python3` as the command, or install Python",
    "deno": "install Deno (https://deno.com)",
}


@dataclass(frozen=True, slots=True)
class Cause:
    cause: str
    fix: str
    repair: Mapping[str, Any] | None = field(default=None)
    """Fields of the entry that would mend it: `{"connection.command": "/usr/bin/npx"}`."""
    searched: tuple[str, ...] = ()
    """Folders in which the program was looked for."""
    needs_python_sdk_1: bool = False
    """The server does not run with version 2 of the MCP Python SDK (`python_sdk`)."""

    def told(self) -> dict[str, Any]:
        """As the API says it."""
        repair = None if self.repair is None else dict(self.repair)
        return {
            "cause": self.cause,
            "fix": self.fix,
            "repair": repair,
            "searched": list(self.searched),
        }


def cause_of(
    server: Server, problem: str | None, lines: Sequence[str], environ: Mapping[str, str]
) -> Cause | None:
    """`problem`: the error as its owner is told; `lines`: the last it wrote to standard error."""
    if server.switched_off is not None:
        told = "It is switched off: its entry needs something that is not there"
        return Cause(
            f"{told}: {server.switched_off}",
            "set it in a .env file beside the config and reload, or where mcpx is started, and "
            "start it again",
        )
    if problem is None:
        return None
    spec = server.connection
    if isinstance(spec, Stdio):
        return _of_program(server, spec, problem, lines, environ)
    return _of_address(server, problem, str(getattr(spec, "url", "")))


# Programs
# --------------------------------------------------------------------------------------------------


def _of_program(
    server: Server, spec: Stdio, problem: str, lines: Sequence[str], environ: Mapping[str, str]
) -> Cause | None:
    env = child_environment(environ, spec.env, spec.inherit_env)
    program = os.path.basename(spec.command)
    if "command not found" in problem:
        return _missing(spec, env)
    if "cannot start" in problem:
        return _unstartable(spec, problem)
    said = "\n".join([*(line[:LONGEST] for line in lines), problem])
    if needs_version_1(said):
        return _outdated_python(spec)
    for pattern, cause, fix in _SAID:
        if found := re.search(pattern, said, re.IGNORECASE):
            return _filled(cause, fix, it=_first(found))
    if "no MCP server" in problem:
        return Cause(
            "The program runs, but what it prints is not MCP.",
            "check its arguments: many programs need one (`mcp`, `serve`, `--stdio`) to speak MCP "
            "on standard output",
        )
    if "(start_timeout)" in problem or ("not connected after" in problem and spec.downloads_itself):
        return Cause(
            f"{program} had not finished within {server.start_limit:g} s; the first time it "
            "downloads what it runs.",
            f"start it again, or set `start_timeout: {2 * server.start_limit:g}` if the download "
            "takes longer",
            {"start_timeout": 2 * server.start_limit},
        )
    if "handshake" in problem or "not connected after" in problem:
        return Cause(
            f"The program did not answer within {server.timeout:g} s.",
            "check its arguments and its log; raise `timeout` if it is slow to start",
            {"timeout": 120},
        )
    if "exited with code" in problem or "ended by signal" in problem:
        last = next((line for line in reversed(lines) if line.strip()), "")
        told = f"The last it wrote: {last}" if last else "It wrote nothing to standard error."
        return Cause(
            f"The program ended by itself. {told}",
            "run the same command in a terminal: it shows what it needs (arguments, a variable, a "
            "file)",
        )
    return None


def _outdated_python(spec: Stdio) -> Cause:
    cause = "The server was written for version 1 of the MCP Python SDK, and runs with version 2."
    args = args_with_version_1(spec.command, spec.args)
    if args is None:
        fix = (
            "install version 1 for it (`pip install 'mcp<2'`), or start it with `uvx --with "
            "'mcp<2' …`"
        )
        return Cause(cause, fix, needs_python_sdk_1=True)
    words = [word for word in args if word in ("tool", "run", "--with", SPEC)]
    line = shlex.join([os.path.basename(spec.command), *words])
    return Cause(cause, f"start it with version 1: `{line} …`", needs_python_sdk_1=True)


def _missing(spec: Stdio, env: Mapping[str, str]) -> Cause:
    command, path = spec.command, env.get("PATH", os.defpath)
    first, _, rest = command.partition(" ")
    if rest and not spec.args and _found(first, env, spec.cwd):
        words = rest.split()
        return Cause(
            f"{command!r} was taken for the name of one program.",
            "put the arguments into `args`",
            {"connection.command": first, "connection.args": words},
        )
    if os.path.dirname(command):
        return Cause(
            f"There is no program at {command}.",
            "correct `command`, or install what should be there",
        )
    folders = tuple(dict.fromkeys(filter(None, path.split(os.pathsep))))[:MOST_FOLDERS]
    where = _elsewhere(command)
    if where is not None:
        return Cause(
            f"{command} is not on the PATH that servers get, but it is at {where}.",
            f"use {where} as the command, or add its folder to PATH where mcpx is started",
            {"connection.command": where},
            folders,
        )
    get = _GET.get(command.lower(), f"install {command}, or give its whole path as `command`")
    return Cause(f"{command} was not found on the PATH that servers get.", get, searched=folders)


def _found(command: str, env: Mapping[str, str], cwd: str | None) -> bool:
    try:
        return bool(find_program(command, env, cwd))
    except OSError:
        return False


def _elsewhere(command: str) -> str | None:
    """Where else on this machine it is; the newest of several versions."""
    if not re.fullmatch(r"[\w.+-]{1,100}", command):
        return None
    for home in _PROGRAM_FOLDERS:
        for folder in sorted(glob.glob(os.path.expanduser(home)), reverse=True):
            path = os.path.join(folder, command)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None


def _unstartable(spec: Stdio, problem: str) -> Cause | None:
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        return Cause(
            f"Its working folder {spec.cwd} is not there.", "correct `cwd`, or make the folder"
        )
    if "Permission denied" in problem:
        fix = (
            f"make it executable (`chmod +x {spec.command}`), or name its interpreter as the "
            "command"
        )
        return Cause(f"{spec.command} may not be run.", fix)
    if "Exec format error" in problem:
        return Cause(
            f"{spec.command} is no program for this machine, or a script without a first line "
            "that says what runs it.",
            "name its interpreter as the command, and the file as the first of `args`",
        )
    return None


_SAID: tuple[tuple[str, str, str], ...] = (
    (
        r"Log files were not written due to an error writing to the directory: (\S+)/_logs"
        r"|Failed to initialize cache at `([^`\n]+)`"
        r"|failed to create directory `([^`\n]+)`: (?:Read-only|Permission)"
        r"|EROFS[^\n]*'([^'\n]+)'",
        "The program cannot write to its package cache or data folder: {it}",
        "set npm_config_cache (npx), or UV_CACHE_DIR and UV_TOOL_DIR (uvx), to writable folders, "
        "in the server's `env` "
        "or where mcpx is started; other programs use XDG_CACHE_HOME",
    ),
    (
        r"npm (?:error|ERR!) 404 +'([^'\s]+)' is not|404 Not Found - GET \S+/([^/\s]+) -|npm \S+ "
        r"code E404()",
        "npm knows no package {it} (404).",
        "check the name of the package in `args`: spelling, and the scope (`@scope/name`)",
    ),
    (
        r"([\w.-]+) was not found in the (?:package registry|cache)",
        "The package {it} was not found in the Python package index.",
        "check the name of the package in `args`",
    ),
    (
        r"\bENOTFOUND\b|EAI_AGAIN|getaddrinfo|Temporary failure in name resolution|Name or "
        r"service not known|dns error",
        "It could not look up a name: no network, or no name server.",
        "check the network, or the proxy variables (HTTPS_PROXY) that mcpx was started with",
    ),
    (
        r"ECONNREFUSED(?:[^\n]*?([\w.:-]+:\d+))?|Connection refused",
        "Something it needs refuses connections ({it}).",
        "start what it connects to, or correct the address in its arguments or variables",
    ),
    (
        r"Cannot connect to the Docker daemon|docker daemon is not running|permission "
        r"denied[^\n]*docker\.sock",
        "Docker is there, but its daemon cannot be reached.",
        "start Docker, or let the user that runs mcpx use it (group `docker`)",
    ),
    (
        r"Unable to find image|pull access denied|manifest unknown|repository does not exist",
        "The image was not found.",
        "check the name of the image, or sign in to its registry (`docker login`)",
    ),
    (
        r"(?:Cannot find module|ModuleNotFoundError: No module named) '([^'\n]+)'",
        "It lacks a module: {it}.",
        "install what it needs, or start it by the program that brings it along (npx, uvx)",
    ),
    (
        r"can't open file '([^'\n]+)'|(?:ENOENT|FileNotFoundError)[^'\n]*'([^'\n]+)'|([^\s:]+): "
        r"No such file or",
        "A file or folder is not there: {it}",
        "correct the path in `args`; it is looked for from the folder in `cwd`",
    ),
    (
        r"(?:EACCES|PermissionError|Permission denied)[^\n]*?(?:'([^'\n]+)')?$",
        "It may not use a file or a port ({it}).",
        "give the user that runs mcpx the right to, or choose another",
    ),
    (
        r"EADDRINUSE|Address already in use",
        "A port it wants is taken by another program, or by an earlier start of itself.",
        "end the other one, or give it another port",
    ),
    (
        r"((?:[A-Z][A-Z0-9]*_)+[A-Z0-9]+)[^\n]{0,60}(?:is required|not set|is missing|must be "
        r"set|environment variable)"
        r"|(?:environment variable|missing|set the)[^\n]{0,40}?((?:[A-Z][A-Z0-9]*_)+[A-Z0-9]+)",
        "It wants the variable {it}.",
        "put it into `env` of its connection; a child gets only a few variables of the gateway's "
        "own",
    ),
    (
        r"(?:usage|error): (?:the following arguments are required: "
        r"([^\n]+)|[^\n]*(?:required|missing|expected))",
        "It was started without an argument it needs. {it}",
        "run it with `--help` in a terminal, and complete `args`",
    ),
    (
        r"Unsupported engine|requires Node|SyntaxError: Unexpected token|requires-python|requires "
        r"Python",
        "It needs a newer version of what runs it.",
        "update Node.js or Python, or name a newer one as the command",
    ),
    (
        r"SELF_SIGNED_CERT|unable to (?:get|verify)[^\n]*certificate|CERTIFICATE_VERIFY|invalid "
        r"peer certificate",
        "It does not trust the certificate of what it connects to.",
        "name the authority's file in NODE_EXTRA_CA_CERTS or SSL_CERT_FILE, in `env` or where "
        "mcpx is started",
    ),
)
"""What programs say, and what it means; the first that fits counts."""


# Addresses
# --------------------------------------------------------------------------------------------------

_ANSWERED: tuple[tuple[str, str, str], ...] = (
    (
        r"answered with HTTP \d+ and [^\n]{1,200}? instead of ",
        "{host} answers, but not with MCP.",
        "check the path: `/mcp` is usual; an address that ends in `/sse` needs `type: sse`",
    ),
    (
        r"HTTP 401|wants the gateway to sign in",
        "{host} wants to know who asks (401).",
        "sign in, if it offers that; else put a token into `headers`, or refer to an auth config "
        "(`auth`)",
    ),
    (r"HTTP 403", "{host} does not let these credentials in (403).", "use a token that has the "
                                                                     "right to"),
    (r"HTTP 407|proxy", "A proxy stands between, and lets nothing through.", "check HTTPS_PROXY "
                                                                             "and NO_PROXY"),
    (
        r"no MCP endpoint at this address \(HTTP (\d+)\)",
        "{host} answers, but there is no MCP endpoint at this path (HTTP {it}).",
        "check the path: `/mcp` is usual; an address that ends in `/sse` needs `type: sse`",
    ),
    (r"redirects to (\S+?);", "{host} sends everybody on to {it}.", "put that address into `url`"),
    (r"HTTP 429", "{host} has had too many requests of us (429).", "wait; it is tried again by "
                                                                   "itself"),
    (r"HTTP 5\d\d", "{host} has a problem of its own.", "wait, or ask whoever runs it; it is "
                                                        "tried again by itself"),
    (
        r"refused|ECONNREFUSED|Connect call failed",
        "Nothing listens at {host}.",
        "start the server, or correct host and port",
    ),
    (
        r"Name or service not known|nodename nor servname|name resolution|getaddrinfo|No address "
        r"associated",
        "There is no host named {name}, as far as this machine can look it up.",
        "check the spelling of the host, the network, and the name server",
    ),
    (
        r"self.signed|certificate verify failed|CERTIFICATE|unable to get local issuer|Hostname "
        r"mismatch|certificate",
        "The certificate of {host} is not trusted here.",
        "name the authority's file in SSL_CERT_FILE where mcpx is started; check the host in `url`",
    ),
    (
        r"WRONG_VERSION_NUMBER|wrong version number|RECORD_LAYER|SSL",
        "{host} does not speak TLS on this port.",
        "use `http://` instead of `https://`, or another port",
    ),
    (r"unreachable|No route to host", "{host} cannot be reached from here.", "check network, VPN "
                                                                             "and firewall"),
    (
        r"timed out|within [\d.]+ s|not connected after|did not complete the handshake",
        "{host} did not answer in time.",
        "check that the address is right and not behind a firewall; raise `timeout` if it is slow",
    ),
)  # fmt: skip


def _of_address(server: Server, problem: str, url: str) -> Cause | None:
    parts = urlsplit(url)
    try:
        host, name = parts.netloc.rpartition("@")[2] or url, parts.hostname or url
    except ValueError:
        host = name = url
    for pattern, cause, fix in _ANSWERED:
        if found := re.search(pattern, problem, re.IGNORECASE):
            return _filled(cause, fix, host=host, name=name, it=_first(found))
    return None


def _first(found: re.Match[str]) -> str:
    return next(filter(None, found.groups()), "")


def _filled(cause: str, fix: str, **values: str) -> Cause:
    """What was not said leaves no gap."""
    told = cause.format(**values)
    for gap, closed in ((" ()", ""), (": .", "."), ("  ", " "), (" .", ".")):
        told = told.replace(gap, closed)
    return Cause(told.strip().rstrip(":"), fix)
