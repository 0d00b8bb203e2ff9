"""Tokens that end, are refused, or do not suffice (spec, section 6)."""

import asyncio
import shutil
from pathlib import Path

import pytest

from auth.authserver import AuthServer, Reply
from auth.flow import SignInUser, sign_in_user
from kit.until import wait_until
from mcpx.auth.credentials import Refusal
from mcpx.auth.vault import name_of
from mcpx.model.errors import Unproved


async def revoked(site: AuthServer, user: SignInUser) -> None:
    """The server takes back every access token."""
    with site.lock:
        site.tokens.clear()


def test_fifty_calls_with_a_token_that_ends_renew_it_once(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(expires_in=0) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                await user.open()
                site.expires_in = 3600
                proofs = await asyncio.gather(*[user.credentials.get() for _ in range(50)])
                assert len({id(proof) for proof in proofs}) == 1
                assert await user.ask() == 200
            assert [one.form["grant_type"] for one in site.asked("/token")] == [
                "authorization_code",
                "refresh_token",
            ]

    asyncio.run(run())


def test_fifty_calls_with_a_token_that_is_refused_renew_it_once(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                await revoked(site, user)
                assert await asyncio.gather(*[user.ask() for _ in range(50)]) == [200] * 50
            assert len(site.asked("/token")) == 2

    asyncio.run(run())


def test_a_renewal_goes_on_though_everybody_who_waited_gave_up(tmp_path: Path) -> None:
    """The old refresh token is used up: the new one must not be lost."""

    async def run() -> None:
        with AuthServer(expires_in=0) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                await user.open()
                site.expires_in = 3600
                waiting = asyncio.create_task(user.credentials.get())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                waiting.cancel()
            async with sign_in_user(site.url, tmp_path) as again:
                assert await again.ask() == 200
            assert len(site.asked("/token")) <= 3

    asyncio.run(run())


@pytest.mark.parametrize("rotates", [True, False])
def test_a_refresh_token_is_kept_until_another_comes(rotates: bool, tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(rotates=rotates) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                for _ in range(2):
                    user.credentials._held.renew_at = 0.0  # its time has come
                    assert await user.ask() == 200
            used = [one.form["refresh_token"] for one in site.asked("/token")[1:]]
            assert len(set(used)) == (2 if rotates else 1)

    asyncio.run(run())


def test_a_refused_renewal_leads_to_another_sign_in(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                site.refresh_tokens.clear()
                user.credentials._held.renew_at = 0.0
                with pytest.raises(Unproved) as refused:
                    await user.credentials.get()
                assert refused.value.sign_in
                assert user.credentials.describe()["signed_in"] is False
            async with sign_in_user(site.url, tmp_path) as again:  # the next run knows
                with pytest.raises(Unproved):
                    await again.credentials.get()
                assert again.credentials.describe()["issuer"] == site.issuer
                await again.sign_in()

    asyncio.run(run())


def test_a_token_server_that_is_down_costs_nobody_the_sign_in(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                site.instead["/token"] = Reply(503)
                user.credentials._held.renew_at = 0.0
                assert await user.ask() == 200  # it is good for a while yet
                await revoked(site, user)
                with pytest.raises(Unproved, match="503"):
                    await user.ask()
                assert "503" in (user.credentials.problem or "")
                assert user.credentials.auth_url is None
                site.instead.clear()
                assert await user.ask() == 200

    asyncio.run(run())


def test_what_is_refused_after_its_renewal_too_leads_to_a_sign_in(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                site.instead["/mcp"] = Reply(401, {}, site._challenge('error="invalid_token"'))
                assert await user.ask() == 401
                assert len(site.asked("/token")) == 2
                assert await user.ask() == 401
                assert len(site.asked("/token")) == 2
                assert user.credentials.auth_url is not None

    asyncio.run(run())


def test_two_gateways_with_one_folder_do_not_use_up_each_others_tokens(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with (
                sign_in_user(site.url, tmp_path) as one,
                sign_in_user(site.url, tmp_path) as other,
            ):
                assert await other.ask() == 401
                await one.sign_in()
                assert await other.ask() == 200  # though nobody has signed in there
                for user in (one, other, one):
                    user.credentials._held.renew_at = 0.0
                    assert await user.ask() == 200
                assert site.refresh_tokens

    asyncio.run(run())


def test_a_call_that_needs_more_scopes_asks_for_all_of_them_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        def needs(method: str) -> str:
            return "write" if method == "tools/call" else "read"

        with AuthServer(challenge_scope="read", needs=needs) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                assert await user.ask("tools/call") == 403
                assert user.credentials.auth_url is not None
                assert await user.ask() == 200  # with the token there is
                await user.open()
                assert site.grants[-1].scope == "read write"
                assert await user.ask("tools/call") == 200
                assert await user.ask() == 200

    asyncio.run(run())


def test_a_server_that_is_never_content_is_given_up(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(challenge_scope="admin") as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                refusal = 'Bearer error="insufficient_scope", scope="admin"'
                site.instead["/mcp"] = Reply(403, {}, {"www-authenticate": refusal})
                asked = 0
                for _ in range(6):
                    assert await user.ask() == 403
                    if user.credentials.auth_url is not None:
                        asked += 1
                        await user.open()
                assert asked == 1
                assert "admin" in (user.credentials.problem or "")

    asyncio.run(run())


def test_a_refusal_that_is_not_about_us_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                proof = await user.credentials.get()
                assert await user.credentials.refused(proof, Refusal(403, "")) is False
                assert user.credentials.auth_url is None
                assert await user.ask() == 200

    asyncio.run(run())


def test_more_scopes_than_a_registration_was_made_for_make_another(tmp_path: Path) -> None:
    """Some issuers hold a client to the scopes it was registered with."""

    async def run() -> None:
        def needs(method: str) -> str:
            return "write" if method == "tools/call" else "read"

        with AuthServer(challenge_scope="read", needs=needs) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                assert await user.ask("tools/call") == 403
                await user.open()
                assert await user.ask("tools/call") == 200
            assert [one.json["scope"] for one in site.asked("/register")] == ["read", "read write"]

    asyncio.run(run())


def test_a_refusal_in_other_words_leaves_the_page_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                said = 'Bearer error="insufficient_scope", scope="a", error_description="{}"'
                first = await user.credentials.begin(Refusal(403, said.format("at 12:00:01")))
                assert (
                    await user.credentials.begin(Refusal(403, said.format("at 12:00:02"))) == first
                )

    asyncio.run(run())


def test_who_still_uses_credentials_of_an_older_config_is_told_so(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(expires_in=0) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                await user.open()
                await user.credentials.close()
                with pytest.raises(Unproved, match="no longer in use"):
                    await user.credentials.get()

    asyncio.run(run())


def test_a_renewal_after_a_refusal_is_kept_though_everything_ends_meanwhile(tmp_path: Path) -> None:
    """The old refresh token is used up by then."""

    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                proof = await user.credentials.get()
                await revoked(site, user)
                site.slow["/token"] = 0.3
                waiting = asyncio.create_task(user.credentials.refused(proof, Refusal(401)))
                await asyncio.to_thread(wait_until, lambda: len(site.asked("/token")) == 2)
                await user.credentials.close()
                await waiting
            async with sign_in_user(site.url, tmp_path) as again:
                assert await again.ask() == 200

    asyncio.run(run())


def test_a_token_that_ends_when_it_comes_is_not_renewed_for_every_call(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer(expires_in=0) as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.ask()
                await user.open()
                for _ in range(20):
                    await user.credentials.get()
            assert len(site.asked("/token")) <= 4  # one a second, on the slowest of machines too

    asyncio.run(run())


def test_who_signs_out_is_not_signed_in_again_by_another_gateway(tmp_path: Path) -> None:
    """Two gateways on one folder, and an issuer that takes nothing back."""

    async def run() -> None:
        with AuthServer(rotates=False, extra_metadata={"revocation_endpoint": None}) as site:
            async with (
                sign_in_user(site.url, tmp_path) as one,
                sign_in_user(site.url, tmp_path) as other,
            ):
                await one.sign_in()
                assert await other.ask() == 200
                told = other.told
                await one.credentials.forget()
                other.credentials._held.renew_at = 0.0  # its time has come
                with pytest.raises(Unproved, match="sign in"):
                    await other.credentials.get()
                assert other.told == told + 1
                assert await one.ask() == 401
            assert len(site.asked("/token")) == 1

    asyncio.run(run())


@pytest.mark.parametrize("is_refused", [False, True])
def test_who_signs_out_while_another_gateway_renews_stays_signed_out(
    tmp_path: Path, is_refused: bool
) -> None:
    """SCA-1: whether or not the issuer still takes the token; what was got meanwhile is given back
    to it."""

    async def run() -> None:
        with AuthServer() as site:
            async with (
                sign_in_user(site.url, tmp_path) as one,
                sign_in_user(site.url, tmp_path) as other,
            ):
                await one.sign_in()
                assert await other.ask() == 200
                site.slow["/token"] = 3.0  # time for the other to sign out meanwhile
                if is_refused:
                    site.refresh_tokens.clear()
                other.credentials._held.renew_at = 0.0  # its time has come
                renewal = asyncio.create_task(other.credentials.get())
                await asyncio.to_thread(wait_until, lambda: len(site.asked("/token")) == 2)
                await one.credentials.forget()
                with pytest.raises(Unproved, match="sign"):
                    await renewal
                assert not other.credentials.describe()["signed_in"]
                assert await other.ask() == await one.ask() == 401
                assert not (tmp_path / "auth" / name_of(other.credentials._held.key)).exists()
            assert not site.refresh_tokens

    asyncio.run(run())


def test_a_kept_sign_in_that_cannot_be_read_does_not_end_one_that_is_in_use(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                for file in (tmp_path / "auth").iterdir():
                    file.write_bytes(b"{half")
                user.credentials._held.renew_at = 0.0
                assert await user.ask() == 200

    asyncio.run(run())


def test_signing_out_holds_though_the_file_cannot_be_deleted_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()

                def refuse(self: Path, missing_ok: bool = False) -> None:
                    raise PermissionError(1, "Operation not permitted", str(self))

                with monkeypatch.context() as patch:
                    patch.setattr(Path, "unlink", refuse)
                    with pytest.raises(Unproved, match=r"next start.*cannot be deleted.*auth"):
                        await user.credentials.forget()
                assert len(site.asked("/revoke")) == 2
                assert await user.ask() == 401
                await user.open()
                assert await user.ask() == 200

    asyncio.run(run())


def test_an_empty_error_beside_a_token_is_none(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                proof = await user.credentials.get()
                body = {
                    "access_token": "fresh",
                    "token_type": "Bearer",
                    "error": None,
                    "error_description": "",
                }
                site.instead["/token"] = Reply(body=body)
                assert await user.credentials.refused(proof, Refusal(401))

    asyncio.run(run())


def test_a_state_folder_that_vanished_ends_no_sign_in(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with sign_in_user(site.url, tmp_path) as user:
                await user.sign_in()
                shutil.rmtree(tmp_path / "auth")
                user.credentials._held.renew_at = 0.0
                assert await user.ask() == 200
            async with sign_in_user(site.url, tmp_path) as again:
                assert await again.ask() == 200

    asyncio.run(run())


def test_two_gateways_do_not_renew_in_turns_for_a_server_that_takes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        with AuthServer() as site:
            async with (
                sign_in_user(site.url, tmp_path) as one,
                sign_in_user(site.url, tmp_path) as other,
            ):
                await one.sign_in()
                assert await other.ask() == 200
                site.instead["/mcp"] = Reply(401)
                for _ in range(5):
                    assert (await one.ask(), await other.ask()) == (401, 401)
            assert len(site.asked("/token")) <= 3

    asyncio.run(run())
