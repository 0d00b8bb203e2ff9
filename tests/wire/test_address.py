"""URLs as they are dialled and asked for."""

import pytest

from mcpx.wire.address import BadAddress, parse, proxy_for


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://h", "h", "/"),
        ("HTTP://H:8080/a?b=c#d", "h:8080", "/a?b=c"),
        ("https://h:443/", "h", "/"),
        ("http://h?x=1", "h", "/?x=1"),
        ("http://[::1]:8000/mcp", "[::1]:8000", "/mcp"),
        ("http://例え.テスト/mcp", "xn--r8jz45g.xn--zckzah", "/mcp"),
        ("http://h/ä/文?q=ü", "h", "/%C3%A4/%E6%96%87?q=%C3%BC"),
        ("http://h/a%20b%2F", "h", "/a%20b%2F"),
        ("http://h/100%", "h", "/100%25"),
        ("http://h/a?key={x}&y=[1]", "h", "/a?key={x}&y=[1]"),
    ],
)
def test_an_address_is_dialled_in_ascii(url: str, authority: str, target: str) -> None:
    address = parse(url)
    assert (address.authority, address.target) == (authority, target)
    assert parse(address.url) == address  # once more changes nothing


@pytest.mark.parametrize(
    "url",
    ["", "h", "//h", "http://", "http://u:secret@h", "http://h:²", "http://h/\ud800", "http://h\r"],
)
def test_what_cannot_be_dialled_is_said_without_what_was_written(url: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse(url)
    assert "secret" not in str(caught.value)


def test_a_proxy_has_credentials_and_a_server_has_none() -> None:
    proxy = proxy_for(parse("http://h.test"), {"http_proxy": "http://me:p%40ss@proxy:3128"})
    assert proxy is not None
    assert (proxy.host, proxy.port, proxy.credentials) == ("proxy", 3128, ("me", "p@ss"))
