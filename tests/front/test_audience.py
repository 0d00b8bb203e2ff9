"""Who hears what a server says outside of any call, and in which words."""

from dataclasses import replace
from typing import Any

import pytest

from kit.loop import run
from kit.until import until
from mcpx.front import audience as module
from mcpx.front.audience import Audience, ListenStream, Session
from mcpx.front.notices import Notice
from mcpx.model.call import Json
from mcpx.model.events import (
    SEVERAL,
    Bus,
    Event,
    OffersChanged,
    ResourceUpdated,
    ServerSaid,
    UpstreamChanged,
)
from mcpx.wire import era

Heard = list[tuple[str, Json]]
MARK: Json = {"proxy": {"server": "srv"}}


def session(audience: Audience, **fields: Any) -> tuple[Session, Heard]:
    heard: Heard = []
    joined = Session(lambda notice: heard.append((notice.method, notice.params)))
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
    expected = [
        ("notifications/resources/list_changed", {}),
        ("notifications/tools/list_changed", {}),
    ]
    assert one == two == expected


def test_listeners_hear_what_they_asked_for_under_their_own_mark() -> None:
    """PRO-4."""
    audience = Audience()
    _, tools = stream(audience, "a", toolsListChanged=True)
    _, resources = stream(audience, 7, resourcesListChanged=True, toolsListChanged="yes")
    _, nothing = stream(audience)
    tell(audience, OffersChanged(frozenset({"tools", "templates"})))
    assert tools == [("notifications/tools/list_changed", {"_meta": {era.SUBSCRIPTION_KEY: "a"}})]
    assert resources == [
        ("notifications/resources/list_changed", {"_meta": {era.SUBSCRIPTION_KEY: 7}})
    ]
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
    first = Session(lambda notice: audience.leave(second))
    second = Session(lambda notice: heard.append((notice.method, notice.params)))
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
        return "notifications/resources/updated", {
            "uri": uri,
            "title": "t",
            "_meta": {"k": 1, **MARK, **meta},
        }

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
    assert heard == (
        [("notifications/message", {"level": message, "data": 1, "_meta": MARK})] if hears else []
    )


@pytest.mark.parametrize("level", [None, "debug"])
def test_without_a_level_a_session_hears_only_logs_that_are_its_own(level: str | None) -> None:
    """PRO-4: a message may come after its call, while another client calls."""
    audience = Audience()
    mine, heard = session(audience, log_level=level)
    for owner in (None, mine.id):
        for callers in (SEVERAL, "another", mine.id):
            message = {"level": "error", "data": callers == mine.id}
            tell(audience, ServerSaid("srv", "notifications/message", message, owner, callers))
    expected = [True, True] if level is None else [False, False, True] * 2
    assert [params["data"] for _, params in heard] == expected


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
    wanted = {
        "toolsListChanged": True,
        "resourcesListChanged": 1,
        "resourceSubscriptions": ["a:1", 5, None, "b:1"],
    }
    listener = ListenStream("x", wanted, lambda method, params: heard.append((method, params)))
    assert listener.wanted_uris() == ["a:1", "b:1"]
    listener.forms["srv", "a:1"] = {"a:1"}
    listener.acknowledge()
    assert heard[0][1]["notifications"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["a:1"],
    }
    assert listener.goodbye() == {"resultType": "complete", "_meta": {era.SUBSCRIPTION_KEY: "x"}}


# --- many who listen


def crowd(audience: Audience, count: int) -> list[list[Notice]]:
    heard: list[list[Notice]] = [[] for _ in range(count)]
    for each in heard:
        audience.join(Session(each.append))
    return heard


@pytest.mark.parametrize(
    "event",
    [
        ServerSaid("srv", "notifications/message", {"level": "error", "data": "x" * 1000}, None),
        OffersChanged(frozenset({"tools"}), server="srv"),
    ],
)
def test_what_many_hear_is_made_and_encoded_once(event: Event) -> None:
    """SEC-6: they share the bytes too."""
    audience = Audience()
    heard = crowd(audience, 50)
    tell(audience, event)
    assert all(len(each) == 1 for each in heard)
    assert len({id(each[0].parcel) for each in heard}) == 1


def test_an_update_is_made_once_for_each_form_of_its_uri() -> None:
    """SEC-6."""
    audience = Audience()
    heard = crowd(audience, 50)
    sessions = list(audience._sessions.values())  # pyright: ignore[reportPrivateUsage]
    for n, each in enumerate(sessions):
        each.subscriptions["srv", "x:1"] = {"x:1", f"proxy://{n % 2}"}
    tell(audience, ResourceUpdated("srv", {"uri": "x:1"}, frozenset(each.id for each in sessions)))
    assert len({id(notice) for each in heard for notice in each}) == 3


def test_thousands_are_told_in_turns_and_in_order() -> None:
    """SEC-6: everybody hears everything, but for log messages that come faster than they can be
    told."""

    async def main() -> None:
        audience = Audience()
        heard = crowd(audience, 5000)
        bus = Bus()
        audience.listen_to(bus)
        for n in range(module.WAITING * 3):
            bus.publish(
                ServerSaid("srv", "notifications/message", {"level": "error", "data": n}, None)
            )
        for _ in range(100):
            bus.publish(OffersChanged(frozenset({"tools"}), server="srv"))
        assert not heard[-1]
        left = list(audience._sessions.values())[-2]  # pyright: ignore[reportPrivateUsage]
        audience.leave(left)
        turns = audience._turns  # pyright: ignore[reportPrivateUsage]
        assert len(turns) <= module.WAITING + 1
        await until(lambda: not turns)
        assert heard[-2] == []
        for each in (heard[0], heard[-1]):
            logs = [notice.params["data"] for notice in each if notice.droppable]
            assert logs == list(range(module.WAITING))
            assert [notice.method for notice in each][-1] == "notifications/tools/list_changed"
            assert len(each) == module.WAITING + 1

    run(main())


def test_what_concerns_one_client_does_not_wait_for_thousands() -> None:
    async def main() -> None:
        audience = Audience()
        crowd(audience, 5000)
        mine, heard = session(audience)
        bus = Bus()
        audience.listen_to(bus)
        for _ in range(10):
            bus.publish(ServerSaid("srv", "notifications/message", {"level": "error"}, None))
        bus.publish(ServerSaid("srv", "notifications/odd", {}, mine.id))
        assert [method for method, _ in heard] == ["notifications/odd"]
        await until(lambda: not audience._turns)  # pyright: ignore[reportPrivateUsage]

    run(main())


def test_a_notice_that_is_no_json_is_not_said() -> None:
    assert Notice("notifications/x", {"n": object()}).parcel is None


def test_questions_are_numbered_by_session_and_carry_the_servers_name() -> None:
    """PRO-5."""
    one, two = Session(lambda *_: None), Session(lambda *_: None)
    assert one.id != two.id
    assert [one.question_id("a"), one.question_id("b"), two.question_id("a")] == [
        "a:1",
        "b:2",
        "a:1",
    ]
