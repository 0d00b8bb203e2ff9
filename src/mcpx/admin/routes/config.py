"""Configuration over the admin API: its text, its mistakes, its history; and what is pasted to
become part of it."""

import asyncio
from typing import Annotated, Any, Literal

from pydantic import Field

from mcpx.admin import configuring, pasting
from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.routes import given
from mcpx.admin.routes.given import WRITES, Change
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
from mcpx.admin.watching import revision_row
from mcpx.config.edits import EditError, Restore
from mcpx.config.json_schema import config_schema as made_schema
from mcpx.model.errors import ConfigError

router = Router("/api", "Configuration")


@router.get("/config")
async def show_config(request: ApiRequest) -> ConfigTold:
    """The configuration as text, secrets masked, and how it is."""
    return await configuring.tell(request)


@router.post("/config", *WRITES)
async def write_config(request: ApiRequest, text: ConfigText, change: Change) -> Written | Preview:
    """Replace the text of a file."""
    edit = await configuring.new_text(request.desk, text)
    return await given.write(request, change, edit, text.message)


@router.post("/config/validate", 404, 409)
async def validate_config(request: ApiRequest, text: ConfigText) -> Checked:
    """Every mistake of a text, with its place."""
    return await configuring.check(request.desk, text)


@router.post("/config/plan", 404, 409)
async def plan_config(request: ApiRequest, text: ConfigText) -> Preview:
    """What a text would change; nothing is changed."""
    return await given.preview(request, await configuring.new_text(request.desk, text))


@router.post("/config/reload", 409)
async def reload_config(request: ApiRequest) -> ReloadResult:
    """Read the file again, as `mcpx reload` does."""
    return await configuring.reload(request)


@router.get("/config/history")
async def show_history(
    request: ApiRequest, limit: Annotated[int, Field(ge=1, le=1000)] = 50
) -> History:
    """Who changed what and when."""
    revisions = request.desk.store.revisions()[:limit]
    return History(revisions=[revision_row(request.desk, each) for each in revisions])


@router.get("/config/history/{number}", 404)
async def show_revision(
    request: ApiRequest, number: Annotated[int, Field(ge=0, le=10**8)]
) -> RevisionTold:
    """One revision, with its text, secrets masked."""
    return await configuring.one_revision(request.desk, number)


@router.post("/config/diff", 404)
async def diff_config(request: ApiRequest, wanted: DiffWanted) -> DiffTold:
    """Between two revisions, or one and what is there now."""
    try:
        diff = await request.desk.store.diff(wanted.before, wanted.after)
    except (EditError, ConfigError) as error:
        raise await given.refusal(request.desk, error) from None
    return DiffTold(diff=diff, same=not diff)


@router.post("/config/rollback", *WRITES)
async def roll_back(request: ApiRequest, wanted: Rollback, change: Change) -> Written | Preview:
    """Make an earlier revision the present one, as a new revision."""
    message = wanted.message or change.message or f"restored revision {wanted.revision}"
    return await given.write(request, change, Restore(wanted.revision), message)


@router.post("/config/import", *WRITES)
async def import_config(
    request: ApiRequest, wanted: ConfigImport, change: Change
) -> Written | Preview:
    """Take servers over from a client's file."""
    return await configuring.take_over(request, wanted, change)


@router.post("/config/entries", *WRITES, status=201)
async def add_entries(request: ApiRequest, new: NewEntries, change: Change) -> Written | Preview:
    """Add servers, commands and auth configs together: all of them in one revision, or none."""
    edits = [given.putting(each.section, each.entry) for each in new.entries]
    return await given.write(request, change, edits)


@router.get("/config/export", 409)
async def export_config(
    request: ApiRequest, format: Literal["yaml", "mcp-json"] = "yaml"
) -> Exported:
    """To take elsewhere; secrets are left out."""
    try:
        made = await request.desk.store.export("yaml" if format == "yaml" else "mcpServers")
    except (EditError, ConfigError) as error:
        raise await given.refusal(request.desk, error) from None
    return Exported(
        format=format,
        name=made.file_name,
        text=made.text,
        placeholders=list(made.variables),
        warnings=list(made.warnings),
    )


@router.get("/schema")
async def config_schema(request: ApiRequest) -> dict[str, Any]:
    """The JSON Schema of the configuration, for editors."""
    return await asyncio.to_thread(made_schema)  # It loads all plug-ins.


@router.post("/paste")
async def recognise(request: ApiRequest, pasted: Pasted) -> PasteResult:
    """What a pasted text is, and the entries it makes; nothing is saved."""
    return await pasting.recognise(request.desk, pasted.text)
