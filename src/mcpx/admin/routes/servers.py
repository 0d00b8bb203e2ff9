"""MCP servers over the admin API."""

from fastapi import APIRouter

from mcpx.admin.routes.given import AtDesk, Name, Writing, not_yet
from mcpx.admin.shapes.common import Entry, Preview, Toggle, Written
from mcpx.admin.shapes.servers import Health, Logs, ServerDetail, ServerRow, Servers, SignIn, Trial, TrialResult
from mcpx.admin.shapes.tools import Tools

router = APIRouter(prefix="/api/mcp-servers", tags=["MCP servers"])


@router.get("")
async def list_servers(desk: AtDesk) -> Servers:
    """Every configured server and how it is (ADM-3)."""
    raise not_yet()


@router.post("", status_code=201)
async def add_server(desk: AtDesk, entry: Entry, change: Writing) -> Written | Preview:
    """Add a server; it is started at once."""
    raise not_yet()


@router.post("/test")
async def try_entry(desk: AtDesk, trial: Trial) -> TrialResult:
    """Connect to a server that is not saved, once, and tell what it offers."""
    raise not_yet()


@router.get("/{name}")
async def show_server(desk: AtDesk, name: Name) -> ServerDetail:
    """One server, with its entry as written."""
    raise not_yet()


@router.put("/{name}")
async def change_server(desk: AtDesk, name: Name, entry: Entry, change: Writing) -> Written | Preview:
    """Replace its entry; another `name` in it renames it."""
    raise not_yet()


@router.delete("/{name}")
async def remove_server(desk: AtDesk, name: Name, change: Writing) -> Written | Preview:
    """Remove it."""
    raise not_yet()


@router.patch("/{name}/toggle")
async def toggle_server(desk: AtDesk, name: Name, change: Writing, toggle: Toggle | None = None) -> Written | Preview:
    """Switch it on or off."""
    raise not_yet()


@router.post("/{name}/test")
async def try_server(desk: AtDesk, name: Name) -> TrialResult:
    """Connect to it once more, beside what runs."""
    raise not_yet()


@router.get("/{name}/tools")
async def server_tools(desk: AtDesk, name: Name) -> Tools:
    """What it offers, held definitions included."""
    raise not_yet()


@router.post("/{name}/reconnect")
async def reconnect(desk: AtDesk, name: Name) -> ServerRow:
    """Connect anew, now; calls that run may fail."""
    raise not_yet()


@router.get("/{name}/logs")
async def server_logs(desk: AtDesk, name: Name, after: int = 0, limit: int = 200) -> Logs:
    """What it said on standard error, and what happened to it."""
    raise not_yet()


@router.get("/{name}/health")
async def server_health(desk: AtDesk, name: Name) -> Health:
    """Its states over the last 24 hours."""
    raise not_yet()


@router.post("/{name}/sign-in")
async def sign_in(desk: AtDesk, name: Name) -> SignIn:
    """Where to sign in; opening `auth_url` in a browser finishes it."""
    raise not_yet()


@router.delete("/{name}/sign-in")
async def sign_out(desk: AtDesk, name: Name) -> SignIn:
    """Forget what was signed in with."""
    raise not_yet()
