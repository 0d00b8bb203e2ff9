"""`WWW-Authenticate` as servers write it."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.auth.flow.challenge import LONGEST, Challenge, bearer, challenges


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", Challenge()),
        ("Bearer", Challenge()),
        ('Bearer realm="x"', Challenge()),
        ('bearer scope="a b", error="invalid_token"', Challenge("invalid_token", "a b")),
        ("Bearer error=insufficient_scope,scope=a", Challenge("insufficient_scope", "a")),
        ('Bearer resource_metadata="https://a/b?c=d,e"', Challenge("", None, "https://a/b?c=d,e")),
        ('Bearer error_description="no scope=\\"x\\" here", scope="y"', Challenge("", "y")),
        ('Basic realm="scope=z", Bearer scope="a"', Challenge("", "a")),
        ('Basic realm="r", scope="not ours"', Challenge()),
        ('Negotiate abc==, Bearer scope = "a"', Challenge("", "a")),
        (
            'Bearer scope="a", Bearer resource_metadata="https://m"',
            Challenge("", None, "https://m"),
        ),
        ('Bearer scope="first", scope="second"', Challenge("", "first")),
        ('Bearer scope="', Challenge()),
        ('Bearer scope=""', Challenge("", "")),
    ],
)
def test_a_challenge_is_read_as_it_is_meant(header: str, found: Challenge) -> None:
    assert bearer(header) == found


@given(st.text(alphabet='Bearer scope="\\, =\t\n-', max_size=200))
def test_any_text_is_read(header: str) -> None:
    bearer(header)


@pytest.mark.parametrize("piece", ["a", "a=", 'a="', '"', "\\", ' a="\\"', "a ", ",", "é", " "])
def test_no_text_takes_long(piece: str) -> None:
    header = "Bearer " + piece * LONGEST
    start = time.process_time()
    challenges(header)
    assert time.process_time() - start < 0.5
