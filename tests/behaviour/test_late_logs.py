"""Log messages on a shared connection that come after the call that caused them."""

import pytest

from behaviour.compact import config
from kit.client import Session
from kit.gateway import Gateway
from kit.messages import Json
from kit.process import stdio_command
from kit.servers import stdio_server

CONFIGS: dict[str, Json] = {"together": {}, "told apart": {"profiles": [{"name": "all"}]}}
CLIENTS: dict[str, Json] = {"silent": {}, "askable": {"elicitation": {}}}


def next_log(session: Session) -> str:
    """The data of the next log message on a new stream of the session. Messages before it are kept
    by the gateway."""
    with session.listen() as stream:
        while True:
            message = stream.data()
            if message["method"] == "notifications/message":
                return message["params"]["data"]


@pytest.mark.parametrize("settings", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("capabilities", CLIENTS.values(), ids=CLIENTS.keys())
def test_a_client_without_a_level_hears_no_late_log_of_another(
    capabilities: Json, settings: Json
) -> None:
    """PRO-4, SEC-7: on a connection that both use. A client that has set a level hears of the
    connection from then on."""
    server = stdio_server("late", stdio_command("late_log_server.py"))
    with Gateway(config(server, **settings)) as gateway:
        one, other = (Session(gateway.port, capabilities=capabilities) for _ in range(2))
        one.call("late_speak", text="one")
        other.call("late_speak", text="other")
        one.call("late_speak", text="one again")
        assert gateway.control("status")["servers"][0]["processes"] == 1
        other.request("logging/setLevel", {"level": "info"})
        other.call("late_speak", text="other again")
        assert next_log(other) == "after one again"


@pytest.mark.parametrize("settings", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("capabilities", CLIENTS.values(), ids=CLIENTS.keys())
def test_the_only_client_of_a_connection_needs_no_level(capabilities: Json, settings: Json) -> None:
    """PRO-4"""
    server = stdio_server("late", stdio_command("late_log_server.py"))
    with Gateway(config(server, **settings)) as gateway:
        session = Session(gateway.port, capabilities=capabilities)
        session.call("late_speak", text="first")
        session.call("late_speak", text="second")
        assert next_log(session) == "after first"
