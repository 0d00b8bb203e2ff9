"""Pins at work in a gateway: who is pinned, keeping it on disk, and the verbs to approve (SEC-5).

What is decided counts at once: the catalog is published anew and clients are told. It is written
soon after, in a thread; what an approval says is on disk before it is answered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks
from mcpx.base.state_file import UnreadableState
from mcpx.config import Server
from mcpx.model.call import Json, as_object
from mcpx.model.events import Noted
from mcpx.policy.pins.desk import Desk, Trusts
from mcpx.policy.pins.pin_file import Kept
from mcpx.policy.pins.pinned import Pinned, Pins, is_waiting
from mcpx.policy.pins.review import Elsewhere, as_read

if TYPE_CHECKING:
    from mcpx.core.gateway import Gateway

log = logging.getLogger(__name__)

SOON = 0.1
"""Seconds in which changes are collected before they are written."""
LOOK = 2.0
"""Seconds between looks whether somebody else has approved what waits here: several gateways may
share a folder."""
REST = 1.0
"""Seconds between two writings: a server may change what it offers without end."""


class Pinning:
    def __init__(self, gateway: "Gateway", pins: Pins, tasks: Tasks, *, keeps: bool) -> None:
        """`keeps`: whether what is seen and decided is written down; one who only looks changes
        nothing."""
        self._gateway = gateway
        self._pins = pins
        self._tasks = tasks
        self._keeps = keeps
        self._unwritten: set[str] = set()
        self._writing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._told = asyncio.Event()
        """Somebody else has written something."""
        self._files: dict[str, tuple[int, int] | None] = {}
        """The files as they were when they were last looked at. Not when they were written: right
        behind that somebody else may have written."""
        self._names: tuple[tuple[object, ...], dict[str, dict[str, str]]] | None = None
        pins.changed = self._keep_soon
        pins.elsewhere = self._elsewhere
        self._desk = Desk(pins, self._trusts, self._decided)

    def admission(self, server: Server) -> Pinned | None:
        return None if server.trust == "open" else self._pins.of(server.name, server.trust)

    @property
    def verbs(self) -> Mapping[str, Callable[[Json], Awaitable[Json]]]:
        return self._desk.verbs

    def _trusts(self) -> Trusts:
        return {server.name: server.trust for server in self._gateway.generation.config.mcp_servers}

    def _elsewhere(self, server: str) -> Elsewhere:
        """The tools that servers other than this one have, as they read."""
        upstreams = self._gateway.generation.upstreams
        lists = tuple(upstream.definitions["tools"] for upstream in upstreams.values())
        if (
            self._names is None
            or len(self._names[0]) != len(lists)
            or any(map(_differ, self._names[0], lists))
        ):
            self._names = (lists, {})
        known = self._names[1]
        if server not in known:
            known.clear()  # of one server at a time: a table of each for each other would be large
            known[server] = {
                as_read(name): other
                for other, upstream in upstreams.items()
                if other != server
                for tool in upstream.definitions["tools"]
                if isinstance(name := as_object(tool).get("name"), str)
            }
        return known[server]

    # Decisions
    # ----------------------------------------------------------------------------------------------

    async def _decided(self, server: str) -> str | None:
        self._gateway.bus.publish(Noted("pins_approved", {"server": server}))
        self._gateway.reports.lists_changed(server)
        return await self._save(server)

    # On disk
    # ----------------------------------------------------------------------------------------------

    def _keep_soon(self, server: str) -> None:
        if self._keeps:
            self._unwritten.add(server)
            if self._writing is None:
                self._writing = self._tasks.start(self._write())

    async def _write(self) -> None:
        try:
            while self._unwritten:
                await asyncio.sleep(SOON)
                for server in list(self._unwritten):
                    await self._save(server)
                await asyncio.sleep(REST)
        finally:
            self._writing = None

    async def _save(self, server: str) -> str | None:
        """What went wrong, if anything."""
        self._unwritten.discard(server)
        pinned = self._pins.of(server)
        if not self._keeps or pinned.broken is not None:
            return None  # what cannot be read is left for somebody to look at
        try:
            written = await asyncio.to_thread(
                self._pins.write, server, pinned.kept.copy(), mend=True
            )
        except (OSError, UnreadableState) as error:
            log.warning("[%s] what is pinned could not be written: %s", server, error)
            return str(error)
        if written is not None:
            self._take_up(server, written)
        return None

    def _take_up(self, server: str, kept: Kept) -> None:
        if self._pins.of(server).taken_up(kept):
            self._gateway.reports.lists_changed(server)

    def start(self) -> None:
        """Clients are served, with pinned servers among them."""
        if self._watching is None and self._keeps and self._pins.folder is not None:
            self._watching = self._tasks.start(self._watch())

    def look_again(self) -> None:
        """Another replica has approved something, perhaps what this one has not even seen yet."""
        self._told.set()

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK):
                    await self._told.wait()
            except TimeoutError:
                pass
            told = self._told.is_set()
            self._told.clear()
            for server, pinned in list(self._pins.servers.items()):
                mark = self._pins.mark(server)
                if mark != self._files.get(server) and (told or is_waiting(pinned)):
                    self._files[server] = mark
                    kept = await asyncio.to_thread(self._pins.read, server)
                    if kept is not None and pinned.broken is None:
                        self._take_up(server, kept)

    async def close(self) -> None:
        for server in list(self._unwritten):
            await self._save(server)


def _differ(one: object, other: object) -> bool:
    return one is not other
