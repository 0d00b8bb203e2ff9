"""How much of what servers offer is kept: bounds for each server, and one budget for all of them
(NAM-6, SEC-6).

What counts is what a definition takes in memory, estimated from its JSON: a text of its size, an
empty object twenty times as much. Every server may keep a little whatever others took; beyond that,
who goes over the budget is cut, and nobody else.
"""

from dataclasses import dataclass
from typing import Final

ITEMS = 10_000
"""Most tools of one server; the same for prompts, resources and templates."""
BYTES = 48 * 2**20
"""Most bytes of one server: of one list as JSON, and of everything that is kept of it as it lies in
memory."""
ITEMS_IN_ALL = 50_000
BYTES_IN_ALL = 128 * 2**20
"""Of all servers together."""
ITEMS_IN_ANY_CASE = 200
BYTES_IN_ANY_CASE = 2**20
"""Of each server, whatever the others have."""

SHARED: Final = 16
"""Bytes of a definition that is kept already, and only listed once more."""


def weight(raw: bytes) -> int:
    """Bytes that the value of a JSON text takes in memory, within a factor of two or so."""
    return (
        len(raw)
        + 64 * (raw.count(b"{") + raw.count(b"["))
        + 24 * raw.count(b'"')
        + 8 * raw.count(b",")
    )


@dataclass(slots=True)
class Spent:
    items: int = 0
    size: int = 0

    def add(self, items: int, size: int) -> None:
        self.items += items
        self.size += size


class Budget:
    """One for all servers."""

    def __init__(self) -> None:
        self._spent = Spent()

    def account(self) -> "Account":
        return Account(self._spent)


class Account:
    """What is kept of one server, by list. A list that is read anew takes the place of the one
    before."""

    def __init__(self, all_servers: Spent) -> None:
        self._all = all_servers
        self._own = Spent()
        self._lists: dict[object, Spent] = {}

    def read(self, name: object) -> "Reading":
        """Begin to read a list; `settle` or `abandon` ends it."""
        before = self._lists.pop(name, None) or Spent()
        self._book(-before.items, -before.size)
        return Reading(self, name, before)

    def drop(self, name: object) -> None:
        """A list is not kept any more."""
        if (spent := self._lists.pop(name, None)) is not None:
            self._book(-spent.items, -spent.size)

    def close(self) -> None:
        for name in list(self._lists):
            self.drop(name)

    def _book(self, items: int, size: int) -> None:
        self._own.add(items, size)
        self._all.add(items, size)

    def refusal(self, size: int) -> str | None:
        """Why one more definition of this size is too much, if it is."""
        own, everybody = self._own, self._all
        if own.size + size > BYTES:
            return f"more than {BYTES // 2**20} MiB"
        if everybody.items >= ITEMS_IN_ALL and own.items >= ITEMS_IN_ANY_CASE:
            return f"all servers together have {ITEMS_IN_ALL:,}"
        if everybody.size + size > BYTES_IN_ALL and own.size + size > BYTES_IN_ANY_CASE:
            return f"all servers together take {BYTES_IN_ALL // 2**20} MiB"
        return None

    def take(self, reading: "Reading", size: int) -> None:
        reading.spent.add(1, size)
        self._book(1, size)

    def settle(self, reading: "Reading") -> None:
        self.drop(reading.name)  # two readings of one list: the later one counts
        self._lists[reading.name] = reading.spent

    def abandon(self, reading: "Reading") -> None:
        self._book(-reading.spent.items, -reading.spent.size)
        if reading.name not in self._lists:
            self._lists[reading.name] = reading.before
            self._book(reading.before.items, reading.before.size)


class Reading:
    """One list on its way in."""

    __slots__ = ("_account", "before", "name", "spent", "traffic")

    def __init__(self, account: Account, name: object, before: Spent) -> None:
        self._account = account
        self.name = name
        self.before = before
        self.spent = Spent()
        self.traffic = 0
        """Bytes of JSON that came for it, kept or not."""

    def takes(self, size: int) -> str | None:
        """Keep a definition of this size; why not, if it is too much."""
        if self.spent.items >= ITEMS:
            return f"more than {ITEMS:,}"
        if (why := self._account.refusal(size)) is None:
            self._account.take(self, size)
        return why

    def hears(self, size: int) -> str | None:
        """So much of it came; whether that is too much."""
        self.traffic += size
        return f"more than {BYTES // 2**20} MiB" if self.traffic > BYTES else None

    def settle(self) -> None:
        self._account.settle(self)

    def abandon(self) -> None:
        self._account.abandon(self)
