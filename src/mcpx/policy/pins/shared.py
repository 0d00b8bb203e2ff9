"""How replicas share what was approved: all of it counts for all. What waits for somebody's word is
each one's own, for each may be offered something else."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mcpx.model.call import Json, as_object
from mcpx.policy.pins.kept import LARGEST, Kept, alone, read, text_of
from mcpx.wire import codec


@dataclass(frozen=True)
class SharedPins:
    """Implements `replicas.rules.Rule`. A state is a file in which nothing is held."""

    folder: str = "pins"
    most: int = 1_000
    largest: int = LARGEST
    lasting: bool = True

    def owns(self, name: str) -> bool:
        return name.endswith(".json") and not name.startswith(".")

    def taken(self, raw: bytes | None, at: float, known: Json) -> Json | None:
        if raw is None:
            return None
        server, kept = read(raw)
        return (
            None
            if kept.since is None and not kept.approved and kept.released is None
            else _state(server, kept)
        )

    def merged(self, mine: Json, theirs: Json) -> Json:
        server, kept = read(codec.dump(theirs))
        return _state(server, kept) if kept.take_up(read(codec.dump(mine))[1]) else theirs

    def rendered(self, state: Json, raw: bytes | None) -> bytes | None:
        server, theirs = read(codec.dump(state))
        kept = Kept() if raw is None else read(raw)[1]
        return text_of(server, kept) if kept.take_up(theirs) else raw

    def remembered(self, state: Json) -> Json:
        return {}

    @contextmanager
    def alone(self, file: Path) -> Generator[None]:
        with alone(file.parent):
            yield


def _state(server: str, kept: Kept) -> Json:
    kept.held.clear()
    return as_object(codec.load(text_of(server, kept)))
