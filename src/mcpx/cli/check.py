"""`mcpx check`: everything that can be known of a config without starting a server."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from mcpx.cli.how import is_strict
from mcpx.cli.serve import address, store_address
from mcpx.cli.state import state_folder
from mcpx.cli.terminal import plain, print_json
from mcpx.cli.where import overlay
from mcpx.cli.words import counted
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


def check(path: Path, options: argparse.Namespace) -> int:
    config = load_as_served(path, options, os.environ)
    binds = _binds(os.environ)
    redactor = Redactor()
    redactor.learn("config", config.secrets)
    guard = guard_warnings(config, os.environ, overlay(options))
    found = [*config.warnings, *program_warnings(config, os.environ), *guard]
    warnings = [redactor.redact(warning) for warning in found]
    for warning in warnings if not options.json else ():
        sys.stderr.write(f"warning: {warning}\n")
    if binds:
        from mcpx.front.identity.store import has_tokens

        shared = store_address(os.environ, config) is not None  # with tokens in it, perhaps
        kept = shared or has_tokens(state_folder(os.environ))
        refuse_exposure(address(options, os.environ, config)[0], config, lambda: kept)
    enabled = [server.name for server in config.mcp_servers if server.enabled]
    if options.json:
        print_json(
            {
                "config": str(path),
                "dialect": config.dialect,
                "mode": config.mode,
                "servers": [_row(server, redactor) for server in config.mcp_servers],
                "commands": [_row(command, redactor) for command in config.commands],
                "warnings": warnings,
            }
        )
        return 0
    sys.stdout.write(
        f"{plain(str(path), 4096)}: good · {config.dialect} shape · mode {config.mode}"
        f" · {len(enabled)} of {counted(len(config.mcp_servers), 'server')} enabled"
        f" · {counted(len(config.commands), 'command')}\n"
    )
    return 0


def _row(entry: Server | Command, redactor: Redactor) -> Json:
    reason = entry.switched_off
    return {
        "name": entry.name,
        "enabled": entry.enabled,
        "last_error": None if reason is None else redactor.redact(reason),
    }


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
    told_of = (config.server.auth, config.global_.audit, config.global_.traces)
    if not config.guarded and all(each is None for each in told_of):
        return []
    from mcpx.config.guard_checks import missing
    from mcpx.front.identity.store import TokenStore, Unreadable
    from mcpx.telemetry.audit import trail_file

    state = state_folder(environ)
    told: list[str] = []
    kept: list[str] = []
    try:
        kept += [token.name for token in TokenStore(state).read()]
    except (Unreadable, OSError) as problem:
        told.append(f"tokens made by 'mcpx token new' count for nothing: {problem}")
    return [*told, *missing(config, kept, trail_file(config, state, env))]
