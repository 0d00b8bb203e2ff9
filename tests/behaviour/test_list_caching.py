"""Hints for caches (`ttlMs` and `cacheScope`) in merged lists: PRO-3, SUR-1."""

import sys
from typing import Any

import pytest

from kit.client import Session, post_modern, wait_until_settled
from kit.gateway import Gateway
from kit.messages import Json, modern_request
from kit.process import FIXTURES
from kit.servers import stdio_server

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def server(name: str, *flags: str, era: str = "modern") -> Json:
    program = [sys.executable, "-I", "-S", str(FIXTURES / "choosy_server.py"), "--era", era, *flags]
    return stdio_server(name, program)


PUBLIC = ("--ttl", "60000", "--scope", "public")
SHORT = ("--ttl", "5000", "--scope", "public")
PRIVATE = ("--ttl", "7000", "--scope", "private")


@pytest.mark.parametrize(
    ("servers", "more", "hints"),
    [
        ([server("one", *PUBLIC)], {}, (60000, "public")),
        ([server("one", *PUBLIC), server("two", *SHORT)], {}, (5000, "public")),
        ([server("one", *PUBLIC), server("two", *PRIVATE)], {}, (7000, "private")),
        ([server("one", *PUBLIC), server("older", *PUBLIC, era="older")], {}, (0, "private")),
        (
            [server("one", *PUBLIC), server("wrong", "--ttl", "-1", "--scope", "public")],
            {},
            (0, "public"),
        ),
        ([server("one", *PUBLIC)], {"profiles": [{"name": "some"}]}, (60000, "private")),
    ],
    ids=["one", "smallest", "private", "older", "invalid", "profiles"],
)
def test_a_merged_list_has_the_strictest_hints_of_the_servers_lists(
    servers: list[Json], more: Json, hints: tuple[int, str]
) -> None:
    """PRO-3: for modern clients; an older client gets no hints."""
    with Gateway({"mcp_servers": servers, **more}) as gateway:
        wait_until_settled(gateway.port, *(entry["name"] for entry in servers))
        for method, key in LISTS.items():
            result: Any = post_modern(gateway.port, modern_request(method)).message["result"]
            assert (result["ttlMs"], result["cacheScope"]) == hints, method
            assert Session(gateway.port).request(method)["result"].keys() == {key}


def test_a_list_is_not_cached_while_a_server_has_not_listed() -> None:
    """LIF-1: the list is not complete yet."""
    mute = stdio_server("mute", [sys.executable, "-c", "import time; time.sleep(600)"])
    with Gateway(
        {"mcp_servers": [server("one", *PUBLIC), mute], "global": {"first_start_wait": 0}}
    ) as gateway:
        wait_until_settled(gateway.port, "one")
        result: Any = post_modern(gateway.port, modern_request("tools/list")).message["result"]
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
