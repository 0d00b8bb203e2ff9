"""`mcpx doctor`: all checks side by side, each within its time (RUN-4).

A check that fails or takes too long costs one sentence, and the others are reported. Doctor changes
nothing, and starts nothing but a server that is named.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mcpx.cli import codes
from mcpx.cli.config_files import load_as_served
from mcpx.cli.doctor import clients, config, gateway, servers
from mcpx.cli.doctor.finding import Case, Finding, count, facts, print_findings, warning
from mcpx.cli.output import Waiting, print_json
from mcpx.cli.running import mistake
from mcpx.cli.serve import address
from mcpx.cli.target import Target, found, subject_of
from mcpx.config import Config
from mcpx.model.errors import ConfigError
from mcpx.model.redaction import Redactor

PATIENCE_SECONDS = 10.0
"""For all checks together."""
CHECKS: Sequence[tuple[str, str, Callable[[Case], Iterable[Finding]]]] = (
    ("config", "the config", config.config),
    ("config", "file modes", config.modes),
    ("program", "programs", servers.programs),
    ("node", "Node", servers.node),
    ("state", "the state folder", gateway.state),
    ("gateway", "the gateway", gateway.running),
    ("port", "the port", gateway.port),
    ("client", "client programs", clients.clients),
)


def run(options: argparse.Namespace) -> int:
    name = subject_of(options)
    case, mistakes = _case(options)
    if name is None:
        findings = [*_named("config", mistakes), *_examined(case)]
    elif case.config is None:
        raise _no_config(case, mistakes)
    else:
        server = servers.named(case.servers, name)
        findings = list(_named("server", servers.examined(case, case.config, server)))
    redactor = Redactor()
    if case.config is not None:
        redactor.learn("config", case.config.secrets)
    findings = [_redacted(each, redactor.redact) for each in findings]
    if options.json:
        print_json(facts(case, findings))
    else:
        print_findings(findings)
    return codes.code_if(count(findings, "error"), codes.FAILED)


def _no_config(case: Case, mistakes: Sequence[Finding]) -> ConfigError:
    if case.path is None:
        return mistake("no config file found here; name one: mcpx doctor SERVER --config FILE")
    where = [f"\n  --> {each.where}" * bool(each.where) for each in mistakes]
    return ConfigError(
        [f"error: {each.what}{at}" for each, at in zip(mistakes, where, strict=True)]
    )


def _case(options: argparse.Namespace) -> tuple[Case, list[Finding]]:
    """What is known, and the mistakes in the config and in the environment."""
    environ, target = dict(os.environ), Target(None, options)
    loaded: Config | None = None
    mistakes: list[Finding] = []
    try:
        path = found(options)
        if path is not None:
            target.path = Path(os.path.abspath(path))
            loaded = load_as_served(target.path, options, environ)
    except ConfigError as problem:
        mistakes += config.mistakes(problem)
    host, port = "127.0.0.1", 8000
    try:
        host, port = address(options, environ, loaded or Config())
    except ConfigError as problem:  # Of MCPX_PORT.
        mistakes += config.mistakes(problem)
    status = target.ask_now("status", 5.0)
    if status is not None and "servers" not in status:
        status = None
    return Case(
        path=target.path,
        config=loaded,
        environ=environ,
        state=target.state,
        env=target.env,
        status=status,
        host=host,
        port=port,
        words=target.words,
    ), mistakes


def _examined(case: Case) -> list[Finding]:
    """In threads, because the checks wait for other programs most of the time."""
    results: list[list[Finding] | None] = [None] * len(CHECKS)

    def work(at: int) -> None:
        name, title, check = CHECKS[at]
        findings: list[Finding] = []
        try:
            findings += _named(name, check(case))
        except Exception as problem:  # noqa: BLE001  A machine may be odd in any way.
            what = f"{title} could not be looked at: {type(problem).__name__}: {problem}"
            findings.append(warning(what, check="doctor"))
        results[at] = findings

    workers = [threading.Thread(target=work, args=(at,), daemon=True) for at in range(len(CHECKS))]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    with Waiting() as waiting:
        for worker in workers:
            while worker.is_alive() and time.monotonic() < deadline:
                waiting.tell("looking")
                worker.join(0.2)
    findings: list[Finding] = []
    late: list[Finding] = []
    for (_, title, _), result in zip(CHECKS, results, strict=True):
        if result is None:
            late.append(warning(f"{title}: it took too long to look", check="doctor"))
        else:
            findings += result
    return findings + late


def _named(check: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    for each in findings:
        yield replace(each, check=each.check or check)


def _redacted(finding: Finding, redact: Callable[[str], str]) -> Finding:
    return replace(
        finding,
        what=redact(finding.what),
        where=redact(finding.where),
        fix=redact(finding.fix),
        lines=tuple(map(redact, finding.lines)),
    )
