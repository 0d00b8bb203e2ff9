"""Who is let in: by the name they call us, the page they come from, and the proxy between."""

import pytest

from mcpx.front.guard import Guard
from mcpx.model.origin import Origin
from mcpx.wire.exchange import Exchange, Headers


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


class Socket:
    """The connection a request came on (`wire.exchange.Line`)."""

    congested = False
    waiting = 0
    client = ("127.0.0.1", 50_000)

    def __init__(self, port: int, scheme: str) -> None:
        self.server = ("127.0.0.1", port)
        self.scheme = scheme


def asked(
    *fields: tuple[str, str | bytes], target: str = "/mcp", port: int = 8000, scheme: str = "http"
) -> Exchange:
    line = Socket(port, scheme)
    return Exchange(line, "GET", target, headers(*fields), b"", True, False)  # type: ignore[arg-type]


LOCAL = Guard("127.0.0.1")
SIX = Guard("::1")
LAN = Guard("192.168.1.5")
ANYWHERE = Guard("0.0.0.0")


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
        (Guard("Box.Local"), "box.local:80"),
        (Guard("fe80::1"), "[fe80::1]:80"),
        (ANYWHERE, "anything.example:8000"),
        (Guard("::"), "anything.example"),
    ],
)
def test_a_host_that_is_ours_is_let_in(guard: Guard, host: str) -> None:
    assert guard.host_allowed(asked(("host", host)))


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
        "127.0.0.1:²",
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
    assert not LOCAL.host_allowed(asked(("host", host)))


def test_no_host_and_two_hosts_are_refused_everywhere() -> None:
    for guard in (LOCAL, ANYWHERE):
        assert not guard.host_allowed(asked())
        assert not guard.host_allowed(asked(("host", "localhost"), ("host", "localhost")))
        assert not guard.host_allowed(asked(("host", "localhost"), ("host", "evil.example")))


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:8000",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
        "HTTP://LOCALHOST:8000",
    ],
)
def test_a_page_that_came_from_us_is_let_in(origin: str) -> None:
    """SEC-1: by whichever of our names."""
    assert LOCAL.origin_allowed(asked(("host", "127.0.0.1:8000"), ("origin", origin)))


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "http://localhost",
            "http://localhost:80",
            "http://localhost:3000",
            "http://127.0.0.1:8001",
        ),
        *(
            "https://localhost:8000",
            "https://localhost",
            "http://[::1]:5173",
            "http://localhost:08001",
        ),
    ],
)
def test_other_pages_of_this_machine_are_strangers(origin: str) -> None:
    """SEC-1: whatever runs there, a page of it must not use the gateway behind its user's back."""
    assert not LOCAL.origin_allowed(asked(("host", "localhost:8000"), ("origin", origin)))


def test_the_usual_port_need_not_be_said_and_the_scheme_must_fit() -> None:
    for port, scheme, other in ((80, "http", "https"), (443, "https", "http")):

        def allowed(origin: str, port: int = port, scheme: str = scheme) -> bool:
            return LOCAL.origin_allowed(
                asked(("host", "localhost"), ("origin", origin), port=port, scheme=scheme)
            )

        assert allowed(f"{scheme}://localhost")
        assert allowed(f"{scheme}://localhost:{port}")
        assert not allowed(f"{other}://localhost")
        assert not allowed(f"{other}://localhost:{port}")


def test_allowed_origins_are_let_in_and_nothing_like_them() -> None:
    """SEC-1."""
    guard = Guard("127.0.0.1", "", ["https://App.example:8443", "http://tools.example"])

    def allowed(origin: str) -> bool:
        return guard.origin_allowed(asked(("host", "localhost:8000"), ("origin", origin)))

    for origin in (
        "https://app.example:8443",
        "http://tools.example",
        "http://tools.example:80",
        "http://[::1]:8000",
    ):
        assert allowed(origin), origin
    for origin in (
        *(
            "http://app.example:8443",
            "https://app.example",
            "https://app.example:8443/",
            "https://x.app.example:8443",
        ),
        *("https://tools.example", "http://tools.example:8080", "null", "*"),
    ):
        assert not allowed(origin), origin


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://a", ("http", "a", 80)),
        ("HTTPS://A.B:1", ("https", "a.b", 1)),
        ("http://[::1]:65535", ("http", "[::1]", 65535)),
        *(
            (text, None)
            for text in (
                "",
                "null",
                "*",
                "a",
                "http://",
                "http:///",
                "http://a/",
                "http://a:",
                "http://a:0",
            )
        ),
        *(
            (text, None)
            for text in (
                "http://a:65536",
                "http://a:²",
                "ws://a",
                "http://u@a",
                "http://a b",
                "http://a\n",
            )
        ),
    ],
)
def test_an_origin_is_taken_to_the_letter(text: str, origin: tuple[str, str, int] | None) -> None:
    assert Origin.parse(text) == origin


@pytest.mark.parametrize(
    ("target", "host", "allowed"),
    [
        ("http://localhost:8000/mcp", "evil.example", True),
        ("http://evil.example/mcp", "localhost", False),
        ("http://evil.example", "localhost", False),
        ("http://evil.example?x=/mcp", "localhost", False),
        ("http://localhost@evil.example/mcp", "localhost", False),
        ("http:///mcp", "localhost", False),
        ("ftp://localhost/mcp", "localhost", False),
        ("/mcp?next=http://evil.example/", "localhost", True),
        ("//evil.example/mcp", "localhost", True),  # a path, and one we do not have
    ],
)
def test_a_target_in_absolute_form_decides_the_host(target: str, host: str, allowed: bool) -> None:
    """SEC-1: RFC 9112, 3.2.2; the header is ignored then."""
    assert LOCAL.host_allowed(asked(("host", host), target=target)) is allowed


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
    assert not LOCAL.origin_allowed(asked(("host", "localhost"), ("origin", origin)))


def test_programs_say_no_origin_and_need_none() -> None:
    assert LOCAL.origin_allowed(asked(("host", "localhost")))


def test_two_origins_are_refused() -> None:
    same = ("origin", "http://localhost:8000")
    assert not LOCAL.origin_allowed(asked(same, same))
    assert not LOCAL.origin_allowed(asked(same, ("origin", "http://evil.example")))


def test_bound_to_every_address_a_page_must_come_from_the_host_it_calls() -> None:
    def allowed(host: str, origin: str) -> bool:
        return ANYWHERE.origin_allowed(asked(("host", host), ("origin", origin)))

    assert allowed("box.lan:8000", "http://box.lan:8000")
    assert not allowed("box.lan:8000", "http://box.lan:3000")
    assert not allowed("box.lan:8000", "http://evil.example")
    assert not allowed("", "http://")
    assert not allowed(":", "http://:")


def test_a_host_that_was_let_in_opens_the_door_for_no_other() -> None:
    """SEC-1"""
    fresh = Guard("127.0.0.1")
    for host in ("", "evil.example", "localhost.evil.example"):
        assert not fresh.host_allowed(asked(("host", host)))
        assert fresh.host_allowed(asked(("host", "localhost:8000")))
        assert not fresh.host_allowed(asked(("host", host)))
