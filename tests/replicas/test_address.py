"""The address of a store: what is taken, and what is said of what is not, without a word of its
password."""

import pytest

from mcpx.replicas.address import StoreAddress, parse
from mcpx.wire.address import BadAddress

GOOD = {
    "redis://store": StoreAddress("one", (("store", 6379),)),
    "valkey://store:7000/3": StoreAddress("one", (("store", 7000),), db=3),
    "rediss://me:p%40ss@store/0?ca=/ca.pem": StoreAddress(
        "one", (("store", 6379),), tls=True, user="me", password="p@ss", ca="/ca.pem"
    ),
    "redis://[::1]:7000": StoreAddress("one", (("::1", 7000),)),
    "redis+sentinel://:secret@a,b:1/main/2": StoreAddress(
        "sentinel", (("a", 26379), ("b", 1)), db=2, service="main", password="secret"
    ),
    "redis+cluster://a:1,b:2?prefix=team": StoreAddress(
        "cluster", (("a", 1), ("b", 2)), prefix="team"
    ),
    "unix:///run/redis.sock": StoreAddress("socket", (), path="/run/redis.sock"),
}
BAD = (
    "store:6379",
    "http://store",
    "redis://",
    "redis://store:0",
    "redis://store:99999",
    "redis://store/one",
    "redis://a,b",
    "redis+sentinel://a,b",
    "redis+cluster://a/3",
    "redis://:CANARY@store?colour=red",
    "redis://:CANARY@[::1",
    "redis://store?prefix",
)


@pytest.mark.parametrize("text", GOOD)
def test_an_address_is_read_as_it_is_meant(text: str) -> None:
    assert parse(text) == GOOD[text]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_address_is_said_to_be_none(text: str) -> None:
    with pytest.raises(BadAddress) as said:
        parse(text)
    assert "CANARY" not in str(said.value)


def test_a_password_is_in_nothing_that_is_shown() -> None:
    address = parse("redis://me:CANARY@store")
    assert "CANARY" not in repr(address) + address.shown
    assert address.shown == "store:6379"
