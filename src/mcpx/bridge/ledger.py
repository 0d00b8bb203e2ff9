"""What has to be known of a conversation to go on with it at another gateway: who the client is,
what it subscribed to, and which of its requests are not answered.

Promise: bounded by what the client has in flight and the gateway admitted; a request whose text is
not kept is not repeated. Not done here: carrying anything.
"""

from typing import Final

from mcpx.bridge.link import Link
from mcpx.bridge.messages import Id, Json, read, table, write
from mcpx.model.idempotent import REPEATABLE

LISTEN: Final = "subscriptions/listen"
LARGEST_KEPT: Final = 65536
MOST_KEPT: Final = 8 << 20
"""Bytes of one request, and of all, that are kept to be repeated."""

NOTICES: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"


class Entry:
    """One request that is not answered."""

    __slots__ = ("begun", "end", "id", "link", "method", "raw", "size", "uri")

    def __init__(self, id: Id, method: str, raw: bytes | None, size: int, uri: str | None) -> None:
        self.id = id
        self.method = method
        self.raw = raw
        """None: it is not repeated."""
        self.size = size
        self.uri = uri
        self.link: Link | None = None
        """Where it was sent; None: it waits."""
        self.begun = False
        """A listening that the client believes begun."""
        self.end = 0
        """Where it ends among all bytes sent there."""

    def text(self) -> bytes | None:
        """What can be sent again: a request without effect, or one that was never sent."""
        if self.raw is not None or self.link is None:
            return self.raw
        return self.link.unsent(self.end, self.size)


class Ledger:
    def __init__(self) -> None:
        self.open: dict[Id, Entry] = {}
        self._kept = 0
        self._greeting: Json | None = None
        """The client's `initialize`, once it was answered."""
        self._asked: Json | None = None
        self._level: Json | None = None
        self._uris: dict[str, None] = {}
        self.greeted = False
        """The client has said that it is ready: it may be told things."""

    def begin(self, id: Id, method: str, message: Json, raw: bytes) -> Entry:
        uri = table(message.get("params")).get("uri")
        keeps = (
            method in REPEATABLE and len(raw) <= LARGEST_KEPT and self._kept + len(raw) <= MOST_KEPT
        )
        entry = Entry(
            id, method, raw if keeps else None, len(raw), uri if isinstance(uri, str) else None
        )
        self._kept += len(raw) if keeps else 0
        self.open[id] = entry
        if method == "initialize":
            self._asked = message
        elif method == "logging/setLevel":
            self._level = message
        return entry

    def end(self, id: Id, went_well: bool) -> Entry | None:
        """Answered, or nobody wants to know any more."""
        entry = self.open.pop(id, None)
        if entry is None:
            return None
        self._kept -= len(entry.raw) if entry.raw is not None else 0
        if went_well:
            if entry.method == "initialize":
                self._greeting = self._asked
            elif entry.method == "resources/subscribe" and entry.uri is not None:
                self._uris[entry.uri] = None
            elif entry.method == "resources/unsubscribe" and entry.uri is not None:
                self._uris.pop(entry.uri, None)
        return entry

    def of(self, link: Link) -> list[Entry]:
        """What was sent there and not answered, in order."""
        return [entry for entry in self.open.values() if entry.link is link]

    def replay(self, prefix: str) -> list[bytes]:
        """What another gateway has to be told before the conversation goes on. The ids begin with
        `prefix`: the answers are for nobody."""
        if self._greeting is None:
            return []
        said: list[Json] = [{**self._greeting, "id": f"{prefix}initialize"}]
        if self.greeted:
            said.append({"jsonrpc": "2.0", "method": "notifications/initialized"})
        if self._level is not None:
            said.append({**self._level, "id": f"{prefix}level"})
        for number, uri in enumerate(self._uris):
            params = {"uri": uri}
            said.append(
                {
                    "jsonrpc": "2.0",
                    "id": f"{prefix}{number}",
                    "method": "resources/subscribe",
                    "params": params,
                }
            )
        return [write(message) for message in said]

    def changes(self) -> list[Json]:
        """What the client is told once it talks to another gateway: everything may be different
        there."""
        told: list[Json] = []
        if self.greeted:
            told += [{"jsonrpc": "2.0", "method": method} for method in NOTICES.values()]
        for entry in self.open.values():
            if entry.method == LISTEN and entry.raw is not None:
                wanted = table(table(read(entry.raw).get("params")).get("notifications"))
                meta = {"_meta": {SUBSCRIPTION_KEY: entry.id}}
                methods = [method for flag, method in NOTICES.items() if wanted.get(flag) is True]
                told += [{"jsonrpc": "2.0", "method": method, "params": meta} for method in methods]
        return told
