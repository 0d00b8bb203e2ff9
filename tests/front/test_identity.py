"""Who somebody is by the token they show, which profiles it opens, and what a proxy may say of
them."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from front.test_guard import asked, headers
from kit.clock import Clock
from kit.cost import cost_ratio
from mcpx.config import Profile, Token
from mcpx.front.guard import Guard
from mcpx.front.identity import bearer as module
from mcpx.front.identity.badge import NO_TOKEN, WRONG_TOKEN, Badge
from mcpx.front.identity.bearer import Bearer, moment
from mcpx.front.identity.doors import NOWHERE, Doors
from mcpx.front.identity.store import TokenStore, Unreadable
from mcpx.front.proxies import Arrival, Proxies
from mcpx.wire.exchange import Exchange

OPEN = Doors(())


def tokens(**named: str) -> list[Token]:
    return [Token(name=name, token=token) for name, token in named.items()]


def showing(*values: str | bytes) -> Exchange:
    return asked(*[("authorization", value) for value in values])


KNOWN = Bearer(tokens(ann="s3cret", bob="other", zoë="voilà"), OPEN, None)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Bearer s3cret", "ann"),
        ("bearer s3cret", "ann"),
        ("BEARER   other ", "bob"),
        ("Bearer voilà".encode(), "zoë"),
    ],
)
def test_a_token_names_who_brings_it(value: str | bytes, name: str) -> None:
    """SEC-1."""
    found = KNOWN.admit(showing(value))
    assert isinstance(found, Badge) and found.principal == name
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "Bearer",
            "Bearer ",
            "s3cret",
            "Basic s3cret",
            "Bearer S3cret",
            "Bearer s3cre",
            "Bearer s3crett",
        ),
        *("Bearer ann", b"Bearer \xff\xfe\x80", "Bearer " + "s3cret" * 10_000),
    ],
)
def test_whoever_brings_no_token_of_ours_is_a_stranger(value: str | bytes) -> None:
    """SEC-1."""
    assert KNOWN.admit(showing(value)) in (NO_TOKEN, WRONG_TOKEN)


def test_one_that_was_let_in_opens_the_door_for_no_other() -> None:
    """SEC-1: nor for itself, brought twice."""
    for _ in range(2):
        assert isinstance(KNOWN.admit(showing("Bearer s3cret")), Badge)
        assert KNOWN.admit(showing("Bearer s3cre")) is WRONG_TOKEN
        assert KNOWN.admit(showing("\0")) is NO_TOKEN
        assert KNOWN.admit(showing("Bearer s3cret", "Bearer s3cret")) is NO_TOKEN
        assert KNOWN.admit(showing()) is NO_TOKEN


def test_no_token_and_two_tokens_make_a_stranger() -> None:
    assert KNOWN.admit(showing()) is NO_TOKEN
    assert KNOWN.admit(showing("Bearer s3cret", "Bearer s3cret")) is NO_TOKEN


def test_a_moment_without_a_zone_is_utc() -> None:
    assert (
        moment("2027-01-31")
        == moment("2027-01-31T00:00:00Z")
        == moment("2027-01-31T01:00+01:00")
        == 1801353600
    )


def test_a_token_is_refused_from_the_moment_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-1."""
    ending = Bearer([Token(name="ann", token="t", expires="2027-01-31")], OPEN, None)
    clock = Clock(1801353599.9)
    monkeypatch.setattr(module.time, "time", clock)
    found = ending.admit(showing("Bearer t"))
    assert isinstance(found, Badge) and not ending.look()
    clock.now = 1801353600.0
    assert ending.admit(showing("Bearer t")) is WRONG_TOKEN
    assert ending.look() and ending.current(found) is None


def test_ten_thousand_tokens_cost_a_request_what_one_does() -> None:
    few, many = (
        Bearer(tokens(**{f"n{i}": f"t{i}" for i in range(n)}), OPEN, None) for n in (1, 10_000)
    )
    request = showing("Bearer t0")

    def ask(identity: Bearer) -> None:
        for _ in range(2_000):
            identity.admit(request)

    assert cost_ratio(lambda: ask(few), lambda: ask(many)) < 3


# ---- profiles


PROFILES = Doors(
    [
        Profile(name="p"),
        Profile(name="club", tokens=("ann", "bob")),
        Profile(name="q"),
        Profile(name="x", tokens=()),
    ]
)


def test_whoever_is_bound_gets_those_profiles_and_no_other() -> None:
    """SEC-2: the token's own first, then those that name it."""
    ann = Badge("ann", PROFILES.of_token("ann", "q"))
    assert [PROFILES.enter(ann, asked) for asked in (None, "q", "club", "p", "x", "none")] == [
        *("q", "q", "club"),
        *(NOWHERE, NOWHERE, NOWHERE),
    ]
    assert PROFILES.enter(Badge("bob", PROFILES.of_token("bob", None)), None) == "club"


def test_whoever_is_not_bound_gets_everything_and_profiles_that_name_nobody() -> None:
    for badge in (None, Badge("zed", PROFILES.of_token("zed", None))):
        found = [PROFILES.enter(badge, asked) for asked in (None, "p", "q", "club", "x", "none")]
        assert found == [None, "p", "q", NOWHERE, NOWHERE, NOWHERE]


def test_a_profile_that_is_gone_still_binds() -> None:
    """SEC-2: a token for less must never become one for everything."""
    badge = Badge("ann", PROFILES.of_token("zed", "gone"))
    assert PROFILES.enter(badge, None) == "gone"
    assert PROFILES.in_order({"gone", "q", "p"}) == ("p", "q", "gone")


# ---- the store


def test_a_kept_token_is_only_known_by_its_digest(tmp_path: Path) -> None:
    """SEC-1: 256 bits, told once; a file for its owner alone."""
    store = TokenStore(tmp_path)
    token = store.add("ann", "p", 4e9)
    assert token.startswith("mcpx_") and len(token) == 5 + 43
    file = tmp_path / "tokens" / "tokens.json"
    assert token not in file.read_text() and token[5:] not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    (kept,) = store.read()
    assert (kept.name, kept.profile, kept.expires) == ("ann", "p", 4e9)
    with pytest.raises(KeyError):
        store.add("ann")
    found = Bearer((), OPEN, store).admit(showing(f"Bearer {token}"))
    assert isinstance(found, Badge) and (found.principal, found.doors) == ("ann", ("p",))
    assert Bearer((), OPEN, store).admit(showing(f"Bearer {kept.digest}")) is WRONG_TOKEN


CHANGES = """\
import sys
from pathlib import Path
from mcpx.front.identity.store import TokenStore
store = TokenStore(Path(sys.argv[1]))
for number in range(20):
    store.add(f"{sys.argv[2]}-{number}")
    if number % 5 == 0:
        store.revoke(f"{sys.argv[2]}-{number}")
"""


def test_processes_that_change_the_store_at_once_lose_nothing(tmp_path: Path) -> None:
    """SEC-1."""
    running = [
        subprocess.Popen([sys.executable, "-c", CHANGES, str(tmp_path), part]) for part in "abc"
    ]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    expected = {f"{part}-{number}" for part in "abc" for number in range(20) if number % 5}
    assert {kept.name for kept in TokenStore(tmp_path).read()} == expected
    assert sorted(os.listdir(tmp_path / "tokens")) == ["lock", "tokens.json"]


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"",
            b"no json",
            b"[]x",
            b'{"tokens":[{"name":1}]}',
            b'{"tokens":[{"name":"a","digest":"00"}]}',
        ),
        *(b'{"tokens":[{"name":"a","digest":"zz"}]}', b'{"tokens":[7]}'),
    ],
)
def test_a_broken_store_lets_nobody_in_and_is_not_overwritten(
    tmp_path: Path, content: bytes
) -> None:
    store = TokenStore(tmp_path)
    token = store.add("ann")
    known = Bearer((), OPEN, store)
    (tmp_path / "tokens" / "tokens.json").write_bytes(content)
    with pytest.raises(Unreadable):
        store.add("bob")
    assert known.look()
    assert known.admit(showing(f"Bearer {token}")) is WRONG_TOKEN


def test_what_is_made_and_revoked_is_noticed_by_a_look(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    known = Bearer((), OPEN, store)
    assert not known.look()
    token = store.add("ann")
    assert known.look() and not known.look()
    found = known.admit(showing(f"Bearer {token}"))
    assert isinstance(found, Badge)
    store.revoke("ann")
    assert known.look()
    assert known.current(found) is None
    store.add("ann")
    known.look()
    assert known.current(found) is None, "another of the same name is another"


def test_what_a_coming_configuration_does_not_name_is_not_good_any_more(tmp_path: Path) -> None:
    kept = TokenStore(tmp_path).add("kept")
    known = Bearer(tokens(ann="a", bob="b", zed="z"), OPEN, TokenStore(tmp_path))
    known.keep_only(
        [Token(name="bob", token="b"), Token(name="zed", token="z", expires="2020-01-31")]
    )
    good = [
        isinstance(known.admit(showing(f"Bearer {token}")), Badge)
        for token in ("a", "b", "z", kept)
    ]
    assert good == [False, True, False, True]


# ---- proxies


class _From:
    """A connection from an address (`wire.exchange.Line`)."""

    congested = False
    waiting = 0
    server = ("127.0.0.1", 8000)
    scheme = "http"

    def __init__(self, address: str) -> None:
        self.client = (address, 50_000)


def through(address: str, *fields: tuple[str, str]) -> Exchange:
    return Exchange(_From(address), "GET", "/mcp", headers(*fields), b"", True, False)  # type: ignore[arg-type]


PROXIES = Proxies(["10.0.0.0/8", "fd00::1"])
XFF = "x-forwarded-for"


@pytest.mark.parametrize(
    ("address", "fields", "expected"),
    [
        ("192.0.2.1", [(XFF, "203.0.113.9")], "192.0.2.1"),
        ("192.0.2.1", [("forwarded", "for=203.0.113.9")], "192.0.2.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [(XFF, "203.0.113.9")], "203.0.113.9"),
        ("10.0.0.1", [(XFF, "1.1.1.1, 203.0.113.9")], "203.0.113.9"),
        ("10.0.0.1", [(XFF, "1.1.1.1, 203.0.113.9, 10.0.0.2")], "203.0.113.9"),
        ("10.0.0.1", [(XFF, "1.1.1.1"), (XFF, "203.0.113.9")], "203.0.113.9"),
        ("10.0.0.1", [(XFF, "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
        ("10.0.0.1", [(XFF, "203.0.113.9:4711")], "203.0.113.9"),
        ("10.0.0.1", [(XFF, "[2001:db8::1]:4711")], "2001:db8::1"),
        ("10.0.0.1", [(XFF, "2001:db8::1")], "2001:db8::1"),
        ("10.0.0.1", [(XFF, "::ffff:203.0.113.9")], "203.0.113.9"),
        ("::ffff:10.0.0.1", [(XFF, "203.0.113.9")], "203.0.113.9"),
        ("fd00::1", [(XFF, "203.0.113.9")], "203.0.113.9"),
        ("10.0.0.1", [(XFF, "203.0.113.9, unknown")], "10.0.0.1"),
        ("10.0.0.1", [(XFF, "203.0.113.9, evil, 10.0.0.2")], "10.0.0.2"),
        ("10.0.0.1", [(XFF, "")], "10.0.0.1"),
        (
            "10.0.0.1",
            [("forwarded", 'for=1.1.1.1, for="[2001:db8::1]:47";proto=https')],
            "2001:db8::1",
        ),
        ("10.0.0.1", [("forwarded", "for=203.0.113.9;by=10.0.0.2, for=10.0.0.7")], "203.0.113.9"),
        ("10.0.0.1", [("forwarded", "for=_hidden")], "10.0.0.1"),
        ("10.0.0.1", [("forwarded", 'for="203.0.113.9')], "10.0.0.1"),
        ("10.0.0.1", [(XFF, "203.0.113.9"), ("forwarded", "for=203.0.113.9")], "203.0.113.9"),
        ("10.0.0.1", [(XFF, "203.0.113.9"), ("forwarded", "for=1.1.1.1")], "10.0.0.1"),
    ],
)
def test_the_last_address_counts_that_is_no_proxy_of_ours(
    address: str, fields: list[tuple[str, str]], expected: str
) -> None:
    """SEC-1: a stranger's word, and what stands before an unknown hop, count for nothing."""
    assert PROXIES.arrival(through(address, *fields)).address == expected


def test_scheme_and_host_are_those_of_the_nearest_proxy() -> None:
    def said(*fields: tuple[str, str]) -> tuple[str | None, str | None]:
        arrival = PROXIES.arrival(through("10.0.0.1", *fields))
        return arrival.scheme, arrival.host

    both = (("x-forwarded-proto", "http, HTTPS"), ("x-forwarded-host", "evil, gw.example"))
    assert said(*both) == ("https", "gw.example")
    assert said(("forwarded", "for=1.1.1.1;host=gw.example;proto=https")) == ("https", "gw.example")
    assert said(("x-forwarded-proto", "gopher")) == (None, None)
    assert said((XFF, "1.1.1.1"), ("forwarded", "for=1.1.1.1;host=evil")) == (None, None)


def test_where_no_proxy_is_trusted_nobody_is_asked() -> None:
    assert not Guard("127.0.0.1").proxied
    trusting = Guard("127.0.0.1", trusted_proxies=["127.0.0.1"])
    assert trusting.arrival(through("127.0.0.1", (XFF, "1.1.1.1"))) == Arrival("1.1.1.1")


def test_a_header_without_end_is_looked_at_for_a_moment_only() -> None:
    endless = (
        (XFF, "10.0.0.2," * 7_000),
        ("forwarded", "for=10.0.0.2," * 5_000),
        ("forwarded", '"' * 60_000),
    )
    for name, value in endless:
        request = through("10.0.0.1", (name, value))
        began = time.process_time()
        PROXIES.arrival(request)
        assert time.process_time() - began < 5, name


# ---- our own names


def test_our_origins_are_what_was_configured_never_what_a_request_says() -> None:
    """SEC-1: whom a token is meant for is judged by them."""

    def origins(guard: Guard) -> set[str]:
        return set(guard.origins(asked(("host", "evil.example:8000"))))

    assert origins(Guard("127.0.0.1")) == {
        f"http://{name}:8000" for name in ("127.0.0.1", "localhost", "[::1]")
    }
    assert origins(Guard("192.0.2.5")) == {"http://192.0.2.5:8000"}
    assert origins(Guard("0.0.0.0")) == set()
    named = Guard("0.0.0.0", allowed_hosts=["gw.example", "*.lan.example"])
    assert origins(named) == {"http://gw.example:8000", "https://gw.example"}


def test_stored_tokens_are_json_that_people_can_read(tmp_path: Path) -> None:
    TokenStore(tmp_path).add("ann")
    kept = json.loads((tmp_path / "tokens" / "tokens.json").read_text())
    assert [entry["name"] for entry in kept["tokens"]] == ["ann"]
