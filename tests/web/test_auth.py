"""Auth configs in the browser: made by their kind, secrets only written, kept while they are used
(ADM-5)."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import Language, Size, opened, serious, text
from kit.gateway import Gateway

SECRET = "ghp-0123456789abcdef"
JUDGED = [r"status of 4\d\d"]


@pytest.fixture(scope="module")
def own_gateway() -> Iterator[Gateway]:
    used = {"name": "used", "type": "bearer_token", "bearer_token": {"token": SECRET}}
    server = {
        "name": "docs",
        "lazy": True,
        "auth": {"ref": "used"},
        "connection": {"type": "http", "url": "http://127.0.0.1:9/mcp"},
    }
    with Gateway({"mcp_servers": [server], "auth_configs": [used]}, admin=True) as started:
        yield started


def _written(gateway: Gateway) -> dict[str, dict[str, Any]]:
    return {
        one["name"]: one
        for one in json.loads(gateway.file.read_text(encoding="utf-8"))["auth_configs"]
    }


def test_one_is_made_by_its_kind_changed_and_removed_without_its_secret_being_shown(
    browser: Browser, own_gateway: Gateway, language: Language
) -> None:
    name = f"maps-{language.lower()}"
    apply = re.compile(text(language, "entry.review.applyAs", n=r"\d+"))
    with opened(browser, own_gateway, "/auth/add", language=language, forgiven=JUDGED) as page:
        page.get_by_role("textbox", name=text(language, "auth.columns.name")).first.fill(name)
        page.get_by_label(text(language, "auth.columns.type"), exact=True).select_option("api_key")
        page.get_by_role("textbox", name=text(language, "auth.fields.api_key_name.label")).fill(
            "X-Api-Key"
        )
        page.locator("input[type=password]").fill(SECRET)
        assert serious(page) == []
        page.get_by_role("button", name=apply).click()
        drawer = page.get_by_role("complementary", name=name)
        expect(drawer).to_contain_text(text(language, "auth.states.unused"))
        expect(drawer).to_contain_text("X-Api-Key")
        assert SECRET not in page.content()
        drawer.get_by_role("link", name=text(language, "auth.edit")).click()
        expect(page.get_by_text(text(language, "entry.secret.set"))).to_be_visible()
        page.get_by_role("textbox", name=text(language, "auth.fields.api_key_name.label")).fill(
            "X-Other"
        )
        page.get_by_role("button", name=apply).click()
        expect(drawer).to_contain_text("X-Other")
        assert _written(own_gateway)[name]["api_key"] == {"name": "X-Other", "value": SECRET}
        assert serious(page) == []
        drawer.get_by_role("button", name=text(language, "auth.remove.short")).click()
        page.get_by_role("dialog").get_by_role(
            "button", name=text(language, "auth.remove.verb")
        ).click()
        expect(page.locator(f'[data-row="{name}"]')).to_have_count(0)
    assert name not in _written(own_gateway)


def test_one_that_is_used_says_by_whom_and_stays(browser: Browser, own_gateway: Gateway) -> None:
    with opened(browser, own_gateway, "/auth?auth=used") as page:
        drawer = page.get_by_role("complementary", name="used")
        expect(drawer.get_by_role("link", name="docs")).to_have_attribute(
            "href", re.compile("#/servers")
        )
        drawer.get_by_role("button", name="Remove").click()
        expect(page.get_by_text("Take it out of docs first")).to_be_visible()
    assert "used" in _written(own_gateway)


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
def test_it_fits_and_reads_well_everywhere(
    browser: Browser, own_gateway: Gateway, size: Size
) -> None:
    for path in ("/auth", "/auth/add"):
        with opened(browser, own_gateway, path, size=size, dark=size == "tablet") as page:
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            wide = (
                "() => document.querySelector('main').scrollWidth - "
                "document.querySelector('main').clientWidth"
            )
            assert page.evaluate(wide) <= 0
            assert serious(page) == []
