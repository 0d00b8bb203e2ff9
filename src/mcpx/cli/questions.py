"""What a server asks while a call runs, put to whoever sits at the terminal: fields of a form, or
an address to open.

Promised: without a terminal it is declined, and said; Ctrl-D declines, Ctrl-C interrupts the call.
What is typed is what the form's schema wants, or asked again. Nothing is opened without a yes.
"""

import asyncio
import sys
from typing import Any

from mcpx.cli.output import Waiting, can_ask, plain, printable, shown, styled
from mcpx.cli.running import warn
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, RpcError

OURS = "mcpx"
"""Who asks where a rule wants a person's word."""
DECLINED: Json = {"action": "decline"}
_TRUE, _FALSE = ("y", "yes", "true"), ("n", "no", "false")


class Questions:
    """Answers `elicitation/create`, one question at a time."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._turn = asyncio.Lock()

    async def __call__(self, server: str, params: Json) -> Json:
        message = params.get("message")
        text = message if isinstance(message, str) else ""
        self._waiting.clear()
        if not can_ask():
            if server == OURS:  # then the call waits for `mcpx approve`
                raise RpcError(METHOD_NOT_FOUND, "nobody sits here")
            sys.stderr.write(
                f"{plain(server) or 'a server'} asks: {plain(text)}; declined: nobody sits here\n"
            )
            return dict(DECLINED)
        async with self._turn:
            who = "" if server == OURS else f"{plain(server) or 'The server'} asks: "
            sys.stderr.write(f"{styled(who, 'bold', sys.stderr)}{shown(text)}\n")
            try:
                if params.get("mode") == "url":
                    return await _visit(str(params.get("url") or ""))
                return await _form(as_object(params.get("requestedSchema")))
            except EOFError:
                sys.stderr.write("\ndeclined\n")
                return dict(DECLINED)


async def _visit(url: str) -> Json:
    sys.stderr.write(f"  {printable(url)}\n")
    if not await _yes("  Done there? [y/N] "):
        return dict(DECLINED)
    return {"action": "accept"}


async def _form(schema: Json) -> Json:
    properties = as_object(schema.get("properties"))
    if not properties and not await _yes("  Agreed? [y/N] "):
        return dict(DECLINED)
    required = as_list(schema.get("required"))
    content: Json = {}
    for name, about in properties.items():
        value = await _ask_for_field(name, as_object(about), name in required)
        if value is not None:
            content[name] = value
    return {"action": "accept", "content": content}


async def _ask_for_field(name: str, about: Json, required: bool) -> Any:
    """Ask until the value fits. An empty line means the default, or no value if optional."""
    default, choices = about.get("default"), _choices(about)
    notes = [_kind(about, choices)]
    if default is not None:
        notes.append(f"default {plain(str(default))}")
    elif not required:
        notes.append("may be left out")
    description = about.get("description")
    if isinstance(description, str):
        sys.stderr.write(styled(f"  {plain(description)}\n", "dim", sys.stderr))
    title = plain(str(about.get("title") or name))
    while True:
        text = await read_line(f"  {title} ({', '.join(notes)}): ")
        if not text and (default is not None or not required):
            return default
        problem = "it has to be given; Ctrl-D declines"
        if text:
            value, problem = _parsed(text, about, choices)
            if not problem:
                return value
        warn(f"  {problem}")


def _choices(about: Json) -> list[str]:
    """The values of an enum, with or without titles."""
    items = as_object(about.get("items"))
    values = as_list(about.get("enum")) or as_list(items.get("enum"))
    titled = about.get("oneOf") or items.get("anyOf") or items.get("oneOf")
    values = values or [as_object(each).get("const") for each in as_list(titled)]
    return list(map(str, values))


def _kind(about: Json, choices: list[str]) -> str:
    kind = str(about.get("type") or "string")
    if choices:
        several = ", several with commas" * (kind == "array")
        return f"{' | '.join(map(plain, choices))}{several}"
    names = {"boolean": "y/n", "integer": "whole number"}
    return names.get(kind) or plain(str(about.get("format") or kind))


def _parsed(text: str, about: Json, choices: list[str]) -> tuple[Any, str]:
    """The value, and an error message or an empty text."""
    kind = about.get("type")
    if kind == "array":
        values = [part.strip() for part in text.split(",") if part.strip()]
        for value in values:
            if choices and value not in choices:
                return values, f"{value!r} is none of them"
        return values, ""
    if choices:
        problem = f"it is one of {', '.join(map(plain, choices))}"
        return text, problem * (text not in choices)
    if kind == "boolean":
        word = text.lower()
        return word in _TRUE, "say y or n" * (word not in (*_TRUE, *_FALSE))
    parse = {"integer": int, "number": float}.get(str(kind), str)
    try:
        return parse(text), ""
    except ValueError:
        return None, f"it is a {'whole ' * (kind == 'integer')}number"


async def _yes(question: str) -> bool:
    return (await read_line(question)).lower() in ("y", "yes")


async def read_line(prompt: str) -> str:
    """One line of the terminal, without a thread that would outlive Ctrl-C. Raises EOFError."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(sys.stdin.readline())

    try:
        loop.add_reader(number, read)
    except (NotImplementedError, PermissionError):  # Windows
        return (await asyncio.to_thread(sys.stdin.readline)).strip()
    try:
        line = await typed
    finally:
        loop.remove_reader(number)
    if not line:
        raise EOFError
    return line.strip()
