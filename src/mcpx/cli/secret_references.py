"""Replaces secrets in entries by references, and keeps them in a `.env` file or in the keyring.

No secret is printed or lost: `keep` writes the secrets before the configuration is written, and
`undo` reverts it. A variable that exists with another value is never overwritten.
"""

import os
import re
import subprocess
import sys
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcpx.base.files import private_folder
from mcpx.cli.output import can_ask, plain
from mcpx.config.environment import parse_dotenv
from mcpx.config.exports import without_secrets
from mcpx.config.recognising import Section
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.model.secret_rules import map_texts

Place = Literal["env", "keyring", "config"]
Entries = Sequence[tuple[Section, Json]]
MAX_ENV_BYTES = 1024 * 1024
GIT_TIMEOUT_SECONDS = 5.0
_HEADER = "# Secrets of the configuration beside; not for version control.\n"
_TRY_ENV = "--secrets env keeps these in a .env file beside the config"


@dataclass(slots=True)
class SecretReferences:
    entries: list[tuple[Section, Json]]
    """With references instead of secrets."""
    variables: dict[str, str] = field(repr=False)
    file: Path
    """The `.env` file that the configuration reads."""
    place: Place = "env"
    _before: bytes | None = field(default=None, repr=False)
    _written: bytes | None = field(default=None, repr=False)
    _in_keyring: list[str] = field(default_factory=list[str])

    @property
    def written(self) -> list[tuple[Section, Json]]:
        """The entries as the configuration file has them."""
        if self.place == "env" or not self.variables:
            return self.entries
        by = {name: f"${{keyring:{name}}}" for name in self.variables}
        if self.place == "config":
            by = {name: value.replace("$", "$$") for name, value in self.variables.items()}
        return [(section, replace_references(entry, by)) for section, entry in self.entries]

    @property
    def warnings(self) -> list[str]:
        if self.place != "env" or not self.variables:
            return []
        return git_warnings(self.file)

    @property
    def shown_place(self) -> str:
        return {"env": plain(str(self.file), 4096), "keyring": "the system's keyring"}.get(
            self.place, "the config itself"
        )

    def choose_place(self, wanted: Place | None) -> None:
        """Use the place of the option `--secrets`, or ask for it."""
        if not self.variables:
            return
        if wanted is not None:
            self.place = wanted
        elif can_ask():
            names = ", ".join(plain(name, 60) for name in self.variables)
            sys.stderr.write(f"Secrets: {names}\n")
            sys.stderr.write(
                f"Keep them in {self.file} (e), in the system's keyring (k) or in the config file "
                "(c)? [E/k/c] "
            )
            sys.stderr.flush()
            places: dict[str, Place] = {"k": "keyring", "c": "config"}
            self.place = places.get(sys.stdin.readline().strip().lower()[:1], "env")

    def keep(self) -> None:
        """Write the secrets. Raises ConfigError without having written any."""
        if self.place == "env" and self.variables:
            self._write_env_file()
        elif self.place == "keyring":
            self._write_keyring()

    def undo(self) -> None:
        from mcpx.core.saving import Overtaken, Unwritable, replace_file

        if self._written is not None:
            try:
                if self._before is None:
                    os.unlink(self.file)
                else:
                    replace_file(self.file, self._before, self._written)
            except (Overtaken, Unwritable, OSError):
                pass  # Another program has changed the file. One variable too many does no harm.
        self._clear_keyring()

    def _write_env_file(self) -> None:
        from mcpx.core.saving import Overtaken, Unwritable, replace_file

        before = _read_bytes(self.file)
        text = (before or b"").decode("utf-8-sig", errors="surrogateescape")
        known, odd_lines = parse_dotenv(text)
        new = {name: value for name, value in self.variables.items() if known.get(name) != value}
        if not new:
            return
        ends = "\n"
        if text.count("\r\n") * 2 > text.count("\n"):
            ends = "\r\n"
        if text and not text.endswith("\n"):
            text += ends
        added = "".join(f"{name}={_quoted(value)}{ends}" for name, value in new.items())
        text = (text or _HEADER) + added
        read_back = parse_dotenv(text)[0]
        if any(read_back.get(name) != value for name, value in new.items()):
            problem = "a secret holds characters that no .env file can: use --secrets keyring"
            if odd_lines:  # A quote that is left open contains the lines below it.
                problem = f"{self.file}:{odd_lines[-1]} cannot be read; fix it first"
            raise ConfigError([f"error: {problem}. Nothing was written"])
        bom = BOM_UTF8 if (before or b"").startswith(BOM_UTF8) else b""
        data = bom + text.encode(errors="surrogateescape")
        try:
            if not self.file.parent.exists():
                private_folder(self.file.parent)
            replace_file(self.file, data, before)
        except Overtaken:
            problem = f"error: {self.file} was changed by another program; nothing was written"
            raise ConfigError([f"{problem}: try again"]) from None
        except (Unwritable, OSError) as error:
            raise ConfigError([f"error: {error}"]) from None
        self._before, self._written = before, data

    def _write_keyring(self) -> None:
        from mcpx.auth import keychain

        try:
            held = {name: keychain.look_up(name) for name in self.variables}
            for name, value in self.variables.items():
                if held[name] not in (None, value):
                    problem = f"the keyring has another secret named {name}; nothing was written"
                    raise ConfigError([f"error: {problem}\n  {_TRY_ENV}"])
            for name, value in self.variables.items():
                if held[name] is None:
                    keychain.keep(name, value)
                    self._in_keyring.append(name)
        except keychain.NoKeyring as error:
            self._clear_keyring()
            raise ConfigError([f"error: {error}\n  {_TRY_ENV}"]) from None

    def _clear_keyring(self) -> None:
        from mcpx.auth import keychain

        for name in self._in_keyring:
            try:
                keychain.remove(name)
            except keychain.NoKeyring:
                pass
        self._in_keyring.clear()


def refer_to_secrets(
    entries: Entries,
    config: Path,
    environ: Mapping[str, str],
    more: Mapping[str, str] | None = None,
) -> SecretReferences:
    """`config`: the file or folder for the entries. `more`: variables that the entries refer to
    already, with their values."""
    known = {**variables_beside(config), **environ}
    values = dict(more or {})
    entries = _renamed(entries, values, known)
    tree: dict[str, Any] = {}
    for section, entry in entries:
        tree.setdefault(section, []).append(entry)
    bare, found = without_secrets(tree, {**known, **values})
    lists = {section: iter(items) for section, items in bare.items()}
    made: list[tuple[Section, Json]] = [(section, next(lists[section])) for section, _ in entries]
    values |= {name: secret.value.replace("$$", "$") for name, secret in found.items()}
    return SecretReferences(made, values, _env_file(config))


def _env_file(config: Path) -> Path:
    if os.path.isdir(config):
        return config / ".env"
    return config.parent / ".env"


def variables_beside(config: Path) -> dict[str, str]:
    """The variables of the `.env` file that a configuration reads."""
    data = _read_bytes(_env_file(config)) or b""
    return parse_dotenv(data.decode("utf-8-sig", errors="replace"))[0]


def _renamed(entries: Entries, values: dict[str, str], known: Mapping[str, str]) -> Entries:
    """Rename the variables that exist with another value."""
    names: dict[str, str] = {}
    for name, value in list(values.items()):
        new, number = name, 1
        while known.get(new, value) != value or (new != name and new in values):
            number += 1
            new = f"{name}_{number}"
        if new != name:
            names[name] = f"${{{new}}}"
            values[new] = values.pop(name)
    if not names:
        return entries
    return [(section, replace_references(entry, names)) for section, entry in entries]


def replace_references(value: Any, by: Mapping[str, str]) -> Any:
    """A copy in which the references to these variables are replaced."""

    def replaced(text: str) -> str:
        return re.sub(r"\$\$|\$\{(\w+)\}", lambda m: by.get(m[1] or "", m[0]), text)

    return map_texts(value, replaced)


def _read_bytes(file: Path) -> bytes | None:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_ENV_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError([f"error: {file} cannot be read: {reason}"]) from None


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w./:@%+,=-]+", value, re.ASCII):
        return value
    if "'" not in value:
        return f"'{value}'"
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return f'"{value.translate(str.maketrans(escapes))}"'


# git


def git_warnings(file: Path) -> list[str]:
    """A warning if the file is in a git repository that does not ignore it."""
    path = Path(os.path.realpath(file.parent)) / file.name
    root = next((each for each in path.parents if (each / ".git").exists()), None)
    if root is None or _is_ignored(path, root):
        return []
    line = f"/{path.relative_to(root).as_posix()}"
    ignore_file = root / ".gitignore"
    return [
        f"{file} holds secrets, and git does not ignore it; add the line {line} to {ignore_file}"
    ]


def _is_ignored(file: Path, root: Path) -> bool:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # fsmonitor could start a program of the repository.
    words = ["git", "-C", str(root), "-c", "core.fsmonitor=false", "check-ignore", "-q", str(file)]
    try:
        code = subprocess.run(
            words,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_SECONDS,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        code = -1
    if code in (0, 1):
        return code == 0
    return _has_line(file, root)


def _has_line(file: Path, root: Path) -> bool:
    """Look for a usual line in the .gitignore files, because git cannot be run."""
    for folder in file.parents:
        path = file.relative_to(folder).as_posix()
        usual = {file.name, path, f"/{path}", f"**/{file.name}", f"{file.name}*"}
        try:
            text = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        if usual.intersection(map(str.strip, text.splitlines())):
            return True
        if folder == root:
            break
    return False
