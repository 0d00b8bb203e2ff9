"""Commands: seen, tried before they are saved, changed with a look at what it does, imported
(ADM-5, SRC-5)."""

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import Language, Size, opened, serious, text
from kit.gateway import Gateway
from kit.http_client import fetch

SECRET = "a-token-nobody-may-see"
PETS = """
openapi: 3.1.0
info: {title: Pets, version: "1"}
servers: [{url: "https://pets.example.com"}]
paths:
  /pets:
    get: {operationId: listPets, summary: List, responses: {"200": {description: ok}}}
    post: {operationId: makePet, summary: Make, responses: {"200": {description: ok}}}
"""


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"items": [{"name": "a"}], "path": self.path}).encode())

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as api:
        Thread(target=api.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{api.server_port}"
        found = {
            "name": "found",
            "type": "http",
            "description": "Finds things",
            "http": {
                "url": f"{address}/{{kind}}",
                "params": {"q": "{query}"},
                "auth": {"ref": "key"},
                "allow_private": True,
            },
            "parameters": [{"name": "kind", "required": True}, {"name": "query"}],
        }
        config = {
            "commands": [found, {**found, "name": "shared"}],
            "auth_configs": [
                {"name": "key", "type": "bearer_token", "bearer_token": {"token": SECRET}}
            ],
        }
        with Gateway(config, admin=True) as started:
            yield started
        api.shutdown()


def entry(gateway: Gateway, name: str) -> dict[str, object]:
    return fetch(gateway.admin_url, f"/api/commands/{name}", headers=gateway.admin_headers).json[
        "entry"
    ]


def test_a_command_is_tried_before_it_is_saved_and_its_secret_stays_masked(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    with opened(browser, gateway, "/commands", language=language) as page:
        page.get_by_text("found").first.click()
        page.get_by_role("region", name=text(language, "commands.trial")).get_by_label("kind").fill(
            "birds & bees"
        )
        request = page.get_by_role("region", name=text(language, "commands.resolved"))
        expect(request).to_contain_text("/birds%20%26%20bees")
        expect(request).to_contain_text("••••")
        page.get_by_role("button", name=text(language, "commands.run"), exact=True).click()
        expect(page.get_by_text(text(language, "commands.runOk"))).to_be_visible()
        expect(page.get_by_role("button", name="items", exact=True)).to_be_visible()
        assert SECRET not in page.content()
        assert serious(page) == []


def test_a_field_of_the_response_becomes_the_result_and_is_saved_after_a_look(
    browser: Browser, gateway: Gateway
) -> None:
    with opened(browser, gateway, "/commands?command=found") as page:
        page.get_by_role("region", name=text("en", "commands.trial")).get_by_label("kind").fill("x")
        page.get_by_role("button", name=text("en", "commands.run"), exact=True).click()
        page.get_by_role("button", name="items", exact=True).click()
        expect(page.get_by_label(text("en", "commands.result"), exact=True)).to_have_value("items")
        page.get_by_role("button", name=text("en", "commands.review")).click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("region")).to_contain_text("result")
        dialog.get_by_role("button", name=text("en", "entry.review.applyAs", n=2)).click()
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert entry(gateway, "found")["http"]["result"] == "items"  # type: ignore[index]
    assert SECRET in gateway.file.read_text(encoding="utf-8")


def test_form_and_yaml_are_two_views_of_one_entry(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/commands/new") as page:
        page.get_by_label(text("en", "commands.name")).first.fill("made")
        page.get_by_label(text("en", "commands.request")).fill("https://example.com/{id}")
        page.get_by_text("YAML", exact=True).click()
        expect(page.locator(".cm-content")).to_contain_text("url: https://example.com/{id}")
        page.locator(".cm-content").click()
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.keyboard.insert_text("{name: made, type: script, script: {path: a.py}}")
        page.get_by_text(text("en", "schemaform.form"), exact=True).click()
        expect(page.get_by_label(text("en", "commands.path"))).to_have_value("a.py")


def test_who_comes_second_is_told(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/commands?command=shared") as page:
        page.get_by_label(text("en", "commands.description")).first.fill("mine")
        theirs = {**entry(gateway, "shared"), "description": "theirs"}
        written = fetch(
            gateway.admin_url,
            "/api/commands/shared",
            "PUT",
            {**gateway.admin_headers, "If-Match": "*"},
            theirs,
        )
        assert written.status == 200, written.body
        expect(
            page.get_by_text(text("en", "entry.conflict.changed", name="shared"))
        ).to_be_visible()
        expect(page.get_by_role("button", name=text("en", "commands.review"))).to_be_disabled()
        page.get_by_role("button", name=text("en", "entry.conflict.take")).click()
        expect(page.get_by_label(text("en", "commands.description")).first).to_have_value("theirs")


def test_a_command_is_switched_off_and_on(browser: Browser, gateway: Gateway) -> None:
    with opened(browser, gateway, "/commands") as page:
        switch = page.get_by_role("switch", name="shared")
        switch.click()
        expect(switch).to_have_attribute("aria-checked", "false")
        assert entry(gateway, "shared")["enabled"] is False
        page.get_by_role("button", name=text("en", "commands.undo")).click()
        expect(switch).to_have_attribute("aria-checked", "true")


def test_operations_of_a_document_are_chosen_looked_at_and_added(
    browser: Browser, gateway: Gateway
) -> None:
    with opened(browser, gateway, "/commands/import?kind=openapi") as page:
        page.get_by_label(text("en", "commands.document")).fill(PETS)
        page.get_by_role("button", name=text("en", "commands.read"), exact=True).click()
        page.get_by_role("button", name=text("en", "commands.onlyReading")).click()
        page.get_by_role("button", name=text("en", "commands.preview")).click()
        expect(page.get_by_role("region", name="listPets")).to_contain_text("pets.example.com")
        page.get_by_role("button", name="Add 1 entry").click()
        expect(page.get_by_role("row").filter(has_text="listPets")).to_be_visible()
    assert (
        fetch(gateway.admin_url, "/api/commands/makePet", headers=gateway.admin_headers).status
        == 404
    )


def test_a_variable_that_an_import_needs_and_nobody_set_is_named(
    browser: Browser, gateway: Gateway, language: Language
) -> None:
    refused = [r"status of 422"]
    with opened(browser, gateway, "/commands/import", language=language, forgiven=refused) as page:
        page.get_by_label(text(language, "commands.curlLine")).fill(
            "curl https://api.example.com/v1/items -H 'Authorization: Bearer abcdef123456'"
        )
        page.get_by_role("button", name=text(language, "commands.read"), exact=True).click()
        page.get_by_role("button", name=re.compile("2")).click()
        expect(page.get_by_role("alert")).to_contain_text(text(language, "commands.unsetText"))
        expect(page.get_by_role("alert")).to_contain_text(re.compile(r"[A-Z_]{4,}"))
    history = fetch(gateway.admin_url, "/api/config/history", headers=gateway.admin_headers).json[
        "revisions"
    ]
    assert not any("api.example.com" in one["message"] for one in history)


def test_a_command_is_removed_after_a_question(browser: Browser, gateway: Gateway) -> None:
    made = {"name": "gone", "type": "http", "http": {"url": "https://example.com"}}
    headers = {**gateway.admin_headers, "If-Match": "*"}
    assert fetch(gateway.admin_url, "/api/commands", "POST", headers, made).status == 201
    with opened(browser, gateway, "/commands?command=gone") as page:
        page.get_by_role("button", name=text("en", "commands.remove"), exact=True).click()
        page.get_by_role("dialog").get_by_role(
            "button", name=text("en", "commands.removeVerb")
        ).click()
        expect(page.get_by_role("heading", name=text("en", "commands.nav"))).to_be_visible()
        expect(page.get_by_text("gone", exact=True)).to_have_count(0)


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_reads_well_everywhere(
    browser: Browser, gateway: Gateway, size: Size, *, dark: bool
) -> None:
    with opened(browser, gateway, "/commands", size=size, dark=dark) as page:
        for path in ("/commands", "/commands?command=shared", "/commands/import?kind=openapi"):
            page.goto(f"{gateway.admin_url}/#{path}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert page.evaluate(
                "document.querySelector('main').scrollWidth <= "
                "document.querySelector('main').clientWidth"
            )
            assert serious(page) == []
