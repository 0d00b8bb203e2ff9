"""Who hears what servers say outside of any call: older sessions, and the listeners of the modern
era.

Each notification carries the server it comes from (PRO-4), reaches only those it concerns, and
names a resource the way the client itself named it. One that thousands hear is made once, and told
to them in turns: what waits for its turn is bounded, log messages are left out first, and what
would be said twice is said once. Whoever does not see a server or a resource hears nothing of it.
"""

import secrets
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from mcpx.front.notices import Notice
from mcpx.front.turns import Turns
from mcpx.model.call import Caller, Json, as_object
from mcpx.model.events import Bus, OffersChanged, ResourceUpdated, ServerSaid
from mcpx.model.offer import Kind
from mcpx.upstreams.traits import kind_of
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.catalog.catalog import Catalog

Push = Callable[[str, Json], None]

WAITING: Final = 64
"""Events that may wait until everybody has heard those before them; then log messages are left
out."""

NOTICES: dict[Kind, str] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
    "templates": "notifications/resources/list_changed",
}

FLAGS = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class Eyes(Protocol):
    """What callers see; the gateway knows."""

    def limited(self, caller: Caller) -> "Catalog | None":
        """What a caller finds that does not see everything; None: it does."""
        ...

    def mode(self, caller: Caller) -> str | None:
        """The mode it is shown; None: the configured one."""
        ...


class _AllSeeing:
    def limited(self, caller: Caller) -> None:
        return None

    def mode(self, caller: Caller) -> str | None:
        return caller.mode


class Session:
    """One older client's conversation, whatever carries it."""

    __slots__ = ("_questions", "caller", "changed", "id", "push", "subscriptions")

    def __init__(self, push: Callable[[Notice], None], id: str | None = None) -> None:
        """`id`: by which its client comes back; None: any."""
        if id is None:
            self.id = secrets.token_urlsafe(24)
        else:
            self.id = id
        self.caller = Caller(session=self.id)
        self.push = push
        self.subscriptions: dict[tuple[str, str], set[str]] = {}
        """(server, its own URI) -> the forms in which the client subscribed."""
        self.changed: Callable[[], None] | None = None
        """Told when another one who goes on with this conversation would have to know of something
        new."""
        self._questions = 0

    def close(self) -> None:
        """The client is gone, and all it said with it."""
        self.caller = Caller(session=self.id)
        self.push = _to_nobody
        self.changed = None

    def set_level(self, level: str) -> None:
        self.caller = replace(self.caller, log_level=level)
        self.note()

    def note(self) -> None:
        """Its level, its subscriptions or what it is shown are others than before."""
        if self.changed is not None:
            self.changed()

    def forms(self) -> list[str]:
        """All it is subscribed to, as it named them."""
        return [form for forms in self.subscriptions.values() for form in forms]

    def drop(self, target: tuple[str, str], form: str) -> bool:
        """Forget one form of a subscription; whether another is left."""
        forms = self.subscriptions.get(target, set())
        forms.discard(form)
        if not forms:
            self.subscriptions.pop(target, None)
        return bool(forms)

    def go_on_asking(self, after: int) -> None:
        """What others have asked in this conversation has numbers up to there: a late answer to
        that is none to us."""
        self._questions = after

    def question_id(self, server: str) -> str:
        self._questions += 1
        return f"{server}:{self._questions}"


def _to_nobody(notice: Notice) -> None:
    pass


class ListenStream:
    """One `subscriptions/listen` of a modern client: a filter, and the stream it listens on."""

    def __init__(
        self, request_id: str | int, wanted: Any, push: Push, caller: Caller | None = None
    ) -> None:
        self.caller = caller or Caller()
        self.id = f"listen-{secrets.token_urlsafe(9)}"
        self.forms: dict[tuple[str, str], set[str]] = {}
        self._mark = request_id
        self._wanted = as_object(wanted)
        self._push = push

    def wanted_uris(self) -> list[str]:
        uris: Any = self._wanted.get("resourceSubscriptions")
        if isinstance(uris, list):
            return [uri for uri in cast(list[Any], uris) if isinstance(uri, str)]
        return []

    def wants(self, notice: str) -> bool:
        return self._wanted.get(FLAGS[notice]) is True

    def acknowledge(self) -> None:
        honoured: Json = {flag: True for flag in FLAGS.values() if self._wanted.get(flag) is True}
        if self.forms:
            honoured["resourceSubscriptions"] = [
                uri for forms in self.forms.values() for uri in sorted(forms)
            ]
        self.push("notifications/subscriptions/acknowledged", {"notifications": honoured})

    def goodbye(self) -> Json:
        """The result of a listening that ended in order."""
        return {"resultType": "complete", "_meta": {era.SUBSCRIPTION_KEY: self._mark}}

    def push(self, method: str, params: Json) -> None:
        """Every frame carries the id of the listen request as the client sent it."""
        self._push(
            method, {**params, "_meta": {**era.meta_of(params), era.SUBSCRIPTION_KEY: self._mark}}
        )


class Audience:
    def __init__(self, eyes: Eyes | None = None) -> None:
        self._eyes = eyes or _AllSeeing()
        self._sessions: dict[str, Session] = {}
        self._solo: dict[str, Session] = {}
        """Those that are alone with the gateway: all its links are theirs."""
        self._streams: dict[str, ListenStream] = {}
        self.changes = 0
        """How often somebody came or left."""
        self._turns = Turns()
        self._waiting: set[Hashable] = set()
        """What everybody will hear and nobody has heard yet."""

    def callers(self) -> list[Caller]:
        """Who is there: the clients that have a session."""
        return [session.caller for session in self._sessions.values()]

    def join(self, session: Session) -> None:
        self.changes += 1
        self._sessions[session.id] = session
        if session.caller.solo:
            self._solo[session.id] = session

    def leave(self, session: Session) -> None:
        self.changes += 1
        self._sessions.pop(session.id, None)
        self._solo.pop(session.id, None)

    def join_stream(self, stream: ListenStream) -> None:
        self._streams[stream.id] = stream

    def leave_stream(self, stream: ListenStream) -> None:
        self._streams.pop(stream.id, None)

    def listen_to(self, bus: Bus) -> None:
        bus.subscribe(self._offers_changed, OffersChanged)
        bus.subscribe(self._resource_updated, ResourceUpdated)
        bus.subscribe(self._said, ServerSaid)

    def _tell(self, what: Hashable, steps: Iterator[None]) -> None:
        """In turns; not at all if the same is waiting for its turn already."""

        def begin() -> Iterator[None]:
            self._waiting.discard(what)
            yield from steps

        if what not in self._waiting:
            self._waiting.add(what)
            self._turns.do(begin())

    def _offers_changed(self, event: OffersChanged) -> None:
        self._tell(event, self._tell_offers(event))

    def _tell_offers(self, event: OffersChanged) -> Iterator[None]:
        only = event.session
        # A notice that stands for several servers names none.
        params: Json
        if event.server is None:
            params = {}
        else:
            params = {"_meta": {"proxy": {"server": event.server}}}
        for method in sorted({NOTICES[kind] for kind in event.kinds}):
            notice = Notice(method, params)
            for session in self._there(only):
                if self._differs_for(session.caller, event, method):
                    session.push(notice)
                yield
            for stream in list(self._streams.values()) if only is None else ():
                if (
                    stream.id in self._streams
                    and stream.wants(method)
                    and self._differs_for(stream.caller, event, method)
                ):
                    stream.push(method, params)
                yield

    def _differs_for(self, caller: Caller, event: OffersChanged, method: str) -> bool:
        if event.client_kind is not None and kind_of(caller.capabilities) != event.client_kind:
            return False
        if event.modes is not None and self._eyes.mode(caller) not in event.modes:
            return False
        if event.viewers is not None:
            return (caller.profile, caller.principal) in event.viewers
        limited = self._eyes.limited(caller)
        if limited is None:
            return True
        # The lists of a session or of a kind of client have changed: compare with the part that the
        # caller sees.
        server = event.server
        if server is None or (event.session is None and event.client_kind is None):
            return False
        return any(limited.count(server, kind) for kind in event.kinds if NOTICES[kind] == method)

    def _there(self, only: str | None) -> Iterator[Session]:
        """The session of that id, or all; whoever leaves meanwhile is left out."""
        for session in (
            list(self._sessions.values()) if only is None else [self._sessions.get(only)]
        ):
            if session is not None and session.id in self._sessions:
                yield session

    def _resource_updated(self, event: ResourceUpdated) -> None:
        uri: Any = event.params.get("uri")
        if isinstance(uri, str) and event.to:
            self._tell((event.server, uri, event.to), self._tell_update(event, (event.server, uri)))

    def _tell_update(self, event: ResourceUpdated, target: tuple[str, str]) -> Iterator[None]:
        meta = {
            key: value
            for key, value in era.meta_of(event.params).items()
            if key != era.SUBSCRIPTION_KEY
        }
        meta["proxy"] = {"server": event.server}
        method = "notifications/resources/updated"
        notices: dict[str, Notice] = {}
        for who in event.to:
            session, stream = self._sessions.get(who), self._streams.get(who)
            listener = session or stream
            if listener is None:
                limited = None
            else:
                limited = self._eyes.limited(listener.caller)
            if limited is not None and not limited.may_read(*target):
                continue
            if session is not None:
                subscribed = session.subscriptions
            elif stream is not None:
                subscribed = stream.forms
            else:
                subscribed = {}
            for uri in sorted(subscribed.get(target, ())):
                if (notice := notices.get(uri)) is None:
                    notice = notices[uri] = Notice(
                        method, {**event.params, "uri": uri, "_meta": meta}
                    )
                if session is not None:
                    session.push(notice)
                elif stream is not None:
                    stream.push(method, notice.params)
            yield

    def _said(self, event: ServerSaid) -> None:
        params = {
            **event.params,
            "_meta": {**era.meta_of(event.params), "proxy": {"server": event.server}},
        }
        notice = Notice(event.method, params)
        if event.owner is None and event.method == "notifications/message":
            if len(self._turns) < WAITING:
                self._turns.do(self._tell_said(event, notice))
            return
        if isinstance(event.owner, str):
            owner = self._sessions.get(event.owner)
        else:
            owner = None
        for session in {**self._solo, **({} if owner is None else {owner.id: owner})}.values():
            if self._concerns(session, event):
                session.push(notice)

    def _tell_said(self, event: ServerSaid, notice: Notice) -> Iterator[None]:
        for session in self._there(None):
            if self._concerns(session, event):
                session.push(notice)
            yield

    def _concerns(self, session: Session, event: ServerSaid) -> bool:
        limited = self._eyes.limited(session.caller)
        return (limited is None or limited.knows(event.server)) and self._is_for(session, event)

    @staticmethod
    def _is_for(session: Session, event: ServerSaid) -> bool:
        """Its own link's words are a session's; of a shared link only log messages, at the level it
        asked for."""
        own = event.owner == session.id or session.caller.solo
        if event.method != "notifications/message":
            return own
        level = session.caller.log_level
        if not own and event.owner is not None:
            return False
        if level is not None:
            return era.admits(level, event.params.get("level"))
        # The client has set no level. It receives what can only be its own, and from servers
        # without calls.
        if event.callers is None:
            return own or era.admits("info", event.params.get("level"))
        return event.callers == session.id or session.caller.solo
