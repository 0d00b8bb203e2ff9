"""What an import gives: entries of a configuration, what has to be set for them, and what was left
out."""

from dataclasses import dataclass, field

from mcpx.model.call import Json


class Reference(str):
    """Text that holds references to variables on purpose; every other text is written so that it
    stays as it is."""

    __slots__ = ()


def variable(name: str) -> Reference:
    return Reference(f"${{{name}}}")


@dataclass(slots=True)
class Imported:
    commands: list[Json] = field(default_factory=list[Json])
    auths: list[Json] = field(default_factory=list[Json])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """What the entries need from the environment, and what each is."""
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """What of these stood in the original; it is in no entry."""
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What was not made into a command, and why."""
    notes: list[str] = field(default_factory=list[str])
    """What is not as it was in the original."""
    shortened: bool = False
    """Whether descriptions and schemas were cut further than usual, so that a configuration can
    hold them."""

    @property
    def tree(self) -> Json:
        """As a config file has it."""
        return {"commands": self.commands, **({"auth_configs": self.auths} if self.auths else {})}
