"""Tools: found, looked at, tried with a form that is also JSON (ADM-5)."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from fixtures.browser import Language, Size, opened, serious, text
from fixtures.shop_server import HOSTILE
from kit.gateway import Gateway
from kit.process import stdio_command

PLAIN = 1_000


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    command, *args = stdio_command("shop_server.py", str(PLAIN))
    shop = {"name": "shop", "connection": {"type": "stdio", "command": command, "args": args}}
    with Gateway({"mcp_servers": [shop]}, admin=True) as started:
        yield started


def run(page: Page, language: Language = "en") -> None:
    """Once there is something to run: the form comes after the list."""
    expect(page.get_by_role("button", name=text(language, "tools.run")).first).to_be_enabled()
    page.keyboard.press("Control+Enter")


def write(page: Page, words: str) -> None:
    """Into the editor, in the place of what is there. Emptied first: Chromium gives text that
    replaces coloured text a style attribute, which the CSP refuses."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(words)


def given(page: Page, language: Language = "en") -> object:
    """The arguments as the JSON view has them."""
    page.get_by_text("JSON", exact=True).first.click()
    expect(page.locator(".cm-line").first).to_contain_text(
        "{"
    )  # the editor is loaded when it is first needed
    shown = json.loads("\n".join(page.locator(".cm-line").all_inner_texts()))
    page.get_by_text(text(language, "schemaform.form"), exact=True).click()
    return shown


def test_a_tool_is_found_filled_in_run_and_read(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(browser, gateway, "/tools", language=language) as page:
        page.locator("main input[type=search]").fill("every pull")
        page.locator("[data-tool]").first.click()
        page.get_by_label("owner").fill("acme")
        page.get_by_label("labels").fill("one")
        page.keyboard.press("Enter")
        page.get_by_role("radiogroup", name="draft").get_by_text("true").click()
        run(page, language)
        expect(page.get_by_text(text(language, "tools.state.ok"), exact=True)).to_be_visible()
        expect(page.get_by_text(text(language, "tools.done"))).to_be_visible()
        page.get_by_role("tab", name=text(language, "tools.raw")).click()
        result = json.loads(
            page.get_by_role("region", name=text(language, "tools.raw")).inner_text()
        )
        assert result["structuredContent"]["given"] == {
            "owner": "acme",
            "labels": ["one"],
            "draft": True,
        }
        assert serious(page) == []


def test_form_and_json_are_two_views_of_one_value_and_none_is_lost(
    browser: Browser, gateway: Gateway
) -> None:
    with opened(browser, gateway, "/tools/every_kind") as page:
        page.get_by_label("owner").fill("acme")
        page.get_by_label("count").fill("many")
        expect(page.get_by_text(text("en", "schemaform.check.type_integer"))).to_be_visible()
        page.get_by_label(text("en", "schemaform.kind", name="target")).select_option(
            label="By name"
        )
        page.get_by_label("of", exact=True).fill("x")
        page.get_by_role("button", name="Add node").click()
        page.get_by_label("label", exact=True).fill("root")
        expected = {
            "owner": "acme",
            "count": "many",
            "target": {"kind": "name", "of": "x"},
            "node": {"label": "root"},
        }
        assert given(page) == expected
        odd = {
            "owner": 7,
            "pair": ["a", 1],
            "unknown": [1, {"deep": None}],
            "maybe": None,
            "extra": {"k": "v"},
            "target": {"kind": "id", "id": 3},
        }
        page.get_by_text("JSON", exact=True).first.click()
        write(page, json.dumps(odd))
        page.get_by_text(text("en", "schemaform.form"), exact=True).click()
        expect(page.get_by_label("unknown", exact=True)).to_be_visible()
        expect(page.get_by_role("textbox", name="id", exact=True)).to_have_value("3")
        page.get_by_role("textbox", name="id", exact=True).fill("4")
        assert given(page) == {**odd, "target": {"kind": "id", "id": 4}}


def test_text_that_is_no_json_keeps_the_json_view_open(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/tools/every_kind") as page:
        page.get_by_text("JSON", exact=True).first.click()
        write(page, '{"owner": ')
        page.get_by_text(text("en", "schemaform.form"), exact=True).click()
        expect(page.locator(".cm-content")).to_be_visible()
        expect(page.get_by_text(text("en", "schemaform.mendFirst")).first).to_be_visible()
        expect(page.get_by_role("button", name=text("en", "tools.run")).first).to_be_disabled()


def test_a_running_call_tells_its_progress_and_is_cancelled(
    browser: Browser, gateway: Gateway
) -> None:
    with opened(browser, gateway, "/tools/slow") as page:
        expect(page.get_by_role("button", name=text("en", "tools.run")).first).to_be_enabled()
        run(page)
        expect(page.get_by_text("a quarter")).to_be_visible()
        expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
        page.get_by_role("button", name=text("en", "tools.cancel")).first.click()
        expect(page.get_by_text(text("en", "tools.state.cancelled"), exact=True)).to_be_visible()


def test_a_destructive_tool_is_asked_about_first(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/tools/wipe") as page:
        expect(page.get_by_role("button", name=text("en", "tools.run")).first).to_be_enabled()
        run(page)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("shop")
        dialog.get_by_role("button", name=text("en", "parts.cancel")).click()
        expect(page.get_by_text(text("en", "tools.notRun"))).to_be_visible()


def test_what_a_tool_gives_and_says_stays_text(browser: Browser, gateway: Gateway) -> None:
    """Markup is shown as it is, pictures only of known kinds, links only to the web, with their
    host."""
    with opened(browser, gateway, "/tools/hostile") as page:
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        assert page.locator("main img").count() == 0
        page.goto(f"{gateway.admin_url}/#/tools/blocks")
        expect(page.get_by_role("heading", name="blocks")).to_be_visible()
        run(page)
        page.get_by_role("tab", name=text("en", "tools.rendered")).click()
        expect(page.get_by_text("<b>plain</b>")).to_be_visible()
        expect(page.locator("main img")).to_have_count(1)
        expect(page.get_by_role("link", name="example.com")).to_have_attribute(
            "rel", "noopener noreferrer nofollow"
        )
        expect(page.get_by_text("javascript:alert(1)")).to_be_visible()
        assert page.locator("a[href^='javascript']").count() == 0


def test_the_models_ranking_is_shown_with_scores_and_its_words(
    browser: Browser, gateway: Gateway
) -> None:
    with opened(browser, gateway, "/tools?q=pull%20requests&rank=1") as page:
        first = page.locator("[data-tool]").first
        expect(first).to_contain_text("every_kind")
        expect(first.locator("mark").first).to_be_visible()
        page.get_by_role("button", name=text("en", "tools.modelSees")).click()
        expect(page.get_by_role("region", name=text("en", "tools.modelSees"))).to_contain_text(
            "every_kind"
        )


def test_a_thousand_tools_are_filtered_without_drawing_them_all(
    browser: Browser, gateway: Gateway
) -> None:
    with opened(browser, gateway, "/tools") as page:
        expect(page.locator("[data-tool]").first).to_be_visible()
        assert page.locator("[data-tool]").count() < 60
        page.locator("main input[type=search]").fill("plain_999")
        expect(page.locator("[data-tool]")).to_have_count(1)
        page.locator("main input[type=search]").press("ArrowDown")
        expect(page.get_by_role("heading", name="plain_999")).to_be_visible()


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_reads_well_everywhere(
    browser: Browser, gateway: Gateway, size: Size, *, dark: bool
) -> None:
    with opened(browser, gateway, "/tools/every_kind", size=size, dark=dark) as page:
        expect(page.get_by_label("owner")).to_be_visible()
        assert page.evaluate(
            "document.querySelector('main').scrollWidth <= "
            "document.querySelector('main').clientWidth"
        )
        assert serious(page) == []
        if size == "phone":
            page.get_by_role("button", name=text("en", "tools.back"), exact=True).click()
            expect(page.locator("[data-tool]").first).to_be_visible()
            assert serious(page) == []
