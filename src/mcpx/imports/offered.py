"""What imports give to whoever shows it before it is saved: the operations to pick from, and the
entries made of them.

Promised: plain values; a mistake is a `ConfigError`; nothing is written, and nothing holds the
loop. Entries are as a configuration has them: a `$` of somebody else's text stays one.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcpx.imports.curl import Wishes as CurlWishes
from mcpx.imports.curl import import_curl
from mcpx.imports.document import Document, document_of, fetched
from mcpx.imports.made import Imported
from mcpx.imports.openapi import Choice, Operation, Wishes, import_openapi, operations
from mcpx.imports.servers import NoServer
from mcpx.imports.texts import one_line
from mcpx.imports.writing import fits, refuse_too_much, unexpanded
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

MOST_WARNINGS = 50
READS = ("get", "head", "options")


@dataclass(frozen=True, slots=True)
class Picked(Choice):
    """Those that somebody named, deprecated or not."""

    ids: frozenset[str] = frozenset()

    def refusal(self, operation: Operation) -> str | None:
        named = operation.title in self.ids or (operation.id and operation.id in self.ids)
        return None if named else "not picked"


async def openapi(
    *,
    text: str | None = None,
    url: str | None = None,
    environ: Mapping[str, str] | None = None,
    allow_private: bool = False,
    pick: Sequence[str] | None = None,
    prefix: str = "",
    server: str | None = None,
) -> Json:
    """The operations of a document, and what becomes of those that are picked; `pick` None: nothing
    yet."""
    if text is None and url is not None:
        text, url = await fetched(url, environ or {}, allow_private)
    wishes = Wishes(Picked(ids=frozenset(pick or ())), server, None, prefix, allow_private)
    return await asyncio.to_thread(_openapi, text or "", url, wishes, pick is not None)


def _openapi(text: str, url: str | None, wishes: Wishes, makes: bool) -> Json:
    document: Document = document_of(text, Path("document"), url)
    found = operations(document, wishes.prefix)
    ids = Counter(each.id for each in found)
    told = {
        "title": one_line(document.title, 200),
        "operations": [
            _told(each, each.id if each.id and ids[each.id] == 1 else each.title) for each in found
        ],
    }
    if not makes:
        return {**told, "commands": [], "auth_configs": [], "warnings": []}
    try:
        made = import_openapi(document, wishes, fits)
    except NoServer as reason:
        raise ConfigError([f"error: server: {reason}"]) from None
    refuse_too_much(made)
    return {**told, **_entries(made)}


def _told(operation: Operation, id: str) -> Json:
    return {
        "id": id,
        "method": operation.method.upper(),
        "path": operation.path,
        "summary": one_line(operation.summary, 200),
        "tags": list(operation.tags),
        "read_only": operation.method in READS,
    }


async def curl(*, text: str, name: str | None = None, allow_private: bool = False) -> Json:
    """One command line as one command."""
    made = await asyncio.to_thread(
        import_curl, [text], CurlWishes(name, allow_private=allow_private)
    )
    return {"title": "curl", "operations": [], **_entries(made)}


def _entries(made: Imported) -> Json:
    tree = unexpanded(made.tree)
    skipped = [f"{what}: {why}" for what, why in made.skipped if why != "not picked"]
    needs = [f"set the variable {name}: {what}" for name, what in made.variables.items()]
    warnings = [one_line(line, 300) for line in (*needs, *skipped, *made.notes)]
    return {
        "commands": tree["commands"],
        "auth_configs": tree.get("auth_configs", []),
        "warnings": warnings[:MOST_WARNINGS],
    }
