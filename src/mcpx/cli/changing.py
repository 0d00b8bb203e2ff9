"""What the commands that change a config share: which file, what would change, writing it, and
telling the gateway that runs on it.

Promised: what is shown holds no secret; a gateway that runs has taken the change up, or said why
not, when the command ends. Nothing is written where something is wrong.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpx.cli import codes
from mcpx.cli.output import Waiting, plain, shown, styled
from mcpx.cli.running import result_of
from mcpx.core.alone import AUTHOR, Alone, Proposal
from mcpx.core.saving import Unwritable
from mcpx.front.control import ask, socket_path
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.model.state import state_folder
from mcpx.wire.channels import is_taken


@dataclass(frozen=True, slots=True)
class Subject:
    """The configuration that is changed."""

    alone: Alone
    state: Path
    env: str | None

    @property
    def path(self) -> Path:
        return self.alone.where.path

    @property
    def told(self) -> str:
        return plain(str(self.path), 4096)

    @property
    def runs(self) -> bool:
        """Whether a gateway seems to run on it."""
        return is_taken(socket_path(self.state, self.path, self.env))


def subject(path: Path, env: str | None) -> Subject:
    """`path`: absolute."""
    state = state_folder(os.environ)
    return Subject(Alone(path, os.environ, env, state), state, env)


def to_make(options: argparse.Namespace) -> Path:
    """The config to add to; one that is not there yet is made: the one that was named, or the
    user's own."""
    from mcpx.cli.target import found, named
    from mcpx.config.locate import own_file

    name = named(options) or os.environ.get("MCPX_CONFIG")
    if name and not os.path.exists(os.path.expanduser(name)):
        path = Path(os.path.abspath(os.path.expanduser(name)))
        if path.suffix.lower() not in (".yaml", ".yml"):
            raise ConfigError(
                [f"error: {plain(name)} does not exist; one that is made is called .yaml"]
            )
        return path
    path = found(options)
    return own_file(os.environ) if path is None else Path(os.path.abspath(path))


def print_change(proposal: Proposal) -> None:
    """What is new, or what differs where something goes."""
    for file in proposal.files:
        lines = file.diff.splitlines()
        body = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        sys.stdout.write(f"{plain(str(file.path), 4096)}:\n")
        only_new = all(line.startswith(("+", " ", "\\")) for line in body)
        for line in body:
            if only_new and line.startswith("+"):
                sys.stdout.write(f"  {shown(line[1:])}\n")
            elif not only_new and line[:1] in "+-":
                sys.stdout.write(
                    f"  {styled(shown(line), 'green' if line.startswith('+') else 'red')}\n"
                )


def print_warnings(lines: tuple[str, ...] | list[str]) -> None:
    for line in lines:
        sys.stderr.write(f"warning: {plain(line, 1000)}\n")


def write(on: Subject, proposal: Proposal, message: str) -> Json:
    """Write it and have it taken up; what came of it. Raises `ConfigError`."""
    runs = on.runs
    on.alone.keep_before(proposal.written, runs=runs)
    try:
        on.alone.write(proposal)
    except Unwritable as error:
        raise ConfigError([f"error: {error}"]) from None
    answer = _told_gateway(on) if runs else None
    revision = on.alone.keep(proposal.plan, message)
    return {
        "config": str(on.path),
        "files": [str(path) for path in proposal.texts],
        "revision": revision,
        "plan": proposal.plan,
        "gateway": answer,
    }


def _told_gateway(on: Subject) -> Json | None:
    """The verdict of the gateway that runs; None: none does after all."""

    async def wait() -> Json | None:
        return await ask(socket_path(on.state, on.path, on.env), "reload", author=AUTHOR)

    with Waiting() as waiting:
        waiting.tell("the running gateway takes it up")
        return result_of(wait())


def print_written(result: Json, on: Subject) -> int:
    """What a running gateway made of it, and the way back; the exit code."""
    answer: Json | None = result["gateway"]
    code = codes.DONE
    if answer is None:
        sys.stdout.write(f"no gateway runs on it; start one: mcpx {on.told}\n")
    elif answer.get("ok"):
        sys.stdout.write(f"the running gateway has taken it up: {plain(str(answer.get('plan')))}\n")
    else:
        problems: list[Any] = answer.get("problems") or [answer.get("error")]
        sys.stderr.write("error: it is written, but the running gateway has not taken it up:\n")
        for problem in problems:
            sys.stderr.write(f"  {shown(str(problem))}\n")
        code = codes.FAILED
    if result["revision"] is not None and result["revision"] > 1:
        sys.stdout.write(f"undo: mcpx config rollback {result['revision'] - 1}{_named(on)}\n")
    return code


def _named(on: Subject) -> str:
    from mcpx.config.locate import find

    try:
        usual = find(None, os.environ, Path.cwd())
    except ConfigError:
        usual = None
    same = usual is not None and os.path.abspath(usual) == str(on.path)
    return "" if same else f" --config {on.told}"


def code_of(result: Json) -> int:
    answer = result["gateway"]
    return codes.DONE if answer is None or answer.get("ok") else codes.FAILED
