"""MCP bundles (`.mcpb`, formerly `.dxt`): a server in a zip file with a manifest.

Before a bundle is unpacked, the names, types, and sizes of its files are checked. The folder
appears complete or not at all. Texts of the manifest contain no references. The signature of a
bundle is not checked.
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

from mcpx.base.files import private_folder
from mcpx.imports.launch import Input, Launch, placeholder, template
from mcpx.imports.source import clean, one_line
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError

MAX_PACKED = 256 * 2**20
MAX_UNPACKED = 2**30
MAX_RATIO = 100
"""Unpacked size by packed size. Code has a ratio of about 5, a zip bomb of 1,000."""
MAX_FILES = 50_000
MAX_MANIFEST = 2**20
MANIFEST_VERSIONS = ("0.1", "0.2", "0.3", "0.4")
TYPES = ("node", "python", "binary", "uv")
UNPACKED_MARK = ".mcpx-sha256"
"""A file in the folder of an unpacked bundle."""
_TOKEN = re.compile(r"\$\{([^{}]*)\}")
_PIECE = re.compile(r"[^\\:*?\"<>|\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Bundle:
    path: Path
    sha256: str
    manifest: Json = field(repr=False)

    @property
    def server(self) -> Json:
        return as_object(self.manifest["server"])

    def text(self, key: str, limit: int) -> str:
        return one_line(str(self.manifest.get(key) or ""), limit)

    @property
    def title(self) -> str:
        """`Shop 1.2.0 by Author`."""
        author = one_line(str(as_object(self.manifest.get("author")).get("name") or ""), 100)
        name = self.text("display_name", 100) or self.text("name", 60)
        by = f"by {author}" * bool(author)
        return " ".join(filter(None, (name, self.text("version", 40), by)))

    def folder(self, state: Path) -> Path:
        """The default place of its files."""
        name = f"{self.text('name', 60)}-{self.text('version', 40)}"
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "bundle"
        return state / "bundles" / f"{name[:80]}-{self.sha256[:12]}"


def is_bundle(path: Path) -> bool:
    if path.suffix.lower() in (".mcpb", ".dxt"):
        return True
    return path.suffix.lower() == ".zip" and zipfile.is_zipfile(path)


def read_bundle(path: Path, sha256: str = "") -> Bundle:
    """Check a bundle without unpacking it. `sha256`: the expected hash. Raises ConfigError."""
    begin = f"error: {one_line(str(path), 200)}"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError([f"{begin} is not a plain file"])
        if path.stat().st_size > MAX_PACKED:
            raise ConfigError([f"{begin} is larger than {MAX_PACKED // 2**20} MiB"])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 and digest != sha256.lower():
            problem = f"is not what was announced: its sha256 is {digest}, not {sha256[:64]}"
            raise ConfigError([f"{begin} {problem}"])
        with _open_archive(path) as archive:
            manifest = _read_manifest(archive, begin)
    except OSError as error:
        raise ConfigError([f"{begin}: {(error.strerror or str(error)).lower()}"]) from None
    return Bundle(path, digest, manifest)


def _open_archive(path: Path) -> zipfile.ZipFile:
    """The archive if all its files may be unpacked. Raises ConfigError."""
    begin = f"error: {one_line(str(path), 200)}"
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise ConfigError([f"{begin} is no MCP bundle: it is not a zip file"]) from None
    problem = _archive_problem(archive, path.stat().st_size)
    if problem:
        archive.close()
        raise ConfigError([f"{begin} {problem}"])
    return archive


def _archive_problem(archive: zipfile.ZipFile, packed_size: int) -> str:
    infos = archive.infolist()
    if len(infos) > MAX_FILES:
        return f"holds more than {MAX_FILES:,} files"
    total = sum(info.file_size for info in infos)
    if total > min(MAX_UNPACKED, MAX_RATIO * packed_size + 2**20):
        return f"would become {total:,} bytes, which is more than a bundle may be"
    seen: set[str] = set()
    for info in infos:
        problem = _file_problem(info)
        name = info.filename.rstrip("/").casefold()
        if name in seen:
            problem = "which it holds twice"
        if problem:
            return f"holds {one_line(info.filename, 100)!r}, {problem}: it is not unpacked"
        seen.add(name)
    return ""


def _file_problem(info: zipfile.ZipInfo) -> str:
    name = info.orig_filename.removesuffix("/")
    pieces = name.split("/")
    if name.startswith("/") or ".." in pieces or "\x00" in info.orig_filename:
        return "which would lie outside its folder"
    are_names = all(piece not in ("", ".") and _PIECE.fullmatch(piece) for piece in pieces)
    if not are_names or len(name.encode()) > 1_000:
        return "a name that not every system has"
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "which is a link or a device"
    if info.flag_bits & 0x1:
        return "which is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "packed in a way that is not known here"
    return ""


def _read_manifest(archive: zipfile.ZipFile, begin: str) -> Json:
    try:
        with archive.open("manifest.json") as file:
            data = file.read(MAX_MANIFEST + 1)
        if len(data) > MAX_MANIFEST:
            problem = f"{begin}: its manifest.json is larger than {MAX_MANIFEST:,} bytes"
            raise ConfigError([problem])
        manifest = as_object(json.loads(data.decode("utf-8-sig")))
    except KeyError:
        raise ConfigError([f"{begin} is no MCP bundle: it has no manifest.json"]) from None
    except (ValueError, RecursionError, zipfile.BadZipFile, EOFError):
        raise ConfigError([f"{begin}: its manifest.json cannot be read"]) from None
    name = manifest.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError([f"{begin}: its manifest.json has no name"])
    kind = as_object(manifest.get("server")).get("type")
    if kind not in TYPES:
        what = "none"
        if kind is not None:
            what = repr(one_line(str(kind), 30))
        raise ConfigError([f"{begin}: its server.type is {what}; there is {', '.join(TYPES)}"])
    return manifest


# Start


def launch_of(bundle: Bundle, folder: Path, environ: Mapping[str, str]) -> Launch:
    """The launch of the server in `folder`. Raises ConfigError."""
    server = bundle.server
    config = as_object(server.get("mcp_config"))
    config |= as_object(as_object(config.get("platform_overrides")).get(sys.platform))
    if not isinstance(config.get("command"), str):
        config |= _default_start(str(server["type"]), str(server.get("entry_point") or ""))
    warnings = list(_warnings(bundle.manifest))
    folders = {"__dirname": str(folder), **_folders(environ)}

    def value(token: str) -> str | None:
        if token.startswith("user_config."):
            return placeholder(token.removeprefix("user_config."))
        if token not in folders:
            warnings.append(f"${{{one_line(token, 40)}}} in its manifest means nothing here")
            return None
        return folders[token].replace("$", "$$")

    def text(given: Any) -> str:
        return template(str(given), _TOKEN, value)

    command = text(config["command"])
    if command == "python" and not shutil.which("python", path=environ.get("PATH")):
        command = "python3"  # Many systems no longer have a program named "python".
    return Launch(
        "mcpb",
        bundle.text("name", 60),
        bundle.text("description", 300),
        {"type": "stdio", "command": command},
        tuple(_inputs(bundle, environ)),
        args=[(text(word),) for word in as_list(config.get("args"))],
        env={clean(key): text(each) for key, each in as_object(config.get("env")).items()},
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _warnings(manifest: Json) -> Iterator[str]:
    version = str(manifest.get("manifest_version") or manifest.get("dxt_version") or "")
    if version not in MANIFEST_VERSIONS:
        known = f"{MANIFEST_VERSIONS[0]} to {MANIFEST_VERSIONS[-1]}"
        yield f"its manifest has version {one_line(version, 20)!r}; known here are {known}"
    platforms = list(map(str, as_list(as_object(manifest.get("compatibility")).get("platforms"))))
    if platforms and sys.platform not in platforms:
        yield f"it is made for {one_line(', '.join(platforms), 60)}, and this is {sys.platform}"


def _inputs(bundle: Bundle, environ: Mapping[str, str]) -> Iterator[Input]:
    folders = _folders(environ)
    for key, value in as_object(bundle.manifest.get("user_config")).items():
        given = as_object(value)
        default: Any = given.get("default")
        text = None
        if isinstance(default, bool):
            text = str(default).lower()
        elif isinstance(default, str | int | float) and default != "":
            text = _TOKEN.sub(lambda token: folders.get(token[1], token[0]), clean(str(default)))
        titles = filter(None, (given.get("title"), given.get("description")))
        yield Input(
            key=key,
            title=one_line(" – ".join(map(str, titles)), 200),
            required=given.get("required") is True,
            secret=given.get("sensitive") is True,
            default=text,
            kind=str(given.get("type") or "string"),
            repeated=given.get("multiple") is True,
        )


def _default_start(kind: str, entry_point: str) -> Json:
    if not entry_point:
        problem = "its manifest has neither mcp_config nor entry_point, so nothing can be started"
        raise ConfigError([f"error: {problem}"])
    path = "${__dirname}/" + entry_point
    if kind == "uv":
        return {"command": "uv", "args": ["run", "--directory", "${__dirname}", path]}
    if kind == "binary":
        return {"command": path}
    return {"command": {"node": "node"}.get(kind, "python3"), "args": [path]}


def _folders(environ: Mapping[str, str]) -> dict[str, str]:
    home = environ.get("HOME") or os.path.expanduser("~")
    names = ("Desktop", "Documents", "Downloads")
    known = {name.upper(): os.path.join(home, name) for name in names}
    return {"HOME": home, "pathSeparator": os.sep, "/": os.sep, **known}


# Unpacking


def unpack(bundle: Bundle, folder: Path) -> bool:
    """Return False if the folder already has the bundle. Raises ConfigError."""
    begin = f"error: {one_line(str(folder), 200)}"
    try:
        if os.path.isdir(folder) and os.listdir(folder):
            if _holds(folder, bundle):
                return False
            problem = "already exists with other files: name another folder (--into)"
            raise ConfigError([f"{begin} {problem}"])
        if not folder.parent.exists():
            private_folder(folder.parent)
        made = Path(tempfile.mkdtemp(prefix=".mcpx-", dir=folder.parent))
        try:
            with _open_archive(bundle.path) as archive:
                _unpack_all(archive, made, bundle.server)
            (made / UNPACKED_MARK).write_text(bundle.sha256, encoding="ascii")
            if os.path.isdir(folder):
                os.rmdir(folder)
            os.rename(made, folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError([f"{begin} cannot be written: {reason}"]) from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError):
        shown = one_line(str(bundle.path), 200)
        raise ConfigError([f"error: {shown} is damaged: it cannot be unpacked"]) from None
    return True


def _holds(folder: Path, bundle: Bundle) -> bool:
    try:
        mark = (folder / UNPACKED_MARK).read_text(encoding="ascii")
    except (OSError, ValueError):
        return False
    return mark == bundle.sha256 and (folder / "manifest.json").is_file()


def _unpack_all(archive: zipfile.ZipFile, folder: Path, server: Json) -> None:
    remaining = MAX_UNPACKED
    binary = ""
    if server.get("type") == "binary":
        binary = str(server.get("entry_point") or "").removeprefix("./")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    for info in archive.infolist():
        target = folder / info.filename
        if info.is_dir():
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(target, flags, 0o600), "wb") as file, archive.open(info) as packed:
            while part := packed.read(1 << 20):
                remaining -= len(part)
                if remaining < 0:
                    raise ValueError("larger than announced")
                file.write(part)
        if info.external_attr >> 16 & 0o111 or info.filename == binary:
            target.chmod(0o700)
