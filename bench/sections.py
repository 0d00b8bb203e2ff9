"""The sections of a run, in their order."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench import admin, commands, faults, growth, guard, hot, listing, memory, replicas, start
from bench.turns import Plan
from bench.upstream import Json


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    measure: Callable[[Plan], Awaitable[Json]]
    tables: Callable[[Json], str]


SECTIONS = {
    "hot": Section("Calls", hot.measure, hot.tables),
    "start": Section("Start", start.measure, start.tables),
    "list": Section("Lists", listing.measure, listing.tables),
    "memory": Section("Memory and sessions", memory.measure, memory.tables),
    "growth": Section("Growth", growth.measure, growth.tables),
    "commands": Section("Local commands", commands.measure, commands.tables),
    "guard": Section("The guard", guard.measure, guard.tables),
    "admin": Section("The admin UI", admin.measure, admin.tables),
    "replicas": Section("Replicas", replicas.measure, replicas.tables),
    "faults": Section("A server is killed", faults.measure, faults.tables),
}
