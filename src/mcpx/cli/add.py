"""`mcpx add`: recognise, show, try once for real, write, and have a running gateway take it up.

Promised: nothing is written that is no good configuration, and nothing that does not work unless
somebody says so; of what was made for it nothing is left then. No secret is printed.
"""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from mcpx.cli import codes
from mcpx.cli.asking import pairs, settings
from mcpx.cli.changing import (
    Subject,
    code_of,
    print_change,
    print_warnings,
    print_written,
    subject,
    to_make,
    write,
)
from mcpx.cli.given import TEXTS, Given, recognise, told_names
from mcpx.cli.output import agreed, can_ask, plain, print_json
from mcpx.cli.running import result_of
from mcpx.cli.secrets_offer import Offer, choose, offer, replace_references, variables_beside
from mcpx.cli.trying import all_tried, print_tried, results
from mcpx.config import Config, Refused
from mcpx.config.checks import MAX_NAME
from mcpx.config.edits import Edit, PutEntry, SetSection
from mcpx.config.entries import RESERVED
from mcpx.config.lines import container_variables, is_address
from mcpx.config.recognising import NOUNS, Section, possible
from mcpx.config.server_names import CONTAINER_PROGRAMS, RUNNERS
from mcpx.config.tool_filters import with_rules
from mcpx.config.written import Written
from mcpx.core.alone import Proposal
from mcpx.core.python_sdk import args_with_version_1
from mcpx.core.trying import Tried
from mcpx.imports.launch import Input
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError
from mcpx.processes.downloaders import program_name

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_OPTIONS_OF_CONTAINERS = ("-e", "--env", "--name")
"""Options of `docker run` that have the names of options of mcpx."""


def run(options: argparse.Namespace) -> int:
    words = _own_options(options)
    on = subject(to_make(options), os.environ.get("MCPX_ENV") or None)
    given = recognise(words, options)
    given.warnings += _misplaced_options(given, options)
    added = False
    try:
        code, added = _add(given, on, options)
        return code
    finally:
        if not added and given.folder is not None:
            shutil.rmtree(given.folder, ignore_errors=True)


def _misplaced_options(given: Given, options: argparse.Namespace) -> list[str]:
    """A warning for the first option of mcpx that follows the program, and therefore belongs to
    it."""
    known = options.parser._option_string_actions  # pyright: ignore[reportPrivateUsage]
    program, *arguments = given.program or ("",)
    if options.words[:1] == ["--"]:
        return []
    its_own = _OPTIONS_OF_CONTAINERS if program_name(program) in CONTAINER_PROGRAMS else ()
    for word in arguments:
        option = word.partition("=")[0]
        # No program takes --header from mcpx, so that the option can only be the program's own.
        is_ours = option in known and (
            option == "-e" or (option.startswith("--") and option != "--header")
        )
        if is_ours and option not in its_own:
            before = f"mcpx add {option} … {plain(program, 60)} …"
            return [
                f"{option} follows the program and is passed to it; put options of mcpx before "
                f"it: {before}"
            ]
    return []


def _own_options(options: argparse.Namespace) -> list[str]:
    """What is to be added, without options of ours that stand behind it. Behind a command line they
    are its own."""
    words = list[str](options.words)
    if _begins_with_name(words, options):
        options.name = options.name or words[0]
        options.parser.parse_args(words[1:], options)
        words = list[str](options.words)
    if words[:1] == ["--"]:
        return words[1:]
    if len(words) > 1 and (_is_whole(words[0])):
        options.parser.parse_args(words[1:], options)
        left = list[str](options.words)
        if left:
            raise ConfigError(
                [f"error: one thing at a time: {plain(words[0], 60)}, then {plain(left[0], 60)}"]
            )
        return words[:1]
    return words


def _begins_with_name(words: Sequence[str], options: argparse.Namespace) -> bool:
    """Whether the words are `NAME [OPTIONS] -- PROGRAM` or `NAME [OPTIONS] URL`, as in `claude mcp
    add`."""
    if (
        len(words) < 2
        or not _NAME.fullmatch(words[0])
        or words[0] in RUNNERS
        or shutil.which(words[0]) is not None
    ):
        return False
    second = words[1]
    known = options.parser._option_string_actions  # pyright: ignore[reportPrivateUsage]
    is_option = second.partition("=")[0] in known and ("--" in words or any(map(is_address, words)))
    return second == "--" or is_address(second) or is_option


def _is_whole(word: str) -> bool:
    """Whether a word says it all: an address, a file, a text, a name in a registry."""
    from mcpx.imports.registry import is_name

    if (
        word == "-"
        or is_address(word)
        or word.lstrip()[:1] in ("{", "[", '"')
        or len(word.split()) > 1
    ):
        return True
    return word.lower().endswith((*TEXTS, ".mcpb", ".dxt")) or is_name(word)


def _add(given: Given, on: Subject, options: argparse.Namespace) -> tuple[int, bool]:
    """The exit code, and whether it was added."""
    written = on.alone.look()
    entries, there = _new_ones(given, _as_wished(given, options), written, options)
    if not entries:
        _say_left_out(given)
        return codes.FAILED if given.left_out else _say_there(there, on, options), False
    entries = _with_settings(given, entries, on, options)
    entries = _valid(given, entries, on, written)
    made = offer(entries, on.path, os.environ, given.secrets)
    quiet = options.json
    if not quiet:
        sys.stdout.write(f"{given.title}\n")
        for fact in given.facts:
            sys.stdout.write(f"  {fact}\n")
    print_warnings([] if quiet else given.warnings)
    if not options.dry_run:
        choose(made, options.secrets)
    elif options.secrets:
        made.place = options.secrets
    unignored = made.warnings
    given.warnings += unignored
    proposal, final = _proposals(given, on, made, written)
    if not quiet:
        print_change(final)
        _say_needs(given, made)
        print_warnings(unignored)
    if options.dry_run:
        return _say_dry(given, final, made, options), False
    tried = _tried(given, _switched_on(given, on, made, proposal), made, options)
    repaired = _repaired(entries, tried or {}, options)
    if tried is not None and repaired:
        entries = [repaired.get(str(entry["name"]), (section, entry)) for section, entry in entries]
        made = _offer_of_rest(given, entries, on, made)
        proposal, final = _proposals(given, on, made, written)
        if not quiet:
            print_change(final)
        tried |= result_of(all_tried(_switched_on(given, on, made, proposal), list(repaired)))
    chosen = None if tried is None else _chosen(given, entries, tried, options)
    if tried is None or chosen is None:
        if quiet:
            print_json({"added": [], "tried": results(tried or {}), "config": str(on.path)})
        return codes.FAILED, False
    if len(chosen) < len(entries):
        entries = chosen
        made = _offer_of_rest(given, chosen, on, made)
        _, final = _proposals(given, on, made, written)
    made.keep()
    try:
        result = write(on, final, f"add {told_names(entries)}")
    except BaseException:
        made.undo()
        raise
    return _say_added(given, entries, tried, made, result, on, quiet), True


def _proposals(
    given: Given, on: Subject, made: Offer, written: Written
) -> tuple[Proposal, Proposal]:
    """The change to be tried, and the change to be written."""
    proposal = _proposed(
        given, on, made, written, made.entries if made.place != "config" else made.written
    )
    final = (
        proposal
        if made.place != "keyring"
        else replace(proposal, texts=_texts(given, on, made, written))
    )
    return proposal, final


def _offer_of_rest(
    given: Given, entries: Sequence[tuple[Section, Json]], on: Subject, former: Offer
) -> Offer:
    """The offer for some of the entries, with the secrets that these refer to."""
    text = repr(entries)
    secrets = {name: value for name, value in given.secrets.items() if f"${{{name}}}" in text}
    made = offer(entries, on.path, os.environ, secrets)
    made.place = former.place
    return made


def _valid(
    given: Given, entries: list[tuple[Section, Json]], on: Subject, written: Written
) -> list[tuple[Section, Json]]:
    """Without the servers that the configuration does not take, if it takes others. Raises
    `ConfigError`."""
    servers = [each for each in entries if each[0] == "mcp_servers"]
    if len(servers) < 2:
        return entries
    reason = _refusal(given, entries, on, written)
    if reason is None:
        return entries
    others = [each for each in entries if each[0] != "mcp_servers"]
    refusals = {
        str(each[1]["name"]): _refusal(given, [*others, each], on, written) for each in servers
    }
    bad = {name: refusal for name, refusal in refusals.items() if refusal is not None}
    if len(bad) == len(servers):
        raise reason
    given.left_out |= {name: _told_refusal(refusal) for name, refusal in bad.items()}
    return [each for each in entries if each[0] != "mcp_servers" or each[1]["name"] not in bad]


def _refusal(
    given: Given, entries: Sequence[tuple[Section, Json]], on: Subject, written: Written
) -> ConfigError | None:
    try:
        on.alone.propose(_edits(given, entries, written), written, **given.secrets)
    except ConfigError as error:
        return error
    return None


def _told_refusal(error: ConfigError) -> str:
    if not isinstance(error, Refused) or not error.told:
        return error.problems[0].partition("\n")[0].removeprefix("error: ")
    first = error.told[0]
    field = re.sub(r"^mcp_servers\[\d+\]\.?", "", first.path)
    said = f"{field}: {first.message}" if field else first.message
    return f"{said} ({first.hint})" if first.hint else said


def _proposed(
    given: Given,
    on: Subject,
    made: Offer,
    written: Written,
    entries: Sequence[tuple[Section, Json]],
) -> Proposal:
    return on.alone.propose(_edits(given, entries, written), written, **made.variables)


def _switched_on(given: Given, on: Subject, made: Offer, proposal: Proposal) -> Config:
    """To be tried: what a disabled server refers to is not looked up."""
    if all(entry.get("enabled", True) is True for _, entry in made.entries):
        return proposal.config
    entries: list[tuple[Section, Json]] = [
        (section, _enabled(section, entry)) for section, entry in made.entries
    ]
    return _proposed(given, on, made, proposal.written, entries).config


def _enabled(section: Section, entry: Json) -> Json:
    return entry if section == "auth_configs" else {**entry, "enabled": True}


def _texts(given: Given, on: Subject, made: Offer, written: Written) -> Any:
    """With references to a keyring that has nothing yet: the servers are switched off while this is
    judged."""
    return on.alone.propose(_edits(given, made.written, written), written).texts


def _edits(given: Given, entries: Sequence[tuple[Section, Json]], written: Written) -> list[Edit]:
    edits: list[Edit] = [PutEntry(section, str(entry["name"]), entry) for section, entry in entries]
    names = [str(entry["name"]) for section, entry in entries if section == "mcp_servers"]
    if hidden := {name: given.hidden_tools[name] for name in names if name in given.hidden_tools}:
        edits.append(SetSection("policy", with_rules(written.section("policy"), hidden)))
    return edits


# What was wished for
# --------------------------------------------------------------------------------------------------


def _as_wished(given: Given, options: argparse.Namespace) -> list[tuple[Section, Json]]:
    """Raises `ConfigError` for an option that fits nothing of it."""
    env, headers = (
        pairs(options.env, "--env"),
        pairs([_header(each) for each in options.header], "--header"),
    )
    mine = [section for section, _ in given.entries if section != "auth_configs"]
    if options.name is not None and len(mine) != 1:
        raise ConfigError([f"error: --name: there are {len(mine)} entries in it"])
    if options.name is not None and (not options.name.strip() or len(options.name) > MAX_NAME):
        raise ConfigError([f"error: --name: 1 to {MAX_NAME} characters"])
    if options.name is not None and possible(options.name) != options.name.strip():
        raise ConfigError(
            [f"error: --name: {plain(possible(options.name))!r} could be its name, not this"]
        )
    trust = options.trust or ("pin" if given.is_strange else None)
    made: list[tuple[Section, Json]] = []
    for section, entry in given.entries:
        wished = dict(entry)
        if section != "auth_configs":
            wished["name"] = options.name or possible(str(wished["name"]))
            if options.description is not None:
                wished["description"] = options.description
            if options.disabled:
                wished["enabled"] = False
        if section == "mcp_servers":
            if options.prefix is not None:
                wished["prefix"] = options.prefix
            if trust is not None:
                wished["trust"] = trust
            wished["connection"] = _connection(as_object(wished.get("connection")), env, headers)
            if (hidden := given.hidden_tools.pop(str(entry["name"]), None)) is not None:
                given.hidden_tools[str(wished["name"])] = hidden
            if wished["name"] in RESERVED:
                raise ConfigError(
                    [f"error: the name {wished['name']!r} is reserved: --name gives another"]
                )
        elif env or headers or (options.trust and section == "commands"):
            raise ConfigError(["error: --env, --header and --trust are for servers"])
        made.append((section, _in_order(wished)))
    return made


def _header(text: str) -> str:
    """`Name: value`, as curl has it, does as well."""
    name, colon, value = text.partition(":")
    return f"{name}={value.strip()}" if colon and "=" not in name else text


def _connection(connection: Json, env: dict[str, list[str]], headers: dict[str, list[str]]) -> Json:
    is_program = connection.get("type") == "stdio"
    if env and not is_program:
        raise ConfigError(
            [
                "error: --env is for a server that is started as a program; --header goes to an "
                "address"
            ]
        )
    if headers and is_program:
        raise ConfigError(
            ["error: --header is for a server with an address; --env goes to a program"]
        )
    made = dict(connection)
    for key, given in (("env", env), ("headers", headers)):
        if given:
            made[key] = as_object(made.get(key)) | {
                name: values[-1] for name, values in given.items()
            }
    return made


def _in_order(entry: Json) -> Json:
    first = ("name", "description", "enabled", "prefix", "trust")
    return {key: entry[key] for key in (*first, *entry) if key in entry}


def _new_ones(
    given: Given, entries: list[tuple[Section, Json]], written: Written, options: argparse.Namespace
) -> tuple[list[tuple[Section, Json]], list[str]]:
    """The entries that the config does not have yet, and the names of the others.

    Raises `ConfigError` if the config has a different entry under each of the names.
    """
    new: list[tuple[Section, Json]] = []
    there: list[str] = []
    problems: dict[str, str] = {}
    for section, entry in entries:
        name = entry["name"]
        index = next((index for index, own in written.names(section) if own == name), None)
        if index is None:
            new.append((section, entry))
        elif _says_same(written.native(section, index), entry):
            there.append(str(name))
        elif options.replace:
            new.append((section, entry))
        else:
            problems[str(name)] = (
                f"there is a {NOUNS[section]} named {plain(str(name), 100)!r} already"
            )
    hint = "--replace puts this one in its place, --name gives it another name"
    if problems and any(section == "mcp_servers" for section, _ in new):
        given.left_out |= {
            name: f"{problem}; --replace puts this one in its place"
            for name, problem in problems.items()
        }
    elif problems:
        raise ConfigError([f"error: {problem}\n  {hint}" for problem in problems.values()])
    return new, there


def _says_same(old: Json, new: Json) -> bool:
    left = ("enabled", "trust", "description")
    return {k: v for k, v in old.items() if k not in left} == {
        k: v for k, v in new.items() if k not in left
    }


def _say_there(there: list[str], on: Subject, options: argparse.Namespace) -> int:
    if options.json:
        print_json({"added": [], "there": there, "config": str(on.path)})
    else:
        names = ", ".join(plain(name, 100) for name in there)
        sys.stdout.write(f"{names}: in {on.told} already, saying the same; nothing was changed\n")
    return codes.DONE


def _with_settings(
    given: Given, entries: list[tuple[Section, Json]], on: Subject, options: argparse.Namespace
) -> list[tuple[Section, Json]]:
    """The entries with the values of variables that are not set: from `--set`, else from the
    user."""
    needs = {**given.needs, **_container_needs(entries)}
    known = {**variables_beside(on.path), **os.environ}
    said = pairs(options.set, "--set")
    if said and not needs and given.kind not in ("mcpb", "registry"):
        told = (
            "-e KEY=VALUE sets a variable of a program, --header KEY=VALUE a header of an address"
        )
        raise ConfigError([f"error: --set: this server takes no settings\n  {told}"])
    wanted = [
        Input(name, what, secret=True, required=True)
        for name, what in needs.items()
        if name not in known or name in said
    ]
    if not wanted:
        return entries
    told = settings(wanted, options, "")
    given.secrets.update(told.secrets)
    given.needs = {name: what for name, what in given.needs.items() if name not in told.values}
    by = {name: values[0] for name, values in told.values.items()}
    return [(section, replace_references(entry, by)) for section, entry in entries]


def _container_needs(entries: Sequence[tuple[Section, Json]]) -> dict[str, str]:
    """The variables that `docker run -e NAME` names, unless the entry has another value for
    them."""
    needs: dict[str, str] = {}
    for section, entry in entries:
        connection = as_object(entry.get("connection")) if section == "mcp_servers" else {}
        env = as_object(connection.get("env"))
        for name in container_variables(connection):
            if env.get(name) == f"${{{name}}}":
                needs[name] = f"the container of {plain(str(entry['name']), 60)!r} gets it by -e"
    return needs


# Trying
# --------------------------------------------------------------------------------------------------


def _tried(
    given: Given, config: Config, made: Offer, options: argparse.Namespace
) -> dict[str, Tried] | None:
    """How it went with each server; None: somebody did not want it."""
    names = [str(entry["name"]) for section, entry in made.entries if section == "mcp_servers"]
    if options.no_test or not names:
        return {}
    if (
        given.is_strange
        and can_ask()
        and not options.yes
        and not agreed("Start it once to see?", default=True)
    ):
        return {} if agreed("Add it without trying it?") else None
    return result_of(all_tried(config, names))


def _repaired(
    entries: list[tuple[Section, Json]], tried: dict[str, Tried], options: argparse.Namespace
) -> dict[str, tuple[Section, Json]]:
    """Entries with other arguments, by name, where these fix what the trial has shown and the user
    agrees."""
    repaired: dict[str, tuple[Section, Json]] = {}
    for section, entry in entries:
        name = str(entry["name"])
        cause = tried[name].cause if name in tried and section == "mcp_servers" else None
        connection = as_object(entry.get("connection"))
        if cause is None or not cause.needs_python_sdk_1:
            continue
        args = [str(arg) for arg in as_list(connection.get("args"))]
        repair = args_with_version_1(str(connection.get("command")), args)
        if repair is None:
            continue
        found = f"{plain(name, 60)} does not work. {plain(cause.cause, 500)}"
        if options.yes and not options.json:
            sys.stderr.write(f"{found} Next attempt: {plain(cause.fix, 500)}\n")
        if options.yes or agreed(
            f"{found} To fix it, {plain(cause.fix, 500)}. Do so?", default=True
        ):
            repaired[name] = (section, {**entry, "connection": {**connection, "args": repair}})
    return repaired


def _chosen(
    given: Given,
    entries: list[tuple[Section, Json]],
    tried: dict[str, Tried],
    options: argparse.Namespace,
) -> list[tuple[Section, Json]] | None:
    """The entries to add after the trial, or None to add no entry."""
    for name, each in tried.items() if not options.json else ():
        print_tried(name, each)
    broken = {name: each for name, each in tried.items() if not each.ok and not each.needs_auth}
    asks = can_ask() and not options.yes
    if not broken or options.force:
        return entries if not asks or agreed("Add it?", default=True) else None
    working = [
        each for each in entries if each[0] != "mcp_servers" or each[1]["name"] not in broken
    ]
    has_working = any(section != "auth_configs" for section, _ in working)
    if asks:
        question = (
            "It does not work. Add it" if not has_working else f"{_listed(broken)}: no. Add it"
        )
        if agreed(f"{question} all the same?"):
            return entries
        if not has_working or not agreed("Add the others?", default=True):
            return None
    elif not has_working:
        if not options.json:
            told = "--force adds it although it does not work, --no-test adds it without a trial."
            sys.stderr.write(f"Nothing was written. {told}\n")
        return None
    given.left_out |= dict.fromkeys(broken, "it does not work; --force adds it all the same")
    return working


def _listed(names: Iterable[str]) -> str:
    return ", ".join(plain(name, 60) for name in names)


# What came of it
# --------------------------------------------------------------------------------------------------


def _say_needs(given: Given, made: Offer) -> None:
    if made.variables:
        names = ", ".join(plain(name, 100) for name in made.variables)
        where = {
            "env": f"to {made.file}",
            "keyring": "to the system's keyring",
            "config": "into the config itself",
        }
        sys.stdout.write(f"secrets go {plain(where[made.place], 4096)}: {names}\n")
    for name, what in given.needs.items():
        sys.stdout.write(f"set {plain(name, 100)}: {plain(what, 200)}\n")


def _say_dry(given: Given, proposal: Proposal, made: Offer, options: argparse.Namespace) -> int:
    if options.json:
        print_json({**_facts(given, proposal, made), "added": []})
    else:
        _say_left_out(given)
        sys.stdout.write("nothing was written (--dry-run)\n")
    return codes.FAILED if given.left_out else codes.DONE


def _say_left_out(given: Given) -> None:
    for name, reason in given.left_out.items():
        sys.stderr.write(f"error: {plain(name, 100)!r} was not added: {plain(reason, 500)}\n")


def _told_left_out(given: Given) -> list[Json]:
    return [{"name": name, "reason": reason} for name, reason in given.left_out.items()]


def _facts(given: Given, proposal: Proposal, made: Offer) -> Json:
    return {
        "kind": given.kind,
        "title": given.title,
        "facts": given.facts,
        "warnings": given.warnings,
        "files": [{"path": str(file.path), "diff": file.diff} for file in proposal.files],
        "secrets": {"place": made.place, "variables": list(made.variables)},
        "needs": given.needs,
        "left_out": _told_left_out(given),
    }


def _say_added(
    given: Given,
    entries: Sequence[tuple[Section, Json]],
    tried: dict[str, Tried],
    made: Offer,
    result: Json,
    on: Subject,
    quiet: bool,
) -> int:
    if quiet:
        added = [{"section": section, "name": entry["name"]} for section, entry in entries]
        secrets: Json = {"place": made.place, "variables": list(made.variables)}
        facts: Json = {
            "kind": given.kind,
            "title": given.title,
            "warnings": given.warnings,
            "needs": given.needs,
        }
        left_out = _told_left_out(given)
        print_json(
            {
                "added": added,
                "left_out": left_out,
                **facts,
                "tried": results(tried),
                "secrets": secrets,
                **result,
            }
        )
        return codes.FAILED if given.left_out else code_of(result)
    new = " (a new file)" if on.alone.is_new else ""
    sys.stdout.write(f"added {told_names(entries)} to {on.told}{new}\n")
    for name, each in tried.items():
        if each.needs_auth and name not in given.left_out:
            sys.stdout.write(f"sign in: mcpx auth login {plain(name, 100)}\n")
    for section, entry in entries:
        if section == "mcp_servers" and entry.get("trust") == "quarantine":
            sys.stdout.write(
                f"its tools are held back until: mcpx approve {plain(str(entry['name']), 100)}\n"
            )
    code = print_written(result, on)
    _say_left_out(given)
    return codes.FAILED if given.left_out else code
