"""MCP bundles (`.mcpb`, formerly `.dxt`): a server in a zip file, with a manifest that says how it
is started.

Promised: nothing is unpacked that would lie outside its folder, be a link, overwrite another or be
larger than is said here; the folder is there whole or not at all. A manifest's text is a
stranger's: it holds no references of ours, and what it wants to be started is shown before it is.
Not done here: checking a bundle's signature, asking for settings.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpx.imports.inputs import Answers, Input, literal
from mcpx.imports.texts import clean, one_line
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError
from mcpx.wire.folders import private_folder

MAX_PACKED = 256 * 2**20
MAX_UNPACKED = 2**30
MAX_RATIO = 100
"""How much larger it may become; code shrinks to a fifth, a bomb to a thousandth."""
MOST_FILES = 50_000
MAX_MANIFEST = 2**20
KNOWN = ("0.1", "0.2", "0.3", "0.4")
TYPES = ("node", "python", "binary", "uv")
_TOKEN = re.compile(r"\$\{([^{}]*)\}")
_PIECE = re.compile(r"[^\\:*?\"<>|\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Bundle:
    path: Path
    sha256: str
    manifest: Json = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return one_line(str(self.manifest["name"]), 60)

    @property
    def version(self) -> str:
        return one_line(str(self.manifest.get("version") or ""), 40)

    @property
    def title(self) -> str:
        return one_line(str(self.manifest.get("display_name") or self.name), 100)

    @property
    def author(self) -> str:
        return one_line(str(as_object(self.manifest.get("author")).get("name") or ""), 100)

    @property
    def description(self) -> str:
        return one_line(str(self.manifest.get("description") or ""), 300)

    @property
    def kind(self) -> str:
        return str(as_object(self.manifest.get("server")).get("type"))


def is_bundle(path: Path) -> bool:
    """By its name, or by how it begins."""
    if path.suffix.lower() in (".mcpb", ".dxt"):
        return True
    try:
        with path.open("rb") as file:
            return path.suffix.lower() == ".zip" and file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def read_bundle(path: Path, sha256: str | None = None) -> Bundle:
    """Look at one, unpacking nothing. `sha256`: what it must be. Raises `ConfigError`."""
    told = one_line(str(path), 200)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError([f"error: {told} is not a plain file"])
        if path.stat().st_size > MAX_PACKED:
            raise ConfigError([f"error: {told} is larger than {MAX_PACKED // 2**20} MiB"])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 is not None and digest != sha256.lower():
            raise ConfigError(
                [
                    f"error: {told} is not what was announced: its sha256 is {digest}, not "
                    f"{sha256[:64]}"
                ]
            )
        with _opened(path) as archive:
            manifest = _manifest(archive, told)
    except OSError as error:
        raise ConfigError([f"error: {told}: {(error.strerror or str(error)).lower()}"]) from None
    return Bundle(path, digest, manifest, tuple(_warnings(manifest)))


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise ConfigError(
            [f"error: {one_line(str(path), 200)} is no MCP bundle: it is not a zip file"]
        ) from None
    try:
        _look_through(archive, path)
    except BaseException:
        archive.close()
        raise
    return archive


def _look_through(archive: zipfile.ZipFile, path: Path) -> None:
    """Before anything is unpacked. Raises `ConfigError`."""
    infos = archive.infolist()
    begin = f"error: {one_line(str(path), 200)}"
    if len(infos) > MOST_FILES:
        raise ConfigError([f"{begin} holds more than {MOST_FILES:,} files"])
    total = sum(info.file_size for info in infos)
    if total > MAX_UNPACKED or total > MAX_RATIO * path.stat().st_size + 2**20:
        raise ConfigError(
            [f"{begin} would become {total:,} bytes, which is more than a bundle may be"]
        )
    seen: set[str] = set()
    for info in infos:
        name = one_line(info.filename, 100)
        if (problem := _odd(info)) is not None:
            raise ConfigError([f"{begin} holds {name!r}, {problem}: it is not unpacked"])
        if (same := info.filename.rstrip("/").casefold()) in seen:
            raise ConfigError([f"{begin} holds {name!r} twice: it is not unpacked"])
        seen.add(same)


def _odd(info: zipfile.ZipInfo) -> str | None:
    """What is wrong with one file of a bundle."""
    name = info.orig_filename.removesuffix("/")
    pieces = name.split("/")
    if name.startswith("/") or ".." in pieces or "\x00" in info.orig_filename:
        return "which would lie outside its folder"
    if (
        not all(piece not in ("", ".") and _PIECE.fullmatch(piece) for piece in pieces)
        or len(name.encode()) > 1_000
    ):
        return "a name that not every system has"
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "which is a link or a device"
    if info.flag_bits & 0x1:
        return "which is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "packed in a way that is not known here"
    return None


def _manifest(archive: zipfile.ZipFile, told: str) -> Json:
    try:
        info = archive.getinfo("manifest.json")
    except KeyError:
        raise ConfigError([f"error: {told} is no MCP bundle: it has no manifest.json"]) from None
    if info.file_size > MAX_MANIFEST:
        raise ConfigError(
            [f"error: {told}: its manifest.json is larger than {MAX_MANIFEST:,} bytes"]
        )
    try:
        with archive.open(info) as file:
            found: Any = json.loads(file.read(MAX_MANIFEST + 1).decode("utf-8-sig"))
    except (ValueError, RecursionError, zipfile.BadZipFile, OSError, EOFError):
        raise ConfigError([f"error: {told}: its manifest.json cannot be read"]) from None
    manifest = as_object(found)
    kind = as_object(manifest.get("server")).get("type")
    if not isinstance(manifest.get("name"), str) or not str(manifest["name"]).strip():
        raise ConfigError([f"error: {told}: its manifest.json has no name"])
    if kind not in TYPES:
        what = "none" if kind is None else repr(one_line(str(kind), 30))
        raise ConfigError(
            [f"error: {told}: its server.type is {what}; there is {', '.join(TYPES)}"]
        )
    return manifest


def _warnings(manifest: Json) -> Iterator[str]:
    version = str(manifest.get("manifest_version") or manifest.get("dxt_version") or "")
    if version not in KNOWN:
        told = (
            f"its manifest has version {one_line(version, 20)!r}"
            if version
            else "its manifest says no version"
        )
        yield f"{told}; known here are {KNOWN[0]} to {KNOWN[-1]}"
    platforms = [
        str(each) for each in as_list(as_object(manifest.get("compatibility")).get("platforms"))
    ]
    if platforms and sys.platform not in platforms:
        yield f"it is made for {one_line(', '.join(platforms), 60)}, and this is {sys.platform}"


# Settings
# --------------------------------------------------------------------------------------------------


def inputs(bundle: Bundle, environ: Mapping[str, str]) -> list[Input]:
    """What its `user_config` asks for."""
    made: list[Input] = []
    for key, value in as_object(bundle.manifest.get("user_config")).items():
        given = as_object(value)
        default: Any = given.get("default")
        text = None
        if isinstance(default, bool):
            text = "true" if default else "false"
        elif isinstance(default, str | int | float) and default != "":
            text = _substituted(str(default), _places(environ, None), {}, keep=True)[0]
        title = " – ".join(
            filter(None, (str(given.get("title") or ""), str(given.get("description") or "")))
        )
        kind = str(given.get("type") or "string")
        made.append(
            Input(
                key=key,
                title=one_line(title, 200),
                required=given.get("required") is True,
                secret=given.get("sensitive") is True,
                default=text,
                kind=kind if kind in ("number", "boolean", "directory", "file") else "string",
                several=given.get("multiple") is True,
            )
        )
    return made


# What is started
# --------------------------------------------------------------------------------------------------


def entry_of(
    bundle: Bundle, folder: Path, told: Answers, environ: Mapping[str, str]
) -> tuple[Json, list[str]]:
    """A native server, with what is worth a warning. Raises `ConfigError`."""
    server = as_object(bundle.manifest["server"])
    config = as_object(server.get("mcp_config"))
    config = config | as_object(as_object(config.get("platform_overrides")).get(sys.platform))
    entry_point = str(server.get("entry_point") or "")
    if not isinstance(config.get("command"), str):
        config = config | _usual(bundle.kind, entry_point)
    places, warnings = _places(environ, folder), list[str]()

    def text(value: Any) -> str:
        made, unknown = _substituted(str(value), places, told.values)
        warnings.extend(
            f"${{{one_line(name, 40)}}} in its manifest means nothing here" for name in unknown
        )
        return made

    args: list[str] = []
    for each in as_list(config.get("args")):
        whole = re.fullmatch(r"\$\{user_config\.([^{}]+)\}", str(each))
        if whole is not None:
            args += told.values.get(
                whole[1], []
            )  # several of a kind are several words; none is no word
        else:
            args.append(text(each))
    env = {clean(str(key)): text(value) for key, value in _env(config, told).items()}
    connection: Json = {"type": "stdio", "command": _program(text(config["command"]), environ)}
    connection |= ({"args": args} if args else {}) | ({"env": env} if env else {})
    made: Json = {"name": bundle.name}
    if bundle.description:
        made["description"] = literal(bundle.description)
    return {**made, "connection": connection}, list(dict.fromkeys(warnings))


def _env(config: Json, told: Answers) -> Json:
    """Without variables for which nothing was said."""

    def said(value: Any) -> bool:
        wanted = re.findall(r"\$\{user_config\.([^{}]+)\}", str(value))
        return not wanted or any(name in told.values for name in wanted)

    return {key: value for key, value in as_object(config.get("env")).items() if said(value)}


def _usual(kind: str, entry_point: str) -> Json:
    if not entry_point:
        raise ConfigError(
            [
                "error: its manifest says neither what is started (mcp_config) nor what with "
                "(entry_point)"
            ]
        )
    inside = "${__dirname}/" + entry_point
    if kind == "uv":
        return {"command": "uv", "args": ["run", "--directory", "${__dirname}", inside]}
    if kind == "binary":
        return {"command": inside}
    return {"command": "node" if kind == "node" else "python3", "args": [inside]}


def _program(command: str, environ: Mapping[str, str]) -> str:
    if command == "python" and os.name == "posix":  # which many systems do not have any more
        path = environ.get("PATH")
        return "python3" if shutil.which("python", path=path) is None else command
    return command


def _places(environ: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    home = environ.get("HOME") or os.path.expanduser("~")
    places = {"HOME": home, "pathSeparator": os.sep, "/": os.sep}
    places |= {
        name: os.path.join(home, name.capitalize())
        for name in ("DESKTOP", "DOCUMENTS", "DOWNLOADS")
    }
    return places if folder is None else {"__dirname": str(folder), **places}


def _substituted(
    text: str, places: Mapping[str, str], values: Mapping[str, list[str]], *, keep: bool = False
) -> tuple[str, list[str]]:
    """The text with what its tokens stand for, and those that stand for nothing. `keep`: it is no
    text of a configuration yet."""
    unknown: list[str] = []
    parts: list[str] = []
    at = 0

    def escaped(part: str) -> str:
        return part if keep else literal(part)

    for token in _TOKEN.finditer(text):
        parts.append(escaped(clean(text[at : token.start()])))
        at = token.end()
        name = token[1]
        setting = name.removeprefix("user_config.")
        if name in places:
            parts.append(escaped(places[name]))
        elif setting != name:
            parts.append(",".join(values.get(setting, [])))
        else:
            unknown.append(name)
            parts.append(escaped(token[0]))
    return "".join([*parts, escaped(clean(text[at:]))]), unknown


# Unpacking
# --------------------------------------------------------------------------------------------------


def folder_of(bundle: Bundle, state: Path) -> Path:
    """Where it is unpacked unless somebody says otherwise."""
    name = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", f"{bundle.name}-{bundle.version}").strip(".-") or "bundle"
    )
    return state / "bundles" / f"{name[:80]}-{bundle.sha256[:12]}"


def unpack(bundle: Bundle, folder: Path) -> bool:
    """Whether it was not there already. Raises `ConfigError`."""
    told = one_line(str(folder), 200)
    try:
        if os.path.isdir(folder) and os.listdir(folder):
            if (folder / "manifest.json").is_file() and _is_same(folder, bundle):
                return False
            raise ConfigError(
                [f"error: {told} is there already and holds something else: name another (--into)"]
            )
        if not folder.parent.exists():
            private_folder(folder.parent)
        made = Path(tempfile.mkdtemp(prefix=".mcpx-", dir=folder.parent))
        try:
            with _opened(bundle.path) as archive:
                _unpack_all(archive, made, as_object(bundle.manifest.get("server")))
            (made / ".mcpx-sha256").write_text(bundle.sha256, encoding="ascii")
            if os.path.isdir(folder):
                os.rmdir(folder)  # empty
            os.rename(made, folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise ConfigError(
            [f"error: {told} cannot be written: {(error.strerror or str(error)).lower()}"]
        ) from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError):
        raise ConfigError(
            [f"error: {one_line(str(bundle.path), 200)} is damaged: it cannot be unpacked"]
        ) from None
    return True


def _is_same(folder: Path, bundle: Bundle) -> bool:
    try:
        return (folder / ".mcpx-sha256").read_text(encoding="ascii") == bundle.sha256
    except (OSError, ValueError):
        return False


def _unpack_all(archive: zipfile.ZipFile, folder: Path, server: Json) -> None:
    left = MAX_UNPACKED
    started = str(server.get("entry_point") or "").removeprefix("./")
    for info in archive.infolist():
        target = folder / info.filename
        if info.is_dir():
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        runs = bool(info.external_attr >> 16 & 0o111) or (
            server.get("type") == "binary" and info.filename == started
        )
        handle = os.open(
            target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600
        )
        with os.fdopen(handle, "wb") as file, archive.open(info) as packed:
            while part := packed.read(1 << 20):
                left -= len(part)
                if left < 0:
                    raise ValueError("more than was said")
                file.write(part)
        if runs:
            target.chmod(0o700)
