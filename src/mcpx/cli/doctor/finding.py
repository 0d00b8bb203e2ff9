"""One thing that was looked at: how it is, where, and what to do about it."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mcpx.config import Config
    from mcpx.model.call import Json

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    check: str
    """Which kind of look: config, program, node, state, port, gateway, client, server."""
    what: str
    where: str = ""
    fix: str = ""
    """A command where there is one."""
    lines: tuple[str, ...] = ()
    """What was printed, as it came."""

    def at(self, where: str) -> "Finding":
        return replace(self, where=where)


@dataclass(frozen=True, slots=True)
class Case:
    """What is known before anything is looked at."""

    path: Path | None
    """The config; None: there is none, and the demo would run."""
    config: "Config | None"
    """None: there is none, or it cannot be used."""
    environ: dict[str, str]
    state: Path
    env: str | None
    status: "Json | None"
    """What the gateway that runs on this config says of itself; None: none does."""
    host: str = "127.0.0.1"
    port: int = 8000
    target: tuple[str, ...] = ()
    """Options that name this configuration in another command: `--config` and `--env`, as the user
    wrote them."""

    def command(self, *words: str) -> str:
        """A command line about the same configuration, for a shell."""
        return shlex.join(["mcpx", *words, *self.target])

    def serve_command(self, *words: str) -> str:
        """A command line that starts a gateway on the same configuration."""
        config = [] if self.path is None else [str(self.path)]
        env = [] if self.env is None else ["--env", self.env]
        return shlex.join(["mcpx", *config, *env, *words])


def ok(check: str, what: str, where: str = "", *, fix: str = "") -> Finding:
    return Finding("ok", check, what, where, fix)


def warning(check: str, what: str, where: str = "", *, fix: str = "") -> Finding:
    return Finding("warning", check, what, where, fix)


def error(
    check: str, what: str, where: str = "", *, fix: str = "", lines: tuple[str, ...] = ()
) -> Finding:
    return Finding("error", check, what, where, fix, lines)
