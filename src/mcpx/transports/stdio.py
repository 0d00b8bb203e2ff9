"""A server as a child process, spoken to over its standard input and output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdio:
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    inherit_env: bool | tuple[str, ...] = False
    framing: Literal["newline", "content-length"] = "newline"
