"""Secrets in what somebody gave: out of the config file, into a `.env` file beside it or the
system's keyring.

Promised: entries in, entries with references out; no secret is printed, and none is lost: until
`keep` has kept them they are in nobody's file, and `undo` takes back what it wrote. A variable that
is there with another value is never overwritten.
"""

import os
import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcpx.base.files import private_folder
from mcpx.cli.git_ignore import warning as git_warning
from mcpx.config import dotenv
from mcpx.config.recognising import Section
from mcpx.config.references import without_secrets
from mcpx.config.tree import as_list, as_map
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

Place = Literal["env", "keyring", "config"]
PLACES: tuple[Place, ...] = ("env", "keyring", "config")
Entries = Sequence[tuple[Section, Json]]
MOST_BYTES = 1024 * 1024
_HEADER = "# Secrets of the configuration beside; not for version control.\n"


@dataclass(slots=True)
class Offer:
    """Entries whose secrets are variables, and the variables."""

    entries: list[tuple[Section, Json]]
    variables: dict[str, str] = field(repr=False)
    file: Path
    """The `.env` file that the configuration reads."""
    place: Place = "env"
    _before: bytes | None = field(default=None, repr=False)
    _wrote: bytes | None = field(default=None, repr=False)
    _kept: list[str] = field(default_factory=list[str])

    @property
    def written(self) -> list[tuple[Section, Json]]:
        """As they go into the config file."""
        if self.place == "env" or not self.variables:
            return self.entries
        in_ring = self.place == "keyring"
        by = {
            name: f"${{keyring:{name}}}" if in_ring else _literal(value)
            for name, value in self.variables.items()
        }
        return [(section, replace_references(entry, by)) for section, entry in self.entries]

    @property
    def warnings(self) -> list[str]:
        """A warning if the secrets go to a file that git would commit."""
        if self.place != "env" or not self.variables:
            return []
        return [told] if (told := git_warning(self.file)) else []

    def keep(self) -> None:
        """Raises `ConfigError`, having kept nothing."""
        if self.place == "env" and self.variables:
            self._into_file()
        elif self.place == "keyring":
            self._into_keyring()

    def undo(self) -> None:
        from mcpx.core.saving import Overtaken, Unwritable, replace_file

        if self._wrote is not None:
            try:
                if self._before is None:
                    os.unlink(self.file)
                else:
                    replace_file(self.file, self._before, self._wrote)
            except (Overtaken, Unwritable, OSError):
                pass  # somebody else has it now; a variable too many harms nobody
        self._forget()

    def _into_file(self) -> None:
        from mcpx.core.saving import Overtaken, Unwritable, replace_file

        before = _bytes(self.file)
        text = "" if before is None else before.decode("utf-8-sig", errors="surrogateescape")
        known, odd = dotenv.parse(text)
        new = {name: value for name, value in self.variables.items() if known.get(name) != value}
        if not new:
            return
        ends = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
        glue = "" if not text or text.endswith("\n") else ends
        added = (
            (text or _HEADER)
            + glue
            + "".join(f"{name}={_quoted(value)}{ends}" for name, value in new.items())
        )
        read = dotenv.parse(added)[0]
        if any(read.get(name) != value for name, value in new.items()):
            if odd:  # a quote without an end takes in all that is written behind it
                raise ConfigError(
                    [
                        f"error: {self.file}:{odd[-1]} cannot be read; mend it first: nothing was "
                        "written"
                    ]
                )
            told = (
                "error: a secret holds characters that no .env file can: keep it in the "
                "keyring (--secrets keyring)"
            )
            raise ConfigError([told])
        bom = BOM_UTF8 if before is not None and before.startswith(BOM_UTF8) else b""
        data = bom + added.encode(errors="surrogateescape")
        try:
            if not self.file.parent.exists():
                private_folder(self.file.parent)
            replace_file(self.file, data, before)
        except Overtaken:
            told = f"error: {self.file} was changed in this moment; nothing was written: try again"
            raise ConfigError([told]) from None
        except (Unwritable, OSError) as error:
            raise ConfigError([f"error: {error}"]) from None
        self._before, self._wrote = before, data

    def _into_keyring(self) -> None:
        from mcpx.auth import keychain

        try:
            held = {name: keychain.look_up(name) for name in self.variables}
            for name, value in self.variables.items():
                if held[name] not in (None, value):
                    told = (
                        f"error: the keyring has another secret named {name}; nothing was written"
                    )
                    raise ConfigError(
                        [f"{told}\n  --secrets env keeps these in a .env file beside the config"]
                    )
            for name, value in self.variables.items():
                if held[name] is None:
                    keychain.keep(name, value)
                    self._kept.append(name)
        except keychain.NoKeyring as error:
            self._forget()
            told = "--secrets env keeps them in a .env file beside the config"
            raise ConfigError([f"error: {error}\n  {told}"]) from None

    def _forget(self) -> None:
        from mcpx.auth import keychain

        for name in self._kept:
            try:
                keychain.remove(name)
            except keychain.NoKeyring:
                pass
        self._kept.clear()


def offer(
    entries: Entries,
    config: Path,
    environ: Mapping[str, str],
    more: Mapping[str, str] | None = None,
) -> Offer:
    """What of `entries` is secret becomes references. `config`: the file or folder they go to;
    `more`: variables that are referred to already, with their values."""
    file = _beside(config)
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
    return Offer(made, values, file)


def _beside(config: Path) -> Path:
    return (config if os.path.isdir(config) else config.parent) / ".env"


def variables_beside(config: Path) -> dict[str, str]:
    """Those of the `.env` file that a configuration reads."""
    data = _bytes(_beside(config))
    return dotenv.parse("" if data is None else data.decode("utf-8-sig", errors="replace"))[0]


def choose(made: Offer, wish: Place | None) -> None:
    """Where they shall be kept; somebody who sits there is asked."""
    from mcpx.cli.output import can_ask, plain

    if not made.variables:
        return
    if wish is not None:
        made.place = wish
        return
    if not can_ask():
        return
    import sys

    names = ", ".join(plain(name, 60) for name in made.variables)
    sys.stderr.write(f"Secrets: {names}\n")
    sys.stderr.write(
        f"Keep them in {made.file} (e), in the system's keyring (k) or in the config file (c)? "
        "[E/k/c] "
    )
    sys.stderr.flush()
    word = sys.stdin.readline().strip().lower()[:1]
    made.place = "keyring" if word == "k" else "config" if word == "c" else "env"


def _renamed(entries: Entries, values: dict[str, str], known: Mapping[str, str]) -> Entries:
    """So that no variable hides one that is there with another value."""
    names: dict[str, str] = {}
    for name, value in list(values.items()):
        new, number = name, 1
        while known.get(new, value) != value or (new != name and new in values):
            number += 1
            new = f"{name}_{number}"
        if new != name:
            names[name] = new
            values[new] = values.pop(name)
    by = {name: f"${{{new}}}" for name, new in names.items()}
    return (
        [(section, replace_references(entry, by)) for section, entry in entries]
        if names
        else entries
    )


def replace_references(value: Any, by: Mapping[str, str]) -> Any:
    """The same with references to these variables replaced."""
    if isinstance(value, str):
        return re.sub(r"\$\$|\$\{(\w+)\}", lambda m: by.get(m[1] or "", m[0]), value)
    if (table := as_map(value)) is not None:
        return {key: replace_references(item, by) for key, item in table.items()}
    items = as_list(value)
    return value if items is None else [replace_references(item, by) for item in items]


def _literal(value: str) -> str:
    return value.replace("$", "$$")


def _bytes(file: Path) -> bytes | None:
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            [f"error: {file} cannot be read: {(error.strerror or str(error)).lower()}"]
        ) from None


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w./:@%+,=-]+", value, re.ASCII):
        return value
    if "'" not in value:
        return f"'{value}'"
    escaped = (
        value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
    return f'"{escaped}"'
