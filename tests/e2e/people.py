"""Who sits at a client here, and the ways to mcpx and to a server without it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from behaviour.clients import (
    AnsweringUser,
    Client,
    Door,
    Front,
    Kind,
    Question,
    SdkClient,
    connected,
)
from e2e.peers import Peer
from kit.gateway import Gateway

Json = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How a client reaches mcpx."""

    kind: Kind
    front: Front

    def __str__(self) -> str:
        return f"{self.kind.removeprefix('sdk-')}-over-{self.front}"

    @property
    def shared(self) -> bool:
        """Other clients may be there too; on stdio there is one."""
        return self.front != "stdio"


WAYS: Sequence[Way] = (
    Way("sdk-older", "http"),
    Way("sdk-modern", "http"),
    Way("sdk-older", "stdio"),
    Way("sdk-modern", "stdio"),
)


class Local(AnsweringUser):
    """Somebody with one root that exists: the filesystem server works in nothing else."""

    def __init__(self, name: str, root: Path, *, quiet: bool = False) -> None:
        super().__init__(name, quiet=quiet)
        self.root = root

    def answer(self, question: Question) -> Json:
        if question.method != "roots/list":
            return super().answer(question)
        self.asked.append(question)
        return {"roots": [{"uri": self.root.as_uri(), "name": "work"}]}


def door_to(gateway: Gateway, front: Front) -> Door:
    if front == "stdio":
        return Door(
            front,
            command=gateway.stdio_command,
            env=gateway.env,
            stderr=gateway.folder / "stderr.txt",
        )
    base = f"127.0.0.1:{gateway.port}"
    urls = {
        "http": f"http://{base}/mcp",
        "sse": f"http://{base}/sse",
        "websocket": f"ws://{base}/ws",
    }
    return Door(front, urls[front])


@asynccontextmanager
async def directly(peer: Peer, user: AnsweringUser, stderr: Path) -> AsyncIterator[Client]:
    """The SDK's client at the server itself, without mcpx."""
    door = Door("stdio", command=peer.command, env=peer.env, stderr=stderr)
    async with connected("sdk-older", door, user) as client:
        yield client


def sdk(client: Client) -> Any:
    """The SDK's own client, for what the common interface leaves out."""
    assert isinstance(client, SdkClient)
    return client.inner


def said(result: Json) -> Json:
    """A result without what belongs to the era in which it came rather than to the server that gave
    it."""
    return {
        key: value
        for key, value in result.items()
        if key not in ("resultType", "ttlMs", "cacheScope", "_meta")
    }
