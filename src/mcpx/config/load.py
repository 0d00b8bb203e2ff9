"""From a file to a `Config`, and to the file in the first place.

Promised: a `Config` or one `ConfigError` that holds every mistake; never another exception, never more than a
moment. Nothing is written, started or connected.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mcpx.config.checks import check, secret_warnings
from mcpx.config.dialects import CLIENT_DIALECTS, TOP_KEYS, detect, translate
from mcpx.config.environment import Environment, client_words, expand
from mcpx.config.problems import Findings, GaveUpError, config_error
from mcpx.config.schema import Config
from mcpx.config.settle import settle
from mcpx.config.source import Source, UnreadableError, read_text
from mcpx.config.tree import is_extra
from mcpx.config.validate import build
from mcpx.model.errors import ConfigError

WORKING_FOLDER_NAMES = ("mcpx.yaml", "config.yaml", "config.json")

_UNMISTAKABLE = ("mcp_servers", "mcpServers", "auth_configs")
"""Top keys only an MCP program uses. `server`, `mode` and the like stand in many another program's file."""


def load(path: Path, environ: Mapping[str, str]) -> Config:
    findings = Findings()
    source = Source(path)
    config = None
    try:
        config = _load(source, environ, findings)
    except GaveUpError:
        pass
    if config is None or findings:
        raise config_error(findings, source)
    return config


def _load(source: Source, environ: Mapping[str, str], findings: Findings) -> Config | None:
    written = source.parse(findings)
    path = Path(os.path.abspath(source.path))
    folder = path.parent
    is_client = detect(written) in CLIENT_DIALECTS
    environment = Environment(environ, folder, client_words(environ, folder) if is_client else None)
    ours = {*TOP_KEYS, "mcpServers", "servers"} if is_client else None
    translation = translate(expand(written, environment, findings, ours), findings)
    tree = settle(translation, folder)
    origins = translation.origins
    told = findings.through(origins)
    warnings = check(tree, told)
    config = build(Config, tree, told, lambda native: source.literal(origins[native]))
    if config is None:
        return None
    warnings += environment.warnings + _passed_over(translation.passed_over, path)
    warnings += secret_warnings(written, path)
    return replace(config, dialect=translation.dialect, path=path, warnings=tuple(warnings))


def _passed_over(keys: list[str], path: Path) -> list[str]:
    if not keys:
        return []
    names = list(dict.fromkeys(keys))
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return [f"{path.name}: keys mcpx does not know are passed over: {', '.join(names[:10])}{more}"]


def find(argument: str | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The file to load (RUN-2); None when there is none and the demo shall run."""
    for name, origin in ((argument, ""), (environ.get("MCPX_CONFIG"), " (named by MCPX_CONFIG)")):
        if name:
            path = cwd / os.path.expanduser(name)
            if not os.path.exists(path):
                raise ConfigError([f"error: {name}{origin} does not exist"])
            return path
    for name in WORKING_FOLDER_NAMES:
        if _is_ours(cwd / name):
            return cwd / name
    folder = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = Path(folder, "mcpx", "config.yaml")
    return path if os.path.isfile(path) else None


def _is_ours(path: Path) -> bool:
    """Whether a file under a common name is meant for us: others have a `config.json` too."""
    if not os.path.isfile(path):
        return False
    try:
        keys = {key for key in Source(path).parse(Findings()) if not is_extra(key)}
    except GaveUpError:
        try:
            text = read_text(path)
        except UnreadableError:
            return False
        return any(key in text for key in _UNMISTAKABLE)  # ours and broken: worth saying so
    return bool(keys.intersection(_UNMISTAKABLE)) or (bool(keys) and keys <= {*TOP_KEYS, "servers", "inputs"})
