"""Rules with their simulator, and profiles with what they show, in the browser (ADM-5)."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import Language, Size, opened, serious, text
from kit.client import wait_until_settled
from kit.gateway import Gateway
from kit.http_client import fetch
from kit.process import stdio_command
from kit.until import wait_until

COMMAND, *ARGS = stdio_command("everything_server.py", "--era", "older")
CONFIG: dict[str, Any] = {
    "mcp_servers": [
        {"name": "everything", "connection": {"type": "stdio", "command": COMMAND, "args": ARGS}}
    ],
    "profiles": [{"name": "dev", "tools": ["!add"]}],
    "policy": {
        "rules": [
            {"effect": "deny", "tools": ["ech*"], "reason": "no echo"},
            {"effect": "allow", "tools": ["echo"]},
        ]
    },
}


@pytest.fixture
def own() -> Iterator[Gateway]:
    """For tests that change it."""
    with Gateway(CONFIG, admin=True) as started:
        wait_until_settled(started.port)  # The pages count its tools.
        yield started


@pytest.fixture(scope="module")
def shared() -> Iterator[Gateway]:
    """For tests that leave it as it was."""
    with Gateway(CONFIG, admin=True) as started:
        wait_until_settled(started.port)
        yield started


def saved(gateway: Gateway, path: str) -> Any:
    return fetch(gateway.admin_url, path, headers=gateway.admin_headers).json


def test_a_call_is_simulated_the_order_changed_and_saved(
    browser: Browser, own: Gateway, language: Language
) -> None:
    with opened(browser, own, "/policy", language=language) as page:
        simulator = page.get_by_role("region", name=text(language, "policy.simulator.title"))
        simulator.get_by_label(text(language, "policy.simulator.tool")).fill("echo")
        simulator.get_by_role("button", name=text(language, "policy.simulator.ask")).click()
        verdict = simulator.get_by_role("status")
        expect(verdict).to_contain_text(text(language, "policy.verdict.deny"))
        expect(page.locator('[data-rule="1"]')).to_have_attribute("aria-current", "true")
        page.get_by_role("button", name=text(language, "policy.editRule", n=1)).first.focus()
        page.keyboard.press("Alt+ArrowDown")
        expect(verdict).to_contain_text(text(language, "policy.verdict.allow"))
        expect(page.locator('[data-rule="1"]')).to_have_attribute("aria-current", "true")
        assert [rule["effect"] for rule in saved(own, "/api/policy")["rules"]] == [
            "deny",
            "allow",
        ], "nothing is saved"
        assert serious(page) == []
        page.get_by_role("button", name=text(language, "entry.review.applyAs", n=2)).click()
        expect(page.get_by_text(text(language, "entry.review.applied", n=2))).to_be_visible()
    assert [rule["effect"] for rule in saved(own, "/api/policy")["rules"]] == ["allow", "deny"]


def test_a_rule_is_added_by_its_form_and_seen_as_yaml(
    browser: Browser, own: Gateway, language: Language
) -> None:
    with opened(browser, own, "/policy", language=language) as page:
        page.get_by_role("button", name=text(language, "policy.add")).first.click()
        rule = page.locator('[data-rule="3"]')
        rule.get_by_label(text(language, "policy.form.tools")).fill("fail")
        rule.get_by_label(text(language, "policy.form.reason")).fill("ask me")
        assert serious(page) == []
        page.get_by_text("YAML", exact=True).first.click()
        expect(page.locator(".cm-content")).to_contain_text("reason: ask me")
        page.get_by_role("button", name=text(language, "entry.review.applyAs", n=2)).click()
        expect(page.get_by_text(text(language, "entry.review.applied", n=2))).to_be_visible()
    assert saved(own, "/api/policy")["rules"][2]["entry"] == {
        "effect": "ask",
        "tools": ["fail"],
        "reason": "ask me",
    }


def test_rules_that_somebody_else_changed_are_not_overwritten_unasked(
    browser: Browser, own: Gateway
) -> None:
    with opened(browser, own, "/policy") as page:
        page.get_by_role("button", name=text("en", "policy.removeRule", n=2)).click()
        theirs = {"entry": {"default": "deny", "rules": []}}
        put = fetch(
            own.admin_url, "/api/policy", "PUT", own.admin_headers | {"If-Match": "*"}, theirs
        )
        assert put.status == 200, put.body
        expect(
            page.get_by_text(text("en", "entry.conflict.changed", name="Policy"))
        ).to_be_visible()
        page.get_by_role("button", name=text("en", "entry.conflict.take")).click()
        expect(page.get_by_text(text("en", "policy.none.title"))).to_be_visible()
    assert saved(own, "/api/policy")["default"] == "deny"


def test_an_unknown_tool_is_told_as_such(browser: Browser, shared: Gateway) -> None:
    with opened(browser, shared, "/policy?tool=ecco", forgiven=[r"status of 404"]) as page:
        simulator = page.get_by_role("region", name=text("en", "policy.simulator.title"))
        expect(simulator).to_contain_text("did you mean 'echo'?")


def test_a_profile_is_made_with_what_it_shows_counted(
    browser: Browser, own: Gateway, language: Language
) -> None:
    with opened(browser, own, "/profiles", language=language) as page:
        page.get_by_role("button", name=text(language, "profiles.add")).first.click()
        drawer = page.get_by_role("complementary", name=text(language, "profiles.new"))
        drawer.get_by_label(text(language, "profiles.form.name")).fill("reader")
        drawer.get_by_label(text(language, "profiles.form.tools"), exact=True).fill("echo\nadd")
        total = saved(own, "/api/tools")["total"]
        expect(drawer.get_by_role("status").first).to_contain_text(
            text(language, "profiles.of", n=2, all=total)
        )
        assert serious(page) == []
        drawer.get_by_role("button", name=text(language, "entry.review.applyAs", n=2)).click()
        row = page.get_by_role("row").filter(has_text="reader")
        expect(row).to_be_visible()
        expect(
            page.get_by_role("complementary", name="reader").get_by_role("status").first
        ).to_contain_text(text(language, "profiles.of", n=2, all=total))
    made = next(one for one in saved(own, "/api/profiles")["profiles"] if one["name"] == "reader")
    assert made["entry"] == {"name": "reader", "tools": ["echo", "add"]}


def test_a_profile_is_removed_after_asking(
    browser: Browser, own: Gateway, language: Language
) -> None:
    with opened(browser, own, "/profiles?profile=dev", language=language) as page:
        page.get_by_role("button", name=text(language, "profiles.remove.short"), exact=True).click()
        page.get_by_role("dialog").get_by_role(
            "button", name=text(language, "profiles.remove.verb")
        ).click()
        expect(page.get_by_text(text(language, "profiles.none.title"))).to_be_visible()
    assert saved(own, "/api/profiles")["profiles"] == []


def test_the_count_of_the_form_is_the_count_of_the_gateway(browser: Browser) -> None:
    lists = [["echo"], ["!add"], ["e*", "!echo"], ["everything.[ae]*"], ["?cho", "a*"], []]
    profiles = [{"name": f"p{at}", "tools": patterns} for at, patterns in enumerate(lists)]
    made = {**CONFIG, "profiles": [*profiles, {"name": "reads", "read_only": True}], "policy": {}}
    with Gateway(made, admin=True) as gateway, opened(browser, gateway, "/profiles") as page:
        total = wait_until(lambda: saved(gateway, "/api/tools")["total"])
        for profile in saved(gateway, "/api/profiles")["profiles"]:
            page.get_by_role("row").filter(has_text=profile["name"]).click()
            counted = (
                page.get_by_role("complementary", name=profile["name"]).get_by_role("status").first
            )
            expect(counted).to_contain_text(
                f"{text('en', 'profiles.of', n=profile['tools'], all=total)} tools"
            )


@pytest.mark.parametrize("size", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_they_fit_and_read_well_everywhere(
    browser: Browser, shared: Gateway, size: Size, *, dark: bool
) -> None:
    with opened(browser, shared, "/policy?tool=echo", size=size, dark=dark) as page:
        expect(page.get_by_text("ech*").first).to_be_visible()
        assert page.evaluate(
            "document.querySelector('main').scrollWidth <= "
            "document.querySelector('main').clientWidth"
        )
        assert serious(page) == []
        page.goto(f"{shared.admin_url}/#/profiles?profile=dev")
        expect(page.get_by_role("heading", name="dev")).to_be_visible()
        assert page.evaluate(
            "document.querySelector('main').scrollWidth <= "
            "document.querySelector('main').clientWidth"
        )
        assert serious(page) == []
