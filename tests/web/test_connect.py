"""Connecting a client: what to copy, and that the page sees it come (ADM-5)."""

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import Language, Size, opened, serious, text
from kit.gateway import Gateway
from kit.http_client import fetch


def test_the_page_says_when_the_first_request_has_come(
    browser: Browser, language: Language
) -> None:
    with Gateway({"mcp_servers": []}, admin=True) as gateway:
        path = "/connect?client=claude-code"
        with opened(browser, gateway, path, language=language) as page:
            waiting = page.get_by_text(text(language, "connect.check.waiting", name="Claude Code"))
            expect(waiting).to_be_visible()
            expect(
                page.get_by_role("region", name="Claude Code").locator("pre").first
            ).to_contain_text(gateway.url)
            greet(gateway, "claude-code", "2.1.4")
            expect(page.get_by_text("claude-code 2.1.4").first).to_be_visible()
            expect(waiting).to_have_count(0)


def greet(gateway: Gateway, name: str, version: str) -> None:
    """The first request of a client."""
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": name, "version": version},
    }
    headers = {"Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = fetch(gateway.url.removesuffix("/mcp"), "/mcp", "POST", headers, body)
    assert answer.status == 200, answer.body


def test_what_is_copied_is_what_is_shown(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(browser, gateway, "/connect?client=cursor", language=language) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        how = page.get_by_role("region", name="Cursor")
        how.get_by_role("button", name=text(language, "parts.copy")).first.click()
        shown = how.locator("pre").first.inner_text()
        assert page.evaluate("navigator.clipboard.readText()") == shown
        assert gateway.url in shown


def test_programs_are_found_by_name(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/connect") as page:
        programs = page.get_by_role("navigation", name=text("en", "connect.programs"))
        expect(programs.get_by_role("button", name="Zed")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("curs")
        expect(programs.get_by_role("button")).to_have_count(1)
        assert "q=curs" in page.url


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_reads_well_everywhere(
    browser: Browser, gateway: Gateway, size: Size, *, dark: bool
) -> None:
    with opened(browser, gateway, "/connect?client=vscode", size=size, dark=dark) as page:
        expect(page.get_by_role("region", name="VS Code")).to_be_visible()
        assert page.evaluate(
            "document.querySelector('main').scrollWidth <= "
            "document.querySelector('main').clientWidth"
        )
        assert serious(page) == []
