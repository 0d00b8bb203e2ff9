"""Commands over the admin API."""

from fastapi import APIRouter

from mcpx.admin.routes.given import AtDesk, Name, Writing, not_yet
from mcpx.admin.shapes.commands import (
    CommandDetail,
    CommandImport,
    CommandImportResult,
    Commands,
    CommandTrial,
    CommandTrialResult,
    SavedCommandTrial,
)
from mcpx.admin.shapes.common import Entry, Preview, Toggle, Written

router = APIRouter(prefix="/api/commands", tags=["Commands"])


@router.get("")
async def list_commands(desk: AtDesk) -> Commands:
    """Every local command."""
    raise not_yet()


@router.post("", status_code=201)
async def add_command(desk: AtDesk, entry: Entry, change: Writing) -> Written | Preview:
    """Add a command; it is a tool at once."""
    raise not_yet()


@router.post("/test")
async def try_command(desk: AtDesk, trial: CommandTrial) -> CommandTrialResult:
    """Resolve and run a command that is not saved."""
    raise not_yet()


@router.post("/import")
async def import_commands(desk: AtDesk, wanted: CommandImport) -> CommandImportResult:
    """Commands of an OpenAPI document or a curl line; nothing is saved."""
    raise not_yet()


@router.get("/{name}")
async def show_command(desk: AtDesk, name: Name) -> CommandDetail:
    """One command, with its entry as written."""
    raise not_yet()


@router.put("/{name}")
async def change_command(desk: AtDesk, name: Name, entry: Entry, change: Writing) -> Written | Preview:
    """Replace its entry."""
    raise not_yet()


@router.delete("/{name}")
async def remove_command(desk: AtDesk, name: Name, change: Writing) -> Written | Preview:
    """Remove it."""
    raise not_yet()


@router.patch("/{name}/toggle")
async def toggle_command(desk: AtDesk, name: Name, change: Writing, toggle: Toggle | None = None) -> Written | Preview:
    """Switch it on or off."""
    raise not_yet()


@router.post("/{name}/test")
async def try_saved_command(desk: AtDesk, name: Name, trial: SavedCommandTrial) -> CommandTrialResult:
    """Resolve and run it."""
    raise not_yet()
