"""Runs the official inspector's command line, as a person at a shell does."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.node import node, npm_bin

Json = dict[str, Any]

BOUND = 60.0
"""Seconds for one run, which takes one or two; a busy machine the rest."""


@dataclass(frozen=True)
class Answer:
    """What the inspector printed."""

    code: int
    result: Json
    """On success; else empty."""
    stderr: str

    @property
    def error(self) -> Json:
        """On failure: the envelope it prints as the last line of stderr."""
        return json.loads(self.stderr.splitlines()[-1])["error"]


def inspect(
    target: Sequence[str], home: Path, *words: str, env: Mapping[str, str] | None = None
) -> Answer:
    """`target` is the command of a server, or its address and how to speak to it.

    `home` takes the place of the user's own, for the inspector keeps state there.
    """
    command = [node(), npm_bin("inspector"), "--cli", *target, "--format", "json", *words]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND,
        env={**os.environ, **(env or {}), "HOME": str(home)},
    )
    result = json.loads(done.stdout)["result"] if done.returncode == 0 else {}
    return Answer(done.returncode, result, done.stderr)
