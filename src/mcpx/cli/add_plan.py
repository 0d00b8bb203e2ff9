"""The entries that `mcpx add` adds, and the change of the configuration for them."""

import argparse
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mcpx.cli.add_input import Given, settings, values_by_key
from mcpx.cli.change import ConfigChange
from mcpx.cli.output import plain
from mcpx.cli.running import mistake
from mcpx.cli.secret_references import (
    Entries,
    Place,
    SecretReferences,
    refer_to_secrets,
    replace_references,
    variables_beside,
)
from mcpx.config import Config, Refused
from mcpx.config.checks import MAX_NAME
from mcpx.config.edits import Edit, PutEntry, SetSection
from mcpx.config.entries import RESERVED
from mcpx.config.lines import container_variables
from mcpx.config.recognising import NOUNS, Section, possible
from mcpx.config.tool_filters import with_rules
from mcpx.core.alone import Proposal
from mcpx.imports.launch import Input
from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError

Entry = tuple[Section, Json]


class AddPlan:
    def __init__(self, change: ConfigChange, given: Given, options: argparse.Namespace) -> None:
        self._change = change
        self._given = given
        self._options = options
        self.entries: list[Entry] = []

    @property
    def servers(self) -> list[str]:
        return [str(entry["name"]) for section, entry in self.entries if section == "mcp_servers"]

    def choose_new(self) -> list[str]:
        """Choose the entries to add, and return the names of those that exist already.

        Raises ConfigError if the configuration has other entries with their names.
        """
        written = self._change.written
        present: list[str] = []
        problems: dict[str, str] = {}
        for section, entry in _customized(self._given, self._options):
            name = str(entry["name"])
            indexes = [index for index, own in written.names(section) if own == name]
            if not indexes or self._options.replace:
                self.entries.append((section, entry))
            elif _is_same(written.native(section, indexes[0]), entry):
                present.append(name)
            else:
                problems[name] = f"there is a {NOUNS[section]} named {plain(name, 100)!r} already"
        replaces = "--replace puts this one in its place"
        if any(section == "mcp_servers" for section, _ in self.entries):
            left_out = {name: f"{problem}; {replaces}" for name, problem in problems.items()}
            self._given.left_out |= left_out
        elif problems:
            hint = f"{replaces}, --name gives it another name"
            raise ConfigError([f"error: {each}\n  {hint}" for each in problems.values()])
        return present

    def fill_settings(self) -> None:
        """Replace references to unset variables by the values of `--set` or of the user."""
        given, options = self._given, self._options
        needs = {**given.needs, **_container_needs(self.entries)}
        known = {**variables_beside(self._change.path), **os.environ}
        said = values_by_key(options.set, "--set")
        if said and not needs and given.kind not in ("mcpb", "registry"):
            hint = "-e KEY=VALUE sets a variable of a program, --header KEY=VALUE a header"
            raise mistake(f"--set: this server takes no settings\n  {hint} of an address")
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
        self.entries = [(section, replace_references(entry, by)) for section, entry in self.entries]

    def leave_out_invalid(self) -> None:
        """Leave out invalid servers if others are valid. Raises ConfigError if none is valid."""
        servers = [entry for entry in self.entries if entry[0] == "mcp_servers"]
        reason = None
        if len(servers) > 1:
            reason = self._refusal(self.entries)
        if reason is None:
            return
        others = [entry for entry in self.entries if entry[0] != "mcp_servers"]
        refusals = {str(entry[1]["name"]): self._refusal([*others, entry]) for entry in servers}
        bad = {name: _field_problem(each) for name, each in refusals.items() if each is not None}
        if len(bad) == len(servers):
            raise reason
        self._given.left_out |= bad
        self.leave_out(bad)

    def _refusal(self, entries: Entries) -> ConfigError | None:
        try:
            self._change.propose(self._edits(entries), **self._given.secrets)
        except ConfigError as error:
            return error
        return None

    def leave_out(self, left_out: Iterable[str]) -> None:
        """Remove servers from the entries."""
        names = set(left_out)
        self.entries = [
            (section, entry)
            for section, entry in self.entries
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

    def secret_references(self, place: Place = "env") -> SecretReferences:
        """The entries with references instead of secrets."""
        text = repr(self.entries)
        given = self._given.secrets.items()
        known = {name: value for name, value in given if f"${{{name}}}" in text}
        made = refer_to_secrets(self.entries, self._change.path, os.environ, known)
        made.place = place
        return made

    def propose(self, secrets: SecretReferences) -> Proposal:
        """The change. Its `config` has the secrets even if the keyring does not have them yet."""
        change = self._change
        proposal = change.propose(self._edits(secrets.entries), **secrets.variables)
        if secrets.place == "env":
            return proposal
        texts = change.propose(self._edits(secrets.written)).texts
        return replace(proposal, texts=texts)

    def config_to_try(self, proposal: Proposal, secrets: SecretReferences) -> Config:
        """References of a disabled server are not looked up, so all servers are enabled."""
        if not self._options.disabled and all(
            entry.get("enabled", True) is True for _, entry in secrets.entries
        ):
            return proposal.config
        entries: list[Entry] = []
        for section, entry in secrets.entries:
            if section != "auth_configs":
                entry = {**entry, "enabled": True}
            entries.append((section, entry))
        return self._change.propose(self._edits(entries), **secrets.variables).config


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
    return problem + f" ({first.hint})" * bool(first.hint)


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
            if options.description is not None:
                custom["description"] = options.description
            if options.disabled:
                custom["enabled"] = False
        if section == "mcp_servers":
            wanted = {"prefix": options.prefix, "trust": trust}
            custom |= {key: value for key, value in wanted.items() if value is not None}
            connection = as_object(entry.get("connection"))
            custom["connection"] = _custom_connection(connection, env, headers)
            hidden = given.hidden_tools.pop(str(entry["name"]), None)
            if hidden is not None:
                given.hidden_tools[str(custom["name"])] = hidden
            if custom["name"] in RESERVED:
                problem = f"the name {custom['name']!r} is reserved: --name gives another"
                raise mistake(problem)
        elif env or headers or (options.trust and section == "commands"):
            raise ConfigError(["error: --env, --header and --trust are for servers"])
        keys = ("name", "description", "enabled", "prefix", "trust", *entry)
        values = {key: custom.get(key) for key in keys}
        kept = {key: each for key, each in values.items() if each is not None}
        made.append((section, kept))
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
    if colon and "=" not in name:
        return f"{name}={value.strip()}"
    return text


def _custom_connection(connection: Json, env: Json, headers: Json) -> Json:
    is_program = connection.get("type") == "stdio"
    if env and not is_program:
        problem = "--env is for a server that is started as a program; --header goes to an address"
        raise mistake(problem)
    if headers and is_program:
        problem = "--header is for a server with an address; --env goes to a program"
        raise mistake(problem)
    made = dict(connection)
    for key, values in (("env", env), ("headers", headers)):
        if values:
            made[key] = as_object(made.get(key)) | values
    return made
