"""What a registry's entry comes to: an address, or a program that fetches and starts a package in a
fixed version.

Promised: a package's name is no option, no file and no address of another kind; nothing of a
stranger's document is a reference of ours, and no shell sees it. What cannot be started here is
told with the reason. A secret is a reference. Not promised: that the arguments a document wants are
harmless; they are shown before anything runs.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcpx.config.lines import is_address
from mcpx.config.server_names import name_of_registry_entry
from mcpx.imports.inputs import Answers, Input, literal
from mcpx.imports.registry import Listed, packages_of, remotes_of
from mcpx.imports.texts import clean, one_line
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError

KINDS = ("remote", "npm", "pypi", "oci", "nuget", "mcpb")
MOST = 200
"""Arguments, variables and headers of one server."""
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_VERSION = re.compile(r"[A-Za-z0-9][\w.+!-]{0,99}")
_IDENTIFIERS = {
    "npm": re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.IGNORECASE),
    "pypi": re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"),
    "nuget": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
    "oci": re.compile(r"[a-z0-9][a-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?", re.IGNORECASE),
    "mcpb": re.compile(r"https?://\S+"),
}
_PROGRAMS = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to reach or start a server."""

    kind: str
    said: Json = field(repr=False)

    @property
    def identifier(self) -> str:
        return str(self.said.get("identifier") or "")

    @property
    def sha256(self) -> str:
        return str(self.said.get("fileSha256") or "")


def ways(listed: Listed) -> tuple[list[Way], list[str]]:
    """Those that can be gone, the best first, and why others cannot."""
    found: list[Way] = []
    problems: list[str] = []
    kinds = ("streamable-http", "sse")
    for remote in sorted(
        remotes_of(listed), key=lambda each: each.get("type") != "streamable-http"
    ):
        if remote.get("type") in kinds and is_address(
            re.sub(r"\{[^{}]*\}", "x", str(remote.get("url")))
        ):
            found.append(Way("remote", remote))
        else:
            problems.append(
                f"a remote of type {one_line(str(remote.get('type')), 30)}: not an address that "
                "is known"
            )
    for package in packages_of(listed):
        kind = str(package.get("registryType"))
        if (problem := _odd(kind, package)) is None:
            found.append(Way(kind, package))
        else:
            problems.append(
                f"{one_line(kind, 20)} {one_line(str(package.get('identifier')), 80)}: {problem}"
            )
    found.sort(key=lambda way: KINDS.index(way.kind))
    return found, problems


def _odd(kind: str, package: Json) -> str | None:
    if kind not in _IDENTIFIERS:
        return f"not a kind of package that is known ({', '.join(KINDS[1:])})"
    if not _IDENTIFIERS[kind].fullmatch(str(package.get("identifier") or "")):
        return "not a possible name of a package"
    transport = as_object(package.get("transport")).get("type") or "stdio"
    if transport != "stdio":
        return f"it speaks {one_line(str(transport), 30)} when started, and only stdio is started"
    version = package.get("version")
    if version is not None and (
        not _VERSION.fullmatch(str(version)) or str(version).lower() == "latest"
    ):
        return "not a fixed version"
    if version is None and kind in ("npm", "pypi", "nuget"):
        return "no version"
    if kind == "mcpb" and not re.fullmatch(
        r"[0-9a-fA-F]{64}", str(package.get("fileSha256") or "")
    ):
        return "no sha256 to know it by"
    return None


def chosen(listed: Listed, kind: str | None) -> Way:
    """Raises `ConfigError`."""
    found, problems = ways(listed)
    way = next((way for way in found if kind in (None, way.kind)), None)
    if way is None:
        there = ", ".join(dict.fromkeys(each.kind for each in found))
        told = (
            f"there is {there}"
            if there
            else "; ".join(problems[:5]) or "nothing can be started here"
        )
        raise ConfigError([f"error: {listed.name}: {f'no {kind}; ' if kind else ''}{told}"])
    return way


# What it wants to know
# -----------------------------------------------------------------------------------------------


def inputs(way: Way) -> list[Input]:
    made: dict[str, Input] = {}
    for key, said in _asked(way):
        if key in made or len(made) >= MOST:
            continue
        default = said.get("default")
        choices = tuple(str(each) for each in as_list(said.get("choices"))[:50])
        format_ = str(said.get("format") or "string")
        made[key] = Input(
            key=key,
            title=one_line(str(said.get("description") or ""), 200),
            required=said.get("isRequired") is True,
            secret=said.get("isSecret") is True,
            default=None if default is None else str(default),
            kind={"filepath": "file", "boolean": "boolean", "number": "number"}.get(
                format_, "string"
            ),
            choices=choices,
            several=said.get("isRepeated") is True,
        )
    return list(made.values())


def _asked(way: Way) -> Iterator[tuple[str, Json]]:
    for said in _described(way):
        if isinstance(said.get("value"), str):
            yield from _wanted(said["value"], said)
        elif (key := _key(said)) and not _is_switch(said):
            yield key, said
    if way.kind == "remote":
        yield from _wanted(str(way.said.get("url")), way.said)


def _wanted(text: str, said: Json) -> list[tuple[str, Json]]:
    """The variables of a text, `{name}`; what is not described is none."""
    described = as_object(said.get("variables"))
    return [
        (name, as_object(described[name])) for name in _VARIABLE.findall(text) if name in described
    ]


def _described(way: Way) -> Iterator[Json]:
    keys = (
        ("headers",)
        if way.kind == "remote"
        else ("environmentVariables", "runtimeArguments", "packageArguments")
    )
    for key in keys:
        yield from (as_object(each) for each in as_list(way.said.get(key))[:MOST])


def _key(said: Json) -> str:
    return str(said.get("name") or said.get("valueHint") or "").lstrip("-").rstrip("=")


def _is_switch(said: Json) -> bool:
    """`--rm`: a name, and nothing that could be its value."""
    tells = ("default", "valueHint", "placeholder", "choices", "format", "description", "isSecret")
    return said.get("type") == "named" and not any(key in said for key in tells)


# What is written
# --------------------------------------------------------------------------------------------------


def entry_of(listed: Listed, way: Way, told: Answers) -> Json:
    """A native server; not for bundles."""
    made: Json = {"name": name_of_registry_entry(listed.name)}
    if listed.description:
        made["description"] = literal(listed.description)
    return {
        **made,
        "connection": _remote(way, told) if way.kind == "remote" else _program(way, told),
    }


def _remote(way: Way, told: Answers) -> Json:
    kind = "http" if way.said.get("type") == "streamable-http" else "sse"
    headers = dict(_pairs(way, "headers", told))
    url = _filled(str(way.said["url"]), way.said, told)
    return {"type": kind, "url": url, **({"headers": headers} if headers else {})}


def _program(way: Way, told: Answers) -> Json:
    version = str(way.said.get("version") or "")
    runtime = list(_words(way, "runtimeArguments", told))
    package = list(_words(way, "packageArguments", told))
    env = dict(_pairs(way, "environmentVariables", told))
    name = f"{way.identifier}@{version}"
    starts: dict[str, Callable[[], list[str]]] = {
        "npm": lambda: [
            "-y",
            *(word for word in runtime if word not in ("-y", "--yes")),
            name,
            *package,
        ],
        "pypi": lambda: [*runtime, name, *package],
        "nuget": lambda: [*runtime, name, "--yes", *(["--", *package] if package else [])],
        "oci": lambda: [
            "run",
            *_container(runtime),
            *_passed(env),
            _image(way.identifier, version),
            *package,
        ],
    }
    args = starts[way.kind]()
    connection: Json = {"type": "stdio", "command": _PROGRAMS[way.kind], "args": args}
    return connection | ({"env": env} if env else {})


def _container(runtime: Sequence[str]) -> list[str]:
    return [*(word for word in ("-i", "--rm") if word not in runtime), *runtime]


def _passed(env: Json) -> list[str]:
    """Variables are given to the container by their names: their values stay out of the process
    list."""
    return [word for name in env for word in ("-e", name)]


def _image(identifier: str, version: str) -> str:
    tagged = "@" in identifier or ":" in identifier.rpartition("/")[2]
    return identifier if tagged or not version else f"{identifier}:{version}"


def _pairs(way: Way, key: str, told: Answers) -> Iterator[tuple[str, str]]:
    for each in as_list(way.said.get(key))[:MOST]:
        said = as_object(each)
        name = clean(str(said.get("name") or ""))
        value = _value(said, told)
        if name and value:
            yield name, value[0]


def _words(way: Way, key: str, told: Answers) -> Iterator[str]:
    for each in as_list(way.said.get(key))[:MOST]:
        said = as_object(each)
        name = literal(clean(str(said.get("name") or "")))
        if _is_switch(said) and "value" not in said:
            yield name
            continue
        for value in _value(said, told):
            if said.get("type") != "named":
                yield value
            elif name.endswith("="):
                yield name + value
            else:
                yield from (name, value)


def _value(said: Json, told: Answers) -> list[str]:
    fixed: Any = said.get("value")
    if isinstance(fixed, str):
        wanted = _wanted(fixed, said)
        if (
            wanted
            and not any(name in told.values for name, _ in wanted)
            and said.get("isRequired") is not True
        ):
            return []
        return [_filled(fixed, said, told)]
    return list(told.values.get(_key(said), ()))


def _filled(text: str, said: Json, told: Answers) -> str:
    parts, at = list[str](), 0
    described = as_object(said.get("variables"))
    for found in _VARIABLE.finditer(text):
        if found[1] not in described:
            continue
        parts += [literal(clean(text[at : found.start()])), told.first(found[1]) or ""]
        at = found.end()
    return "".join([*parts, literal(clean(text[at:]))])
