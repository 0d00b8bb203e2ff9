"""Headers as values: numbers in them, and several of one name."""

import time
from email.utils import formatdate

import pytest

from mcpx.wire.exchange import LONGEST_WISH, Exchange, Headers, retry_after, whole_number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.5", " 1", "²", "٣", "१", "1_0", "0x1", "1" * 16]
)
def test_only_plain_digits_are_a_number(text: str) -> None:
    assert whole_number(text) is None


@pytest.mark.parametrize("text", ["0", "007", "5", "9" * 15])
def test_plain_digits_are_a_number(text: str) -> None:
    assert whole_number(text) == int(text)


def test_headers_of_one_name_keep_their_order() -> None:
    headers = Headers.of([(b"a", b"1"), (b"b", b" x "), (b"a", b"2"), (b"a", b"1")])
    assert headers.all("a") == ["1", "2", "1"]
    assert (headers.get("a"), headers.get("b"), headers.get("c")) == ("1", "x", None)
    assert list(headers.items()) == [("a", "1"), ("b", "x"), ("a", "2"), ("a", "1")]


@pytest.mark.parametrize(
    ("target", "host", "path", "query"),
    [
        ("/mcp?a=b", "here", "/mcp", "a=b"),
        ("http://there:80/mcp?a=b", "there:80", "/mcp", "a=b"),
        ("HTTPS://there", "there", "/", ""),
        ("http://there?a=/mcp", "there", "/", "a=/mcp"),
        ("http:///mcp", "", "/mcp", ""),
        ("ftp://here/mcp", "", "/mcp", ""),
        ("/x?u=http://there/mcp", "here", "/x", "u=http://there/mcp"),
        ("*", "here", "*", ""),
    ],
)
def test_a_target_in_absolute_form_names_host_and_path(
    target: str, host: str, path: str, query: str
) -> None:
    """RFC 9112, 3.2.2."""
    exchange = Exchange(None, "GET", target, Headers({b"host": b"here"}), b"", True, False)  # type: ignore[arg-type]
    assert (exchange.host, exchange.path, exchange.query) == (host, path, query)


def test_no_host_or_several_are_none() -> None:
    for headers in (Headers({}), Headers.of([(b"host", b"a"), (b"host", b"a")])):
        assert Exchange(None, "GET", "/", headers, b"", True, False).host is None  # type: ignore[arg-type]


def _asking(text: str) -> Headers:
    return Headers({b"retry-after": text.encode("latin-1")})


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0.0), ("120", 120.0), (" 7 ", 7.0), ("999999999", LONGEST_WISH)]
)
def test_retry_after_says_seconds(text: str, seconds: float) -> None:
    assert retry_after(_asking(text)) == seconds


def test_retry_after_says_a_time() -> None:
    now = time.time()
    for zone in (" GMT", " -0000", ""):
        soon = retry_after(_asking(formatdate(now + 100, usegmt=True).removesuffix(" GMT") + zone))
        assert soon is not None
        assert 90 < soon <= 101
    assert retry_after(_asking(formatdate(now - 100, usegmt=True))) == 0.0
    assert retry_after(_asking("Fri, 31 Dec 9999 23:59:59 GMT")) == LONGEST_WISH


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-5", "1.5", "Fri, 99 Foo 2026", "1" * 70, "Fri, 31 Dec 99999 23:59:59 GMT"],
)
def test_retry_after_may_say_nothing(text: str) -> None:
    assert retry_after(_asking(text)) is None
    assert retry_after(Headers({})) is None
