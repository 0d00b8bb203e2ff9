"""From a file or several to one `Config`.

Promised: a `Config` or one `ConfigError` that holds every mistake; never another exception, never
more than a moment. Nothing is written, started or connected.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from mcpx.catalog.naming import safe_name
from mcpx.commands import COMMANDS
from mcpx.config.checks import check, secret_warnings
from mcpx.config.dialects import CLIENT_DIALECTS, Reading, Translation, detect, join, lay, translate
from mcpx.config.environment import Environment, client_words, expand, peek, workspace_of
from mcpx.config.files import Files, find_files
from mcpx.config.itself import without_runs_of
from mcpx.config.nodes import MAX_NODES
from mcpx.config.problems import Findings, GaveUpError, Origins, Refused, explain, tell
from mcpx.config.schema import Config, Dialect, PerServer
from mcpx.config.source import MAX_BYTES, Source
from mcpx.config.tree import (
    KeyPath,
    Tree,
    Unresolved,
    as_bool,
    as_map,
    children,
    map_leaves,
    maps_in,
    shorten,
)
from mcpx.config.validate import build, keys_of
from mcpx.model.secret_rules import learnable_secrets
from mcpx.transports import Stdio

Written = tuple[Source, Tree]
"""A file and what it says."""
Texts = Mapping[Path, str]
"""By absolute path: what files are taken to say."""


@dataclass(slots=True)
class Layers:
    """A configuration as its files say it, before any reference is looked up."""

    files: Files
    written: list[Written]
    whole: Translation
    environment: Environment
    folder: Path
    workspace: Path
    """What the working folders of servers are relative to; a client's file may lie one below it."""
    renamed: dict[str, str]
    warnings: list[str]


def load(
    path: Path,
    environ: Mapping[str, str],
    env: str | None = None,
    *,
    strict: bool = False,
    texts: Texts | None = None,
) -> Config:
    """The file, or the files of a folder, under the overlays of an environment: `env`, or else
    `MCPX_ENV` (CFG-7). `strict`: a variable that is not set is a mistake everywhere, instead of
    switching one server off (CFG-3). `texts`: what files are taken to say, instead of what stands
    in them."""
    findings = Findings(Source(path).trace)
    looked_for: list[Path] = []
    config = None
    try:
        config = _load(path, environ, env, findings, looked_for, strict, texts or {})
    except GaveUpError:
        pass
    absolute = (Path(os.path.abspath(file)) for file in looked_for)
    sources = tuple(dict.fromkeys(absolute))
    if config is None or findings:
        raise Refused(tell(findings), sources, explain(findings))
    return replace(config, sources=sources)


def read_layers(
    path: Path,
    environ: Mapping[str, str],
    env: str | None,
    findings: Findings,
    looked_for: list[Path],
    texts: Texts,
) -> Layers:
    """The files put together. Raises `GaveUpError`."""
    env = env or environ.get("MCPX_ENV")
    looked_for.append(path)
    files = find_files(path, env, findings)
    looked_for += files.looked_for
    gave_up = bool(findings)
    chosen = [*files.base, *files.overlays]
    given = {file: texts.get(Path(os.path.abspath(file))) for file in chosen}
    written = _parse([Source(file, text) for file, text in given.items()], findings)
    if gave_up or len(written) < len(chosen):
        raise GaveUpError
    warnings = files.warnings + [
        line for source, tree in written for line in secret_warnings(tree, source.path)
    ]
    where = Path(os.path.abspath(path))
    folder = where
    if not os.path.isdir(where):
        folder = where.parent
    workspace, words = folder, dict[str, str]()
    if any(detect(tree, source) in CLIENT_DIALECTS for source, tree in written):
        workspace = workspace_of(folder)
        words = client_words(environ, workspace)
    environment = Environment(environ, folder, words, looked_for)
    renamed: dict[str, str] = {}

    def layer(written: list[Written], over: Dialect | None = None) -> Translation:
        parts: list[Translation] = []
        for source, tree in written:
            reading = Reading(
                findings.through(source.trace), partial(peek, environment, source.trace), over
            )
            part = translate(tree, source, reading)
            parts.append(part)
            renamed.update(part.renamed)
            warnings.extend(
                f"{source.path.name}: {line}"
                for line in [*part.warnings, *_passed_over(part.passed_over)]
            )
        return join(parts, findings)

    whole = layer(written[: len(files.base)])
    if files.overlays:
        whole = lay(layer(written[len(files.base) :], whole.dialect), whole)
    return Layers(files, written, whole, environment, folder, workspace, renamed, warnings)


def _load(
    path: Path,
    environ: Mapping[str, str],
    env: str | None,
    findings: Findings,
    looked_for: list[Path],
    strict: bool,
    texts: Texts,
) -> Config | None:
    layers = read_layers(path, environ, env, findings, looked_for, texts)
    whole, environment, warnings = layers.whole, layers.environment, layers.warnings
    where = Path(os.path.abspath(path))
    told = findings.through(whole.origins.trace)
    whole.tree, off = expand(whole.tree, environment, told, strict=strict)
    tree = _fill_in(whole, layers.folder, layers.workspace)
    warnings += check(tree, told, environ)
    config = build(Config, tree, told, whole.origins.literal, environ)
    if config is None:
        return None
    servers = [
        replace(s, switched_off=off.get(("mcp_servers", index)))
        for index, s in enumerate(config.mcp_servers)
    ]
    commands = [
        replace(c, switched_off=off.get(("commands", index)))
        for index, c in enumerate(config.commands)
    ]
    config = replace(
        config,
        dialect=whole.dialect,
        path=where,
        mcp_servers=tuple(servers),
        commands=tuple(commands),
    )
    config = without_runs_of(where, config, environ, layers.renamed)
    for server in config.mcp_servers:
        if (own := layers.renamed.get(server.name)) is not None:
            warnings.append(
                f"server {own!r} is called {server.name!r} here: its own name is reserved"
            )
    warnings += _renamed_commands(config)
    if config.guarded or config.server.auth is not None or config.server.trusted_proxies:
        from mcpx.config.guard_checks import odd  # only a file that guards something pays for it

        warnings += odd(config)
    config = replace(
        config, secrets=frozenset((*learnable_secrets(whole.tree), *environment.secrets))
    )
    config = replace(config, variables=frozenset((*environment.looked_up, *_inherited(config))))
    return replace(config, warnings=(*warnings, *environment.warnings, *config.warnings))


def _renamed_commands(config: Config) -> Iterator[str]:
    """Commands that clients know by another name, for not every client takes every character."""
    for command in config.commands:
        public = safe_name(command.name, config.naming)
        if command.enabled and public != command.name:
            hint = (
                f"at most {config.naming.max_length} letters, digits, '_', '-', and '.' stay "
                "as they are"
            )
            yield f"command {shorten(command.name)!r} is named {public!r} for clients; {hint}"


def _inherited(config: Config) -> Iterator[str]:
    """Variables that servers get by their names."""
    for server in config.mcp_servers:
        if isinstance(connection := server.connection, Stdio) and not isinstance(
            connection.inherit_env, bool
        ):
            yield from connection.inherit_env if server.enabled else ()


def _parse(sources: list[Source], findings: Findings) -> list[Written]:
    """The files that can be read; together they may be as large as one, so that they take no
    longer."""
    too_much = f"the files together hold more than {MAX_BYTES:,} bytes or {MAX_NODES:,} values"
    if len(sources) > 1 and sum(source.size for source in sources) > MAX_BYTES:
        findings.add(too_much)
        raise GaveUpError
    parsed: list[Written] = []
    values = 0
    for source in sources:
        try:
            parsed.append((source, source.parse(findings)))
            values += _count(parsed[-1][1]) if len(sources) > 1 else 0
        except GaveUpError:
            values += len(source.text) // 2  # as many as it can have cost
        if values > MAX_NODES and not findings:
            findings.add(too_much)
        if values > MAX_NODES or findings.full:
            raise GaveUpError
    return parsed


def _count(value: object) -> int:
    return 1 + sum(map(_count, children(value)))


def _passed_over(keys: list[str]) -> list[str]:
    names = list(dict.fromkeys(keys))
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (
        [f"keys mcpx does not know are passed over: {', '.join(names[:10])}{more}"] if names else []
    )


# Defaults

_INHERITED = keys_of(PerServer)


def _fill_in(translation: Translation, folder: Path, workspace: Path) -> Tree:
    """Fill in what the files leave out, before the tree is validated.

    Servers get what `global` says, mode and naming are those of the dialect, and paths become
    absolute. `workspace`: the folder to which the working folders of servers are relative.
    """
    tree, origins = translation.tree, translation.origins
    if tree.get("global") is None:
        tree["global"] = {}
    common = as_map(tree.get("global"))
    if common is None:
        common = {}  # `validate` reports the wrong type.
    if tree.get("mode") is None:
        tree["mode"] = translation.mode
        if as_bool(common.get("tool_proxy_mode")):
            tree["mode"] = "search"
    if translation.naming and (naming := as_map(tree.get("naming") or {})) is not None:
        tree["naming"] = {**translation.naming, **naming}
    defaults = [("timeout", "default_timeout"), *zip(_INHERITED, _INHERITED, strict=True)]
    for index, server in maps_in(tree.get("mcp_servers")):
        at: KeyPath = ("mcp_servers", index)
        own = server.pop("default_timeout", None)
        _default(server, at, "timeout", own, (*at, "default_timeout"), origins)
        for key, source in defaults:
            _default(server, at, key, common.get(source), ("global", source), origins)
        _make_absolute(as_map(server.get("connection")), "cwd", workspace)
    for index, command in maps_in(tree.get("commands")):
        _fill_in_command(command, ("commands", index), common, folder, origins)
    front = as_map(tree.get("server")) or {}
    for section in (front, as_map(front.get("admin")) or {}):
        for key in ("cert", "key"):
            _make_absolute(as_map(section.get("tls")), key, folder)
    if common.get("script_paths") is None:
        common["script_paths"] = ["."]
    for key in ("log_file", "script_paths"):
        _make_absolute(common, key, folder)
    return tree


def _fill_in_command(
    command: Tree, at: KeyPath, common: Tree, folder: Path, origins: Origins
) -> None:
    kind = str(command.get("type")).lower()
    section, part = as_map(command.get(kind)), COMMANDS.get(kind)
    if section is None or part is None:
        return
    sources = {"timeout": "default_timeout", "max_retries": "max_retries"}
    sources["retry_delay"] = "retry_delay"
    for key in sources.keys() & keys_of(part):
        source = sources[key]
        _default(section, (*at, kind), key, common.get(source), ("global", source), origins)
    for field in fields(part):  # pyright: ignore[reportArgumentType]
        if field.metadata.get("in_folder"):
            if section.get(field.name) is None and isinstance(field.default, str):
                section[field.name] = field.default
            _make_absolute(section, field.name, folder)


def _default(
    section: Tree, at: KeyPath, key: str, value: Any, source: KeyPath, origins: Origins
) -> None:
    if value is not None and section.get(key) is None:
        section[key] = value
        origins.adopt((*at, key), origins, source)


def _make_absolute(section: Tree | None, key: str, folder: Path) -> None:
    if section and key in section:
        section[key] = map_leaves(section[key], lambda path, _: _absolute_path(path, folder))


def _absolute_path(path: Any, folder: Path) -> Any:
    if not isinstance(path, str) or isinstance(path, Unresolved) or not path or "\0" in path:
        return path
    return os.path.normpath(folder / os.path.expanduser(path))
