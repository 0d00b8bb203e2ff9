"""`mcpx add`: recognise, show, try once for real, write, and have a running gateway take it up.

Promised: nothing is written that is no good configuration, and nothing that does not work unless somebody says so; of
what was made for it nothing is left then. No secret is printed.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mcpx.cli import codes
from mcpx.cli.asking import pairs, settings
from mcpx.cli.changing import Subject, code_of, print_change, print_warnings, print_written, subject, to_make, write
from mcpx.cli.given import TEXTS, Given, recognise, told_names
from mcpx.cli.running import result_of
from mcpx.cli.secrets_offer import Offer, choose, offer, variables_beside
from mcpx.cli.terminal import agreed, can_ask, plain, print_json
from mcpx.cli.trying import all_tried, print_tried, results
from mcpx.config import Config
from mcpx.config.checks import MAX_NAME
from mcpx.config.edits import Edit, PutEntry
from mcpx.config.entries import RESERVED
from mcpx.config.lines import is_address
from mcpx.config.recognising import NOUNS, Section, possible
from mcpx.config.written import Written
from mcpx.core.alone import Proposal
from mcpx.core.trying import Tried
from mcpx.imports.inputs import Input
from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError


def run(options: argparse.Namespace) -> int:
    words = _own_options(options)
    on = subject(to_make(options), os.environ.get("MCPX_ENV") or None)
    given = recognise(words, options)
    known = options.parser._option_string_actions  # pyright: ignore[reportPrivateUsage]
    ours = [word for word in words[1:] if word.startswith("--") and word in known]
    if given.kind == "command" and ours:
        given.facts.append(f"{ours[0]} is given to the program: options of mcpx go before it")
    added = False
    try:
        code, added = _add(given, on, options)
        return code
    finally:
        if not added and given.folder is not None:
            shutil.rmtree(given.folder, ignore_errors=True)


def _own_options(options: argparse.Namespace) -> list[str]:
    """What is to be added, without options of ours that stand behind it. Behind a command line they are its own."""
    words = list[str](options.words)
    if words[:1] == ["--"]:
        return words[1:]
    if len(words) > 1 and (_is_whole(words[0])):
        options.parser.parse_args(words[1:], options)
        left = list[str](options.words)
        if left:
            raise ConfigError([f"error: one thing at a time: {plain(words[0], 60)}, then {plain(left[0], 60)}"])
        return words[:1]
    return words


def _is_whole(word: str) -> bool:
    """Whether a word says it all: an address, a file, a text, a name in a registry."""
    from mcpx.imports.registry import is_name

    if word == "-" or is_address(word) or word.lstrip()[:1] in ("{", "[", '"') or len(word.split()) > 1:
        return True
    return word.lower().endswith((*TEXTS, ".mcpb", ".dxt")) or is_name(word)


def _add(given: Given, on: Subject, options: argparse.Namespace) -> tuple[int, bool]:
    """The exit code, and whether it was added."""
    written = on.alone.look()
    entries, there = _new_ones(_as_wished(given, options), written, options)
    if not entries:
        return _say_there(there, on, options), False
    _ask_for(given, on, options)
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
    proposal = _proposed(on, made, written, made.entries if made.place != "config" else made.written)
    final = proposal if made.place != "keyring" else replace(proposal, texts=_texts(on, made, written))
    if not quiet:
        print_change(final)
        _say_needs(given, made)
    if options.dry_run:
        return _say_dry(given, final, made, options), False
    tried = _tried(given, _switched_on(on, made, proposal), made, options)
    if tried is None or not _agreed(given, tried, options):
        if quiet:
            print_json({"added": [], "tried": results(tried or {}), "config": str(on.path)})
        return codes.FAILED, False
    made.keep()
    try:
        result = write(on, final, f"add {told_names(entries)}")
    except BaseException:
        made.undo()
        raise
    return _say_added(given, entries, tried, made, result, on, quiet), True


def _proposed(on: Subject, made: Offer, written: Written, entries: Sequence[tuple[Section, Json]]) -> Proposal:
    return on.alone.propose(_edits(entries), written, **made.variables)


def _switched_on(on: Subject, made: Offer, proposal: Proposal) -> Config:
    """To be tried: what a disabled server refers to is not looked up."""
    if all(entry.get("enabled", True) is True for _, entry in made.entries):
        return proposal.config
    entries: list[tuple[Section, Json]] = [(section, _enabled(section, entry)) for section, entry in made.entries]
    return _proposed(on, made, proposal.written, entries).config


def _enabled(section: Section, entry: Json) -> Json:
    return entry if section == "auth_configs" else {**entry, "enabled": True}


def _texts(on: Subject, made: Offer, written: Written) -> Any:
    """With references to a keyring that has nothing yet: the servers are switched off while this is judged."""
    return on.alone.propose(_edits(made.written), written).texts


def _edits(entries: Sequence[tuple[Section, Json]]) -> list[Edit]:
    return [PutEntry(section, str(entry["name"]), entry) for section, entry in entries]


# What was wished for --------------------------------------------------------------------------------------------------


def _as_wished(given: Given, options: argparse.Namespace) -> list[tuple[Section, Json]]:
    """Raises `ConfigError` for an option that fits nothing of it."""
    env, headers = pairs(options.env, "--env"), pairs([_header(each) for each in options.header], "--header")
    mine = [section for section, _ in given.entries if section != "auth_configs"]
    if options.name is not None and len(mine) != 1:
        raise ConfigError([f"error: --name: there are {len(mine)} entries in it"])
    if options.name is not None and (not options.name.strip() or len(options.name) > MAX_NAME):
        raise ConfigError([f"error: --name: 1 to {MAX_NAME} characters"])
    if options.name is not None and possible(options.name) != options.name.strip():
        raise ConfigError([f"error: --name: {plain(possible(options.name))!r} could be its name, not this"])
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
            if wished["name"] in RESERVED:
                raise ConfigError([f"error: the name {wished['name']!r} is reserved: --name gives another"])
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
        raise ConfigError(["error: --env is for a server that is started as a program; --header goes to an address"])
    if headers and is_program:
        raise ConfigError(["error: --header is for a server with an address; --env goes to a program"])
    made = dict(connection)
    for key, given in (("env", env), ("headers", headers)):
        if given:
            made[key] = as_object(made.get(key)) | {name: values[-1] for name, values in given.items()}
    return made


def _in_order(entry: Json) -> Json:
    first = ("name", "description", "enabled", "prefix", "trust")
    return {key: entry[key] for key in (*first, *entry) if key in entry}


def _new_ones(
    entries: list[tuple[Section, Json]], written: Written, options: argparse.Namespace
) -> tuple[list[tuple[Section, Json]], list[str]]:
    """Without those that are there and say the same. Raises `ConfigError` for a name that another has."""
    new: list[tuple[Section, Json]] = []
    there: list[str] = []
    problems: list[str] = []
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
            told = "--replace puts this one in its place, --name gives it another name"
            problems.append(f"error: there is a {NOUNS[section]} named {plain(str(name), 100)!r} already\n  {told}")
    if problems:
        raise ConfigError(problems)
    return new, there


def _says_same(old: Json, new: Json) -> bool:
    left = ("enabled", "trust", "description")
    return {k: v for k, v in old.items() if k not in left} == {k: v for k, v in new.items() if k not in left}


def _say_there(there: list[str], on: Subject, options: argparse.Namespace) -> int:
    if options.json:
        print_json({"added": [], "there": there, "config": str(on.path)})
    else:
        names = ", ".join(plain(name, 100) for name in there)
        sys.stdout.write(f"{names}: in {on.told} already, saying the same; nothing was changed\n")
    return codes.DONE


def _ask_for(given: Given, on: Subject, options: argparse.Namespace) -> None:
    """Secrets of an API that nobody has said: by `--set`, else asked for; those that are set somewhere are not."""
    known = {**variables_beside(on.path), **os.environ}
    wanted = [Input(name, what, secret=True, required=True) for name, what in given.needs.items() if name not in known]
    if not wanted:
        return
    told = settings(wanted, options, "")
    given.secrets.update(told.secrets)
    given.needs = {name: what for name, what in given.needs.items() if name not in told.secrets}


# Trying ---------------------------------------------------------------------------------------------------------------


def _tried(given: Given, config: Config, made: Offer, options: argparse.Namespace) -> dict[str, Tried] | None:
    """How it went with each server; None: somebody did not want it."""
    names = [str(entry["name"]) for section, entry in made.entries if section == "mcp_servers"]
    if options.no_test or not names:
        return {}
    if given.is_strange and can_ask() and not options.yes and not agreed("Start it once to see?", default=True):
        return {} if agreed("Add it without trying it?") else None
    return result_of(all_tried(config, names))


def _agreed(given: Given, tried: dict[str, Tried], options: argparse.Namespace) -> bool:
    """Whether it shall be added."""
    broken = [name for name, each in tried.items() if not each.ok and not each.needs_auth]
    for name, each in tried.items() if not options.json else ():
        print_tried(name, each)
    if options.yes:
        return True
    if broken:
        if can_ask():
            return agreed("It does not work. Add it all the same?")
        if not options.json:
            sys.stderr.write(
                "Nothing was written. --yes adds it although it does not work, --no-test without trying.\n"
            )
        return False
    return agreed("Add it?", default=True) if can_ask() else True


# What came of it ------------------------------------------------------------------------------------------------------


def _say_needs(given: Given, made: Offer) -> None:
    if made.variables:
        names = ", ".join(plain(name, 100) for name in made.variables)
        where = {"env": f"to {made.file}", "keyring": "to the system's keyring", "config": "into the config itself"}
        sys.stdout.write(f"secrets go {plain(where[made.place], 4096)}: {names}\n")
    for name, what in given.needs.items():
        sys.stdout.write(f"set {plain(name, 100)}: {plain(what, 200)}\n")


def _say_dry(given: Given, proposal: Proposal, made: Offer, options: argparse.Namespace) -> int:
    if options.json:
        print_json({**_facts(given, proposal, made), "added": []})
    else:
        sys.stdout.write("nothing was written (--dry-run)\n")
    return codes.DONE


def _facts(given: Given, proposal: Proposal, made: Offer) -> Json:
    return {
        "kind": given.kind,
        "title": given.title,
        "facts": given.facts,
        "warnings": given.warnings,
        "files": [{"path": str(file.path), "diff": file.diff} for file in proposal.files],
        "secrets": {"place": made.place, "variables": list(made.variables)},
        "needs": given.needs,
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
        facts: Json = {"kind": given.kind, "title": given.title, "warnings": given.warnings, "needs": given.needs}
        print_json({"added": added, **facts, "tried": results(tried), "secrets": secrets, **result})
        return code_of(result)
    new = " (a new file)" if on.alone.is_new else ""
    sys.stdout.write(f"added {told_names(entries)} to {on.told}{new}\n")
    for name, each in tried.items():
        if each.needs_auth:
            sys.stdout.write(f"sign in: mcpx auth login {plain(name, 100)}\n")
    for section, entry in entries:
        if section == "mcp_servers" and entry.get("trust") == "quarantine":
            sys.stdout.write(f"its tools are held back until: mcpx approve {plain(str(entry['name']), 100)}\n")
    return print_written(result, on)
