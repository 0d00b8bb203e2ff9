"""Who hears what servers say outside of any call: older sessions, and the listeners of the modern era.

Each notification carries the server it comes from (PRO-4), reaches only those it concerns, and names a resource
the way the client itself named it.
"""

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from mcpx.model.call import Caller, Json, as_object
from mcpx.model.events import Bus, OffersChanged, ResourceUpdated, ServerSaid
from mcpx.model.offer import Kind
from mcpx.wire import era

Push = Callable[[str, Json], None]

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


class Session:
    """One older client's conversation, whatever carries it."""

    __slots__ = ("_questions", "caller", "id", "push", "subscriptions")

    def __init__(self, push: Push) -> None:
        self.id = secrets.token_urlsafe(24)
        self.caller = Caller(session=self.id)
        self.push = push
        self.subscriptions: dict[tuple[str, str], set[str]] = {}
        """(server, its own URI) -> the forms in which the client subscribed."""
        self._questions = 0

    def set_level(self, level: str) -> None:
        self.caller = replace(self.caller, log_level=level)

    def drop(self, target: tuple[str, str], form: str) -> bool:
        """Forget one form of a subscription; whether another is left."""
        forms = self.subscriptions.get(target, set())
        forms.discard(form)
        if not forms:
            self.subscriptions.pop(target, None)
        return bool(forms)

    def question_id(self, server: str) -> str:
        self._questions += 1
        return f"{server}:{self._questions}"


class ListenStream:
    """One `subscriptions/listen` of a modern client: a filter, and the stream it listens on."""

    def __init__(self, request_id: str | int, wanted: Any, push: Push, mode: str | None = None) -> None:
        self.mode = mode
        self.id = f"listen-{secrets.token_urlsafe(9)}"
        self.forms: dict[tuple[str, str], set[str]] = {}
        self._mark = request_id
        self._wanted = as_object(wanted)
        self._push = push

    def wanted_uris(self) -> list[str]:
        uris: Any = self._wanted.get("resourceSubscriptions")
        return [uri for uri in cast(list[Any], uris) if isinstance(uri, str)] if isinstance(uris, list) else []

    def wants(self, notice: str) -> bool:
        return self._wanted.get(FLAGS[notice]) is True

    def acknowledge(self) -> None:
        honoured: Json = {flag: True for flag in FLAGS.values() if self._wanted.get(flag) is True}
        if self.forms:
            honoured["resourceSubscriptions"] = [uri for forms in self.forms.values() for uri in sorted(forms)]
        self.push("notifications/subscriptions/acknowledged", {"notifications": honoured})

    def goodbye(self) -> Json:
        """The result of a listening that ended in order."""
        return {"resultType": "complete", "_meta": {era.SUBSCRIPTION_KEY: self._mark}}

    def push(self, method: str, params: Json) -> None:
        """Every frame carries the id of the listen request as the client sent it."""
        self._push(method, {**params, "_meta": {**era.meta_of(params), era.SUBSCRIPTION_KEY: self._mark}})


class Audience:
    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._streams: dict[str, ListenStream] = {}

    def join(self, session: Session) -> None:
        self._sessions[session.id] = session

    def leave(self, session: Session) -> None:
        self._sessions.pop(session.id, None)

    def join_stream(self, stream: ListenStream) -> None:
        self._streams[stream.id] = stream

    def leave_stream(self, stream: ListenStream) -> None:
        self._streams.pop(stream.id, None)

    def listen_to(self, bus: Bus) -> None:
        bus.subscribe(self._offers_changed, OffersChanged)
        bus.subscribe(self._resource_updated, ResourceUpdated)
        bus.subscribe(self._said, ServerSaid)

    def _offers_changed(self, event: OffersChanged) -> None:
        only, modes = event.session, event.modes
        # A notice that stands for several servers names none.
        params: Json = {} if event.server is None else {"_meta": {"proxy": {"server": event.server}}}
        for notice in sorted({NOTICES[kind] for kind in event.kinds}):
            for session in list(self._sessions.values()):
                if only in (None, session.id) and (modes is None or session.caller.mode in modes):
                    session.push(notice, params)
            for stream in list(self._streams.values()) if only is None else ():
                if stream.wants(notice) and (modes is None or stream.mode in modes):
                    stream.push(notice, params)

    def _resource_updated(self, event: ResourceUpdated) -> None:
        uri: Any = event.params.get("uri")
        if not isinstance(uri, str):
            return
        target = (event.server, uri)
        for who in event.to:
            if (session := self._sessions.get(who)) is not None:
                self._push_updated(session.push, session.subscriptions.get(target), event)
            elif (stream := self._streams.get(who)) is not None:
                self._push_updated(stream.push, stream.forms.get(target), event)

    @staticmethod
    def _push_updated(push: Push, forms: set[str] | None, event: ResourceUpdated) -> None:
        for uri in sorted(forms or ()):
            meta = {key: value for key, value in era.meta_of(event.params).items() if key != era.SUBSCRIPTION_KEY}
            push(
                "notifications/resources/updated",
                {**event.params, "uri": uri, "_meta": {**meta, "proxy": {"server": event.server}}},
            )

    def _said(self, event: ServerSaid) -> None:
        params = {**event.params, "_meta": {**era.meta_of(event.params), "proxy": {"server": event.server}}}
        for session in list(self._sessions.values()):
            if self._concerns(session, event):
                session.push(event.method, params)

    @staticmethod
    def _concerns(session: Session, event: ServerSaid) -> bool:
        """Its own link's words are a session's; of a shared link only log messages, at the level it asked for."""
        own = event.owner == session.id or session.caller.solo
        if event.method != "notifications/message":
            return own
        level = session.caller.log_level
        if own:
            return level is None or era.admits(level, event.params.get("level"))
        # Without a word from the client: what is worth an "info".
        return event.owner is None and era.admits(level or "info", event.params.get("level"))
