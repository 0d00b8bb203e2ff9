"""Servers and strangers that want what is not theirs (threats: OAuth discovery, tokens,
redirects)."""

import asyncio
import base64
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from auth.authserver import ASM, PRM, AuthServer, Reply
from auth.flow import SignInUser, sign_in_user
from mcpx.auth.flow import web
from mcpx.auth.flow.web import Web
from mcpx.model.errors import Unproved
from mcpx.wire.fetch import Fetcher
from mcpx.wire.reach import Guard


async def no_page(user: SignInUser) -> str:
    """Asked to sign in, and there is no page for it; why."""
    assert await user.ask() == 401
    assert user.credentials.auth_url is None
    assert user.credentials.problem is not None
    return user.credentials.problem


def query_of(url: str | None) -> dict[str, str]:
    assert url is not None
    return dict(parse_qsl(urlsplit(url).query))


@contextmanager
def trap() -> Iterator[tuple[str, list[bool]]]:
    """An address that nobody may come to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        came: list[bool] = []
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", came
        try:
            listener.accept()[0].close()
            came.append(True)
        except BlockingIOError:
            pass


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example/mcp",
        "{origin}/mcpx",
        "{origin}/mcp/deeper",
        "{origin}.evil.example/mcp",
        "x",
    ],
)
def test_metadata_of_another_resource_lead_nowhere(resource: str, tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            site.resource = resource.format(origin=site.origin)
            async with sign_in_user(site.url, tmp_path) as user:
                assert "another resource" in await no_page(user)
            assert site.asked(ASM) == []

    asyncio.run(run())


@pytest.mark.parametrize(
    "issuer", ["https://evil.example", "{origin}/other", "{origin}//", "HTTP://127.0.0.1", 7]
)
def test_metadata_of_another_issuer_lead_nowhere(issuer: Any, tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            named = issuer.format(origin=site.origin) if isinstance(issuer, str) else issuer
            site.extra_metadata = {"issuer": named}
            async with sign_in_user(site.url, tmp_path) as user:
                assert "another issuer" in await no_page(user)
            assert site.asked("/register") == []

    asyncio.run(run())


def test_a_server_without_metadata_of_its_own_cannot_name_a_foreign_issuer(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(prm_path=None, extra_metadata={"issuer": "https://evil.example"}) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                assert "another issuer" in await no_page(user)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("advertised", "said"),
    [
        (True, None),
        (True, "https://evil.example"),
        (None, "https://evil.example"),
        (True, "{issuer}/"),
        (None, ""),
    ],
)
def test_an_answer_of_another_issuer_is_not_exchanged(
    advertised: bool | None, said: str | None, tmp_path: Path
) -> None:
    """RFC 9207, letter by letter."""

    async def run() -> None:
        with AuthServer(iss_supported=advertised) as site:
            site.iss = said if said is None else said.format(issuer=site.issuer)
            async with sign_in_user(site.url, tmp_path) as user:
                assert await user.ask() == 401
                status, _ = await user.open()
                assert status == 400
                assert await user.ask() == 401
            assert site.asked("/token") == []

    asyncio.run(run())


def test_an_error_of_another_issuer_is_not_believed(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(iss_supported=True) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                asked = query_of(user.credentials.auth_url)
                lie = f"{asked['redirect_uri']}?error=canary&state={asked['state']}&iss=https://evil.example"
                _, page = await user.open(lie)
                assert "canary" not in page

    asyncio.run(run())


def test_a_state_is_good_once_and_cannot_be_guessed(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                asked = query_of(user.credentials.auth_url)
                assert len(asked["state"]) >= 43
                back = asked["redirect_uri"]
                for guess in (
                    "",
                    "?code=evil",
                    f"?code=evil&state={asked['state'][:-1]}",
                    "?code=evil&state=",
                ):
                    assert (await user.open(back + guess))[0] == 400
                assert site.asked("/token") == []
                assert (await user.open())[0] == 200
                used = f"{back}?code=evil&state={asked['state']}"
                assert (await user.open(used))[0] == 400
                assert await user.ask() == 200
            assert len(site.asked("/token")) == 1

    asyncio.run(run())


def test_an_answer_that_comes_twice_at_once_is_exchanged_once(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                asked = query_of(user.credentials.auth_url)
                site.instead["/token"] = Reply(400, {"error": "invalid_grant"})
                evil = f"{asked['redirect_uri']}?code=evil&state={asked['state']}"
                answers = await asyncio.gather(*[user.open(evil) for _ in range(5)])
                assert {status for status, _ in answers} == {400}
            assert len(site.asked("/token")) == 1

    asyncio.run(run())


@pytest.mark.parametrize("methods", [["plain"], [], "S256"])
def test_an_issuer_without_s256_gets_nobody(methods: Any, tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(pkce=methods) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                assert "S256" in await no_page(user)

    asyncio.run(run())


def test_a_server_of_the_world_leads_nobody_to_a_private_address(
    tmp_path: Path, monkeypatch: Any
) -> None:
    async def never(host: str) -> bool:
        return False

    async def run() -> None:
        with trap() as (address, came), AuthServer() as site:
            monkeypatch.setattr(web, "is_private", never)
            async with sign_in_user(site.url, tmp_path) as user:
                assert "public address" in await no_page(user)
                place = Web(lambda: user.fetcher, "https://mcp.example/mcp")
                for url in (
                    address,
                    "http://localhost:1/",
                    "https://169.254.169.254/latest",
                    "https://[::1]/x",
                ):
                    with pytest.raises(Unproved, match="public address"):
                        await place.metadata(url)
                    with pytest.raises(Unproved, match="public address"):
                        await place.form(url, {"refresh_token": "x"}, None, "x")
            assert site.asked(f"{PRM}/mcp") == []
        assert came == []

    asyncio.run(run())


@pytest.mark.parametrize("where", [f"{PRM}/mcp", ASM])
def test_a_redirect_to_a_private_address_is_not_followed(
    where: str, tmp_path: Path, monkeypatch: Any
) -> None:
    async def never(host: str) -> bool:
        return False

    def fetcher() -> Fetcher:
        return Fetcher(
            {}, guard=Guard(may=lambda address: str(address) == "127.0.0.2")
        )  # stands in for the world

    async def run() -> None:
        with trap() as (address, came), AuthServer("127.0.0.2") as site:
            monkeypatch.setattr(web, "is_private", never)
            async with sign_in_user(site.url, tmp_path / "a", fetcher) as user:
                await user.sign_in()
            site.instead[where] = Reply(302, headers={"location": f"{address}/latest/meta-data"})
            site.tokens.clear()
            async with sign_in_user(site.url, tmp_path / "b", fetcher) as user:
                assert "public address" in await no_page(user)
        assert came == []

    asyncio.run(run())


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "10.1.2.3", "[fd00::1]", "[::ffff:10.0.0.1]", "192.168.0.9"]
)
def test_a_server_at_home_may_have_its_issuer_there(host: str) -> None:
    name = web.parse_server(f"http://{host}/mcp").host
    assert asyncio.run(web.is_private(name))


@pytest.mark.parametrize("host", ["93.184.215.14", "[2606:4700::1]"])
def test_a_server_of_the_world_is_not_at_home(host: str) -> None:
    name = web.parse_server(f"http://{host}/mcp").host
    assert not asyncio.run(web.is_private(name))


@pytest.mark.parametrize(
    "key", ["authorization_endpoint", "token_endpoint", "registration_endpoint"]
)
@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/x",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://u:p@h/x",
        "https://a b/",
    ],
)
def test_an_endpoint_that_is_not_https_or_no_address_is_refused(
    key: str, url: str, tmp_path: Path
) -> None:
    async def run() -> None:
        with AuthServer(extra_metadata={key: url}) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await no_page(user)
            assert site.asked("/register") == []

    asyncio.run(run())


def test_an_issuer_without_https_is_not_even_asked(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(authorization_servers=["http://issuer.example"]) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                assert "https" in await no_page(user)

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, b"x" * (web.LIMIT + 1)),
        Reply(200, b'{"resource": "' + b"x" * web.LIMIT + b'"}'),
        Reply(302, headers={"location": f"{PRM}/mcp"}),
        Reply(302, headers={"location": "http://evil.example/"}),
        Reply(500),
        Reply(429),
        Reply(200, {"resource": None}, after=30.0),
    ],
    ids=["huge", "huge JSON", "loop", "elsewhere", "error", "busy", "slow"],
)
def test_odd_metadata_end_in_words(answer: Reply, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(web, "SECONDS", 1.0)

    async def run() -> None:
        with AuthServer(instead={f"{PRM}/mcp": answer}) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await no_page(user)
            assert len(site.asked(f"{PRM}/mcp")) <= 1 + web.REDIRECTS
            assert site.asked("/register") == []

    asyncio.run(run())


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"resource": 7}', b"null", b"\xff", b"[" * 100_000]
)
def test_what_are_no_metadata_count_as_none(body: bytes, tmp_path: Path) -> None:
    """Pages of a web application come for every address with 200."""

    async def run() -> None:
        with AuthServer(instead={f"{PRM}/mcp": Reply(200, body), PRM: Reply(200, body)}) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()

    asyncio.run(run())


@pytest.mark.parametrize(
    "given",
    [
        {"access_token": "a\r\nx-evil: 1"},
        {"access_token": "a b"},
        {"access_token": "ü"},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "a" * 40_000},
        {"access_token": "a", "token_type": "DPoP"},
        {"error": "invalid_grant"},
        {},
        [],
    ],
)
def test_a_token_that_cannot_be_sent_is_no_sign_in(given: Any, tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(instead={"/token": Reply(200, given)}) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                assert (await user.open())[0] == 400
                assert await user.ask() == 401
                assert user.credentials.describe() == {"signed_in": False}

    asyncio.run(run())


@pytest.mark.parametrize("life", ["3600", 3600.5, -1, None, "soon", 1e300, True, {}])
def test_what_is_said_of_a_tokens_end_may_be_anything(life: Any, tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(expires_in=life) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                assert await user.ask() == 200

    asyncio.run(run())


def test_a_token_endpoint_that_redirects_gets_nothing_followed(tmp_path: Path) -> None:
    async def run() -> None:
        with trap() as (address, came), AuthServer() as site:
            site.instead["/token"] = Reply(307, headers={"location": f"{address}/token"})
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                assert (await user.open())[0] == 400
        assert came == []

    asyncio.run(run())


def test_tokens_and_registrations_stay_with_the_issuer_that_gave_them(tmp_path: Path) -> None:
    """The server changes its mind about whom it trusts."""

    async def run() -> None:
        with AuthServer() as site, AuthServer() as other:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                first = site.grants[0].client
                site.authorization_servers = [other.issuer]
                site.instead["/mcp"] = Reply(401, {}, site._challenge('error="invalid_token"'))
                for _ in range(3):
                    assert await user.ask() == 401
                assert (await user.open())[0] == 200
                site.instead.clear()
                site.tokens.update(other.tokens)
                assert await user.ask() == 200
                assert user.credentials.describe()["issuer"] == other.issuer
            sent = (
                b"".join(one.body for one in other.seen)
                + repr([one.query for one in other.seen]).encode()
            )
            assert len(other.asked("/register")) == 1
            assert first.encode() not in sent
            assert b"refresh-" not in sent

    asyncio.run(run())


def test_a_secret_of_the_config_goes_to_no_other_issuer_than_the_first(tmp_path: Path) -> None:
    async def run() -> None:
        known = {"me": "secret-of-config"}
        with (
            AuthServer(known_clients=dict(known)) as site,
            AuthServer(known_clients=dict(known)) as other,
        ):
            async with sign_in_user(
                site.url, tmp_path, client_id="me", client_secret="secret-of-config"
            ) as user:
                await user.sign_in()
                site.authorization_servers = [other.issuer]
                site.tokens.clear()
                site.refresh_tokens.clear()
                assert await user.ask() == 401
                assert user.credentials.auth_url is None
                assert "another authorization server" in (user.credentials.problem or "")
                assert other.asked("/token") == []
                await user.credentials.forget()  # a person says so
                assert await user.ask() == 401
                assert user.credentials.auth_url is not None

    asyncio.run(run())


def test_a_secret_of_the_config_goes_to_no_issuer_that_only_the_server_names(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        client = {"client_id": "me", "client_secret": "secret-of-config"}
        known = {"me": "secret-of-config"}
        issuing = AuthServer("localhost", known_clients=known, auth_methods=["client_secret_post"])
        with issuing as other, AuthServer(authorization_servers=[other.issuer]) as site:
            async with sign_in_user(site.url, tmp_path / "none", **client) as user:
                assert await user.ask() == 401
                problem = user.credentials.problem or ""
                assert user.credentials.auth_url is None and "set 'issuer' to it" in problem, (
                    problem
                )
                assert other.issuer in problem and "secret-of-config" not in problem
            async with sign_in_user(
                site.url, tmp_path / "wrong", **client, issuer=site.issuer
            ) as user:
                assert await user.ask() == 401
                assert user.credentials.auth_url is None and "change 'issuer'" in (
                    user.credentials.problem or ""
                )
            assert not other.asked("/token") and not other.asked("/authorize")
            site.tokens = other.tokens
            async with sign_in_user(
                site.url, tmp_path / "right", **client, issuer=f"{other.issuer}/"
            ) as user:
                await user.sign_in()
                assert await user.ask() == 200
            assert other.asked("/token")[0].form["client_secret"] == "secret-of-config"

    asyncio.run(run())


def test_a_secret_of_the_config_goes_to_no_token_address_on_another_host(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer("localhost") as other:
            site = AuthServer(extra_metadata={"token_endpoint": f"{other.origin}/token"})
            with site:
                async with sign_in_user(
                    site.url, tmp_path, client_id="me", client_secret="secret-of-config"
                ) as user:
                    assert await user.ask() == 401
                    assert user.credentials.auth_url is None and "another host" in (
                        user.credentials.problem or ""
                    )
            assert not other.asked("/token")

    asyncio.run(run())


def test_a_command_cannot_use_a_sign_in() -> None:
    async def run() -> None:
        from mcpx.auth.credentials import Purpose
        from mcpx.auth.oauth import OAuth

        credentials = OAuth().credentials(Purpose("api", {}, lambda: Fetcher({})))
        with pytest.raises(Unproved, match="MCP servers"):
            await credentials.get()
        await credentials.close()

    asyncio.run(run())


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
@pytest.mark.parametrize("status", [400, 200])
def test_a_client_secret_that_is_said_back_is_told_to_nobody(
    method: str, status: int, tmp_path: Path
) -> None:
    secret = "canary secret/61f0"

    async def run() -> None:
        with AuthServer(auth_methods=[method], known_clients={"me": secret}) as site:
            async with sign_in_user(
                site.url, tmp_path, client_id="me", client_secret=secret
            ) as user:
                assert await user.ask() == 401
                pair = base64.b64encode(f"me:{quote(secret, safe='')}".encode()).decode()
                said = f"no: {secret} {quote(secret)} {pair}"
                site.instead["/token"] = Reply(status, {"error": said, "error_description": said})
                code, page = await user.open()
                told = f"{page} {user.credentials.problem}"
                assert code == 400 and "no: ***" in told
                sent = (secret, quote(secret), pair if method == "client_secret_basic" else secret)
                assert not [form for form in sent if form in told]

    asyncio.run(run())


def test_a_page_to_sign_in_at_is_an_address_of_plain_characters(tmp_path: Path) -> None:
    """It is shown in terminals, where others would hide or turn around what stands there."""

    async def run() -> None:
        with AuthServer() as site:
            site.extra_metadata = {
                "authorization_endpoint": f"{site.issuer}/\u202e\u00e9/authorize#x"
            }
            async with sign_in_user(site.url, tmp_path) as user:
                assert await user.ask() == 401
                url = user.credentials.auth_url
                assert url is not None and url.startswith(
                    f"{site.issuer}/%E2%80%AE%C3%A9/authorize?"
                )

    asyncio.run(run())
