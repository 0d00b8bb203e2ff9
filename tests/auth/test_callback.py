"""Section 6: where a browser comes back to after a sign-in."""

import asyncio
import http.client
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kit.loop import run
from kit.until import wait_until
from mcpx.auth import callback as callbacks
from mcpx.auth.callback import Callback
from mcpx.auth.vault import Vault
from mcpx.model.errors import Unproved


def of(state: Path | None = None) -> Callback:
    vault = Vault(state, {})
    return Callback(lambda: vault)


async def get(
    uri: str, target: str, method: str = "GET", host: str | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    """One request, as it is."""

    def ask() -> tuple[int, http.client.HTTPMessage, str]:
        where = urlsplit(uri)
        link = http.client.HTTPConnection("127.0.0.1", where.port or 0, timeout=10)
        try:
            link.putrequest(method, target, skip_host=True)
            link.putheader("Host", host or where.netloc)
            link.endheaders()
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            link.close()

    return await asyncio.to_thread(ask)


async def welcome(found: Mapping[str, str]) -> str:
    return f"signed in with {found['code']}, you may close this window"


def test_the_sign_in_that_is_expected_is_finished_once() -> None:
    """An unknown or used state is refused."""

    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        callback.expect("s1", welcome)
        assert urlsplit(uri).hostname == "127.0.0.1" and urlsplit(uri).path == "/callback"
        status, headers, page = await get(uri, "/callback?code=%3Cb%3E1&state=s1")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "signed in with &lt;b&gt;1" in page
        assert [
            (await get(uri, f"/callback?code=1&state={state}"))[0] for state in ("s1", "s2", "")
        ] == [400] * 3
        assert (await get(uri, "/callback"))[0] == 400
        await callback.close()

    run(scenario())


def test_the_page_runs_nothing_loads_nothing_and_tells_nobody() -> None:
    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        callback.expect("s1", welcome)
        for target in ("/callback?code=1&state=s1", "/callback?code=1&state=s1", "/other"):
            _, headers, page = await get(uri, target)
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert (headers["referrer-policy"], headers["cache-control"]) == (
                "no-referrer",
                "no-store",
            )
            assert "<script" not in page and "style" not in page
        await callback.close()

    run(scenario())


@pytest.mark.parametrize(
    ("method", "target", "host", "status"),
    [
        ("POST", "/callback?code=1&state=s1", None, 405),
        ("HEAD", "/callback?code=1&state=s1", None, 405),
        ("GET", "/callback/?code=1&state=s1", None, 404),
        ("GET", "/?code=1&state=s1", None, 404),
        ("GET", "/callback?code=1&state=s1", "evil.example", 421),
        ("GET", "/callback?code=1&state=s1", "127.0.0.1", 421),
        ("GET", "/callback?code=1&state=s1&state=s1", None, 400),
        ("GET", "/callback?code=1&code=2&state=s1", None, 400),
        ("GET", "/callback?state=s1&" + "&".join(f"a{n}=1" for n in range(100)), None, 400),
        ("GET", "/callback?state=s1&code=" + "a" * 100_000, None, 431),
    ],
)
def test_what_is_not_such_a_redirect_is_refused_and_uses_nothing_up(
    method: str, target: str, host: str | None, status: int
) -> None:
    """The address can be reached by any page in the browser, under any name (rebinding)."""

    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        callback.expect("s1", welcome)
        assert (await get(uri, target, method, host))[0] == status
        assert (await get(uri, "/callback?code=1&state=s1"))[0] == 200
        await callback.close()

    run(scenario())


def test_what_went_wrong_is_told_as_text(caplog: pytest.LogCaptureFixture) -> None:
    async def refused(found: Mapping[str, str]) -> str:
        raise Unproved(f"the sign-in was refused: {found['error']}")

    async def broken(found: Mapping[str, str]) -> str:
        raise RuntimeError("canary-7")

    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        callback.expect("s1", refused)
        callback.expect("s2", broken)
        status, _, page = await get(
            uri, "/callback?error=<script>alert(1)</script>&state=s1".replace(" ", "%20")
        )
        assert status == 400 and "refused: &lt;script&gt;" in page and "<script" not in page
        status, _, page = await get(uri, "/callback?code=1&state=s2")
        assert status == 500 and "canary-7" not in page
        await callback.close()

    run(scenario())
    assert "canary-7" not in caplog.text


def test_a_sign_in_that_was_forgotten_is_not_expected() -> None:
    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        callback.expect("s1", welcome)
        callback.forget("s1")
        callback.forget("s1")
        assert (await get(uri, "/callback?code=1&state=s1"))[0] == 400
        await callback.close()

    run(scenario())


def test_the_next_start_listens_where_this_one_did(tmp_path: Path) -> None:
    """Some authorization servers take only the very address a client was registered with."""

    async def scenario() -> None:
        first = of(tmp_path)
        uri = await first.redirect_uri()
        assert await first.redirect_uri() == uri
        beside = of(tmp_path)
        other = await beside.redirect_uri()
        assert other != uri  # the port is taken
        await first.close()
        await beside.close()
        again, both = of(tmp_path), of(tmp_path)
        assert {await again.redirect_uri(), await both.redirect_uri()} == {uri, other}
        await again.close()
        await both.close()

    run(scenario())


def test_many_that_need_it_at_once_share_one_listener() -> None:
    async def scenario() -> None:
        callback = of()
        uris = await asyncio.gather(*(callback.redirect_uri() for _ in range(20)))
        assert len(set(uris)) == 1
        await callback.close()

    run(scenario())


def is_open(uri: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(uri).port or 0)) == 0


def test_nothing_listens_for_long_where_nobody_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "IDLE", 0.05)

    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        callback.expect("s1", welcome)
        await asyncio.sleep(0.1)
        assert is_open(uri)  # somebody is
        assert (await get(uri, "/callback?code=1&state=s1"))[0] == 200
        await asyncio.to_thread(wait_until, lambda: not is_open(uri))
        callback.expect("s2", welcome)  # without having asked for the address again
        await asyncio.to_thread(wait_until, lambda: is_open(uri))
        assert (await get(uri, "/callback?code=1&state=s2"))[0] == 200
        await callback.close()
        assert not is_open(uri)

    run(scenario())


def test_an_end_in_the_middle_of_a_sign_in_leaves_nothing() -> None:
    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        began, never = asyncio.Event(), asyncio.Event()

        async def hang(found: Mapping[str, str]) -> str:
            began.set()
            await never.wait()
            return ""

        callback.expect("s1", hang)
        callback.expect("s2", welcome)
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(uri).port)
        writer.write(
            (
                f"GET /callback?code=1&state=s1 HTTP/1.1\r\nHost: {urlsplit(uri).netloc}\r\n\r\n"
            ).encode()
        )
        await began.wait()
        async with asyncio.timeout(5):
            await callback.close()
        assert not is_open(uri)
        await reader.read()
        writer.close()

    run(scenario())


def test_a_browser_that_leaves_does_not_undo_the_sign_in() -> None:
    """The code can be used once."""

    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        began, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slowly(found: Mapping[str, str]) -> str:
            began.set()
            await go.wait()
            done.set()
            return ""

        callback.expect("s1", slowly)
        _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(uri).port)
        writer.write(
            (
                f"GET /callback?code=1&state=s1 HTTP/1.1\r\nHost: {urlsplit(uri).netloc}\r\n\r\n"
            ).encode()
        )
        await began.wait()
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)
        go.set()
        async with asyncio.timeout(5):
            await done.wait()
        await callback.close()

    run(scenario())


def test_an_address_may_be_brought_by_hand() -> None:
    """From a browser on another machine, where nothing listens."""

    async def scenario() -> None:
        callback = of()
        uri = await callback.redirect_uri()
        callback.expect("s1", welcome)
        for wrong in (
            "",
            "no address",
            f"{uri}?code=1&state=other",
            "http://[",
            f"{uri}?state=s1&state=s1",
        ):
            with pytest.raises(Unproved):
                await callback.redirected(wrong)
        assert "signed in with 1" in await callback.redirected(f" {uri}?code=1&state=s1\n")
        with pytest.raises(Unproved):
            await callback.redirected(f"{uri}?code=1&state=s1")
        await callback.close()

    run(scenario())
