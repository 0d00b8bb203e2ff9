"""`mcpx doctor`: every look at once, side by side, each within its time.

Promised: a look that fails or takes too long costs one sentence, and the others are told all the
same; nothing is changed, and nothing is started but a server that was named.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mcpx.cli import codes, target
from mcpx.cli.config_files import load_as_served
from mcpx.cli.doctor import clients, config, gateway, programs, server
from mcpx.cli.doctor.finding import Case, Finding, Level, warning
from mcpx.cli.output import Style, Waiting, counted, plain, print_json, styled
from mcpx.cli.running import result_of
from mcpx.cli.serve import address
from mcpx.config import Config
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.model.redaction import Redactor
from mcpx.model.state import state_folder

PATIENCE = 10.0
"""Seconds all looks together may take."""
_MARKS: dict[Level, tuple[str, str, Style]] = {
    "ok": ("✓", "ok", "green"),
    "warning": ("!", "!", "yellow"),
    "error": ("✗", "x", "red"),
}
LOOKS: Sequence[tuple[str, Callable[[Case], Iterable[Finding]]]] = (
    ("the config", config.config),
    ("file modes", config.modes),
    ("programs", programs.programs),
    ("Node", programs.node),
    ("the state folder", gateway.state),
    ("the gateway", gateway.running),
    ("the port", gateway.port),
    ("client programs", clients.look),
)


def run(options: argparse.Namespace) -> int:
    name = target.subject_of(options)
    found: list[Finding] = []
    case = _case(options, found.append)
    redactor = Redactor()
    if case.config is not None:
        redactor.learn("config", case.config.secrets)
    if name is not None:
        if case.config is None:
            raise _no_config(case, found)
        found = list(server.examined(case, case.config, server.named(case.config, name)))
    else:
        found += _looked(case)
    found = [_told(each, redactor.redact) for each in found]
    broken = sum(each.level == "error" for each in found)
    if options.json:
        print_json(_facts(case, found))
    else:
        _print(found)
    return codes.FAILED if broken else codes.DONE


def _no_config(case: Case, found: Sequence[Finding]) -> ConfigError:
    if case.path is None:
        return ConfigError(
            ["error: no config file found here; name one: mcpx doctor SERVER --config FILE"]
        )
    return ConfigError(
        [f"error: {each.what}" + (f"\n  --> {each.where}" if each.where else "") for each in found]
    )


def _case(options: argparse.Namespace, note: Callable[[Finding], None]) -> Case:
    environ, env = dict(os.environ), target.overlay(options)
    state = state_folder(environ)
    path: Path | None = None
    loaded: Config | None = None
    try:
        if (named := target.found(options)) is not None:
            path = Path(os.path.abspath(named))
            loaded = load_as_served(path, options, environ)
    except ConfigError as problem:
        for each in config.mistakes(problem):
            note(each)
    host, port = "127.0.0.1", 8000
    try:
        host, port = address(options, environ, loaded or Config())
    except ConfigError as problem:  # MCPX_PORT is none
        for each in config.mistakes(problem):
            note(each)
    status = None if path is None else result_of(_status(state, path, env))
    return Case(path, loaded, environ, state, env, status, host, port, target.words_of(options))


async def _status(state: Path, path: Path, env: str | None) -> Json | None:
    from mcpx.front.control import ask, socket_path

    answer = await ask(socket_path(state, path, env), "status", 5.0)
    return answer if answer is not None and "servers" in answer else None


def _looked(case: Case) -> list[Finding]:
    """Side by side: most of the time somebody else is waited for."""
    found: list[list[Finding] | None] = [None] * len(LOOKS)

    def look(at: int) -> None:
        what, each = LOOKS[at]
        told: list[Finding] = []
        try:
            told += each(case)
        except Exception as problem:  # noqa: BLE001  what is odd about a machine is what this is for
            told.append(
                warning(
                    "doctor", f"{what} could not be looked at: {type(problem).__name__}: {problem}"
                )
            )
        found[at] = told

    workers = [threading.Thread(target=look, args=(at,), daemon=True) for at in range(len(LOOKS))]
    until = time.monotonic() + PATIENCE
    with Waiting() as waiting:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers) and time.monotonic() < until:
            waiting.tell("looking")
            next(
                worker for worker in [*workers] if worker.is_alive() or worker is workers[-1]
            ).join(0.2)
    late = [
        warning("doctor", f"{LOOKS[at][0]}: it took too long to look")
        for at, each in enumerate(found)
        if each is None
    ]
    return [finding for each in found if each is not None for finding in each] + late


def _told(finding: Finding, redact: Callable[[str], str]) -> Finding:
    return Finding(
        finding.level,
        finding.check,
        redact(finding.what),
        redact(finding.where),
        redact(finding.fix),
        tuple(map(redact, finding.lines)),
    )


def _print(found: Sequence[Finding]) -> None:
    marks = 0 if "utf" in (sys.stdout.encoding or "utf-8").lower() else 1
    for each in found:
        mark = styled(_MARKS[each.level][marks], _MARKS[each.level][2])
        place = f" {styled(f'({plain(each.where, 300)})', 'dim')}" if each.where else ""
        sys.stdout.write(f"{mark} {each.check}: {plain(each.what, 1000)}{place}\n")
        for line in each.lines:
            sys.stdout.write(f"    {styled('|', 'dim')} {plain(line)}\n")
        if each.fix:
            sys.stdout.write(
                f"    {'fix' if each.level != 'ok' else 'next'}: {plain(each.fix, 1000)}\n"
            )
    errors, warnings = (
        sum(each.level == level for each in found) for level in ("error", "warning")
    )
    told = [f"{errors} broken"] * bool(errors) + [counted(warnings, "warning")] * bool(warnings)
    sys.stdout.write(f"{', '.join(told) or 'nothing is wrong'}\n")


def _facts(case: Case, found: Sequence[Finding]) -> Json:
    return {
        "config": None if case.path is None else str(case.path),
        "running": case.status is not None,
        "broken": sum(each.level == "error" for each in found),
        "warnings": sum(each.level == "warning" for each in found),
        "findings": [
            {
                "level": each.level,
                "check": each.check,
                "what": each.what,
                "where": each.where or None,
                "fix": each.fix or None,
                "lines": list(each.lines),
            }
            for each in found
        ],
    }
