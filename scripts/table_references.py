"""docs/metrics.md and docs/environment.md: what the program tells and reads, by name.

Both are found in the source: a metric where it is written (`text.counter("mcpx_…", …)`), a variable
wherever its name stands. What a variable is for is said here; one that is read and not said is a
mistake, one that is no longer read is not shown.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "mcpx"
FAMILIES = ("counter", "gauge", "histogram")
"""Methods that write a metric, and its type where the name says it."""

METRICS = """\
# Metrics

*Generated from the program by `scripts/references.py`.*

All that `GET /metrics` tells, in the text format of Prometheus. How labels are bounded, who sees what and what counts as
saved: [Observability](observability.md); a scrape config, alert rules and a dashboard are in
[examples/observability](../examples/observability).

| metric | type | what it is |
|---|---|---|
"""

ENVIRONMENT = """\
# Environment variables

*Checked against the program by `scripts/references.py`: every variable of its own that it reads is here.*

An option on the command line wins over its variable, the variable over the file. A `.env` file beside the config is read for
`${VAR}` in values, not for these.

| variable | option | meaning |
|---|---|---|
"""

TWINS = {
    "MCPX_CONFIG": (
        "`CONFIG`, `--config`",
        "The config file, a folder of files, or `store:` (the one that replicas keep in their "
        "store).",
    ),
    "MCPX_ENV": ("`--env`", "The overlay: `prod` lays `mcpx.prod.yaml` over `mcpx.yaml`."),
    "MCPX_TRANSPORT": ("`--transport`", "`stdio` or `http`."),
    "MCPX_HOST": ("`--host`", "The address HTTP is bound to."),
    "MCPX_PORT": ("`--port`", "Its port; 0 takes any free one."),
    "MCPX_MODE": (
        "`--mode`",
        "What clients see by default: `direct`, `inspect`, `describe`, `search` or `auto`.",
    ),
    "MCPX_PROFILE": ("`--profile`", "Over stdio: the named view the client gets."),
    "MCPX_ADMIN": ("`--admin`", "`true` starts the web UI and its API."),
    "MCPX_ADMIN_PORT": ("`--admin-port`", "Its port; 8080 by default."),
    "MCPX_STRICT": (
        "`--strict`",
        "`true`: a variable that is not set is an error of the whole config (also for `mcpx "
        "check` and `mcpx doctor`).",
    ),
    "MCPX_LOG_LEVEL": ("`--log-level`", "`DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`."),
    "MCPX_STANDALONE": (
        "`--standalone`",
        "`true`: over stdio a gateway for this client alone, in its own process.",
    ),
    "MCPX_LINGER": (
        "`--linger`",
        "Seconds that a gateway in the background stays after its last client; 60.",
    ),
    "MCPX_REGISTRY": ("", "The registry that `mcpx add` looks names up in."),
    "MCPX_SYSTEM": (
        "",
        "`portable`: no way is taken that only Linux or Unix has; how the others are tried out.",
    ),
    "MCPX_CHANNEL": (
        "",
        "`loopback`: gateways are reached by a port on this machine instead of a Unix socket, as "
        "on Windows.",
    ),
    "MCPX_ADMIN_TOKEN": (
        "",
        "The token of the admin UI and API; wins over `server.admin_token`. No option: it would "
        "stand in process lists.",
    ),
    "MCPX_STORE": (
        "",
        "Address of the store that replicas share (`redis://…`); wins over `server.store`. No "
        "option: it may hold a password.",
    ),
    "MCPX_REPLICA": (
        "",
        "What this replica is called in logs and in `/health`; the machine's name and the "
        "process's number where it is not set.",
    ),
    "MCPX_STATE_DIR": (
        "",
        "Where state is kept that is not configuration: snapshots, approvals, tokens, history, "
        "the audit trail, sockets. By default the platform's state folder (`~/.local/state/mcpx` "
        "on Linux).",
    ),
    "MCPX_KEY": (
        "",
        "The key of `enc:v1:…` values and of stored sign-ins: `mcpx secret key` makes one.",
    ),
    "MCPX_TOKEN": (
        "",
        "Read by client programs, not by mcpx: the token that their snippets refer to.",
    ),
    "MCPX_COMPLETE_LINE": (
        "",
        "Set by the shell's completion for one look at what could come next. Not to be set by "
        "hand.",
    ),
    "MCPX_TYPED_AS": (
        "",
        "Set by `scripts/demo`: the command line that hints of mcpx show. Do not set it by hand.",
    ),
    "MCPX_INSIDE": (
        "",
        "Set by mcpx for the servers it starts, so that a gateway inside itself is noticed. Not "
        "to be set by hand.",
    ),
}
"""What each is for. In the order of the page."""

OTHERS = """\

Not of its own, and read as everywhere: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY` (requests to servers and APIs), `SSL_CERT_FILE`
and `SSL_CERT_DIR` (whom to trust), `XDG_CONFIG_HOME` and `XDG_STATE_HOME` (where files are), `NO_COLOR` (no colours on a terminal).

A server that mcpx starts gets a small environment (`PATH`, `HOME`, `LANG`, `TMPDIR`, proxy and certificate settings and their
like) and what its `env` says; nothing of `MCPX_*`. `inherit_env` gives it more.
"""

READ = re.compile(r"[\"'](MCPX_[A-Z][A-Z_]*)[\"']")
"""A variable's name as a text of its own; in messages and docstrings it stands among other
words."""


def metrics() -> Iterator[tuple[str, str, str]]:
    """Name, type and help of each, in the order of the files."""
    for file in sorted((SOURCE / "telemetry").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                not isinstance(node, ast.Call)
                or not isinstance(node.func, ast.Attribute)
                or node.func.attr not in FAMILIES
            ):
                continue
            words = [
                a.value
                for a in node.args
                if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
            if not words or not re.match(r"(mcpx|process)_", words[0]):
                continue
            yield words[0], node.func.attr, words[1]


def variables() -> set[str]:
    """Every variable of its own that the program names."""
    return {
        name
        for file in SOURCE.rglob("*.py")
        for name in READ.findall(file.read_text(encoding="utf-8"))
    }


def pages() -> Mapping[str, str]:
    read = variables()
    if unsaid := read - TWINS.keys():
        raise SystemExit(
            "scripts/table_references.py does not say what these are for: "
            f"{', '.join(sorted(unsaid))}"
        )
    rows = "".join(f"| `{name}` | {kind} | {help} |\n" for name, kind, help in sorted(metrics()))
    told = "".join(
        f"| `{name}` | {option} | {meaning} |\n"
        for name, (option, meaning) in TWINS.items()
        if name in read
    )
    return {"metrics.md": METRICS + rows, "environment.md": ENVIRONMENT + told + OTHERS}
