"""The overview: who calls what, live, and what needs somebody (ADM-5)."""

import re

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import Language, Size, opened, serious, text
from kit.client import Session
from kit.gateway import Gateway

HOSTILE = '<img src=x onerror="document.title=1">{{ 7*7 }}\u202e'


def test_a_call_is_seen_from_the_client_to_the_server_as_it_happens(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(browser, gateway, "/", language=language) as page:
        traffic = page.get_by_role("region", name=text(language, "overview.flow.title"))
        busy = traffic.get_by_role("link").filter(has_text="everything")
        expect(busy).to_contain_text(text(language, "parts.status.ready"))
        expect(traffic.get_by_role("link").filter(has_text="broken")).to_contain_text(
            text(language, "parts.status.failed")
        )
        client = Session(gateway.port, client={"name": f"caller {language}", "version": "1.2.3"})
        client.call("echo", text="hi")
        expect(traffic.get_by_text(f"caller {language}")).to_be_visible()
        expect(busy.locator("span").last).to_have_text(re.compile(r"^\d+$"))


def test_a_name_that_a_client_gave_itself_stays_text(browser: Browser, gateway: Gateway) -> None:
    Session(gateway.port, client={"name": HOSTILE, "version": "1.2.3"})
    with opened(browser, gateway, "/") as page:
        expect(page.get_by_text("<img src=x").first).to_be_visible()
        expect(page.locator("main img")).to_have_count(0)
        assert page.title() == f"{text('en', 'overview.nav')} · mcpx"


def test_without_anything_configured_there_are_three_steps(
    browser: Browser, language: Language
) -> None:
    with (
        Gateway({"mcp_servers": []}, admin=True) as empty,
        opened(browser, empty, "/", language=language) as page,
    ):
        steps = page.get_by_role("region", name=text(language, "overview.first.title"))
        expect(steps.get_by_role("listitem")).to_have_count(3)
        expect(
            steps.get_by_role("link", name=text(language, "overview.first.importDo"))
        ).to_have_attribute("href", "#/config/import")
        steps.get_by_role("link", name=text(language, "overview.first.connectDo")).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(text(language, "connect.title"))


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_reads_well_everywhere(
    browser: Browser, gateway: Gateway, size: Size, *, dark: bool
) -> None:
    with opened(browser, gateway, "/", size=size, dark=dark) as page:
        expect(page.get_by_role("region", name=text("en", "overview.calls.title"))).to_be_visible()
        assert page.evaluate(
            "document.querySelector('main').scrollWidth <= "
            "document.querySelector('main').clientWidth"
        )
        assert serious(page) == []
