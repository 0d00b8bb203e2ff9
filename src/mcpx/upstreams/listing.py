"""Reads what a link is offered: all pages of each kind, bounded, and only what can be passed on.

Bounded in pages, items, bytes and time (NAM-6, `budget`). A list that goes over is cut: what came
until then counts, and a note says so. A definition that was known before is the same object as
before, so that comparing two lists costs next to nothing; and the work is done in slices.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcpx.base.aio import Work, in_slices
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, SERVER_TIMEOUT, SERVER_TOO_LARGE, RpcError
from mcpx.model.offer import STALE, Freshness, Kind, Offers
from mcpx.transports.refusals import about_us
from mcpx.upstreams.link import Link
from mcpx.wire import codec, era

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


PAGES = 1000
"""A server that pages for ever is stopped here."""
LONGEST_CURSOR = 16 * 2**10
LONGEST_NAME = 16 * 2**10
"""Characters: clients are shown 64 of a name, and it is kept in several places."""
LARGEST = 2**20
"""Bytes of one definition."""
PIECE = 16
"""Definitions between two points at which the work may be interrupted."""

LISTS: Mapping[Kind, tuple[str, str, str, str]] = {
    "tools": ("tools/list", "tools", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "prompts", "name"),
    "resources": ("resources/list", "resources", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources", "uriTemplate"),
}
"""Kind -> method, key of the result, capability that offers it, key of a definition's name."""

UNWRITABLE = "cannot be written as JSON"
TOO_LARGE = f"have more than {LARGEST:,} bytes"
LONG_NAME = f"have names of more than {LONGEST_NAME:,} characters"
BAD_HEADER = "have an invalid x-mcp-header"


@dataclass(frozen=True, slots=True)
class Listed:
    offers: Offers
    """Without the kinds that could not be read."""
    notes: Mapping[Kind, tuple[str, ...]]
    """What of it is not as the server has it, for people."""
    cut: bool = False
    """Whether something is missing for want of room or time."""
    fresh: Mapping[Kind, Freshness | None] = field(default_factory=dict[Kind, Freshness | None])
    """How long each list may be cached. None: the server does not have this list."""


async def read(
    link: Link,
    kinds: Iterable[Kind],
    account: Account,
    whose: object = None,
    known: Offers | None = None,
    capabilities: Mapping[str, Any] | None = None,
) -> Listed:
    """A list that cannot be read is left out, and does not cost the server its others. A server
    that shows none of them to who has not signed in raises that it wants it.

    `whose`: who is offered that; None is everybody. `known`: what everybody was offered up to now.
    `capabilities`: what a modern server offers to a client with these, instead of to us."""
    lists = [_List(link, kind, account.read((whose, kind)), whose, known or {}) for kind in kinds]
    try:
        ends = await asyncio.gather(
            *(one.read(capabilities) for one in lists), return_exceptions=True
        )
        asked = [end for one, end in zip(lists, ends, strict=True) if one.offered]
        if (
            asked
            and all(end is not None and about_us(end) for end in asked)
            and asked[0] is not None
        ):
            raise asked[0]
        offers: Offers = {}
        notes: dict[Kind, tuple[str, ...]] = {}
        fresh: dict[Kind, Freshness | None] = {}
        for one, end in zip(lists, ends, strict=True):
            if isinstance(end, RpcError) and link.alive:
                notes[one.kind] = (f"its {one.kind} could not be listed: {end.message}",)
            elif isinstance(end, BaseException):
                raise end
            else:
                offers[one.kind] = one.found
                fresh[one.kind] = one.fresh
                one.settle()
                notes[one.kind] = tuple(one.notes())
        return Listed(offers, notes, any(one.cut is not None for one in lists), fresh)
    finally:
        for one in lists:
            one.close()


class _List:
    """One kind, page by page."""

    def __init__(
        self, link: Link, kind: Kind, reading: Reading, whose: object, known: Offers
    ) -> None:
        self.kind: Kind = kind
        self.found: list[Json] = []
        """Junk among it, too: it is dropped where names are given."""
        self.cut: str | None = None
        """Why it is not all."""
        self.fresh: Freshness | None = None
        """How long the pages read so far may be cached."""
        self._link = link
        self._reading: Reading | None = reading
        self._new = whose is None
        self._method, self._key, self._capability, self._name = LISTS[kind]
        self._known = {
            name: one
            for one in known.get(kind, ())
            if isinstance(name := as_object(one).get(self._name), str)
        }
        self._left_out: Counter[str] = Counter()

    @property
    def offered(self) -> bool:
        return self._capability in self._link.terms.capabilities

    async def read(self, capabilities: Mapping[str, Any] | None) -> None:
        link, loop = self._link, asyncio.get_running_loop()
        if not self.offered:
            return
        end = loop.time() + link.server.timeout
        cursors: set[int] = set()
        params: Json = {}
        for page in range(PAGES):
            left = end - loop.time()
            if left <= 0:
                self.cut = f"listing them takes longer than {link.server.timeout:g} s"
                return
            try:
                result = await link.ask(self._method, params, left, capabilities)
            except RpcError as error:
                if error.code == METHOD_NOT_FOUND:
                    return  # declared resources, but has no templates; or declared what it lacks
                if page and link.alive and error.code in (SERVER_TIMEOUT, SERVER_TOO_LARGE):
                    self.cut = f"page {page + 1}: {error.message.removeprefix(f'{link.name}: ')}"
                    return
                raise
            fresh = Freshness.of(result) if link.modern else STALE
            self.fresh = fresh if self.fresh is None else Freshness.of_all((self.fresh, fresh))
            self.cut = await in_slices(self._take(result))
            cursor = result.pop("nextCursor", None)
            del result
            if self.cut is not None or not isinstance(cursor, str):
                return
            if len(cursor) > LONGEST_CURSOR:
                self.cut = (
                    f"the cursor of page {page + 2} has more than {LONGEST_CURSOR:,} characters"
                )
                return
            if hash(cursor) in cursors:
                self.cut = "the same cursor comes again"
                return
            cursors.add(hash(cursor))
            params = {"cursor": cursor}
        self.cut = f"{self._method} does not end; stopped after {PAGES} pages"

    def _take(self, result: Json) -> Work[str | None]:
        """Keep what is on a page; why no more than that is kept, if there is a reason."""
        reading = self._reading
        assert reading is not None
        beside = {key: value for key, value in result.items() if key != self._key}
        if (why := reading.hears(len(_written(beside) or b""))) is not None:
            return why
        for number, definition in enumerate(as_list(result.get(self._key))):
            if number % PIECE == 0:
                yield
            raw = _written(definition)
            why = reading.hears(64 if raw is None else len(raw))
            if why is not None:
                return why
            if (unfit := self._unfit(definition, raw)) is not None:
                self._left_out[unfit] += 1
                continue
            assert raw is not None
            definition, size = self._shared(definition, raw)
            if (why := reading.takes(size)) is not None:
                return why
            self.found.append(definition)
        return None

    def _unfit(self, definition: Any, raw: bytes | None) -> str | None:
        """One infinity in one definition must not cost anybody the whole list."""
        if raw is None:
            return UNWRITABLE
        if len(raw) > LARGEST:
            return TOO_LARGE
        name = as_object(definition).get(self._name)
        return LONG_NAME if isinstance(name, str) and len(name) > LONGEST_NAME else None

    def _shared(self, definition: Any, raw: bytes) -> tuple[Any, int]:
        """The definition as it is kept already, if it is, and what keeping it costs."""
        name = as_object(definition).get(self._name)
        same = self._known.get(name) if isinstance(name, str) else None
        if same is not None and same == definition:
            return same, weight(raw) if self._new else SHARED
        return definition, weight(raw)

    def notes(self) -> Iterable[str]:
        for why, number in self._left_out.items():
            yield f"{number} of its {self.kind} left out: they {why}"
        if self.cut is not None:
            yield f"its {self.kind} are cut after {len(self.found):,}: {self.cut}"

    def settle(self) -> None:
        if self._reading is not None:
            self._reading.settle()
            self._reading = None

    def close(self) -> None:
        if self._reading is not None:
            self._reading.abandon()
            self._reading = None


def _written(value: object) -> bytes | None:
    try:
        return codec.dump(value)
    except codec.Unencodable:
        return None


def kept(definitions: Mapping[Kind, Iterable[Json]], account: Account) -> Offers:
    """What an earlier run knew, as far as there is room for it."""
    offers: Offers = {}
    for kind, found in definitions.items():
        reading = account.read((None, kind))
        taken = offers[kind] = []
        for definition in found:
            raw = _written(definition)
            if raw is not None and reading.takes(weight(raw)) is not None:
                break
            if raw is not None:
                taken.append(definition)
        reading.settle()
    return offers


def kept_of_kind(
    definitions: Mapping[Kind, Iterable[Json]], account: Account, whose: object, common: Offers
) -> Offers | None:
    """The lists of an earlier run for one kind of client. None if the budget has no room for
    them."""
    offers: Offers = {}
    for kind, found in definitions.items():
        shared = {id(one) for one in common[kind]}
        reading = account.read((whose, kind))
        taken = offers[kind] = []
        for definition in found:
            size = SHARED if id(definition) in shared else weight(_written(definition) or b"")
            if reading.takes(size) is not None:
                reading.settle()
                return None
            taken.append(definition)
        reading.settle()
    return offers


def with_headers(
    link: Link, tools: list[Json], annotations: dict[str, era.ParamHeaders]
) -> Work[tuple[list[Json], int]]:
    """Note which arguments travel as headers; the modern era drops tools that ask for it wrongly,
    so many."""
    if not link.modern:
        return tools, 0
    fit: list[Json] = []
    for number, tool in enumerate(tools):
        if number % PIECE == 0:
            yield
        wanted = era.param_headers(as_object(tool).get("inputSchema"))
        if wanted is None:
            continue
        if isinstance(name := as_object(tool).get("name"), str):
            annotations.pop(name, None)
            if wanted:
                annotations[name] = wanted
        fit.append(tool)
    return fit, len(tools) - len(fit)
