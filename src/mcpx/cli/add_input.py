"""Recognizes what `mcpx add` is given.

A command line, a URL, the JSON of a client, an OpenAPI document, a curl line, a bundle, or a name
in a registry becomes entries of a configuration. Documents are fetched and bundles are unpacked. No
server is started, and no configuration is written.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mcpx.cli.output import Waiting, can_ask, counted, plain
from mcpx.cli.running import mistake, result_of, warn
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
from mcpx.imports.registry import (
    Listed,
    choose_launch,
    is_document,
    is_name,
    launches,
    look_up,
    parse_listed,
)
from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError
from mcpx.model.state import state_folder

if TYPE_CHECKING:
    from mcpx.imports.imported import Imported
    from mcpx.imports.openapi_document import Document

_OPENAPI_HELP = "mcpx import openapi DOCUMENT --list shows all; --server URL says where the API is"
T = TypeVar("T")
UNDERSTOOD = (
    "a command line such as 'npx -y package', an address, a client's JSON or TOML, native YAML, "
    "an OpenAPI document, "
    "a curl line, a .mcpb file, or a name in a registry (io.github.owner/name)"
)
TEXT_SUFFIXES = (".json", ".jsonc", ".json5", ".yaml", ".yml", ".toml", ".txt", ".md")
_PACKAGE = re.compile(r"@[\w.-]+/[\w.-]+(?:@[\w.^~-]+)?")
"""An npm package with its scope, and a version."""
_HOST = re.compile(
    r"(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[\da-fA-F:]+\])(?::\d{1,5})?(?:/\S*)?"
    r"|[\w.-]+:\d{1,5}/\S*"
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
    """Raises ConfigError."""
    if not words:
        raise mistake(f"say what to add: {UNDERSTOOD}")
    hint = _hint(words)
    if hint:
        raise mistake(f"{plain(words[0], 200)!r} is {hint}")
    return _Recognizer(options).words(list(words))


def _hint(words: Sequence[str]) -> str:
    """What the first word is, and a command for it. Empty if it may be a program or a file."""
    word = words[0]
    if os.path.exists(word) or shutil.which(word) is not None:
        return ""
    if _PACKAGE.fullmatch(word):
        line = f"{shlex.quote(word)}{' …' * (len(words) > 1)}"
        return f"an npm package, not a program; did you mean: mcpx add npx -y {line}"
    if _HOST.fullmatch(word):
        url = shlex.quote(f"http://{word}")
        return f"an address without http:// or https://; did you mean: mcpx add {url}"
    return ""


class _Recognizer:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    def words(self, words: list[str]) -> Given:
        word = words[0]
        if len(words) > 1 and word == "curl":
            return self._curl(words)
        if len(words) > 1:
            return self._line(words)
        if word == "-":
            if sys.stdin.isatty():
                warn("Paste it, then press Ctrl-D.")
            return self._text(sys.stdin.read(MAX_BYTES + 1))
        if is_address(word):
            return self._address(word)
        path = Path(os.path.expanduser(word))
        if len(word) < 4096 and "\n" not in word and path.is_file():
            return self._file(path)
        if is_name(word):
            private = self._options.allow_private
            looking_up = look_up(word, os.environ, allow_private=private)
            return self._registered(_fetched("the registry is asked", looking_up))
        if " " not in word and word.lower().endswith((*TEXT_SUFFIXES, ".mcpb", ".dxt")):
            raise mistake(f"{plain(word)} does not exist")
        return self._text(word)

    def _line(self, words: Sequence[str]) -> Given:
        given = _read(shlex.join(words), is_line=shutil.which(words[0]) is not None)
        given.program = tuple(words)
        return given

    def _text(self, text: str) -> Given:
        bare = text.strip()
        if is_curl(bare):
            return self._curl([bare.removeprefix("$").strip()])
        if is_openapi(bare):
            from mcpx.imports.openapi_document import parse_document

            return self._openapi(parse_document(text, Path("document")))
        if bare.startswith("{") and is_document(_json(bare)):
            return self._registered(parse_listed(bare, "what was given"))
        return _read(text)

    def _file(self, path: Path) -> Given:
        from mcpx.imports.openapi_document import MAX_BYTES as MAX_DOCUMENT

        if is_bundle(path):
            return self._bundle(path)
        is_text = path.suffix.lower() in TEXT_SUFFIXES
        shown = str(path)
        if os.access(path, os.X_OK) and not is_text:
            return self._line([shown if "/" in shown else f"./{shown}"])
        try:
            text = read_text(path, MAX_DOCUMENT)
        except UnreadableError as error:
            raise mistake(f"{plain(shown)} {error}") from None
        if not is_text and not text.lstrip().startswith(("{", "[", "openapi", "mcp")):
            hint = "name what starts it: mcpx add python3 FILE, or make it executable"
            problem = "is no program that can be started, and no config"
            raise mistake(f"{plain(shown)} {problem}\n  {hint}")
        return self._text(text)

    def _address(self, url: str) -> Given:
        options = self._options
        if re.search(r"(?i)\.(?:mcpb|dxt)$", url.partition("?")[0]):
            return self._fetched_bundle(url, "")
        if names_document(url) or options.only or options.tag or options.skip:
            from mcpx.imports.openapi_document import fetch_document

            fetching = fetch_document(url, os.environ, options.allow_private)
            return self._openapi(_fetched("the document is fetched", fetching))
        return _read(url)

    def _curl(self, line: list[str]) -> Given:
        from mcpx.imports.curl import CurlOptions, import_curl

        options = CurlOptions(self._options.name, allow_private=self._options.allow_private)
        return _imported("curl", "A curl line: one HTTP command", import_curl(line, options))

    def _openapi(self, document: "Document") -> Given:
        from mcpx.imports.openapi import Choice, OpenApiOptions, import_openapi

        options = self._options
        choice = Choice(tuple(options.only), tuple(options.skip), tuple(options.tag))
        private = options.allow_private
        made = import_openapi(
            document, OpenApiOptions(choice, prefix=options.prefix or "", allow_private=private)
        )
        if not made.commands:
            reasons = [f": {what}: {why}" for what, why in made.skipped]
            raise mistake(f"no operation was taken{''.join(reasons[:1])}\n  {_OPENAPI_HELP}")
        name = f" “{plain(document.title, 100)}”" * bool(document.title)
        number = counted(len(made.commands), "operation")
        return _imported("openapi", f"An OpenAPI document{name}: {number} as HTTP commands", made)

    def _bundle(self, path: Path, sha256: str = "") -> Given:
        from mcpx.imports.bundle import launch_of, read_bundle, unpack

        bundle = read_bundle(path, sha256)
        folder = bundle.folder(state_folder(os.environ))
        if self._options.into:
            folder = Path(os.path.abspath(self._options.into))
        launch = launch_of(bundle, folder, os.environ)
        facts = [f"sha256 {bundle.sha256}", f"files in {plain(str(folder), 4096)}"]
        given = self._launched("mcpb", f"An MCP bundle: {bundle.title}", launch, facts)
        if not self._options.dry_run and unpack(bundle, folder):
            given.folder = folder
        return given

    def _launched(self, kind: str, title: str, launch: Launch, facts: list[str]) -> Given:
        told = settings(launch.inputs, self._options, launch.name)
        return Given(
            kind,
            title,
            [("mcp_servers", launch.entry(told))],
            facts,
            list(launch.warnings),
            secrets=told.secrets,
            is_strange=True,
        )

    def _fetched_bundle(self, url: str, sha256: str) -> Given:
        from mcpx.imports.bundle import MAX_PACKED
        from mcpx.imports.source import download

        downloading = download(
            url,
            os.environ,
            what="the bundle",
            limit=MAX_PACKED,
            timeout=300.0,
            allow_private=self._options.allow_private,
        )
        answer = _fetched("the bundle is fetched", downloading)
        if answer.status != 200:
            raise mistake(f"the bundle cannot be fetched: status {answer.status}")
        with tempfile.TemporaryDirectory(prefix="mcpx-") as folder:
            file = Path(folder) / "bundle.mcpb"
            file.write_bytes(answer.body)
            return self._bundle(file, sha256)

    def _registered(self, listed: Listed) -> Given:
        launch = choose_launch(listed, self._options.package)
        name = f"{listed.name} {listed.version}".rstrip()
        if listed.status == "deleted":
            raise mistake(f"{name} was deleted by its publisher or the registry")
        publisher = listed.name.rpartition("/")[0]
        facts = [name, f"publisher {publisher}, from {listed.source}", listed.age()]
        others = [each.kind for each in launches(listed)[0] if each != launch]
        if others:
            facts.append(f"also as {', '.join(dict.fromkeys(others))} (--package)")
        facts = [fact for fact in facts if fact]
        if launch.kind == "mcpb":
            given = self._fetched_bundle(str(launch.connection["url"]), launch.sha256)
            given.facts[:0] = facts
        else:
            what = f"a package ({launch.kind})".replace("a package (remote)", "an address")
            title = f"A server of a registry: {what}"
            given = self._launched("registry", title, launch, facts)
        if listed.status not in ("", "active"):
            given.warnings.append(f"its publisher calls it {listed.status}")
        return given


def _fetched(what: str, coroutine: Coroutine[Any, Any, T]) -> T:
    with Waiting() as waiting:
        waiting.tell(what)
        return result_of(coroutine)


def _read(text: str, *, is_line: bool = False) -> Given:
    """Read servers in any format of a configuration, a URL, or a command line."""
    try:
        found = read(text.strip(), is_line=is_line)
    except ConfigError as error:
        if "not recognised" in str(error.problems[0]):
            raise mistake(f"this was not recognised; what is understood: {UNDERSTOOD}") from None
        raise
    pasted = found.pasted
    if not found.entries:
        raise mistake(f"there is no server in it; what is understood: {UNDERSTOOD}")
    given = Given(
        pasted.kind,
        title_of(found),
        found.entries,
        warnings=list(found.warnings),
        left_out={each.name: each.reason for each in pasted.left_out},
        hidden_tools=found.hidden_tools,
    )
    others = ["profiles"] * bool(pasted.profiles)
    others += [section for section in pasted.sections if section != "mode"]
    if others and pasted.kind == "native":
        what = "only servers, commands and auth configs are added"
        given.warnings.append(f"{what}, not {', '.join(others)}")
    if pasted.kind == "command":
        _start_in_this_folder(given)
    return given


def _start_in_this_folder(given: Given) -> None:
    """Set the folder of programs whose words are paths relative to it."""
    for _, entry in given.entries:
        connection = as_object(entry.get("connection"))
        words = [str(connection.get("command", "")), *map(str, connection.get("args") or [])]
        relative = next(filter(_is_relative, words), None)
        if relative is not None and "cwd" not in connection:
            connection["cwd"] = os.getcwd().replace("$", "$$")
            given.facts.append(f"{plain(relative, 60)} is relative: it is started in this folder")


def _is_relative(word: str) -> bool:
    if _RELATIVE.fullmatch(word):
        return True
    if "/" not in word or word.startswith("@") or "\0" in word:
        return False
    return not os.path.isabs(word) and os.path.exists(word)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _imported(kind: str, title: str, made: "Imported") -> Given:
    sections: dict[Section, list[Json]] = {"auth_configs": made.auths, "commands": made.commands}
    entries: list[tuple[Section, Json]] = []
    for section, table in sections.items():
        entries.extend((section, each) for each in table)
    warnings = [f"left out: {what}: {why}" for what, why in made.skipped[:10]] + made.notes[:10]
    needs = {name: what for name, what in made.variables.items() if name not in made.secrets}
    return Given(kind, title, entries, warnings=warnings, needs=needs, secrets=dict(made.secrets))


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
            raise mistake(f"{option} {plain(key, 40)!r}: say KEY=VALUE")
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
