"""`CoreGateway`: `mcpx.core.gateway.Gateway` in the event loop of the test, without listeners."""

from pathlib import Path
from typing import Any, Self

from kit.callers import older_caller
from kit.loop import yield_to_loop
from mcpx.config import Config
from mcpx.core.gateway import Gateway
from mcpx.model.call import Call, Caller, Json


class CoreGateway:
    """Sends requests to a gateway object. The block starts and closes the gateway.

    Requests without a caller come from `older_caller()`.
    """

    def __init__(self, config: Config, state: Path | None = None) -> None:
        self.gateway = Gateway(config, {}, state)

    async def __aenter__(self) -> Self:
        self.gateway.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.close()

    async def ask(self, method: str, caller: Caller | None = None, **params: Any) -> Json:
        return await self.gateway.handle(Call(method, params, caller or older_caller()))

    async def tools(self, caller: Caller | None = None, **params: Any) -> list[Json]:
        return (await self.ask("tools/list", caller, **params))["tools"]

    async def names(self, caller: Caller | None = None, **params: Any) -> list[str]:
        return [tool["name"] for tool in await self.tools(caller, **params)]

    async def settled(self, *names: str) -> None:
        """Wait until the servers (`names`, or all) have connected or failed."""
        for name, upstream in self.gateway.generation.upstreams.items():
            if not names or name in names:
                await upstream.settled.wait()
        await yield_to_loop()
