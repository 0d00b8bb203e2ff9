"""`mcpx read` and `mcpx prompt`: list or get resources and prompts."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcpx.cli import arguments, results
from mcpx.cli.codes import DONE, MISTAKE, PARTIAL, TIMED_OUT
from mcpx.cli.gateway_client import Client, Needs, connected, report_down
from mcpx.cli.output import Cell, Output, Table, Waiting, counted, plain, print_json, say, styled
from mcpx.cli.parsing import near
from mcpx.cli.running import result_of
from mcpx.cli.target import Target
from mcpx.library.values import Content, Message, Prompt, Resource
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import RpcError

if TYPE_CHECKING:
    from mcpx.config import Config

NOT_FOUND = (-32002, -32602)
_RESOURCE_KEYS = ("uri", "server", "own_uri", "name", "description", "mime_type", "size")
_PROMPT_KEYS = ("name", "server", "prompt", "description")
_ARGUMENT_KEYS = ("name", "description", "required")


def read(options: argparse.Namespace) -> int:
    return result_of(_read(options))


async def _read(options: argparse.Namespace) -> int:
    out = Output(options.json)
    uri = options.uri
    with Waiting() as waiting:
        async with connected(Target.of(options), waiting) as client:
            if uri is None:
                return await _list_resources(client, options.json)
            try:
                async with asyncio.timeout(options.timeout):
                    raw = await client.request("resources/read", {"uri": uri})
            except TimeoutError:
                return _timed_out(out, plain(uri), options)
            except RpcError as error:
                if error.code in NOT_FOUND:
                    listed, _ = await _resources(client)
                    uris = [each for one in listed for each in (one.uri, one.own_uri)]
                    hint = _hint(uri, uris, "mcpx read")
                    return out.not_found(f"{error.message}; {hint}")
                return out.rpc_failure(error, await client.servers(), "")
    if options.json:
        print_json(raw)
    parts = map(as_object, as_list(raw.get("contents")))
    contents = [Content.of({"type": "resource", "resource": part}) for part in parts]
    saved: Sequence[Content] = ()
    if options.output is not None:
        saved = results.save(contents, options.output)
    for part in contents:
        if part not in saved and not options.json:
            results.print_block(part)
    return DONE


def _timed_out(out: Output, what: str, options: argparse.Namespace) -> int:
    message = f"{what} took longer than {options.timeout:g} s"
    return out.fail("timed_out", message, TIMED_OUT)


def _hint(name: str, known: Sequence[str], command: str) -> str:
    similar = near(name, list(known))
    if similar:
        return f"did you mean {similar}?"
    return f"{command} lists what there is"


async def _resources(client: Client) -> tuple[list[Resource], list[Resource]]:
    """Resources and resource templates."""
    listed = as_list((await client.request("resources/list")).get("resources"))
    templates = as_list((await client.request("resources/templates/list")).get("resourceTemplates"))
    made = [Resource.of(as_object(raw), template=True) for raw in templates]
    return [Resource.of(as_object(raw)) for raw in listed], made


async def _list_resources(client: Client, as_json: bool) -> int:
    resources, templates = await _resources(client)
    down = report_down(await client.servers())
    code = PARTIAL if down else DONE
    if as_json:
        facts = {
            "resources": [_facts(each, _RESOURCE_KEYS) for each in resources],
            "templates": [_facts(each, _RESOURCE_KEYS) for each in templates],
        }
        print_json({**facts, "down": down})
        return code
    table = Table("SERVER", "URI", "TYPE", "NAME")
    for resource in (*resources, *templates):
        name = plain(" · ".join(filter(None, (resource.name, resource.description))))
        kind = plain(resource.mime_type) or "-"
        table.add(Cell(plain(resource.server), "cyan"), plain(resource.own_uri, 400), kind, name)
    table.print()
    counts = [counted(len(resources), "resource")]
    if templates:
        counts.append(counted(len(templates), "template"))
    say(f"{', '.join(counts)}; mcpx read URI reads one")
    return code


def _facts(value: Any, keys: Sequence[str]) -> Json:
    facts = {key: getattr(value, key) for key in keys}
    if "mime_type" in facts:
        facts["mime_type"] = facts["mime_type"] or None
    return facts


# Prompts


def prompt(options: argparse.Namespace) -> int:
    return result_of(_prompt(options))


async def _prompt(options: argparse.Namespace) -> int:
    out, name = Output(options.json), options.name
    with Waiting() as waiting:
        async with connected(Target.of(options), waiting, _server_of(name)) as client:
            listed = as_list((await client.request("prompts/list")).get("prompts"))
            prompts = [Prompt.of(as_object(raw)) for raw in listed]
            if name is None:
                return _list_prompts(prompts, await client.servers(), options.json)
            found = next((each for each in prompts if name in (each.path, each.name)), None)
            if found is None:
                names = [each for one in prompts for each in (one.path, one.name)]
                report_down(await client.servers())
                hint = _hint(name, names, "mcpx prompt")
                return out.not_found(f"there is no prompt {plain(name)!r}; {hint}")
            given = arguments.given(options.arguments, {})
            problems = _problems(found, given)
            if problems:
                lines = [*problems, f"{found.path}({_signature(found)})"]
                return out.fail("bad_arguments", "\n  ".join(lines), MISTAKE)
            texts = {key: _text(value) for key, value in given.items()}
            try:
                async with asyncio.timeout(options.timeout):
                    params: Json = {"name": found.name, "arguments": texts}
                    raw = await client.request("prompts/get", params)
            except TimeoutError:
                return _timed_out(out, found.path, options)
            except RpcError as error:
                return out.rpc_failure(error, await client.servers(), found.server)
    if options.json:
        print_json(raw)
        return DONE
    messages = [Message.of(as_object(each)) for each in as_list(raw.get("messages"))]
    for message in messages:
        if len(messages) > 1 or message.role != "user":
            say(styled(f"[{plain(message.role)}]", "bold"))
        results.print_block(message.content)
    return DONE


def _server_of(prompt_name: str | None) -> Needs:
    """The server that the prompt's name begins with, if it is known."""

    def needs(config: "Config") -> Sequence[str] | None:
        names = [server.name for server in config.mcp_servers]
        matching = [name for name in names if (prompt_name or "").startswith(f"{name}.")]
        return sorted(matching, key=len)[-1:] or None

    return needs


def _text(value: object) -> str:
    """Arguments of prompts are text."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _problems(found: Prompt, given: Json) -> list[str]:
    names = [argument.name for argument in found.arguments]
    required = [argument.name for argument in found.arguments if argument.required]
    problems = [f"{name}: missing" for name in required if name not in given]
    for name in given:
        if names and name not in names:
            similar = near(name, names)
            problems.append(f"{name}: unknown" + f"; did you mean {similar}?" * bool(similar))
    return problems


def _signature(found: Prompt) -> str:
    return ", ".join(each.name + "?" * (not each.required) for each in found.arguments)


def _list_prompts(prompts: Sequence[Prompt], servers: Sequence[Json], as_json: bool) -> int:
    down = report_down(servers)
    code = PARTIAL if down else DONE
    if as_json:
        rows: list[Json] = []
        for each in prompts:
            listed = [_facts(argument, _ARGUMENT_KEYS) for argument in each.arguments]
            rows.append({**_facts(each, _PROMPT_KEYS), "arguments": listed})
        print_json({"prompts": rows, "down": down})
        return code
    table = Table("PROMPT", "ARGUMENTS", "DESCRIPTION")
    for each in prompts:
        description = plain(" ".join(each.description.split()))
        table.add(Cell(plain(each.path), "cyan"), plain(_signature(each)) or "-", description)
    table.print()
    say(f"{counted(len(prompts), 'prompt')}; mcpx prompt NAME key=value gets one")
    return code
