"""What the gateway says, in the language of the page (ADM-3)."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from fixtures.browser import opened, serious, text
from kit.gateway import Gateway

PROGRAM = "no-such-program-of-mcpx"


@pytest.fixture(scope="module")
def own_gateway() -> Iterator[Gateway]:
    server = {"name": "broken", "connection": {"type": "stdio", "command": PROGRAM}}
    with Gateway({"mcp_servers": [server]}, admin=True) as started:
        yield started


def test_a_failing_server_says_its_cause_and_its_fix_in_chinese(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers?server=broken", language="zh-CN") as page:
        panel = page.get_by_role("alert").filter(has_text=f"在服务器的 PATH 中找不到 {PROGRAM}。")
        expect(panel).to_contain_text(f"安装 {PROGRAM}，或在 command 中填写完整路径")
        expect(panel).to_contain_text(f"无法启动：找不到命令“{PROGRAM}”")
        assert not serious(page)


def test_what_was_said_is_said_again_when_the_language_changes(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(browser, own_gateway, "/servers?server=broken", language="en") as page:
        panel = page.get_by_role("alert").first
        expect(panel).to_contain_text(f"{PROGRAM} was not found on the PATH")
        page.get_by_role("button", name=text("en", "shell.language")).click()
        page.get_by_role("menuitemradio", name="简体中文").click()
        expect(panel).to_contain_text(f"中找不到 {PROGRAM}。")


def test_an_error_of_the_api_is_said_in_chinese_with_what_to_do(
    browser: Browser, own_gateway: Gateway
) -> None:
    with opened(
        browser, own_gateway, "/policy", language="zh-CN", forgiven=[r"status of 404"]
    ) as page:
        simulator = page.get_by_role("region", name=text("zh-CN", "policy.simulator.title"))
        simulator.get_by_label(text("zh-CN", "policy.simulator.tool")).fill("nothing.like_this")
        simulator.get_by_role("button", name=text("zh-CN", "policy.simulator.ask")).click()
        expect(simulator).to_contain_text("没有服务器提供这个工具")
        expect(simulator).to_contain_text("填公开名或 server.tool")
