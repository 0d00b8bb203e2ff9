"""What `connect` and `disconnect` share: which clients are meant, and one change shown, asked for,
made and told."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpx.cli import codes
from mcpx.cli.output import Style, agreed, can_ask, plain, print_json, shown, styled
from mcpx.cli.parsing import near
from mcpx.clients.catalogue import Client, client, clients, home_folder
from mcpx.clients.changes import Change, make
from mcpx.clients.ledger import Ledger, new_id
from mcpx.clients.showing import difference
from mcpx.core.saving import Overtaken
from mcpx.model.errors import ConfigError
from mcpx.model.state import state_folder

ATTEMPTS = 5
"""How often a file that others write at the same time is read anew, where nobody was asked."""


def named(words: Sequence[str]) -> list[Client]:
    """The clients that are meant, each once. Raises `ConfigError`."""
    found: dict[str, Client] = {}
    for word in words:
        known = client(word)
        if known is None:
            names = [each.id for each in clients()]
            meant = near(word.lower(), [*names, *(each.name.lower() for each in clients())])
            by_name = client(meant) if meant else None
            hint = f"did you mean {by_name.id}?" if by_name else f"there is {', '.join(names)}"
            raise ConfigError([f"error: no client is called {plain(word, 40)!r}; {hint}"])
        found[known.id] = known
    return list(found.values())


def short(path: Path | str) -> str:
    """With ~ for the home folder."""
    text, home = str(path), str(home_folder())
    return f"~{text[len(home) :]}" if text.startswith(home + os.sep) else text


@dataclass
class Told:
    """What came of each change, and how the command ends."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    code: int = codes.DONE

    def worse(self, code: int) -> None:
        self.code = max(self.code, code)


class Hand:
    """Makes changes as the options want it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.json: bool = options.json
        self.dry: bool = options.dry_run
        self._yes: bool = options.yes
        self.replace: bool = getattr(options, "replace", False)
        self.asks = not self.json and not self.dry and not self._yes
        """Whether the user is asked about each change."""
        self.ledger = Ledger(state_folder(os.environ))
        self.project = Path.cwd()
        self.run = new_id("run")
        self.told = Told()
        if not self.dry and not self._yes and (self.json or not can_ask()):
            raise ConfigError(
                [
                    "error: nobody can be asked here; say --yes to write, or --dry-run to see "
                    "what would be"
                ]
            )

    def say(self, line: str, style: Style | None = None) -> None:
        if not self.json:
            sys.stdout.write(styled(shown(line), style) + "\n")

    def each(self, things: Iterable[Any], do: Callable[[Any], None]) -> int:
        """One after the other; what is wrong with one does not keep the others back."""
        several = list(things)
        for thing in several:
            try:
                do(thing)
            except ConfigError as error:
                if len(several) == 1:
                    raise
                self.told.rows.append({"status": "failed", "error": "\n".join(error.problems)})
                self.told.worse(codes.MISTAKE)
                if not self.json:
                    sys.stdout.flush()
                    sys.stderr.write("\n\n".join(error.problems) + "\n\n")
        return self.done()

    def done(self) -> int:
        if self.json:
            print_json({"clients": self.told.rows})
        return self.told.code

    def row(self, change: Change, status: str, **more: Any) -> None:
        place, known = change.place, change.client
        about = {
            "client": known.id,
            "name": known.name,
            "file": str(change.file),
            "scope": place.scope,
        }
        self.told.rows.append({**about, "status": status, **more})

    def carry_out(
        self, plan: Callable[[], Change], question: str, doing: str, **more: Any
    ) -> tuple[Change, Path | None] | None:
        """The change that was made, and the copy that was kept; None: it was not. What is planned
        anew when somebody else was quicker is made only where nobody was shown something else."""
        change = plan()
        self._show(change)
        if self.dry:
            self.row(change, f"would {doing}", diff=difference(change), **more)
            return None
        if not self._yes and not agreed(question, default=True):
            self.say("left as it was\n")
            self.row(change, "left")
            self.told.worse(codes.FAILED)
            return None
        for _ in range(ATTEMPTS):
            try:
                return change, make(change, self.ledger, self.run, self.project)
            except Overtaken:
                if not self._yes:
                    break
                change = plan()
        raise ConfigError(
            [
                f"error: {change.file} was changed by somebody else meanwhile; nothing was "
                "changed, try again"
            ]
        )

    def _show(self, change: Change) -> None:
        if self.json:
            return
        for line in difference(change).splitlines():
            colours: dict[str, Style] = {"+": "green", "-": "red", "@": "cyan"}
            style = "bold" if line.startswith(("+++ ", "--- ")) else colours.get(line[:1])
            self.say(line, style)
