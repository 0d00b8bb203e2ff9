"""`mcpx add`: recognizes what the user has of a server, tries it, and adds it to the configuration.

Nothing is written that is invalid. A server that does not work is added only if the user confirms
it. If nothing is added, the files that were unpacked for it are deleted. No secret is printed.
"""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from mcpx.cli import codes
from mcpx.cli.add_input import (
    TEXT_SUFFIXES,
    Given,
    names_of,
    recognize,
)
from mcpx.cli.add_plan import AddPlan
from mcpx.cli.change import (
    ConfigChange,
    facts_of,
    path_to_write,
    print_change,
    print_warnings,
)
from mcpx.cli.output import Output, agreed, can_ask, plain, print_json
from mcpx.cli.running import result_of
from mcpx.cli.secret_references import (
    SecretReferences,
)
from mcpx.cli.trying import facts_of_trials, print_trial, try_all
from mcpx.config.lines import is_address
from mcpx.config.recognising import Section
from mcpx.config.server_names import CONTAINER_PROGRAMS
from mcpx.core.alone import Proposal
from mcpx.core.causes import args_with_version_1
from mcpx.core.trying import Tried
from mcpx.imports.registry import is_name
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError
from mcpx.processes.downloaders import LAUNCHERS, program_name

Entry = tuple[Section, Json]
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_CONTAINER_OPTIONS = ("-e", "--env", "--name")
"""Options of `docker run` that have the names of options of mcpx."""


def run(options: argparse.Namespace) -> int:
    words = _words_to_add(options)
    env = os.environ.get("MCPX_ENV") or None
    change = ConfigChange(path_to_write(options), env, options)
    given = recognize(words, options)
    given.warnings += _misplaced_options(given, options)
    addition = _Addition(change, given, options)
    try:
        return addition.run()
    finally:
        if not addition.is_done and given.folder is not None:
            shutil.rmtree(given.folder, ignore_errors=True)


# Words


def _known_options(options: argparse.Namespace) -> Iterable[str]:
    return [name for action in options.parser.actions for name in action.option_strings]


def _misplaced_options(given: Given, options: argparse.Namespace) -> list[str]:
    """A warning for the first option of mcpx that follows the program."""
    if options.words[:1] == ["--"]:
        return []
    program, *arguments = given.program or ("",)
    not_ours = ["--header"]
    if program_name(program) in CONTAINER_PROGRAMS:
        not_ours += _CONTAINER_OPTIONS
    known = [name for name in _known_options(options) if name == "-e" or name.startswith("--")]
    for word in arguments:
        option = word.partition("=")[0]
        if option in known and option not in not_ours:
            before = f"mcpx add {option} … {plain(program, 60)} …"
            hint = f"put options of mcpx before it: {before}"
            return [f"{option} follows the program and is passed to it; {hint}"]
    return []


def _words_to_add(options: argparse.Namespace) -> list[str]:
    """The words without options of mcpx. Options behind a command line belong to its program."""
    words = list[str](options.words)
    if _begins_with_name(words, options):
        options.name = options.name or words[0]
        options.parser.parse_args(words[1:], options)
        words = list[str](options.words)
    if words[:1] == ["--"]:
        return words[1:]
    if len(words) > 1 and _is_complete(words[0]):
        options.parser.parse_args(words[1:], options)
        for word in options.words:
            shown = f"{plain(words[0], 60)}, then {plain(word, 60)}"
            raise ConfigError([f"error: one thing at a time: {shown}"])
        return words[:1]
    return words


def _begins_with_name(words: Sequence[str], options: argparse.Namespace) -> bool:
    """Return True for `NAME [OPTIONS] -- PROGRAM` and `NAME [OPTIONS] URL`."""
    if len(words) < 2 or not _NAME.fullmatch(words[0]):
        return False
    if words[0] in LAUNCHERS or shutil.which(words[0]) is not None:
        return False
    second = words[1]
    if second == "--" or is_address(second):
        return True
    is_option = second.partition("=")[0] in _known_options(options)
    return is_option and ("--" in words or any(map(is_address, words)))


def _is_complete(word: str) -> bool:
    """Return True for a URL, a file, a text, and a name in a registry."""
    if word == "-" or is_address(word) or is_name(word):
        return True
    is_text = word.lstrip()[:1] in ("{", "[", '"') or len(word.split()) > 1
    return is_text or word.lower().endswith((*TEXT_SUFFIXES, ".mcpb", ".dxt"))


class _Addition:
    def __init__(self, change: ConfigChange, given: Given, options: argparse.Namespace) -> None:
        self._change = change
        self._given = given
        self._options = options
        self._plan = AddPlan(change, given, options)
        self.is_done = False
        self._asks = can_ask() and not change.yes

    def run(self) -> int:
        given, change, options = self._given, self._change, self._options
        plan = self._plan
        present = plan.choose_new()
        if not plan.entries:
            return self._report_present(present)
        plan.fill_settings()
        plan.leave_out_invalid()
        secrets = plan.secret_references()
        if not change.json:
            sys.stdout.write("".join(f"{line}\n" for line in _introduction(given)))
            print_warnings(given.warnings)
        if change.dry_run:
            secrets.place = options.secrets or secrets.place
        else:
            secrets.choose_place(options.secrets)
        given.warnings += secrets.warnings
        proposal = plan.propose(secrets)
        self._print_proposal(proposal, secrets)
        if change.dry_run:
            return self._report_dry_run(proposal, secrets)
        tried = self._try(proposal, secrets)
        if tried is not None and self._repair(tried):
            secrets = plan.secret_references(secrets.place)
            proposal = plan.propose(secrets)
            if not change.json:
                print_change(proposal)
            names = [name for name, each in tried.items() if not each.ok]
            tried |= result_of(try_all(self._plan.config_to_try(proposal, secrets), names))
        number = len(self._plan.entries)
        if tried is None or not self._choose_working(tried):
            if change.json:
                facts = {"added": [], "tried": facts_of_trials(tried or {})}
                print_json({**facts, "config": str(change.path)})
            return codes.FAILED
        if len(self._plan.entries) < number:
            secrets = plan.secret_references(secrets.place)
            proposal = plan.propose(secrets)
        result = change.commit(proposal, f"add {names_of(self._plan.entries)}", secrets)
        self.is_done = True
        return self._report(result, tried, secrets)

    # Trial

    def _try(self, proposal: Proposal, secrets: SecretReferences) -> dict[str, Tried] | None:
        """The outcome for each server, or None if the user does not want to go on."""
        names = self._plan.servers
        if self._options.no_test or not names:
            return {}
        is_strange = self._given.is_strange and self._asks
        if is_strange and not agreed("Start it once to see?", default=True):
            if agreed("Add it without trying it?"):
                return {}
            return None
        return result_of(try_all(self._plan.config_to_try(proposal, secrets), names))

    def _repair(self, tried: dict[str, Tried]) -> bool:
        """Change the arguments of servers if that fixes them and the user agrees."""
        is_repaired = False
        for index, (section, entry) in enumerate(self._plan.entries):
            name = str(entry["name"])
            cause = tried[name].cause if name in tried else None
            if cause is None or not cause.needs_python_sdk_1:
                continue
            connection = as_object(entry.get("connection"))
            args = [str(arg) for arg in as_list(connection.get("args"))]
            repaired = args_with_version_1(str(connection.get("command")), args)
            if repaired is None:
                continue
            problem = f"{plain(name, 60)} does not work. {plain(cause.cause, 500)}"
            fix = plain(cause.fix, 500)
            if self._change.yes and not self._change.json:
                sys.stderr.write(f"{problem} Next attempt: {fix}\n")
            question = f"{problem} To fix it, {fix}. Do so?"
            if self._change.yes or agreed(question, default=True):
                changed = {**entry, "connection": {**connection, "args": repaired}}
                self._plan.entries[index] = (section, changed)
                is_repaired = True
        return is_repaired

    def _choose_working(self, tried: dict[str, Tried]) -> bool:
        """Choose the entries to add after the trial. Returns False to add none."""
        if not self._change.json:
            for name, trial in tried.items():
                print_trial(name, trial)
        broken = [name for name, each in tried.items() if not each.ok and not each.needs_auth]
        if not broken or self._options.force:
            return not self._asks or agreed("Add it?", default=True)
        rest = [entry["name"] for section, entry in self._plan.entries if section != "auth_configs"]
        has_working = len(rest) > len(broken)
        if self._asks:
            names = ", ".join(plain(name, 60) for name in broken)
            problem = "It does not work."
            if has_working:
                problem = f"{names}: no."
            if agreed(f"{problem} Add it all the same?"):
                return True
            if not has_working or not agreed("Add the others?", default=True):
                return False
        elif not has_working:
            if not self._change.json:
                hint = (
                    "--force adds it although it does not work, --no-test adds it without a trial."
                )
                sys.stderr.write(f"Nothing was written. {hint}\n")
            return False
        reason = "it does not work; --force adds it all the same"
        self._given.left_out |= dict.fromkeys(broken, reason)
        self._plan.leave_out(broken)
        return True

    # Reports

    @property
    def _code(self) -> int:
        if self._given.left_out:
            return codes.FAILED
        return codes.DONE

    def _print_proposal(self, proposal: Proposal, secrets: SecretReferences) -> None:
        if self._change.json:
            return
        print_change(proposal)
        if secrets.variables:
            names = ", ".join(plain(name, 100) for name in secrets.variables)
            preposition = {"config": "into"}.get(secrets.place, "to")
            sys.stdout.write(f"secrets go {preposition} {secrets.shown_place}: {names}\n")
        for name, what in self._given.needs.items():
            sys.stdout.write(f"set {plain(name, 100)}: {plain(what, 200)}\n")
        print_warnings(secrets.warnings)

    def _report_present(self, names: list[str]) -> int:
        self._print_left_out()
        if not self._given.left_out:
            shown = ", ".join(plain(name, 100) for name in names)
            facts: Json = {"added": [], "there": names, "config": str(self._change.path)}
            line = f"{shown}: in {self._change.shown} already, saying the same; nothing was changed"
            Output(self._change.json).result(facts, line)
        return self._code

    def _print_left_out(self) -> None:
        for name, reason in self._given.left_out.items():
            sys.stderr.write(f"error: {plain(name, 100)!r} was not added: {plain(reason, 500)}\n")

    def _facts(self, secrets: SecretReferences) -> Json:
        given = self._given
        left_out = [{"name": name, "reason": reason} for name, reason in given.left_out.items()]
        return {
            "kind": given.kind,
            "title": given.title,
            "warnings": given.warnings,
            "secrets": {"place": secrets.place, "variables": list(secrets.variables)},
            "needs": given.needs,
            "left_out": left_out,
        }

    def _report_dry_run(self, proposal: Proposal, secrets: SecretReferences) -> int:
        if self._change.json:
            facts = {**self._facts(secrets), **facts_of(proposal), "facts": self._given.facts}
            print_json({**facts, "added": []})
        else:
            self._print_left_out()
            sys.stdout.write("nothing was written (--dry-run)\n")
        return self._code

    def _report(self, result: Json, tried: dict[str, Tried], secrets: SecretReferences) -> int:
        change, given = self._change, self._given
        new = " (a new file)" * (change.alone.is_new)
        lines = [f"added {names_of(self._plan.entries)} to {change.shown}{new}"]
        for name, trial in tried.items():
            if trial.needs_auth and name not in given.left_out:
                lines.append(f"sign in: mcpx auth login {plain(name, 100)}")
        for section, entry in self._plan.entries:
            if section == "mcp_servers" and entry.get("trust") == "quarantine":
                name = plain(str(entry["name"]), 100)
                lines.append(f"its tools are held back until: mcpx approve {name}")
        added = [
            {"section": section, "name": entry["name"]} for section, entry in self._plan.entries
        ]
        trials = facts_of_trials(tried)
        facts = {"added": added, **self._facts(secrets), "tried": trials}
        code = change.report(result, facts, *lines)
        if not change.json:
            self._print_left_out()
        return max(code, self._code)


def _introduction(given: Given) -> list[str]:
    return [given.title, *(f"  {fact}" for fact in given.facts)]
