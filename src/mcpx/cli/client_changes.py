"""Changes of client files by `connect` and `disconnect`: show, ask, write, report."""

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mcpx.cli import codes
from mcpx.cli.output import Style, agreed, can_ask, plain, print_json, say, shown, styled
from mcpx.cli.parsing import near
from mcpx.cli.running import mistake, warn
from mcpx.clients.catalogue import Client, client, clients, home_folder
from mcpx.clients.changes import Change, make
from mcpx.clients.ledger import Ledger, new_id
from mcpx.clients.showing import difference
from mcpx.core.saving import Overtaken
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.model.state import state_folder

MAX_ATTEMPTS = 5
"""How often a change is planned again because another program writes the file."""
_COLORS: dict[str, Style] = {"+": "green", "-": "red", "@": "cyan"}
T = TypeVar("T")


def named_clients(words: Sequence[str]) -> list[Client]:
    """Raises ConfigError for an unknown client."""
    found: dict[str, Client] = {}
    for word in words:
        known = client(word)
        if known is None:
            raise mistake(f"no client is called {plain(word, 40)!r}; {_hint(word)}")
        found[known.id] = known
    return list(found.values())


def _hint(word: str) -> str:
    names = {name.lower(): each.id for each in clients() for name in (each.id, each.name)}
    similar = near(word.lower(), list(names))
    if similar:
        return f"did you mean {names[similar]}?"
    return f"there is {', '.join(each.id for each in clients())}"


def short(path: Path | str) -> str:
    """The path with ~ for the home folder."""
    text, home = str(path), str(home_folder())
    if text.startswith(home + os.sep):
        return f"~{text[len(home) :]}"
    return text


class ClientChanges:
    def __init__(self, options: argparse.Namespace) -> None:
        self.json: bool = options.json
        self.dry_run: bool = options.dry_run
        self._yes: bool = options.yes
        self.asks = not self.json and not self.dry_run and not self._yes
        self.ledger = Ledger(state_folder(os.environ))
        self.project = Path.cwd()
        self.rows: list[Json] = []
        self._run = new_id("run")
        self._code = codes.DONE
        if not self.dry_run and not self._yes and (self.json or not can_ask()):
            hint = "say --yes to write, or --dry-run to see what would be"
            raise mistake(f"nobody can be asked here; {hint}")

    def say(self, line: str, style: Style | None = None) -> None:
        if not self.json:
            say(styled(shown(line), style))

    def each(self, items: Iterable[T], do: Callable[[T], None]) -> int:
        """Change one file after the other. The failure of one does not affect the others."""
        listed = list(items)
        for item in listed:
            try:
                do(item)
            except ConfigError as error:
                if len(listed) == 1:
                    raise
                self.rows.append({"status": "failed", "error": "\n".join(error.problems)})
                self._code = codes.MISTAKE
                if not self.json:
                    warn("\n\n".join(error.problems) + "\n")
        return self.finish()

    def finish(self) -> int:
        if self.json:
            print_json({"clients": self.rows})
        return self._code

    def add_row(self, change: Change, status: str, **more: Any) -> None:
        row = {
            "client": change.client.id,
            "name": change.client.name,
            "file": str(change.file),
            "scope": change.place.scope,
            "status": status,
        }
        self.rows.append({**row, **more})

    def carry_out(
        self, plan: Callable[[], Change], question: str, doing: str, **more: Any
    ) -> tuple[Change, Path | None] | None:
        """The change that was made and the copy of the old file, or None if it was not made.

        If another program changes the file, the change is planned again, unless the user has
        confirmed a shown one.
        """
        change = plan()
        lines = difference(change)
        for line in lines.splitlines():
            style = _COLORS.get(line[:1])
            if line.startswith(("+++ ", "--- ")):
                style = "bold"
            self.say(line, style)
        if self.dry_run:
            self.add_row(change, f"would {doing}", diff=lines, **more)
            return None
        if not self._yes and not agreed(question, default=True):
            self.say("left as it was\n")
            self.add_row(change, "left")
            self._code = max(self._code, codes.FAILED)
            return None
        for _ in range(MAX_ATTEMPTS):
            try:
                return change, make(change, self.ledger, self._run, self.project)
            except Overtaken:
                if not self._yes:
                    break
                change = plan()
        raise mistake(
            f"{change.file} was changed by somebody else meanwhile; nothing was changed, try again"
        )
