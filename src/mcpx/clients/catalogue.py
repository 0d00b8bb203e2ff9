"""What is known of client programs, read from `programs.toml`, which explains its own words.

Promised: pure. Where a client's files are is told for any system, from the environment and the
folders that are given; nothing is opened but the data file, once. Not done here: entries (`entry`),
snippets (`programs`), files (`files`).
"""

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Literal

from mcpx.base.build import build
from mcpx.model.call import as_object

System = Literal["macos", "linux", "windows"]
Scope = Literal["user", "project", "local", "gui"]
Format = Literal["json", "jsonc", "toml", "yaml"]
Transport = Literal["http", "stdio"]

SYSTEMS: tuple[System, ...] = ("macos", "linux", "windows")
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Shape:
    """How an entry is written, and below which keys."""

    name: str
    root: tuple[str, ...]
    """`{project}` in it is the project's folder."""
    stdio: Mapping[str, Any]
    http: Mapping[str, Any]
    listed: bool = False
    """Entries stand in a list, each with its name in it; else below their names."""
    asks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Lists at the top of the file, with what is put into them where a token is needed."""
    label: str = ""
    off: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """The key and value that disable an entry; empty: the client knows none."""

    def root_in(self, project: str) -> tuple[str, ...]:
        return tuple(key.replace("{project}", project) for key in self.root)


@dataclass(frozen=True, slots=True)
class Spec:
    """A file of a client, as the data has it."""

    label: str
    scope: Scope
    paths: Mapping[System, tuple[str, ...]]
    format: Format
    shapes: tuple[Shape, ...]
    """The first one is for a new file; of several, the one that a file has already is kept."""
    sign: Mapping[System, str]
    fresh: str = ""
    """What a new file has to hold besides."""
    reads: bool = False
    """Only read, never written."""
    after: str = ""
    """What is left to do once this one is written; nothing: what the client says."""

    def shown(self, system: System) -> str:
        """As a person on that system writes it."""
        path = self.paths[system][0]
        if self.scope == "gui":
            return path
        if system != "windows":
            return _VARIABLE.sub(lambda found: found[2], path)
        return (
            _VARIABLE.sub(lambda found: f"%{found[1]}%", path)
            .replace("~", "%USERPROFILE%", 1)
            .replace("/", "\\")
        )


@dataclass(frozen=True, slots=True)
class Place:
    """One file of a client, where it would be on a machine. A pattern (`*`) may stand for
    several."""

    client: "Client"
    spec: Spec
    path: PurePath
    roots: tuple[tuple[str, ...], ...]
    """Below which keys the entries stand, one for each of `spec.shapes`."""
    sign: PurePath
    """A file or folder whose being there says that the client was used."""
    project: PurePath | None = None
    """The folder of the project that the file belongs to. Links must not lead out of it."""

    @property
    def scope(self) -> Scope:
        return self.spec.scope

    @property
    def format(self) -> Format:
        return self.spec.format

    @property
    def root(self) -> tuple[str, ...]:
        return self.roots[0]

    @property
    def label(self) -> str:
        return self.spec.label

    def there(self) -> list[Path]:
        """The files that are there, on this machine."""
        file = Path(self.path)
        if "*" in file.name:
            return sorted(found for found in file.parent.glob(file.name) if found.is_file())
        return [file] if file.is_file() else []


@dataclass(frozen=True, slots=True)
class Cli:
    """The vendor's own command lines; empty where there is none."""

    stdio: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    token: tuple[str, ...] = ()
    """Over HTTP, where a token is needed."""
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    tools: int | None = None
    name: int | None = None
    """The longest name of a tool, in characters, with `prefix` before it."""
    prefix: str = ""
    start_seconds: int | None = None
    call_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """One client program, as it was when somebody last looked (`verified`)."""

    id: str
    name: str
    verified: str
    specs: tuple[Spec, ...]
    called: tuple[str, ...] = ()
    """What it says of itself in `clientInfo.name`; `*` stands for anything, case does not
    matter."""
    http: bool = True
    """It takes a server over HTTP on this machine."""
    why: str = ""
    """Why it does not."""
    token: str = ""
    """How the token's variable is written in a header; empty: it reads none there."""
    token_note: str = ""
    variables: tuple[str, ...] = ()
    """The spellings of variables that it knows in its file: NAME, ID and path stand for what
    varies."""
    programs: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    cli: Cli = Cli()
    deeplink: str = ""
    documentation: str = ""
    after: str = ""
    notes: tuple[str, ...] = ()
    http_notes: tuple[str, ...] = ()
    stdio_notes: tuple[str, ...] = ()
    limits: Limits = Limits()
    can: Mapping[str, str] = field(default_factory=dict[str, str])
    imports_only: str = ""
    """Why nothing is written into it; empty: it can be connected."""

    def is_called(self, name: str) -> bool:
        return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in self.called)

    def places(
        self,
        system: System,
        environ: Mapping[str, str],
        home: str | PurePath,
        project: str | PurePath,
    ) -> list[Place]:
        """Every file it may have, the preferred one of several names first; `gui` is no file."""
        kind = {"windows": PureWindowsPath}.get(system, PurePosixPath)
        found: list[Place] = []
        for spec in self.specs:
            if spec.scope == "gui":
                continue
            folder, project_folder = kind(home), None
            if spec.scope == "project":
                folder = project_folder = kind(project)
            roots = tuple(shape.root_in(str(project)) for shape in spec.shapes)
            for spelled in spec.paths[system]:
                path = _at(spelled, environ, kind(home), folder)
                sign = path.parent
                if spec.sign:
                    sign = _at(spec.sign[system], environ, kind(home), folder)
                found.append(Place(self, spec, path, roots, sign, project_folder))
        return found


@dataclass(frozen=True, slots=True)
class _Data:
    client: tuple[Client, ...]


def _at(spelled: str, environ: Mapping[str, str], home: PurePath, below: PurePath) -> PurePath:
    kind = type(home)

    def value(found: re.Match[str]) -> str:
        given = environ.get(found[1], "")
        if given and kind(given).is_absolute():  # The clients ignore relative paths, too.
            return given
        return found[2]

    path = _VARIABLE.sub(value, spelled)
    if path.startswith("~/"):
        return home / path[2:]
    return below / path


def this_system() -> System:
    known: dict[str, System] = {"darwin": "macos", "win32": "windows"}
    return known.get(sys.platform, "linux")


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get("USERPROFILE" if sys.platform == "win32" else "HOME") or Path.home())


def places_here(
    client: Client, project: Path, environ: Mapping[str, str] = os.environ
) -> list[Place]:
    return client.places(this_system(), environ, home_folder(environ), project)


@cache
def clients() -> tuple[Client, ...]:
    """All clients in the order of the data."""
    text = files("mcpx.clients").joinpath("programs.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    for name, shape in data["shape"].items():
        shape |= {"name": name, "listed": shape.get("list", False)}
    for table in data["client"]:
        table["specs"] = [_spec(file, data["shape"]) for file in table["files"]]
    return build(_Data, data).client


def _spec(file: dict[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """A file of the data as a `Spec` has it. A path may be the same on all systems."""
    sign = file.get("sign")
    paths = as_object(file["path"]) or dict.fromkeys(SYSTEMS, file["path"])
    return {
        **file,
        "paths": {system: _as_list(path) for system, path in paths.items()},
        "sign": as_object(sign) or dict.fromkeys(SYSTEMS if sign else (), sign),
        "shapes": [shapes[name] for name in _as_list(file["shape"])],
    }


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def client(word: str) -> Client | None:
    """By its id or its name, however it is spelled: `VS Code`, `vs-code` and `vscode` are one."""
    return next(
        (each for each in clients() if _bare(word) in (_bare(each.id), _bare(each.name))), None
    )


def _bare(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())
