"""An OpenAPI document: read from a file or an address, and asked what its references mean.

Promised: bounded in bytes, values and depth; nothing else is read, whatever it refers to; a mistake
is a `ConfigError`. Not done here: what its parts mean.
"""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mcpx.config.problems import Findings, GaveUpError, tell
from mcpx.config.source import Source, UnreadableError, read_text
from mcpx.imports.texts import one_line
from mcpx.model.call import Json, as_object, is_array, is_object
from mcpx.model.errors import ConfigError
from mcpx.wire.address import BadAddress, parse

MAX_BYTES = 20 * 2**20
MAX_NODES = 2_000_000
"""Values of a YAML document, aliases counted each time; JSON has its bounds in `wire.codec`."""
MAX_DEPTH = 100
MAX_CHAIN = 20
"""References that lead to references."""


class BadReference(Exception):
    """What a reference says cannot be had; the words say why."""


class Document:
    def __init__(self, tree: Json, url: str | None = None) -> None:
        """`url`: where it came from. Raises `ConfigError` for what is no OpenAPI 3 document."""
        version = tree.get("openapi")
        if "swagger" in tree and version is None:
            raise ConfigError(
                [
                    "error: this is a Swagger 2.0 document; mcpx reads OpenAPI 3.0 and 3.1\n"
                    "  convert it once: npx swagger2openapi --outfile openapi.json DOCUMENT"
                ]
            )
        if not isinstance(version, str) or not re.match(r"3\.\d+(\.|$)", version):
            told = (
                "it has no key 'openapi'"
                if version is None
                else f"its version is {one_line(str(version), 20)!r}"
            )
            raise ConfigError([f"error: not an OpenAPI 3 document: {told}"])
        self.tree = tree
        self.url = url

    @property
    def title(self) -> str:
        title = as_object(self.tree.get("info")).get("title")
        return title if isinstance(title, str) else ""

    def resolved(self, value: Any) -> Json:
        """An object of the document, or what its reference leads to. Raises `BadReference`."""
        for _ in range(MAX_CHAIN):
            table = as_object(value)
            if not isinstance(ref := table.get("$ref"), str):
                return table
            value = self.target(ref)
        raise BadReference("references that lead in a circle")

    def target(self, ref: str) -> Any:
        """What a reference within the document points to. Raises `BadReference`."""
        if not ref.startswith("#"):
            raise BadReference(
                f"a reference to another document ({one_line(ref, 60)}), which is not followed"
            )
        here: Any = self.tree
        for step in ref[1:].split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if is_object(here) and name in here:
                here = here[name]
            elif is_array(here) and name.isdecimal() and len(name) < 8 and int(name) < len(here):
                here = here[int(name)]
            else:
                raise BadReference(f"a reference to nothing ({one_line(ref, 60)})")
        if here is self.tree:
            raise BadReference(f"a reference that is not understood ({one_line(ref, 60)})")
        return here


def read(source: str, environ: Mapping[str, str], *, allow_private: bool = False) -> Document:
    """A file, or an http or https address. Raises `ConfigError`."""
    if re.match(r"(?i)https?://", source):
        text, url = asyncio.run(fetched(source, environ, allow_private))
        return document_of(text, Path("document"), url)
    try:
        text = read_text(Path(source), MAX_BYTES)
    except UnreadableError as error:
        raise ConfigError([f"error: {one_line(source)} {error}"]) from None
    return document_of(text, Path(source))


def document_of(text: str, path: Path, url: str | None = None) -> Document:
    """`path`: what it is called. Raises `ConfigError`."""
    return Document(_parsed(text, path), url)


async def fetched(url: str, environ: Mapping[str, str], allow_private: bool) -> tuple[str, str]:
    """The text at an address, and where it was in the end. Raises `ConfigError`."""
    from mcpx.wire.fetch import Fetch, Fetcher, FetchFailed

    try:
        host = parse(url.partition("#")[0]).shown_host
    except BadAddress as problem:
        raise ConfigError([f"error: the document's address: {problem}"]) from None
    headers = (
        ("Accept", "application/json, application/yaml;q=0.9, */*;q=0.5"),
        ("User-Agent", "mcpx"),
    )
    asked = Fetch(
        url=url.partition("#")[0], headers=headers, limit=MAX_BYTES, allow_private=allow_private
    )
    fetcher = Fetcher(environ)
    try:
        answer = await fetcher.fetch(asked)
    except FetchFailed as error:
        hint = "; --allow-private lets it through" if error.forbidden and not allow_private else ""
        raise ConfigError([f"error: the document cannot be fetched: {error}{hint}"]) from None
    except ValueError as error:
        raise ConfigError([f"error: the document cannot be fetched: {error}"]) from None
    finally:
        await fetcher.close()
    if answer.status != 200:
        raise ConfigError(
            [f"error: the document cannot be fetched: {host} answered with status {answer.status}"]
        )
    try:
        return answer.body.decode("utf-8-sig"), answer.url
    except UnicodeDecodeError:
        raise ConfigError(["error: the document is not UTF-8 text"]) from None


def _parsed(text: str, path: Path) -> Json:
    begins = text.lstrip()[:1]
    if not begins:
        raise ConfigError([f"error: {path} is empty"])
    tree = (
        _json(text, path)
        if begins == "{" and path.suffix.lower() not in (".yaml", ".yml")
        else _yaml(text, path)
    )
    if not is_object(tree):
        raise ConfigError(["error: not an OpenAPI document: it is not a mapping"])
    return tree


def _json(text: str, path: Path) -> Any:
    from mcpx.wire.codec import BadJson, load

    try:
        return load(text.encode())
    except BadJson as error:
        raise ConfigError([f"error: {path} is not valid JSON: {error}"]) from None


def _yaml(text: str, path: Path) -> Any:
    from mcpx.config.compose import compose
    from mcpx.config.nodes import values_of

    source = Source(path, text)
    source.text = text  # so that a mistake is shown with its line
    findings = Findings(source.trace)
    try:
        node = compose(text, findings, MAX_NODES, MAX_DEPTH)
    except GaveUpError:
        node = None
    if findings:
        raise ConfigError(tell(findings))
    return values_of(node)
