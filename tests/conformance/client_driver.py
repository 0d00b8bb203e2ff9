"""The client under test of the suite's client scenarios: `client_driver.py direct|through URL`.

The suite serves, names the scenario in the environment and appends its URL. `through` starts mcpx
with that URL as its only upstream and talks to it over stdio, so what the suite sees is the back
edge of mcpx; `direct` is the SDK's own client on the URL, for comparison. Both do the same.
"""

import json
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by path: let `fixtures` be found the way pytest finds it
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from pydantic import ValidationError

from conformance import signing_in
from kit.gateway import GatewayProcess

BOUND = 20.0
LATEST_OLDER = "2025-11-25"

warnings.simplefilter("ignore", MCPDeprecationWarning)

Elicit = Callable[[Any, types.ElicitRequestParams], Awaitable[types.ElicitResult]]
Drive = Callable[["Peer"], Awaitable[None]]


class Peer:
    """What a scenario has at hand: ways to connect, and the suite's context."""

    def __init__(
        self, target: Callable[[], Any], through: bool, version: str, context: dict[str, Any]
    ) -> None:
        self._target = target
        self.through = through
        self._mode = "legacy" if version <= LATEST_OLDER else "auto"
        self.context = context

    @asynccontextmanager
    async def connect(self, elicit: Elicit | None = None) -> AsyncIterator[Client]:
        async with Client(self._target(), mode=self._mode, elicitation_callback=elicit) as client:
            yield client


async def only_list(peer: Peer) -> None:
    async with peer.connect() as client:
        await client.list_tools()


async def add_numbers(peer: Peer) -> None:
    async with peer.connect() as client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def accept_defaults(peer: Peer) -> None:
    async def elicit(ctx: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        properties = params.requested_schema["properties"]
        content = {
            name: schema["default"] for name, schema in properties.items() if "default" in schema
        }
        return types.ElicitResult(action="accept", content=content)

    async with peer.connect(elicit) as client:
        await client.list_tools()
        await client.call_tool("test_client_elicitation_defaults", {})


async def reconnect(peer: Peer) -> None:
    async with peer.connect() as client:
        await client.list_tools()
        await client.call_tool("test_reconnection", {})


async def confirm_between_other_calls(peer: Peer) -> None:
    """Each flow to its end; while the first is being asked, an unrelated call goes out on the same
    connection."""
    connected: list[Client] = []

    async def elicit(ctx: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        await connected[0].call_tool("test_mrtr_unrelated", {})
        return types.ElicitResult(action="accept", content={"confirmed": True})

    async with peer.connect(elicit) as client:
        connected.append(client)
        await client.list_tools()
        await client.call_tool("test_mrtr_echo_state", {})
        await client.call_tool("test_mrtr_no_state", {})
        try:
            await client.call_tool("test_mrtr_no_result_type", {})
        except ValidationError:
            pass  # the SDK's client insists on `resultType`; the check is about not asking again


async def use_every_list(peer: Peer) -> None:
    async with peer.connect() as client:
        for tool in (await client.list_tools()).tools:
            await client.call_tool(tool.name, {})
        for resource in (await client.list_resources()).resources:
            await client.read_resource(str(resource.uri))
        for prompt in (await client.list_prompts()).prompts:
            await client.get_prompt(prompt.name)


async def call_as_told(peer: Peer) -> None:
    async with peer.connect() as client:
        await client.list_tools()
        for call in peer.context["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def call_whatever_is_listed(peer: Peer) -> None:
    """A tool whose `x-mcp-header` is invalid must not be callable: who lists it gets it called
    here.

    Through mcpx the list is taken as it came: `list_tools` would drop such tools on this side, and
    the verdict would be the SDK's again instead of the gateway's.
    """
    samples = {
        "string": "x",
        "number": 1,
        "integer": 1,
        "boolean": True,
        "object": {},
        "array": [],
        "null": None,
    }
    async with peer.connect() as client:
        if peer.through:
            listed = await client.session.send_request(
                types.ListToolsRequest(), types.ListToolsResult
            )
        else:
            listed = await client.list_tools()
        for tool in listed.tools:
            properties = tool.input_schema["properties"]
            try:
                await client.call_tool(
                    tool.name, {name: samples[p["type"]] for name, p in properties.items()}
                )
            except MCPError:
                pass  # refusing the call is as good as not listing the tool


async def echo_schema(peer: Peer) -> None:
    async with peer.connect() as client:
        listed = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        await client.call_tool("json_schema_echo", {"schema": listed["json_schema_2020_12_tool"]})


SCENARIOS: dict[str, Drive] = {
    "initialize": only_list,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": accept_defaults,
    "sse-retry": reconnect,
    "request-metadata": only_list,
    "sep-2322-client-request-state": confirm_between_other_calls,
    "http-standard-headers": use_every_list,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_whatever_is_listed,
    "json-schema-ref-no-deref": only_list,
    "json-schema-2020-12-preservation": echo_schema,
}


async def drive(target: Callable[[], Any], through: bool) -> None:
    with anyio.fail_after(BOUND):
        await SCENARIOS[scenario()](Peer(target, through, version(), context()))


def scenario() -> str:
    return os.environ["MCP_CONFORMANCE_SCENARIO"]


def version() -> str:
    return os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", LATEST_OLDER)


def context() -> dict[str, Any]:
    return json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


async def sign_in_directly(url: str) -> None:
    peer = Peer(
        lambda: signing_in.sdk_transport(url, scenario(), context()), False, version(), context()
    )
    try:
        with anyio.fail_after(BOUND):
            async with peer.connect() as client:
                await signing_in.use_directly(client)
    except Exception:
        if scenario() not in signing_in.STOPPED:
            raise


async def sign_in_through(target: Callable[[], Any], gateway: GatewayProcess) -> None:
    peer = Peer(target, True, version(), context())
    with anyio.fail_after(2 * BOUND):
        async with peer.connect() as client:
            await signing_in.use_through(client, signing_in.Looking(gateway))


def main() -> None:
    way, url = sys.argv[1:]
    signs_in = scenario().startswith("auth/")
    if way == "direct":
        if signs_in:
            anyio.run(sign_in_directly, url)
        else:
            anyio.run(drive, lambda: url, False)
        return
    server: dict[str, Any] = {"name": "suite", "connection": {"type": "http", "url": url}}
    config: dict[str, Any] = {
        "naming": {"uris": "plain"},
        "mcp_servers": [server],
        "global": {"startup_wait": 10, "first_start_wait": 10},
    }
    if signs_in and (auth := signing_in.auth_config(scenario(), context())) is not None:
        server["auth"] = {"ref": "suite"}
        config["auth_configs"] = [{"name": "suite", **auth}]
    with GatewayProcess(config, transport="stdio") as gateway:
        command, *args = gateway.stdio_command
        parameters = StdioServerParameters(command=command, args=args, env=gateway.env)

        def target() -> Any:
            return stdio_client(parameters)

        if signs_in:
            anyio.run(sign_in_through, target, gateway)
        else:
            anyio.run(drive, target, True)


if __name__ == "__main__":
    main()
