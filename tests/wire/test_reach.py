"""Which addresses are public, in every dress that an address can wear."""

import asyncio
from ipaddress import ip_address

import pytest

from mcpx.wire.http_reply import Forbidden
from mcpx.wire.reach import MOST_TRIED, Guard, is_public

PRIVATE = [
    *(
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "172.16.0.1",
    ),
    *(
        "172.31.255.255",
        "192.168.0.1",
        "169.254.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.255",
    ),
    *(
        "100.100.100.200",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
    ),
    *(
        "192.88.99.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
    ),
    *(
        "::",
        "::1",
        "::7f00:1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "100::1",
    ),
    *(
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:a9fe:a9fe",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
    ),
    *(
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2002:a9fe:a9fe::",
        "2001::1",
        "2001:0:53aa:64c::1",
    ),
    *("2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "5f00::1", "4000::1"),
]
PUBLIC = [
    *(
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
    ),
    *(
        "192.167.0.1",
        "192.0.1.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "168.63.129.17",
        "93.184.216.34",
    ),
    *(
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "2a00::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::",
    ),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_on_the_internet_is_not_public(address: str) -> None:
    """SEC-4."""
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_on_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


def answering(*addresses: str) -> Guard:
    async def look_up(host: str) -> list[str]:
        if not addresses:
            raise OSError("Name or service not known")
        return list(addresses)

    return Guard(look_up)


def ask(guard: Guard, host: str, *, proxied: bool = False) -> list[str]:
    return asyncio.run(guard(host, proxied))


@pytest.mark.parametrize(
    "host",
    [
        *(
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "017700000001",
            "127.1",
            "127.0.1",
            "0",
            "0x",
            "0.0",
        ),
        *(
            "127.0.0.1.",
            "127.0.0.01",
            "2130706433.",
            "0251.0376.0251.0376",
            "010.0.0.1",
            "8.8",
            "1.2.3.4.5",
            "256.1.1.1",
        ),
        *(
            "a.b.0x7f",
            "foo.1",
            "localhost",
            "localhost.",
            "a.localhost",
            "a.b.localhost.",
            "metadata.google.internal",
        ),
        *(
            "printer.local",
            "router.lan",
            "nas.home.arpa",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
        ),
    ],
)
@pytest.mark.parametrize("proxied", [False, True])
def test_no_spelling_of_an_address_at_home_gets_through(host: str, proxied: bool) -> None:
    """SEC-4; whatever the name system would have said."""
    with pytest.raises(Forbidden, match=r"allow_private|unusual form") as raised:
        ask(answering("8.8.8.8"), host, proxied=proxied)
    assert host in str(raised.value)


def test_a_public_address_is_itself() -> None:
    assert ask(answering(), "8.8.8.8") == ["8.8.8.8"]
    assert ask(answering(), "8.8.8.8.") == ["8.8.8.8"]
    assert ask(answering(), "2606:4700:4700:0::1111") == ["2606:4700:4700::1111"]


def test_of_several_addresses_only_the_public_ones_are_dialled() -> None:
    """SEC-4."""
    guard = answering(
        "10.0.0.1", "8.8.8.8", "::1", "2606:4700:4700::1111", "fe80::1%eth0", "not an address"
    )
    assert ask(guard, "mixed.example") == ["8.8.8.8", "2606:4700:4700::1111"]
    assert len(ask(answering(*[f"8.8.8.{n}" for n in range(99)]), "many.example")) == MOST_TRIED


def test_a_name_with_private_addresses_only_is_refused() -> None:
    """SEC-4."""
    with pytest.raises(Forbidden, match=r"home\.example .*allow_private: true"):
        ask(answering("192.168.1.1", "fd00::1"), "home.example")


def test_behind_a_proxy_one_private_address_is_enough_to_refuse() -> None:
    """SEC-4: nobody knows which of them the proxy would take."""
    with pytest.raises(Forbidden):
        ask(answering("8.8.8.8", "10.0.0.1"), "mixed.example", proxied=True)
    assert ask(answering("8.8.8.8"), "far.example", proxied=True) == ["8.8.8.8"]


def test_a_name_that_only_the_proxy_knows_is_left_to_it() -> None:
    assert ask(answering(), "far.example", proxied=True) == []
    with pytest.raises(OSError, match="not known"):
        ask(answering(), "far.example")


def test_a_name_of_one_word_is_not_left_to_a_proxy() -> None:
    """SEC-4: the proxy's own network would know it."""
    with pytest.raises(Forbidden):
        ask(answering(), "intranet-wiki", proxied=True)


def test_all_who_want_the_same_name_ask_once() -> None:
    async def main() -> None:
        asked: list[str] = []
        both, answered = asyncio.Event(), asyncio.Event()

        async def look_up(host: str) -> list[str]:
            asked.append(host)
            if len(asked) == 2:
                both.set()
            await answered.wait()
            if host == "bad.example":
                raise OSError("Name or service not known")
            return ["8.8.8.8"]

        guard = Guard(look_up)
        waiting = [
            asyncio.create_task(guard(host, False))
            for host in ("good.example", "bad.example")
            for _ in range(50)
        ]
        async with asyncio.timeout(10):
            await both.wait()
        waiting[0].cancel()
        answered.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert sorted(asked) == ["bad.example", "good.example"]
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:50] == [["8.8.8.8"]] * 49
        assert {str(result) for result in results[50:]} == {"Name or service not known"}
        assert await guard("good.example", False) == ["8.8.8.8"]
        assert len(asked) == 3, "an answer is not kept"
        await guard.close()

    asyncio.run(main())


def test_closing_ends_what_is_being_asked() -> None:
    async def main() -> None:
        async def never(host: str) -> list[str]:
            await asyncio.Event().wait()
            return []

        guard = Guard(never)
        waiting = asyncio.create_task(guard("slow.example", False))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await guard.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_the_system_is_asked_for_names() -> None:
    with pytest.raises(OSError):
        ask(Guard(), "no-such-name.invalid")
