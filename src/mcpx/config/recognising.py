"""What somebody gave to add a server, told apart and made ready to be written: for the web UI's
paste and the command line's `add` alike.

Promised: entries by section under possible names, each there once, and a sentence that says what it
was taken for. Nothing is run, fetched or saved. A secret in what was given stays in its entry. Not
done here: what a text says (`pasted`), OpenAPI documents and curl lines (`imports`), which are only
told from the rest.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from mcpx.config.checks import DOTS, MAX_NAME
from mcpx.config.edits import EditError
from mcpx.config.entries import RESERVED
from mcpx.config.lines import EXPECTED, with_container_variables
from mcpx.config.masking import replaced
from mcpx.config.pasted import Pasted, import_text
from mcpx.config.server_names import name_of_connection
from mcpx.config.tree import KeyPath, shorten, spell
from mcpx.model.call import Json, as_object
from mcpx.processes.downloaders import LAUNCHERS

Section = Literal["mcp_servers", "commands", "auth_configs"]
SECTIONS: tuple[Section, ...] = ("auth_configs", "mcp_servers", "commands")
NOUNS: dict[Section, str] = {
    "mcp_servers": "server",
    "commands": "command",
    "auth_configs": "auth config",
}
LONGEST_LINE = 65_536
_CURL = re.compile(r"(?:\$ ?)?curl(?:\.exe)?\s")
_OPENAPI = re.compile(
    r"""(?m)(?:^|[{,])[ \t]*["']?(?:openapi|swagger)["']?[ \t]*:[ \t]*["']?[23]\."""
)
_ADD_MCP = re.compile(r"(?:code|code-insiders|codium|cursor)\s+--add-mcp(?:\s+|=)(?=\S)")
_DOCUMENT = re.compile(r"(?i)(?:openapi|swagger)[^/]*$|\.(?:ya?ml|json)$")


def is_curl(text: str) -> bool:
    return _CURL.match(text) is not None


def is_openapi(text: str) -> bool:
    return _OPENAPI.search(text) is not None


def names_document(url: str) -> bool:
    """Whether an address reads like that of an OpenAPI document rather than of a server."""
    return _DOCUMENT.search(url.partition("?")[0]) is not None


@dataclass(frozen=True, slots=True)
class Found:
    """Entries by section, their names possible and each there once."""

    pasted: Pasted
    entries: list[tuple[Section, Json]]
    warnings: list[str] = field(default_factory=list[str])
    hidden_tools: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Patterns of the tools that the client hides, by the name of the server."""


def read(text: str, *, is_line: bool = False) -> Found:
    """`is_line`: it is known to begin with a program. Raises `Refused` and `EditError`, as
    `pasted.import_text`."""
    line = _of_code(text)
    pasted = import_text(text if line is None else line)
    if pasted.kind == "command" and not is_line and _is_prose(text):
        raise EditError("invalid", "this was not recognised", hint=f"expected {EXPECTED}")
    entries: list[tuple[Section, Json]] = []
    hidden: dict[str, tuple[str, ...]] = {}
    warnings = list(pasted.warnings)
    given = {
        "mcp_servers": pasted.servers,
        "commands": pasted.commands,
        "auth_configs": pasted.auth_configs,
    }
    for section in SECTIONS:
        names = Names(RESERVED if section == "mcp_servers" else ())
        for found in given[section]:
            entry = with_container_variables(found) if section == "mcp_servers" else found
            own = entry.get("name")
            name = names.free(own if isinstance(own, str) else _default_name(section, entry))
            if isinstance(own, str) and name != own:
                warnings.append(f"{NOUNS[section]} {shorten(own)!r} is called {name!r} here")
            entries.append((section, _in_order(entry, name)))
            if section == "mcp_servers" and (patterns := pasted.hidden_tools.get(str(own))):
                hidden[name] = patterns
    return Found(pasted, entries, warnings, hidden)


def _default_name(section: Section, entry: Json) -> str:
    if section == "mcp_servers":
        return name_of_connection(as_object(entry.get("connection")))
    return NOUNS[section].partition(" ")[0]


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
    return (
        first not in LAUNCHERS
        and bool(rest)
        and all(word.strip(",.!?").isalpha() for word in (first, *rest))
    )


def possible(wanted: str) -> str:
    """What a stranger calls an entry, as it can be called here: nothing is looked up for it."""
    printable = [character for character in wanted if character.isprintable()]
    cleaned = "".join(printable).replace("::", "-")
    cleaned = re.sub(r"\$(?=[${])", "", cleaned).strip()[:MAX_NAME].strip()
    return "server" if not cleaned or cleaned in DOTS else cleaned


class Names:
    """Names that are possible, each once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def free(self, wanted: str) -> str:
        name = cleaned = possible(wanted)
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


def title_of(found: Found) -> str:
    pasted = found.pasted
    if pasted.kind == "url":
        how = {"http": "streamable HTTP", "sse": "HTTP+SSE", "websocket": "a WebSocket"}
        connection = as_object(found.entries[0][1].get("connection"))
        return f"An address: a server over {how.get(str(connection.get('type')), 'HTTP')}"
    if pasted.kind == "command":
        return "A command line: a server that is started as a program"
    counts = [sum(section == each for section, _ in found.entries) for each in SECTIONS]
    told = [
        f"{n} {NOUNS[each]}{'s' * (n != 1)}" for each, n in zip(SECTIONS, counts, strict=True) if n
    ]
    whose = {"vscode": "VS Code", "codex": "Codex", "opencode": "opencode", "zed": "Zed"}.get(
        pasted.dialect, ""
    )
    of = (
        f" of {whose}'s settings"
        if whose
        else " of a client's file"
        if pasted.kind == "client"
        else ""
    )
    return f"{', '.join(told) or 'No servers'}{of}"


def secrets_noted(entries: Iterable[tuple[Section, Json]]) -> Iterator[str]:
    """That they would stand in the file as they are, each place once."""
    for section, entry in entries:
        places: dict[str, str] = {}

        def note(secret: str, path: KeyPath, places: dict[str, str] = places) -> str:
            where = path[2:]
            word = next((step for step in reversed(where) if isinstance(step, str)), "SECRET")
            name = re.sub(r"\W+", "_", word).upper()
            places.setdefault(spell(where), name.strip("_") or "SECRET")
            return secret

        replaced({section: [entry]}, note, presumed=False)
        for place, variable in places.items():
            what = f"{NOUNS[section]} {shorten(entry['name'])!r} holds a secret in {shorten(place)}"
            yield f"{what}: ${{{shorten(variable)}}} in its place keeps it out of the file"


def document_hint(entries: Iterable[tuple[Section, Json]]) -> Iterator[str]:
    for _, entry in entries:
        url = str(as_object(entry.get("connection")).get("url"))
        if names_document(url):
            yield "if this is an OpenAPI document, import it as commands: nothing is fetched here"
