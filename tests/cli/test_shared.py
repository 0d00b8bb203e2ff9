"""SCA-1: a configuration that is put into the store, and fetched from there, with a real store."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.replicas import RedisServer
from mcpx.cli.main import main
from mcpx.cli.shared import fetch
from mcpx.config import load
from mcpx.model.state import STORE, laid_down

HTTP = argparse.Namespace(transport="http")


@pytest.fixture
def store() -> Iterator[RedisServer]:
    with RedisServer() as store:
        yield store


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.b.yaml", "mcp_servers: []  # mine\n", "mcpx.yaml"),  # in a folder an overlay
        (".hidden.json", '{"mcp_servers": []}', "mcpx.json"),
        ("commented.jsonc", '// mine\n{"mcp_servers": []}', "mcpx.json"),
        ("plain", "mcp_servers: []\n", "mcpx.yaml"),
        ("team.yml", "mcp_servers: []\n", "team.yml"),
    ],
)
def test_the_first_file_is_found_whatever_it_is_called(
    store: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    found: str,
) -> None:
    """SCA-1, CFG-7: what replicas lay down is a folder; a later file takes its place there,
    whatever it is called."""
    environ = {"MCPX_STORE": store.url, "MCPX_STATE_DIR": str(tmp_path / "state")}
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("MCPX_KEY", raising=False)
    folder, file = Path(laid_down(STORE, environ)), tmp_path / name
    for said in (text, f"{text}\n"):
        file.write_text(said)
        assert main(["config", "push", str(file)]) == 0
        fetch(HTTP, environ)
        assert {each.name: each.read_text() for each in folder.iterdir()} == {found: said}
        assert load(folder, environ).mcp_servers == ()
