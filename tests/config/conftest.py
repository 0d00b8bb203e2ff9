"""A folder of its own for each test, and two ways to load a text from it: to a `Config`, or to what
is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpx.config import Config, load
from mcpx.model.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def loaded(folder: Path) -> Callable[..., Config]:
    def loaded(
        text: str | bytes, name: str = "config.yaml", *, strict: bool = False, **environ: str
    ) -> Config:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(0o600)
        return load(path, environ, strict=strict)

    return loaded


@pytest.fixture
def refused(loaded: Callable[..., Config]) -> Callable[..., str]:
    """The whole message, as it would be printed."""

    def refused(
        text: str | bytes, name: str = "config.yaml", *, strict: bool = False, **environ: str
    ) -> str:
        with pytest.raises(ConfigError) as caught:
            loaded(text, name, strict=strict, **environ)
        return str(caught.value)

    return refused
