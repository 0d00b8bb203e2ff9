"""The suite's scenarios `auth/*`: how a client signs in to a server that wants it.

`direct` is the SDK's own OAuth client; `through` is mcpx, and a person who opens `auth_url` in a
browser as soon as `mcpx servers --json` has one. The suite's issuer redirects at once, so that the
person has nothing to do.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener, urlopen

import anyio
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp.shared.exceptions import MCPError
from pydantic import AnyUrl

from kit.gateway import Gateway
from mcpx.front.control import ask, socket_path

TOOL = "test-tool"
DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The address that the suite knows a client id metadata document by."""
WAIT = 15.0
"""Seconds for a tool to be listed, and for it to be called."""

MACHINE = "auth/client-credentials-basic"
"""No person: a token for what the config says."""

STOPPED = {
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
}
"""A client that is right does not get in here."""


# The SDK's client
# --------------------------------------------------------------------------------------------------


class _Memory:
    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self._client, self._tokens = client, None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _SignInBrowser:
    """Opens the sign-in page and reads the parameters of its redirect."""

    async def open(self, url: str) -> None:
        self._back = await asyncio.to_thread(self._location, url)

    @staticmethod
    def _location(url: str) -> str:
        try:
            with build_opener(_Stay).open(url, timeout=10):
                return ""
        except HTTPError as answer:
            with answer:
                return answer.headers["location"]

    async def came_back(self) -> AuthorizationCodeResult:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self._back).query).items()}
        return AuthorizationCodeResult(
            code=query["code"], state=query.get("state"), iss=query.get("iss")
        )


@asynccontextmanager
async def sdk_transport(url: str, scenario: str, context: dict[str, Any]) -> AsyncIterator[Any]:
    provider = _provider(url, scenario, context)
    async with (
        create_mcp_http_client(auth=provider) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


def _provider(url: str, scenario: str, context: dict[str, Any]) -> OAuthClientProvider:
    if scenario == MACHINE:
        return ClientCredentialsOAuthProvider(
            url,
            _Memory(None),
            context["client_id"],
            context["client_secret"],
            "client_secret_basic",
        )
    browser = _SignInBrowser()
    redirect = AnyUrl("http://localhost:3000/callback")
    known = None
    if "client_id" in context:
        known = OAuthClientInformationFull(
            client_id=context["client_id"],
            client_secret=context.get("client_secret"),
            redirect_uris=[redirect],
            token_endpoint_auth_method="client_secret_basic",
        )
    return OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="sdk", redirect_uris=[redirect]),
        _Memory(known),
        browser.open,
        browser.came_back,
        client_metadata_url=DOCUMENT if scenario == "auth/basic-cimd" else None,
    )


async def use_directly(client: Client) -> None:
    await client.list_tools()
    await client.call_tool(TOOL, {})


# mcpx
# --------------------------------------------------------------------------------------------------


def auth_config(scenario: str, context: dict[str, Any]) -> dict[str, Any] | None:
    """What a user writes down; None: nothing, mcpx finds out."""
    if scenario == "auth/basic-cimd":
        return {"type": "oauth", "oauth": {"client_id": DOCUMENT}}
    if "client_id" not in context:
        return None
    own = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    if scenario == MACHINE:
        return {"type": "oauth2", "oauth2": own}
    return {"type": "oauth", "oauth": own}


class Looking:
    """Somebody in front of a gateway: looks what it says, opens what it wants opened."""

    def __init__(self, gateway: Gateway) -> None:
        self._socket = socket_path(Path(gateway.env["MCPX_STATE_DIR"]), gateway.file, None)
        self._opened: set[str] = set()

    async def about(self) -> dict[str, Any]:
        """The server as `mcpx servers --json` has it."""
        answer = await ask(self._socket, "status")
        assert answer is not None, "the gateway does not run"
        return answer["servers"][0]

    async def pages(self) -> bool:
        """Open what nobody has opened yet; False: there is none and will not be, or it did not sign
        anybody in."""
        about = await self.about()
        url = about["auth_url"]
        if url and url not in self._opened:
            self._opened.add(url)
            return await _open(url)
        return "nobody can sign in" not in (about["last_error"] or "")


async def _open(url: str) -> bool:
    def get() -> int:
        with suppress(HTTPError), urlopen(url, timeout=10) as answer:
            return answer.status
        return 400

    return await asyncio.to_thread(get) == 200


async def use_through(client: Client, someone: Looking) -> None:
    """List and call as a host does whose user signs in when it is wanted, and tries again."""

    async def listed() -> bool:
        return TOOL in [tool.name for tool in (await client.list_tools()).tools]

    async def called() -> bool:
        return not (await client.call_tool(TOOL, {})).is_error

    for done in (listed, called):
        with anyio.move_on_after(WAIT):
            while True:
                with suppress(MCPError):
                    if await done():
                        break
                if not await someone.pages():
                    return
                await asyncio.sleep(0.05)
