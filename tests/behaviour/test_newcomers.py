"""What somebody meets who tries mcpx for the first time: servers that are still starting, programs
that are no servers.

Promises: LIF-1, SRC-8.
"""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from behaviour.compact import Json, Visitor, config, held_up, text, told
from kit.client import Session, health
from kit.gateway import Gateway
from kit.messages import text_of
from kit.servers import raw_server, stdio_server
from kit.until import wait_until


def program(name: str, *words: str) -> Json:
    return stdio_server(name, words, max_retries=0, retry_delay=60)


# ---- servers that are starting


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway one of whose servers does not start while somebody looks."""
    wait = tmp_path / "wait"
    wait.touch()
    settings = config(
        told("quick"),
        held_up(told("slow"), wait),
        **{"global": {"startup_wait": 0, "first_start_wait": 0.3}},
    )
    with Gateway(settings) as gateway:
        wait_until(lambda: health(gateway.port)["servers"]["quick"]["status"] == "connected")
        yield gateway
        wait.unlink()


@pytest.mark.parametrize(
    ("mode", "tool", "arguments"),
    [
        ("inspect", "inspect", {"server_name": "slow"}),
        ("describe", "describe", {"method": "slow"}),
        ("search", "mcp_list_services", {}),
    ],
)
def test_of_a_server_that_is_starting_nobody_says_that_it_has_no_tools(
    starting: Gateway, mode: str, tool: str, arguments: Json
) -> None:
    """LIF-1: a model that reads `0 tools` does not ask again."""
    said = text(Visitor(starting.port, mode).use(tool, **arguments))
    assert "slow (connecting, tools not known yet)" in said


def test_a_tool_that_is_not_known_may_be_one_of_a_server_that_is_starting(
    starting: Gateway,
) -> None:
    """LIF-1: the error names it, as a search does."""
    client = Visitor(starting.port, "search")
    said = text(client.use("mcp_execute_tool", tool_name="nobody_knows_it", arguments={}))
    assert said.startswith('Unknown tool "nobody_knows_it".')
    assert said.endswith("Still starting, tools not known yet: slow.")


def test_resources_that_are_not_known_yet_are_not_said_to_be_none(starting: Gateway) -> None:
    """LIF-1."""
    said = text(Visitor(starting.port, "describe").use("resources"))
    assert said.endswith("Still starting, resources not known yet: slow.")


# ---- programs that are no servers


def reason(gateway: Gateway, name: str) -> str:
    def look() -> str | None:
        server = health(gateway.port)["servers"][name]
        return server["last_error"] if server["status"] == "disconnected" else None

    return str(wait_until(look))


def test_a_program_that_repeats_what_it_is_sent_is_told_as_what_it_is() -> None:
    """SRC-8: `cat` in the place of a server is found out at once, not by its silence."""
    began = monotonic()
    with Gateway(config(program("echo", "cat"))) as gateway:
        assert reason(gateway, "echo").endswith(
            "it is no MCP server, or not started as one: it repeats what it is sent"
        )
    assert monotonic() - began < 25, "it was waited for until the handshake timed out"


def test_a_program_that_prints_for_ever_costs_the_others_nothing() -> None:
    """SRC-8: it is ended after its first thousand lines, and its neighbours are served."""
    with Gateway(
        config(program("babble", "yes", "all is well"), raw_server("calm", prefix="calm"))
    ) as gateway:
        began = monotonic()
        assert reason(gateway, "babble").endswith("or not started as one: it printed 'all is well'")
        assert monotonic() - began < 20, "it babbled until the handshake timed out"
        assert text_of(Session(gateway.port).call("calm_echo", text="x")) == "x"


def test_a_server_that_says_much_before_its_first_message_is_a_server() -> None:
    """SRC-8: some print what they install, and then serve."""
    calm = raw_server("wordy", prefix="wordy")
    connection = calm["connection"]
    script = 'for i in $(seq 500); do echo "added package $i"; done; exec "$@"'
    words = ["-c", script.replace("$", "$$"), "sh", connection["command"], *connection["args"]]
    with Gateway(
        config({**calm, "connection": {**connection, "command": "/bin/sh", "args": words}})
    ) as gateway:
        assert text_of(Session(gateway.port).call("wordy_echo", text="x")) == "x"
