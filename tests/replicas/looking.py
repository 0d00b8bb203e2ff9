"""What tests of replicas look at: streams message by message, doors between replicas, memory, and
the store."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kit.client import Stream
from kit.gateway import GatewayProcess
from kit.messages import Json
from kit.replicas import RedisServer, health
from mcpx.replicas.seals import Seals

KEYS = "{mcpx}:"
ANNOUNCED = 1.3
"""Seconds: changes of the tools are told once a second at most."""


def messages(stream: Stream) -> Iterator[Json]:
    """Those of an event stream as they come, or the one of a plain answer; the stream is closed at
    the end."""
    with stream:
        kind = stream.response.getheader("content-type") or ""
        if not kind.startswith("text/event-stream"):
            yield json.loads(stream.response.read())
            return
        while (event := stream.event()) is not None:
            if isinstance(event.get("data"), dict):
                yield event["data"]


def nothing_more(stream: Stream) -> bool:
    """Whether no event comes within a time in which changes that were put off are told."""
    stream.patience(ANNOUNCED)
    try:
        return stream.event() is None
    except TimeoutError:
        return True


def place_of(store: RedisServer, replica: GatewayProcess) -> tuple[str, int, str]:
    """Where other replicas reach this one, and its id."""
    id = health(replica)["replica"]["id"]
    about: Any = json.loads(store.cli("HGET", f"{KEYS}members", id).partition(".")[2])
    return about["host"], about["port"], id


def connections(port: int) -> set[str]:
    """Those that somebody has to a port of this machine, by their own ends."""
    table = Path("/proc/net/tcp").read_text()
    return set(re.findall(rf"^\s*\d+: (\S+) \S+:{port:04X} 01", table, re.MULTILINE))


def peak_memory(replica: GatewayProcess) -> int:
    """The most it ever had, in bytes."""
    status = Path("/proc", str(replica.process.pid), "status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def seals_of(store: RedisServer) -> Seals:
    """The seals of replicas that have no MCPX_KEY."""
    return Seals(bytes.fromhex(store.cli("GET", f"{KEYS}secret")))


def record_of(store: RedisServer, id: str, kind: str = "session") -> str:
    """The key in the store for the record of a session, or for its `events`."""
    return f"{KEYS}{kind}:{seals_of(store).name(b'session', id.encode())}"


def told_in(store: RedisServer, id: str) -> int:
    """Events of a session that another replica would find."""
    return int(store.cli("LLEN", record_of(store, id, "events")))
