"""Derive the name of a server from the command line or the URL that it is added with.

A word that servers share, such as `mcp` or `server`, is not a name. If a package, an image, or a
file has no other word, the name comes from the npm scope, the namespace of the image, the owner of
the repository, or the folder. The functions are pure and always return a possible name. They do not
look for a name that is free.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from mcpx.config.entries import RESERVED
from mcpx.config.tree import as_list
from mcpx.model.redaction import words as _set
from mcpx.processes.downloaders import LAUNCHERS, program_name

MAX_GENERATED_NAME = 40

_INTERPRETERS = re.compile(r"(?:python|node|ruby|java|dotnet|go|tsx|ts-node|php|sh|bash|zsh)[\d.]*")
CONTAINER_PROGRAMS = _set("docker podman")
_CODE_OPTIONS = _set("-c -e --eval")
"""Options of interpreters whose value is a program text."""
_SHELLS = _set("cmd sh bash zsh")
_SUBCOMMANDS = _set("run exec dlx tool x start container")
_PYTHON_SERVER_CLIS = _set("mcp fastmcp")
"""`mcp run FILE` and `fastmcp run FILE` start the server of a file."""
_OPTIONS_WITH_VALUE = _set(
    "-e --env -v --volume --mount --name --network --net -p --publish --from --package "
    "--directory --project --with "
    "--with-editable --with-requirements -u --user -w --workdir --env-file --platform "
    "--entrypoint --add-host -l "
    "--label -m --memory --cpus --gpus --pull -h --hostname --python --index "
    "--default-index --registry --prefix --require -r --import --loader -cp --classpath --call "
    "--cap-drop --cap-add "
    "--security-opt --tmpfs --restart --refresh-package --prerelease --device --dns --group-add "
    "--shm-size --ulimit "
    "--log-driver --log-opt --runtime --ipc --pid"
)
"""Options of the runners and of `docker run`."""
_VALUE_LESS_OPTIONS = {
    "python": _set("-m -u -h"),
    "node": _set("-h"),
    "npx": _set("-h"),
    "pipx": _set("-h -e"),
}
"""Options of `_OPTIONS_WITH_VALUE` that take no value in these programs."""
_SOURCES = ("--from", "--package", "-p", "--directory", "--project")
"""Options whose value names the server if the program's own word does not."""

_AFFIXES = _set("mcp server servers")
_GENERIC = _AFFIXES | _set(
    "api app apps bin bridge build cli client cmd core dev dist gateway hosted http index lib "
    "local main node out "
    "proxy public py python remote run sdk service services src sse start stdio tool tools "
    "typescript v1 v2 v3 venv "
    "www __main__"
)
"""Words that do not tell one server from another."""
_BRIDGES = _set(
    "supergateway mcp-remote mcp-proxy fastmcp-remote mcp-stdio-to-streamable-http-adapter"
)
"""Packages that connect stdio to the URL among their arguments."""
_SERVER_RUNNERS = _set("@smithery/cli")
"""Packages whose `run NAME` starts the server of that name."""
_TOKEN = re.compile(r"[^-_.\s]+")
_FILE_SUFFIX = re.compile(r"\.(?:py|js|mjs|cjs|ts|exe|cmd|jar|sh|git|whl|csproj)$", re.IGNORECASE)
_PATH_WORDS = re.compile(r"(?i)@?[a-z]{2,16}\d?(?:[-_.][a-z]{2,16}\d?){0,4}")
_HOME = re.compile(r"(?i)(?:[a-z]:)?/(?:home|users)/[^/]+/|~/")

_HOSTING = (
    "azurecontainerapps.io",
    "azurewebsites.net",
    "fastmcp.app",
    "fly.dev",
    "github.io",
    "herokuapp.com",
    "hf.space",
    "netlify.app",
    "ngrok-free.app",
    "ngrok-free.dev",
    "ngrok.app",
    "ngrok.io",
    "onrender.com",
    "run.app",
    "trycloudflare.com",
    "up.railway.app",
    "vercel.app",
    "workers.dev",
)
"""Domains of hosting providers. The first label of the host names the server."""
_HOSTS_OF_MANY = ("smithery.ai", "mcpservers.org", "gitmcp.io")
"""Domains that serve many servers. The path names the server."""
_SECOND_LEVEL = _set("co com org net gov ac edu or ne go")
"""Labels that belong to the public suffix if a country code follows."""
_BRANDS = {"githubcopilot": "github"}
"""Domains that are not called like the product they serve."""


def name_of_command(words: Sequence[str]) -> str:
    """`filesystem` for `npx -y @modelcontextprotocol/server-filesystem /tmp`."""
    return _possible(_found_in_command(words, 0))


def name_of_url(url: str) -> str:
    """`github` for `https://api.github.com/mcp`. Raises ValueError for a URL that cannot be
    read."""
    parts = urlsplit(url)
    host = parts.hostname or "server"
    return _possible(_found_in_host(host, parts.path) or host)


def name_of_connection(connection: Mapping[str, Any]) -> str:
    """A name for a server whose entry has no name."""
    command, url = connection.get("command"), connection.get("url")
    if isinstance(command, str) and command:
        arguments = as_list(connection.get("args")) or []
        return name_of_command([command, *map(str, arguments)])
    try:
        return name_of_url(str(url or ""))
    except ValueError:
        return "server"


def name_of_registry_entry(name: str) -> str:
    """`weather` for `io.github.owner/weather-mcp`, `stripe` for `com.stripe/mcp`."""
    namespace, _, last = name.rpartition("/")
    labels = namespace.split(".")
    owner = labels[-1] if namespace.startswith(("io.github.", "io.gitlab.")) else None
    found = _telling(last) or owner or _found_in_host(".".join(reversed(labels)), "")
    return _possible(found or last)


# Command lines


def _found_in_command(words: Sequence[str], depth: int) -> str:
    program = program_name(words[0])
    if program in _SHELLS and depth < 2 and (inner := _inside_shell(words)):
        return _found_in_command(inner, depth + 1)
    if program in CONTAINER_PROGRAMS and not {"run", "exec"} & set(words[1:3]):
        return program
    if (
        program not in LAUNCHERS
        and not _INTERPRETERS.fullmatch(program)
        and program not in _PYTHON_SERVER_CLIS
    ):
        return _telling_of_path(words[0]) or _last_part(words[0])
    return _found_in_arguments(program, words[1:]) or program


def _inside_shell(words: Sequence[str]) -> list[str]:
    """The command of `bash -c COMMAND` or `cmd /c COMMAND`."""
    for index, word in enumerate(words[1:3], 1):
        if word.lower() == "/c":
            return list(words[index + 1 :])
        if re.fullmatch(r"-[a-z]*c", word) and len(words) > index + 1:
            try:
                return shlex.split(words[index + 1])
            except ValueError:
                return []
    return []


def _found_in_arguments(program: str, arguments: Sequence[str]) -> str | None:
    if program not in LAUNCHERS and _CODE_OPTIONS.intersection(arguments[:1]):
        return None
    sources, positional = _parsed(program, arguments)
    while positional and (
        positional[0] in _SUBCOMMANDS
        or (len(positional) > 1 and positional[0] in _PYTHON_SERVER_CLIS)
    ):
        positional.pop(0)
    if not positional:
        return _first(map(_identifier_name, sources))
    word, rest = positional[0], positional[1:]
    package = _without_version(word)
    if package in _SERVER_RUNNERS and rest[:1] == ["run"]:
        return _first(map(_identifier_name, rest[1:2]))
    if _is_bridge(package) and (url := next(filter(_is_url, arguments), None)):
        return name_of_url(url)
    return _first(map(_identifier_name, [word, *sources])) or _last_part(package)


def _parsed(program: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of options that name a source, and the positional arguments."""
    without_value = _VALUE_LESS_OPTIONS.get(re.sub(r"[\d.]+$", "", program), frozenset[str]())
    sources: list[str] = []
    positional: list[str] = []
    pending: str | None = None
    for word in arguments:
        option, equals, value = word.partition("=")
        if pending is not None:
            if _is_source(program, pending):
                sources.append(word)
            pending = None
        elif not word.startswith("-"):
            positional.append(word)
        elif equals:
            if _is_source(program, option):
                sources.append(value)
        elif takes_value(option) and option not in without_value:
            belongs_to_launcher = program in LAUNCHERS and _SUBCOMMANDS.issuperset(positional)
            if not positional or belongs_to_launcher:
                pending = option
    return sources, positional


def takes_value(option: str) -> bool:
    """Whether the next word is the value of this option of a launcher or of `docker run`."""
    return option in _OPTIONS_WITH_VALUE or option.endswith("-url")


def _is_source(program: str, option: str) -> bool:
    """`-p` is a package of npx, a port of docker, and a Python version of uvx."""
    return option in _SOURCES and (option != "-p" or program == "npx")


def _is_bridge(package: str) -> bool:
    last = package.rpartition("/")[2]
    return last in _BRIDGES or {"mcp", "remote"} <= set(_TOKEN.findall(last))


def _is_url(word: str) -> bool:
    return re.match(r"(?i)(?:https?|wss?)://[^\s/]", word) is not None


# Packages, images, files


def _identifier_name(word: str) -> str | None:
    """The name of a package, an image, a repository, or a file."""
    remote = re.match(r"(?i)(?:git\+)?[a-z+]+://(?:[^/@]*@)?[^/]+/(.*)", word)
    if remote is None:
        return _telling_of_path(
            _without_version(re.sub(r"^(?:npm|jsr|github|gitlab|file):", "", word))
        )
    path, _, fragment = remote[1].partition("#")
    subdirectory = re.search(r"subdirectory=([^&]+)", fragment)
    if subdirectory and (found := _telling_of_path(subdirectory[1])):
        return found
    package = _without_version(path.partition("?")[0])
    return _telling_of_path(package)


def _without_version(word: str) -> str:
    """Without the version of a package, the extras and the specifier of PEP 508, the tag and the
    digest of an image."""
    word = re.sub(r"(?<=.)@[^/@]*$", "", word)
    word = re.sub(r"(?:\[[^\]]*\])?\s*(?:(?:[=<>!~]=|[<>]).*)?$", "", word, count=1)
    return (
        re.sub(r"(?<=[^/\\]):[^/\\:]*$", "", word)
        if not re.match(r"[A-Za-z]:[\\/]", word)
        else word
    )


def _telling_of_path(path: str) -> str | None:
    """The last part of a path that tells one server from another."""
    below_home = _HOME.sub("", path.replace("\\", "/"), count=1)
    parts = [part for part in below_home.split("/") if part]
    if len(parts) > 1 and re.search(r"\.[a-z]+$|:\d+$|^localhost$", parts[0]):
        parts = parts[1:]  # The host of an image or of a Go module.
    return _first(map(_telling, reversed(parts)))


def _last_part(path: str) -> str:
    return _FILE_SUFFIX.sub("", re.split(r"[\\/]", path.rstrip("\\/"))[-1])


def _telling(part: str) -> str | None:
    """`github` for `github-mcp-server`. None if all words are generic."""
    bare = _FILE_SUFFIX.sub("", part.lstrip("@."))
    tokens = list(_TOKEN.finditer(bare.lower()))
    if all(token[0] in _GENERIC for token in tokens):
        return None
    while tokens[0][0] in _AFFIXES:
        tokens.pop(0)
    while tokens[-1][0] in _AFFIXES:
        tokens.pop()
    return bare.lower()[tokens[0].start() : tokens[-1].end()]


# Hosts


def _found_in_host(host: str, path: str) -> str | None:
    if host.replace(".", "").isdigit() or ":" in host or "." not in host:
        return _found_in_url_path(path)
    if host.endswith(_HOSTS_OF_MANY) and (found := _found_in_url_path(path)):
        return found
    suffix = next((each for each in _HOSTING if host.endswith(f".{each}")), None)
    if suffix is not None:
        labels = host.removesuffix(f".{suffix}").split(".")
        return _first(map(_telling, labels))
    labels = host.split(".")
    is_country_code = len(labels[-1]) == 2 and len(labels) > 2 and labels[-2] in _SECOND_LEVEL
    labels = labels[: -2 if is_country_code else -1]
    found = _first(map(_telling, reversed(labels)))
    return _BRANDS.get(found, found) if found else None


def _found_in_url_path(path: str) -> str | None:
    """Paths can contain keys. Only a part that consists of words becomes a name."""
    return _first(
        _telling(part) for part in reversed(path.split("/")) if _PATH_WORDS.fullmatch(part)
    )


def _first(found: Iterable[str | None]) -> str | None:
    candidates: Iterator[str] = (each for each in found if each)
    return next(candidates, None)


def _possible(word: str) -> str:
    """A name that a configuration takes."""
    cleaned = re.sub(r"[^\w-]+", "-", word).strip("-_")[:MAX_GENERATED_NAME].strip("-_")
    name = cleaned or "server"
    return f"{name}-2" if name in RESERVED else name
