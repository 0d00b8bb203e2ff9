"""The gateway that tests run in their own process."""

import logging
import threading
import urllib.request
from collections.abc import Callable

import pytest

from kit.gateway import Gateway
from kit.servers import raw_server
from mcpx.model.errors import ConfigError

Served = Callable[..., Gateway]


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def test_a_served_gateway_answers_clients_administrators_and_its_control_channel(
    served: Served,
) -> None:
    gateway = served({"mcp_servers": []}, admin=True)
    assert b'"status":"ok"' in get(gateway.url.replace("/mcp", "/health"))
    assert b"<html" in get(gateway.admin_url)
    status = gateway.control("status")
    assert status["url"] == gateway.url
    assert status["config"] == str(gateway.file)


def test_a_change_of_the_configuration_is_applied_by_reload(served: Served) -> None:
    gateway = served({"mcp_servers": [], "global": {"hot_reload": False}})
    assert gateway.reload({"mcp_servers": [raw_server("one", enabled=False)]})["ok"]
    assert [server["name"] for server in gateway.control("status")["servers"]] == ["one"]


def test_each_gateway_has_a_log_of_its_own(served: Served) -> None:
    broken = raw_server("broken", connection={"command": "no-such-program"})
    first = served({"mcp_servers": [{**broken, "name": "first"}]})
    second = served({"mcp_servers": [{**broken, "name": "second"}]})
    first.wait_for_log("first.*no-such-program")
    second.wait_for_log("second.*no-such-program")
    assert "second" not in first.stderr()
    assert "first" not in second.stderr()


def test_nothing_is_left_when_a_gateway_has_ended() -> None:
    threads = set(threading.enumerate())
    handlers = list(logging.getLogger("mcpx").handlers)
    with Gateway({"mcp_servers": [raw_server("one")]}) as gateway:
        folder = gateway.folder
        assert set(threading.enumerate()) > threads
    assert set(threading.enumerate()) == threads
    assert logging.getLogger("mcpx").handlers == handlers
    assert not folder.exists()


@pytest.mark.parametrize("key", ["mcp_servers", "no_such_key"])
def test_a_configuration_with_a_mistake_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key), Gateway({key: 1}):
        pass
