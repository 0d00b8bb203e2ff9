"""Coming in: the login URL, the token form, and going out again (ADM-6)."""

import re
import stat
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import Language, opened, serious, text
from kit.gateway import Gateway
from kit.http_client import fetch
from kit.terminal import mcpx_on
from kit.until import wait_until

REFUSED = [r"status of 401"]
"""Chromium logs every answer that is no success; these are the point of the test."""


def test_who_is_not_signed_in_gets_the_form_and_comes_in_where_he_wanted_to(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(
        browser, gateway, "/settings", language=language, signed_in=False, forgiven=REFUSED
    ) as page:
        field = page.get_by_label(text(language, "login.token"))
        expect(field).to_be_focused()
        assert serious(page) == []
        field.fill("not the token")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text(text(language, "login.wrong"))
        field.fill(gateway.admin_token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(text(language, "settings.nav"))


def test_who_is_signed_in_already_goes_on_without_the_form(
    browser: Browser, gateway: Gateway
) -> None:
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
            page.reload()
            expect(page.get_by_role("heading", level=1)).to_have_text(text("en", "overview.nav"))
            page.goto(gateway.login_url)  # used before, but this tab is signed in
            expect(page.get_by_role("heading", level=1)).to_have_text(text("en", "overview.nav"))
        finally:
            context.close()


def test_a_new_tab_gets_the_session_of_an_open_one_and_none_when_all_are_closed(
    browser: Browser,
) -> None:
    """SEC-8: the secret is kept by each tab. The cookie alone signs no tab in."""
    with Gateway({"mcp_servers": []}, admin=True) as gateway:
        context = browser.new_context(locale="en")
        try:
            first = context.new_page()
            first.goto(gateway.login_url)
            expect(first.get_by_role("heading", level=1)).to_have_text(text("en", "overview.nav"))

            second = context.new_page()
            second.goto(f"{gateway.admin_url}/#/settings")
            expect(second.get_by_role("heading", level=1)).to_have_text(text("en", "settings.nav"))
            first.close()
            second.reload()
            expect(second.get_by_role("heading", level=1)).to_have_text(text("en", "settings.nav"))
            second.close()

            third = context.new_page()
            third.goto(f"{gateway.admin_url}/#/settings")
            expect(third.get_by_text("mcpx admin")).to_be_visible()
            fourth = context.new_page()
            fourth.goto(f"{gateway.admin_url}/#/login?token={gateway.admin_token}")
            expect(fourth.get_by_role("heading", level=1)).to_have_text(text("en", "overview.nav"))
            expect(third.get_by_role("heading", level=1)).to_have_text(text("en", "settings.nav"))
        finally:
            context.close()


class Listener:
    """A listener on another port of this host, which keeps the headers of what browsers send to
    it."""

    def __init__(self) -> None:
        self.cookies: dict[str, str] = {}
        cookies = self.cookies

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cookies[self.path] = self.headers.get("Cookie", "")
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<h1>elsewhere</h1>")

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Listener":
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_a_listener_on_another_port_cannot_use_the_cookie_it_receives(
    browser: Browser, gateway: Gateway
) -> None:
    """SEC-8: a browser sends the cookie to each port of a host. Links of the admin UI send none."""
    with Listener() as listener, opened(browser, gateway, "/settings") as page:
        links = page.get_by_role("region", name=text("en", "settings.about.title")).get_by_role(
            "link"
        )
        expect(links.first).to_have_attribute("href", re.compile(r"/leave\?to=http"))
        page.evaluate(
            """([direct, safe]) => {
                for (const [id, href] of [["direct", direct], ["safe", "/leave?to=" + encodeURIComponent(safe)]]) {
                    const link = Object.assign(document.createElement("a"), { id, href, textContent: id });
                    link.target = "_blank";
                    link.rel = "noopener noreferrer";
                    document.body.prepend(link);
                }
            }""",
            [f"{listener.url}/direct", f"{listener.url}/safe?a=1&b=2"],
        )
        for id in ("direct", "safe"):
            with page.context.expect_page() as popup:
                page.locator(f"#{id}").click()
            expect(popup.value.get_by_role("heading")).to_have_text("elsewhere")
        assert listener.cookies["/safe?a=1&b=2"] == ""

        stolen = {"Cookie": listener.cookies["/direct"], "X-Mcpx-Csrf": "1"}
        assert "mcpx-admin-" in stolen["Cookie"]
        for method, path in (
            ("GET", "/api/mcp-servers"),
            ("GET", "/api/events"),
            ("POST", "/api/mcp-servers/test"),
            ("PATCH", "/api/mcp-servers/everything/toggle"),
        ):
            answer = fetch(gateway.admin_url, path, method, stolen, b"" if method == "GET" else {})
            assert answer.status == 401


def test_mcpx_admin_gives_the_browser_a_private_file(browser: Browser, tmp_path: Path) -> None:
    """SEC-8: other users see the arguments of a browser program, so the login URL is not one of
    them."""
    program, opened_with = tmp_path / "browser", tmp_path / "arguments"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {opened_with}.new\nmv {opened_with}.new {opened_with}\n'
    )
    program.chmod(0o700)
    with Gateway({"mcp_servers": []}, admin=True) as gateway:
        environ = {**gateway.env, "BROWSER": str(program)}
        with mcpx_on(tmp_path, environ, "admin", str(gateway.file), columns=200) as terminal:
            assert terminal.end() == 0
            url = re.search(r"http\S+/login\?token=(\S+)", terminal.text)
        assert url is not None
        wait_until(opened_with.exists)
        argument = opened_with.read_text().strip()
        assert url[1] not in argument and argument.startswith("file:///")
        file = Path(unquote(urlsplit(argument).path))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and url[1] in file.read_text()

        context = browser.new_context(locale="en")
        try:
            page = context.new_page()
            page.goto(argument)
            expect(page.get_by_role("heading", level=1)).to_have_text(text("en", "overview.nav"))
            assert url[1] not in page.url
        finally:
            context.close()
    assert not file.exists()


def test_a_login_url_that_is_not_good_any_more_says_so_and_how_to_get_another(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(
        browser, gateway, "/login", language=language, signed_in=False, forgiven=REFUSED
    ) as page:
        page.goto(f"{gateway.admin_url}/login?token=used")
        alert = page.get_by_role("alert")
        expect(alert).to_have_text(text(language, "login.expired"))
        expect(alert).to_contain_text("mcpx admin")


def test_signing_out_shows_the_form_and_nothing_else(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(browser, gateway, "/settings", language=language, forgiven=REFUSED) as page:
        page.get_by_role("button", name=text(language, "settings.signOut")).click()
        expect(page.get_by_label(text(language, "login.token"))).to_be_visible()
        page.goto(f"{gateway.admin_url}/#/")
        expect(page).to_have_url(re.compile(r"#/login"))


def test_a_tab_notices_that_another_one_signed_out(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/settings", forgiven=["401"]) as page:
        expect(page.get_by_text(text("en", "shell.live"), exact=True)).to_be_visible()
        secret = page.evaluate("sessionStorage.getItem('mcpx.session')")
        answer = page.request.post(
            f"{gateway.admin_url}/api/logout", headers={"X-Mcpx-Session": secret}
        )
        assert answer.status == 204
        expect(page).to_have_url(re.compile(r"#/login\?next="))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_form_holds_on_a_phone_in_both_themes(
    browser: Browser, gateway: Gateway, *, dark: bool
) -> None:
    with opened(browser, gateway, "/login", size="phone", dark=dark, signed_in=False) as page:
        expect(page.get_by_label(text("en", "login.token"))).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert serious(page) == []
