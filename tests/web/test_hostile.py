"""What hostile servers say of themselves does not keep the page from being used (ADM-5)."""

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from fixtures.browser import opened, text
from kit.gateway import Gateway
from kit.process import stdio_command
from kit.servers import stdio_server

ITSELF = {"$ref": "#/$defs/field"}
FIELDS: dict[str, dict[str, Any]] = {
    "lists": {"type": "array", "items": ITSELF},
    "maps": {"type": "object", "additionalProperties": ITSELF},
    "choices": {"anyOf": [ITSELF, {"type": "null"}]},
    "many": {"allOf": [ITSELF] * 12},
    "options": {"enum": [f"v{number}" for number in range(100_000)]},
}
"""Schemas without an end, or of a size that no list in a browser takes."""


def test_a_schema_without_end_is_still_a_form(browser: Browser, tmp_path: Path) -> None:
    tools = [
        {
            "name": name,
            "inputSchema": {
                "type": "object",
                "properties": {"field": ITSELF},
                "$defs": {"field": field},
            },
        }
        for name, field in FIELDS.items()
    ]
    offers = tmp_path / "offers.json"
    offers.write_text(
        json.dumps({"tools": tools, "answer": {"content": [{"type": "text", "text": "It ran."}]}})
    )
    server = stdio_server("odd", stdio_command("told_server.py", "--offers", str(offers)))
    with (
        Gateway({"mcp_servers": [server]}, admin=True) as gateway,
        opened(browser, gateway, "/servers") as page,
    ):
        expect(page.locator('[data-row="odd"]')).to_contain_text(text("en", "parts.status.ready"))
        for name in FIELDS:
            page.goto(f"{gateway.admin_url}/#/tools?tool=odd_{name}")
            expect(page.get_by_text("field", exact=True).first).to_be_visible()
            page.get_by_role("button", name=text("en", "tools.run")).first.click()
            expect(page.get_by_text("It ran.").first).to_be_visible()
