"""From a file or several to one `Config`, and to the file in the first place.

Promised: a `Config` or one `ConfigError` that holds every mistake; never another exception, never more than a
moment. Nothing is written, started or connected.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from mcpx.config.checks import check, secret_warnings
from mcpx.config.dialects import CLIENT_DIALECTS, TOP_KEYS, Reading, Translation, detect, translate
from mcpx.config.environment import Environment, client_words, expand, peek
from mcpx.config.files import find_files
from mcpx.config.merge import join, lay
from mcpx.config.nodes import MAX_NODES
from mcpx.config.problems import Findings, GaveUpError, Refused, tell
from mcpx.config.schema import Config, Dialect
from mcpx.config.settle import settle
from mcpx.config.source import MAX_BYTES, Source, UnreadableError, read_text
from mcpx.config.tree import Tree, children, is_extra
from mcpx.config.unapplied import unapplied
from mcpx.config.validate import build
from mcpx.model.errors import ConfigError

WORKING_FOLDER_NAMES = ("mcpx.yaml", "config.yaml", "config.json")

_UNMISTAKABLE = ("mcp_servers", "mcpServers", "auth_configs")
"""Top keys only an MCP program uses. `server`, `mode` and the like stand in many another program's file."""


Written = tuple[Source, Tree]
"""A file and what it says."""


def load(path: Path, environ: Mapping[str, str], env: str | None = None) -> Config:
    """The file, or the files of a folder, under the overlays of an environment: `env`, or else `MCPX_ENV` (CFG-7)."""
    findings = Findings(Source(path).trace)
    looked_for: list[Path] = []
    config = None
    try:
        config = _load(path, environ, env or environ.get("MCPX_ENV"), findings, looked_for)
    except GaveUpError:
        pass
    sources = tuple(dict.fromkeys(Path(os.path.abspath(file)) for file in looked_for))
    if config is None or findings:
        raise Refused(tell(findings), sources)
    return replace(config, sources=sources)


def _load(
    path: Path, environ: Mapping[str, str], env: str | None, findings: Findings, looked_for: list[Path]
) -> Config | None:
    looked_for.append(path)
    files = find_files(path, env, findings)
    looked_for += files.looked_for
    gave_up = bool(findings)
    written = _parse([*files.base, *files.overlays], findings)
    if gave_up or len(written) < len(files.base) + len(files.overlays):
        raise GaveUpError
    warnings = files.warnings + [line for source, tree in written for line in secret_warnings(tree, source.path)]
    where = Path(os.path.abspath(path))
    folder = where if os.path.isdir(where) else where.parent
    is_client = any(detect(tree) in CLIENT_DIALECTS for _, tree in written)
    words = client_words(environ, folder) if is_client else {}
    environment = Environment(environ, folder, words, looked_for)

    def layer(written: list[Written], over: Dialect | None = None) -> Translation:
        parts: list[Translation] = []
        for source, tree in written:
            reading = Reading(findings.through(source.trace), partial(peek, environment, source.trace), over)
            parts.append(translate(tree, source, reading))
            warnings.extend(_passed_over(parts[-1].passed_over, source.path))
        return join(parts, findings)

    whole = layer(written[: len(files.base)])
    if files.overlays:
        whole = lay(layer(written[len(files.base) :], whole.dialect), whole)
    told = findings.through(whole.origins.trace)
    whole.tree = expand(whole.tree, environment, told)
    warnings += unapplied(whole.tree)
    tree = settle(whole, folder)
    warnings += check(tree, told)
    config = build(Config, tree, told, whole.origins.literal)
    if config is None:
        return None
    return replace(config, dialect=whole.dialect, path=where, warnings=(*warnings, *environment.warnings))


def _parse(paths: list[Path], findings: Findings) -> list[Written]:
    """The files that can be read; together they may be as large as one, so that they take no longer."""
    sources = [Source(path) for path in paths]
    too_much = f"the files together hold more than {MAX_BYTES:,} bytes or {MAX_NODES:,} values"
    if len(paths) > 1 and sum(source.size for source in sources) > MAX_BYTES:
        findings.add(too_much)
        raise GaveUpError
    parsed: list[Written] = []
    values = 0
    for source in sources:
        try:
            parsed.append((source, source.parse(findings)))
            values += _count(parsed[-1][1]) if len(paths) > 1 else 0
        except GaveUpError:
            values += len(source.text) // 2  # as many as it can have cost
        if values > MAX_NODES and not findings:
            findings.add(too_much)
        if values > MAX_NODES or findings.full:
            raise GaveUpError
    return parsed


def _count(value: object) -> int:
    return 1 + sum(map(_count, children(value)))


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
        source = Source(path)
        keys = {key for key in source.parse(Findings(source.trace)) if not is_extra(key)}
    except GaveUpError:
        try:
            text = read_text(path)
        except UnreadableError:
            return False
        return any(key in text for key in _UNMISTAKABLE)  # ours and broken: worth saying so
    return bool(keys.intersection(_UNMISTAKABLE)) or (bool(keys) and keys <= {*TOP_KEYS, "servers", "inputs"})
