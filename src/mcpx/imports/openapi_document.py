"""Reads an OpenAPI document and resolves its references and server addresses.

The size, the number of values, and the depth are limited. References to other documents are not
followed.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from mcpx.config.problems import Findings, GaveUpError, tell
from mcpx.config.source import Source, UnreadableError, read_text
from mcpx.imports.imported import reference
from mcpx.imports.source import decoded, download, one_line
from mcpx.model.call import Json, as_list, as_object, is_array, is_object
from mcpx.model.errors import ConfigError
from mcpx.wire.address import BadAddress, parse
from mcpx.wire.reach import is_public

MAX_BYTES = 20 * 2**20
MAX_NODES = 2_000_000
"""Values of a YAML document. An alias counts each time it is used. `wire.codec` limits JSON."""
MAX_DEPTH = 100
MAX_REFERENCES = 20
"""References that lead to references."""


class BadReference(Exception):
    """A `$ref` that cannot be resolved."""


class NoServer(Exception):
    """The document has no usable server address."""


class Document:
    def __init__(self, tree: Json, url: str | None = None) -> None:
        """`url`: the address of the document. Raises ConfigError unless it is OpenAPI 3."""
        version = tree.get("openapi")
        if "swagger" in tree and version is None:
            problem = (
                "error: this is a Swagger 2.0 document; mcpx reads OpenAPI 3.0 and 3.1\n"
                "  convert it once: npx swagger2openapi --outfile openapi.json DOCUMENT"
            )
            raise ConfigError([problem])
        if version is None:
            raise ConfigError(["error: not an OpenAPI 3 document: it has no key 'openapi'"])
        if not isinstance(version, str) or not re.match(r"3\.\d+(\.|$)", version):
            shown = one_line(str(version), 20)
            raise ConfigError([f"error: not an OpenAPI 3 document: its version is {shown!r}"])
        self.tree = tree
        self.url = url

    @property
    def title(self) -> str:
        title = as_object(self.tree.get("info")).get("title")
        return title if isinstance(title, str) else ""

    def resolved(self, value: Any) -> Json:
        """An object of the document, or the object that it refers to. Raises BadReference."""
        for _ in range(MAX_REFERENCES):
            table = as_object(value)
            ref = table.get("$ref")
            if not isinstance(ref, str):
                return table
            value = self.target(ref)
        raise BadReference("references that lead in a circle")

    def resolved_or_empty(self, value: Any) -> Json:
        try:
            return self.resolved(value)
        except BadReference:
            return {}

    def target(self, ref: str) -> Any:
        """The value that a reference within the document points to. Raises BadReference."""
        shown = one_line(ref, 60)
        if not ref.startswith("#"):
            raise BadReference(f"a reference to another document ({shown}), which is not followed")
        steps = ref[1:].split("/")[1:]
        if not steps:
            raise BadReference(f"a reference that is not understood ({shown})")
        value: Any = self.tree
        for step in steps:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if is_array(value) and name.isdecimal() and len(name) < 8:
                value = {str(index): item for index, item in enumerate(value)}
                name = str(int(name))
            if not is_object(value) or name not in value:
                raise BadReference(f"a reference to nothing ({shown})")
            value = value[name]
        return value

    def server_url(self, levels: Sequence[Any]) -> str:
        """The first server of the first level that has servers. Raises NoServer."""
        first_servers: list[Any] = [server for level in levels for server in as_list(level)[:1]]
        server = as_object([*first_servers, None][0])
        given = server.get("url")
        url = given if isinstance(given, str) else "/"
        variables = as_object(server.get("variables"))
        for name in dict.fromkeys(re.findall(r"\{([^{}]*)\}", url)):
            default = as_object(variables.get(name)).get("default")
            if not isinstance(default, str | int | float):
                problem = f"a variable without a default ({one_line(name, 40)})"
                raise NoServer(f"the server address has {problem}: use --server")
            url = url.replace(f"{{{name}}}", str(default))
        if self.url is not None:
            url = urljoin(self.url, url)
        elif not re.match(r"(?i)https?://", url):
            raise NoServer("the document has no absolute server address: use --server URL")
        return plain_url(url)


def plain_url(url: str) -> str:
    """The address without credentials, query, and fragment. Raises NoServer."""
    try:
        parts = urlsplit(url)
        host, path = parts.netloc.rpartition("@")[2], parts.path.rstrip("/")
        plain = urlunsplit((parts.scheme, host, path, "", ""))
        parse(plain)
    except BadAddress as problem:
        reason = f"the server address cannot be used ({problem.what}): use --server URL"
        raise NoServer(reason) from None
    except ValueError:
        plain = ""
    if not plain or "{" in plain or "}" in plain or not plain.isprintable():
        raise NoServer("the server address cannot be used: use --server URL")
    return plain


def given_url(url: str) -> str:
    """The address that the user gave, which may contain references. Raises NoServer."""
    if "${" not in url:
        return plain_url(url)
    return re.sub(r"\$\{([^{}]*)\}", lambda found: reference(found[1]), url.rstrip("/"))


def is_private(url: str) -> bool:
    """Return True for an address that is certainly private. Names are not resolved."""
    try:
        host = parse(url).host
    except BadAddress:
        return False
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not is_public(ip_address(host))
    except ValueError:
        return False


# Reading


def read(source: str, environ: Mapping[str, str], *, allow_private: bool = False) -> Document:
    """Read a file or an http or https address. Raises ConfigError."""
    if re.match(r"(?i)https?://", source):
        return asyncio.run(fetch_document(source, environ, allow_private))
    try:
        text = read_text(Path(source), MAX_BYTES)
    except UnreadableError as error:
        raise ConfigError([f"error: {one_line(source)} {error}"]) from None
    return parse_document(text, Path(source))


async def fetch_document(url: str, environ: Mapping[str, str], allow_private: bool) -> Document:
    what = "the document"
    answer = await download(
        url.partition("#")[0], environ, what=what, limit=MAX_BYTES, allow_private=allow_private
    )
    if answer.status != 200:
        host = parse(answer.url).shown_host
        problem = f"error: {what} cannot be fetched: {host} answered with status {answer.status}"
        raise ConfigError([problem])
    text = decoded(answer.body, what)
    return await asyncio.to_thread(parse_document, text, Path("document"), answer.url)


def parse_document(text: str, path: Path, url: str | None = None) -> Document:
    """`path`: the name for messages. Raises ConfigError."""
    begin = text.lstrip()[:1]
    if not begin:
        raise ConfigError([f"error: {path} is empty"])
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    parser = _parse_json if begin == "{" and not is_yaml else _parse_yaml
    tree = parser(text, path)
    if not is_object(tree):
        raise ConfigError(["error: not an OpenAPI document: it is not a mapping"])
    return Document(tree, url)


def _parse_json(text: str, path: Path) -> Any:
    from mcpx.wire.codec import BadJson, load

    try:
        return load(text.encode())
    except BadJson as error:
        raise ConfigError([f"error: {path} is not valid JSON: {error}"]) from None


def _parse_yaml(text: str, path: Path) -> Any:
    from mcpx.config.nodes import values_of
    from mcpx.config.yaml_reader import read_yaml

    source = Source(path, text)
    source.text = text  # Messages show the line of a mistake.
    findings = Findings(source.trace)
    node = None
    try:
        node = read_yaml(text, findings, MAX_NODES, MAX_DEPTH)
    except GaveUpError:
        pass
    if findings:
        raise ConfigError(tell(findings))
    return values_of(node)
