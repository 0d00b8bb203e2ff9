"""What every part of every family keeps, whoever wrote it: one suite, run over all that are
found."""

import dataclasses
import importlib
import inspect
import logging
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from mcpx.auth import AUTHS
from mcpx.commands import COMMANDS
from mcpx.config.validate import keys_of
from mcpx.formats import FORMATS
from mcpx.model.family import Family
from mcpx.surfaces import SURFACES
from mcpx.surfaces.settings import Settings
from mcpx.surfaces.surface import Lasting, Surface, Surfaces
from mcpx.transports import TRANSPORTS

FAMILIES: dict[str, Family[Any]] = {
    "surfaces": SURFACES,
    "transports": TRANSPORTS,
    "auth": AUTHS,
    "commands": COMMANDS,
    "formats": FORMATS,
}
PARTS = [
    pytest.param(family, name, id=f"{which}-{name}")
    for which, family in FAMILIES.items()
    for name in family
]
MODES = sorted(SURFACES)
WAYS = sorted(TRANSPORTS)


def test_the_families_have_the_parts_that_are_promised() -> None:
    """SUR-6, SRC-1: and `memory` cannot be named in a file."""
    assert MODES == ["auto", "describe", "direct", "inspect", "search"]
    assert WAYS == ["http", "sse", "stdio", "websocket"]


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_a_part_is_the_one_class_of_its_type_in_a_file_of_that_name(
    family: Family[Any], name: str
) -> None:
    part = family[name]
    assert part.type == name
    assert part.__module__.rpartition(".")[2] == name
    own = vars(importlib.import_module(part.__module__)).values()
    assert [each for each in own if inspect.isclass(each) and vars(each).get("type") == name] == [
        part
    ]
    assert part.__doc__ or inspect.getmodule(part).__doc__


@pytest.mark.parametrize("mode", MODES)
def test_a_surface_is_made_of_what_all_of_them_share(mode: str) -> None:
    surfaces = Surfaces(mode, Settings(), Lasting())
    surface = surfaces.of(None)
    assert isinstance(surface, Surface)
    assert surface is surfaces.of(mode)


@pytest.mark.parametrize("mode", MODES)
def test_the_menu_of_a_surface_depends_on_settings_that_there_are(mode: str) -> None:
    assert set(SURFACES[mode].menu_settings) <= {
        field.name for field in dataclasses.fields(Settings)
    }


@pytest.mark.parametrize("name", WAYS)
def test_a_transport_is_a_frozen_value_whose_fields_are_its_keys(name: str) -> None:
    part = TRANSPORTS[name]
    assert dataclasses.is_dataclass(part)
    assert keys_of(part) and "type" not in keys_of(part)
    assert inspect.iscoroutinefunction(part.open)
    required = {
        field.name: "x"
        for field in dataclasses.fields(part)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    assert part(**required) == part(**required)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(part(**required), next(iter(required)), "y")


def test_nothing_of_a_surface_is_imported_before_it_is_asked_for() -> None:
    """Start-up time and memory: the names are known, the modules are not loaded."""
    program = (
        "import sys, mcpx.app, mcpx.front.http\n"
        "from mcpx.surfaces import SURFACES\n"
        "assert 'search' in SURFACES and len(SURFACES) == 5\n"
        "print([name for name in sys.modules if name.startswith('mcpx.surfaces.modes.')])\n"
        "print('importlib.metadata' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["[]", "False"]


# ------------------------------------------------------------------------------------------------
# the family itself


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of two parts and one file beside them."""
    package = tmp_path / "some_parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "red.py").write_text('class Red:\n    type = "red"\n')
    (package / "blue.py").write_text(
        'from some_parts.red import Red\n\n\nclass Blue(Red):\n    type = "blue"\n'
    )
    (package / "paint.py").write_text("raise RuntimeError('not a part')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "some_parts"
    for name in [name for name in sys.modules if name.partition(".")[0] == "some_parts"]:
        del sys.modules[name]


def family(folder: str, group: str = "mcpx.nothing") -> Family[Any]:
    return Family(folder, group, beside=["paint"])


def test_a_file_is_imported_when_its_part_is_asked_for(folder: str) -> None:
    parts = family(folder)
    assert list(parts) == ["blue", "red"] and "red" in parts and len(parts) == 2
    assert "some_parts.red" not in sys.modules and parts.loaded == {}
    assert parts["red"].__name__ == "Red"
    assert list(parts.loaded) == ["red"] and "some_parts.blue" not in sys.modules
    assert parts["blue"].__name__ == "Blue"


@pytest.mark.parametrize(
    "name", ["green", "paint", "__init__", "", "../red", "red.py", 3, None, [], {}]
)
def test_what_is_no_type_is_unknown(folder: str, name: Any) -> None:
    parts = family(folder)
    assert name not in parts
    if isinstance(name, str):
        assert parts.get(name) is None


def test_a_file_without_its_part_is_a_mistake_that_names_it(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder / "green.py").write_text('class Other:\n    type = "grey"\n')
    with pytest.raises(TypeError, match=r"some_parts\.green has no class of type 'green'"):
        family(folder)["green"]


class Installed:
    """What other packages bring, and how often anybody looked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
        self.looked = 0
        self._found = [
            metadata.EntryPoint(name, value, "mcpx.colours") for name, value in values.items()
        ]
        monkeypatch.setattr(metadata, "entry_points", self._look)

    def _look(self, *, group: str) -> list[metadata.EntryPoint]:
        self.looked += 1
        return [entry for entry in self._found if entry.group == group]


def test_other_packages_are_asked_once_and_only_for_what_the_folder_does_not_have(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brought.py").write_text('class Green:\n    type = "green"\n')
    installed = Installed(monkeypatch, green="brought:Green")
    parts = family(folder, "mcpx.colours")
    assert "red" in parts and list(parts) == ["blue", "red"] and installed.looked == 0
    assert "green" in parts and parts["green"].__name__ == "Green"
    assert "yellow" not in parts and "grey" not in parts
    assert list(parts) == ["blue", "green", "red"] and installed.looked == 1


@pytest.mark.parametrize("value", ["no_such_package:Part", "brought:Missing", "brought:Green"])
def test_a_part_of_another_package_that_cannot_be_used_is_told_and_unknown(
    value: str,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "brought.py").write_text('class Green:\n    type = "red"\n')
    sys.modules.pop("brought", None)
    Installed(monkeypatch, green=value)
    parts = family(folder, "mcpx.colours")
    with caplog.at_level(logging.WARNING):
        assert "green" not in parts and "green" not in parts
    (told,) = caplog.messages
    assert "'green'" in told and value in told
    assert list(parts) == ["blue", "red"]


MISFITS = {
    "no class": "Part = 'part'",
    "without a type": "class Part: pass",
    "of another type": "class Part:\n    type = 'other'",
    "without behaviour": (
        "import dataclasses\n@dataclasses.dataclass\nclass Part:\n    type = 'part'"
    ),
    "with an import that fails": "import no_such_package_anywhere",
    "with a mistake in it": "class Part(",
    "that ends the program": "raise SystemExit(7)",
}


@pytest.mark.parametrize("which", FAMILIES)
@pytest.mark.parametrize("misfit", MISFITS)
def test_a_misfit_of_another_package_is_told_and_missing_in_every_family(
    misfit: str,
    which: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RUN-8: and all other parts are there."""
    (tmp_path / "misfit_part.py").write_text(MISFITS[misfit])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "misfit_part", raising=False)
    entry = metadata.EntryPoint("part", "misfit_part:Part", f"mcpx.{which}")
    monkeypatch.setattr(
        metadata, "entry_points", lambda *, group: [entry] if group == entry.group else []
    )
    real = FAMILIES[which]
    monkeypatch.setattr(real, "_outside", None)
    with caplog.at_level(logging.WARNING):
        assert "part" not in real and real.get("part") is None
    (told,) = caplog.messages
    assert f"mcpx.{which} 'part'" in told and "misfit_part:Part" in told
    assert "part" not in list(real) and all(real[name].type == name for name in real)


@pytest.mark.parametrize("which", ["transports", "auth", "commands"])
def test_a_part_with_keys_must_be_a_dataclass(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    can = "open = credentials = per_server = reads_only = mistakes = prepare = None"
    (tmp_path / "plain_part.py").write_text(f"class Part:\n    type = 'part'\n    {can}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plain_part", raising=False)
    entry = metadata.EntryPoint("part", "plain_part:Part", f"mcpx.{which}")
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: [entry])
    monkeypatch.setattr(FAMILIES[which], "_outside", None)
    with caplog.at_level(logging.WARNING):
        assert "part" not in FAMILIES[which]
    assert "it is no dataclass" in caplog.text


FIELDS = {
    "NoSuchType": "cannot be told",
    "complex": "no config file can hold",
    "list[str]": "no config file can hold",
    "dict[str, str]": "no config file can hold",
    "Callable[[int], int] | None": "no config file can hold",
    "tuple[str, int]": "no config file can hold",
    "tuple[Mapping[str, float | None], ...]": "",
    "Annotated[int, 'a mark']": "",
    "Literal['a', 'b'] | bool": "",
}


@pytest.mark.parametrize("kind", FIELDS)
def test_a_field_that_no_config_file_can_fill_is_told(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-8: when the part is loaded, not as a traceback when somebody uses it."""
    (tmp_path / "odd_part.py").write_text(
        "from dataclasses import dataclass\nfrom typing import *\nfrom collections.abc import "
        "Callable, Mapping\n"
        "@dataclass(frozen=True)\nclass Part:\n    type: ClassVar[str] = 'part'\n"
        f"    reads_only = mistakes = prepare = None\n    odd: {kind!r} = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "odd_part", raising=False)
    entry = metadata.EntryPoint("part", "odd_part:Part", "mcpx.commands")
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: [entry])
    commands = FAMILIES["commands"]
    monkeypatch.setattr(commands, "_outside", None)
    monkeypatch.setattr(commands, "loaded", {})
    with caplog.at_level(logging.WARNING):
        assert ("part" in commands) == (not FIELDS[kind])
    assert FIELDS[kind] in caplog.text


def test_of_two_parts_of_one_type_the_first_is_used_and_ours_before_all(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-8: and the other one is told, not silently chosen or dropped."""
    (tmp_path / "twice.py").write_text(
        'class One:\n    type = "green"\nclass Two:\n    type = "green"\nclass Red:\n    type = '
        '"red"\n'
    )
    found = [("green", "twice:One"), ("green", "twice:Two"), ("red", "twice:Red")]
    entries = [metadata.EntryPoint(name, value, "mcpx.colours") for name, value in found]
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: entries)
    parts = family(folder, "mcpx.colours")
    with caplog.at_level(logging.WARNING):
        assert parts["green"].__name__ == "One" and parts["red"].__module__ == "some_parts.red"
    two, red = caplog.messages
    assert "'green'" in two and "twice:Two" in two and "twice:One" in two
    assert "'red'" in red and "twice:Red" in red and "ours" in red


def test_families_are_values_that_can_stand_in_a_type_hint() -> None:
    assert len({SURFACES, TRANSPORTS, SURFACES}) == 2
    assert SURFACES != TRANSPORTS
