"""What somebody pasted, recognised: servers of any client's file, a command line, an address, an OpenAPI document, a
curl line. Whatever it is, the answer says what it was taken for, or what would be understood.

Nothing is run, fetched or saved. A secret in what was pasted stays in its entry, with the advice to have a variable.
"""

import asyncio
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from mcpx.admin.desk import Desk
from mcpx.admin.entries import yaml_of
from mcpx.admin.shapes.servers import Operation, PasteResult, Recognised
from mcpx.config import Refused
from mcpx.config.checks import DOTS, MAX_NAME
from mcpx.config.edits import EditError
from mcpx.config.entries import RESERVED
from mcpx.config.lines import EXPECTED, RUNNERS
from mcpx.config.masking import replaced
from mcpx.config.pasted import Pasted, import_text
from mcpx.config.tree import KeyPath, shorten, spell
from mcpx.config.written import Written
from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError

Section = Literal["mcp_servers", "commands", "auth_configs"]
SECTIONS: tuple[Section, ...] = ("auth_configs", "mcp_servers", "commands")
NOUNS: dict[Section, str] = {"mcp_servers": "server", "commands": "command", "auth_configs": "auth config"}
UNDERSTOOD = f"This was not recognised. What is understood: {EXPECTED}, an OpenAPI document, a curl line"
MOST = 500
"""Entries that are shown of one text; a configuration has a few dozen."""
MOST_OPERATIONS = 5_000
MOST_WARNINGS = 50
LONGEST_LINE = 65_536
_CURL = re.compile(r"(?:\$ ?)?curl(?:\.exe)?\s")
_OPENAPI = re.compile(r"""(?m)(?:^|[{,])[ \t]*["']?(?:openapi|swagger)["']?[ \t]*:[ \t]*["']?[23]\.""")
_ADD_MCP = re.compile(r"(?:code|code-insiders|codium|cursor)\s+--add-mcp(?:\s+|=)(?=\S)")
_DOCUMENT = re.compile(r"(?i)(?:openapi|swagger)[^/]*$|\.(?:ya?ml|json)$")


async def recognise(desk: Desk, text: str) -> PasteResult:
    bare = text.strip()
    if _CURL.match(bare) and "curl" in desk.imports:
        return await _imported(desk, "curl", bare.removeprefix("$").strip())
    if _OPENAPI.search(bare) and "openapi" in desk.imports:
        return await _imported(desk, "openapi", text)
    try:
        found = await asyncio.to_thread(read, bare)
    except Refused as refused:
        return _nothing("This cannot be read", [_placed(refused, index) for index in range(len(refused.told))])
    except EditError as error:
        hint = f"; {error.hint}" if error.hint and EXPECTED not in error.hint else ""
        known = [] if "not recognised" in error.message or not bare else [f"{error.message}{hint}"]
        return _nothing(UNDERSTOOD, known)
    written = await desk.store.look()
    return await asyncio.to_thread(_told, found, written)


@dataclass(frozen=True, slots=True)
class Found:
    """Entries by section, their names possible and each there once."""

    pasted: Pasted
    entries: list[tuple[Section, Json]]
    warnings: list[str] = field(default_factory=list[str])


def read(text: str) -> Found:
    """Raises `Refused` and `EditError`, as `pasted.import_text`."""
    line = _of_code(text)
    pasted = import_text(text if line is None else line)
    if pasted.kind == "command" and _is_prose(text):
        raise EditError("invalid", "this was not recognised", hint=f"expected {EXPECTED}")
    entries: list[tuple[Section, Json]] = []
    warnings = list(pasted.warnings)
    given = {"mcp_servers": pasted.servers, "commands": pasted.commands, "auth_configs": pasted.auth_configs}
    for section in SECTIONS:
        names = Names(RESERVED if section == "mcp_servers" else ())
        for entry in given[section]:
            own = entry.get("name")
            name = names.free(own if isinstance(own, str) else NOUNS[section].partition(" ")[0])
            if isinstance(own, str) and name != own:
                warnings.append(f"{NOUNS[section]} {shorten(own)!r} is called {name!r} here")
            entries.append((section, _in_order(entry, name)))
    return Found(pasted, entries, warnings)


def _in_order(entry: Json, name: str) -> Json:
    """As people write it: its name and the type of its connection first."""
    made: Json = {"name": name, **{key: its for key, its in entry.items() if key != "name"}}
    if "type" in (connection := as_object(entry.get("connection"))):
        made["connection"] = {"type": connection["type"], **connection}
    return made


def _is_prose(text: str) -> bool:
    """Whether it is words of a language rather than a program and its arguments."""
    first, *rest = text.split(None, 30)
    if not first.isascii() and not re.search(r"[/\\.=]", first):
        return True
    return first not in RUNNERS and bool(rest) and all(word.strip(",.!?").isalpha() for word in (first, *rest))


class Names:
    """Names that are possible, each once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def free(self, wanted: str) -> str:
        cleaned = (
            "".join(c for c in wanted if c.isprintable()).replace("::", "-").strip()[:MAX_NAME].strip() or "server"
        )
        name = cleaned = "server" if cleaned in DOTS else cleaned
        for number in count(2):
            if name not in self._taken:
                break
            name = f"{cleaned[: MAX_NAME - 8]}-{number}"
        self._taken.add(name)
        return name


def _of_code(text: str) -> str | None:
    """The JSON of `code --add-mcp '{…}'`."""
    found = _ADD_MCP.match(text)
    if found is None or len(text) > LONGEST_LINE:
        return None
    try:
        words = shlex.split(text[found.end() :])
    except ValueError:
        raise EditError("invalid", "a quote is left open", hint="close it") from None
    return words[0] if words else None


def _told(found: Found, written: Written) -> PasteResult:
    pasted = found.pasted
    warnings = [*found.warnings, *_secrets(found.entries)]
    others = [*(["profiles"] if pasted.profiles else []), *(key for key in pasted.sections if key != "mode")]
    if others and pasted.kind == "native":
        warnings.append(f"only servers, commands and auth configs are taken here, not {', '.join(others)}")
    if len(found.entries) > MOST:
        warnings.append(f"only the first {MOST} of {len(found.entries)} are shown")
    kind: Literal["servers", "command_line", "url"] = "servers"
    if pasted.kind == "command":
        kind = "command_line"
    elif pasted.kind == "url":
        kind = "url"
        warnings += _document_hint(found.entries)
    return PasteResult(
        kind=kind,
        title=_title(found),
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
        told.append(Recognised(section=section, entry=entry, yaml=yaml_of(entry), taken=is_taken, free_name=free))
    return told


def _title(found: Found) -> str:
    pasted = found.pasted
    if pasted.kind == "url":
        how = {"http": "streamable HTTP", "sse": "HTTP+SSE", "websocket": "a WebSocket"}
        connection = as_object(found.entries[0][1].get("connection"))
        return f"An address: a server over {how.get(str(connection.get('type')), 'HTTP')}"
    if pasted.kind == "command":
        return "A command line: a server that is started as a program"
    counts = [sum(section == each for section, _ in found.entries) for each in SECTIONS]
    told = [f"{n} {NOUNS[each]}{'s' * (n != 1)}" for each, n in zip(SECTIONS, counts, strict=True) if n]
    whose = {"vscode": "VS Code", "codex": "Codex", "opencode": "opencode", "zed": "Zed"}.get(pasted.dialect, "")
    of = f" of {whose}'s settings" if whose else " of a client's file" if pasted.kind == "client" else ""
    return f"{', '.join(told) or 'No servers'}{of}"


def _secrets(entries: Iterable[tuple[Section, Json]]) -> Iterator[str]:
    """That they would stand in the file as they are, each place once."""
    for section, entry in entries:
        places: dict[str, str] = {}

        def note(secret: str, path: KeyPath, places: dict[str, str] = places) -> str:
            where = path[2:]
            word = next((step for step in reversed(where) if isinstance(step, str)), "SECRET")
            places.setdefault(spell(where), re.sub(r"\W+", "_", word).upper().strip("_") or "SECRET")
            return secret

        replaced({section: [entry]}, note)
        for place, variable in places.items():
            what = f"{NOUNS[section]} {shorten(entry['name'])!r} holds a secret in {shorten(place)}"
            yield f"{what}: ${{{shorten(variable)}}} in its place keeps it out of the file"


def _document_hint(entries: Iterable[tuple[Section, Json]]) -> Iterator[str]:
    for _, entry in entries:
        url = str(as_object(entry.get("connection")).get("url"))
        if _DOCUMENT.search(url.partition("?")[0]):
            yield "if this is an OpenAPI document, import it as commands: nothing is fetched here"


def _placed(refused: Refused, index: int) -> str:
    told = refused.told[index]
    where = f"line {told.line}, column {told.column}: " if told.line else ""
    return f"{where}{told.message}" + (f"; {told.hint}" if told.hint else "")


def _nothing(title: str, warnings: list[str]) -> PasteResult:
    return PasteResult(kind="nothing", title=title, operations=[], warnings=warnings[:MOST_WARNINGS])


# Other people's descriptions of requests ----------------------------------------------------------------------------


async def _imported(desk: Desk, kind: Literal["openapi", "curl"], text: str) -> PasteResult:
    try:
        made: Json = await desk.imports[kind](text=text)
    except ConfigError as error:
        what = "an OpenAPI document" if kind == "openapi" else "a curl line"
        problems = [line.removeprefix("error: ") for line in error.problems]
        return _nothing(f"This looks like {what}, but nothing can be made of it", problems)
    written = await desk.store.look()
    sections: tuple[Section, ...] = ("auth_configs", "commands")
    entries: list[tuple[Section, Json]] = [(section, as_object(each)) for section in sections for each in made[section]]
    operations = [Operation(**each) for each in made["operations"][:MOST_OPERATIONS]]
    title, number = "A curl line: one HTTP command", len(made["operations"])
    if kind == "openapi":
        called = f" “{made['title']}”" if made["title"] else ""
        title = f"An OpenAPI document{called}: {number} operation{'s' * (number != 1)} to pick from"
    told: list[Any] = made["warnings"]
    return PasteResult(
        kind=kind,
        title=title,
        entries=await asyncio.to_thread(recognised, entries[:MOST], written),
        operations=operations,
        warnings=[str(line) for line in told][:MOST_WARNINGS],
    )
