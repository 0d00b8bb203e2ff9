"""Who is let in: by the name they call us, the page they come from, and the token they bring."""

import pytest

from mcpx.front.guard import Guard
from mcpx.wire.exchange import Headers


def headers(*fields: tuple[str, str | bytes]) -> Headers:
    first: dict[bytes, bytes] = {}
    more: list[tuple[bytes, bytes]] = []
    for name, value in fields:
        raw = value if isinstance(value, bytes) else value.encode("latin-1")
        if name.encode() in first:
            more.append((name.encode(), raw))
        else:
            first[name.encode()] = raw
    return Headers(first, more)


LOCAL = Guard("127.0.0.1", {})
SIX = Guard("::1", {})
LAN = Guard("192.168.1.5", {"me": "t"})
ANYWHERE = Guard("0.0.0.0", {"me": "t"})


@pytest.mark.parametrize(
    ("guard", "host"),
    [
        (LOCAL, "127.0.0.1"),
        (LOCAL, "127.0.0.1:8000"),
        (LOCAL, "localhost:1"),
        (LOCAL, "LocalHost"),
        (LOCAL, " localhost "),
        (LOCAL, "[::1]:8000"),
        (SIX, "[::1]"),
        (SIX, "127.0.0.1:80"),
        (LAN, "192.168.1.5:8000"),
        (LAN, "localhost"),
        (Guard("Box.Local", {}), "box.local:80"),
        (Guard("fe80::1", {}), "[fe80::1]:80"),
        (ANYWHERE, "anything.example:8000"),
        (Guard("::", {"me": "t"}), "anything.example"),
    ],
)
def test_a_host_that_is_ours_is_let_in(guard: Guard, host: str) -> None:
    assert guard.host_allowed(headers(("host", host)))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example:localhost",
        "127.0.0.1:80:80",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1@evil.example",
        "user@127.0.0.1",
        "localhost/",
        "http://localhost",
        "[::1",
        "::1",
        "[::1]x",
        "[::1]:x",
        "[::1]:",
        "[::2]",
        "192.168.1.5",
        "0.0.0.0",
        "127.1",
        "2130706433",
    ],
)
def test_any_other_host_is_not(host: str) -> None:
    """SEC-1: against names that an attacker's DNS points at this machine."""
    assert not LOCAL.host_allowed(headers(("host", host)))


def test_no_host_and_two_hosts_are_refused_everywhere() -> None:
    for guard in (LOCAL, ANYWHERE):
        assert not guard.host_allowed(headers())
        assert not guard.host_allowed(headers(("host", "localhost"), ("host", "localhost")))
        assert not guard.host_allowed(headers(("host", "localhost"), ("host", "evil.example")))


@pytest.mark.parametrize(
    "origin",
    ["http://localhost", "https://localhost:3000", "http://127.0.0.1:1", "http://[::1]:5173", "http://LOCALHOST:1"],
)
def test_a_page_of_this_machine_is_let_in(origin: str) -> None:
    assert LOCAL.origin_allowed(headers(("origin", origin)))


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "http://evil.example",
        "https://evil.example:8000",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "http://evil.example@localhost",
        "http://localhost/",
        "http://localhost/..",
        "http://localhost:x",
        "localhost",
        "//localhost",
        "file://localhost",
        "chrome-extension://localhost",
        "http:localhost",
        "http://",
        "http://[::1",
    ],
)
def test_any_other_page_is_not(origin: str) -> None:
    """SEC-1."""
    assert not LOCAL.origin_allowed(headers(("host", "localhost"), ("origin", origin)))


def test_programs_say_no_origin_and_need_none() -> None:
    assert LOCAL.origin_allowed(headers(("host", "localhost")))


def test_two_origins_are_refused() -> None:
    same = ("origin", "http://localhost")
    assert not LOCAL.origin_allowed(headers(same, same))
    assert not LOCAL.origin_allowed(headers(same, ("origin", "http://evil.example")))


def test_bound_to_every_address_a_page_must_come_from_the_host_it_calls() -> None:
    def allowed(host: str, origin: str) -> bool:
        return ANYWHERE.origin_allowed(headers(("host", host), ("origin", origin)))

    assert allowed("box.lan:8000", "http://box.lan:3000")
    assert not allowed("box.lan:8000", "http://evil.example")
    assert not allowed("", "http://")
    assert not allowed(":", "http://:")


TOKENS = Guard("127.0.0.1", {"ann": "s3cret", "bob": "other", "zoë": "voilà"})


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
    assert TOKENS.principal(headers(("authorization", value))) == name


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "s3cret",
        "Basic s3cret",
        "Bearer S3cret",
        "Bearer s3cre",
        "Bearer s3crett",
        "Bearer ann",
    ],
)
def test_whoever_brings_no_token_of_ours_is_a_stranger(value: str) -> None:
    """SEC-1."""
    assert TOKENS.principal(headers(("authorization", value))) is None


def test_no_token_and_two_tokens_make_a_stranger() -> None:
    assert TOKENS.principal(headers()) is None
    good = ("authorization", "Bearer s3cret")
    assert TOKENS.principal(headers(good, good)) is None


def test_bytes_that_are_no_text_make_a_stranger_and_no_error() -> None:
    assert TOKENS.principal(headers(("authorization", b"Bearer \xff\xfe\x80"))) is None


def test_where_no_tokens_are_configured_everybody_is_anonymous() -> None:
    assert LOCAL.principal(headers()) == "anonymous"
    assert LOCAL.principal(headers(("authorization", "Bearer whatever"))) == "anonymous"
