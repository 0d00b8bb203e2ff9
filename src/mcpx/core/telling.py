"""How a gateway's servers and commands are, for people and programs."""

import time
from collections.abc import Mapping

from mcpx.catalog.catalog import Catalog
from mcpx.config import Command
from mcpx.core.generation import Generation
from mcpx.model.call import Json
from mcpx.upstreams.upstream import Upstream

BRIEF = ("status", "since", "last_error")
"""What is told of a server to whoever does not see all of it."""
WELL = ("connected", "disabled", "sleeping")


def described(generation: Generation, catalog: Catalog) -> Json:
    """Everything as people want to see it: configuration, state, and what it offers."""
    servers = [
        {
            "name": name,
            "description": upstream.server.description,
            **_with_held(upstream, _state(upstream)),
            "last_error": upstream.connection.problem,
            "auth_url": upstream.auth_url,
            "tools": catalog.count(name, "tools"),
        }
        for name, upstream in generation.upstreams.items()
    ]
    commands = [_about(command) for command in generation.config.commands]
    return {"servers": servers, "commands": commands, "mode": generation.config.mode}


def health(upstreams: Mapping[str, Upstream], *, whole: bool = True) -> Json:
    """For whoever may ask: without what only the owner may see. `whole`: they see all of these
    servers; else it is not told what was left out of their lists, nor what others do there."""
    servers = {name: _state(upstream) for name, upstream in upstreams.items()}
    if not whole:
        servers = {name: {key: told[key] for key in BRIEF} for name, told in servers.items()}
    good = all(entry["status"] in WELL for entry in servers.values())
    return {"status": "ok" if good else "degraded", "servers": servers}


def _with_held(upstream: Upstream, state: Json) -> Json:
    held, notes = upstream.describe_held()
    quarantined = upstream.server.enabled and not upstream.enabled
    return {**state, "held": held, "quarantined": quarantined, "notes": [*notes, *state["notes"]]}


def _about(command: Command) -> Json:
    return {
        "name": command.name,
        "description": command.description,
        "type": command.action.type,
        "enabled": command.enabled,
        "last_error": command.switched_off,
    }


def _state(upstream: Upstream) -> Json:
    status = upstream.status
    return {
        "status": status.state,
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.since)),
        "last_error": status.last_error,
        **upstream.describe(),
    }
