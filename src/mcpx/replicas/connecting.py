"""Clients of the `redis` package for an address. The only module that imports it."""

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError, NoPermissionError, NoScriptError, ResponseError

from mcpx.replicas.address import StoreAddress

__all__ = [
    "Client",
    "NoScriptError",
    "ResponseError",
    "advice",
    "ear_of",
    "end",
    "made",
]

ACL_RULE = "~{{{prefix}}}* &{{{prefix}}}* +@all -@dangerous -@admin"
"""Rights that a user of the store needs, as `ACL SETUSER` takes them."""
_DENIED = ("no permissions", "user executing the script can't")
"""In errors about missing rights. Inside of a script they have no class."""

MOST_CONNECTIONS = 16
"""To the store, at a time. Commands are sent together, so few are enough."""
BEYOND = 5
"""Times the patience of whoever waits for an answer: a connection that nobody waits for ends."""

Client = Any
"""What the package's own types say of its clients differs from client to client."""


def advice(error: BaseException, address: StoreAddress) -> str:
    """What to do about an error of the store. Empty if the error explains itself."""
    if isinstance(error, MovedError | AskError) and address.kind != "cluster":
        if isinstance(error, MovedError):
            word = "MOVED"
        else:
            word = "ASK"
        if address.tls:
            scheme = "rediss+cluster"
        else:
            scheme = "redis+cluster"
        return (
            f"it answered {word}, so it is a node of a cluster. Set server.store or MCPX_STORE to "
            f"{scheme}://{address.shown}, with the user and password as before"
        )
    text = str(error).rstrip(".")
    if isinstance(error, NoPermissionError) or any(words in text for words in _DENIED):
        user = address.user or "default"
        rule = ACL_RULE.format(prefix=address.prefix)
        return f"{text}. Give the user {user!r} of the store the ACL rule: {rule}"
    return ""


async def end(client: "Client") -> None:
    """Close all that it has open. Raises what the last of it that did not want to had to say."""
    problem: Exception | None = None
    for each in (*getattr(client, "beside", ()), client):
        try:
            await each.aclose()
        except Exception as error:  # noqa: BLE001 - the others are closed all the same
            problem = error
    if problem is not None:
        raise problem


def ear_of(client: "Client") -> Any:
    """To hear news by. It ends with the client, which itself would forget it with the last who
    refers to it."""
    ear = client.pubsub()
    client.beside = (*getattr(client, "beside", ()), ear)
    return ear


def made(address: StoreAddress, patience: float) -> "Client":
    """Nothing is connected yet. A command is sent once and no more: whether it is worth another try
    is for whoever sent it, who knows what it does, and gives up after `patience`. What is said here
    of time is for what he does not see: a node or Sentinel that is silent, where there are others,
    and a client that goes on though it was given up."""
    several = address.kind in ("sentinel", "cluster")
    common: dict[str, Any] = {
        "username": address.user or None,
        "password": address.password or None,
        "socket_timeout": patience if several else BEYOND * patience,
        "socket_connect_timeout": patience if several else 2 * patience,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": MOST_CONNECTIONS,
        "protocol": 2,
    }
    if address.tls:
        files = {
            "ssl_ca_certs": address.ca,
            "ssl_certfile": address.cert,
            "ssl_keyfile": address.key,
        }
        common |= {"ssl": True, **{name: file for name, file in files.items() if file}}
    if address.kind == "socket":
        return Redis(unix_socket_path=address.path, **common)
    if address.kind == "one":
        host, port = address.hosts[0]
        return Redis(host=host, port=port, db=address.db, **common)
    if address.kind == "sentinel":
        beside = ("socket_timeout", "socket_connect_timeout", "retry")
        asked = {
            name: value
            for name, value in common.items()
            if name in beside or name.startswith("ssl")
        }
        sentinel: Any = Sentinel(list(address.hosts), sentinel_kwargs=asked)
        client = sentinel.master_for(
            address.service, db=address.db, **{**common, "socket_timeout": BEYOND * patience}
        )
        client.beside = sentinel.sentinels  # it leaves them open
        return client
    nodes = [ClusterNode(host, port) for host, port in address.hosts]
    common["retry"] = Retry(
        NoBackoff(), 1
    )  # for a node that says that another has the key: it did nothing itself
    return RedisCluster(startup_nodes=nodes, **common)
