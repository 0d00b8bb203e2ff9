"""The pictures of the documentation: a gateway with real servers and traffic, as the pages show it
(ADM-5).

`MCPX_PICTURES=1` writes them to `docs/pictures`; otherwise it is only looked whether they can be
made, and whether those of the documentation are there.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from fixtures.browser import Language, opened, text
from kit.admin_api import AdminApi
from kit.client import Session
from kit.gateway import Gateway
from kit.node import node, npm_bin
from kit.until import wait_until

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
PICTURES = REPOSITORY / "docs" / "pictures"
ORDERS = [
    {"order": 1000 + number, "customer": name, "total": 12.5 * number, "paid": number % 3 != 0}
    for number, name in enumerate(("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald"), 1)
]


def _settings(folder: Path) -> dict[str, Any]:
    def program(name: str, *args: str, **more: Any) -> dict[str, Any]:
        connection = {
            "type": "stdio",
            "command": node(),
            "args": [npm_bin(f"server-{name}"), *args],
        }
        return {"name": name, "connection": connection, **more}

    def python(name: str, module: str, *args: str) -> dict[str, Any]:
        return {
            "name": name,
            "connection": {
                "type": "stdio",
                "command": sys.executable,
                "args": ["-m", module, *args],
            },
        }

    script = {"interpreter": "python3", "path": "orders.py", "args": ["{customer}"]}
    parameter = {
        "name": "customer",
        "type": "string",
        "description": "Whose orders; all if left out",
    }
    return {
        "mode": "search",
        "global": {"script_paths": [str(folder)]},
        "mcp_servers": [
            program("filesystem", str(folder), prefix="fs"),
            python("git", "mcp_server_git"),
            python("time", "mcp_server_time"),
            program("memory", trust="quarantine"),
            program("everything"),
            {
                "name": "sqlite",
                "connection": {"type": "stdio", "command": "mcp-server-sqlite-of-nobody"},
            },
            {
                "name": "notion",
                "enabled": False,
                "connection": {"type": "http", "url": "https://mcp.notion.com/mcp"},
            },
        ],
        "commands": [
            {
                "name": "list_orders",
                "description": "Orders of the shop, newest first",
                "type": "script",
                "script": {**script, "path": str(folder / "orders.py")},
                "parameters": [parameter],
                "read_only": True,
            }
        ],
    }


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "orders.py").write_text(f"print({json.dumps(json.dumps({'orders': ORDERS}))})\n")
    (folder / "notes.md").write_text("# Notes\n")
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}  # which a picture shows
    with Gateway(_settings(folder), env=path, admin=True) as gateway:
        api = AdminApi(gateway)
        ready = ("filesystem", "git", "time", "everything")
        wait_until(lambda: all(api.status(name) == "connected" for name in ready) or None)
        _traffic(gateway, folder)
        yield gateway


def _traffic(gateway: Gateway, folder: Path) -> None:
    """Three clients, so that something flows."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("fs_list_directory", {"path": str(folder)}),
        ("fs_read_text_file", {"path": str(folder / "notes.md")}),
        ("get_current_time", {"timezone": "Europe/Zurich"}),
        ("list_orders", {}),
        ("echo", {"message": "hello"}),
        ("fs_read_text_file", {"path": "/etc/shadow"}),
    ]
    for client, path, times in (
        ("Claude Code", "/mcp/direct", 4),
        ("Cursor", "/mcp", 2),
        ("VS Code", "/mcp/direct", 1),
    ):
        session = Session(gateway.port, path=path, client={"name": client, "version": "2.1.4"})
        session.request("tools/list")
        for _ in range(times):
            for name, arguments in calls:
                if path == "/mcp":
                    session.call("mcp_execute_tool", tool_name=name, arguments=arguments)
                else:
                    session.call(name, **arguments)


def _overview(page: Page, language: Language) -> None:
    expect(page.get_by_text("Claude Code").first).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()


def _tools(page: Page, language: Language) -> None:
    page.get_by_role("button", name=text(language, "tools.run"), exact=False).first.click()
    expect(page.get_by_text("Ada").first).to_be_visible()


def _server(page: Page, language: Language) -> None:
    told = page.get_by_role("complementary").get_by_text(re.compile("mcp-server-sqlite-of-nobody"))
    expect(told.filter(visible=True).first).to_be_visible()


SCENES: dict[str, tuple[str, Callable[[Page, Language], None]]] = {
    "overview": ("/", _overview),
    "tools": ("/tools?tool=list_orders", _tools),
    "server": ("/servers?server=sqlite", _server),
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", list(SCENES))
def test_the_pictures_of_the_documentation_are_made_of_the_real_thing(
    browser: Browser, scene: Gateway, language: Language, name: str, *, dark: bool, tmp_path: Path
) -> None:
    path, prepare = SCENES[name]
    tongue = "" if language == "en" else "-zh"
    file = f"{name}{tongue}-{'dark' if dark else 'light'}.png"
    with opened(browser, scene, path, language=language, dark=dark) as page:
        prepare(page, language)
        page.wait_for_timeout(300)  # the last lines are being drawn
        folder = PICTURES if os.environ.get("MCPX_PICTURES") else tmp_path
        folder.mkdir(exist_ok=True)
        page.screenshot(path=folder / file)
    assert (PICTURES / file).is_file(), (
        "make them: MCPX_PICTURES=1 bash scripts/test tests/web/test_pictures.py"
    )
