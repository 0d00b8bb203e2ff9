"""The causes that are known, by code: what a program or an address says, what it means, and what to do about it.

Values stand in `{}`. A translation has words for each code of `all_words`.
"""

from collections.abc import Mapping

GET = {
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

KNOWN: Mapping[str, tuple[str, str]] = {
    "switched_off": (
        "It is switched off: its entry needs something that is not there: {it}",
        "set what is missing where mcpx is started, then reload",
    ),
    "not_mcp": (
        "The program runs, but what it prints is not MCP.",
        "check its arguments: many programs need one (`mcp`, `serve`, `--stdio`) to speak MCP on standard output",
    ),
    "slow_install": (
        "{it} had not finished within {seconds} s; the first time it downloads what it runs.",
        "try again, or give it more time (`timeout: 120`)",
    ),
    "no_answer": (
        "The program did not answer within {seconds} s.",
        "check its arguments and its log; raise `timeout` if it is slow to start",
    ),
    "ended": (
        "The program ended by itself. The last it wrote: {it}",
        "run the same command in a terminal: it shows what it needs (arguments, a variable, a file)",
    ),
    "ended_silently": (
        "The program ended by itself. It wrote nothing to standard error.",
        "run the same command in a terminal: it shows what it needs (arguments, a variable, a file)",
    ),
    "one_word": (
        "{it} was taken for the name of one program.",
        "put the arguments into `args`",
    ),
    "no_program": (
        "There is no program at {it}.",
        "correct `command`, or install what should be there",
    ),
    "elsewhere": (
        "{it} is not on the PATH that servers get, but it is at {where}.",
        "use {where} as the command, or add its folder to PATH where mcpx is started",
    ),
    "get": (
        "{it} was not found on the PATH that servers get.",
        "install it",
    ),
    "not_found": (
        "{it} was not found on the PATH that servers get.",
        "install {it}, or give its whole path as `command`",
    ),
    "no_folder": (
        "Its working folder {it} is not there.",
        "correct `cwd`, or make the folder",
    ),
    "not_executable": (
        "{it} may not be run.",
        "make it executable (`chmod +x {it}`), or name its interpreter as the command",
    ),
    "no_format": (
        "{it} is no program for this machine, or a script without a first line that says what runs it.",
        "name its interpreter as the command, and the file as the first of `args`",
    ),
}
"""Cause and fix by code; `get` is the cause alone, what to get stands in `GET`."""

SAID: tuple[tuple[str, str, str, str], ...] = (
    (
        r"npm (?:error|ERR!) 404 +'([^'\s]+)' is not|404 Not Found - GET \S+/([^/\s]+) -|npm \S+ code E404()",
        "no_npm_package",
        "npm knows no package {it} (404).",
        "check the name of the package in `args`: spelling, and the scope (`@scope/name`)",
    ),
    (
        r"([\w.-]+) was not found in the (?:package registry|cache)",
        "no_python_package",
        "The package {it} was not found in the Python package index.",
        "check the name of the package in `args`",
    ),
    (
        r"\bENOTFOUND\b|EAI_AGAIN|getaddrinfo|Temporary failure in name resolution|Name or service not known|dns error",
        "no_name",
        "It could not look up a name: no network, or no name server.",
        "check the network, or the proxy variables (HTTPS_PROXY) that mcpx was started with",
    ),
    (
        r"ECONNREFUSED(?:[^\n]*?([\w.:-]+:\d+))?|Connection refused",
        "refused",
        "Something it needs refuses connections ({it}).",
        "start what it connects to, or correct the address in its arguments or variables",
    ),
    (
        r"Cannot connect to the Docker daemon|docker daemon is not running|permission denied[^\n]*docker\.sock",
        "docker_daemon",
        "Docker is there, but its daemon cannot be reached.",
        "start Docker, or let the user that runs mcpx use it (group `docker`)",
    ),
    (
        r"Unable to find image|pull access denied|manifest unknown|repository does not exist",
        "no_image",
        "The image was not found.",
        "check the name of the image, or sign in to its registry (`docker login`)",
    ),
    (
        r"(?:Cannot find module|ModuleNotFoundError: No module named) '([^'\n]+)'",
        "no_module",
        "It lacks a module: {it}.",
        "install what it needs, or start it by the program that brings it along (npx, uvx)",
    ),
    (
        r"can't open file '([^'\n]+)'|(?:ENOENT|FileNotFoundError)[^'\n]*'([^'\n]+)'|([^\s:]+): No such file or",
        "no_file",
        "A file or folder is not there: {it}",
        "correct the path in `args`; it is looked for from the folder in `cwd`",
    ),
    (
        r"(?:EACCES|PermissionError|Permission denied)[^\n]*?(?:'([^'\n]+)')?$",
        "no_right",
        "It may not use a file or a port ({it}).",
        "give the user that runs mcpx the right to, or choose another",
    ),
    (
        r"EADDRINUSE|Address already in use",
        "port_taken",
        "A port it wants is taken by another program, or by an earlier start of itself.",
        "end the other one, or give it another port",
    ),
    (
        r"((?:[A-Z][A-Z0-9]*_)+[A-Z0-9]+)[^\n]{0,60}(?:is required|not set|is missing|must be set|environment variable)"
        r"|(?:environment variable|missing|set the)[^\n]{0,40}?((?:[A-Z][A-Z0-9]*_)+[A-Z0-9]+)",
        "no_variable",
        "It wants the variable {it}.",
        "put it into `env` of its connection; a child gets only a few variables of the gateway's own",
    ),
    (
        r"(?:usage|error): (?:the following arguments are required: ([^\n]+)|[^\n]*(?:required|missing|expected))",
        "no_argument",
        "It was started without an argument it needs. {it}",
        "run it with `--help` in a terminal, and complete `args`",
    ),
    (
        r"Unsupported engine|requires Node|SyntaxError: Unexpected token|requires-python|requires Python",
        "too_old",
        "It needs a newer version of what runs it.",
        "update Node.js or Python, or name a newer one as the command",
    ),
    (
        r"SELF_SIGNED_CERT|unable to (?:get|verify)[^\n]*certificate|CERTIFICATE_VERIFY|invalid peer certificate",
        "no_trust",
        "It does not trust the certificate of what it connects to.",
        "name the authority's file in NODE_EXTRA_CA_CERTS or SSL_CERT_FILE, in `env` or where mcpx is started",
    ),
)
"""What programs say, and what it means; the first that fits counts."""

ANSWERED: tuple[tuple[str, str, str, str], ...] = (
    (
        r"HTTP 401|wants the gateway to sign in",
        "unauthorized",
        "{host} wants to know who asks (401).",
        "sign in, if it offers that; else put a token into `headers`, or refer to an auth config (`auth`)",
    ),
    (
        r"HTTP 403",
        "forbidden",
        "{host} does not let these credentials in (403).",
        "use a token that has the right to",
    ),
    (
        r"HTTP 407|proxy",
        "proxy",
        "A proxy stands between, and lets nothing through.",
        "check HTTPS_PROXY and NO_PROXY",
    ),
    (
        r"no MCP endpoint at this address \(HTTP (\d+)\)",
        "no_endpoint",
        "{host} answers, but there is no MCP endpoint at this path (HTTP {it}).",
        "check the path: `/mcp` is usual; an address that ends in `/sse` needs `type: sse`",
    ),
    (
        r"redirects to (\S+?);",
        "redirected",
        "{host} sends everybody on to {it}.",
        "put that address into `url`",
    ),
    (
        r"HTTP 429",
        "too_many",
        "{host} has had too many requests of us (429).",
        "wait; it is tried again by itself",
    ),
    (
        r"HTTP 5\d\d",
        "their_problem",
        "{host} has a problem of its own.",
        "wait, or ask whoever runs it; it is tried again by itself",
    ),
    (
        r"refused|ECONNREFUSED|Connect call failed",
        "nothing_listens",
        "Nothing listens at {host}.",
        "start the server, or correct host and port",
    ),
    (
        r"Name or service not known|nodename nor servname|name resolution|getaddrinfo|No address associated",
        "no_host",
        "There is no host named {name}, as far as this machine can look it up.",
        "check the spelling of the host, the network, and the name server",
    ),
    (
        r"self.signed|certificate verify failed|CERTIFICATE|unable to get local issuer|Hostname mismatch|certificate",
        "certificate",
        "The certificate of {host} is not trusted here.",
        "name the authority's file in SSL_CERT_FILE where mcpx is started; check the host in `url`",
    ),
    (
        r"WRONG_VERSION_NUMBER|wrong version number|RECORD_LAYER|SSL",
        "no_tls",
        "{host} does not speak TLS on this port.",
        "use `http://` instead of `https://`, or another port",
    ),
    (
        r"unreachable|No route to host",
        "unreachable",
        "{host} cannot be reached from here.",
        "check network, VPN and firewall",
    ),
    (
        r"timed out|within [\d.]+ s|not connected after|did not complete the handshake",
        "timed_out",
        "{host} did not answer in time.",
        "check that the address is right and not behind a firewall; raise `timeout` if it is slow",
    ),
)  # fmt: skip
"""What is said of an address, and what it means; the first that fits counts."""


def all_words() -> dict[str, tuple[str, str]]:
    """Cause and fix by their code, with `{}` where a value stands; a translation has one of each."""
    gets = {f"get_{name}": (KNOWN["get"][0], fix) for name, fix in GET.items()}
    known = {code: words for code, words in KNOWN.items() if code != "get"}
    return {**known, **gets, **{code: (cause, fix) for _, code, cause, fix in (*SAID, *ANSWERED)}}
