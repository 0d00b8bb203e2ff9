"""What somebody pasted, recognised: servers of any client's file, a command line, an address, an
OpenAPI document, a curl line. Whatever it is, the answer says what it was taken for, or what would
be understood.

Nothing is run, fetched or saved. A secret in what was pasted stays in its entry, with the advice to
have a variable.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from mcpx.admin.desk import Desk
from mcpx.admin.errors import plain
from mcpx.admin.routes.given import yaml_of
from mcpx.admin.shapes.servers import Operation, PasteResult, Recognised
from mcpx.config import Refused
from mcpx.config.edits import EditError
from mcpx.config.entries import RESERVED
from mcpx.config.lines import EXPECTED
from mcpx.config.recognising import (
    SECTIONS,
    Found,
    Names,
    Section,
    document_hint,
    is_curl,
    is_openapi,
    read,
    secrets_noted,
    title_of,
)
from mcpx.config.tool_filters import describe
from mcpx.config.tree import shorten
from mcpx.config.written import Written
from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError

UNDERSTOOD = (
    f"This was not recognised. What is understood: {EXPECTED}, an OpenAPI document, a curl line"
)
MOST = 500
"""Entries that are shown of one text; a configuration has a few dozen."""
MOST_OPERATIONS = 5_000
MOST_WARNINGS = 50


async def recognise(desk: Desk, text: str) -> PasteResult:
    text = plain(text)
    bare = text.strip()
    if is_curl(bare) and "curl" in desk.imports:
        return await _imported(desk, "curl", bare.removeprefix("$").strip())
    if is_openapi(bare) and "openapi" in desk.imports:
        return await _imported(desk, "openapi", text)
    try:
        found = await asyncio.to_thread(read, bare)
    except Refused as refused:
        return _nothing(
            "This cannot be read", [_placed(refused, index) for index in range(len(refused.told))]
        )
    except EditError as error:
        hint = f"; {error.hint}" if error.hint and EXPECTED not in error.hint else ""
        known = [] if "not recognised" in error.message or not bare else [f"{error.message}{hint}"]
        return _nothing(UNDERSTOOD, known)
    written = await desk.store.look()
    return await asyncio.to_thread(_told, found, written)


def _told(found: Found, written: Written) -> PasteResult:
    pasted = found.pasted
    left_out = [
        f"{shorten(each.name)!r} is left out: {shorten(each.reason, 300)}"
        for each in pasted.left_out
    ]
    for name, patterns in found.hidden_tools.items():
        told = f"tools: {shorten(describe(patterns), 200)}"
        left_out.append(
            f"{shorten(name)!r} hides tools there ({told}); add a deny rule to hide them here"
        )
    warnings = [*left_out, *found.warnings, *secrets_noted(found.entries)]
    others = [
        *(["profiles"] if pasted.profiles else []),
        *(key for key in pasted.sections if key != "mode"),
    ]
    if others and pasted.kind == "native":
        warnings.append(
            f"only servers, commands and auth configs are taken here, not {', '.join(others)}"
        )
    if len(found.entries) > MOST:
        warnings.append(f"only the first {MOST} of {len(found.entries)} are shown")
    kind: Literal["servers", "command_line", "url"] = "servers"
    if pasted.kind == "command":
        kind = "command_line"
    elif pasted.kind == "url":
        kind = "url"
        warnings += document_hint(found.entries)
    return PasteResult(
        kind=kind,
        title=title_of(found),
        entries=recognised(found.entries[:MOST], written),
        operations=[],
        warnings=warnings[:MOST_WARNINGS],
    )


def recognised(entries: Sequence[tuple[Section, Json]], written: Written) -> list[Recognised]:
    taken = {section: {entry.name for entry in written.entries(section)} for section in SECTIONS}
    names = {section: Names([*taken[section], *RESERVED]) for section in SECTIONS}
    told: list[Recognised] = []
    for section, entry in entries:
        is_taken = entry["name"] in taken[section]
        free = names[section].free(entry["name"]) if is_taken else None
        told.append(
            Recognised(
                section=section, entry=entry, yaml=yaml_of(entry), taken=is_taken, free_name=free
            )
        )
    return told


def _placed(refused: Refused, index: int) -> str:
    told = refused.told[index]
    where = f"line {told.line}, column {told.column}: " if told.line else ""
    return f"{where}{told.message}" + (f"; {told.hint}" if told.hint else "")


def _nothing(title: str, warnings: list[str]) -> PasteResult:
    return PasteResult(
        kind="nothing", title=title, operations=[], warnings=warnings[:MOST_WARNINGS]
    )


# Other people's descriptions of requests
# ----------------------------------------------------------------------------


async def _imported(desk: Desk, kind: Literal["openapi", "curl"], text: str) -> PasteResult:
    try:
        made: Json = await desk.imports[kind](text=text)
    except ConfigError as error:
        what = "an OpenAPI document" if kind == "openapi" else "a curl line"
        problems = [line.removeprefix("error: ") for line in error.problems]
        return _nothing(f"This looks like {what}, but nothing can be made of it", problems)
    written = await desk.store.look()
    sections: tuple[Section, ...] = ("auth_configs", "commands")
    entries: list[tuple[Section, Json]] = [
        (section, as_object(each)) for section in sections for each in made[section]
    ]
    operations = [Operation(**each) for each in made["operations"][:MOST_OPERATIONS]]
    title, number = "A curl line: one HTTP command", len(made["operations"])
    if kind == "openapi":
        called = f" “{made['title']}”" if made["title"] else ""
        title = f"An OpenAPI document{called}: {number} operations to pick from"
        if number == 1:
            title = f"An OpenAPI document{called}: 1 operation to pick from"
    told: list[Any] = made["warnings"]
    return PasteResult(
        kind=kind,
        title=title,
        entries=await asyncio.to_thread(recognised, entries[:MOST], written),
        operations=operations,
        warnings=[str(line) for line in told][:MOST_WARNINGS],
    )
