"""SCA-1: who is asked, who hears what, and who decides: tests of one gateway, behind a load
balancer that sends each request to the next of three replicas."""

import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, cast

import pytest

from behaviour import test_leases as leases
from behaviour import test_policy_asking as approvals
from behaviour import test_who_is_asked as asked
from behaviour.clients import Json, Kind, Question
from behaviour.compact import config
from kit.client import post_modern
from kit.gateway import Gateway
from kit.messages import modern_request
from kit.replicas import RedisServer, Replicas
from kit.servers import everything_server, stdio_server
from replicas.conftest import nothing_broke

pytestmark = [
    leases.pytestmark,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


class Balanced:
    """Three replicas, where a test would start one gateway and knows it by its port."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            store = stack.enter_context(RedisServer())
            replicas = stack.enter_context(
                Replicas(store, {**self._config, "server": {"drain": 0}})
            )
            stack.callback(nothing_broke, replicas)
            self.url, self.port, self.replicas = replicas.url, replicas.port, replicas
            self.env, self.folder, self.stdio_command = (
                replicas[0].env,
                replicas[0].folder,
                replicas[0].stdio_command,
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failed: Any) -> None:
        self._stack.__exit__(*failed)


# ---- who is asked (`behaviour.test_who_is_asked`)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with asked.entries() as servers, Balanced(asked.config(servers)) as balanced:
        yield cast(Gateway, balanced)


@pytest.mark.parametrize("server", asked.SERVERS)
@pytest.mark.parametrize("kind", asked.KINDS)
def test_the_client_that_caused_a_question_is_asked_and_nobody_else(
    gateway: Gateway, kind: Kind, server: str
) -> None:
    """SCA-1, PRO-5, PRO-3."""
    asked.test_the_client_that_caused_a_question_is_asked_and_nobody_else(
        gateway, kind, server, "http"
    )


@pytest.mark.parametrize("server", ("http_older", "stdio_modern"))
@pytest.mark.parametrize("kind", asked.KINDS)
def test_a_client_that_can_be_asked_nothing_is_asked_nothing(
    gateway: Gateway, kind: Kind, server: str
) -> None:
    """SCA-1, PRO-5, PRO-3."""
    asked.test_a_client_that_can_be_asked_nothing_is_asked_nothing(gateway, kind, server)


# ---- who decides (`behaviour.test_policy_asking`)


@pytest.fixture(scope="module")
def approving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[approvals.AskingGateway]:
    record = tmp_path_factory.mktemp("asking") / "files.jsonl"
    files = stdio_server("files", [sys.executable, "-I", "-S", str(leases.SCRIPT), str(record)])
    with Balanced(
        config(
            files, everything_server("young", "--era", "modern"), policy={"rules": [approvals.RULE]}
        )
    ) as balanced:
        yield approvals.AskingGateway(cast(Gateway, balanced), record)


@pytest.mark.parametrize("kind", approvals.KINDS)
def test_the_person_at_the_client_decides(approving: approvals.AskingGateway, kind: Kind) -> None:
    """SCA-1, SEC-7: a yes or no that comes back through another replica counts once."""
    approvals.test_the_person_at_the_client_decides(approving, kind, "http")


@pytest.mark.parametrize("tool", ["files_ask", "young_elicit"])
@pytest.mark.parametrize("kind", ("raw-older", "raw-modern", "sdk-modern"))
def test_a_server_that_asks_too_is_answered_and_nobody_is_asked_twice(
    approving: approvals.AskingGateway, kind: Kind, tool: str
) -> None:
    """SCA-1, SEC-7, PRO-5: an older server's parked call, and a modern server's state in its
    process."""
    approvals.test_a_server_that_asks_too_is_answered_and_nobody_is_asked_twice(
        approving, kind, tool
    )


@pytest.mark.parametrize(
    ("tool", "rounds"),
    [
        ("files_echo", 1),
        ("files_steps", 1),
        ("files_ask", 2),
        ("young_sample", 1),
        ("young_elicit", 2),
    ],
)
def test_what_was_asked_by_one_replica_is_answered_through_another(
    approving: approvals.AskingGateway, tool: str, rounds: int
) -> None:
    """SCA-1, PRO-5, SEC-7: by a rule, by an older server whose call is parked, by a modern one with
    or without a state in its process, by a rule and then by either; each answer goes to the next
    replica, and the call runs once."""
    user, text = approvals.Decider("ada", True), f"{tool} around"
    ports = itertools.cycle(
        [replica.port for replica in cast(Balanced, approving.gateway).replicas]
    )
    call: Json = {"name": tool, "arguments": {"text": text, "message": text, "prompt": text}}
    reply = post_modern(
        next(ports), modern_request("tools/call", call, capabilities=user.capabilities)
    ).message["result"]
    for _ in range(rounds):
        assert reply["resultType"] == "input_required"
        questions = {
            key: Question(asks["method"], asks["params"])
            for key, asks in reply["inputRequests"].items()
        }
        answers = {key: user.answer(question) for key, question in questions.items()}
        state = {key: value for key, value in reply.items() if key == "requestState"}
        again = {**call, **state, "inputResponses": answers}
        reply = post_modern(
            next(ports), modern_request("tools/call", again, capabilities=user.capabilities)
        ).message
        reply = reply["result"]
    assert reply["resultType"] == "complete" and not reply.get("isError")
    if tool.startswith("files"):
        assert approving.calls(text) == 1


# ---- who hears what (`behaviour.test_leases`)


@pytest.fixture
def balanced_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "Gateway", Balanced)


@pytest.mark.usefixtures("balanced_leases")
@pytest.mark.parametrize("modern_client", [False, True], ids=["older", "modern"])
def test_progress_goes_on_while_the_client_thinks_about_a_question(
    tmp_path: Path, modern_client: bool
) -> None:
    """SCA-1, PRO-4, PRO-5."""
    leases.test_progress_goes_on_while_the_client_thinks_about_a_question(tmp_path, modern_client)


@pytest.mark.usefixtures("balanced_leases")
def test_the_late_question_of_a_cancelled_call_reaches_no_other_client(tmp_path: Path) -> None:
    """SCA-1, PRO-5."""
    leases.test_the_late_question_of_a_cancelled_call_reaches_no_other_client(
        tmp_path, ("http", False), ("http", True), "shared"
    )


@pytest.mark.usefixtures("balanced_leases")
def test_what_a_call_makes_a_server_log_is_heard_by_its_client_alone(tmp_path: Path) -> None:
    """SCA-1, PRO-4."""
    leases.test_what_a_call_makes_a_server_log_is_heard_by_its_client_alone(
        tmp_path, False, "shared"
    )


@pytest.mark.usefixtures("balanced_leases")
def test_a_subscriber_hears_what_its_own_calls_change(tmp_path: Path) -> None:
    """SCA-1, PRO-4."""
    leases.test_a_subscriber_hears_what_its_own_calls_change(tmp_path, True, "shared")
