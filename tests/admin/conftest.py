from collections.abc import Iterator

import pytest

from kit.admin_api import browser_session
from kit.gateway import Gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One with its admin UI, for tests that leave it as it was."""
    with Gateway({"mcp_servers": []}, admin=True) as started:
        yield started


@pytest.fixture
def session(gateway: Gateway) -> dict[str, str]:
    """The headers of a new browser session."""
    return browser_session(gateway)
