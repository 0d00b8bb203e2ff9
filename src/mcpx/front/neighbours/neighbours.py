"""Any replica takes any request: one that belongs elsewhere is handed on, and a session whose
replica is gone goes on here.

Promised: a session's id tells where it was begun, so nothing is looked up while that replica lives;
where it went since is asked of the store, and remembered. A request is handed on at most `TRIES`
times, and never in a circle: who gets one through the door answers it or says that it has no such
session. A modern client's state tells where it was given out, so what was begun there goes on
there. Without the store nothing is taken up; what is known goes on.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mcpx.base.aio import Tasks
from mcpx.front.http_session import HttpSession
from mcpx.front.neighbours.papers import PAPER, Papers
from mcpx.front.neighbours.passing import NOT_HERE, TAKE, Passing, asked
from mcpx.front.neighbours.records import Records, Taken
from mcpx.front.neighbours.rooms import Rooms
from mcpx.front.streams import refuse
from mcpx.front.visitor import Visitor
from mcpx.model.call import Json
from mcpx.model.errors import INVALID_REQUEST, RpcError, overloaded
from mcpx.replicas import channel
from mcpx.replicas.members import Member
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.seals import Seals
from mcpx.replicas.store import StoreDown
from mcpx.wire import codec, jsonrpc
from mcpx.wire.exchange import Exchange
from mcpx.wire.http_server import HttpServer, Limits

if TYPE_CHECKING:
    from mcpx.config.sections import Replica

log = logging.getLogger(__name__)

TRIES: Final = 8
"""Looking and handing over both count."""
PAUSE: Final = 0.15
"""Seconds before a replica is looked for once more that the store names and nobody has heard of
yet, or that has just said that it has no such session: one that is leaving says so a moment before
the store does."""
REMEMBERED: Final = 50_000
"""Sessions of which is known where they went."""
MOST_ENDED: Final = 4_096
"""Sessions that ended here last: the store is told behind, and may be asked for them before."""
MOST_LOST: Final = 64
"""Replicas that are known to be gone though they may still count as there."""
PARTING: Final = 0.3
"""Seconds in which the others learn that this one takes no more."""
ENDED_BY: Final = 30.0
"""Seconds after its goodbye by which a replica has ended; whoever waits for its answer then waits
in vain."""
AT_ONCE: Final = 256
"""Sessions that are written again in one go."""
AT: Final = "mcpx-at."
"""What a state begins with that we gave to a modern client; behind it the replica, and what the
state was."""


_Sought = tuple[str, str, str | None]


def _sought(id: str, visitor: Visitor) -> _Sought:
    return id, visitor.principal, visitor.profile


class Door:
    """The port on which this replica accepts requests from the other replicas."""

    def __init__(
        self,
        papers: Papers,
        seals: Seals,
        me: str,
        enter: Callable[[Exchange, Visitor], None],
        limits: Limits,
    ) -> None:
        """`enter` handles a request that another replica has forwarded. `me` is the id of this
        replica."""
        self._papers = papers
        self._enter = enter
        self._server = HttpServer(self._handle, limits, secure=channel.accepting(seals, me))

    async def open(self, host: str, port: int) -> int:
        """The port. Raises OSError."""
        return await self._server.start(host, port)

    async def close(self, grace: float) -> None:
        await self._server.close(grace)

    def _handle(self, exchange: Exchange) -> None:
        visitor = self._papers.read(exchange.headers.first.get(PAPER.encode()))
        if visitor is None:
            exchange.reply(400, b"the identity of the client is missing", "text/plain")
        else:
            self._enter(exchange, visitor)


class Neighbours:
    def __init__(
        self,
        replicas: Replicas,
        rooms: Rooms,
        enter: Callable[[Exchange, Visitor], None],
        limits: Limits,
    ) -> None:
        """`enter`: answers what comes through the door."""
        self._replicas = replicas
        self._members = replicas.members
        self._rooms = rooms
        self._tasks = Tasks("neighbours")
        papers = Papers()
        self._passing = Passing(papers, replicas.seals, self._members.lost)
        replicas.forwarded = self._passing.counts
        self.records = Records(replicas)
        self._door = Door(papers, replicas.seals, replicas.id, enter, limits)
        self._went: OrderedDict[str, str] = OrderedDict()
        """Where sessions are that are not here, as far as is known: where they were begun, or went
        since."""
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._lost: OrderedDict[str, None] = OrderedDict()
        """Replicas whose door was closed: the store may not know it yet."""
        self._looking: dict[_Sought, asyncio.Task[HttpSession | str | None]] = {}
        self.leaving = False
        """What comes now is handed on: this one has given its sessions away."""
        self._members.on_gone(self._gone)
        self._members.on_left(self._left)
        self._members.on_absence(lambda: self._look_over_soon())
        replicas.store.on_return(lambda _: self._look_over())
        replicas.store.hear("taken", self._taken_elsewhere)

    async def open(self, where: "Replica | None") -> None:
        """Let others in. Raises OSError."""
        if where is not None and where.host:
            host = where.host
        else:
            host = await self._replicas.address()
        port = await self._door.open(host, 0 if where is None else where.port)
        self._members.update(host=host, port=port)
        self._members.start()

    async def finish(self, grace: float) -> None:
        """Let what was handed to others be answered within `grace`: its clients wait here."""
        await self._passing.finish(grace)

    async def close(self, grace: float) -> None:
        await self._door.close(grace)
        await self._passing.close()
        await self._tasks.close()

    def mint(self) -> str:
        return self._replicas.seals.mint(self._replicas.id)

    # Requests of sessions
    # --------------------------------------------------------------------------------------

    def take(
        self, exchange: Exchange, visitor: Visitor, mode: str | None, id: str, *, passed: bool
    ) -> bool:
        """A request of a session that is not here. False: it is nobody's. `passed`: another replica
        handed it over."""
        where = self._went.get(id)
        if where is None:
            where = self._replicas.seals.owner(id)
            if where is None:
                return False
            self._remember(id, where)
        if not passed:
            self._seek(exchange, visitor, mode, id, where, TRIES)
        elif TAKE in exchange.headers:
            self._look_for(exchange, visitor, mode, id, TRIES, "")
        elif _sought(id, visitor) in self._looking:  # it is on its way here
            self._tasks.start(self._await_it(exchange, visitor, mode, id))
        else:
            _not_here(exchange)
        return True

    def _remember(self, id: str, where: str) -> None:
        self._went[id] = where
        self._went.move_to_end(id)
        if len(self._went) > REMEMBERED:
            self._went.popitem(last=False)

    async def _await_it(
        self, exchange: Exchange, visitor: Visitor, mode: str | None, id: str
    ) -> None:
        """Another replica knows sooner than this one that the session is here; or it is
        mistaken."""
        try:
            found = await self._whose(id, visitor)
        except StoreDown:
            found = None
        if found is None or isinstance(found, str):
            _not_here(exchange)
        else:
            self._rooms.answer(exchange, visitor, mode)

    def _seek(
        self,
        exchange: Exchange,
        visitor: Visitor,
        mode: str | None,
        id: str,
        where: str,
        tries: int,
        *,
        take: bool = False,
    ) -> None:
        """`take`: the other one does not know that it is the owner."""
        member = self._members.find(where)
        if member is not None and tries:
            again = self._looking_for(exchange, visitor, mode, id, tries - 1, where)
            self._passing.hand(exchange, visitor, "/mcp", member, again, take=take)
        else:
            self._looking_for(exchange, visitor, mode, id, tries)()

    def _looking_for(
        self,
        exchange: Exchange,
        visitor: Visitor,
        mode: str | None,
        id: str,
        tries: int,
        asked: str = "",
    ) -> Callable[[], None]:
        """`asked`: who was asked in vain."""
        return lambda: self._look_for(exchange, visitor, mode, id, tries, asked)

    def _look_for(
        self,
        exchange: Exchange,
        visitor: Visitor,
        mode: str | None,
        id: str,
        tries: int,
        asked: str,
    ) -> None:
        if self._tasks.closed:
            _refuse(exchange, 503, "the gateway is ending")
        elif self.leaving and (other := self._any()) is not None and TAKE not in exchange.headers:
            again = self._looking_for(exchange, visitor, mode, id, max(0, tries - 1))
            self._passing.hand(exchange, visitor, "/mcp", other, again, take=True)
        else:
            self._tasks.start(self._find(exchange, visitor, mode, id, tries, asked))

    async def _find(
        self,
        exchange: Exchange,
        visitor: Visitor,
        mode: str | None,
        id: str,
        tries: int,
        asked: str,
    ) -> None:
        try:
            found = await self._whose(id, visitor)
            if isinstance(found, str) and self._members.find(found) is None:
                await asyncio.sleep(PAUSE)
                await self._members.beat()
            elif found == asked:
                await asyncio.sleep(PAUSE)
        except StoreDown as error:
            log.info("a session of a replica that is gone cannot be taken up: %s", error)
            _refuse(
                exchange,
                503,
                "this session's replica is gone, and it cannot be taken up at the moment; try "
                "again",
            )
            return
        if exchange.closed:
            return
        if found is None:
            _refuse(exchange, 404, "unknown or expired session")
        elif not isinstance(found, str):
            self._rooms.answer(exchange, visitor, mode)
        elif tries:
            self._remember(id, found)
            # Whoever took it up may not have heard that it did (the store answered too late), and
            # says that it has no such session: then it has to look.
            self._seek(exchange, visitor, mode, id, found, tries - 1, take=found == asked)
        else:
            _refuse(exchange, 503, "the replica of this session cannot be reached; try again")

    async def _whose(self, id: str, visitor: Visitor) -> HttpSession | str | None:
        """The session, which is here from now on, or whose it is; asked once for all who want to
        know and own the same: what a stranger is told of it is nothing to its owner."""
        sought = _sought(id, visitor)
        task = self._looking.get(sought)
        if task is None:
            task = self._looking[sought] = self._tasks.start(
                self._take_up(id, visitor), awaited=True
            )
            task.add_done_callback(lambda _: self._looking.pop(sought, None))
        found = await asyncio.shield(task)
        if isinstance(found, HttpSession) and not visitor.owns(found.visitor):
            return None
        return found

    async def _take_up(self, id: str, visitor: Visitor) -> HttpSession | str | None:
        if (
            here := self._rooms.session(id)
        ) is not None:  # since this request was handed on in vain
            return here
        if id in self._ended:
            return None
        lost = [
            each for each in self._lost if self._members.find(each) is None
        ]  # some of them may be back
        taken = await self.records.take(id, visitor, lost)
        if not isinstance(taken, Taken):
            return taken
        self._went.pop(id, None)
        owner = self._rooms.take_up(id, visitor, taken, self.begun)
        if owner is None:
            self.records.free(id)
            raise StoreDown("there is no room for another session here")
        self._replicas.adopted += 1
        self._replicas.store.tell("taken", self.records.news(id, taken.life))
        return owner

    # Whom requests are handed to
    # -------------------------------------------------------------------------------

    def _any(self) -> Member | None:
        """Another one that stays; one after the other."""
        staying = [member for member in self._members.others.values() if member.state == "serving"]
        if not staying:
            return None
        return staying[self._passing.counts.total() % len(staying)]

    def hand_on(self, exchange: Exchange, visitor: Visitor, mode: str | None) -> bool:
        """A request without a session that comes when this one has given its own away; False:
        nobody else is there."""
        other = self._any()
        if other is None:
            return False
        answer = self._rooms.answer
        again: Callable[[], None] = lambda: answer(exchange, visitor, mode)  # noqa: E731
        self._passing.hand(exchange, visitor, _path(mode), other, again)
        return True

    def hand_to_stream(self, exchange: Exchange, visitor: Visitor, id: str) -> bool:
        """A message for a stream of 2024-11-05, which lives and ends with the connection that it
        is."""
        born = self._replicas.seals.owner(id)
        if born is None:
            member = None
        else:
            member = self._members.find(born)
        if member is None:
            return False

        def again() -> None:  # until it takes the message, or is gone
            if not self.hand_to_stream(exchange, visitor, id):
                exchange.reply(404, b"unknown session", "text/plain")

        self._passing.hand(exchange, visitor, f"/messages?session={id}", member, again)
        return True

    def _gone(self, member: Member) -> None:
        self._count_out(member)
        self._passing.gone(member.id)

    def _left(self, member: Member) -> None:
        self._count_out(member)
        self._passing.retire(member.id)
        asyncio.get_running_loop().call_later(ENDED_BY, self._has_ended, member.id)

    def _has_ended(self, id: str) -> None:
        if self._members.find(id) is None:  # else it is back
            self._passing.gone(id)

    def _count_out(self, member: Member) -> None:
        self._lost[member.id] = None
        while len(self._lost) > MOST_LOST:
            self._lost.popitem(last=False)

    # States of modern clients
    # ----------------------------------------------------------------------------------

    def holder(self, message: Json) -> Member | None:
        """Who gave out the state that a modern client brings back; None: this one, or nobody who is
        there any more. The request has the state as it was before it was given out, then."""
        params = message["params"]
        state = params.get("requestState")
        if not isinstance(state, str) or not state.startswith(AT):
            return None
        where, _, inner = state[len(AT) :].partition(".")
        member = self._members.find(where)
        if member is None:
            params["requestState"] = inner
        return member

    def mark(self, result: Json) -> Json:
        """A result that asks something: what comes back comes back here."""
        state = result.get("requestState")
        if result.get("resultType") != "input_required" or not isinstance(state, str):
            return result
        return {**result, "requestState": f"{AT}{self._replicas.id}.{state}"}

    def hand_to(
        self, exchange: Exchange, visitor: Visitor, mode: str | None, member: Member
    ) -> None:
        answer = self._rooms.answer
        again: Callable[[], None] = lambda: answer(exchange, visitor, mode)  # noqa: E731
        self._passing.hand(exchange, visitor, _path(mode), member, again)

    # Sessions of this one
    # --------------------------------------------------------------------------------------

    def begun(self, owner: HttpSession) -> None:
        """From now on others could go on with it."""
        owner.session.changed = lambda: self.records.put(owner, self._rooms.shown(owner))
        self.records.put(owner, self._rooms.shown(owner))

    def ended(self, owner: HttpSession) -> None:
        if owner.journal is not None:
            owner.journal = None
            self.records.end(owner.session.id)
            self._ended[owner.session.id] = None
            if len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)

    def give_away(self, owner: HttpSession) -> None:
        """Whoever is asked next goes on with it."""
        if owner.journal is not None:
            self.records.put(owner, self._rooms.shown(owner))
            owner.journal = None
            self.records.free(owner.session.id)
            self._rooms.drop(owner)

    async def say_goodbye(self) -> None:
        """All sessions are given away: the others hand over nothing more."""
        await self._members.leave()
        await asyncio.sleep(PARTING)

    def _taken_elsewhere(self, news: bytes) -> None:
        if (told := self.records.read_news(news)) is None:
            return
        id, life = told
        owner = self._rooms.session(id)
        if owner is not None and life > owner.life:  # else we have taken it up since
            self._lose(owner)

    def _lose(self, owner: HttpSession) -> None:
        owner.journal = None
        owner.lost = True
        self._rooms.drop(owner)

    def _look_over_soon(self) -> None:
        self._tasks.start(self._look_over())

    async def _look_over(self) -> None:
        """The store was away, or we were: what is still ours is written again, the rest is let
        go."""
        for id in self._ended:
            self.records.end(id)  # that they have ended may not have been heard
        owners = [owner for owner in self._rooms.sessions() if owner.journal is not None]
        lost = 0
        try:
            for at in range(0, len(owners), AT_ONCE):
                some = [owner for owner in owners[at : at + AT_ONCE] if owner.journal is not None]
                kept = await asyncio.gather(
                    *(self.records.put_again(o, self._rooms.shown(o)) for o in some)
                )
                for owner, ours in zip(some, kept, strict=True):
                    if owner.journal is None:
                        self._part_again(owner.session.id)
                    elif not ours:
                        self._lose(owner)
                        lost += 1
        except StoreDown:
            pass  # it is done when it is back
        if lost:
            log.info("%d sessions went on at other replicas meanwhile", lost)

    def _part_again(self, id: str) -> None:
        """A session that ended or was given away while it was written: that may have been heard
        before."""
        if id in self._ended:
            self.records.end(id)
        elif self._rooms.session(id) is None:
            self.records.free(id)

    def describe(self) -> Json:
        store = self._replicas.store
        about = {"state": "up" if store.up else "down", "address": store.address.shown}
        if not store.up:
            about["problem"] = store.problem
        me = self._members.me
        return {
            "replica": {"id": me.id, "name": me.name, "state": me.state, "revision": me.revision},
            "store": about,
            "peers": [
                {"id": m.id, "name": m.name, "state": m.state, "revision": m.revision}
                for m in self._members.others.values()
            ],
        }


def _path(mode: str | None) -> str:
    if mode is None:
        return "/mcp"
    return f"/mcp/{mode}"


def _not_here(exchange: Exchange) -> None:
    exchange.reply(NOT_HERE, b"no such session here", "text/plain")


def _refuse(exchange: Exchange, status: int, text: str) -> None:
    if status == 503:
        denied = overloaded(text, status=503, retry_after=1)
        refuse(exchange, jsonrpc.failure(asked(exchange)[0], denied), denied)
    else:
        exchange.reply(status, codec.dump(jsonrpc.failure(None, RpcError(INVALID_REQUEST, text))))
