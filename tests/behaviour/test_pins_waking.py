"""SEC-5: over a fresh link to a pinned server that changed meanwhile no call goes that was not
judged."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from behaviour.test_pins import SERVER, Changing, config, held, lists, refused, running, tool, typed
from kit.client import Session, health, post_modern
from kit.gateway import Gateway
from kit.messages import Json, modern_request, text_of
from kit.process import START, Child
from kit.until import wait_until

ASKABLE: Json = {"elicitation": {}}


def asleep(gateway: Gateway) -> None:
    wait_until(lambda: health(gateway.port)["servers"]["box"]["status"] == "sleeping")


def sleeper(box: Changing, *flags: str, **more: Any) -> Json:
    return box.entry(*flags, lazy=True, idle_timeout=0.1, **more)


@pytest.mark.parametrize(
    ("era", "trust"), [("older", "pin"), ("modern", "pin"), ("older", "quarantine")]
)
def test_a_call_that_wakes_a_server_is_not_sent_to_a_tool_that_has_changed(
    tmp_path: Path, era: str, trust: str
) -> None:
    """SEC-5: it reads as unknown, the server's other tools are called, and once approved it is
    called too."""
    box = Changing(tmp_path, tools=[tool("read"), tool("write")])
    with running(tmp_path, config(sleeper(box, "--era", era, trust=trust))) as gateway:
        if trust == "quarantine":
            wait_until(lambda: held(gateway) == 2)
            assert typed(gateway, "approve", "box", "--yes").returncode == 0
        client = Session(gateway.port)
        lists(client, "box_read", "box_write")
        assert text_of(client.call("box_read")) == "called read"
        asleep(gateway)
        box.offer(tools=[tool("read", "Other"), tool("write")])
        assert client.call("box_read")["error"]["message"] == "Unknown tool: box_read"
        assert text_of(client.call("box_write")) == "called write"
        assert client.tools() == ["box_write"]
        assert typed(gateway, "approve", "box", "--yes").returncode == 0
        assert text_of(client.call("box_read")) == "called read"


def test_a_prompt_that_has_changed_while_its_server_slept_is_neither_got_nor_completed(
    tmp_path: Path,
) -> None:
    """SEC-5."""
    box = Changing(tmp_path, tools=[tool("read")], prompts=[{"name": "ask"}])
    complete: Json = {
        "ref": {"type": "ref/prompt", "name": "box_ask"},
        "argument": {"name": "a", "value": ""},
    }
    for method, params in (("prompts/get", {"name": "box_ask"}), ("completion/complete", complete)):
        box.offer(tools=[tool("read")], prompts=[{"name": "ask"}])
        with running(tmp_path / method.replace("/", "-"), config(sleeper(box))) as gateway:
            client = Session(gateway.port)
            wait_until(lambda client=client: client.request("prompts/list")["result"]["prompts"])
            asleep(gateway)
            box.offer(tools=[tool("read")], prompts=[{"name": "ask", "description": "Other"}])
            assert client.request(method, params)["error"]["message"] == "Unknown prompt: box_ask"


def test_compact_modes_wake_a_server_and_call_nothing_that_has_changed(tmp_path: Path) -> None:
    """SEC-5: by the name that clients know, whichever tool led to it."""
    box = Changing(tmp_path, tools=[tool("read"), tool("write")])
    with running(tmp_path, config(sleeper(box)), "--mode", "inspect") as gateway:
        client = Session(gateway.port)
        words: Json = {"server_name": "box", "tool_name": "read", "arguments": {}}
        wait_until(lambda: "called read" in json.dumps(client.call("exec", **words)))
        asleep(gateway)
        box.offer(tools=[tool("read", "Other"), tool("write")])
        answer = json.dumps(client.call("exec", **words))
        assert "called" not in answer and "Unknown tool: box_read" in answer


def test_a_call_that_is_sent_again_to_a_restarted_server_is_judged_again(tmp_path: Path) -> None:
    """SEC-5, LIF-4: a tool that may be repeated ends its process; the next process has another
    definition of it."""
    box = Changing(tmp_path, tools=[tool("end", annotations={"readOnlyHint": True}), tool("write")])
    with running(tmp_path, config(box.entry("--era", "modern"))) as gateway:
        client = Session(gateway.port)
        lists(client, "box_end", "box_write")
        box.offer(tools=[tool("end", "Other", annotations={"readOnlyHint": True}), tool("write")])
        assert refused(client, "box_end")
        assert text_of(client.call("box_write")) == "called write"
        assert held(gateway) == 1


@pytest.mark.parametrize("isolation", ["per_session", "per_call"])
@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_link_of_ones_own_is_judged_by_what_is_listed_there(
    tmp_path: Path, isolation: str, era: str
) -> None:
    """SEC-5: it is a process of its own; what it lists can be approved, also when it is gone."""
    box = Changing(tmp_path, tools=[tool("read"), tool("write")])
    with running(
        tmp_path, config(box.entry("--silent", "--era", era, isolation=isolation))
    ) as gateway:
        lists(Session(gateway.port), "box_read", "box_write")
        box.offer(tools=[tool("read", "Other"), tool("write")])
        client = Session(gateway.port)
        assert refused(client, "box_read")
        assert text_of(client.call("box_write")) == "called write"
        assert held(gateway) == 1
        shown = typed(gateway, "approve", "box", "--yes")
        assert shown.returncode == 0 and "+ description: Other" in shown.stdout
        assert text_of(client.call("box_read")) == "called read"


def test_a_link_that_is_opened_for_clients_that_can_be_asked_is_judged_too(tmp_path: Path) -> None:
    """SEC-5: its first call may come before it is known what such clients are offered."""
    box = Changing(tmp_path, tools=[tool("read"), tool("write")])
    with running(tmp_path, config(box.entry("--silent"))) as gateway:
        lists(Session(gateway.port), "box_read", "box_write")
        box.offer(tools=[tool("read", "Other"), tool("write")])
        client = Session(gateway.port, capabilities=ASKABLE)
        assert refused(client, "box_read")
        assert text_of(client.call("box_write")) == "called write"


def test_a_modern_client_that_can_be_asked_reaches_an_older_server_only_when_it_is_judged(
    tmp_path: Path,
) -> None:
    """SEC-5: calls of such clients may be parked, and come back."""
    box = Changing(tmp_path, tools=[tool("read"), tool("write")])
    with running(tmp_path, config(sleeper(box))) as gateway:
        lists(Session(gateway.port), "box_read", "box_write")
        asleep(gateway)
        box.offer(tools=[tool("read", "Other"), tool("write")])

        def call(name: str) -> Json:
            message = modern_request(
                "tools/call", {"name": name, "arguments": {}}, capabilities=ASKABLE
            )
            return post_modern(gateway.port, message).message

        assert call("box_read")["error"]["message"] == "Unknown tool: box_read"
        assert text_of(call("box_write")) == "called write"


@pytest.mark.parametrize("more", [[], [tool("more")]])
def test_what_only_some_clients_are_offered_is_judged_again_when_a_modern_server_was_restarted(
    tmp_path: Path, more: list[Json]
) -> None:
    """SEC-5: whether or not what everybody is offered is still the same."""
    box = Changing(tmp_path, tools=[tool("read")], special=[tool("confirm")])
    with running(tmp_path, config(sleeper(box, "--era", "modern"))) as gateway:
        lists(Session(gateway.port), "box_read")
        asked = Session(gateway.port, capabilities=ASKABLE)
        wait_until(lambda: asked.tools() and held(gateway) == 1)
        assert typed(gateway, "approve", "box", "--yes").returncode == 0
        lists(asked, "box_read", "box_confirm")
        assert text_of(asked.call("box_confirm")) == "called confirm"
        asleep(gateway)
        box.offer(tools=[tool("read"), *more], special=[tool("confirm", "Other")])
        assert refused(asked, "box_confirm")
        assert text_of(asked.call("box_read")) == "called read"


def test_a_fresh_session_over_http_carries_nothing_that_was_not_judged(tmp_path: Path) -> None:
    """SEC-5: the server has forgotten the session, and has other definitions in the next."""
    box = Changing(tmp_path, tools=[tool("read"), tool("write")], session="first")
    command = [sys.executable, "-I", "-S", SERVER, str(box.file), "--http", "0"]
    with Child(command, dict(os.environ)) as child:
        ready = child.stdout.wait_for(r"ready (\S+)", START)
        assert ready is not None
        entry = {
            "name": "box",
            "prefix": "box",
            "trust": "pin",
            "connection": {"type": "http", "url": ready[1]},
        }
        with running(tmp_path, config(entry)) as gateway:
            client = Session(gateway.port)
            lists(client, "box_read", "box_write")
            assert text_of(client.call("box_read")) == "called read"
            box.offer(tools=[tool("read", "Other"), tool("write")], session="second")
            assert refused(client, "box_read")
            assert text_of(client.call("box_write")) == "called write"


def test_a_server_that_does_not_list_its_tools_again_is_not_called_and_says_why(
    tmp_path: Path,
) -> None:
    """SEC-5: within the time it has for its lists, for calls that come together; when it lists
    them, it is called."""
    box = Changing(tmp_path, tools=[tool("read")])
    with running(
        tmp_path, config(box.entry("--silent", isolation="per_session", timeout=1))
    ) as gateway:
        lists(Session(gateway.port), "box_read")
        box.offer(tools=[tool("read")], mute=["tools/list"])
        client = Session(gateway.port)
        calls = [client.start_call("box_read") for _ in range(3)]
        for call in calls:
            error = call.reply().message["error"]
            assert (
                error["code"] == -33001 and "its tools could not be listed" in error["message"]
            ), error
            assert "box" in error["message"] and "pinned" in error["message"]
        box.offer(tools=[tool("read")])
        assert text_of(client.call("box_read")) == "called read"


def test_the_time_of_a_call_bounds_how_long_lists_are_waited_for(tmp_path: Path) -> None:
    """SEC-5."""
    box = Changing(tmp_path, tools=[tool("read")])
    entry = box.entry("--silent", isolation="per_session", timeout=20, call_timeout=0.3)
    with running(tmp_path, config(entry)) as gateway:
        lists(Session(gateway.port), "box_read")
        box.offer(tools=[tool("read")], mute=["tools/list"])
        error = Session(gateway.port).call("box_read")["error"]
        assert error["code"] == -33002 and "within 0.3 s" in error["message"], error


def test_a_call_that_waits_for_a_connection_is_not_sent_to_what_is_held_by_then(
    tmp_path: Path,
) -> None:
    """SEC-5: all connections are in use; meanwhile the server says that it has changed."""
    box = Changing(tmp_path, tools=[tool("read"), tool("wait")])
    with running(tmp_path, config(box.entry(isolation="per_call", max_links=2))) as gateway:
        client = Session(gateway.port)
        lists(client, "box_read", "box_wait")
        first = client.start_call("box_wait")
        wait_until(lambda: links(gateway) == 2)
        second = client.start_call("box_read")
        box.offer(tools=[tool("read", "Other"), tool("wait")])
        wait_until(lambda: held(gateway) == 1)
        Path(f"{box.file}.go").touch()
        assert text_of(first.reply().message) == "called wait"
        assert second.reply().message["error"]["message"] == "Unknown tool: box_read"


def links(gateway: Gateway) -> int:
    answer = json.loads(typed(gateway, "servers", "--json").stdout)
    return len(answer["servers"][0]["links"])


def test_a_server_that_is_trusted_as_it_comes_is_called_without_being_asked_for_its_lists(
    tmp_path: Path,
) -> None:
    """SEC-5: who pins nothing pays nothing."""
    box = Changing(tmp_path, tools=[tool("read")])
    entry = box.entry("--silent", isolation="per_call", trust="open", timeout=5)
    with running(tmp_path, config(entry)) as gateway:
        client = Session(gateway.port)
        lists(client, "box_read")
        box.offer(tools=[tool("read", "Other")], mute=["tools/list"])
        assert text_of(client.call("box_read")) == "called read"
