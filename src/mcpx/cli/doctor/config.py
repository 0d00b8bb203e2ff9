"""The configuration: whether it can be used, what it disables and why, and who may read its
secrets."""

import os
import re
import shlex
import stat
from collections.abc import Iterator

from mcpx.cli.config_files import guard_warnings
from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.cli.output import counted
from mcpx.config import refuse_exposure
from mcpx.config.problems import Refused
from mcpx.config.tree import shorten
from mcpx.model.errors import ConfigError

_READABLE = "and others may read it"
"""Part of a warning of the config. `modes` reports these files."""
_NO_VALUE = {
    r"variable (\w+) is not set": (
        "set {name} in {env_file}, or in the environment in which mcpx starts"
    ),
    r"the keyring has no secret '([^']+)'": "mcpx secret set {name}",
    r"file '([^']+)' ": "create the file {name}, or correct its path",
}
"""Reasons that `config.environment` gives for an entry without a value, and the fix for each."""


def mistakes(problem: ConfigError) -> Iterator[Finding]:
    """Why a config cannot be used."""
    if not isinstance(problem, Refused) or not problem.told:
        yield from map(_mistake, problem.problems)
        return
    for each in problem.told:
        place = ":".join(str(part) for part in (each.file, each.line, each.column) if part)
        yield error(each.message, place, fix=each.hint or "mend it; mcpx check shows the line")


def _mistake(problem: str) -> Finding:
    first, _, rest = problem.removeprefix("error: ").partition("\n")
    return error(first, fix=" ".join(rest.split()))


def config(case: Case) -> Iterator[Finding]:
    loaded = case.config
    if case.path is None:
        fix = "mcpx import, or mcpx add ANYTHING"
        yield ok("there is none: 'mcpx' would run the built-in demo", fix=fix)
    if case.path is None or loaded is None:
        return  # Its mistakes are reported already.
    path, on = str(case.path), sum(server.enabled for server in loaded.mcp_servers)
    servers, commands = len(loaded.mcp_servers), len(loaded.commands)
    counts = f"{on} of {counted(servers, 'server')} on, {counted(commands, 'command')}"
    yield ok(f"it is good: {counts}, mode {loaded.mode}", path)
    known: list[str] = []
    for noun, entries in (("server", loaded.mcp_servers), ("command", loaded.commands)):
        for each in entries:
            if each.switched_off is None:
                continue
            known.append(f"{noun} {shorten(each.name)!r} is switched off: ")
            what = f"it is switched off: {each.switched_off}"
            yield warning(what, f"{noun} {each.name}", fix=_fix_of(each.switched_off, case))
    for line in (*loaded.warnings, *guard_warnings(loaded, case.environ, case.env)):
        if _READABLE not in line and not line.startswith(tuple(known)):
            yield warning(line, path)
    from mcpx.front.identity.store import has_tokens

    try:
        refuse_exposure(case.host, loaded, lambda: has_tokens(case.state))
    except ConfigError as problem:
        yield _mistake(problem.problems[0])


def _fix_of(reason: str, case: Case) -> str:
    for pattern, fix in _NO_VALUE.items():
        if found := re.search(pattern, reason):
            return fix.format(name=found[1], env_file=case.folder / ".env")
    return f"{case.command('check')} shows the line"


def modes(case: Case) -> Iterator[Finding]:
    """Files with secrets that other users may read."""
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
    for file in (*files, case.folder / ".env"):
        try:
            found = os.stat(file)
        except OSError:
            continue
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISREG(found.st_mode) and mode & 0o077:
            what = f"it holds secrets, and others may read it (mode {mode:04o})"
            yield warning(what, str(file), fix=f"chmod 600 {shlex.quote(str(file))}")
