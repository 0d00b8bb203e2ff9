"""Servers in the browser: seen, switched, added, edited, removed; and clients follow (ADM-3,
ADM-5)."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from auth.authserver import AuthServer
from fixtures.browser import Language, Size, opened, serious, text
from kit.gateway import Gateway
from kit.http_client import fetch
from kit.process import stdio_command

SECRET = "sk-live-0123456789abcdef"
HOSTILE = "<img src=x onerror=alert(1)> \u202egnp.exe"
JUDGED = [r"status of 4\d\d"]
"""Chromium logs every answer that is no success; what is typed is judged while it is incomplete."""


def _entry(name: str, **more: Any) -> dict[str, Any]:
    command, *args = stdio_command("everything_server.py", "--era", "older")
    env = {"API_KEY": SECRET, "PLAIN": "hello"}
    return {
        "name": name,
        "connection": {"type": "stdio", "command": command, "args": args, "env": env},
        **more,
    }


@pytest.fixture(scope="module")
def own_gateway() -> Iterator[Gateway]:
    servers = [
        _entry("steady"),
        _entry("switched", prefix="sw"),
        _entry("edited", lazy=True),
        _entry("contested", lazy=True),
        _entry("leaving", lazy=True),
        {
            "name": "broken",
            "description": HOSTILE,
            "connection": {"type": "stdio", "command": "no-such-program-of-mcpx"},
        },
        {
            "name": "off",
            "enabled": False,
            "connection": {"type": "sse", "url": "https://mcp.example.com/sse"},
        },
    ]
    with Gateway({"mcp_servers": servers}, admin=True) as started:
        yield started


def _listed(gateway: Gateway) -> set[str]:
    """The tools that a client is shown."""
    told = fetch(gateway.admin_url, "/api/tools", headers=gateway.admin_headers).json["tools"]
    return {one["name"] for one in told}


def _written(gateway: Gateway, name: str) -> dict[str, Any]:
    servers = json.loads(gateway.file.read_text(encoding="utf-8"))["mcp_servers"]
    return next(one for one in servers if one["name"] == name)


def _row(page: Page, name: str) -> Any:
    return page.locator(f'[data-row="{name}"]')


def test_the_list_says_how_each_server_is_and_the_drawer_why(
    browser: Browser, own_gateway: Gateway, language: Language
) -> None:
    with opened(browser, own_gateway, "/servers", language=language) as page:
        expect(_row(page, "steady")).to_contain_text(text(language, "parts.status.ready"))
        expect(_row(page, "off")).to_contain_text(text(language, "parts.status.disabled"))
        assert serious(page) == []
        page.keyboard.press("/")
        page.keyboard.type("broken")
        expect(page.locator("[data-row]")).to_have_count(1)
        page.locator("h1").click()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        drawer = page.get_by_role("complementary", name="broken")
        expect(drawer.get_by_role("alert")).to_contain_text("no-such-program-of-mcpx")
        expect(
            drawer.get_by_role("link", name=text(language, "servers.do.edit")).first
        ).to_be_visible()
        expect(drawer.get_by_text(HOSTILE)).to_be_visible()
        assert serious(page) == []
        for tab in ("tools", "logs", "config", "health"):
            drawer.get_by_role(
                "tab", name=re.compile(f"^{text(language, f'servers.tabs.{tab}')}")
            ).click()
            expect(drawer.get_by_role("tabpanel")).to_be_visible()
        page.keyboard.press("Escape")
        expect(drawer).to_have_count(0)


def test_what_is_open_and_filtered_stands_in_the_address(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers?state=attention&server=broken&tab=config") as page:
        drawer = page.get_by_role("complementary", name="broken")
        expect(drawer.get_by_text("command: no-such-program-of-mcpx")).to_be_visible()
        expect(drawer.get_by_role("link", name=re.compile(r"config\.json:\d+"))).to_have_attribute(
            "href", re.compile(r"#/config\?file=.+&line=\d+")
        )
        expect(page.locator("[data-row]")).to_have_count(1)


def test_a_switch_in_the_list_changes_what_clients_see_and_the_file(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers") as page:
        row = _row(page, "switched")
        expect(row).to_contain_text("Ready")
        assert "sw_echo" in _listed(own_gateway)
        row.get_by_role("switch").click()
        expect(row).to_contain_text("Disabled")
        assert "sw_echo" not in _listed(own_gateway)
        assert _written(own_gateway, "switched")["enabled"] is False
        row.get_by_role("switch").click()
        expect(row).to_contain_text("Ready")
        assert "sw_echo" in _listed(own_gateway)


def test_a_hand_made_edit_of_the_file_appears_by_itself(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers") as page:
        expect(_row(page, "steady")).to_be_visible()
        config = json.loads(own_gateway.file.read_text(encoding="utf-8"))
        config["mcp_servers"].append(_entry("by-hand", lazy=True))
        own_gateway.file.write_text(json.dumps(config, indent=2), encoding="utf-8")
        expect(_row(page, "by-hand")).to_be_visible()


def test_a_pasted_command_is_recognised_tried_and_added(
    browser: Browser, own_gateway: Gateway, language: Language
) -> None:
    name = f"pasted-{language.lower()}"
    command, *args = stdio_command("everything_server.py", "--era", "older")
    pasted = {
        "mcpServers": {name: {"command": command, "args": args, "env": {"API_TOKEN": SECRET}}}
    }
    with opened(browser, own_gateway, "/servers/add", language=language, forgiven=JUDGED) as page:
        box = page.get_by_role("textbox", name=text(language, "servers.paste.title"))
        expect(box).to_be_focused()
        box.fill(json.dumps(pasted))
        expect(page.get_by_text(text(language, "servers.paste.recognised"))).to_be_visible()
        expect(
            page.get_by_role("textbox", name=text(language, "servers.fields.name"), exact=True)
        ).to_have_value(name)
        preview = page.get_by_role("region", name=re.compile(re.escape("config.json")))
        expect(preview).to_contain_text(name)
        expect(preview).not_to_contain_text(SECRET)
        page.get_by_role("button", name=text(language, "servers.do.test"), exact=True).click()
        expect(page.get_by_text(text(language, "servers.trial.offers"))).to_be_visible()
        assert serious(page) == []
        page.get_by_role("button", name=text(language, "servers.draft.addOne", name=name)).click()
        drawer = page.get_by_role("complementary", name=name)
        expect(drawer).to_contain_text(text(language, "parts.status.ready"))
    assert _written(own_gateway, name)["connection"]["env"] == {"API_TOKEN": SECRET}


def test_what_does_not_connect_says_why_before_it_is_saved(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers/add?by=stdio", forgiven=JUDGED) as page:
        page.get_by_role("textbox", name="Name").first.fill("nowhere")
        page.get_by_role("textbox", name="Command").fill("no-such-program-of-mcpx")
        page.get_by_role("button", name="Test", exact=True).click()
        expect(page.get_by_role("alert").filter(has_text="was not found")).to_contain_text(
            "What to do"
        )
        assert "nowhere" not in own_gateway.file.read_text(encoding="utf-8")


def test_what_was_typed_into_a_new_server_is_not_lost_by_a_click(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers/add?by=stdio", forgiven=JUDGED) as page:
        page.get_by_role("textbox", name="Name").first.fill("half-done")
        page.get_by_role("link", name=text("en", "servers.nav")).first.click()
        expect(
            page.get_by_text(text("en", "servers.edit.leaveText", name="half-done"))
        ).to_be_visible()
        page.get_by_role("button", name=text("en", "parts.cancel")).last.click()
        expect(page.get_by_role("textbox", name="Name").first).to_have_value("half-done")


def test_an_api_that_is_pasted_leads_to_commands(browser: Browser, own_gateway: Gateway) -> None:
    with opened(browser, own_gateway, "/servers/add", forgiven=JUDGED) as page:
        page.get_by_role("button", name=re.compile("OpenAPI document")).click()
        expect(page.get_by_text("/pets/{id}", exact=True)).to_be_visible()
        page.get_by_role("button", name="Choose operations").click()
        expect(page).to_have_url(re.compile(r"#/commands/import\?kind=openapi"))
        expect(page.get_by_text("/pets/{id}").first).to_be_visible()


def test_an_entry_is_edited_with_a_review_and_its_secret_stays(
    browser: Browser, own_gateway: Gateway, language: Language
) -> None:
    words = f"for {language}"
    with opened(
        browser, own_gateway, "/servers/edit/edited", language=language, forgiven=JUDGED
    ) as page:
        expect(page.get_by_text(text(language, "entry.secret.set"))).to_have_count(
            2
        )  # `env` is masked by default.
        page.get_by_role(
            "textbox", name=text(language, "servers.fields.description"), exact=True
        ).fill(words)
        expect(
            page.get_by_role("region", name=text(language, "entry.review.diff"))
        ).to_contain_text(words)
        assert serious(page) == []
        page.get_by_text(text(language, "entry.yaml"), exact=True).click()
        editor = page.get_by_role("textbox", name="edited")
        expect(editor).to_contain_text(words)
        expect(editor).not_to_contain_text(SECRET)
        page.get_by_role("textbox", name=text(language, "entry.review.message")).fill("because")
        page.get_by_role(
            "button", name=re.compile(text(language, "entry.review.applyAs", n=r"\d+"))
        ).click()
        expect(page.get_by_role("complementary", name="edited").get_by_text(words)).to_be_visible()
        assert SECRET not in page.content()
    written = _written(own_gateway, "edited")
    assert written["description"] == words
    assert written["connection"]["env"]["API_KEY"] == SECRET
    history = fetch(
        own_gateway.admin_url, "/api/config/history", headers=own_gateway.admin_headers
    ).json["revisions"]
    assert (history[0]["message"], history[0]["via"]) == ("because", "ui")


def test_a_mistake_stands_at_its_field_and_nothing_can_be_applied(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers/edit/edited", forgiven=JUDGED) as page:
        page.get_by_text("Start, retries, sleep").click()
        field = page.get_by_role("textbox", name="Time to connect")
        field.fill("-3")
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_role("button", name=re.compile("Apply"))).to_be_disabled()


def test_the_second_of_two_who_edit_is_told_and_may_decide(
    browser: Browser, own_gateway: Gateway
) -> None:
    path = "/servers/edit/contested"
    with (
        opened(browser, own_gateway, path, forgiven=JUDGED) as first,
        opened(browser, own_gateway, path, forgiven=JUDGED) as second,
    ):
        for page, words in ((first, "the first"), (second, "the second")):
            page.get_by_role("textbox", name="Description").fill(words)
            expect(page.get_by_role("button", name=re.compile("Apply"))).to_be_enabled()
        first.get_by_role("button", name=re.compile("Apply")).click()
        told = second.get_by_text("Somebody else changed contested")
        expect(told).to_be_visible()
        expect(second.get_by_role("button", name=re.compile("Apply"))).to_be_disabled()
        assert _written(own_gateway, "contested")["description"] == "the first"
        second.get_by_role("button", name="Keep mine").click()
        second.get_by_role("button", name=re.compile("Apply")).click()
        expect(
            second.get_by_role("complementary", name="contested").get_by_text("the second")
        ).to_be_visible()
    assert _written(own_gateway, "contested")["description"] == "the second"


def test_who_has_to_sign_in_does_it_in_a_tab_of_its_own_and_the_page_notices(
    browser: Browser,
) -> None:
    with AuthServer() as site:
        server = {"name": "guarded", "connection": {"type": "http", "url": site.url}}
        with (
            Gateway({"mcp_servers": [server]}, admin=True) as gateway,
            opened(browser, gateway, "/servers") as page,
        ):
            row = _row(page, "guarded")
            row.get_by_role("button", name="Sign in").click()
            way = page.get_by_role("dialog").get_by_role("link", name=re.compile("^Open "))
            assert "noopener" in (way.get_attribute("rel") or "")
            with page.context.expect_page() as begun:
                way.click()
            begun.value.wait_for_load_state()
            expect(row).to_contain_text("Ready")
            expect(page.get_by_role("dialog")).to_have_count(0)
            expect(page.get_by_text("guarded is signed in")).to_be_visible()


def test_removing_says_what_it_means_and_can_be_undone(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers?server=leaving") as page:
        drawer = page.get_by_role("complementary", name="leaving")
        drawer.get_by_role("button", name="Remove").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("config.json")
        dialog.get_by_role("button", name="Cancel").click()
        expect(_row(page, "leaving")).to_be_visible()
        drawer.get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove server").click()
        expect(_row(page, "leaving")).to_have_count(0)
        page.get_by_role("button", name="Undo").click()
        expect(_row(page, "leaving")).to_be_visible()
    assert _written(own_gateway, "leaving")["connection"]["env"]["API_KEY"] == SECRET


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize(
    ("path", "shows"),
    [
        ("/servers", '[data-row="steady"]'),
        ("/servers?server=broken", "aside [role=alert]"),
        ("/servers/add?by=http", "form"),
        ("/servers/edit/steady", "form"),
    ],
)
def test_it_fits_and_reads_well_everywhere(
    browser: Browser, own_gateway: Gateway, size: Size, path: str, shows: str
) -> None:
    with opened(
        browser, own_gateway, path, size=size, dark=size == "tablet", forgiven=JUDGED
    ) as page:
        expect(page.locator(shows).first).to_be_visible()
        wide = (
            "() => document.querySelector('main').scrollWidth - "
            "document.querySelector('main').clientWidth"
        )
        assert page.evaluate(wide) <= 0
        assert serious(page) == []
