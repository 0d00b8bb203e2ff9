"""What a server asks while a call runs, put to whoever sits at the terminal: fields of a form, or
an address to open.

Promised: without a terminal it is declined, and said; Ctrl-D declines, Ctrl-C interrupts the call.
What is typed is what the form's schema wants, or asked again. Nothing is opened without a yes.
"""

import asyncio
import sys
from typing import Any

from mcpx.cli.output import Waiting, can_ask, plain, printable, shown, styled
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, RpcError

OURS = "mcpx"
"""Who asks where a rule wants a person's word."""
DECLINED: Json = {"action": "decline"}


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
    required = as_list(schema.get("required"))
    if not properties:
        return (
            {"action": "accept", "content": {}}
            if await _yes("  Agreed? [y/N] ")
            else dict(DECLINED)
        )
    content: Json = {}
    for name, about in properties.items():
        value = await _field(name, as_object(about), name in required)
        if value is not None:
            content[name] = value
    return {"action": "accept", "content": content}


async def _field(name: str, about: Json, required: bool) -> Any:
    """Asked until it fits; nothing typed is the default, or left out where it may be."""
    default, choices = about.get("default"), _choices(about)
    title = plain(str(about.get("title") or name))
    notes = [
        _kind(about, choices),
        *([] if default is None else [f"default {plain(str(default))}"]),
    ]
    notes += [] if required or default is not None else ["may be left out"]
    if isinstance(description := about.get("description"), str):
        sys.stderr.write(styled(f"  {plain(description)}\n", "dim", sys.stderr))
    while True:
        text = await _line(f"  {title} ({', '.join(notes)}): ")
        if not text:
            if default is not None or not required:
                return default
            sys.stderr.write("  it has to be given; Ctrl-D declines\n")
            continue
        value, problem = _typed(text, about, choices)
        if problem is None:
            return value
        sys.stderr.write(f"  {problem}\n")


def _choices(about: Json) -> list[str]:
    """Of an enum, also in the form that has titles."""
    items = as_object(about.get("items"))
    listed = as_list(about.get("enum")) or as_list(items.get("enum"))
    titled = (
        as_list(about.get("oneOf")) or as_list(items.get("anyOf")) or as_list(items.get("oneOf"))
    )
    return [str(each) for each in listed] or [str(as_object(each).get("const")) for each in titled]


def _kind(about: Json, choices: list[str]) -> str:
    if choices:
        several = ", several with commas" if about.get("type") == "array" else ""
        return f"{' | '.join(map(plain, choices))}{several}"
    kind = str(about.get("type") or "string")
    return {"boolean": "y/n", "integer": "whole number"}.get(
        kind, plain(str(about.get("format") or kind))
    )


def _typed(text: str, about: Json, choices: list[str]) -> tuple[Any, str | None]:
    kind = about.get("type")
    if kind == "array":
        values = [part.strip() for part in text.split(",") if part.strip()]
        wrong = [value for value in values if choices and value not in choices]
        return values, f"{wrong[0]!r} is none of them" if wrong else None
    if choices:
        return text, None if text in choices else f"it is one of {', '.join(map(plain, choices))}"
    if kind == "boolean":
        word = text.lower()
        known = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
        return known.get(word), None if word in known else "say y or n"
    if kind in ("integer", "number"):
        try:
            return (int(text) if kind == "integer" else float(text)), None
        except ValueError:
            return None, "it is a whole number" if kind == "integer" else "it is a number"
    return text, None


async def _yes(question: str) -> bool:
    return (await _line(question)).lower() in ("y", "yes")


async def _line(prompt: str) -> str:
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
