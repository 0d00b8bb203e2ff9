"""Three replicas on one store: behind HAProxy, round robin without stickiness, before one upstream
of each kind (`matrix`), where the tests of one gateway are tried; and without a balancer, where a
test says which replica a request goes to (`trio`)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from behaviour.clients import Door, Front
from behaviour.conftest import Matrix, matrix_config, upstreams
from behaviour.test_leases import asking
from kit.replicas import RedisServer, Replicas
from kit.servers import stdio_server

Json = dict[str, Any]

FLOODING = [sys.executable, "-I", "-S", str(Path(__file__).with_name("flooding_server.py"))]


class BalancedMatrix(Matrix):
    """The doors of all replicas at once: each connection, and each request on it, goes to the next
    one."""

    def __init__(self, servers: dict[str, Json], replicas: Replicas) -> None:
        super().__init__(servers, replicas[0])
        self.replicas = replicas

    @contextmanager
    def door(self, front: Front, server: str = "") -> Iterator[Door]:
        yield Door(front, self.urls(self.replicas.port)[front])


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BalancedMatrix]:
    with (
        upstreams(tmp_path_factory.mktemp("upstreams")) as servers,
        RedisServer() as store,
        Replicas(
            store, {**matrix_config(list(servers.values())), "server": {"drain": 0}}
        ) as replicas,
    ):
        yield BalancedMatrix(servers, replicas)
        nothing_broke(replicas)


@dataclass(frozen=True)
class Trio:
    replicas: Replicas
    store: RedisServer
    record: Path
    """What the server `s` of each replica has read (`behaviour.asking_server`)."""

    def port(self, number: int) -> int:
        return self.replicas[number].port


@contextmanager
def three(folder: Path, **more: Any) -> Iterator[Trio]:
    """Before `s`, a process for each replica, and all of them with one record."""
    record = folder / "record.jsonl"
    servers = [asking("s", record), stdio_server("f", FLOODING)]
    config = {
        "global": {"startup_wait": 15, "first_start_wait": 15},
        "mcp_servers": servers,
        **more,
    }
    config["server"] = {"drain": 0, **config.get("server", {})}
    with RedisServer() as store, Replicas(store, config, balanced=False) as replicas:
        yield Trio(replicas, store, record)
        nothing_broke(replicas)


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """For tests that leave all of them alive."""
    with three(tmp_path_factory.mktemp("trio")) as made:
        yield made


def nothing_broke(replicas: Replicas) -> None:
    for replica in replicas:
        assert "Traceback" not in replica.stderr(), replica.stderr()
