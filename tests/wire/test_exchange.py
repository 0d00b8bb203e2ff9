"""Headers as values: numbers in them, and several of one name."""

import pytest

from mcpx.wire.exchange import Headers, whole_number


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.5", " 1", "²", "٣", "१", "1_0", "0x1", "1" * 16])
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
