"""`mcpx check`, `export`, and `config`: the configuration file itself.

They start no server.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from mcpx.cli import codes
from mcpx.cli.change import ConfigChange, print_warnings
from mcpx.cli.output import Output, Table, counted, plain, print_json, say
from mcpx.cli.running import mistake, warn
from mcpx.cli.serve import address, store_address
from mcpx.cli.serve_flags import is_strict
from mcpx.cli.target import overlay, required
from mcpx.config import (
    Command,
    Config,
    Server,
    load,
    program_warnings,
    refuse_exposure,
    without_itself,
)
from mcpx.model.call import Json
from mcpx.model.redaction import Redactor
from mcpx.model.state import state_folder
from mcpx.wire.exchange import whole_number


def check(options: argparse.Namespace) -> int:
    """Report everything that can be known of a config without starting a server (CFG-8)."""
    path = required(options, "check")
    config = load_as_served(path, options, os.environ)
    redactor = Redactor()
    redactor.learn("config", config.secrets)
    guard = guard_warnings(config, os.environ, overlay(options))
    found = [*config.warnings, *program_warnings(config, os.environ), *guard]
    warnings = list(map(redactor.redact, found))
    if not options.json:
        for warning in warnings:
            warn(f"warning: {warning}")
    if _binds(os.environ):
        _refuse_exposure(options, config)
    servers, commands = config.mcp_servers, config.commands
    enabled = sum(server.enabled for server in servers)
    Output(options.json).result(
        {
            "config": str(path),
            "dialect": config.dialect,
            "mode": config.mode,
            "servers": [_row(server, redactor) for server in servers],
            "commands": [_row(command, redactor) for command in commands],
            "warnings": warnings,
        },
        f"{plain(str(path), 4096)}: good · {config.dialect} shape · mode {config.mode} · {enabled} "
        f"of {counted(len(servers), 'server')} enabled · {counted(len(commands), 'command')}",
    )
    return codes.DONE


def _refuse_exposure(options: argparse.Namespace, config: Config) -> None:
    from mcpx.front.identity.store import has_tokens

    # The store may contain tokens.
    has = store_address(os.environ, config) is not None or has_tokens(state_folder(os.environ))
    refuse_exposure(address(options, os.environ, config)[0], config, lambda: has)


def _row(entry: Server | Command, redactor: Redactor) -> Json:
    reason = entry.switched_off
    error = reason and redactor.redact(reason)
    return {"name": entry.name, "enabled": entry.enabled, "last_error": error}


def load_as_served(path: Path, options: argparse.Namespace, environ: Mapping[str, str]) -> Config:
    """The configuration as `serve` would run it. Raises `ConfigError` where `serve` would not
    start."""
    config = load(path, environ, overlay(options), strict=is_strict(options, environ))
    if not _binds(environ):
        return config
    return without_itself(config, *address(options, environ, config))


def _binds(environ: Mapping[str, str]) -> bool:
    return environ.get("MCPX_TRANSPORT") != "stdio"


def guard_warnings(config: Config, environ: Mapping[str, str], env: str | None) -> list[str]:
    """Parts of the authentication, policy, and audit settings that cannot work on this machine."""
    settings = (config.server.auth, config.global_.audit, config.global_.traces)
    if not config.guarded and settings == (None, None, None):
        return []
    from mcpx.config.guard_checks import missing
    from mcpx.front.identity.store import TokenStore, Unreadable
    from mcpx.telemetry.audit import trail_file

    state = state_folder(environ)
    warnings: list[str] = []
    tokens: list[str] = []
    try:
        tokens += [token.name for token in TokenStore(state).read()]
    except (Unreadable, OSError) as problem:
        warnings.append(f"tokens made by 'mcpx token new' count for nothing: {problem}")
    return [*warnings, *missing(config, tokens, trail_file(config, state, env))]


def export(options: argparse.Namespace) -> int:
    """Write the configuration without its secrets, and name the variables that replace them."""
    from mcpx.config.exports import export as exported
    from mcpx.imports.imported import to_file

    change = ConfigChange(required(options, "export"), overlay(options), options)
    made = exported(change.require_readable(), options.format)
    facts = {"variables": made.variables, "warnings": list(made.warnings)}
    out = Output(options.json)
    if options.output:
        file = Path(options.output)
        to_file(file, made.text, force=options.force)
        out.result({"file": str(file), **facts})
    else:
        out.result({"config": made.text, **facts}, *made.text.splitlines())
    if out.json:
        return codes.DONE
    if options.output:
        warn(f"written to {plain(options.output, 4096)}")
    print_warnings(made.warnings)
    for name, place in made.variables.items():
        warn(f"to be set: {plain(name, 100)}, for {plain(place, 200)}")
    return codes.DONE


def run(options: argparse.Namespace) -> int:
    """`mcpx config`: revisions of the config, and the config of all replicas."""
    if options.action == "push":
        from mcpx.cli.shared import push

        return push(options)
    path = required(options, "config history --config")
    change = ConfigChange(path, overlay(options), options)
    if options.action == "history":
        return _history(change)
    return _rollback(change, options.what or "")


def _history(change: ConfigChange) -> int:
    found = change.alone.revisions()
    if change.json:
        rows = [{**asdict(revision), "kept": kept} for revision, kept in found]
        print_json({"config": str(change.path), "revisions": rows})
        return codes.DONE
    if not found:
        say(f"nothing is kept of {change.shown}")
        return codes.DONE
    table = Table("NUMBER", "WHEN", "BY", "WHAT")
    for revision, kept in found:
        what = plain(revision.message or revision.plan)
        what += "" if kept else " (its text is not kept)"
        table.add(str(revision.number), revision.at, plain(revision.by, 40), what)
    table.print()
    return codes.DONE


def _rollback(change: ConfigChange, word: str) -> int:
    number = whole_number(word)
    if number is None:
        raise mistake("say which: mcpx config rollback NUMBER; 'mcpx config history' lists them")
    proposal = change.propose(change.alone.texts(number))
    if not proposal.texts:
        facts: Json = {"config": str(change.path), "changed": False}
        Output(change.json).result(facts, f"{change.shown} says that already")
        return codes.DONE
    result = change.run(proposal, f"back to revision {number}")
    if isinstance(result, int):
        return result
    line = f"{change.shown} says again what it said in revision {number}"
    return change.report(result, {"changed": True}, line)
