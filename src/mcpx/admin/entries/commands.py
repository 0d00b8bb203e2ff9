"""Local commands as the admin API tells of them."""

from mcpx.admin.desk import Desk
from mcpx.admin.entries import NOT_TAKEN_UP, cost, figures_of, place_of, unknown
from mcpx.admin.errors import plain
from mcpx.admin.shapes.commands import CommandDetail, CommandRow
from mcpx.config import Command
from mcpx.config.written import Entry, Written
from mcpx.core.local import COMMANDS, definition_of
from mcpx.model.call import Json, as_list, as_object

SHOWN = 200
"""Characters of the line that says what a command does."""


def rows(desk: Desk, written: Written) -> list[CommandRow]:
    entries = {entry.name: entry for entry in written.entries("commands")}
    running = [
        _row(desk, each, entries.pop(each.name, None))
        for each in desk.gateway.generation.config.commands
    ]
    return [
        CommandRow.model_validate(plain(row))
        for row in (*running, *map(_waiting, entries.values()))
    ]


def detail(desk: Desk, written: Written, name: str) -> CommandDetail:
    entry = written.entry("commands", name)
    commands = {each.name: each for each in desk.gateway.generation.config.commands}
    if name in commands:
        told: Json = {"name": name} if entry is None else entry.value
        tool = definition_of(commands[name])
        return CommandDetail.model_validate(
            plain({**_row(desk, commands[name], entry), "entry": told, "tool": tool})
        )
    if entry is None:
        raise unknown("commands", name, list(commands))
    return CommandDetail.model_validate(plain({**_waiting(entry), "entry": entry.value}))


def _row(desk: Desk, command: Command, entry: Entry | None) -> Json:
    figures = figures_of(desk, COMMANDS, command.name)
    figures.pop("calls_per_minute", None)
    figures.pop("p50_ms", None)
    return {
        "name": command.name,
        "description": command.description,
        "type": command.action.type,
        "enabled": command.enabled,
        "last_error": command.switched_off,
        "summary": "" if entry is None else _summary(entry.value),
        "parameters": [str(name) for name in as_object(command.schema.get("properties"))],
        "read_only": command.changes_nothing,
        "auth": command.auth,
        "tokens": cost(definition_of(command)),
        "source": place_of(entry),
        **figures,
    }


def _waiting(entry: Entry) -> Json:
    """What the file has and the gateway has not."""
    return {
        "name": entry.name,
        "description": str(entry.value.get("description") or ""),
        "type": str(entry.value.get("type") or ""),
        "enabled": entry.value.get("enabled") is not False,
        "last_error": NOT_TAKEN_UP,
        "summary": _summary(entry.value),
        "source": place_of(entry),
    }


def _summary(entry: Json) -> str:
    http, script = as_object(entry.get("http")), as_object(entry.get("script"))
    if http:
        return f"{http.get('method', 'GET')} {http.get('url', '')}"[:SHOWN]
    words = [script.get("interpreter"), script.get("path"), *as_list(script.get("args"))]
    return " ".join(str(word) for word in words if word)[:SHOWN]
