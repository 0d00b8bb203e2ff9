"""CFG-9: the advice for a keyring that cannot be used fits the way in which mcpx was installed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.command import mcpx
from mcpx.auth import keyring_advice
from mcpx.auth.keyring_advice import INSTEAD, install_advice, usage_advice

PYTHON = sys.executable


class Distribution:
    """The metadata of mcpx, installed from a folder, an address, or an index."""

    def __init__(self, direct_url: dict[str, Any]) -> None:
        self._text = json.dumps(direct_url)

    def read_text(self, name: str) -> str | None:
        return self._text if name == "direct_url.json" else None


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From an index, on a machine that is not a container."""
    monkeypatch.setattr(keyring_advice, "_CONTAINER_FILES", (str(tmp_path / ".dockerenv"),))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    install(monkeypatch)


def install(monkeypatch: pytest.MonkeyPatch, **direct_url: Any) -> None:
    monkeypatch.setattr(
        keyring_advice.metadata, "distribution", lambda name: Distribution(direct_url)
    )


@pytest.mark.parametrize(
    ("file", "folder", "advice"),
    [
        ("uv-receipt.toml", "tools/mcpx-gateway", "uv tool install --with keyring mcpx-gateway"),
        ("pipx_metadata.json", "venvs/mcpx-gateway", "pipx inject mcpx-gateway keyring"),
        ("", "uv/archive-v0/x1", "uvx --with keyring --from mcpx-gateway mcpx"),
        (
            "",
            ".cache/pipx/x1",
            "install mcpx with 'pipx install', then: pipx inject mcpx-gateway keyring",
        ),
        ("", "venv", f"{PYTHON} -m pip install keyring"),
    ],
)
def test_the_advice_fits_the_installation(
    file: str, folder: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring_advice, "find_spec", lambda name: name)
    prefix = tmp_path / folder
    prefix.mkdir(parents=True)
    if file:
        (prefix / file).touch()
    assert install_advice(str(prefix)) == advice


def test_a_tool_of_a_folder_is_installed_from_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv-receipt.toml").touch()
    install(monkeypatch, url="file:///src/my%20mcpx")
    assert install_advice(str(tmp_path)) == "uv tool install --with keyring '/src/my mcpx'"


def test_a_clone_is_synchronized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, url=tmp_path.as_uri(), dir_info={"editable": True})
    assert (
        install_advice(str(tmp_path / ".venv")) == f"uv sync --directory {tmp_path} --extra keyring"
    )


def test_an_environment_without_pip_gets_it_from_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring_advice, "find_spec", lambda name: None)
    assert install_advice(str(tmp_path)) == f"uv pip install --python {PYTHON} keyring"


def test_in_a_container_another_way_is_named(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    for advice in (install_advice(str(tmp_path)), usage_advice()):
        assert advice == f"a container has no keyring; {INSTEAD}"


@pytest.mark.parametrize(
    ("platform", "first"), [("linux", "start a Secret Service"), ("darwin", "unlock the keyring")]
)
def test_a_keyring_that_does_not_work_is_told_with_what_to_do(platform: str, first: str) -> None:
    assert usage_advice(platform).startswith(first) and usage_advice(platform).endswith(INSTEAD)


def test_the_command_prints_the_advice(tmp_path: Path) -> None:
    ended = mcpx(tmp_path, "secret", "list")
    assert ended.returncode == 1
    assert f"the library 'keyring' is not installed ({install_advice()})" in ended.stderr
