"""Coming in: the login URL, the token form, and going out again (ADM-6)."""

import re

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import Language, opened, serious, text
from kit.gateway import Gateway

REFUSED = [r"status of 401"]
"""Chromium logs every answer that is no success; these are the point of the test."""


def test_who_is_not_signed_in_gets_the_form_and_comes_in_where_he_wanted_to(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(browser, gateway, "/settings", language=language, signed_in=False, forgiven=REFUSED) as page:
        field = page.get_by_label(text(language, "login.token"))
        expect(field).to_be_focused()
        assert serious(page) == []
        field.fill("not the token")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text(text(language, "login.wrong"))
        field.fill(gateway.admin_token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(text(language, "settings.nav"))


def test_who_is_signed_in_already_goes_on_without_the_form(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/login?next=/settings") as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(text("en", "settings.nav"))
        expect(page).to_have_url(re.compile(r"#/settings$"))
    with opened(browser, gateway, "/login?next=/login") as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(text("en", "overview.nav"))


def test_the_printed_url_signs_in_and_leaves_no_token_in_the_address(browser: Browser) -> None:
    with Gateway({"mcp_servers": []}, admin=True) as gateway:
        context = browser.new_context(locale="en")
        try:
            page = context.new_page()
            page.goto(gateway.login_url)
            expect(page.get_by_role("heading", level=1)).to_have_text(text("en", "overview.nav"))
            assert "token" not in page.url
        finally:
            context.close()


def test_a_login_url_that_is_not_good_any_more_says_so_and_how_to_get_another(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(browser, gateway, "/login", language=language, signed_in=False) as page:
        page.goto(f"{gateway.admin_url}/login?token=used")
        alert = page.get_by_role("alert")
        expect(alert).to_have_text(text(language, "login.expired"))
        expect(alert).to_contain_text("mcpx admin")


def test_signing_out_shows_the_form_and_nothing_else(browser: Browser, gateway: Gateway, language: Language) -> None:
    with opened(browser, gateway, "/settings", language=language, forgiven=REFUSED) as page:
        page.get_by_role("button", name=text(language, "settings.signOut")).click()
        expect(page.get_by_label(text(language, "login.token"))).to_be_visible()
        page.goto(f"{gateway.admin_url}/#/")
        expect(page).to_have_url(re.compile(r"#/login"))


def test_a_tab_notices_that_another_one_signed_out(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/settings", forgiven=["401"]) as page:
        expect(page.get_by_text(text("en", "shell.live"), exact=True)).to_be_visible()
        answer = page.request.post(f"{gateway.admin_url}/api/logout", headers={"X-Mcpx-Csrf": "1"})
        assert answer.status == 204
        expect(page).to_have_url(re.compile(r"#/login\?next="))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_form_holds_on_a_phone_in_both_themes(browser: Browser, gateway: Gateway, *, dark: bool) -> None:
    with opened(browser, gateway, "/login", size="phone", dark=dark, signed_in=False) as page:
        expect(page.get_by_label(text("en", "login.token"))).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert serious(page) == []
