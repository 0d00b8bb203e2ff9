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
from dataclasses import replace

from mcpx.cli import codes
from mcpx.cli.add_input import (
    TEXT_SUFFIXES,
    Given,
    names_of,
    recognize,
    settings,
    values_by_key,
)
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
    Entries,
    SecretReferences,
    refer_to_secrets,
    replace_references,
    variables_beside,
)
from mcpx.cli.trying import facts_of_trials, print_trial, try_all
from mcpx.config import Config, Refused
from mcpx.config.checks import MAX_NAME
from mcpx.config.edits import Edit, PutEntry, SetSection
from mcpx.config.entries import RESERVED
from mcpx.config.lines import container_variables, is_address
from mcpx.config.recognising import NOUNS, Section, possible
from mcpx.config.server_names import CONTAINER_PROGRAMS
from mcpx.config.tool_filters import with_rules
from mcpx.core.alone import Proposal
from mcpx.core.causes import args_with_version_1
from mcpx.core.trying import Tried
from mcpx.imports.launch import Input
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
        self._entries: list[Entry] = []
        self.is_done = False
        self._asks = can_ask() and not change.yes

    def run(self) -> int:
        given, change, options = self._given, self._change, self._options
        present = self._choose_new(_customized(given, options))
        if not self._entries:
            return self._report_present(present)
        self._fill_settings()
        self._leave_out_invalid()
        secrets = self._secrets(given.secrets)
        if not change.json:
            sys.stdout.write("".join(f"{line}\n" for line in _introduction(given)))
            print_warnings(given.warnings)
        if change.dry_run:
            secrets.place = options.secrets or secrets.place
        else:
            secrets.choose_place(options.secrets)
        given.warnings += secrets.warnings
        proposal = self._propose(secrets)
        self._print_proposal(proposal, secrets)
        if change.dry_run:
            return self._report_dry_run(proposal, secrets)
        tried = self._try(proposal, secrets)
        if tried is not None and self._repair(tried):
            secrets = self._secrets_of_rest(secrets)
            proposal = self._propose(secrets)
            if not change.json:
                print_change(proposal)
            names = [name for name, each in tried.items() if not each.ok]
            tried |= result_of(try_all(self._config_to_try(proposal, secrets), names))
        number = len(self._entries)
        if tried is None or not self._choose_working(tried):
            if change.json:
                facts = {"added": [], "tried": facts_of_trials(tried or {})}
                print_json({**facts, "config": str(change.path)})
            return codes.FAILED
        if len(self._entries) < number:
            secrets = self._secrets_of_rest(secrets)
            proposal = self._propose(secrets)
        result = change.commit(proposal, f"add {names_of(self._entries)}", secrets)
        self.is_done = True
        return self._report(result, tried, secrets)

    # Entries

    def _choose_new(self, entries: list[Entry]) -> list[str]:
        """Choose the entries to add, and return the names of those that exist already.

        Raises ConfigError if the configuration has other entries with their names.
        """
        written = self._change.written
        present: list[str] = []
        problems: dict[str, str] = {}
        for section, entry in entries:
            name = str(entry["name"])
            indexes = [index for index, own in written.names(section) if own == name]
            if not indexes or self._options.replace:
                self._entries.append((section, entry))
            elif _is_same(written.native(section, indexes[0]), entry):
                present.append(name)
            else:
                problems[name] = f"there is a {NOUNS[section]} named {plain(name, 100)!r} already"
        replaces = "--replace puts this one in its place"
        if any(section == "mcp_servers" for section, _ in self._entries):
            left_out = {name: f"{problem}; {replaces}" for name, problem in problems.items()}
            self._given.left_out |= left_out
        elif problems:
            hint = f"{replaces}, --name gives it another name"
            raise ConfigError([f"error: {each}\n  {hint}" for each in problems.values()])
        return present

    def _fill_settings(self) -> None:
        """Replace references to unset variables by the values of `--set` or of the user."""
        given, options = self._given, self._options
        needs = {**given.needs, **_container_needs(self._entries)}
        known = {**variables_beside(self._change.path), **os.environ}
        said = values_by_key(options.set, "--set")
        if said and not needs and given.kind not in ("mcpb", "registry"):
            hint = "-e KEY=VALUE sets a variable of a program, --header KEY=VALUE a header"
            problem = "error: --set: this server takes no settings"
            raise ConfigError([f"{problem}\n  {hint} of an address"])
        wanted = [
            Input(name, what, secret=True, required=True)
            for name, what in needs.items()
            if name not in known or name in said
        ]
        if not wanted:
            return
        answers = settings(wanted, options, "")
        given.secrets.update(answers.secrets)
        for name in answers.values:
            given.needs.pop(name, None)
        by = {name: values[0] for name, values in answers.values.items()}
        self._entries = [
            (section, replace_references(entry, by)) for section, entry in self._entries
        ]

    def _leave_out_invalid(self) -> None:
        """Leave out invalid servers if others are valid. Raises ConfigError if none is valid."""
        servers = [entry for entry in self._entries if entry[0] == "mcp_servers"]
        reason = self._refusal(self._entries) if len(servers) > 1 else None
        if reason is None:
            return
        others = [entry for entry in self._entries if entry[0] != "mcp_servers"]
        refusals = {str(entry[1]["name"]): self._refusal([*others, entry]) for entry in servers}
        bad = {name: _field_problem(each) for name, each in refusals.items() if each is not None}
        if len(bad) == len(servers):
            raise reason
        self._given.left_out |= bad
        self._keep(bad)

    def _refusal(self, entries: Entries) -> ConfigError | None:
        try:
            self._change.propose(self._edits(entries), **self._given.secrets)
        except ConfigError as error:
            return error
        return None

    def _keep(self, left_out: Iterable[str]) -> None:
        """Remove servers from the entries."""
        names = set(left_out)
        self._entries = [
            (section, entry)
            for section, entry in self._entries
            if section != "mcp_servers" or entry["name"] not in names
        ]

    def _edits(self, entries: Entries) -> list[Edit]:
        edits: list[Edit] = [
            PutEntry(section, str(entry["name"]), entry) for section, entry in entries
        ]
        names = [str(entry["name"]) for section, entry in entries if section == "mcp_servers"]
        patterns = self._given.hidden_tools
        hidden = {name: patterns[name] for name in names if name in patterns}
        if hidden:
            policy = self._change.written.section("policy")
            edits.append(SetSection("policy", with_rules(policy, hidden)))
        return edits

    def _secrets(self, known: dict[str, str]) -> SecretReferences:
        return refer_to_secrets(self._entries, self._change.path, os.environ, known)

    def _secrets_of_rest(self, former: SecretReferences) -> SecretReferences:
        """The secrets of the entries that are left."""
        text = repr(self._entries)
        given = self._given.secrets.items()
        made = self._secrets({name: value for name, value in given if f"${{{name}}}" in text})
        made.place = former.place
        return made

    def _propose(self, secrets: SecretReferences) -> Proposal:
        """The change. Its `config` has the secrets even if the keyring does not have them yet."""
        change = self._change
        proposal = change.propose(self._edits(secrets.entries), **secrets.variables)
        if secrets.place == "env":
            return proposal
        texts = change.propose(self._edits(secrets.written)).texts
        return replace(proposal, texts=texts)

    # Trial

    def _try(self, proposal: Proposal, secrets: SecretReferences) -> dict[str, Tried] | None:
        """The outcome for each server, or None if the user does not want to go on."""
        names = [str(entry["name"]) for section, entry in self._entries if section == "mcp_servers"]
        if self._options.no_test or not names:
            return {}
        is_strange = self._given.is_strange and self._asks
        if is_strange and not agreed("Start it once to see?", default=True):
            return {} if agreed("Add it without trying it?") else None
        return result_of(try_all(self._config_to_try(proposal, secrets), names))

    def _config_to_try(self, proposal: Proposal, secrets: SecretReferences) -> Config:
        """References of a disabled server are not looked up, so all servers are enabled."""
        if not self._options.disabled and all(
            entry.get("enabled", True) is True for _, entry in secrets.entries
        ):
            return proposal.config
        entries: list[Entry] = [
            (section, entry if section == "auth_configs" else {**entry, "enabled": True})
            for section, entry in secrets.entries
        ]
        return self._change.propose(self._edits(entries), **secrets.variables).config

    def _repair(self, tried: dict[str, Tried]) -> bool:
        """Change the arguments of servers if that fixes them and the user agrees."""
        is_repaired = False
        for index, (section, entry) in enumerate(self._entries):
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
                self._entries[index] = (section, changed)
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
        rest = [entry["name"] for section, entry in self._entries if section != "auth_configs"]
        has_working = len(rest) > len(broken)
        if self._asks:
            names = ", ".join(plain(name, 60) for name in broken)
            question = f"{names}: no. Add it" if has_working else "It does not work. Add it"
            if agreed(f"{question} all the same?"):
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
        self._keep(broken)
        return True

    # Reports

    @property
    def _code(self) -> int:
        return codes.FAILED if self._given.left_out else codes.DONE

    def _print_proposal(self, proposal: Proposal, secrets: SecretReferences) -> None:
        if self._change.json:
            return
        print_change(proposal)
        if secrets.variables:
            names = ", ".join(plain(name, 100) for name in secrets.variables)
            preposition = "into" if secrets.place == "config" else "to"
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
        lines = [f"added {names_of(self._entries)} to {change.shown}{new}"]
        for name, trial in tried.items():
            if trial.needs_auth and name not in given.left_out:
                lines.append(f"sign in: mcpx auth login {plain(name, 100)}")
        for section, entry in self._entries:
            if section == "mcp_servers" and entry.get("trust") == "quarantine":
                name = plain(str(entry["name"]), 100)
                lines.append(f"its tools are held back until: mcpx approve {name}")
        added = [{"section": section, "name": entry["name"]} for section, entry in self._entries]
        trials = facts_of_trials(tried)
        facts = {"added": added, **self._facts(secrets), "tried": trials}
        code = change.report(result, facts, *lines)
        if not change.json:
            self._print_left_out()
        return max(code, self._code)


def _introduction(given: Given) -> list[str]:
    return [given.title, *(f"  {fact}" for fact in given.facts)]


def _is_same(old: Json, new: Json) -> bool:
    """Compare two entries without settings that do not change what is called."""
    ignored = ("enabled", "trust", "description")
    keys = {*old, *new}.difference(ignored)
    return all(old.get(key) == new.get(key) for key in keys)


def _field_problem(error: ConfigError) -> str:
    if not isinstance(error, Refused) or not error.told:
        return error.problems[0].partition("\n")[0].removeprefix("error: ")
    first = error.told[0]
    field = re.sub(r"^mcp_servers\[\d+\]\.?", "", first.path)
    problem = ": ".join(filter(None, (field, first.message)))
    return f"{problem} ({first.hint})" if first.hint else problem


def _container_needs(entries: Sequence[Entry]) -> dict[str, str]:
    """The variables that `docker run -e NAME` names and that have no other value."""
    needs: dict[str, str] = {}
    for section, entry in entries:
        if section != "mcp_servers":
            continue
        connection = as_object(entry.get("connection"))
        env = as_object(connection.get("env"))
        for name in container_variables(connection):
            if env.get(name) == f"${{{name}}}":
                needs[name] = f"the container of {plain(str(entry['name']), 60)!r} gets it by -e"
    return needs


# Options


def _customized(given: Given, options: argparse.Namespace) -> list[Entry]:
    """The entries with the options of the user. Raises ConfigError for options that do not fit."""
    env = _last_values(options.env, "--env")
    headers = _last_values(map(_header_pair, options.header), "--header")
    _check_name(given, options.name)
    trust = options.trust
    if given.is_strange:
        trust = trust or "pin"
    made: list[Entry] = []
    for section, entry in given.entries:
        custom = dict(entry)
        if section != "auth_configs":
            custom["name"] = options.name or possible(str(entry["name"]))
            custom["description"] = options.description
            custom["enabled"] = False if options.disabled else None
        if section == "mcp_servers":
            custom |= {"prefix": options.prefix, "trust": trust}
            connection = as_object(entry.get("connection"))
            custom["connection"] = _custom_connection(connection, env, headers)
            hidden = given.hidden_tools.pop(str(entry["name"]), None)
            if hidden is not None:
                given.hidden_tools[str(custom["name"])] = hidden
            if custom["name"] in RESERVED:
                problem = f"the name {custom['name']!r} is reserved: --name gives another"
                raise ConfigError([f"error: {problem}"])
        elif env or headers or (options.trust and section == "commands"):
            raise ConfigError(["error: --env, --header and --trust are for servers"])
        keys = ("name", "description", "enabled", "prefix", "trust", *entry)
        values = {key: custom.get(key) for key in keys}
        kept = {key: entry.get(key) if each is None else each for key, each in values.items()}
        made.append((section, {key: each for key, each in kept.items() if each is not None}))
    return made


def _check_name(given: Given, name: str | None) -> None:
    if name is None:
        return
    number = sum(section != "auth_configs" for section, _ in given.entries)
    if number != 1:
        raise ConfigError([f"error: --name: there are {number} entries in it"])
    if not name.strip() or len(name) > MAX_NAME:
        raise ConfigError([f"error: --name: 1 to {MAX_NAME} characters"])
    if possible(name) != name.strip():
        problem = f"{plain(possible(name))!r} could be its name, not this"
        raise ConfigError([f"error: --name: {problem}"])


def _last_values(given: Iterable[str], option: str) -> dict[str, str]:
    return {key: values[-1] for key, values in values_by_key(given, option).items()}


def _header_pair(text: str) -> str:
    """Also accept `Name: value`, as curl does."""
    name, colon, value = text.partition(":")
    return f"{name}={value.strip()}" if colon and "=" not in name else text


def _custom_connection(connection: Json, env: Json, headers: Json) -> Json:
    is_program = connection.get("type") == "stdio"
    if env and not is_program:
        problem = "--env is for a server that is started as a program; --header goes to an address"
        raise ConfigError([f"error: {problem}"])
    if headers and is_program:
        problem = "--header is for a server with an address; --env goes to a program"
        raise ConfigError([f"error: {problem}"])
    made = dict(connection)
    for key, values in (("env", env), ("headers", headers)):
        if values:
            made[key] = as_object(made.get(key)) | values
    return made
