"""Signing in to an MCP server, against a real authorization server (spec, section 6)."""

import asyncio
import logging
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from auth.authserver import ASM, PRM, AuthServer, Reply
from auth.flow import sign_in_user

OPENID = "/.well-known/openid-configuration"


def query_of(url: str | None) -> dict[str, str]:
    assert url is not None
    return dict(parse_qsl(urlsplit(url).query))


def test_a_person_signs_in_once_and_every_request_after_it_carries_the_token(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                assert user.credentials.auth_url is None
                assert user.credentials.now() is user.credentials.now()
                assert user.told >= 2  # somebody has to; somebody has
                about = user.credentials.describe()
                assert about["signed_in"] is True
                assert about["issuer"] == site.issuer
            async with sign_in_user(site.url, tmp_path) as again:  # the next run
                assert await again.ask() == 200
            assert len(site.asked("/register")) == 1
            assert len(site.asked("/token")) == 1
            wanted = site.asked("/register")[0].json
            assert wanted["application_type"] == "native"
            assert wanted["grant_types"] == ["authorization_code", "refresh_token"]

    asyncio.run(run())


def test_nothing_is_sent_and_nothing_is_asked_of_a_server_that_lets_us_in(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(instead={"/mcp": Reply(200, {})}) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                assert await user.ask() == 200
                assert user.credentials.auth_url is None
            assert [one.path for one in site.seen] == ["/mcp"]
            assert "authorization" not in site.seen[0].headers

    asyncio.run(run())


def test_the_resource_is_named_letter_by_letter_wherever_it_must_be(tmp_path: Path) -> None:
    """RFC 8707: on the page, for the token, and for its renewal."""

    async def run() -> None:
        with AuthServer(prm_path=PRM, expires_in=0) as site:
            site.resource = site.origin  # without a slash: as published
            async with sign_in_user(site.url, tmp_path) as user:
                assert await user.ask() == 401
                assert query_of(user.credentials.auth_url)["resource"] == site.origin
                await user.open()
                assert await user.ask() == 200
            forms = [one.form for one in site.asked("/token")]
            assert [form["grant_type"] for form in forms] == ["authorization_code", "refresh_token"]
            assert {form["resource"] for form in forms} == {site.origin}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("behaviour", "asked"),
    [
        ({}, [f"{PRM}/mcp", ASM]),
        ({"prm_in_challenge": False}, [f"{PRM}/mcp", ASM]),
        ({"prm_in_challenge": False, "prm_path": PRM}, [f"{PRM}/mcp", PRM, ASM]),
        ({"prm_path": "/elsewhere.json"}, ["/elsewhere.json", ASM]),
        ({"asm_path": OPENID}, [f"{PRM}/mcp", ASM, OPENID]),
        ({"prefix": "/t1", "asm_path": f"{ASM}/t1"}, [f"{PRM}/mcp", f"{ASM}/t1"]),
        (
            {"prefix": "/t1", "asm_path": f"{OPENID}/t1"},
            [f"{PRM}/mcp", f"{ASM}/t1", f"{OPENID}/t1"],
        ),
        (
            {"prefix": "/t1", "asm_path": f"/t1{OPENID}"},
            [f"{PRM}/mcp", f"{ASM}/t1", f"{OPENID}/t1", f"/t1{OPENID}"],
        ),
        ({"prm_path": None}, [f"{PRM}/mcp", PRM, ASM]),  # 2025-03-26
        ({"prm_path": None, "asm_path": None}, [f"{PRM}/mcp", PRM, ASM]),
        ({"prm_path": None, "prefix": "/oauth"}, [f"{PRM}/mcp", PRM, ASM]),
    ],
)
def test_metadata_are_found_wherever_a_revision_has_them(
    behaviour: dict[str, Any], asked: list[str], tmp_path: Path
) -> None:
    async def run() -> None:
        with AuthServer(**behaviour) as site:
            if behaviour.get("prm_path") == PRM:
                site.resource = site.origin
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
            places = [
                one.path
                for one in site.seen
                if one.method == "GET" and one.path != f"{site.prefix}/authorize"
            ]
            assert places == asked

    asyncio.run(run())


@pytest.mark.parametrize(
    ("behaviour", "config", "scope"),
    [
        ({}, {}, None),
        ({"challenge_scope": "a b", "resource_scopes": ["c"]}, {}, "a b"),
        ({"resource_scopes": ["c", "d"]}, {}, "c d"),
        ({"challenge_scope": "a"}, {"scope": "x y"}, "x y"),
        ({"scopes_supported": ["never", "asked"]}, {}, None),
        (
            {"challenge_scope": "a", "scopes_supported": ["a", "offline_access"]},
            {},
            "a offline_access",
        ),
        ({"scopes_supported": ["offline_access"]}, {"scope": "x"}, "x"),
    ],
)
def test_scopes_are_those_of_the_config_the_challenge_or_the_resource(
    behaviour: dict[str, Any], config: dict[str, Any], scope: str | None, tmp_path: Path
) -> None:
    async def run() -> None:
        with AuthServer(**behaviour) as site:
            async with sign_in_user(site.url, tmp_path, **config) as user:
                assert await user.ask() == 401
                asked = query_of(user.credentials.auth_url)
                assert asked.get("scope") == scope
                assert asked.get("prompt") == ("consent" if "offline" in (scope or "") else None)

    asyncio.run(run())


@pytest.mark.parametrize(
    "methods", [["none"], ["client_secret_basic"], ["client_secret_post"], None]
)
def test_the_client_proves_itself_as_the_issuer_wants_it(
    methods: list[str] | None, tmp_path: Path
) -> None:
    async def run() -> None:
        with AuthServer(auth_methods=methods) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
            one = site.asked("/token")[0]
            basic, in_form = "authorization" in one.headers, "client_secret" in one.form
            expected = (methods or ["none"])[0]
            assert (basic, in_form) == (
                expected == "client_secret_basic",
                expected == "client_secret_post",
            )

    asyncio.run(run())


def test_an_issuer_that_registers_us_in_another_way_than_asked_for_is_obeyed(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        with AuthServer(registered_method="client_secret_post", auth_methods=None) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
            assert "client_secret" in site.asked("/token")[0].form

    asyncio.run(run())


@pytest.mark.parametrize("methods", [["client_secret_basic"], ["client_secret_post"]])
def test_a_client_of_the_config_is_not_registered(methods: list[str], tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(
            registers=False, auth_methods=methods, known_clients={"a:b c": "s3cret&/ü"}
        ) as site:
            async with sign_in_user(
                site.url, tmp_path, client_id="a:b c", client_secret="s3cret&/ü"
            ) as user:
                await user.sign_in()
            async with sign_in_user(
                site.url, tmp_path, client_id="other", client_secret="s"
            ) as user:
                assert await user.ask() == 401  # what another client got is not used

    asyncio.run(run())


def test_a_client_id_metadata_document_is_used_where_the_issuer_takes_it(tmp_path: Path) -> None:
    document = "https://mcpx.example/client.json"

    async def run() -> None:
        with AuthServer(cimd=True) as site:
            async with sign_in_user(site.url, tmp_path / "a", client_id=document) as user:
                await user.sign_in()
            assert site.asked("/register") == []
            assert site.grants[0].client == document
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path / "b", client_id=document) as user:
                await user.sign_in()
            assert len(site.asked("/register")) == 1

    asyncio.run(run())


def test_a_server_that_registers_nobody_says_what_to_do(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(registers=False) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                assert await user.ask() == 401
                assert user.credentials.auth_url is None
                problem = user.credentials.problem or ""
                assert "client_id" in problem
                assert "http://127.0.0.1:" in problem

    asyncio.run(run())


def test_a_registration_that_the_issuer_has_forgotten_is_made_anew(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                await user.credentials.forget()
            async with sign_in_user(site.url, tmp_path) as user:  # refused with the token
                assert await user.ask() == 401
                site.instead["/token"] = Reply(401, {"error": "invalid_client"})
                assert (await user.open())[0] == 400
                site.instead.clear()
                assert await user.ask() == 401
                await user.open()
                assert await user.ask() == 200
                await user.credentials.forget()
            assert len(site.asked("/register")) == 2
            site.known_clients.clear()
            async with sign_in_user(
                site.url, tmp_path
            ) as user:  # refused on the page, from where nobody comes back
                assert await user.ask() == 401
                assert (await user.open())[0] == 400
                url = await user.credentials.begin()
                await user.open(url)
                assert await user.ask() == 200
            assert len(site.asked("/register")) == 3

    asyncio.run(run())


def test_a_person_who_says_no_is_told_so_and_may_say_yes_later(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(iss="correct", iss_supported=True) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                assert await user.ask() == 401
                asked = query_of(user.credentials.auth_url)
                no = f"{asked['redirect_uri']}?error=access_denied&state={asked['state']}&iss={site.issuer}"
                status, page = await user.open(no)
                assert status == 400
                assert "access_denied" in page
                assert "access_denied" in (user.credentials.problem or "")
                assert (await user.open())[0] == 200
                assert await user.ask() == 200
                assert user.credentials.problem is None

    asyncio.run(run())


def test_signing_out_revokes_and_keeps_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                await user.credentials.forget()
                assert site.tokens == {}
                assert site.refresh_tokens == {}
                assert user.credentials.describe() == {"signed_in": False}
                assert await user.ask() == 401
            async with sign_in_user(site.url, tmp_path) as user:
                assert await user.ask() == 401

    asyncio.run(run())


def test_a_page_stays_the_same_until_a_fresh_one_is_wanted(tmp_path: Path) -> None:
    """Somebody may have it open."""

    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await asyncio.gather(*[user.ask() for _ in range(20)])
                first = user.credentials.auth_url
                assert len(site.asked(ASM)) == 1
                assert await user.ask() == 401
                assert user.credentials.auth_url == first
                assert await user.credentials.begin() != first
                assert (await user.open(first))[0] == 400
                assert (await user.open())[0] == 200

    asyncio.run(run())


def test_no_secret_is_in_a_log_an_error_or_a_repr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        with AuthServer(registers=False, auth_methods=["client_secret_post"]) as site:
            site.known_clients = {"me": "canary-secret"}
            async with sign_in_user(
                site.url, tmp_path, client_id="me", client_secret="canary-secret"
            ) as user:
                assert await user.ask() == 401
                said = "your canary-secret is wrong"
                site.instead["/token"] = Reply(
                    400, {"error": "invalid_request", "error_description": said}
                )
                _, page = await user.open()
                problem = user.credentials.problem or ""
                assert "***" in problem
                site.instead.clear()
                await user.open()
                assert await user.ask() == 200
                proof = await user.credentials.get()
                inside = vars(user.credentials)
                held = repr(
                    (user.credentials, inside["_held"].grant, proof, user.credentials.describe())
                )
                for text in (page, problem, held, caplog.text):
                    assert "canary-secret" not in text
                    assert not any(token in text for token in (*site.tokens, *site.refresh_tokens))
                secrets = [one.form["code"] for one in site.asked("/token")]
                assert not any(secret in caplog.text for secret in secrets)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not any(b"canary-secret" in file.read_bytes() for file in files)
