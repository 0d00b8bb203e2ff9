"""Local tools: what the user declares, served like the tool of a server. One class per kind: its
config fields and its behaviour.

A command knows its own arguments and how to run; it knows nothing of catalogs, surfaces or
protocols.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from mcpx.model.family import Family
from mcpx.model.kinds import Mistake

if TYPE_CHECKING:
    from mcpx.commands.work import Bench, Work


class Action(Protocol):
    """What a command does. A frozen dataclass, whose fields are its keys in a config file."""

    type: ClassVar[str]

    @property
    def reads_only(self) -> bool:
        """Whether it is known to change nothing."""
        ...

    def mistakes(self, parameters: Mapping[str, bool] | None) -> Iterable[Mistake]:
        """What is wrong with its fields beyond their types; `parameters` are the names of the
        arguments, and whether a call may come without a value for it; None where they cannot be
        told (`input_schema` takes any)."""
        ...

    def prepare(self, bench: "Bench") -> "Work":
        """Set it to work. Called at the first call; must not wait."""
        ...


COMMANDS: Family[Action] = Family(
    "mcpx.commands",
    "mcpx.commands",
    beside=("parameters", "work"),
    needs=("reads_only", "mistakes", "prepare"),
    keys=True,
)
"""What `commands` may name."""

__all__ = ["COMMANDS", "Action"]
