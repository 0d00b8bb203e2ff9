from collections.abc import Iterator

import pytest

from fixtures.web import ask, cookie_of
from kit.gateway import Gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One with its admin UI, for tests that leave it as it was."""
    with Gateway({"mcp_servers": []}, admin=True) as started:
        yield started


@pytest.fixture
def cookie(gateway: Gateway) -> str:
    """Of a new session."""
    return cookie_of(ask(gateway.admin_url, "/api/login", "POST", body={"token": gateway.admin_token}))
