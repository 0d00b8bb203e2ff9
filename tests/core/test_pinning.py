"""SEC-5, SCA-1: what others approve counts here, whenever it is written."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kit.loop import run
from kit.until import until
from mcpx.base.aio import Tasks
from mcpx.core.pinning import Pinning
from mcpx.policy.pins.fingerprint import Item, fingerprint
from mcpx.policy.pins.pin_file import Kept
from mcpx.policy.pins.pinned import Pins, is_waiting


def item(name: str) -> Item:
    definition: Any = {"name": name, "inputSchema": {"type": "object"}}
    return Item("tools", name, fingerprint(definition), definition)


class Overtaken(Pins):
    """Another one writes right behind each of our own writings, before we know that ours is
    done."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written = False

    def write(self, server: str, kept: Kept, *, mend: bool) -> Kept | None:
        written = super().write(server, kept, mend=mend)
        others = Kept(since=1.0)
        others.approve(item("theirs"), 2.0, "somebody else")
        super().write(server, others, mend=mend)
        self.written = True
        return written


def pinning(pins: Pins, tasks: Tasks) -> Pinning:
    gateway: Any = SimpleNamespace(reports=SimpleNamespace(lists_changed=lambda *_: None))
    return Pinning(gateway, pins, tasks, keeps=True)


def test_what_another_replica_approves_right_after_something_was_written_here_counts(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        tasks = Tasks("test")
        pins = Overtaken(tmp_path)
        at_work = pinning(pins, tasks)
        kept = pins.of("box", "pin").kept
        kept.since = 1.0
        kept.approve(item("ours"), 1.0, "somebody here")
        at_work.start()
        pins.changed("box")
        await until(lambda: pins.written)
        await until(lambda: not at_work._unwritten)  # pyright: ignore[reportPrivateUsage]
        at_work.look_again()
        try:
            await until(lambda: ("tools", "theirs") in kept.approved, 10)
            assert ("tools", "ours") in kept.approved
        finally:
            await tasks.close()

    run(main())


def test_what_another_gateway_has_approved_before_the_first_look_counts_where_something_waits(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        tasks = Tasks("test")
        pins = Pins(tmp_path)
        at_work = pinning(pins, tasks)
        pinned = pins.of("box", "quarantine")
        assert is_waiting(pinned)
        others = Kept(since=1.0, released=2.0)
        others.approve(item("theirs"), 2.0, "somebody else")
        Pins(tmp_path).write("box", others, mend=True)
        at_work.start()
        try:
            await until(lambda: pinned.kept.released, 10)
            assert ("tools", "theirs") in pinned.kept.approved
        finally:
            await tasks.close()

    run(main())
