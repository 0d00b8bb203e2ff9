"""The sessions of this replica's front, as its neighbours know them, and those that come from
elsewhere put among them.

Promised: a session that is taken up is what it was: who, what the client said of itself, its level
and subscriptions, what it was shown, and the streams it may come back for. Calls that ran elsewhere
are answered as cut off, servers are told what the client had asked of them, and the client once
that lists may have changed. Not done here: whose a session is (`neighbours`), and what of it lies
in the store (`records`).
"""

import time
from collections.abc import Callable, Iterator

from mcpx.base.aio import Tasks
from mcpx.front.audience import NOTICES
from mcpx.front.dispatch import Dispatcher
from mcpx.front.http_session import HttpSession, PostVoice
from mcpx.front.neighbours.records import Taken
from mcpx.front.notices import Notice, encoded
from mcpx.front.sessions import Sessions
from mcpx.front.visitor import Visitor
from mcpx.model.call import Caller, Json, as_object
from mcpx.model.errors import cut_off
from mcpx.wire import era, jsonrpc
from mcpx.wire.exchange import Exchange

Handle = Callable[[Exchange, Visitor, str | None], None]


class Rooms:
    def __init__(
        self, sessions: Sessions, dispatcher: Dispatcher, tasks: Tasks, handle: Handle
    ) -> None:
        """`handle`: answers a request that belongs here."""
        self._sessions = sessions
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._handle = handle

    def answer(self, exchange: Exchange, visitor: Visitor, mode: str | None) -> None:
        """A request whose session is here by now, or that is answered wherever it comes."""
        if not exchange.closed:
            self._handle(exchange, visitor, mode)

    def session(self, id: str) -> HttpSession | None:
        """If it is here."""
        return self._sessions.get(id)

    def sessions(self) -> Iterator[HttpSession]:
        return iter(self._sessions)

    def drop(self, owner: HttpSession) -> None:
        """It is somebody else's now."""
        self._sessions.end(owner)

    def shown(self, owner: HttpSession) -> Json | None:
        """What its client was shown, as far as another replica has to know it."""
        return self._dispatcher.gateway.sessions.choice_of(owner.session.id)

    def take_up(
        self, id: str, visitor: Visitor, taken: Taken, begun: Callable[[HttpSession], None]
    ) -> HttpSession | None:
        """Go on with a session; None: there is no room for it. `begun` is told as soon as others
        could go on with it: what is said from then on is written down for them."""
        owner = self._sessions.begin(visitor, len(encoded(taken.about)), id)
        if owner is None:
            return None
        owner.session.caller = _caller(id, visitor, taken.about, owner)
        if chosen := as_object(taken.about.get("shown")):
            self._dispatcher.gateway.sessions.take_choice(id, chosen)
        owner.session.subscriptions.update(taken.subscriptions)
        cut = owner.put_back(taken.life, taken.streams, taken.sent)
        begun(owner)
        for stream in cut:
            stream.finish(jsonrpc.failure(stream.request, cut_off()))
        owner.taken_up = self._tasks.start(self._go_on(owner))
        return owner

    async def _go_on(self, owner: HttpSession) -> None:
        await self._dispatcher.go_on(owner.session)
        owner.session.push(
            Notice(NOTICES["tools"], {})
        )  # other processes of the same servers may offer otherwise


def _caller(id: str, visitor: Visitor, about: Json, owner: HttpSession) -> Caller:
    level = about.get("level")
    return Caller(
        principal=visitor.principal,
        profile=visitor.profile,
        address=visitor.address,
        client=as_object(about.get("client")),
        version=str(about.get("version")),
        mode=about.get("mode"),
        session=id,
        capabilities=as_object(about.get("capabilities")),
        log_level=level if level in era.LOG_LEVELS else None,
        voice=PostVoice(owner),
        since=time.monotonic(),
    )
