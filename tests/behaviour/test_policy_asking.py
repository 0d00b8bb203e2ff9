"""SEC-7 through the real program: `ask` has a person decide, and nothing reaches the server before
a yes."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    AnsweringUser,
    Door,
    Front,
    Json,
    Kind,
    Question,
    RefusedError,
    connected,
)
from behaviour.compact import ERAS, MODES, Compact, Visitor, config, meta_call
from kit.client import Session, post_modern
from kit.gateway import Gateway
from kit.messages import modern_request
from kit.servers import everything_server, stdio_server

KINDS: tuple[Kind, ...] = ("sdk-older", "sdk-modern", "raw-older", "raw-modern")
DENIED, NEEDS_APPROVAL = -33008, -33009
ABLE: Json = {"elicitation": {}}
RULE: Json = {
    "effect": "ask",
    "tools": ["files.echo", "files.ask", "*.elicit"],
    "reason": "it says things",
}


class Decider(AnsweringUser):
    """Says yes or no to calls; answers servers as everybody does."""

    def __init__(self, name: str, yes: bool) -> None:
        super().__init__(name)
        self.yes = yes
        self.decided: list[str] = []

    def answer(self, question: Question) -> Json:
        if "approve" in question.params.get("requestedSchema", {}).get("properties", {}):
            self.decided.append(question.params["message"])
            return {"action": "accept", "content": {"approve": self.yes}}
        return super().answer(question)


class AskingGateway:
    def __init__(self, gateway: Gateway, record: Path) -> None:
        self.gateway = gateway
        self.port = gateway.port
        self._record = record

    def calls(self, text: str) -> int:
        """How often the server was called with this text."""
        lines = self._record.read_bytes().splitlines()
        messages = [
            message for message in map(json.loads, lines) if message.get("method") == "tools/call"
        ]
        return sum(
            message["params"].get("arguments", {}).get("text") == text for message in messages
        )

    def door(self, front: Front) -> Door:
        base = f"127.0.0.1:{self.port}"
        return Door(front, f"http://{base}/mcp" if front == "http" else f"ws://{base}/ws")


@pytest.fixture(scope="module")
def asking_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskingGateway]:
    record = tmp_path_factory.mktemp("asking") / "files.jsonl"
    script = str(Path(__file__).with_name("asking_server.py"))
    files = stdio_server("files", [sys.executable, "-I", "-S", script, str(record)])
    with Gateway(
        config(files, everything_server("young", "--era", "modern"), policy={"rules": [RULE]})
    ) as gateway:
        yield AskingGateway(gateway, record)
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


def bounded(check: Any) -> None:
    async def run() -> None:
        with anyio.fail_after(2 * BOUND):
            await check()

    anyio.run(run)


@pytest.mark.parametrize("front", ["http", "websocket"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_person_at_the_client_decides(
    asking_gateway: AskingGateway, kind: Kind, front: Front
) -> None:
    """SEC-7: in the way of the client's era."""
    texts = {yes: f"{kind} {front} {yes}" for yes in (True, False)}

    async def check() -> None:
        for yes, text in texts.items():
            user = Decider("ada", yes)
            async with connected(kind, asking_gateway.door(front), user) as client:
                if yes:
                    result = await client.call("files_echo", {"text": text})
                    assert result["content"][0]["text"] == text
                else:
                    with pytest.raises(Exception, match="not approved"):
                        await client.call("files_echo", {"text": text})
            [message] = user.decided
            assert "files.echo" in message and text in message and "it says things" in message
            assert user.complaints == []

    bounded(check)
    assert {yes: asking_gateway.calls(text) for yes, text in texts.items()} == {True: 1, False: 0}


@pytest.mark.parametrize("tool", ["files_ask", "young_elicit"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_asks_too_is_answered_and_nobody_is_asked_twice(
    asking_gateway: AskingGateway, kind: Kind, tool: str
) -> None:
    """SEC-7, PRO-5: in all four pairs of eras."""
    text = f"{kind} {tool}"

    async def check() -> None:
        user = Decider("ada", True)
        async with connected(kind, asking_gateway.door("http"), user) as client:
            result = await client.call(tool, {"text": text, "message": text})
            assert "ada" in json.dumps(result)
        assert len(user.decided) == 1 and len(user.asked) == 1
        assert user.complaints == []

    bounded(check)


@pytest.mark.parametrize("kind", ["raw-older", "raw-modern"])
@pytest.mark.parametrize("mode", MODES)
def test_the_real_tool_is_asked_about_in_compact_modes(
    asking_gateway: AskingGateway, mode: Compact, kind: Kind
) -> None:
    """SEC-7, SUR-9"""
    text = f"{kind} {mode}"

    async def check() -> None:
        for yes in (False, True):
            user = Decider("ada", yes)
            door = Door("http", f"http://127.0.0.1:{asking_gateway.port}/mcp/{mode}")
            async with connected(kind, door, user) as client:
                result = await client.call(
                    *meta_call(mode, "files", "echo", {"text": f"{text} {yes}"})
                )
            assert (result.get("isError") is True) != yes
            assert yes or "files.echo was not approved" in json.dumps(result)
            assert len(user.decided) == 1 and "files.echo" in user.decided[0]

    bounded(check)
    assert (asking_gateway.calls(f"{text} False"), asking_gateway.calls(f"{text} True")) == (0, 1)


@pytest.mark.parametrize("mode", MODES)
def test_each_of_several_calls_is_asked_about(asking_gateway: AskingGateway, mode: Compact) -> None:
    """SEC-7, SUR-12: a client that is asked by requests; of one that is asked by results each has
    to be approved."""
    said = [f"{number} of several in {mode}" for number in range(3)]
    calls = [meta_call(mode, "files", "echo", {"text": text}) for text in said]
    several = {"calls": [arguments for _, arguments in calls], "continue": True}
    door = Door("http", f"http://127.0.0.1:{asking_gateway.port}/mcp/{mode}")

    class Picky(Decider):
        def answer(self, question: Question) -> Json:
            self.yes = said[1] not in question.params["message"]
            return super().answer(question)

    async def check() -> None:
        user = Picky("ada", True)
        async with connected("raw-older", door, user) as client:
            result = await client.call(calls[0][0], several)
        assert len(user.decided) == 3 and "2 of 3 calls ok" in json.dumps(result)
        assert [asking_gateway.calls(text) for text in said] == [1, 0, 1]
        other = Decider("bob", True)
        async with connected("raw-modern", door, other) as client:
            result = await client.call(calls[0][0], several)
        assert other.decided == [] and json.dumps(result).count("mcpx approve") >= 3
        assert [asking_gateway.calls(text) for text in said] == [1, 0, 1]

    bounded(check)


def waiting_for(error: Json) -> str:
    assert (
        error["code"] == NEEDS_APPROVAL
        and f"mcpx approve {error['data']['approval']}" in error["message"]
    )
    return error["data"]["approval"]


@pytest.mark.parametrize("era", ERAS)
def test_who_cannot_be_asked_waits_for_an_approval_which_is_used_once(
    asking_gateway: AskingGateway, era: str
) -> None:
    """SEC-7: bound to the exact arguments; two at once do not share it."""
    text = f"pending {era}"

    def call(said: str) -> Json:
        return Visitor(asking_gateway.port, "", era).ask(
            "tools/call", {"name": "files_echo", "arguments": {"text": said}}
        )

    first = waiting_for(call(text)["error"])
    assert waiting_for(call(text)["error"]) == first
    other = waiting_for(call(f"{text}, another")["error"])
    assert other != first
    [told] = [
        each for each in asking_gateway.gateway.control("approvals")["calls"] if each["id"] == first
    ]
    assert (told["server"], told["tool"], told["rule"]) == ("files", "echo", "rule 1")
    assert (
        text in told["arguments"]
        and told["asked_at"] < told["expires_at"]
        and told["reason"] == "it says things"
    )
    assert asking_gateway.gateway.control("decide", id=first, allow=True, by="eve")["ok"]
    assert not asking_gateway.gateway.control("decide", id=first, allow=True, by="eve")["ok"]
    assert call(f"{text}, another")["error"]["code"] == NEEDS_APPROVAL
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(call, [text] * 8))
    assert sum("result" in answer for answer in answers) == 1 == asking_gateway.calls(text)
    asking_gateway.gateway.control("decide", id=other, allow=False, by="eve")
    refused = call(f"{text}, another")["error"]
    assert refused["code"] == DENIED and "was refused" in refused["message"]
    assert asking_gateway.calls(f"{text}, another") == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_model_is_told_how_a_call_is_approved(
    asking_gateway: AskingGateway, mode: Compact
) -> None:
    """SEC-7, SUR-9: as a tool error, and then the same call works; in a list of calls too."""
    visitor, text = Visitor(asking_gateway.port, mode), f"to be approved in {mode}"
    said = visitor.error(visitor.run("files", "echo", {"text": text}))
    id = said.partition("mcpx approve ")[2].partition("`")[0]
    assert "files.echo needs approval (it says things)" in said
    name, arguments = meta_call(mode, "files", "echo", {"text": text})
    several = json.dumps(visitor.use(name, calls=[arguments, arguments]))
    assert f"mcpx approve {id}" in several
    assert asking_gateway.gateway.control("decide", id=id, allow=True, by="eve")["ok"]
    assert not visitor.run("files", "echo", {"text": text}).get("isError")
    assert asking_gateway.calls(text) == 1


def test_secrets_among_the_arguments_are_not_told(asking_gateway: AskingGateway) -> None:
    """SEC-7"""
    error = Session(asking_gateway.port).call(
        "files_echo", text="with a secret", password="hunter2"
    )["error"]
    told = asking_gateway.gateway.control("approvals")
    assert waiting_for(error) in json.dumps(told) and "hunter2" not in json.dumps(told)


def test_a_question_is_taken_back_when_its_call_is_given_up(asking_gateway: AskingGateway) -> None:
    """SEC-7: and the call is not made, whatever is answered later."""
    session = Session(asking_gateway.port, capabilities=ABLE)
    with session.start_call("files_echo", id=77, text="given up") as stream:
        while (event := stream.event()) is not None:
            if isinstance(event.get("data"), dict):
                break
        assert event is not None
        question = event["data"]
        assert question["method"] == "elicitation/create"
        cancelled = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 77},
        }
        assert session.post(cancelled).status == 202
        late = {"action": "accept", "content": {"approve": True}}
        session.post({"jsonrpc": "2.0", "id": question["id"], "result": late})
    assert session.call("files_who")["result"]
    assert asking_gateway.calls("given up") == 0


def test_a_state_that_was_changed_or_used_is_asked_about_again(
    asking_gateway: AskingGateway,
) -> None:
    """SEC-7: single use, sealed, bound to the arguments."""

    def call(text: str, **more: Any) -> Json:
        params = {"name": "files_echo", "arguments": {"text": text}, **more}
        return post_modern(
            asking_gateway.port, modern_request("tools/call", params, capabilities=ABLE)
        ).message["result"]

    first = call("sealed")
    [key] = first["inputRequests"]
    answers = {key: {"action": "accept", "content": {"approve": True}}}
    state = first["requestState"]
    for text, given in (("sealed", state[:-4] + "AAAA"), ("sealed", "made up"), ("other", state)):
        assert (
            call(text, requestState=given, inputResponses=answers)["resultType"] == "input_required"
        )
    assert call("sealed", inputResponses=answers)["resultType"] == "input_required"
    assert asking_gateway.calls("sealed") == asking_gateway.calls("other") == 0
    assert call("sealed", requestState=state, inputResponses=answers)["resultType"] == "complete"
    assert (
        call("sealed", requestState=state, inputResponses=answers)["resultType"] == "input_required"
    )
    assert asking_gateway.calls("sealed") == 1


def test_no_answer_slips_through_to_the_server(asking_gateway: AskingGateway) -> None:
    """SEC-7: the server gets the call as it was meant."""

    async def check() -> None:
        async with connected(
            "raw-modern", asking_gateway.door("http"), Decider("ada", True)
        ) as client:
            await client.call("files_echo", {"text": "clean"})

    bounded(check)
    lines = [json.loads(line) for line in asking_gateway._record.read_bytes().splitlines()]  # pyright: ignore[reportPrivateUsage]
    [params] = [
        its["params"]
        for its in lines
        if its.get("method") == "tools/call" and its["params"].get("arguments") == {"text": "clean"}
    ]
    assert params.keys() <= {"name", "arguments", "_meta"} and "mcpx-ask" not in json.dumps(params)


def test_a_refusal_is_an_error_of_the_protocol_in_direct_mode(
    asking_gateway: AskingGateway,
) -> None:
    """SEC-7"""

    async def check() -> None:
        async with connected(
            "raw-older", asking_gateway.door("http"), Decider("ada", False)
        ) as client:
            with pytest.raises(RefusedError) as refused:
                await client.call("files_echo", {"text": "no"})
        assert refused.value.error["code"] == DENIED

    bounded(check)
