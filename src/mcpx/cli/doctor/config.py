"""The config itself: whether it can be used, what in it is off and why, and who may read its
secrets."""

import os
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from mcpx.cli.config_files import guard_warnings
from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.cli.output import counted
from mcpx.config import Command, Config, Server, refuse_exposure
from mcpx.config.problems import Refused
from mcpx.config.tree import shorten
from mcpx.model.errors import ConfigError

_WIDE = "and others may read it"
"""What a warning of the config says of a file that is looked at here anyway."""


def mistakes(problem: ConfigError) -> Iterator[Finding]:
    """Why a config cannot be used."""
    told = problem.told if isinstance(problem, Refused) else ()
    for each in told:
        place = ":".join(str(part) for part in (each.file, each.line, each.column) if part)
        yield error(
            "config", each.message, place, fix=each.hint or "mend it; mcpx check shows the line"
        )
    if not told:
        for line in problem.problems:
            first, _, rest = line.removeprefix("error: ").partition("\n")
            yield error("config", first, fix=" ".join(rest.split()))


def config(case: Case) -> Iterator[Finding]:
    if case.path is None:
        yield ok(
            "config",
            "there is none: 'mcpx' would run the built-in demo",
            fix="mcpx import, or mcpx add ANYTHING",
        )
        return
    if case.config is None:
        return  # `mistakes` were told
    path, loaded = str(case.path), case.config
    servers, commands = loaded.mcp_servers, loaded.commands
    on = sum(server.enabled for server in servers)
    facts = (
        f"{on} of {counted(len(servers), 'server')} on, {counted(len(commands), 'command')}, "
        f"mode {loaded.mode}"
    )
    yield ok("config", f"it is good: {facts}", path)
    disabled = tuple(
        f"{noun} {shorten(each.name)!r} is switched off: " for noun, each in _disabled(loaded)
    )
    yield from _switched_off(loaded, case)
    for line in (*loaded.warnings, *guard_warnings(loaded, case.environ, case.env)):
        if _WIDE not in line and not line.startswith(disabled):
            yield warning("config", line, path)
    yield from _exposed(case, loaded)


_NO_VALUE: tuple[tuple[str, str], ...] = (
    (
        r"variable (\w+) is not set",
        "set {name} in {env_file}, or in the environment in which mcpx starts",
    ),
    (r"the keyring has no secret '([^']+)'", "mcpx secret set {name}"),
    (r"file '([^']+)' ", "create the file {name}, or correct its path"),
)
"""Reasons that `config.environment` gives for an entry without a value, and the fix for each."""


def _disabled(loaded: Config) -> Iterator[tuple[str, Server | Command]]:
    """The entries that a value disables which cannot be looked up, each with its noun."""
    for noun, entries in (("server", loaded.mcp_servers), ("command", loaded.commands)):
        for each in entries:
            if each.switched_off is not None:
                yield noun, each


def _switched_off(loaded: Config, case: Case) -> Iterator[Finding]:
    """Warnings, as for `check` and `serve`: the other entries work."""
    for noun, each in _disabled(loaded):
        reason = each.switched_off or ""
        yield warning(
            "config",
            f"it is switched off: {reason}",
            f"{noun} {each.name}",
            fix=_fix_of(reason, case),
        )


def _fix_of(reason: str, case: Case) -> str:
    folder = Path() if case.path is None else case.path if case.path.is_dir() else case.path.parent
    for pattern, fix in _NO_VALUE:
        if found := re.search(pattern, reason):
            return fix.format(name=found[1], env_file=folder / ".env")
    return f"{case.command('check')} shows the line"


def _exposed(case: Case, loaded: Config) -> Iterator[Finding]:
    from mcpx.front.identity.store import has_tokens
    from mcpx.model.state import state_folder

    try:
        refuse_exposure(case.host, loaded, lambda: has_tokens(state_folder(case.environ)))
    except ConfigError as problem:
        first, _, rest = problem.problems[0].removeprefix("error: ").partition("\n")
        yield error("config", first, fix=" ".join(rest.split()))


def modes(case: Case) -> Iterator[Finding]:
    """Files with secrets in them that others may read."""
    if os.name != "posix" or case.path is None:
        return
    from mcpx.config.checks import secret_warnings
    from mcpx.config.edits import Where
    from mcpx.config.written import read_written

    written = read_written(Where(case.path, case.environ, case.env))
    files = [
        sheet.path
        for sheet in written.sheets
        if sheet.tree and secret_warnings(sheet.tree, sheet.path)
    ]
    folder = case.path if case.path.is_dir() else case.path.parent
    for file in (*files, folder / ".env"):
        try:
            found = os.stat(file)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
            what = (
                f"it holds secrets, and others may read it (mode {stat.S_IMODE(found.st_mode):04o})"
            )
            yield warning("config", what, str(file), fix=f"chmod 600 {shlex.quote(str(file))}")
