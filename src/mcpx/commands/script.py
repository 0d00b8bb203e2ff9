"""A local script as a tool (SRC-4, SEC-3)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mcpx.commands.work import Bench, Work
from mcpx.model.kinds import IN_FOLDER, Mistake, NonEmpty, Seconds, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The program of a script command; `{name}` stands for an argument."""

    type: ClassVar[str] = "script"

    interpreter: str | None = None
    """Program that runs it (`python3`, `bash`, `node`, …); absent: the script itself is run."""
    path: NonEmpty = field(metadata=IN_FOLDER)
    """The script; relative to the config's folder in the file, absolute here."""
    args: tuple[str, ...] = ()
    """Its arguments, one element each, never parsed by a shell."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Its environment, beside the small one every child gets."""
    stdin: str | None = None
    """What it reads on standard input; absent: nothing."""
    cwd: str | None = field(default=None, metadata=IN_FOLDER)
    """Working folder; relative to the config's folder in the file, absolute here."""
    timeout: Seconds = 30.0
    """Seconds it may take; `global.default_timeout` where it says nothing."""
    result: str | None = None
    """What of its JSON output is given to the caller: a JMESPath expression; absent: all of it."""
    max_output: Size = 2**20
    """Most output taken, in bytes."""
    concurrency: Size = 4
    """How many of it run at a time; further calls wait."""

    @property
    def reads_only(self) -> bool:
        return False

    def mistakes(self, parameters: Collection[str] | None) -> Iterator[Mistake]:
        yield from ()

    def prepare(self, bench: Bench) -> Work:
        raise NotImplementedError
