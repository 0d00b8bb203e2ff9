"""The frame around the screens: palette, keys, language, theme, and what is shown when the gateway
is gone (ADM-5)."""

import re

from playwright.sync_api import Browser, expect

from fixtures.browser import SIZES, Language, opened, serious, sign_in, text
from kit.gateway import STOP_SECONDS, GatewayProcess


def test_the_palette_goes_to_screens_by_keyboard_alone(
    browser: Browser, gateway: GatewayProcess, language: Language
) -> None:
    with opened(browser, gateway, "/", language=language) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(text(language, "overview.nav"))
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox")).to_be_focused()
        page.keyboard.type(text(language, "settings.nav").lower())
        expect(page.get_by_role("option").first).to_contain_text(text(language, "settings.nav"))
        assert serious(page) == []
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(text(language, "settings.nav"))
        page.keyboard.press("Control+k")
        page.keyboard.press("Escape")
        expect(page.get_by_role("combobox")).to_have_count(0)


def test_the_palette_finds_servers(browser: Browser, gateway: GatewayProcess) -> None:
    with opened(browser, gateway, "/") as page:
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.keyboard.press("Control+k")
        page.keyboard.type("broken server")
        page.get_by_role("option", name="broken").click()
        expect(page).to_have_url(re.compile(r"#/servers\?server=broken"))


def test_two_keys_go_to_a_screen_and_rest_while_somebody_types(
    browser: Browser, gateway: GatewayProcess
) -> None:
    with opened(browser, gateway, "/connect") as page:
        expect(page.get_by_role("searchbox")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("g e")
        expect(page.get_by_role("searchbox")).to_have_value("g e")
        page.get_by_role("heading", level=1).click()
        page.keyboard.press("g")
        page.keyboard.press("e")
        expect(page.get_by_role("heading", level=1)).to_have_text(text("en", "settings.nav"))
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name=text("en", "shell.keyboard"))).to_be_visible()


def test_language_and_theme_are_kept(browser: Browser, gateway: GatewayProcess) -> None:
    with opened(browser, gateway, "/settings") as page:
        page.get_by_role("button", name=text("en", "shell.language")).click()
        page.get_by_role("menuitemradio", name="简体中文").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(text("zh-CN", "settings.nav"))
        page.get_by_role("button", name=text("zh-CN", "shell.theme")).click()
        page.get_by_role("menuitemradio", name=text("zh-CN", "shell.themes.dark")).click()
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_have_text(text("zh-CN", "settings.nav"))
        expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_on_a_phone_the_rest_of_the_navigation_is_behind_more(
    browser: Browser, gateway: GatewayProcess, language: Language
) -> None:
    with opened(browser, gateway, "/", language=language, size="phone") as page:
        page.get_by_role("button", name=text(language, "shell.more")).click()
        menu = page.get_by_role("dialog")
        assert serious(page) == []
        menu.get_by_role("link", name=text(language, "settings.nav")).click()
        expect(page.get_by_role("button", name=text(language, "settings.signOut"))).to_be_visible()
        expect(menu).to_have_count(0)


def test_a_gateway_that_is_gone_is_said_and_one_that_is_back_is_found(browser: Browser) -> None:
    """With the age of what is shown; started anew it knows nobody, so the login follows, and leads
    where one went."""
    with (
        GatewayProcess({"mcp_servers": []}, admin=True) as gateway,
        opened(
            browser,
            gateway,
            "/",
            forgiven=[
                r"Failed to load resource",
                r"ERR_",
                r"dynamically imported",
                r"Unable to preload",
            ],
        ) as page,
    ):
        live = page.get_by_text(text("en", "shell.live"), exact=True)
        expect(live).to_be_visible()
        gateway.process.terminate()
        expect(page.get_by_role("button", name=text("en", "shell.reconnect"))).to_be_visible()
        expect(live).to_have_count(0)
        page.keyboard.press("g")
        page.keyboard.press("t")
        expect(page.get_by_text(text("en", "shell.notLoaded"))).to_be_visible()
        gateway.process.wait(STOP_SECONDS)
        with GatewayProcess(
            {"mcp_servers": []}, "--admin-port", gateway.admin_url.rpartition(":")[2]
        ):
            # It tries again in pauses that grow (`live.ts`), and may just have begun its longest.
            page.wait_for_url(re.compile(r"/login\?next=/tools"), timeout=60_000)


def test_the_first_load_is_small(browser: Browser, gateway: GatewayProcess) -> None:
    """Everything up to the drawn overview, with its chart, as it comes over the wire: under 200
    KB."""
    width, height = SIZES["desk"]
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en")
    try:
        sign_in(context, gateway)
        page = context.new_page()
        page.goto(f"{gateway.admin_url}/#/")
        expect(
            page.get_by_role("region", name=text("en", "overview.calls.title")).get_by_role("img")
        ).to_be_visible()
        sizes = page.evaluate(
            "performance.getEntries().filter(one => ['navigation', "
            "'resource'].includes(one.entryType)"
            " && !one.name.includes('/api/')).map(one => one.transferSize)"
        )
    finally:
        context.close()
    assert sum(sizes) < 200_000, sum(sizes)
