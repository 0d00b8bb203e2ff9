"""Which configuration a command is about, found at a glance where that is possible, and how its
gateway is reached."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from mcpx.cli import where
from mcpx.cli.how import config_path
from mcpx.cli.state import state_folder
from mcpx.wire.channels import socket_path


@dataclass(frozen=True, slots=True)
class Place:
    """Which configuration a command is about."""

    path: Path | None
    """None: the built-in demo."""
    env: str | None
    profile: str | None
    state: Path

    @property
    def channel(self) -> Path | None:
        return None if self.path is None else socket_path(self.state, self.path, self.env)


def place(options: argparse.Namespace) -> Place:
    path = config_path(options, os.environ) or where.found(options)
    path = None if path is None else Path(os.path.abspath(path))
    profile = getattr(options, "profile", None) or os.environ.get("MCPX_PROFILE") or None
    return Place(path, where.overlay(options), profile, state_folder(os.environ))


def glance(named: str | None, env: str | None) -> Place:
    """The same for a shell that completes: what takes a closer look is not found."""
    options = argparse.Namespace(config=named, config_file=None, env=env)
    return Place(
        config_path(options, os.environ), where.overlay(options), None, state_folder(os.environ)
    )
