"""One change of a configuration by a command: propose, show, ask, write, report.

The diff has no secrets. A gateway that runs on the configuration reloads it before the command
ends. Nothing is written if the new configuration is invalid.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpx.cli import codes
from mcpx.cli.output import Waiting, agreed, can_ask, plain, print_json, shown, styled
from mcpx.cli.running import result_of
from mcpx.config.edits import Edit
from mcpx.config.load import Texts
from mcpx.config.written import Written
from mcpx.core.alone import AUTHOR, Alone, Proposal
from mcpx.core.saving import Unwritable
from mcpx.front.control import ask, socket_path
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.model.state import state_folder
from mcpx.wire.channels import is_taken

if TYPE_CHECKING:
    from mcpx.cli.secret_references import SecretReferences


class ConfigChange:
    def __init__(self, path: Path, env: str | None, options: argparse.Namespace) -> None:
        """`path`: absolute."""
        self.path = path
        self.shown = plain(str(path), 4096)
        self.json: bool = options.json
        self.dry_run: bool = getattr(options, "dry_run", False)
        self.yes: bool = getattr(options, "yes", False)
        state = state_folder(os.environ)
        self._channel = socket_path(state, path, env)
        self.alone = Alone(path, os.environ, env, state)

    @cached_property
    def written(self) -> Written:
        return self.alone.look()

    def require_readable(self) -> Written:
        """Raises ConfigError with the mistakes of the files."""
        if self.written.told or self.written.layers is None:
            self.alone.propose([])
            raise ConfigError([f"error: {self.shown} cannot be read"])
        return self.written

    def propose(self, edits: list[Edit] | Texts, **variables: str) -> Proposal:
        return self.alone.propose(edits, self.written, **variables)

    def run(
        self,
        proposal: Proposal,
        message: str,
        *,
        question: str = "",
        secrets: "SecretReferences | None" = None,
    ) -> Json | int:
        """Show, ask, and write. Returns the outcome, or the exit code if nothing was written."""
        if not self.json:
            print_change(proposal)
        if self.dry_run:
            if self.json:
                print_json({"dry_run": True, **facts_of(proposal), "plan": proposal.plan})
            else:
                sys.stdout.write(f"would: {plain(proposal.plan)}\n")
                sys.stdout.write("nothing was written (--dry-run)\n")
            return codes.DONE
        asks = question and can_ask() and not self.yes and not self.json
        if asks and not agreed(question, default=True):
            return codes.FAILED
        return self.commit(proposal, message, secrets)

    def commit(
        self, proposal: Proposal, message: str, secrets: "SecretReferences | None" = None
    ) -> Json:
        """Write the files, and have a running gateway reload them. Raises ConfigError."""
        if secrets is not None:
            secrets.keep()
        try:
            return self._commit(proposal, message)
        except BaseException:
            if secrets is not None:
                secrets.undo()
            raise

    def _commit(self, proposal: Proposal, message: str) -> Json:
        runs = is_taken(self._channel)
        self.alone.keep_before(proposal.written, runs=runs)
        try:
            self.alone.write(proposal)
        except Unwritable as error:
            raise ConfigError([f"error: {error}"]) from None
        answer = None
        if runs:
            with Waiting() as waiting:
                waiting.tell("the running gateway takes it up")
                answer = result_of(ask(self._channel, "reload", author=AUTHOR))
        return {
            "config": str(self.path),
            "files": [str(path) for path in proposal.texts],
            "revision": self.alone.keep(proposal.plan, message),
            "plan": proposal.plan,
            "gateway": answer,
        }

    def report(self, result: Json, facts: Mapping[str, Any], *lines: str) -> int:
        """Print the outcome, and how to undo the change. Returns the exit code."""
        answer: Json | None = result["gateway"]
        is_applied = answer is None or bool(answer.get("ok"))
        code = codes.DONE
        if not is_applied:
            code = codes.FAILED
        if self.json:
            print_json({**facts, **result})
            return code
        out = [*lines]
        if answer is None:
            out.append(f"no gateway runs on it; start one: mcpx {self.shown}")
        elif is_applied:
            out.append(f"the running gateway has taken it up: {plain(str(answer.get('plan')))}")
        sys.stdout.write("".join(f"{line}\n" for line in out))
        if answer is not None and not is_applied:
            problems: list[Any] = answer.get("problems") or [answer.get("error")]
            sys.stderr.write("error: it is written, but the running gateway has not taken it up:\n")
            for problem in problems:
                sys.stderr.write(f"  {shown(str(problem))}\n")
        number = result["revision"]
        if number is not None and number > 1:
            sys.stdout.write(f"undo: mcpx config rollback {number - 1}{self._config_option()}\n")
        return code

    def _config_option(self) -> str:
        """`--config FILE` unless commands find the configuration without it."""
        from mcpx.config.locate import find

        try:
            usual = find(None, os.environ, Path.cwd())
        except ConfigError:
            usual = None
        if usual is not None and os.path.abspath(usual) == str(self.path):
            return ""
        return f" --config {self.shown}"


def path_to_write(options: argparse.Namespace) -> Path:
    """The configuration to add to: the named one, the one in use, or the user's own file."""
    from mcpx.cli.target import found, named
    from mcpx.config.locate import own_file

    name = named(options) or os.environ.get("MCPX_CONFIG")
    if name and not os.path.exists(os.path.expanduser(name)):
        path = Path(os.path.abspath(os.path.expanduser(name)))
        if path.suffix.lower() not in (".yaml", ".yml"):
            problem = f"error: {plain(name)} does not exist; one that is made is called .yaml"
            raise ConfigError([problem])
        return path
    return Path(os.path.abspath(found(options) or own_file(os.environ)))


def facts_of(proposal: Proposal) -> Json:
    return {"files": [{"path": str(file.path), "diff": file.diff} for file in proposal.files]}


def print_change(proposal: Proposal) -> None:
    """Print the new lines, or all changed lines if some are removed."""
    for file in proposal.files:
        lines = file.diff.splitlines()
        body = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        sys.stdout.write(f"{plain(str(file.path), 4096)}:\n")
        has_removed = any(line.startswith("-") for line in body)
        for line in body:
            if line.startswith("-"):
                sys.stdout.write(f"  {styled(shown(line), 'red')}\n")
            elif line.startswith("+") and has_removed:
                sys.stdout.write(f"  {styled(shown(line), 'green')}\n")
            elif line.startswith("+"):
                sys.stdout.write(f"  {shown(line[1:])}\n")


def print_warnings(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stderr.write(f"warning: {plain(line, 1000)}\n")
