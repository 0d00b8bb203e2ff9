"""Commands over the admin API."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response

from mcpx.admin.entries import commands, cost, entry_of, yaml_of
from mcpx.admin.errors import ALWAYS, ApiError, responses
from mcpx.admin.routes import given
from mcpx.admin.routes.given import READS, TRIALS, WRITES, AtDesk, Name, Writing
from mcpx.admin.shapes.commands import (
    CommandDetail,
    CommandImport,
    CommandImportResult,
    Commands,
    CommandTrial,
    CommandTrialResult,
    Resolved,
    SavedCommandTrial,
)
from mcpx.admin.shapes.common import Entry, Preview, Toggle, Written
from mcpx.admin.shapes.servers import Operation, Recognised
from mcpx.admin.streaming import attended
from mcpx.admin.wording import plain
from mcpx.config.edits import PutEntry
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

router = APIRouter(prefix="/api/commands", tags=["Commands"], responses=ALWAYS)

SECTION = "commands"
UNNAMED = "new_command"
"""What an entry is called that is tried out before it has a name."""

CommandEntry = Annotated[
    Entry,
    Body(
        examples=[
            {
                "name": "weather",
                "description": "The weather in a city, now.",
                "type": "http",
                "http": {"url": "https://wttr.in/{city}", "params": {"format": "j1"}},
            },
            {
                "name": "disk",
                "description": "Free space.",
                "type": "script",
                "script": {"path": "disk.sh"},
            },
        ]
    ),
]


@router.get("")
async def list_commands(desk: AtDesk, response: Response) -> Commands:
    """Every local command."""
    return Commands(commands=commands.rows(desk, await given.look(desk, response)))


@router.post(
    "", status_code=201, responses={200: {"model": Preview, "description": "A dry run."}, **WRITES}
)
async def add_command(
    desk: AtDesk, response: Response, entry: CommandEntry, change: Writing
) -> Written | Preview:
    """Add a command; it is a tool at once."""
    return await given.put(desk, response, change, SECTION, entry)


@router.post("/test", responses=TRIALS)
async def try_command(desk: AtDesk, request: Request, trial: CommandTrial) -> CommandTrialResult:
    """Resolve and run a command that is not saved."""
    if trial.entry is None:
        if trial.stored is None:
            raise ApiError(
                422, "invalid", "there is nothing to try", "entry", "send an entry, or `stored`"
            )
        return await _try_saved(desk, request, trial.stored, trial.arguments, trial.dry)
    name = trial.entry.get("name") or UNNAMED
    if not isinstance(name, str):
        raise ApiError(422, "invalid", "a name is text", "entry.name")
    return await _try(
        desk,
        request,
        trial.stored or name,
        {**trial.entry, "name": name},
        trial.arguments,
        trial.dry,
    )


@router.post("/import", responses=responses(503))
async def import_commands(desk: AtDesk, wanted: CommandImport) -> CommandImportResult:
    """Commands of an OpenAPI document or a curl line; nothing is saved."""
    make = desk.imports.get(wanted.kind)
    if make is None:
        raise ApiError(503, None, f"this gateway cannot import {wanted.kind}")
    if wanted.text is None and (wanted.url is None or wanted.kind == "curl"):
        raise ApiError(
            422,
            "invalid",
            "there is nothing to import",
            "text",
            "send its text, or the `url` of a document",
        )
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
            yaml=yaml_of(entry),
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


@router.get("/{name}", responses=READS)
async def show_command(desk: AtDesk, response: Response, name: Name) -> CommandDetail:
    """One command, with its entry as written."""
    return commands.detail(desk, await given.look(desk, response), name)


@router.put("/{name}", responses=WRITES)
async def change_command(
    desk: AtDesk, response: Response, name: Name, entry: CommandEntry, change: Writing
) -> Written | Preview:
    """Replace its entry; another `name` in it renames it."""
    return await given.put(desk, response, change, SECTION, entry, name)


@router.delete("/{name}", responses=WRITES)
async def remove_command(
    desk: AtDesk, response: Response, name: Name, change: Writing
) -> Written | Preview:
    """Remove it."""
    return await given.remove(desk, response, change, SECTION, name)


@router.patch("/{name}/toggle", responses=WRITES)
async def toggle_command(
    desk: AtDesk, response: Response, name: Name, change: Writing, toggle: Toggle | None = None
) -> Written | Preview:
    """Switch it on or off."""
    return await given.toggle(
        desk, response, change, SECTION, name, None if toggle is None else toggle.enabled
    )


@router.post("/{name}/test", responses=TRIALS)
async def try_saved_command(
    desk: AtDesk, request: Request, name: Name, trial: SavedCommandTrial
) -> CommandTrialResult:
    """Resolve and run it."""
    return await _try_saved(desk, request, name, trial.arguments, trial.dry)


async def _try_saved(
    desk: AtDesk, request: Request, name: str, arguments: Json, dry: bool
) -> CommandTrialResult:
    entry = entry_of(await desk.store.look(), SECTION, name)
    return await _try(desk, request, name, entry.value, arguments, dry)


async def _try(
    desk: AtDesk, request: Request, stored: str, entry: Json, arguments: Json, dry: bool
) -> CommandTrialResult:
    name = str(entry["name"])
    # On, or else its variables would not be looked up.
    config = await given.imagine(desk, PutEntry(SECTION, stored, {**entry, "enabled": True}))
    ran = await attended(desk.trials.command(config, name, arguments, dry=dry), request.receive)
    return CommandTrialResult(
        ok=ran.ok,
        resolved=None if ran.resolved is None else Resolved(**plain(asdict(ran.resolved))),
        tool=plain(ran.tool) or None,
        tokens=cost(ran.tool) if ran.tool else 0,
        ms=ran.ms,
        result=plain(ran.result),
        error=plain(ran.error),
        path=None if ran.error is None else "arguments",
    )
