"""Clients on the same machine that came in by the control channel: `{"do": "attach"}`, and after a
yes the connection is a conversation, newline JSON both ways, exactly as on stdio.

Promise: each gets its own mode and profile; a client whose environment would make another
configuration of the same file is refused with the names that differ (never the values); so is one
of another version of the program. Bounded: how many there are, how large a message is, what waits
for one that does not read (then it is cut, and may come again). One that leaves has its calls
finished within the grace or cancelled, as on stdio.

A request may say `"moves": true`: then the client is told by `notifications/mcpx/moving`, which is
no message for anybody behind it, that this gateway ends and a new conversation is to be begun
elsewhere; its calls finish here.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from mcpx import __version__
from mcpx.base.aio import Tasks
from mcpx.front.conversation import ClientConversation
from mcpx.front.dispatch import Dispatcher
from mcpx.front.visitor import Visitor
from mcpx.model.call import LOCAL, Json, as_object
from mcpx.model.errors import INVALID_REQUEST, RpcError
from mcpx.surfaces import SURFACES
from mcpx.wire import jsonrpc
from mcpx.wire.flow import Budget, Intake, Outflow
from mcpx.wire.framing import MessageReader
from mcpx.wire.stdio_pipes import Gathered

log = logging.getLogger(__name__)

MOST = 128
"""Clients at a time; a person has a handful."""
WAITING_BYTES = 64 * 2**20
"""What may wait for all of them together."""
MOVING = "notifications/mcpx/moving"
TOLD = 20
"""Warnings of the configuration that a client is told."""
NAMED = 20
"""Variables that are named in a refusal."""


class Attached:
    """All of them."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        environ: Mapping[str, str],
        *,
        grace: float,
        about: Callable[[], Json],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`about`: what else a client is told of this gateway; `on_change`: somebody came or
        left."""
        self._dispatcher = dispatcher
        self._environ = environ
        self._grace = grace
        self._about = about
        self._on_change = on_change
        self._tasks = Tasks("attached clients")
        self._budget = Budget(WAITING_BYTES)
        self._clients: set[AttachedClient] = set()
        self._ending = False

    def __len__(self) -> int:
        return len(self._clients)

    def describe(self) -> list[Json]:
        return [
            client.describe() for client in sorted(self._clients, key=lambda client: client.since)
        ]

    def admit(self, request: Json) -> tuple[Json, asyncio.Protocol | None]:
        about = {
            "version": __version__,
            "pid": os.getpid(),
            "clients": len(self._clients),
            **self._about(),
        }
        refusal = self._refusal(request)
        if refusal is not None:
            reason, error, more = refusal
            return {"ok": False, "reason": reason, "error": error, **more, **about}, None
        mode, profile = request.get("mode"), request.get("profile")
        config = self._dispatcher.gateway.generation.config
        client = AttachedClient(
            self,
            self._dispatcher,
            Visitor(LOCAL, profile),
            mode,
            limit=config.global_.max_request,
            budget=self._budget,
            moves=request.get("moves") is True,
            pid=request.get("pid"),
        )
        redact = self._dispatcher.gateway.redactor.redact
        told: Json = {"max_request": config.global_.max_request}
        told["warnings"] = [redact(warning) for warning in config.warnings[:TOLD]]
        return {"ok": True, **about, **told}, client

    def _refusal(self, request: Json) -> tuple[str, str, Json] | None:
        """Why somebody is not let in: a word for programs, a sentence, and what belongs to it."""
        config = self._dispatcher.gateway.generation.config
        if self._ending:
            return "ending", "this gateway is ending", {}
        version = request.get("version")
        if version is not None and version != __version__:
            return (
                "version",
                f"this gateway is mcpx {__version__}, the client is mcpx {version}",
                {},
            )
        if len(self._clients) >= MOST:
            return "full", f"{MOST} clients are attached to this gateway; no more are taken", {}
        mode, profile = request.get("mode"), request.get("profile")
        if mode is not None and mode not in SURFACES:
            return (
                "mode",
                f"there is no mode {str(mode)[:80]!r}; there is: {', '.join(SURFACES)}",
                {},
            )
        if profile is not None and profile not in [known.name for known in config.profiles]:
            return "profile", f"no profile is named {str(profile)[:80]!r}", {}
        off = [
            entry.name
            for entry in (*config.mcp_servers, *config.commands)
            if entry.switched_off is not None
        ]
        if request.get("strict") is True and off:
            return "strict", f"switched off for want of something: {', '.join(off[:NAMED])}", {}
        if isinstance(given := request.get("environ"), dict):
            differ = sorted(self._differing(cast(Json, given), config.variables))
            if differ:
                named = ", ".join(differ[:NAMED]) + (" …" if len(differ) > NAMED else "")
                error = (
                    "variables that its configuration uses have other values in the gateway "
                    f"that runs: {named}"
                )
                return "environment", error, {"variables": differ[:NAMED]}
        return None

    def _differing(self, given: Json, names: frozenset[str]) -> list[str]:
        return [name for name in names if given.get(name) != as_told(self._environ.get(name))]

    def joined(self, client: "AttachedClient") -> None:
        self._clients.add(client)
        self._on_change()

    def left(self, client: "AttachedClient") -> None:
        if client in self._clients:
            self._clients.discard(client)
            self._on_change()

    def part(
        self, client: "AttachedClient", conversation: ClientConversation, grace: float | None = None
    ) -> None:
        """Have a client's calls finish, then let it go."""
        self._tasks.start(
            client.leave(conversation, self._grace if grace is None else grace), apart=True
        )

    def forget(self, conversation: ClientConversation) -> None:
        self._tasks.start(conversation.close(), apart=True)

    async def retire(self, patience: float) -> None:
        """Have everybody move on, with as much time for the calls that run."""
        self._ending = True
        await asyncio.gather(*(client.part(patience) for client in list(self._clients)))

    async def close(self) -> None:
        await self.retire(self._grace)
        await self._tasks.close()


class AttachedClient(asyncio.Protocol):
    def __init__(
        self,
        host: Attached,
        dispatcher: Dispatcher,
        visitor: Visitor,
        mode: str | None,
        *,
        limit: int,
        budget: Budget,
        moves: bool,
        pid: Any,
    ) -> None:
        self.since = time.time()
        self._host = host
        self._moves = moves
        if isinstance(pid, int) and not isinstance(pid, bool):
            self._pid = pid
        else:
            self._pid = None
        self._budget = budget
        self._outflow: Outflow | None = None
        self._pipe: Gathered | None = None
        self._transport: asyncio.Transport | None = None
        self._leaving: asyncio.Event | None = None
        self._conversation = ClientConversation(
            dispatcher,
            self._transmit,
            visitor=visitor,
            mode=mode,
            congested=lambda: self._outflow is not None and self._outflow.congested,
            on_shutdown=self._shut_down,
        )
        self._mode = mode
        self._reader = MessageReader(
            self._conversation.peer.receive, self._skipped, limit=limit, framing="newline"
        )
        self._intake = Intake(self._reader.feed, read_ahead=0)

    def describe(self) -> Json:
        caller = self._conversation.session.caller
        return {
            "pid": self._pid,
            "client": as_object(caller.client).get("name"),
            "mode": self._mode,
            "profile": self._conversation.visitor.profile,
            "since": self.since,
            "in_flight": self._conversation.peer.answering,
        }

    # The carrier
    # ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outflow = Outflow(self._transport, self._budget)
        self._pipe = Gathered(self._outflow)
        self._intake.read_from(self._transport)
        self._host.joined(self)

    def data_received(self, data: bytes) -> None:
        self._intake.take(data)

    def eof_received(self) -> bool:
        self._reader.finish()
        self._shut_down()
        return True  # the other direction stays open for the answers

    def pause_writing(self) -> None:
        if self._outflow is not None:
            self._outflow.pause()
        self._intake.hold(True)

    def resume_writing(self) -> None:
        if self._outflow is not None:
            self._outflow.resume()
        self._intake.hold(False)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._outflow is not None:
            self._outflow.resume()
            if self._outflow.why:
                log.warning(
                    "a client (process %s) was cut off: %s", self._pid or "?", self._outflow.why
                )
        self._intake.end()
        if self._leaving is not None:
            self._leaving.set()
        self._host.forget(self._conversation)
        self._host.left(self)

    def _transmit(self, raw: bytes) -> None:
        if self._pipe is not None:
            self._pipe.write(raw + b"\n", more_to_come=self._conversation.peer.busy)

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        error = RpcError(INVALID_REQUEST, f"skipped {size:,} bytes of input: {reason}")
        self._conversation.peer.refuse(None, error)

    # The end
    # ----------------------------------------------------------------------------------------------

    def _shut_down(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.Event()
            self._host.part(self, self._conversation)

    async def part(self, grace: float) -> None:
        """The gateway ends: the client is told, its calls finish, the connection is closed."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._moves:
            self._conversation.peer.send(jsonrpc.notification(MOVING, None))
        if self._leaving is None:
            self._leaving = asyncio.Event()
            await self.leave(self._conversation, grace)
        else:
            await self._leaving.wait()

    async def leave(self, conversation: ClientConversation, grace: float) -> None:
        transport = self._transport
        assert transport is not None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        await conversation.finish(grace)
        await conversation.close()
        if self._pipe is not None:
            self._pipe.flush()
        transport.close()  # once all of it is out
        if self._leaving is not None:
            try:
                async with asyncio.timeout_at(max(deadline, loop.time() + 0.5)):
                    await self._leaving.wait()
            except TimeoutError:
                transport.abort()


def as_told(value: str | None) -> str | None:
    """A value of the environment as it travels: one that is not UTF-8 has no place in JSON."""
    if value is None:
        return None
    return os.fsencode(value).decode("utf-8", "backslashreplace")
