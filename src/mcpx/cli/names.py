"""Names for completion: of the gateway that runs, else of what was known last time; quickly, or not
at all.

Promised: no server is started, nothing is waited for longer than a second, and whatever goes wrong
is no names. What was known last time comes from the snapshots of servers; it is kept as one small
file that is read in a moment, and made anew when the config or a snapshot is newer.
"""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from mcpx.base.files import require_private
from mcpx.cli.places import Place
from mcpx.model.call import Json
from mcpx.wire import channels

PATIENCE = 0.8
"""Seconds for a gateway to answer."""
LARGEST = 16 << 20


def names(place: Place) -> Json:
    for source in (_of_running, _of_file, _of_snapshots):
        with contextlib.suppress(Exception):
            if found := source(place):
                return found
    return {}


def _of_running(place: Place) -> Json | None:
    path = place.channel
    if path is None or not channels.is_taken(path):
        return None
    require_private(path.parent)
    until = time.monotonic() + PATIENCE
    with channels.dial(path, PATIENCE) as talk:
        talk.sendall(b'{"do": "names"}\n')
        read = bytearray()
        while not read.endswith(b"\n") and len(read) < LARGEST:
            talk.settimeout(max(until - time.monotonic(), 0.01))
            part = talk.recv(1 << 16)
            if not part:
                return None
            read += part
    answer = json.loads(read)
    return answer if answer.get("ok") else None


def _file(place: Place) -> Path | None:
    return None if place.channel is None else place.state / "names" / f"{place.channel.stem}.json"


def _of_file(place: Place) -> Json | None:
    file = _file(place)
    if file is None or place.path is None:
        return None
    made = file.stat()
    files = list(place.path.iterdir()) if place.path.is_dir() else []
    sources = [place.path, *files, place.state / "snapshots"]
    if any(each.stat().st_mtime > made.st_mtime for each in sources if each.exists()):
        return None
    return json.loads(file.read_bytes())


def _of_snapshots(place: Place) -> Json | None:
    if place.path is None:
        return None
    from mcpx.commands.parameters import schema_of
    from mcpx.config import load
    from mcpx.core.names import names_of
    from mcpx.model.offer import KINDS
    from mcpx.upstreams.snapshot import Lists, Snapshots, identity_of, key_of

    config = load(place.path, os.environ, place.env)
    kept = Snapshots(place.state / "snapshots")
    listed: dict[Any, list[tuple[str, str, Json]]] = {kind: [] for kind in KINDS}
    keys = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}
    for command in config.commands:
        about = {"description": command.description, "inputSchema": schema_of(command.parameters)}
        listed["tools"].append(("commands", command.name, about))
    for server in config.mcp_servers:
        snapshot = kept.load(key_of(identity_of(server))) if server.enabled else None
        lists: Lists = {} if snapshot is None else snapshot.any_lists
        for kind in KINDS:
            for definition in lists.get(kind, ()):
                listed[kind].append((server.name, str(definition.get(keys[kind])), definition))
    found = names_of(config, listed)
    with contextlib.suppress(OSError):
        _keep(place, found)
    return found


def _keep(place: Place, found: Json) -> None:
    from mcpx.base.files import private_folder, replace_private

    file = _file(place)
    if file is not None and place.state.is_dir():  # a state folder is not made for this
        private_folder(file.parent)
        replace_private(file, json.dumps(found).encode())
