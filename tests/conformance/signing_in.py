"""The suite's scenarios `auth/*`: how a client signs in to a server that wants it.

`direct` is the SDK's own OAuth client; `through` is mcpx, and a person who opens `auth_url` in a browser as soon as
`mcpx servers --json` has one. The suite's issuer redirects at once, so that the person has nothing to do.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener, urlopen

import anyio
import anyio.to_thread
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.exceptions import MCPError
from pydantic import AnyUrl

from fixtures.gateway import Gateway

TOOL = "test-tool"
DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The address that the suite knows a client id metadata document by."""
WAIT = 8.0
"""Seconds for mcpx to say where to sign in, or to be connected."""
MOST_PAGES = 6

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


# The SDK's client ----------------------------------------------------------------------------------------------------


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


class _Person:
    """Opens the page, and reads what it is sent back with."""

    async def open(self, url: str) -> None:
        self._back = await anyio.to_thread.run_sync(self._location, url)

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
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


@asynccontextmanager
async def sdk_transport(url: str, scenario: str, context: dict[str, Any]) -> AsyncIterator[Any]:
    person = _Person()
    redirect = AnyUrl("http://localhost:3000/callback")
    known = None
    if "client_id" in context:
        known = OAuthClientInformationFull(
            client_id=context["client_id"],
            client_secret=context.get("client_secret"),
            redirect_uris=[redirect],
            token_endpoint_auth_method="client_secret_basic",
        )
    provider = OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="sdk", redirect_uris=[redirect]),
        _Memory(known),
        person.open,
        person.came_back,
        client_metadata_url=DOCUMENT if scenario == "auth/basic-cimd" else None,
    )
    async with (
        create_mcp_http_client(auth=provider) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


async def use_directly(client: Client) -> None:
    await client.list_tools()
    await client.call_tool(TOOL, {})


# mcpx --------------------------------------------------------------------------------------------------------------


def auth_config(scenario: str, context: dict[str, Any]) -> dict[str, Any] | None:
    """What a user writes down; None: nothing, mcpx finds out."""
    if scenario == "auth/basic-cimd":
        return {"client_id": DOCUMENT}
    if "client_id" in context:
        return {key: context[key] for key in ("client_id", "client_secret") if key in context}
    return None


class Looking:
    """Somebody in front of a gateway: looks what it says, opens what it wants opened."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._opened: set[str] = set()

    async def about(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "mcpx", "servers", str(self._gateway.file), "--json"]
        done = await anyio.to_thread.run_sync(
            lambda: subprocess.run(command, env=self._gateway.env, capture_output=True, timeout=20, check=False)
        )
        return json.loads(done.stdout)["servers"][0]

    async def page(self, *, or_connected: bool) -> str | None:
        """A page that nobody has opened yet; None: there is none, and will not be."""
        with anyio.move_on_after(WAIT):
            while True:
                about = await self.about()
                url = about.get("auth_url")
                if url and url not in self._opened:
                    self._opened.add(url)
                    return url
                if or_connected and about["status"] == "connected":
                    return None
                if "nobody can sign in" in (about["last_error"] or ""):
                    return None
                await anyio.sleep(0.05)
        return None

    @staticmethod
    async def open(url: str) -> bool:
        """Whether that signed us in."""

        def get() -> int:
            with suppress(HTTPError), urlopen(url, timeout=10) as answer:
                return answer.status
            return 400

        return await anyio.to_thread.run_sync(get) == 200

    async def sign_in(self, *, or_connected: bool = True) -> bool:
        url = await self.page(or_connected=or_connected)
        return url is not None and await self.open(url)


async def use_through(client: Client, someone: Looking) -> None:
    """List and call as a host does whose user signs in when it is wanted, and tries again."""
    for _ in range(MOST_PAGES):
        with suppress(MCPError):
            if TOOL in [tool.name for tool in (await client.list_tools()).tools]:
                break
        if not await someone.sign_in():
            about = await someone.about()
            if about["status"] != "connected":
                return
        await _listed(client)
    for _ in range(MOST_PAGES):
        with suppress(MCPError):
            result = await client.call_tool(TOOL, {})
            if not result.is_error:
                return
        if not await someone.sign_in(or_connected=False):
            return


async def _listed(client: Client) -> None:
    """A moment for mcpx to connect again."""
    with anyio.move_on_after(WAIT):
        while True:
            with suppress(MCPError):
                if (await client.list_tools()).tools:
                    return
            await asyncio.sleep(0.05)
