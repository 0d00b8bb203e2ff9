"""What stands beside the current generation for a while: servers that are started for the next one,
and servers and commands of the last one that finish what they were asked. Credentials stay as long
as one of them uses them."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mcpx.base.aio import Tasks
from mcpx.core.generation import Generation
from mcpx.core.provisions import Provisions
from mcpx.upstreams.upstream import Upstream

if TYPE_CHECKING:
    from mcpx.core.local import Tool

DRAIN = 30.0
"""Seconds running calls of a server that was removed may take to finish."""


class Passing:
    def __init__(
        self, generation: Callable[[], Generation], provisions: Provisions, tasks: Tasks
    ) -> None:
        self._generation = generation
        self._provisions = provisions
        self._tasks = tasks
        self._upstreams: set[Upstream] = set()
        self._tools: set[Tool] = set()

    def upstreams(self) -> set[Upstream]:
        """All: those of the generation, and those that come and go."""
        return {*self._generation().upstreams.values(), *self._upstreams}

    def come(self, upstreams: Iterable[Upstream]) -> None:
        """They are being started for the next generation."""
        self._upstreams.update(upstreams)

    def arrived(self, upstreams: Iterable[Upstream]) -> None:
        self._upstreams.difference_update(upstreams)

    def leave(self, upstream: Upstream) -> None:
        self._upstreams.add(upstream)
        self._tasks.start(self._drain(upstream))

    def retire(self, tool: "Tool") -> None:
        """A command that was changed or removed."""
        self._provisions.forget_answers(tool)
        self._tools.add(tool)
        self._tasks.start(self._let_finish(tool))

    async def _drain(self, upstream: Upstream) -> None:
        await upstream.drain(DRAIN)
        self._upstreams.discard(upstream)
        await self.keep_credentials()

    async def _let_finish(self, tool: "Tool") -> None:
        await tool.drain(DRAIN)
        self._tools.discard(tool)
        self._provisions.forget_answers(
            tool
        )  # a call that began before the reload may have left one
        await self.keep_credentials()

    async def keep_credentials(self) -> None:
        """Those that the configuration has, and those that somebody still uses."""
        if "ring" not in vars(self._provisions):
            return
        generation, upstreams = self._generation(), self.upstreams()
        tools = {*self._tools, *(generation.local.tools if generation.local is not None else ())}
        used = {each.credentials for each in (*upstreams, *tools)}
        auths = {entry.name: entry.auth for entry in generation.config.auth_configs}
        await self._provisions.ring.keep(auths, {(u.name, u.address) for u in upstreams}, used)
