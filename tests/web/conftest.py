"""For tests of the web UI: a browser, a gateway with its admin UI, and both languages."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from fixtures.browser import LANGUAGES, Language, chromium
from kit.client import wait_until_settled
from kit.gateway import Gateway
from kit.process import stdio_command


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of a module, not of the session: while it is open, Playwright's loop runs in this thread, and
    other tests have loops of their own."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One with a server that works and one that does not start, for tests that leave it as it
    was."""
    command, *args = stdio_command("everything_server.py", "--era", "older")
    servers = [
        {"name": "everything", "connection": {"type": "stdio", "command": command, "args": args}},
        {"name": "broken", "connection": {"type": "stdio", "command": "no-such-program-of-mcpx"}},
    ]
    with Gateway({"mcp_servers": servers}, admin=True) as started:
        wait_until_settled(started.port)
        yield started


@pytest.fixture(
    params=[LANGUAGES[0], *(pytest.param(one, marks=pytest.mark.slow) for one in LANGUAGES[1:])]
)
def language(request: pytest.FixtureRequest) -> Language:
    return request.param
