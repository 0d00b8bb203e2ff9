"""What a file leaves unsaid, filled in on the native tree before it is judged.

Promised: servers carry what `global` says where they say nothing, mode and naming are the dialect's
own where none are given, paths are absolute. A mistake in `global` is still told once, where it
stands. Wrong types are left for `validate` to tell.
"""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from mcpx.commands import COMMANDS
from mcpx.config.dialects import Translation
from mcpx.config.origins import Origins
from mcpx.config.schema import PerServer
from mcpx.config.tree import KeyPath, Tree, Unresolved, as_bool, as_list, as_map, maps_in
from mcpx.config.validate import keys_of

_INHERITED = keys_of(PerServer)


def fill_in(translation: Translation, folder: Path, workspace: Path) -> Tree:
    """`workspace`: what the working folders of servers are relative to; a client's file may lie one
    below it."""
    tree, origins = translation.tree, translation.origins
    given: Any = tree.get("global")
    common = as_map(given)
    if common is None:
        common = {}
    if given is None:
        tree["global"] = common  # one of a wrong type stays, for `validate` to tell
    if tree.get("mode") is None:
        tree["mode"] = "search" if as_bool(common.get("tool_proxy_mode")) else translation.mode
    if translation.naming and (naming := as_map(tree.get("naming") or {})) is not None:
        tree["naming"] = {**translation.naming, **naming}
    for index, server in maps_in(tree.get("mcp_servers")):
        at: KeyPath = ("mcp_servers", index)
        if "default_timeout" in server:
            _default(
                server,
                at,
                "timeout",
                server.pop("default_timeout"),
                (*at, "default_timeout"),
                origins,
            )
        for key in _INHERITED:
            _default(server, at, key, common.get(key), ("global", key), origins)
        _default(
            server,
            at,
            "timeout",
            common.get("default_timeout"),
            ("global", "default_timeout"),
            origins,
        )
        _absolute(as_map(server.get("connection")), "cwd", workspace)
    for index, command in maps_in(tree.get("commands")):
        _fill_in_command(command, ("commands", index), common, folder, origins)
    front = as_map(tree.get("server")) or {}
    for key in ("cert", "key"):
        _absolute(as_map(front.get("tls")), key, folder)
        _absolute(as_map((as_map(front.get("admin")) or {}).get("tls")), key, folder)
    _absolute(common, "log_file", folder)
    if common.get("script_paths") is None:
        common["script_paths"] = ["."]
    if (folders := as_list(common["script_paths"])) is not None:
        common["script_paths"] = [_absolute_path(item, folder) for item in folders]
    return tree


def _fill_in_command(
    command: Tree, at: KeyPath, common: Tree, folder: Path, origins: Origins
) -> None:
    kind = str(command.get("type")).lower()
    section = as_map(command.get(kind))
    if section is None or (part := COMMANDS.get(kind)) is None:
        return
    its = keys_of(part)
    for key, source in (("timeout", "default_timeout"), ("max_retries",) * 2, ("retry_delay",) * 2):
        if key in its:
            _default(section, (*at, kind), key, common.get(source), ("global", source), origins)
    for field in fields(part):  # pyright: ignore[reportArgumentType]
        if field.metadata.get("in_folder"):
            if section.get(field.name) is None and isinstance(field.default, str):
                section[field.name] = field.default
            _absolute(section, field.name, folder)


def _default(
    section: Tree, at: KeyPath, key: str, value: Any, source: KeyPath, origins: Origins
) -> None:
    if value is not None and section.get(key) is None:
        section[key] = value
        origins.adopt((*at, key), origins, source)


def _absolute(section: Tree | None, key: str, folder: Path) -> None:
    if section and key in section:
        several = as_list(section[key])
        one = section[key]
        section[key] = (
            _absolute_path(one, folder)
            if several is None
            else [_absolute_path(p, folder) for p in several]
        )


def _absolute_path(path: Any, folder: Path) -> Any:
    if not isinstance(path, str) or isinstance(path, Unresolved) or not path or "\0" in path:
        return path
    return os.path.normpath(folder / os.path.expanduser(path))
