"""Settings: what runs, tokens made and revoked, diagnostics (ADM-5)."""

import json

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import Language, Size, opened, serious, text
from kit.gateway import Gateway
from kit.http_client import fetch


def test_a_token_is_made_shown_once_and_revoked(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    name = f"laptop-{language}"
    with opened(browser, gateway, "/settings", language=language) as page:
        page.get_by_role("button", name=text(language, "settings.tokens.create")).first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label(text(language, "settings.tokens.name")).fill(name)
        assert serious(page) == []
        dialog.get_by_role("button", name=text(language, "settings.tokens.create")).click()
        shown = dialog.locator("code").first
        expect(dialog.get_by_text(text(language, "settings.tokens.once"))).to_be_visible()
        token = shown.inner_text()
        dialog.get_by_role("button", name=text(language, "settings.tokens.kept")).click()
        row = page.get_by_role("row").filter(has_text=name)
        expect(row).to_be_visible()
        assert token not in page.content()
        row.get_by_role("button", name=text(language, "settings.tokens.revoke"), exact=True).click()
        page.get_by_role("dialog").get_by_role(
            "button", name=text(language, "settings.tokens.revokeVerb")
        ).click()
        expect(row).to_have_count(0)
    listed = fetch(gateway.admin_url, "/api/tokens", headers=gateway.admin_headers).json["tokens"]
    assert name not in [one["name"] for one in listed]


def test_a_second_token_of_the_same_name_is_refused_where_it_was_typed(
    browser: Browser, gateway: Gateway
) -> None:
    made = fetch(gateway.admin_url, "/api/tokens", "POST", gateway.admin_headers, {"name": "twice"})
    assert made.status == 201, made.body
    with opened(browser, gateway, "/settings", forgiven=[r"status of 4\d\d"]) as page:
        page.get_by_role("button", name=text("en", "settings.tokens.create")).first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label(text("en", "settings.tokens.name")).fill("twice")
        dialog.get_by_role("button", name=text("en", "settings.tokens.create")).click()
        expect(dialog.get_by_role("alert")).to_contain_text("there is a token of this name")


def test_diagnostics_come_as_a_file_without_the_admin_token(
    browser: Browser, gateway: Gateway
) -> None:
    with opened(browser, gateway, "/settings") as page:
        with page.expect_download() as begun:
            page.get_by_role("button", name=text("en", "settings.report.download")).click()
        saved = begun.value.path().read_text(encoding="utf-8")
    assert json.loads(saved)
    assert gateway.admin_token not in saved


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_reads_well_everywhere(
    browser: Browser, gateway: Gateway, size: Size, *, dark: bool
) -> None:
    with opened(browser, gateway, "/settings", size=size, dark=dark) as page:
        expect(page.get_by_text(gateway.admin_url).first).to_be_visible()
        assert page.evaluate(
            "document.querySelector('main').scrollWidth <= "
            "document.querySelector('main').clientWidth"
        )
        assert serious(page) == []
