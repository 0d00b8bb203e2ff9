"""Servers of an MCP registry (the official API v0.1) and of `server.json` files.

A response is limited in size and time. The user names the registry, so that its address may be
private. A package is started in a fixed version and without a shell. Its arguments are shown to the
user before it is started.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from mcpx.config.lines import is_address
from mcpx.config.server_names import name_of_registry_entry
from mcpx.imports.launch import ENV_OPTIONS, Input, Launch, escaped, placeholder, template
from mcpx.imports.source import decoded, download, one_line
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError
from mcpx.wire.address import parse

OFFICIAL = "https://registry.modelcontextprotocol.io"
VARIABLE = "MCPX_REGISTRY"
MAX_DOCUMENT = 2**20
TIMEOUT_SECONDS = 15.0
KINDS = ("remote", "npm", "pypi", "oci", "nuget", "mcpb")
"""Ways to reach or start a server, the preferred one first."""
MAX_ITEMS = 200
"""Arguments, variables, and headers of one server."""
_ALTERNATIVES = (
    "a command line (mcpx add npx -y PACKAGE), an address, a client's JSON, or a server.json file "
    "does not need a registry"
)
_NAME = re.compile(
    r"([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)/([A-Za-z0-9][A-Za-z0-9._-]*)(?:@([\w.+-]+))?"
)
_OFFICIAL_META = "io.modelcontextprotocol.registry/official"
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_VERSION = re.compile(r"(?!latest$)[A-Za-z0-9][\w.+!-]{0,99}", re.IGNORECASE)
_IDENTIFIERS = {
    "npm": re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.IGNORECASE),
    "pypi": re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"),
    "nuget": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
    "oci": re.compile(r"[a-z0-9][a-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?", re.IGNORECASE),
    "mcpb": re.compile(r"https?://\S+"),
}
_PROGRAMS = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}
_SAYS_VALUE = (
    "default",
    "valueHint",
    "placeholder",
    "choices",
    "format",
    "description",
    "isSecret",
)
"""Keys of an argument that has a value."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A server as a registry or a file describes it."""

    document: Json = field(repr=False)
    source: str
    """The host of the registry, or the file."""
    published: str = ""
    status: str = ""

    @property
    def name(self) -> str:
        return one_line(str(self.document["name"]), 200)

    @property
    def version(self) -> str:
        return one_line(str(self.document.get("version") or ""), 60)

    def age(self) -> str:
        """When this version was published, or an empty text."""
        try:
            published = datetime.fromisoformat(self.published)
        except ValueError:
            return ""
        days = (datetime.now(UTC) - published.replace(tzinfo=published.tzinfo or UTC)).days
        if days <= 0:
            return "published today"
        return f"published {days} day{'s' * (days != 1)} ago"


def is_name(text: str) -> bool:
    """Return True for `io.github.owner/name`, with or without `@version`."""
    return len(text) <= 300 and _NAME.fullmatch(text) is not None


def is_document(tree: Any) -> bool:
    """Return True if a JSON value looks like a `server.json`."""
    table = as_object(tree)
    table = as_object(table.get("server")) or table
    if "server.schema.json" in str(table.get("$schema")):
        return True
    return is_name(str(table.get("name"))) and bool(table.keys() & {"packages", "remotes"})


def parse_listed(text: str, source: str) -> Listed:
    """Raises ConfigError."""
    begin = f"error: {one_line(source)}"
    if len(text) > MAX_DOCUMENT:
        raise ConfigError([f"{begin}: larger than {MAX_DOCUMENT:,} characters"])
    try:
        whole = as_object(json.loads(text))
    except (ValueError, RecursionError):
        raise ConfigError([f"{begin}: not valid JSON"]) from None
    document = as_object(whole.get("server")) or whole
    name = document.get("name")
    if not isinstance(name, str) or not is_name(name) or "@" in name:
        raise ConfigError([f"{begin} is no server.json: its name is not like io.github.owner/name"])
    if not as_list(document.get("packages")) and not as_list(document.get("remotes")):
        raise ConfigError([f"{begin}: {one_line(name)} has neither packages nor remotes"])
    meta = as_object(as_object(whole.get("_meta")).get(_OFFICIAL_META))
    published = str(meta.get("publishedAt") or meta.get("updatedAt") or "")
    return Listed(document, source, published, one_line(str(meta.get("status") or ""), 20))


async def look_up(name: str, environ: Mapping[str, str], *, allow_private: bool = False) -> Listed:
    """Ask the registries one after the other. Raises ConfigError."""
    found = _NAME.fullmatch(name)
    assert found is not None
    bare = f"{found[1]}/{found[2]}"
    path = f"/v0.1/servers/{quote(bare, safe='')}/versions/{quote(found[3] or 'latest', safe='')}"
    problems: list[str] = []
    for base in re.split(r"[\s,]+", environ.get(VARIABLE, "").strip(" ,\t\n") or OFFICIAL):
        try:
            answer = await download(
                base.rstrip("/") + path,
                environ,
                what="the registry",
                limit=MAX_DOCUMENT,
                timeout=TIMEOUT_SECONDS,
                trusted=True,
                allow_private=allow_private,
            )
        except ConfigError as error:
            problems += error.problems
            continue
        host = parse(base).shown_host
        if answer.status == 200:
            listed = parse_listed(decoded(answer.body, f"the answer of {host}"), host)
            if listed.name != bare:
                raise ConfigError([f"error: {host} answered with another server, {listed.name}"])
            return listed
        problems.append(f"error: {host} answered with status {answer.status}")
        if answer.status == 404:
            problems[-1] = f"error: {host} knows no {name}"
    raise ConfigError([*problems[:-1], f"{problems[-1]}\n  {_ALTERNATIVES}"])


# Ways to start a server


def launches(listed: Listed) -> tuple[list[Launch], list[str]]:
    """The possible ways, the preferred one first, and why other ways are impossible."""
    found: list[Launch] = []
    problems: list[str] = []
    remotes = map(as_object, as_list(listed.document.get("remotes")))
    for remote in sorted(remotes, key=lambda each: each.get("type") != "streamable-http"):
        url = _VARIABLE.sub("x", str(remote.get("url")))
        kind = str(remote.get("type"))
        if kind in ("streamable-http", "sse") and is_address(url):
            found.append(_remote(listed, remote))
        else:
            problems.append(f"a remote of type {one_line(kind, 30)}: not an address that is known")
    for package in map(as_object, as_list(listed.document.get("packages"))):
        kind = str(package.get("registryType"))
        problem = _package_problem(kind, package)
        if problem:
            name = one_line(str(package.get("identifier")), 80)
            problems.append(f"{one_line(kind, 20)} {name}: {problem}")
        else:
            found.append(_package(listed, kind, package))
    return sorted(found, key=lambda launch: KINDS.index(launch.kind)), problems


def choose_launch(listed: Listed, kind: str | None) -> Launch:
    """Raises ConfigError."""
    found, problems = launches(listed)
    for launch in found:
        if kind in (None, launch.kind):
            return launch
    kinds = ", ".join(dict.fromkeys(each.kind for each in found))
    reason = "; ".join(problems[:5]) or "nothing can be started here"
    if kinds:
        reason = f"no {kind}; there is {kinds}"
    raise ConfigError([f"error: {listed.name}: {reason}"])


def _package_problem(kind: str, package: Json) -> str:
    """The reason why a package cannot be started."""
    if kind not in _IDENTIFIERS:
        return f"not a kind of package that is known ({', '.join(KINDS[1:])})"
    if not _IDENTIFIERS[kind].fullmatch(str(package.get("identifier") or "")):
        return "not a possible name of a package"
    transport = str(as_object(package.get("transport")).get("type") or "stdio")
    if transport != "stdio":
        return f"it speaks {one_line(transport, 30)} when started, and only stdio is started"
    version = package.get("version")
    if version is not None and not _VERSION.fullmatch(str(version)):
        return "not a fixed version"
    if version is None and kind in ("npm", "pypi", "nuget"):
        return "no version"
    hash_pattern = r"(?i)[0-9a-f]{64}"
    if kind == "mcpb" and not re.fullmatch(hash_pattern, str(package.get("fileSha256") or "")):
        return "no sha256 to know it by"
    return ""


class _Inputs:
    """Collects the inputs of the texts of one way."""

    def __init__(self) -> None:
        self.found: dict[str, Input] = {}

    def text(self, text: str, described: Json) -> str:
        """`{name}` is an input if its variable is described."""
        variables = as_object(described.get("variables"))

        def value(name: str) -> str | None:
            if name not in variables:
                return None
            return self._input(name, as_object(variables[name]))

        return template(text, _VARIABLE, value)

    def value(self, described: Json) -> str:
        """The value of an argument, a variable, or a header."""
        fixed = described.get("value")
        if isinstance(fixed, str):
            return self.text(fixed, described)
        name = str(described.get("name") or described.get("valueHint") or "")
        key = re.sub(r"[{}]", "", name.lstrip("-").rstrip("="))
        if not key:
            return ""
        return self._input(key, described)

    def pairs(self, described: Any) -> dict[str, str]:
        tables = list(map(as_object, as_list(described)))[:MAX_ITEMS]
        return {str(each["name"]): self.value(each) for each in tables if each.get("name")}

    def words(self, described: Any) -> list[tuple[str, ...]]:
        groups: list[tuple[str, ...]] = []
        for each in map(as_object, as_list(described)[:MAX_ITEMS]):
            name = escaped(str(each.get("name") or ""))
            is_named = each.get("type") == "named"
            if is_named and "value" not in each and not any(key in each for key in _SAYS_VALUE):
                groups.append((name,))
                continue
            value = self.value(each)
            if not is_named:
                groups.append((value,))
            elif name.endswith("="):
                groups.append((name + value,))
            else:
                groups.append((name, value))
        return [group for group in groups if group != ("",)]

    def _input(self, key: str, described: Json) -> str:
        default = described.get("default")
        if default is not None:
            default = str(default)
        kinds = {"filepath": "file", "boolean": "boolean", "number": "number"}
        made = Input(
            key=key,
            title=one_line(str(described.get("description") or ""), 200),
            required=described.get("isRequired") is True,
            secret=described.get("isSecret") is True,
            default=default,
            kind=kinds.get(str(described.get("format")), "string"),
            choices=tuple(map(str, as_list(described.get("choices"))[:50])),
            repeated=described.get("isRepeated") is True,
        )
        self.found.setdefault(key, made)
        return placeholder(key)


def _remote(listed: Listed, remote: Json) -> Launch:
    inputs = _Inputs()
    kind = {"streamable-http": "http"}.get(str(remote["type"]), "sse")
    headers = inputs.pairs(remote.get("headers"))
    connection: Json = {"type": kind, "url": inputs.text(str(remote["url"]), remote)}
    return _launch(listed, "remote", connection, inputs, headers=headers)


def _package(listed: Listed, kind: str, package: Json) -> Launch:
    identifier, version = str(package["identifier"]), str(package.get("version") or "")
    if kind == "mcpb":
        sha256 = str(package["fileSha256"])
        return _launch(listed, kind, {"url": identifier}, _Inputs(), sha256=sha256)
    inputs = _Inputs()
    env = inputs.pairs(package.get("environmentVariables"))
    runtime = inputs.words(package.get("runtimeArguments"))
    after = inputs.words(package.get("packageArguments"))
    name = (f"{identifier}@{version}",)
    if kind == "npm":
        runtime = [("-y",), *(group for group in runtime if group not in (("-y",), ("--yes",)))]
    elif kind == "nuget":
        after = [("--yes",), *([("--",)] * bool(after)), *after]
    elif kind == "oci":
        usual = [group for group in (("-i",), ("--rm",)) if group not in runtime]
        runtime = [("run",), *usual, *runtime, ENV_OPTIONS]
        is_tagged = "@" in identifier or ":" in identifier.rpartition("/")[2]
        name = (identifier,)
        if version and not is_tagged:
            name = (f"{identifier}:{version}",)
    connection: Json = {"type": "stdio", "command": _PROGRAMS[kind]}
    return _launch(listed, kind, connection, inputs, args=[*runtime, name, *after], env=env)


def _launch(listed: Listed, kind: str, connection: Json, inputs: _Inputs, **more: Any) -> Launch:
    description = one_line(str(listed.document.get("description") or ""), 300)
    name = name_of_registry_entry(listed.name)
    return Launch(kind, name, description, connection, tuple(inputs.found.values()), **more)
