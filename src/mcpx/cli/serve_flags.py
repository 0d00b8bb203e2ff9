"""How `mcpx [CONFIG]` runs, by its flags and environment. A bridge imports this module.

The answers are the same as those of the whole program (RUN-2).
"""

import argparse
import os
import re
import stat
from collections.abc import Collection, Mapping

from mcpx.cli.running import mistake

LINGER_SECONDS = 60.0
"""How long a gateway in the background stays after its last client."""
MAX_LINGER_SECONDS = 7 * 24 * 3600.0
TRUE, FALSE = ("true", "1"), ("false", "0")


def by_stdio(options: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    wanted = options.transport or choice(environ, "MCPX_TRANSPORT", ("stdio", "http"))
    if wanted is not None:
        return wanted == "stdio"
    return options.host is None and options.port is None and _started_by_a_client()


def _started_by_a_client() -> bool:
    """Whether standard input is a pipe, a socket (Node programs give one), or a file (RUN-2)."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def choice(environ: Mapping[str, str], name: str, allowed: Collection[str]) -> str | None:
    value = environ.get(name)
    if value and value not in allowed:
        raise mistake(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
    return value or None


def is_strict(options: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """`--strict`, or MCPX_STRICT: an unset variable of a server or command is an error."""
    by_flag = getattr(options, "strict", False)
    return by_flag or choice(environ, "MCPX_STRICT", ("true", "false")) == "true"


def is_standalone(options: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """`--standalone`: no other gateway is looked for, and none is started in the background."""
    return options.standalone or choice(environ, "MCPX_STANDALONE", (*TRUE, *FALSE)) in TRUE


def linger(options: argparse.Namespace, environ: Mapping[str, str]) -> float:
    given, name = options.linger, "--linger"
    if given is None:
        given, name = environ.get("MCPX_LINGER") or None, "MCPX_LINGER"
    if given is None:
        return LINGER_SECONDS
    is_number = re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", given) is not None
    if is_number and float(given) <= MAX_LINGER_SECONDS:
        return float(given)
    raise mistake(
        f"{name} is {given[:40]!r}; it is a number of seconds, a week "
        f"({MAX_LINGER_SECONDS:.0f}) at most"
    )
