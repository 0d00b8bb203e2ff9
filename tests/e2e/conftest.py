"""Async tests run in one loop for a module, so that clients and gateways last as long."""

from collections.abc import Iterator

import pytest

from e2e.peers import World, world


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def earth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world")) as made:
        yield made
