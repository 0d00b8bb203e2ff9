"""RUN-5: each client program's file as the native config that `mcpx import` makes of it.

Beside each file of `files/` its outcome stands in `files/CLIENT.mcpx.yaml`: what is written, and
below it, as comments, what was said. After a change that is meant to be: UPDATE_GOLDEN=1 pytest
tests/clients/test_importing_golden.py
"""

import json
import os
from pathlib import Path

import pytest

from kit.command import run_command
from mcpx.clients.catalogue import Client, Place, clients, places_here
from mcpx.config import load

FILES = Path(__file__).parent / "files"


def written_by(client: Client, home: Path) -> list[Place]:
    return [
        place
        for place in places_here(client, home / "project", {"HOME": str(home)})
        if place.scope == "user"
    ]


WITH_FILES = [client for client in clients() if any(spec.scope == "user" for spec in client.specs)]


@pytest.mark.parametrize("client", WITH_FILES, ids=lambda client: client.id)
def test_a_clients_file_becomes_this_config(client: Client, tmp_path: Path) -> None:
    """RUN-5: comments, stray commas, other words and other variables of every program are
    understood."""
    source = next(file for file in FILES.glob(f"{client.id}.*") if ".mcpx" not in file.name)
    project = tmp_path / "project"
    project.mkdir()
    there = Path(written_by(client, tmp_path)[0].path)
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(source.read_bytes())
    environ = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "MCPX_STATE_DIR": str(tmp_path / "state"),
    }
    into = tmp_path / "out" / "mcpx.yaml"

    ended = run_command(
        ["import", client.id, "--into", str(into), "--yes", "--json"], project, environ
    )

    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    lines = [
        f"left out: {name} (mcpx itself)" for file in told["clients"] for name in file["itself"]
    ]
    lines += [note for file in told["clients"] for note in file["notes"]]
    lines += [
        f"{each['from']} -> {each['to']}" for file in told["clients"] for each in file["rewritten"]
    ]
    lines += [
        f"off: {each['name']}: {each['why']}" for each in told["servers"] if not each["enabled"]
    ]
    lines += [f"to be set: {name} ({what})" for name, what in told["variables"].items()]
    env = into.parent / ".env"
    lines += [
        f".env: {line}" for line in (env.read_text().splitlines()[1:] if env.exists() else ())
    ]
    text = into.read_text() + "".join(f"# {line}\n" for line in lines)
    text = text.replace(str(tmp_path), "/HOME")
    golden = FILES / f"{client.id}.mcpx.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert there.read_bytes() == source.read_bytes()  # it is not ours to change
    assert into.stat().st_mode & 0o077 == 0 and (
        not env.exists() or env.stat().st_mode & 0o077 == 0
    )
    secrets = [
        line.partition("=")[2]
        for line in (env.read_text().splitlines()[1:] if env.exists() else ())
    ]
    assert not any(secret in into.read_text() + ended.stdout + ended.stderr for secret in secrets)
    load(into, environ)  # as it stands


def test_every_client_with_a_file_has_one_here() -> None:
    ours = {file.name.partition(".")[0] for file in FILES.iterdir() if ".mcpx" not in file.name}
    assert {client.id for client in WITH_FILES} == ours
