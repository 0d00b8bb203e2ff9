"""Advice on how to make the system's keyring usable. It depends on how mcpx was installed."""

import json
import os
import re
import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

DISTRIBUTION = "mcpx-gateway"
INSTEAD = "encrypt values with MCPX_KEY instead: export MCPX_KEY=$(mcpx secret key)"
_UV_CACHE = re.compile(r"[/\\](?:archive|environments|builds)-v\d+[/\\]")
_PIPX_CACHE = re.compile(r"[/\\]pipx[/\\]\.?cache[/\\]|[/\\]\.cache[/\\]pipx[/\\]")
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")


def install_advice(prefix: str = sys.prefix) -> str:
    """How to install the library `keyring` for this mcpx."""
    folder = Path(prefix)
    if is_container():
        return f"a container has no keyring; {INSTEAD}"
    if (folder / "uv-receipt.toml").exists():
        return f"uv tool install --with keyring {_quoted(_source())}"
    if (folder / "pipx_metadata.json").exists():
        return f"pipx inject {DISTRIBUTION} keyring"
    if _UV_CACHE.search(f"{prefix}{os.sep}"):
        return f"uvx --with keyring --from {_quoted(_source())} mcpx"
    if _PIPX_CACHE.search(f"{prefix}{os.sep}"):
        return f"install mcpx with 'pipx install', then: pipx inject {DISTRIBUTION} keyring"
    if (clone := _clone()) is not None and folder.parent == clone:
        return f"uv sync --directory {_quoted(str(clone))} --extra keyring"
    python = _quoted(sys.executable)
    if find_spec("pip") is None:  # An environment that uv made.
        return f"uv pip install --python {python} keyring"
    return f"{python} -m pip install keyring"


def usage_advice(platform: str = sys.platform) -> str:
    """What to do where the library finds no keyring, or none that works."""
    if is_container():
        return f"a container has no keyring; {INSTEAD}"
    if platform.startswith("linux"):
        return f"start a Secret Service (GNOME Keyring, KWallet) in this session, or {INSTEAD}"
    return f"unlock the keyring, or {INSTEAD}"


def is_container() -> bool:
    return any(map(os.path.exists, _CONTAINER_FILES)) or "KUBERNETES_SERVICE_HOST" in os.environ


def _direct_url() -> dict[str, Any]:
    """PEP 610: from which folder or address the distribution was installed; empty for an index."""
    try:
        return json.loads(metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return {}


def _source() -> str:
    url = str(_direct_url().get("url") or DISTRIBUTION)
    return url2pathname(urlsplit(url).path) if url.startswith("file:") else url


def _clone() -> Path | None:
    """The folder of the source if the installation is editable."""
    folder: dict[str, Any] = _direct_url().get("dir_info") or {}
    return Path(_source()) if folder.get("editable") else None


def _quoted(text: str) -> str:
    return shlex.quote(text)
