"""Configuration over the admin API: its text, its mistakes, its history; and what is pasted to
become part of it."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response

from mcpx.admin import configuring, pasting
from mcpx.admin.errors import ALWAYS, responses
from mcpx.admin.routes import given
from mcpx.admin.routes.given import WRITES, AtDesk, Change, Objecting, Writing
from mcpx.admin.shapes.common import Preview, Written
from mcpx.admin.shapes.config import (
    Checked,
    ConfigImport,
    ConfigText,
    ConfigTold,
    DiffTold,
    DiffWanted,
    Exported,
    History,
    NewEntries,
    ReloadResult,
    RevisionTold,
    Rollback,
)
from mcpx.admin.shapes.servers import Pasted, PasteResult
from mcpx.config.edits import EditError, Restore
from mcpx.config.json_schema import config_schema as made_schema
from mcpx.model.errors import ConfigError

router = APIRouter(prefix="/api", tags=["Configuration"], responses=ALWAYS)


@router.get("/config")
async def show_config(desk: AtDesk, response: Response) -> ConfigTold:
    """The configuration as text, secrets masked, and how it is."""
    return await configuring.tell(desk, response)


@router.post("/config", responses=WRITES)
async def write_config(
    desk: AtDesk, response: Response, text: ConfigText, change: Writing
) -> Written | Preview:
    """Replace the text of a file."""
    edit = await configuring.new_text(desk, text)
    return await given.write(desk, response, _with_message(change, text.message), edit)


@router.post("/config/validate", responses=responses(404, 409))
async def validate_config(desk: AtDesk, text: ConfigText) -> Checked:
    """Every mistake of a text, with its place."""
    return await configuring.check(desk, text)


@router.post("/config/plan", responses=responses(404, 409))
async def plan_config(
    desk: AtDesk, response: Response, text: ConfigText, objection: Objecting
) -> Preview:
    """What a text would change; nothing is changed."""
    return await given.preview(desk, response, await configuring.new_text(desk, text), objection)


@router.post("/config/reload", responses=responses(409))
async def reload_config(desk: AtDesk, response: Response) -> ReloadResult:
    """Read the file again, as `mcpx reload` does."""
    return await configuring.reload(desk, response)


@router.get("/config/history")
async def show_history(desk: AtDesk, limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> History:
    """Who changed what and when."""
    return History(
        revisions=[configuring.row(desk, each) for each in desk.store.revisions()[:limit]]
    )


@router.get("/config/history/{number}", responses=responses(404))
async def show_revision(desk: AtDesk, number: Annotated[int, Path(ge=0, le=10**8)]) -> RevisionTold:
    """One revision, with its text, secrets masked."""
    return await configuring.one_revision(desk, number)


@router.post("/config/diff", responses=responses(404))
async def diff_config(desk: AtDesk, wanted: DiffWanted) -> DiffTold:
    """Between two revisions, or one and what is there now."""
    try:
        diff = await desk.store.diff(wanted.before, wanted.after)
    except (EditError, ConfigError) as error:
        raise await given.refusal(desk, error) from None
    return DiffTold(diff=diff, same=not diff)


@router.post("/config/rollback", responses=WRITES)
async def roll_back(
    desk: AtDesk, response: Response, wanted: Rollback, change: Writing
) -> Written | Preview:
    """Make an earlier revision the present one, as a new revision."""
    message = wanted.message or change.message or f"restored revision {wanted.revision}"
    return await given.write(
        desk, response, _with_message(change, message), Restore(wanted.revision)
    )


@router.post("/config/import", responses=WRITES)
async def import_config(
    desk: AtDesk, response: Response, wanted: ConfigImport, change: Writing
) -> Written | Preview:
    """Take servers over from a client's file."""
    return await configuring.take_over(
        desk, response, wanted, _with_message(change, wanted.message)
    )


@router.post(
    "/config/entries",
    status_code=201,
    responses={200: {"model": Preview, "description": "A dry run."}, **WRITES},
)
async def add_entries(
    desk: AtDesk, response: Response, new: NewEntries, change: Writing
) -> Written | Preview:
    """Add servers, commands and auth configs together: all of them in one revision, or none."""
    edits = [given.putting(each.section, each.entry) for each in new.entries]
    return await given.write(desk, response, change, edits)


@router.get("/config/export", responses=responses(409))
async def export_config(desk: AtDesk, format: Literal["yaml", "mcp-json"] = "yaml") -> Exported:
    """To take elsewhere; secrets are left out."""
    try:
        made = await desk.store.export("yaml" if format == "yaml" else "mcpServers")
    except (EditError, ConfigError) as error:
        raise await given.refusal(desk, error) from None
    return Exported(
        format=format,
        name=made.file_name,
        text=made.text,
        placeholders=list(made.variables),
        warnings=list(made.warnings),
    )


@router.get("/schema")
async def config_schema() -> dict[str, Any]:
    """The JSON Schema of the configuration, for editors."""
    return await asyncio.to_thread(made_schema)  # its parts are loaded for it


@router.post("/paste")
async def recognise(desk: AtDesk, pasted: Pasted) -> PasteResult:
    """What a pasted text is, and the entries it makes; nothing is saved."""
    return await pasting.recognise(desk, pasted.text)


def _with_message(change: Change, message: str) -> Change:
    return replace(change, message=message) if message else change
