"""The configuration in the browser: edited as text, reviewed, applied, merged, restored, imported,
exported (ADM-5)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from fixtures.browser import Language, Size, opened, serious, text
from kit.gateway import Gateway
from kit.http_client import fetch
from kit.process import stdio_command

SECRET = "correct-horse-battery-staple"
COMMAND, *ARGS = stdio_command("everything_server.py", "--era", "older")
TEXT = f"""\
# Kept by hand
mode: auto
mcp_servers:
  - name: everything  # the one that works
    connection:
      type: stdio
      command: {json.dumps(COMMAND)}
      args: {json.dumps(ARGS)}
      env:
        API_TOKEN: {SECRET}
  - name: second
    enabled: false
    connection: {{type: stdio, command: no-such-program-of-mcpx}}
global:
  default_timeout: 30
"""


@pytest.fixture
def own() -> Iterator[Gateway]:
    """For tests that change it."""
    with Gateway(TEXT, admin=True) as started:
        yield started


@pytest.fixture(scope="module")
def shared() -> Iterator[Gateway]:
    """For tests that leave it as it was."""
    with Gateway(TEXT, admin=True) as started:
        yield started


def editor(page: Page) -> Locator:
    return page.locator(".cm-content").first


def type_after(page: Page, line: str, typed: str) -> None:
    """Puts a line below the one that has `line`."""
    page.locator(".cm-line", has_text=line).first.click()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.keyboard.type(typed)
    page.keyboard.press("Escape")


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name).first


def test_a_mistake_is_told_at_its_line_mended_reviewed_and_applied(
    browser: Browser, own: Gateway, language: Language
) -> None:
    with opened(browser, own, "/config", language=language) as page:
        type_after(page, "name: everything", "time_out: 20")
        problems = page.get_by_role("region", name=text(language, "config.problems.title"))
        expect(problems).to_contain_text("config.yaml:5:5")
        review = button(page, text(language, "config.review.title"))
        expect(review).to_be_disabled()
        assert serious(page) == []
        problems.get_by_role(
            "button", name=text(language, "config.problems.rename", name="timeout")
        ).click()
        expect(review).to_be_enabled()
        review.click()
        expect(
            page.get_by_role("region", name=text(language, "config.review.title")).last
        ).to_contain_text("timeout: 20")
        assert serious(page) == []
        page.get_by_label(text(language, "entry.review.message")).fill("patience")
        button(page, text(language, "entry.review.applyAs", n=2)).click()
        expect(page.get_by_text(text(language, "entry.review.applied", n=2))).to_be_visible()
        expect(review).to_be_disabled()
        assert SECRET not in page.content()
    written = own.file.read_text(encoding="utf-8")
    assert written == TEXT.replace("the one that works\n", "the one that works\n    timeout: 20\n")


def test_keys_are_offered_and_explained_where_they_belong(
    browser: Browser, shared: Gateway
) -> None:
    with opened(browser, shared, "/config") as page:
        type_after(page, "default_timeout: 30", "")
        page.keyboard.type("result_")
        page.keyboard.press("Control+Space")
        offered = page.locator(".cm-tooltip-autocomplete")
        expect(offered).to_contain_text("result_limit")
        expect(offered).not_to_contain_text("mcp_servers")
        page.keyboard.press("Escape")
        page.locator(".cm-line", has_text="mode: auto").get_by_text("mode", exact=True).hover()
        expect(page.locator(".config-explained")).to_contain_text("mode")


def test_the_outline_and_an_address_lead_to_a_line(browser: Browser, shared: Gateway) -> None:
    with opened(browser, shared, f"/config?file={shared.file}&line=11") as page:
        expect(page.locator(".cm-activeLine")).to_contain_text("name: second")
        outline = page.get_by_role("navigation", name=text("en", "config.outline"))
        expect(outline.get_by_role("button", name="second")).to_have_attribute(
            "aria-current", "location"
        )
        outline.get_by_role("button", name="global").click()
        expect(page.locator(".cm-activeLine")).to_contain_text("global:")


def test_a_change_on_disk_meanwhile_is_told_and_both_can_be_merged(
    browser: Browser, own: Gateway
) -> None:
    with opened(browser, own, "/config") as page:
        type_after(page, "name: everything", "timeout: 20")
        changed = TEXT.replace("default_timeout: 30", "default_timeout: 45")
        own.file.write_text(changed, encoding="utf-8")
        expect(
            page.get_by_text(text("en", "config.conflict.text", file="config.yaml"))
        ).to_be_visible()
        assert serious(page) == []
        button(page, text("en", "config.conflict.merge")).click()
        expect(editor(page)).to_contain_text("default_timeout: 45")
        expect(editor(page)).to_contain_text("timeout: 20")
        button(page, text("en", "config.review.title")).click()
        button(page, "Apply as revision 3").click()
        expect(page.get_by_text(text("en", "entry.review.applied", n=3))).to_be_visible()
    written = own.file.read_text(encoding="utf-8")
    assert "default_timeout: 45" in written
    assert "    timeout: 20\n" in written
    assert SECRET in written


def test_where_both_changed_the_same_line_somebody_has_to_choose(
    browser: Browser, own: Gateway
) -> None:
    with opened(browser, own, "/config") as page:
        page.locator(".cm-line", has_text="default_timeout: 30").click()
        page.keyboard.press("End")
        page.keyboard.type("0")
        own.file.write_text(
            TEXT.replace("default_timeout: 30", "default_timeout: 45"), encoding="utf-8"
        )
        button(page, text("en", "config.conflict.merge")).click()
        expect(editor(page)).to_contain_text("<<<<<<<")
        expect(button(page, text("en", "config.review.title"))).to_be_disabled()
        button(page, text("en", "config.discard.short")).click()
        page.get_by_role("dialog").get_by_role(
            "button", name=text("en", "config.discard.verb")
        ).click()
        expect(editor(page)).to_contain_text("default_timeout: 45")
        expect(editor(page)).not_to_contain_text("<<<<<<<")


def test_a_file_that_was_refused_is_shown_with_its_mistakes(
    browser: Browser, own: Gateway, language: Language
) -> None:
    with opened(browser, own, "/config", language=language) as page:
        expect(editor(page)).to_contain_text("name: everything")
        own.file.write_text(TEXT.replace("mode: auto", "mode: automatic"), encoding="utf-8")
        expect(
            page.get_by_role("button", name=text(language, "config.goThere", place="config.yaml:2"))
        ).to_be_visible()
        expect(editor(page)).to_contain_text("mode: automatic")
        assert serious(page) == []
    servers = fetch(own.admin_url, "/api/mcp-servers", headers=own.admin_headers).json["servers"]
    assert [one["name"] for one in servers] == ["everything", "second"]


def test_what_was_typed_is_not_lost_by_leaving(
    browser: Browser, shared: Gateway, language: Language
) -> None:
    with opened(browser, shared, "/config", language=language) as page:
        type_after(page, "name: everything", "timeout: 20")
        page.get_by_role("tab", name=text(language, "config.tabs.history")).click()
        page.get_by_role("tab", name=text(language, "config.tabs.editor")).click()
        expect(editor(page)).to_contain_text("timeout: 20")
        page.get_by_role("link", name=text(language, "policy.nav")).click()
        page.get_by_role("dialog").get_by_role(
            "button", name=text(language, "parts.cancel")
        ).click()
        expect(editor(page)).to_contain_text("timeout: 20")


def test_an_earlier_revision_is_compared_and_restored(
    browser: Browser, own: Gateway, language: Language
) -> None:
    put = fetch(
        own.admin_url,
        "/api/mcp-servers/second?message=gone",
        "DELETE",
        own.admin_headers | {"If-Match": "*"},
    )
    assert put.status == 200, put.body
    with opened(browser, own, "/config/history", language=language) as page:
        expect(page.get_by_label(text(language, "config.revision", n=2)).first).to_contain_text(
            "no-such-program-of-mcpx"
        )
        page.get_by_role("button", name=re.compile(r"^1 ")).click()
        button(page, text(language, "config.history.restore", n=1)).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("name: second")
        assert serious(page) == []
        dialog.get_by_role("button", name=text(language, "config.history.restoreAs", n=3)).click()
        expect(page.get_by_text(text(language, "entry.review.applied", n=3))).to_be_visible()
    assert own.file.read_text(encoding="utf-8") == TEXT


def test_servers_of_a_client_are_picked_and_imported(
    browser: Browser, own: Gateway, language: Language
) -> None:
    pasted = {
        "everything": {"command": "npx", "args": ["-y", "x"]},
        "far": {"url": "https://mcp.invalid/mcp"},
    }
    with opened(browser, own, "/config/import", language=language) as page:
        page.get_by_role("textbox", name=text(language, "config.import.title")).fill(
            json.dumps({"mcpServers": pasted})
        )
        expect(
            page.get_by_text(text(language, "config.import.renamed", name="everything-2"))
        ).to_be_visible()
        page.get_by_role("checkbox", name="far").uncheck()
        assert serious(page) == []
        button(page, text(language, "entry.review.applyAs", n=2)).click()
        page.wait_for_url("**/#/servers")
        expect(page.get_by_role("row").filter(has_text="everything-2")).to_be_visible()
    assert "everything-2" in own.file.read_text(encoding="utf-8")
    assert "far" not in own.file.read_text(encoding="utf-8")


def test_an_export_names_the_variables_in_the_place_of_secrets(
    browser: Browser, shared: Gateway
) -> None:
    with opened(browser, shared, "/config/export") as page:
        expect(page.get_by_text("API_TOKEN").first).to_be_visible()
        with page.expect_download() as begun:
            page.get_by_role("button", name=re.compile("^Download")).click()
        saved = Path(begun.value.path()).read_text(encoding="utf-8")
    assert "name: everything" in saved
    assert SECRET not in saved


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_reads_well_everywhere(
    browser: Browser, shared: Gateway, size: Size, *, dark: bool
) -> None:
    with opened(browser, shared, "/config", size=size, dark=dark) as page:
        expect(editor(page)).to_contain_text("name: everything")
        for path in ("", "/history", "/import", "/export"):
            page.goto(f"{shared.admin_url}/#/config{path}")
            expect(page.get_by_role("tab", selected=True)).to_be_visible()
            assert page.evaluate(
                "document.querySelector('main').scrollWidth <= "
                "document.querySelector('main').clientWidth"
            )
            assert serious(page) == []
