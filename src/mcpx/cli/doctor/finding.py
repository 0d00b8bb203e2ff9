"""What doctor knows before it examines anything, and what it finds."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mcpx.cli.output import Style, counted, plain, say, styled
from mcpx.cli.target import folder_of
from mcpx.config import Config, Server
from mcpx.model.call import Json

Level = Literal["ok", "warning", "error"]
_MARKS: dict[Level, tuple[str, str, Style]] = {
    "ok": ("✓", "ok", "green"),
    "warning": ("!", "!", "yellow"),
    "error": ("✗", "x", "red"),
}

_FIX_TITLES = {"ok": "next"}


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    where: str = ""
    fix: str = ""
    """A command, if possible."""
    lines: Sequence[str] = ()
    """Output of a program."""
    check: str = ""
    """config, program, node, state, port, gateway, client, or server; set by the examination."""


@dataclass(frozen=True, slots=True)
class Case:
    path: Path | None
    """The config. None: the demo would run."""
    config: Config | None
    """None if there is no config, or if it cannot be used."""
    environ: dict[str, str]
    state: Path
    env: str | None
    status: Json | None
    """Of the gateway that runs on this config. None if none runs."""
    host: str = "127.0.0.1"
    port: int = 8000
    words: Sequence[str] = ()
    """Options that name this configuration in another command, as the user wrote them."""

    @property
    def servers(self) -> Sequence[Server]:
        if self.config is None:
            return ()
        return self.config.mcp_servers

    @property
    def folder(self) -> Path:
        if self.path is None:
            return Path()
        return folder_of(self.path)

    def command(self, *words: str) -> str:
        """A command line about the same configuration, for a shell."""
        return shlex.join(["mcpx", *words, *self.words])

    def serve_command(self, *words: str) -> str:
        """A command line that starts a gateway on the same configuration."""
        options: list[str] = []
        if self.path is not None:
            options.append(str(self.path))
        if self.env is not None:
            options += ["--env", self.env]
        return shlex.join(["mcpx", *options, *words])


def ok(what: str, where: str = "", *, fix: str = "", check: str = "") -> Finding:
    return Finding("ok", what, where, fix, check=check)


def warning(what: str, where: str = "", *, fix: str = "", check: str = "") -> Finding:
    return Finding("warning", what, where, fix, check=check)


def error(what: str, where: str = "", *, fix: str = "", check: str = "") -> Finding:
    return Finding("error", what, where, fix, check=check)


def count(found: Sequence[Finding], level: Level) -> int:
    return sum(each.level == level for each in found)


def print_findings(found: Sequence[Finding]) -> None:
    is_ascii = "utf" not in (sys.stdout.encoding or "utf-8").lower()
    for each in found:
        *marks, style = _MARKS[each.level]
        line = f"{styled(marks[is_ascii], style)} {each.check}: {plain(each.what, 1000)}"
        if each.where:
            line += " " + styled(f"({plain(each.where, 300)})", "dim")
        say(f"{line}")
        for text in each.lines:
            say(f"    {styled('|', 'dim')} {plain(text)}")
        if each.fix:
            say(f"    {_FIX_TITLES.get(each.level, 'fix')}: {plain(each.fix, 1000)}")
    totals: list[str] = []
    if errors := count(found, "error"):
        totals.append(f"{errors} broken")
    if warnings := count(found, "warning"):
        totals.append(counted(warnings, "warning"))
    say(f"{', '.join(totals) or 'nothing is wrong'}")


def facts(case: Case, found: Sequence[Finding]) -> Json:
    return {
        "config": case.path and str(case.path),
        "running": case.status is not None,
        "broken": count(found, "error"),
        "warnings": count(found, "warning"),
        "findings": [
            {
                "level": each.level,
                "check": each.check,
                "what": each.what,
                "where": each.where or None,
                "fix": each.fix or None,
                "lines": list(each.lines),
            }
            for each in found
        ],
    }
