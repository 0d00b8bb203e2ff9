from collections.abc import Iterator

import pytest

from kit.gateway import Gateway
from kit.http_client import fetch


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One with its admin UI, for tests that leave it as it was."""
    with Gateway({"mcp_servers": []}, admin=True) as started:
        yield started


@pytest.fixture
def cookie(gateway: Gateway) -> str:
    """Of a new session."""
    return fetch(gateway.admin_url, "/api/login", "POST", body={"token": gateway.admin_token}).cookie
