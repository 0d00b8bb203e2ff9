"""OBS-1: what a row of the audit trail says, and what it never does."""

import asyncio
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from mcpx.base import jsonl_file
from mcpx.config import Audit, Config, Global
from mcpx.model.call import Call, Caller
from mcpx.model.errors import DENIED
from mcpx.model.events import (
    ApprovalChanged,
    Bus,
    CallFinished,
    ConfigApplied,
    DoorRefused,
    Event,
    Noted,
    Outcome,
    Passage,
)
from mcpx.model.offer import Offer
from mcpx.model.redaction import Redactor
from mcpx.model.requests import Request
from mcpx.telemetry import audit as module
from mcpx.telemetry.audit import AuditLog, trail_file
from mcpx.telemetry.audit_rows import AuditRows

Json = dict[str, Any]

CALLER = Caller(
    principal="alice",
    profile="work",
    address="10.0.0.7",
    client={"name": "inspector", "version": "1.2", "secret": "no"},
    session="the-session-id-itself",
)


def over(
    arguments: Any = None,
    caller: Caller = CALLER,
    outcome: Outcome = "ok",
    code: int | None = None,
    rule: str | None = None,
    uri: str | None = None,
) -> CallFinished:
    if uri is not None:
        call = Call("resources/read", {"uri": uri}, caller)
        return CallFinished(Passage("web", uri, None, call, call.params), 0.0123, outcome, code)
    params = {"name": "send"} if arguments is None else {"name": "send", "arguments": arguments}
    offer = Offer("tools", "mail", "send", "mail_send", {})
    return CallFinished(
        Passage("mail", "send", offer, Call("tools/call", params, caller), params, rule),
        0.0123,
        outcome,
        code,
    )


def trail_of(
    folder: Path,
    *events: Event,
    how: Audit | None = None,
    then: Callable[[Bus], None] | None = None,
    redactor: Redactor | None = None,
) -> str:
    async def run() -> None:
        bus = Bus()
        log = AuditLog(bus, folder / "trail", how or Audit(), redactor)
        for event in events:
            bus.publish(event)
        if then is not None:
            then(bus)
        log.close().join()
        assert not bus.heard(CallFinished)

    asyncio.run(run())
    lines = (folder / "trail").read_text().splitlines(keepends=True)
    return "".join(
        re.sub(r',"chain":.*', "}", line) for line in lines if '"event":"opened"' not in line
    )


def rows(folder: Path, *events: Event, how: Audit | None = None) -> list[Json]:
    return [json.loads(line) for line in trail_of(folder, *events, how=how).splitlines()]


def test_a_row_says_who_called_what_and_what_came_of_it(tmp_path: Path) -> None:
    (row,) = rows(
        tmp_path, over({"to": "bob"}, outcome="denied", code=DENIED, rule="policy.rules[0]")
    )
    assert len(row.pop("time")) == len("2026-01-01T00:00:00.000Z")
    session = row.pop("session")
    assert len(session) == 12 and session not in "the-session-id-itself"
    assert row == {
        "event": "call",
        "principal": "alice",
        "profile": "work",
        "client": "inspector 1.2",
        "address": "10.0.0.7",
        "method": "tools/call",
        "server": "mail",
        "name": "send",
        "arguments": {"to": "string"},
        "rule": "policy.rules[0]",
        "decision": "denied",
        "outcome": "denied",
        "code": DENIED,
        "ms": 12.3,
    }


def test_two_calls_of_a_session_can_be_told_from_another(tmp_path: Path) -> None:
    other = replace(CALLER, session="another")
    first, second, third = rows(tmp_path, over(), over(), over(caller=other))
    assert first["session"] == second["session"] != third["session"]


SAID: Json = {
    "text": "hello",
    "n": 3,
    "x": 1.5,
    "yes": True,
    "none": None,
    "list": [1],
    "map": {"token": "t0k"},
}


def test_of_arguments_nothing_or_names_and_types_or_values_are_written(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    for how in ("none", "shape", "values"):
        folder = tmp_path / how
        (row,) = rows(folder, over(SAID), how=Audit(arguments=how))
        found[how] = row.get("arguments")
    assert found["none"] is None
    assert found["shape"] == {
        "text": "string",
        "n": "integer",
        "x": "number",
        "yes": "boolean",
        "none": "null",
        "list": "array",
        "map": "object",
    }
    assert found["values"] == {**SAID, "map": {"token": "[hidden]"}}


SECRETS = (
    "password api_key apiKey X-Api-Key Authorization auth secret client_secret accessToken "
    "refresh_token private_key "
    "cookie passwd passphrase credentials bearer sessionId PIN"
)


@pytest.mark.parametrize("name", SECRETS.split())
def test_values_under_the_name_of_a_secret_are_not_written(tmp_path: Path, name: str) -> None:
    for value in ("s3cr3t", ["s3cr3t"], {"deep": "s3cr3t"}):
        folder = tmp_path / type(value).__name__
        text = trail_of(
            folder, over({"a": [{name: value}], name: value}), how=Audit(arguments="values")
        )
        assert "s3cr3t" not in text and name in text


@pytest.mark.parametrize(
    "name", ["passage", "author", "path", "keyword", "passenger", "spinner", "text"]
)
def test_values_under_other_names_are_written(tmp_path: Path, name: str) -> None:
    assert "s3cr3t" in trail_of(tmp_path, over({name: "s3cr3t"}), how=Audit(arguments="values"))


def test_a_row_is_bounded_whatever_a_caller_says(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    hostile = {
        **{f"argument-{number}" * 100: "y" * 900 for number in range(5000)},
        "deep": deep,
        "wide": list(range(100_000)),
        "long": "z" * 10_000_000,
    }
    caller = replace(CALLER, client={"name": "n" * 10_000, "version": 7}, principal="p" * 10_000)
    for how in ("shape", "values"):
        text = trail_of(tmp_path / how, over(hostile, caller), how=Audit(arguments=how))
        assert len(text) < 200_000
        json.loads(text)


@pytest.mark.parametrize(
    "arguments", ["text", 5, None, [1, 2], {}, {"": ""}, {"emoji": "\ud83d", "large": 10**30}]
)
def test_arguments_that_are_none_are_no_trouble(tmp_path: Path, arguments: Any) -> None:
    for how in ("none", "shape", "values"):
        (row,) = rows(tmp_path / how, over(arguments), how=Audit(arguments=how))
        assert row["outcome"] == "ok"


def test_of_a_uri_only_what_is_no_secret_is_written(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, over(uri="https://bob:pw@files.example/a/b?sig=s3cr3t#s3cr3t"))
    assert row["name"] == "https://files.example/a/b?…"
    text = trail_of(
        tmp_path / "odd",
        *(over(uri=uri) for uri in ("file:///x", "http://[", "://", "a" * 99_999, "")),
    )
    assert [json.loads(line)["name"][:20] for line in text.splitlines()] == [
        "file:///x",
        "[hidden]",
        "://",
        "a" * 20,
        "",
    ]


def test_strangers_at_the_door_do_not_fill_the_trail(tmp_path: Path) -> None:
    refused = [
        DoorRefused("token", f"10.0.{number % 256}.{number // 256}") for number in range(5_000)
    ]
    found = rows(
        tmp_path, *refused, *[DoorRefused("token", "10.0.0.0")] * 1000, DoorRefused("host", "::1")
    )
    assert len(found) <= module.PLACES + 2
    assert sum(row["count"] for row in found) == 6001
    assert {row["event"] for row in found} == {"refused"}
    assert next(row for row in found if row["address"] == "10.0.0.0")["count"] == 1001


def test_strangers_who_go_on_do_not_push_out_what_others_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OBS-1: the longer they knock, the longer they are gathered; all of them are counted."""
    monkeypatch.setattr(module, "TELL_REFUSED", 0.005)
    monkeypatch.setattr(module, "LONGEST_GATHERING", 0.2)
    knocked = 0

    async def knock() -> None:
        nonlocal knocked
        bus = Bus()
        log = AuditLog(bus, tmp_path / "trail.jsonl", Audit())
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.5
        while loop.time() < until:
            bus.publish(DoorRefused("token", "10.0.0.7"))
            knocked += 1
            await asyncio.sleep(0.001)
        log.close().join()

    asyncio.run(knock())
    found = [json.loads(line) for line in (tmp_path / "trail.jsonl").read_text().splitlines()[1:]]
    assert sum(row["count"] for row in found) == knocked
    assert len(found) <= 10


def test_reloads_and_what_else_is_noted_are_in_the_trail(tmp_path: Path) -> None:
    noted = Noted("pins_approved", {"server": "mail", "name": "send", "by": "cli", "rule": None})
    first, second, third = rows(
        tmp_path,
        ConfigApplied("SIGHUP", True, "1 started (a)"),
        ConfigApplied("the file", False, "2 mistakes"),
        noted,
    )
    assert (first["event"], first["by"], first["ok"], first["plan"]) == (
        "reload",
        "SIGHUP",
        True,
        "1 started (a)",
    )
    assert second["ok"] is False
    del third["time"]
    assert third == {"event": "pins_approved", "server": "mail", "name": "send", "by": "cli"}


def test_a_row_that_json_cannot_represent_is_replaced(tmp_path: Path) -> None:
    unwritable = Noted("approval", {"id": object()})
    representable = Noted("approval", {"emoji": "\ud83d", "large": 10**30})
    first, second = rows(tmp_path, unwritable, representable)
    assert first["event"] == "unwritable"
    assert (second["emoji"], second["large"]) == ("\ud83d", 10**30)


def test_an_approval_stands_in_the_trail_of_the_replica_where_it_happened(tmp_path: Path) -> None:
    """OBS-1, SCA-1"""
    asked = ApprovalChanged("abc", "pending", "mail", "send", "alice", None, "rule 1")
    used = replace(asked, state="used", elsewhere=True)
    [row] = [json.loads(line) for line in trail_of(tmp_path, asked, used).splitlines()]
    assert (row["event"], row["id"], row["state"]) == ("approval", "abc", "pending")


def test_the_trail_has_a_place_of_its_own_for_each_config_and_environment(tmp_path: Path) -> None:
    def place(name: str, env: str | None = None, file: str | None = None) -> Path | None:
        config = Config(path=tmp_path / name, global_=Global(audit=Audit(file=file)))
        return trail_file(config, tmp_path / "state", env)

    places = {place("a.yaml"), place("b.yaml"), place("a.yaml", "prod")}
    assert len(places) == 3 and {each.parent for each in places if each} == {
        tmp_path / "state" / "audit"
    }
    assert place("a.yaml", file="log/trail.jsonl") == tmp_path / "log" / "trail.jsonl"
    assert trail_file(Config(path=tmp_path / "a.yaml"), tmp_path, None) is None
    assert trail_file(Config(global_=Global(audit=Audit())), None, None) is None


# What is remembered


SECRET = "tr0ub4dor-and-3"


def redactor(*secrets: str) -> Redactor:
    knows = Redactor()
    knows.learn("config", secrets or (SECRET,))
    return knows


def test_a_secret_that_is_learnt_later_is_in_no_row_from_then_on(tmp_path: Path) -> None:
    """All parts of the row were remembered before."""
    knows = redactor("another secret")
    caller = replace(CALLER, principal=f"p-{SECRET}", client={"name": SECRET}, session=None)
    events = (over({SECRET: 1}, caller, rule=SECRET), over(caller=caller, uri=f"file:///{SECRET}"))

    def then(bus: Bus) -> None:
        knows.learn("token", [SECRET])
        for event in events:
            bus.publish(event)
        knows.forget("token")
        bus.publish(events[0])

    lines = trail_of(tmp_path, *events, then=then, redactor=knows).splitlines()
    assert [SECRET in line for line in lines] == [True, True, False, False, True]


@pytest.mark.parametrize("how", ["shape", "values"])
def test_of_a_secret_where_a_text_is_cut_no_half_is_written(
    tmp_path: Path, how: Literal["shape", "values"]
) -> None:
    """Names, URIs and what callers are called are told up to a length: what is secret goes before
    that."""
    long = "x" * (256 - 8) + SECRET
    caller = replace(CALLER, principal=long, client={"name": "x" * 92 + SECRET}, session=None)
    other = replace(CALLER, principal="x" * (256 - 8) + SECRET[:8], session=None)
    uri = "file:///" + "x" * (256 - 16) + SECRET
    events = over(caller=other), over({long: 1}, caller, rule=long), over(caller=caller, uri=uri)
    first, *rows = trail_of(
        tmp_path, *events, how=Audit(arguments=how), redactor=redactor()
    ).splitlines()
    assert SECRET[:8] in first  # it is no secret, and begins like one
    assert [row for row in rows if SECRET[:4] in row] == []


def test_a_request_id_that_is_a_secret_is_not_written(tmp_path: Path) -> None:
    event = over()
    call = replace(event.passage.call, request=Request(SECRET))
    text = trail_of(
        tmp_path, event._replace(passage=replace(event.passage, call=call)), redactor=redactor()
    )
    assert SECRET not in text and json.loads(text)["id"] == "***"


NASTY = (
    '"',
    "\\",
    "\n\r\x00\x1f\x7f",
    "\x85\u2028\u2029",
    "\ud800",
    "a\udfffb",
    "\U0001f600" * 300,
    "x" * 9_999,
    "…",
    SECRET,
)


@pytest.mark.parametrize("how", ["none", "shape", "values"])
def test_whoever_calls_whatever_a_row_is_one_line_and_says_what_it_would_without_a_memory(
    tmp_path: Path, how: Literal["none", "shape", "values"]
) -> None:
    """Names, clients, principals, arguments in all combinations, again and again: each row is JSON,
    as if it were the first one, and has no secret in it."""
    chance = random.Random(1)
    given: list[Any] = [
        None,
        5,
        "text",
        [1],
        {},
        {"n": None},
        {"n": True},
        {"n": 1},
        {"n": 1.5},
        {"n": float("nan")},
    ]
    given += [
        dict.fromkeys(NASTY, 1),
        {name: name for name in NASTY},
        {f"{n}" * 50: n for n in range(150)},
    ]
    knows, again = redactor(), redactor()
    remembering = AuditRows(how, knows)

    def any_of() -> str:
        return chance.choice(NASTY)

    events: list[CallFinished] = []
    for _ in range(300):
        client = chance.choice([{}, {"name": 5}, {"name": any_of(), "version": any_of()}])
        caller = Caller(any_of(), chance.choice([None, any_of()]), any_of(), client)
        params = chance.choice([{}, {"arguments": chance.choice(given)}])
        name = any_of()
        offer = chance.choice([None, Offer("tools", "mail", name, f"mail_{name}", {})])
        call = Call("tools/call", params, caller, None, chance.choice([None, Request("given-1")]))
        events.append(
            CallFinished(Passage("mail", name, offer, call, params, any_of()), 0.01, "ok", -1)
        )
    for event in (*events, *events):
        told = [rows.finished(event) for rows in (remembering, AuditRows(how, again))]
        behind_the_time = [(line.partition(b",")[2], clean) for line, clean in told]
        assert behind_the_time[0] == behind_the_time[1]
    lines = (
        trail_of(tmp_path, *events, how=Audit(arguments=how), redactor=knows)
        .removesuffix("\n")
        .split("\n")
    )
    assert len(lines) == len(events) and all(json.loads(line)["event"] == "call" for line in lines)
    assert not any(SECRET in line for line in lines)


def test_a_disk_that_takes_nothing_delays_a_call_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OBS-2: one call waits for the limit. Calls after it do not wait while its row is not
    written."""
    stuck = threading.Event()
    write = os.write
    monkeypatch.setattr(
        jsonl_file.os, "write", lambda handle, data: stuck.wait(30) and write(handle, data)
    )
    monkeypatch.setattr(module, "BEGIN_SECONDS", 0.05)

    async def main() -> None:
        log = AuditLog(Bus(), tmp_path / "trail", Audit())
        passages = [over({"to": "bob"}).passage for _ in range(100)]
        began = time.monotonic()
        for passage in passages:
            await log.begin(passage)
        assert 0.05 <= time.monotonic() - began < 0.05 * 50
        stuck.set()
        log.close().join()

    asyncio.run(main())
    assert (tmp_path / "trail").read_text().count('"event":"begins"') == 100
