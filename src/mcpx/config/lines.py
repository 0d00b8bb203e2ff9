"""A server that was pasted as an address or a command line, as a native entry.

Promised: `npx -y package`, `KEY=value docker run …`, `claude mcp add …` and bare addresses become
what they mean, under a name that tells what it is; a line that needs a shell is refused. Nothing is
run. Not done here: files (`pasted`).
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from mcpx.config.edits import EditError
from mcpx.config.server_names import (
    CONTAINER_PROGRAMS,
    name_of_command,
    name_of_url,
    takes_value,
)
from mcpx.model.call import Json, as_object
from mcpx.model.redaction import words as these
from mcpx.processes.downloaders import program_name

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESS = re.compile(r"(?i)(?:https?|wss?)://\S+")
_SHELL = these("| && ; > || < >> &")
LONGEST = 65_536
"""Characters of a line; more than a system takes as arguments is not looked at."""
EXPECTED = (
    "a client's JSON or TOML, native YAML, a command line such as 'npx -y package', or an address"
)


@dataclass(frozen=True, slots=True)
class Line:
    """What a line says: a native server, or, for one that names it and gives JSON, the entry of a
    client."""

    server: Json = field(default_factory=dict[str, Any])
    entry: tuple[str, str] | None = None
    warnings: tuple[str, ...] = ()


def is_address(text: str) -> bool:
    return len(text) <= LONGEST and _ADDRESS.fullmatch(text) is not None


def of_address(
    url: str, name: str = "", kind: str = "", headers: dict[str, str] | None = None
) -> Json:
    try:
        path = urlsplit(url).path.rstrip("/")
        name = name or name_of_url(url)
    except ValueError:
        raise EditError("invalid", "not a possible address") from None
    told = {"streamable-http": "http", "ws": "websocket"}.get(kind.lower(), kind.lower())
    kind = told or (
        "websocket" if url.lower().startswith("ws") else "sse" if path.endswith("/sse") else "http"
    )
    return {
        "name": name,
        "connection": {"type": kind, "url": url, **({"headers": headers} if headers else {})},
    }


def of_line(text: str) -> Line:
    if len(text) > LONGEST:
        raise EditError("invalid", f"a command line of more than {LONGEST:,} characters")
    line = text.replace("\\\r\n", " ").replace("\\\n", " ").strip()
    try:
        words = [_referring(word) for word in shlex.split(line)]
    except ValueError:
        raise EditError("invalid", "a quote is left open", hint="close it") from None
    if "\n" in line or not words:
        raise EditError("invalid", "this was not recognised", hint=f"expected {EXPECTED}")
    if len(words) > 3 and words[1] == "mcp" and words[2] in ("add", "add-json"):
        return _mcp_add(words[3:], is_json=words[2] == "add-json")
    env, words = _assignments(words)
    if not words:
        raise EditError(
            "invalid", "variables without a program", hint="the program goes behind them"
        )
    if any(word in _SHELL or word.endswith(";") for word in words):
        hint = "start one program, without | && ;"
        raise EditError("invalid", "a line for a shell cannot be run as it is", hint=hint)
    warnings: list[str] = []
    if words[0] == "sudo" and len(words) > 1:
        warnings.append("'sudo' is left out: a server must not ask for a password")
        words = words[1:]
    if not re.fullmatch(r"[\w./~@:+\\-]+", words[0]) or (len(words) > 1 and words[0][-1] in ".:,"):
        raise EditError("invalid", "this was not recognised", hint=f"expected {EXPECTED}")
    return Line(_program(words, env), warnings=tuple(warnings))


def _referring(word: str) -> str:
    """What a shell would put in is a reference here."""
    return re.sub(r"(?<!\$)\$([A-Za-z_][A-Za-z0-9_]*)", r"${\1}", word)


def _assignments(words: list[str]) -> tuple[dict[str, str], list[str]]:
    env: dict[str, str] = {}
    rest = words[1:] if words[:1] == ["env"] else words[:]
    while rest and _ASSIGNMENT.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        env[name] = value
    return env, rest


def _program(words: list[str], env: dict[str, str], name: str = "") -> Json:
    connection: Json = {
        "type": "stdio",
        "command": words[0],
        **({"args": words[1:]} if words[1:] else {}),
    }
    return {
        "name": name or name_of_command(words),
        "connection": {**connection, **({"env": env} if env else {})},
    }


def container_variables(connection: Mapping[str, Any]) -> list[str]:
    """The names that `docker run -e NAME` takes from the environment of the docker program."""
    command, args = connection.get("command"), connection.get("args")
    if not isinstance(command, str) or not isinstance(args, list):
        return []
    words = [str(word) for word in cast("list[Any]", args)]
    if program_name(command) not in CONTAINER_PROGRAMS or "run" not in words[:2]:
        return []
    found: list[str] = []
    rest = iter(words[words.index("run") + 1 :])
    for word in rest:
        if not word.startswith("-"):
            break  # The image. The words that follow belong to its program.
        option, equals, value = word.partition("=")
        if not equals and takes_value(option):
            value = next(rest, "")
        if option in ("-e", "--env") and _VARIABLE_NAME.fullmatch(value):
            found.append(value)
    return list(dict.fromkeys(found))


def with_container_variables(server: Json) -> Json:
    """A server with a reference for each variable that its container takes from the environment.

    A server gets the variables of its `env` only, so `-e NAME` alone would give the container no
    value.
    """
    connection = as_object(server.get("connection"))
    env = as_object(connection.get("env"))
    missing = {name: f"${{{name}}}" for name in container_variables(connection) if name not in env}
    return (
        {**server, "connection": {**connection, "env": {**env, **missing}}} if missing else server
    )


def _mcp_add(words: list[str], *, is_json: bool) -> Line:
    """`claude mcp add [-t http] [-e KEY=value] [-H 'Name: value'] name url` or `name -- program
    args`."""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    kind, bare = "", list[str]()
    while words and not (len(bare) == 2 and not is_address(bare[1])):
        word = words.pop(0)
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if word == "--" or (
            bare and not word.startswith("-") and not is_address(word) and not is_json
        ):
            bare += words if word == "--" else [word, *words]
            break
        if not word.startswith("-"):
            bare.append(word)
            continue
        if option not in ("-e", "--env", "-H", "--header", "-t", "--transport", "-s", "--scope"):
            continue
        value = value if equals else words.pop(0) if words else ""
        if option in ("-e", "--env"):
            several, words = _assignments([value, *words])
            env |= several
        elif option in ("-H", "--header"):
            header, _, text = value.partition(":")
            headers[header.strip()] = text.strip()
        elif option in ("-t", "--transport"):
            kind = value
    if len(bare) < 2:
        hint = "claude mcp add NAME -- PROGRAM ARGS, or claude mcp add --transport http NAME URL"
        raise EditError("invalid", "a name and a program or address are missing", hint=hint)
    name, *rest = bare
    if is_json:
        return Line(entry=(name, rest[0]))
    if is_address(rest[0]):
        return Line(of_address(rest[0], name, kind, headers))
    return Line(_program(rest, env, name))
