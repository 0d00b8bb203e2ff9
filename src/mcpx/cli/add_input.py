"""What `mcpx add` was given: a command line, an address, a client's file or snippet, an OpenAPI
document, a curl line, a bundle, a name in a registry.

Promised: whatever it is, entries of a configuration and a sentence that says what it was taken for,
or a `ConfigError` that says what is understood. Documents are fetched, bundles unpacked; nothing is
started and no config is written.
"""

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpx.cli.output import Waiting, can_ask, plain
from mcpx.cli.running import result_of
from mcpx.config.lines import is_address
from mcpx.config.recognising import (
    NOUNS,
    Section,
    is_curl,
    is_openapi,
    names_document,
    read,
    title_of,
)
from mcpx.config.source import MAX_BYTES, UnreadableError, read_text
from mcpx.imports.bundle import is_bundle
from mcpx.imports.launch import Answers, Input, Launch, answers, unanswered
from mcpx.imports.registry import Listed, is_name
from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError
from mcpx.model.state import state_folder

if TYPE_CHECKING:
    from mcpx.imports.imported import Imported

_OPENAPI_HELP = "mcpx import openapi DOCUMENT --list shows all; --server URL says where the API is"
UNDERSTOOD = (
    "a command line such as 'npx -y package', an address, a client's JSON or TOML, native YAML, "
    "an OpenAPI document, "
    "a curl line, a .mcpb file, or a name in a registry (io.github.owner/name)"
)
TEXT_SUFFIXES = (".json", ".jsonc", ".json5", ".yaml", ".yml", ".toml", ".txt", ".md")
_PACKAGE = re.compile(r"@[\w.-]+/[\w.-]+(?:@[\w.^~-]+)?")
"""An npm package with its scope, and a version."""
_HOST = re.compile(
    r"(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[\da-fA-F:]+\])(?::\d{1,5})?(?:/\S*)?|[\w.-]+:\d{1,5}/\S*"
)
"""An address without its scheme."""
_RELATIVE = re.compile(r"\.{1,2}(?:[\\/].*)?")


@dataclass(slots=True)
class Given:
    kind: str
    title: str
    entries: list[tuple[Section, Json]]
    facts: list[str] = field(default_factory=list[str])
    """Where it comes from."""
    warnings: list[str] = field(default_factory=list[str])
    needs: dict[str, str] = field(default_factory=dict[str, str])
    """Variables that are secrets which nobody has said yet, and what each is."""
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables that the entries refer to already, with their values."""
    folder: Path | None = None
    """Where a bundle was unpacked for it."""
    is_strange: bool = False
    """Somebody else decides what is started."""
    program: tuple[str, ...] = ()
    """Words of the command line that belong to the program."""
    hidden_tools: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Patterns of the tools that the client hides, by the name of the server."""
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """Names of entries that cannot be added, with the reasons."""


def recognize(words: Sequence[str], options: argparse.Namespace) -> Given:
    """Raises `ConfigError`."""
    if not words:
        raise ConfigError([f"error: say what to add: {UNDERSTOOD}"])
    if (meant := _meant(words)) is not None:
        raise ConfigError([f"error: {plain(words[0], 200)!r} is {meant}"])
    if len(words) > 1:
        return _curl(list(words), options) if words[0] == "curl" else _line(words)
    word = words[0]
    if word == "-":
        if sys.stdin.isatty():
            sys.stderr.write("Paste it, then press Ctrl-D.\n")
        return _text(sys.stdin.read(MAX_BYTES + 1), options)
    if is_address(word):
        return _address(word, options)
    path = Path(os.path.expanduser(word))
    if len(word) < 4096 and "\n" not in word and path.is_file():
        return _file(path, options)
    if is_name(word):
        return _registered(_look_up(word, options), options)
    if " " not in word and word.lower().endswith((*TEXT_SUFFIXES, ".mcpb", ".dxt")):
        raise ConfigError([f"error: {plain(word)} does not exist"])
    return _text(word, options)


def _meant(words: Sequence[str]) -> str | None:
    """Describe the first word and suggest a command. Returns None if the word may be a program or a
    file."""
    word = words[0]
    if os.path.exists(word) or shutil.which(word) is not None:
        return None
    if _PACKAGE.fullmatch(word):
        more = " …" if len(words) > 1 else ""
        return (
            "an npm package, not a program; did you mean: mcpx add npx -y "
            f"{shlex.quote(word)}{more}"
        )
    if _HOST.fullmatch(word):
        return (
            "an address without http:// or https://; did you mean: mcpx add "
            f"{shlex.quote(f'http://{word}')}"
        )
    return None


def _line(words: Sequence[str]) -> Given:
    given = _in_this_folder(_read(shlex.join(words), is_line=shutil.which(words[0]) is not None))
    given.program = tuple(words)
    return given


def _read(text: str, *, is_line: bool = False) -> Given:
    try:
        found = read(text.strip(), is_line=is_line)
    except ConfigError as error:
        if "not recognised" in str(error.problems[0]):
            raise ConfigError(
                [f"error: this was not recognised; what is understood: {UNDERSTOOD}"]
            ) from None
        raise
    warnings = list(found.warnings)
    others = [
        *(["profiles"] if found.pasted.profiles else []),
        *(k for k in found.pasted.sections if k != "mode"),
    ]
    if others and found.pasted.kind == "native":
        warnings.append(
            f"only servers, commands and auth configs are added, not {', '.join(others)}"
        )
    if not found.entries:
        raise ConfigError([f"error: there is no server in it; what is understood: {UNDERSTOOD}"])
    left_out = {each.name: each.reason for each in found.pasted.left_out}
    title, hidden = title_of(found), found.hidden_tools
    return Given(
        found.pasted.kind,
        title,
        found.entries,
        warnings=warnings,
        left_out=left_out,
        hidden_tools=hidden,
    )


def _in_this_folder(given: Given) -> Given:
    """A program whose arguments are relative to this folder is started in it."""
    for _, entry in given.entries:
        connection = as_object(entry.get("connection"))
        words = [str(connection.get("command", "")), *map(str, connection.get("args") or [])]
        here = [
            word for word in words if _RELATIVE.fullmatch(word) or ("/" in word and _is_here(word))
        ]
        if given.kind == "command" and here and "cwd" not in connection:
            connection["cwd"] = os.getcwd().replace("$", "$$")
            given.facts.append(f"{plain(here[0], 60)} is relative: it is started in this folder")
    return given


def _is_here(word: str) -> bool:
    try:
        return not os.path.isabs(word) and not word.startswith("@") and os.path.exists(word)
    except ValueError:
        return False


def _text(text: str, options: argparse.Namespace) -> Given:
    from mcpx.imports.registry import is_document, parse_listed

    bare = text.strip()
    if is_curl(bare):
        return _curl([bare.removeprefix("$").strip()], options)
    if is_openapi(bare):
        return _openapi(options, text=text)
    if bare.startswith("{") and is_document(_json(bare)):
        return _registered(parse_listed(bare, "what was given"), options)
    given = _read(text)
    return _in_this_folder(given) if given.kind == "command" else given


def _json(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _file(path: Path, options: argparse.Namespace) -> Given:
    if is_bundle(path):
        return _bundle(path, options)
    if os.access(path, os.X_OK) and path.suffix.lower() not in TEXT_SUFFIXES:
        return _line([str(path) if "/" in str(path) else f"./{path}"])
    from mcpx.imports.openapi_document import MAX_BYTES as LARGEST

    try:
        text = read_text(path, LARGEST)
    except UnreadableError as error:
        raise ConfigError([f"error: {plain(str(path))} {error}"]) from None
    if path.suffix.lower() not in TEXT_SUFFIXES and not text.lstrip().startswith(
        ("{", "[", "openapi", "mcp")
    ):
        told = "name what starts it: mcpx add python3 FILE, or make it executable"
        raise ConfigError(
            [
                f"error: {plain(str(path))} is no program that can be started, and no config\n  "
                f"{told}"
            ]
        )
    return _text(text, options)


def _address(url: str, options: argparse.Namespace) -> Given:
    if re.search(r"(?i)\.(?:mcpb|dxt)$", url.partition("?")[0]):
        return _fetched_bundle(url, "", options)
    if names_document(url) or options.only or options.tag or options.skip:
        return _openapi(options, url=url)
    return _read(url)


# Requests


def _curl(line: list[str], options: argparse.Namespace) -> Given:
    from mcpx.imports.curl import CurlOptions, import_curl

    wishes = CurlOptions(options.name, allow_private=options.allow_private)
    return _imported("curl", "A curl line: one HTTP command", import_curl(line, wishes))


def _openapi(options: argparse.Namespace, *, text: str = "", url: str | None = None) -> Given:
    from mcpx.imports.openapi import Choice, OpenApiOptions, import_openapi
    from mcpx.imports.openapi_document import fetch_document, parse_document

    if url is not None:
        with Waiting() as waiting:
            waiting.tell("the document is fetched")
            document = result_of(fetch_document(url, os.environ, options.allow_private))
    else:
        document = parse_document(text, Path("document"))
    choice = Choice(tuple(options.only), tuple(options.skip), tuple(options.tag))
    made = import_openapi(
        document, OpenApiOptions(choice, None, None, options.prefix or "", options.allow_private)
    )
    if not made.commands:
        for what, why in made.skipped[:1]:
            raise ConfigError([f"error: no operation was taken: {what}: {why}\n  {_OPENAPI_HELP}"])
        raise ConfigError([f"error: no operation was taken\n  {_OPENAPI_HELP}"])
    called = f" “{plain(document.title, 100)}”" if document.title else ""
    number = len(made.commands)
    title = f"An OpenAPI document{called}: {number} operation{'s' * (number != 1)} as HTTP commands"
    return _imported("openapi", title, made)


def _imported(kind: str, title: str, made: "Imported") -> Given:
    sections: dict[Section, list[Json]] = {"auth_configs": made.auths, "commands": made.commands}
    entries: list[tuple[Section, Json]] = []
    for section, table in sections.items():
        entries.extend((section, each) for each in table)
    warnings = [f"left out: {what}: {why}" for what, why in made.skipped[:10]] + made.notes[:10]
    needs = {name: what for name, what in made.variables.items() if name not in made.secrets}
    return Given(kind, title, entries, warnings=warnings, needs=needs, secrets=dict(made.secrets))


# Bundles


def _bundle(path: Path, options: argparse.Namespace, sha256: str = "") -> Given:
    from mcpx.imports.bundle import launch_of, read_bundle, unpack

    bundle = read_bundle(path, sha256)
    folder = bundle.folder(state_folder(os.environ))
    if options.into:
        folder = Path(os.path.abspath(options.into))
    launch = launch_of(bundle, folder, os.environ)
    facts = [f"sha256 {bundle.sha256}", f"files in {plain(str(folder), 4096)}"]
    given = _launched(f"An MCP bundle: {bundle.title}", launch, facts, options)
    if not options.dry_run and unpack(bundle, folder):
        given.folder = folder
    return given


def _launched(
    title: str, launch: Launch, facts: list[str], options: argparse.Namespace, kind: str = "mcpb"
) -> Given:
    told = settings(launch.inputs, options, launch.name)
    return Given(
        kind,
        title,
        [("mcp_servers", launch.entry(told))],
        facts,
        list(launch.warnings),
        secrets=told.secrets,
        is_strange=True,
    )


def _fetched_bundle(url: str, sha256: str, options: argparse.Namespace) -> Given:
    from mcpx.imports.bundle import MAX_PACKED
    from mcpx.imports.source import download

    with Waiting() as waiting:
        waiting.tell("the bundle is fetched")
        answer = result_of(
            download(
                url,
                os.environ,
                what="the bundle",
                limit=MAX_PACKED,
                timeout=300.0,
                allow_private=options.allow_private,
            )
        )
    if answer.status != 200:
        raise ConfigError([f"error: the bundle cannot be fetched: status {answer.status}"])
    with tempfile.TemporaryDirectory(prefix="mcpx-") as folder:
        file = Path(folder) / "bundle.mcpb"
        file.write_bytes(answer.body)
        return _bundle(file, options, sha256)


# Registries
# --------------------------------------------------------------------------------------------------


def _look_up(name: str, options: argparse.Namespace) -> Listed:
    from mcpx.imports.registry import look_up

    with Waiting() as waiting:
        waiting.tell("the registry is asked")
        return result_of(look_up(name, os.environ, allow_private=options.allow_private))


def _registered(listed: Listed, options: argparse.Namespace) -> Given:
    from mcpx.imports.registry import choose_launch, launches

    launch = choose_launch(listed, options.package)
    if listed.status == "deleted":
        problem = f"{listed.name} {listed.version} was deleted by its publisher or the registry"
        raise ConfigError([f"error: {problem}"])
    publisher = listed.name.rpartition("/")[0]
    facts = [
        f"{listed.name} {listed.version}".rstrip(),
        f"publisher {publisher}, from {listed.source}",
        listed.age(),
    ]
    others = [each.kind for each in launches(listed)[0] if each != launch]
    if others:
        facts.append(f"also as {', '.join(dict.fromkeys(others))} (--package)")
    facts = [fact for fact in facts if fact]
    if launch.kind == "mcpb":
        given = _fetched_bundle(str(launch.connection["url"]), launch.sha256, options)
        given.facts[:0] = facts
    else:
        what = f"a package ({launch.kind})"
        if launch.kind == "remote":
            what = "an address"
        title = f"A server of a registry: {what}"
        given = _launched(title, launch, facts, options, "registry")
    if listed.status not in ("", "active"):
        given.warnings.append(f"its publisher calls it {listed.status}")
    return given


def names_of(entries: Sequence[tuple[Section, Json]]) -> str:
    """`server 'a', command 'b'`."""
    return ", ".join(
        f"{NOUNS[section]} {plain(str(entry['name']), 100)!r}" for section, entry in entries
    )


# Settings


def settings(inputs: Sequence[Input], options: argparse.Namespace, owner: str) -> Answers:
    """The values of `--set`, and answers of the user. Raises ConfigError."""
    given = values_by_key(options.set, "--set")
    if can_ask() and not options.yes:
        for wanted in unanswered(inputs, given):
            if (value := _asked(wanted)) != "":
                given[wanted.key] = [value]
    return answers(inputs, given, owner)


def values_by_key(given: Iterable[str], option: str) -> dict[str, list[str]]:
    """The values of `KEY=VALUE` options."""
    found: dict[str, list[str]] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError([f"error: {option} {plain(key, 40)!r}: say KEY=VALUE"])
        found.setdefault(key, []).append(value)
    return found


def _asked(wanted: Input) -> str:
    what = f" ({plain(wanted.title)})" if wanted.title else ""
    choices = (
        f" [{', '.join(plain(each, 30) for each in wanted.choices[:10])}]" if wanted.choices else ""
    )
    prompt = f"{plain(wanted.key, 60)}{what}{choices}: "
    if wanted.secret:
        from getpass import getpass

        return getpass(prompt, sys.stderr)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\r\n")
