"""Configuration over the admin API."""

from typing import Any, Literal

from fastapi import APIRouter

from mcpx.admin.routes.given import AtDesk, Writing, not_yet
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
    ReloadResult,
    RevisionTold,
    Rollback,
)
from mcpx.admin.shapes.servers import Pasted, PasteResult

router = APIRouter(prefix="/api", tags=["Configuration"])


@router.get("/config")
async def show_config(desk: AtDesk) -> ConfigTold:
    """The configuration as text, secrets masked, and how it is."""
    raise not_yet()


@router.post("/config")
async def write_config(desk: AtDesk, given: ConfigText, change: Writing) -> Written | Preview:
    """Replace the text of a file."""
    raise not_yet()


@router.post("/config/validate")
async def validate_config(desk: AtDesk, given: ConfigText) -> Checked:
    """Every mistake of a text, with its place."""
    raise not_yet()


@router.post("/config/plan")
async def plan_config(desk: AtDesk, given: ConfigText) -> Preview:
    """What a text would change; nothing is changed."""
    raise not_yet()


@router.post("/config/reload")
async def reload_config(desk: AtDesk) -> ReloadResult:
    """Read the file again, as `mcpx reload` does."""
    raise not_yet()


@router.get("/config/history")
async def show_history(desk: AtDesk, limit: int = 50) -> History:
    """Who changed what and when."""
    raise not_yet()


@router.get("/config/history/{number}")
async def show_revision(desk: AtDesk, number: int) -> RevisionTold:
    """One revision, with its text, secrets masked."""
    raise not_yet()


@router.post("/config/diff")
async def diff_config(desk: AtDesk, wanted: DiffWanted) -> DiffTold:
    """Between two revisions, or one and what is there now."""
    raise not_yet()


@router.post("/config/rollback")
async def roll_back(desk: AtDesk, wanted: Rollback, change: Writing) -> Written | Preview:
    """Make an earlier revision the present one, as a new revision."""
    raise not_yet()


@router.post("/config/import")
async def import_config(desk: AtDesk, given: ConfigImport, change: Writing) -> Written | Preview:
    """Take servers over from a client's file."""
    raise not_yet()


@router.get("/config/export")
async def export_config(desk: AtDesk, format: Literal["yaml", "mcp-json"] = "yaml") -> Exported:
    """To take elsewhere; secrets are left out."""
    raise not_yet()


@router.get("/schema")
async def config_schema(desk: AtDesk) -> dict[str, Any]:
    """The JSON Schema of the configuration, for editors."""
    raise not_yet()


@router.post("/paste")
async def recognise(desk: AtDesk, pasted: Pasted) -> PasteResult:
    """What a pasted text is, and the entries it makes; nothing is saved."""
    raise not_yet()
