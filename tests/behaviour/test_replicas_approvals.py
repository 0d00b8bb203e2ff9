"""SEC-7 and SCA-1 through real replicas: a call is approved at one, made at another, and passes
once over all."""

import json
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from behaviour.compact import ERAS, Visitor, config
from kit.admin_api import AdminApi
from kit.admin_events import AdminEvents
from kit.client import post_modern
from kit.command import run_command
from kit.gateway import Gateway
from kit.messages import Json, modern_request
from kit.replicas import RedisServer, Replicas
from kit.servers import stdio_server
from kit.until import wait_until

DENIED, NEEDS_APPROVAL, OVERLOADED = -33008, -33009, -33006
ABLE: Json = {"elicitation": {}}
RULE: Json = {"effect": "ask", "tools": ["files.echo"], "reason": "it says things"}


class ApprovingReplicas:
    def __init__(self, store: RedisServer, replicas: Replicas, record: Path) -> None:
        self.store = store
        self.replicas = replicas
        self._record = record

    def calls(self, text: str) -> int:
        """How often a server was called with this text, whichever replica's it is."""
        lines = self._record.read_bytes().splitlines()
        messages = [
            message for message in map(json.loads, lines) if message.get("method") == "tools/call"
        ]
        return sum(
            message["params"].get("arguments", {}).get("text") == text for message in messages
        )

    def call(self, number: int, text: str, era: str = "older") -> Json:
        visitor = Visitor(self.replicas[number].port, "", era)
        return visitor.ask("tools/call", {"name": "files_echo", "arguments": {"text": text}})

    def waits(self, number: int, text: str, era: str = "older") -> str:
        error = self.call(number, text, era)["error"]
        assert error["code"] == NEEDS_APPROVAL, error
        return error["data"]["approval"]

    def approve(self, number: int, *words: str) -> "tuple[int, str]":
        """`mcpx approve`, where that replica runs."""
        replica = self.replicas[number]
        done = run_command(("approve", *words, str(replica.file)), replica.folder, replica.env)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def figure(self, number: int) -> int:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.replicas[number].port}/metrics", timeout=10
        ) as answer:
            lines = answer.read().decode().splitlines()
        [line] = [line for line in lines if line.startswith("mcpx_approvals_pending ")]
        return int(float(line.split()[-1]))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApprovingReplicas]:
    record = tmp_path_factory.mktemp("approving") / "files.jsonl"
    script = str(Path(__file__).with_name("asking_server.py"))
    files = stdio_server("files", [sys.executable, "-I", "-S", script, str(record)])
    settings = config(files, policy={"rules": [RULE]}, server={"metrics": True})
    with (
        RedisServer() as store,
        Replicas(store, settings, 3, admin=True, balanced=False) as replicas,
    ):
        yield ApprovingReplicas(store, replicas, record)
        for replica in replicas:
            assert "Traceback" not in replica.stderr(), replica.stderr()


@pytest.mark.parametrize("era", ERAS)
def test_a_call_waits_at_one_replica_is_approved_at_another_and_made_at_a_third_once(
    cluster: ApprovingReplicas, era: str
) -> None:
    """SEC-7, SCA-1: by `mcpx approve` at any replica; of many at once, over all of them, exactly
    one passes."""
    text = f"approved elsewhere {era}"
    id = cluster.waits(0, text, era)
    assert cluster.waits(2, text, era) == id
    code, told = cluster.approve(1, id)
    assert code == 6 and "files.echo" in told and text in told
    assert cluster.approve(1, id, "--yes") == (
        0,
        f"{told.partition('nothing was')[0]}{id}: may be made once\n",
    )
    assert cluster.calls(text) == 0
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: cluster.call(number % 3, text, era), range(2, 26)))
    assert sum("result" in answer for answer in answers) == 1 == cluster.calls(text)
    others = [answer["error"] for answer in answers if "error" in answer]
    assert {error["code"] for error in others} == {NEEDS_APPROVAL}
    [again] = {error["data"]["approval"] for error in others}
    assert again != id and cluster.approve(2, again, "--deny")[0] == 0
    for number in range(3):
        error = cluster.call(number, text, era)["error"]
        assert error["code"] == DENIED and "was refused" in error["message"], error
    assert cluster.calls(text) == 1


def test_the_admin_api_of_every_replica_tells_of_it_and_decides(cluster: ApprovingReplicas) -> None:
    """SEC-7, SCA-1, ADM-2: events and figures of each move, and what one has decided no other
    decides."""
    apis = [AdminApi(replica) for replica in cluster.replicas]
    with AdminEvents(cluster.replicas[2]) as events:
        events.wait_for("hello", lambda _: True)
        before = cluster.figure(2)
        first, second = cluster.waits(0, "one more"), cluster.waits(1, "and another")
        events.wait_for("approvals", lambda data: data["pending"] == before + 2)
        for api in apis:
            told = {call["id"]: call for call in api.get("/api/approvals")["calls"]}
            assert (
                "one more" in told[first]["arguments"]
                and "and another" in told[second]["arguments"]
            )
        for number in range(3):
            wait_until(
                lambda number=number: cluster.figure(number) == before + 2,
                what="its figure has moved",
            )
        assert apis[2].post(f"/api/approvals/calls/{first}", {"allow": True})["ok"]
        assert apis[0].refused("POST", f"/api/approvals/calls/{first}", {"allow": True}) == (
            404,
            "not_found",
        )
        assert apis[1].post(f"/api/approvals/calls/{second}", {"allow": False})["ok"]
        events.wait_for("approvals", lambda data: data["pending"] == before)
    assert "result" in cluster.call(1, "one more")
    assert cluster.call(0, "and another")["error"]["code"] == DENIED
    assert (cluster.calls("one more"), cluster.calls("and another")) == (1, 0)


def test_a_modern_clients_question_is_answered_through_another_replica_once(
    cluster: ApprovingReplicas,
) -> None:
    """SEC-7, SCA-1: the state that one replica gave out is taken by whichever gets it, once over
    all."""

    def call(number: int, text: str, **more: Any) -> Json:
        params = {"name": "files_echo", "arguments": {"text": text}, **more}
        answer = post_modern(
            cluster.replicas[number].port, modern_request("tools/call", params, capabilities=ABLE)
        ).message
        return answer["result"]

    asked = call(0, "sealed")
    [key] = asked["inputRequests"]
    yes = {key: {"action": "accept", "content": {"approve": True}}}
    state = asked["requestState"]
    for text, given in (("sealed", state[:-4] + "AAAA"), ("other", state)):
        assert (
            call(1, text, requestState=given, inputResponses=yes)["resultType"] == "input_required"
        )
    with ThreadPoolExecutor(12) as pool:
        answers = list(
            pool.map(
                lambda number: call(number % 3, "sealed", requestState=state, inputResponses=yes),
                range(1, 25),
            )
        )
    assert (
        sum(answer["resultType"] == "complete" for answer in answers)
        == 1
        == cluster.calls("sealed")
    )
    assert cluster.calls("other") == 0


def test_a_replica_that_ends_leaves_what_waits_to_the_others(
    cluster: ApprovingReplicas, tmp_path: Path
) -> None:
    """SEC-7, SCA-1: whoever asked may be gone when it is decided."""
    with Replicas(cluster.store, cluster.replicas[0].config, 1, balanced=False) as short:
        answer = Visitor(short[0].port).ask(
            "tools/call", {"name": "files_echo", "arguments": {"text": "left behind"}}
        )
        id = answer["error"]["data"]["approval"]
        short[0].process.kill()
        short[0].process.wait()
    assert cluster.waits(1, "left behind") == id
    assert cluster.approve(2, id, "--yes")[0] == 0
    assert "result" in cluster.call(0, "left behind") and cluster.calls("left behind") == 1


def listed(replica: Gateway) -> set[str]:
    return {call["id"] for call in AdminApi(replica).get("/api/approvals")["calls"]}


def test_the_store_dies_and_comes_back_empty(cluster: ApprovingReplicas) -> None:
    """SEC-7, SCA-1: no call passes while the store is away, and afterwards each is approved again."""
    used, approved, waits = (cluster.waits(0, text) for text in ("used up", "approved", "waits"))
    assert cluster.approve(1, used, "--yes")[0] == cluster.approve(1, approved, "--yes")[0] == 0
    assert "result" in cluster.call(2, "used up")
    for number in range(3):
        wait_until(
            lambda number=number: {approved, used}.isdisjoint(listed(cluster.replicas[number])),
            what="all know",
        )
    cluster.store.kill()
    try:
        for number in range(3):
            away = cluster.call(number, "approved")["error"]
            assert (
                away["code"] == OVERLOADED
                and "store" in away["message"]
                and away["data"]["retry_after"]
            )
            assert cluster.waits(number, "waits") == waits
            code, said = cluster.approve(number, waits, "--yes")
            assert code == 1 and "store" in said
            refused = AdminApi(cluster.replicas[number]).ask(
                "POST", f"/api/approvals/calls/{waits}", {"allow": True}
            )
            assert refused.status == 503 and refused.code == "unavailable"
    finally:
        cluster.store.start()
    for replica in cluster.replicas:
        wait_until(lambda replica=replica: not listed(replica), what="all know")
    for text, earlier in (("waits", waits), ("approved", approved), ("used up", used)):
        id = cluster.waits(2, text)
        assert id != earlier, "it has to be approved again"
        assert cluster.approve(0, id, "--yes")[0] == 0
        assert "result" in cluster.call(1, text)
        assert cluster.waits(2, text) != id
    assert [cluster.calls(text) for text in ("waits", "approved", "used up")] == [1, 1, 2]
