"""Local commands over the admin API."""

from dataclasses import asdict

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, plain
from mcpx.admin.routes import given
from mcpx.admin.routes.given import TRIALS, Name
from mcpx.admin.shapes.commands import (
    CommandDetail,
    CommandImport,
    CommandImportResult,
    CommandRow,
    Commands,
    CommandTrial,
    CommandTrialResult,
    Resolved,
    SavedCommandTrial,
)
from mcpx.admin.shapes.servers import Operation, Recognised
from mcpx.admin.streaming import attended
from mcpx.admin.toolbox import tokens_of
from mcpx.config import Command
from mcpx.config.edits import PutEntry
from mcpx.config.written import Entry, Written
from mcpx.core.local import COMMANDS, definition_of
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError

SHOWN = 200
"""Characters of the line that says what a command does."""


def _command_rows(desk: Desk, written: Written) -> list[CommandRow]:
    entries = {entry.name: entry for entry in written.entries("commands")}
    running = [
        _row(desk, each, entries.pop(each.name, None))
        for each in desk.gateway.generation.config.commands
    ]
    return [
        CommandRow.model_validate(plain(row))
        for row in (*running, *map(_waiting, entries.values()))
    ]


def _detail(desk: Desk, written: Written, name: str) -> CommandDetail:
    entry = written.entry("commands", name)
    commands = {each.name: each for each in desk.gateway.generation.config.commands}
    if name in commands:
        told: Json = {"name": name} if entry is None else entry.value
        tool = definition_of(commands[name])
        return CommandDetail.model_validate(
            plain({**_row(desk, commands[name], entry), "entry": told, "tool": tool})
        )
    if entry is None:
        raise given.unknown("commands", name, list(commands))
    return CommandDetail.model_validate(plain({**_waiting(entry), "entry": entry.value}))


def _row(desk: Desk, command: Command, entry: Entry | None) -> Json:
    figures = given.figures_of(desk, COMMANDS, command.name)
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
        "tokens": tokens_of(definition_of(command)),
        "source": given.place_of(entry),
        **figures,
    }


def _waiting(entry: Entry) -> Json:
    """What the file has and the gateway has not."""
    return {
        "name": entry.name,
        "description": str(entry.value.get("description") or ""),
        "type": str(entry.value.get("type") or ""),
        "enabled": entry.value.get("enabled") is not False,
        "last_error": given.NOT_TAKEN_UP,
        "summary": _summary(entry.value),
        "source": given.place_of(entry),
    }


def _summary(entry: Json) -> str:
    http, script = as_object(entry.get("http")), as_object(entry.get("script"))
    if http:
        return f"{http.get('method', 'GET')} {http.get('url', '')}"[:SHOWN]
    words = [script.get("interpreter"), script.get("path"), *as_list(script.get("args"))]
    return " ".join(str(word) for word in words if word)[:SHOWN]


router = Router("/api/commands", "Commands")

SECTION = "commands"
UNNAMED = "new_command"
"""The name of an entry that is tried before it has one."""

given.add_entry_routes(
    router,
    "",
    SECTION,
    "command",
    documented=(
        "Add a command; it is a tool at once.",
        "Replace its entry; another `name` in it renames it.",
        "Remove it.",
        "Switch it on or off.",
    ),
)


@router.get("")
async def list_commands(request: ApiRequest) -> Commands:
    """Every local command."""
    return Commands(commands=_command_rows(request.desk, await given.look(request)))


@router.post("/test", *TRIALS)
async def try_command(request: ApiRequest, trial: CommandTrial) -> CommandTrialResult:
    """Resolve and run a command that is not saved."""
    if trial.entry is None:
        if trial.stored is None:
            hint = "send an entry, or `stored`"
            raise ApiError(422, "invalid", "there is nothing to try", "entry", hint)
        return await _try_saved(request, trial.stored, trial)
    name = trial.entry.get("name") or UNNAMED
    if not isinstance(name, str):
        raise ApiError(422, "invalid", "a name is text", "entry.name")
    return await _try(request, trial.stored or name, {**trial.entry, "name": name}, trial)


@router.post("/import", 503)
async def import_commands(request: ApiRequest, wanted: CommandImport) -> CommandImportResult:
    """Commands of an OpenAPI document or a curl line; nothing is saved."""
    desk = request.desk
    make = desk.imports.get(wanted.kind)
    if make is None:
        raise ApiError(503, None, f"this gateway cannot import {wanted.kind}")
    if wanted.text is None and (wanted.url is None or wanted.kind == "curl"):
        hint = "send its text, or the `url` of a document"
        raise ApiError(422, "invalid", "there is nothing to import", "text", hint)
    try:
        if wanted.kind == "curl":
            made: Json = await make(
                text=wanted.text, name=wanted.name, allow_private=wanted.allow_private
            )
        else:
            made = await make(
                text=wanted.text,
                url=wanted.url,
                environ=desk.gateway.environ,
                allow_private=wanted.allow_private,
                pick=wanted.pick,
                prefix=wanted.prefix,
                server=wanted.server,
            )
    except ConfigError as error:
        raise _unimportable(error) from None
    written = await desk.store.look()
    taken = {
        (entry.section, entry.name)
        for section in ("commands", "auth_configs")
        for entry in written.entries(section)
    }
    entries = [
        Recognised(
            section=section,
            entry=entry,
            yaml=given.yaml_of(entry),
            taken=(section, entry.get("name")) in taken,
        )
        for section in ("auth_configs", "commands")
        for entry in made[section]
    ]
    return CommandImportResult(
        title=made["title"],
        operations=[Operation(**each) for each in made["operations"]],
        entries=entries,
        warnings=[_ours(line) for line in made["warnings"]],
    )


def _unimportable(error: ConfigError) -> ApiError:
    lines = [_ours(line.removeprefix("error: ")) for line in error.problems] or [
        "it cannot be imported"
    ]
    return ApiError(
        422, "not_importable", lines[0], "text", errors=[{"message": line} for line in lines]
    )


def _ours(line: str) -> str:
    """In the words of this API, not of the command line."""
    return line.replace("--allow-private", "`allow_private`").replace(
        "--only, --tag, --method or --skip", "`pick`"
    )


@router.get("/{name}", 404)
async def show_command(request: ApiRequest, name: Name) -> CommandDetail:
    """One command, with its entry as written."""
    return _detail(request.desk, await given.look(request), name)


@router.post("/{name}/test", *TRIALS)
async def try_saved_command(
    request: ApiRequest, name: Name, trial: SavedCommandTrial
) -> CommandTrialResult:
    """Resolve and run it."""
    return await _try_saved(request, name, trial)


async def _try_saved(
    request: ApiRequest, name: str, trial: SavedCommandTrial | CommandTrial
) -> CommandTrialResult:
    entry = given.entry_of(await request.desk.store.look(), SECTION, name)
    return await _try(request, name, entry.value, trial)


async def _try(
    request: ApiRequest, stored: str, entry: Json, trial: SavedCommandTrial | CommandTrial
) -> CommandTrialResult:
    desk, name = request.desk, str(entry["name"])
    # Enabled, because the variables of a disabled entry are not looked up.
    config = await given.imagine(desk, PutEntry(SECTION, stored, {**entry, "enabled": True}))
    run = desk.trials.command(config, name, trial.arguments, dry=trial.dry)
    ran = await attended(run, request.gone)
    told = CommandTrialResult(
        ok=ran.ok, ms=ran.ms, result=plain(ran.result), error=plain(ran.error)
    )
    if ran.resolved is not None:
        told.resolved = Resolved(**plain(asdict(ran.resolved)))
    if ran.tool:
        told.tool, told.tokens = plain(ran.tool), tokens_of(ran.tool)
    if ran.error is not None:
        told.path = "arguments"
    return told
