"""The servers of a client's file that the configuration has too.

A client that has mcpx and these servers has each of them twice. A server counts as a duplicate if
the configuration has an equal and enabled entry. `mcpx import` compares entries in the same way. No
file is written.
"""

from collections.abc import Mapping
from pathlib import Path

from mcpx.clients.taking.merging import There
from mcpx.clients.taking.reading import of_place
from mcpx.clients.texts import Reading
from mcpx.config.edits import EntrySection
from mcpx.config.environment import peek
from mcpx.config.tree import Tree, Unresolved
from mcpx.config.written import Written

SECTIONS: tuple[EntrySection, ...] = ("auth_configs", "mcp_servers", "commands")


def there_of(written: Written) -> There:
    """The entries of a configuration, for comparing."""
    entries: dict[EntrySection, dict[str, Tree]] = {}
    for section in SECTIONS:
        entries[section] = {
            name: written.native(section, index) for index, name in written.names(section)
        }
    layers = written.layers

    def resolve(text: str) -> str | None:
        if layers is None:
            return None
        found = peek(layers.environment, layers.written[0][0].trace, text)
        return None if isinstance(found, Unresolved) else str(found)

    return There(entries, resolve)


def duplicates(
    reading: Reading, there: There, environ: Mapping[str, str], project: Path
) -> dict[str, str]:
    """The enabled servers of a client's file that the configuration has too: its name there, and
    here."""
    found: dict[str, str] = {}
    servers = there.entries.get("mcp_servers", {})
    taken = of_place(reading.place, reading.file, reading.tree, reading.entries, environ, project)
    for given in taken.entries:
        if (
            given.section != "mcp_servers"
            or not given.enabled
            or reading.entries.get(given.name) is None
        ):
            continue
        same = there.same(given)
        if same is not None and servers[same].get("enabled") is not False:
            found[given.name] = same
    return found
