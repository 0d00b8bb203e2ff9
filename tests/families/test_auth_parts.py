"""What every way to prove oneself keeps, whoever wrote it: one suite, run over all that are
found."""

import dataclasses
import importlib
import inspect
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kit.loop import run
from mcpx.auth import AUTHS
from mcpx.auth.credentials import Proof, Purpose
from mcpx.config.validate import keys_of
from mcpx.wire.fetch import Fetcher

TYPES = sorted(AUTHS)
SECRET = "canary-4410cd"
OPEN = {
    "name",
    "type",
    "location",
    "username",
    "client_id",
    "token_url",
    "issuer",
    "scope",
    "client_auth",
}
"""Fields that may be shown; all others are taken for secrets."""


def filled(part: type[Any], **fields: Any) -> Any:
    """One with every field that it must have, and a secret wherever one may stand."""
    for field in dataclasses.fields(part):
        if field.name in fields or field.name in ("location", "client_auth"):
            continue
        if field.name == "token_url":
            fields[field.name] = "http://127.0.0.1:9/token"
        elif field.name in OPEN:
            fields[field.name] = "x"
        elif "Mapping" in str(field.type):
            fields[field.name] = {"X-Field": SECRET}
        elif field.default is dataclasses.MISSING:
            fields[field.name] = SECRET
    return part(**fields)


def test_the_family_has_the_parts_that_are_promised() -> None:
    """Section 6 of the specification."""
    assert {"api_key", "basic_auth", "bearer_token", "custom_header", "oauth2"} <= set(TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_a_part_is_the_one_class_of_its_type_in_a_file_of_that_name(name: str) -> None:
    part: Any = AUTHS[name]
    assert part.type == name and isinstance(part.per_server, bool | property)
    assert part.__module__.rpartition(".")[2] == name
    own = vars(importlib.import_module(part.__module__)).values()
    assert [each for each in own if inspect.isclass(each) and vars(each).get("type") == name] == [
        part
    ]
    assert part.__doc__ and inspect.getmodule(part).__doc__


@pytest.mark.parametrize("name", TYPES)
def test_a_part_is_a_frozen_value_whose_fields_are_its_keys(name: str) -> None:
    """Two that say the same are the same, so that a reload that changes nothing changes nothing."""
    part: Any = AUTHS[name]
    assert dataclasses.is_dataclass(part)
    assert "type" not in keys_of(part) and "per_server" not in keys_of(part)
    one = filled(part)
    assert one == filled(part) and one is not filled(part)
    field = dataclasses.fields(part)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, field, "y")
    for field in dataclasses.fields(part):
        other = {"X-Field": "other"} if isinstance(getattr(one, field.name), Mapping) else "other"
        assert dataclasses.replace(one, **{field.name: other}) != one


@pytest.mark.parametrize("name", TYPES)
def test_no_secret_stands_in_what_a_part_looks_like(name: str) -> None:
    part: Any = AUTHS[name]
    assert SECRET not in repr(filled(part))
    shown = {field.name for field in dataclasses.fields(part) if field.repr}
    known = OPEN if part.__module__.startswith("mcpx.auth.") else shown
    assert shown <= known | {"metadata_url", "redirect_port", "client_name"}, (
        "a field that may hold a secret is shown"
    )


@pytest.mark.parametrize("name", TYPES)
def test_mistakes_of_a_part_hold_no_value(name: str) -> None:
    """They go to whoever looks at the terminal; `path` says where."""
    told = getattr(filled(AUTHS[name]), "mistakes", tuple)()
    assert SECRET not in repr(list(told))


@pytest.mark.parametrize("name", TYPES)
def test_credentials_answer_at_once_and_show_no_secret(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        fetched: list[Fetcher] = []

        def fetcher() -> Fetcher:
            fetched.append(Fetcher({}))
            return fetched[0]

        fields = {
            "name": "somebody",
            "environ": {},
            "fetcher": fetcher,
            "url": "http://127.0.0.1:9/mcp",
        }
        if "state" in {field.name for field in dataclasses.fields(Purpose)}:
            fields["state"] = tmp_path
        credentials = filled(AUTHS[name]).credentials(Purpose(**fields))
        now = credentials.now()
        assert now is None or isinstance(now, Proof)
        assert now is credentials.now(), "the same object until something has changed"
        for method in ("get", "refused", "close"):
            assert inspect.iscoroutinefunction(getattr(credentials, method))
        assert SECRET not in repr(credentials) + repr(now)
        if now is not None:
            assert await credentials.get() is now
            assert any(SECRET in secret for secret in now.secrets)
        await credentials.close()
        await credentials.close()
        assert fetched == [], "nothing is asked for before somebody needs it"

    run(main())


def test_nothing_of_a_way_that_nobody_uses_is_imported() -> None:
    """Start-up time and memory: the names are known, the modules are not loaded."""
    program = (
        "import sys, mcpx.app, mcpx.front.http\n"
        "from mcpx.auth import AUTHS\n"
        "assert 'oauth2' in AUTHS\n"
        "wanted = [f'mcpx.auth.{name}' for name in (*AUTHS, 'credentials', 'once', 'ring')]\n"
        "wanted += ['mcpx.wire.fetch', 'mcpx.transports.proving']\n"
        "print([name for name in wanted if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["[]"]
