"""`mcpx read` and `mcpx prompt`: resources and prompts, listed or got."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcpx.cli import arguments, results
from mcpx.cli.codes import MISTAKE, PARTIAL, TIMED_OUT
from mcpx.cli.gateway_client import Client, Needs, connected, report_down
from mcpx.cli.output import Cell, Output, Table, Waiting, counted, plain, print_json, styled
from mcpx.cli.parsing import near
from mcpx.cli.running import result_of
from mcpx.cli.target import Target
from mcpx.library.values import Content, Message, Prompt, Resource
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import RpcError

if TYPE_CHECKING:
    from mcpx.config import Config


def read(options: argparse.Namespace) -> int:
    return result_of(_read(options))


async def _read(options: argparse.Namespace) -> int:
    out = Output(options.json)
    with Waiting() as waiting:
        async with connected(Target.of(options), waiting) as client:
            if options.uri is None:
                return await _list_resources(client, options.json)
            try:
                async with asyncio.timeout(options.timeout):
                    raw = await client.request("resources/read", {"uri": options.uri})
            except TimeoutError:
                told = f"{plain(options.uri)} took longer than {options.timeout:g} s"
                return out.fail("timed_out", told, TIMED_OUT)
            except RpcError as error:
                if error.code in (-32002, -32602):
                    return out.not_found(await _meant(client, options.uri, error))
                return out.rpc_failure(error, await client.servers(), "")
    if options.json:
        print_json(raw)
    contents = [
        Content.of({"type": "resource", "resource": as_object(part)})
        for part in as_list(raw.get("contents"))
    ]
    saved = [] if options.output is None else results.save(contents, options.output)
    if not options.json:
        for part in contents:
            if part not in saved:
                results.print_block(part)
    return 0


async def _meant(client: Client, uri: str, error: RpcError) -> str:
    listed, _ = await _resources(client)
    close = near(uri, [name for resource in listed for name in (resource.uri, resource.own_uri)])
    return (
        f"{error.message}; {f'did you mean {close}?' if close else 'mcpx read lists what there is'}"
    )


async def _resources(client: Client) -> tuple[list[Resource], list[Resource]]:
    listed = as_list((await client.request("resources/list")).get("resources"))
    templates = as_list((await client.request("resources/templates/list")).get("resourceTemplates"))
    made = [Resource.of(as_object(raw), template=True) for raw in templates]
    return [Resource.of(as_object(raw)) for raw in listed], made


async def _list_resources(client: Client, as_json: bool) -> int:
    resources, templates = await _resources(client)
    down = report_down(await client.servers())
    if as_json:
        told = [_told(resource) for resource in resources]
        print_json(
            {
                "resources": told,
                "templates": [_told(template) for template in templates],
                "down": down,
            }
        )
        return PARTIAL if down else 0
    table = Table("SERVER", "URI", "TYPE", "NAME")
    for resource in (*resources, *templates):
        name = " · ".join(filter(None, (resource.name, resource.description)))
        uri = resource.own_uri
        table.add(
            Cell(plain(resource.server), "cyan"),
            plain(uri, 400),
            plain(resource.mime_type) or "-",
            plain(name),
        )
    table.print()
    templated = f", {counted(len(templates), 'template')}" if templates else ""
    sys.stdout.write(f"{counted(len(resources), 'resource')}{templated}; mcpx read URI reads one\n")
    return PARTIAL if down else 0


def _told(resource: Resource) -> Json:
    return {
        "uri": resource.uri,
        "server": resource.server,
        "own_uri": resource.own_uri,
        "name": resource.name,
        "description": resource.description,
        "mime_type": resource.mime_type or None,
        "size": resource.size,
    }


# Prompts
# --------------------------------------------------------------------------------------------------


def prompt(options: argparse.Namespace) -> int:
    return result_of(_prompt(options))


async def _prompt(options: argparse.Namespace) -> int:
    out = Output(options.json)
    with Waiting() as waiting:
        async with connected(Target.of(options), waiting, _only(options.name)) as client:
            listed = as_list((await client.request("prompts/list")).get("prompts"))
            prompts = [Prompt.of(as_object(raw)) for raw in listed]
            if options.name is None:
                return _list_prompts(prompts, await client.servers(), options.json)
            found = next((each for each in prompts if options.name in (each.path, each.name)), None)
            if found is None:
                close = near(
                    options.name, [name for each in prompts for name in (each.path, each.name)]
                )
                hint = f"did you mean {close}?" if close else "mcpx prompt lists what there is"
                report_down(await client.servers())
                return out.not_found(f"there is no prompt {plain(options.name)!r}; {hint}")
            given = arguments.given(options.arguments, {})
            if problem := _wrong(found, given):
                return out.fail("bad_arguments", problem, MISTAKE)
            params: Json = {
                "name": found.name,
                "arguments": {key: _text(value) for key, value in given.items()},
            }
            try:
                async with asyncio.timeout(options.timeout):
                    raw = await client.request("prompts/get", params)
            except TimeoutError:
                told = f"{found.path} took longer than {options.timeout:g} s"
                return out.fail("timed_out", told, TIMED_OUT)
            except RpcError as error:
                return out.rpc_failure(error, await client.servers(), found.server)
    if options.json:
        print_json(raw)
        return 0
    messages = [Message.of(as_object(each)) for each in as_list(raw.get("messages"))]
    for message in messages:
        if len(messages) > 1 or message.role != "user":
            sys.stdout.write(styled(f"[{plain(message.role)}]", "bold") + "\n")
        results.print_block(message.content)
    return 0


def _only(name: str | None) -> Needs:
    def needs(config: "Config") -> Sequence[str] | None:
        names = [server.name for server in config.mcp_servers]
        meant = [server for server in names if name is not None and name.startswith(f"{server}.")]
        return [max(meant, key=len)] if meant else None

    return needs


def _text(value: object) -> str:
    """Prompts take texts."""
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)


def _wrong(found: Prompt, given: Json) -> str | None:
    names = [argument.name for argument in found.arguments]
    missing = [
        argument.name
        for argument in found.arguments
        if argument.required and argument.name not in given
    ]
    problems = [f"{name}: missing" for name in missing]
    for name in given:
        if names and name not in names:
            close = near(name, names)
            problems.append(f"{name}: unknown{f'; did you mean {close}?' if close else ''}")
    if not problems:
        return None
    shape = ", ".join(
        f"{argument.name}{'' if argument.required else '?'}" for argument in found.arguments
    )
    return "\n  ".join([*problems, f"{found.path}({shape})"])


def _list_prompts(prompts: Sequence[Prompt], servers: Sequence[Json], as_json: bool) -> int:
    down = report_down(servers)
    if as_json:
        told = [
            {
                "name": each.name,
                "server": each.server,
                "prompt": each.prompt,
                "description": each.description,
                "arguments": [
                    {"name": a.name, "description": a.description, "required": a.required}
                    for a in each.arguments
                ],
            }
            for each in prompts
        ]
        print_json({"prompts": told, "down": down})
        return PARTIAL if down else 0
    table = Table("PROMPT", "ARGUMENTS", "DESCRIPTION")
    for each in prompts:
        shape = ", ".join(f"{a.name}{'' if a.required else '?'}" for a in each.arguments)
        table.add(
            Cell(plain(each.path), "cyan"),
            plain(shape) or "-",
            plain(" ".join(each.description.split())),
        )
    table.print()
    sys.stdout.write(f"{counted(len(prompts), 'prompt')}; mcpx prompt NAME key=value gets one\n")
    return PARTIAL if down else 0
