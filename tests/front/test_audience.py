"""Who hears what a server says outside of any call, and in which words."""

from dataclasses import replace
from typing import Any

import pytest

from mcpx.front.audience import Audience, ListenStream, Session
from mcpx.model.call import Json
from mcpx.model.events import Bus, Event, OffersChanged, ResourceUpdated, ServerSaid, UpstreamChanged
from mcpx.wire import era

Heard = list[tuple[str, Json]]
MARK: Json = {"proxy": {"server": "srv"}}


def session(audience: Audience, **fields: Any) -> tuple[Session, Heard]:
    heard: Heard = []
    joined = Session(lambda method, params: heard.append((method, params)))
    joined.caller = replace(joined.caller, **fields)
    audience.join(joined)
    return joined, heard


def tell(audience: Audience, event: Event) -> None:
    bus = Bus()
    audience.listen_to(bus)
    bus.publish(event)


def stream(audience: Audience, id: str | int = 1, **wanted: Any) -> tuple[ListenStream, Heard]:
    heard: Heard = []
    joined = ListenStream(id, wanted, lambda method, params: heard.append((method, params)))
    audience.join_stream(joined)
    return joined, heard


def test_every_session_hears_that_lists_changed_and_each_notice_once() -> None:
    """PRO-4."""
    audience = Audience()
    (_, one), (_, two) = session(audience), session(audience)
    tell(audience, OffersChanged(frozenset({"templates", "resources", "tools"})))
    expected = [("notifications/resources/list_changed", {}), ("notifications/tools/list_changed", {})]
    assert one == two == expected


def test_listeners_hear_what_they_asked_for_under_their_own_mark() -> None:
    """PRO-4."""
    audience = Audience()
    _, tools = stream(audience, "a", toolsListChanged=True)
    _, resources = stream(audience, 7, resourcesListChanged=True, toolsListChanged="yes")
    _, nothing = stream(audience)
    tell(audience, OffersChanged(frozenset({"tools", "templates"})))
    assert tools == [("notifications/tools/list_changed", {"_meta": {era.SUBSCRIPTION_KEY: "a"}})]
    assert resources == [("notifications/resources/list_changed", {"_meta": {era.SUBSCRIPTION_KEY: 7}})]
    assert nothing == []


def test_who_has_left_hears_nothing() -> None:
    audience = Audience()
    left, heard = session(audience)
    deaf, unheard = stream(audience, toolsListChanged=True)
    for _ in range(2):
        audience.leave(left)
        audience.leave_stream(deaf)
    tell(audience, OffersChanged(frozenset({"tools"})))
    assert heard == unheard == []


def test_a_client_may_leave_while_it_is_told() -> None:
    audience = Audience()
    heard: Heard = []
    first = Session(lambda method, params: audience.leave(second))
    second = Session(lambda method, params: heard.append((method, params)))
    audience.join(first)
    audience.join(second)
    tell(audience, OffersChanged(frozenset({"tools"})))
    tell(audience, OffersChanged(frozenset({"tools"})))
    assert len(heard) <= 1


def test_an_update_reaches_its_subscribers_in_the_form_they_subscribed_with() -> None:
    """NAM-4 and PRO-4."""
    audience = Audience()
    plain, heard_plain = session(audience)
    both, heard_both = session(audience)
    _, heard_none = session(audience)
    listener, heard_listener = stream(audience, "l")
    plain.subscriptions["srv", "x:1"] = {"x:1"}
    both.subscriptions["srv", "x:1"] = {"x:1", "proxy://resource/abc"}
    listener.forms["srv", "x:1"] = {"proxy://resource/abc"}
    params = {"uri": "x:1", "title": "t", "_meta": {"k": 1, era.SUBSCRIPTION_KEY: "upstream's"}}
    tell(audience, ResourceUpdated("srv", params, frozenset({plain.id, both.id, listener.id})))

    def told(uri: str, **meta: Any) -> tuple[str, Json]:
        return "notifications/resources/updated", {"uri": uri, "title": "t", "_meta": {"k": 1, **MARK, **meta}}

    assert heard_plain == [told("x:1")]
    assert heard_both == [told("proxy://resource/abc"), told("x:1")]
    assert heard_none == []
    assert heard_listener == [told("proxy://resource/abc", **{era.SUBSCRIPTION_KEY: "l"})]


def test_an_update_of_another_server_or_of_somebody_elses_link_reaches_nobody_else() -> None:
    """PRO-4."""
    audience = Audience()
    mine, heard = session(audience)
    other, others = session(audience)
    listener, listened = stream(audience)
    for subscriptions in (mine.subscriptions, other.subscriptions, listener.forms):
        subscriptions["srv", "x:1"] = {"x:1"}
    everybody = frozenset({mine.id, other.id, listener.id})
    tell(audience, ResourceUpdated("another", {"uri": "x:1"}, everybody))
    tell(audience, ResourceUpdated("srv", {"uri": "x:2"}, everybody))
    assert heard == others == listened == []
    tell(audience, ResourceUpdated("srv", {"uri": "x:1"}, frozenset({mine.id})))
    assert len(heard) == 1
    assert others == listened == []


@pytest.mark.parametrize("uri", [None, 5, [], {}, [[]]])
def test_an_update_of_something_that_is_no_uri_reaches_nobody(uri: Any) -> None:
    audience = Audience()
    subscribed, heard = session(audience)
    subscribed.subscriptions["srv", "x:1"] = {"x:1"}
    tell(audience, ResourceUpdated("srv", {"uri": uri}, frozenset({subscribed.id})))
    tell(audience, ResourceUpdated("srv", {}, frozenset({subscribed.id})))
    assert heard == []


@pytest.mark.parametrize(
    ("level", "message", "hears"),
    [
        (None, "info", True),
        (None, "debug", False),
        (None, "odd", True),
        ("warning", "info", False),
        ("warning", "error", True),
        ("debug", "debug", True),
    ],
)
def test_a_shared_servers_log_reaches_sessions_whose_level_admits_it(
    level: str | None, message: str, hears: bool
) -> None:
    """PRO-4: marked with the server."""
    audience = Audience()
    _, heard = session(audience, log_level=level)
    tell(audience, ServerSaid("srv", "notifications/message", {"level": message, "data": 1}, None))
    assert heard == ([("notifications/message", {"level": message, "data": 1, "_meta": MARK})] if hears else [])


def test_what_a_private_link_says_is_its_sessions_alone() -> None:
    audience = Audience()
    mine, heard = session(audience)
    quiet, heard_quiet = session(audience, log_level="error")
    _, others = session(audience, log_level="debug")
    for owner in (mine.id, quiet.id):
        tell(audience, ServerSaid("srv", "notifications/message", {"level": "debug"}, owner))
        tell(audience, ServerSaid("srv", "notifications/odd", {}, owner))
    assert [method for method, _ in heard] == ["notifications/message", "notifications/odd"]
    assert [method for method, _ in heard_quiet] == ["notifications/odd"]
    assert others == []


def test_of_a_shared_link_only_log_messages_are_for_all() -> None:
    audience = Audience()
    _, heard = session(audience)
    _, solo = session(audience, solo=True)
    tell(audience, ServerSaid("srv", "notifications/odd", {"_meta": {"k": 1}}, None))
    assert heard == []
    assert solo == [("notifications/odd", {"_meta": {"k": 1, **MARK}})]


def test_listeners_hear_no_logs_and_nobody_hears_of_states() -> None:
    audience = Audience()
    _, heard = session(audience)
    _, listened = stream(audience, toolsListChanged=True)
    tell(audience, UpstreamChanged("srv"))
    tell(audience, ServerSaid("srv", "notifications/message", {"level": "error"}, None))
    assert len(heard) == 1
    assert listened == []


@pytest.mark.parametrize("wanted", [None, [], "x", 5])
def test_a_filter_that_is_none_asks_for_nothing(wanted: Any) -> None:
    heard: Heard = []
    odd = ListenStream(1, wanted, lambda method, params: heard.append((method, params)))
    assert odd.wanted_uris() == []
    odd.acknowledge()
    assert heard == [
        (
            "notifications/subscriptions/acknowledged",
            {"notifications": {}, "_meta": {era.SUBSCRIPTION_KEY: 1}},
        )
    ]


def test_only_what_is_honoured_is_acknowledged() -> None:
    heard: Heard = []
    wanted = {"toolsListChanged": True, "resourcesListChanged": 1, "resourceSubscriptions": ["a:1", 5, None, "b:1"]}
    listener = ListenStream("x", wanted, lambda method, params: heard.append((method, params)))
    assert listener.wanted_uris() == ["a:1", "b:1"]
    listener.forms["srv", "a:1"] = {"a:1"}
    listener.acknowledge()
    assert heard[0][1]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    assert listener.goodbye() == {"resultType": "complete", "_meta": {era.SUBSCRIPTION_KEY: "x"}}


def test_questions_are_numbered_by_session_and_carry_the_servers_name() -> None:
    """PRO-5."""
    one, two = Session(lambda *_: None), Session(lambda *_: None)
    assert one.id != two.id
    assert [one.question_id("a"), one.question_id("b"), two.question_id("a")] == ["a:1", "b:2", "a:1"]
