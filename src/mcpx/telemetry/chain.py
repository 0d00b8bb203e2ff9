"""Hash chain over the rows of the audit log, which shows deleted and changed rows.

Each process has a chain. A row ends with the name of its chain, its number in the chain, and a MAC
over the row and the MAC of the row before it. In each file, a chain begins with an `opened` row,
which has the MAC of the last row that was there before, so that the end of an earlier chain or file
cannot be removed either. A row that follows rows of another process has the MAC of the last one of
them (`after`), so that rows of a process that has ended cannot be removed while others continue.

With a key (`MCPX_KEY`), only a holder of the key can make a valid chain. Without a key, a chain
shows accidents and edits by hand, but a program can recompute it. The newest rows of a file can be
removed without a trace until another row follows. The oldest rows can be removed up to the first
row of a chain, which looks like retention (`has_earlier`). The whole log can be removed.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mcpx.model.call import Json, as_object
from mcpx.wire import codec

MAC_BYTES: Final = 16
OPENED: Final = "opened"
MAX_PROBLEMS: Final = 100
"""Problems that a report lists. Further ones are only counted."""
_MAC_MEMBER: Final = re.compile(rb',"mac":"([0-9a-f]{32})"\}$')


def key_from(environ: Mapping[str, str]) -> bytes | None:
    """The key of the chain, derived from `MCPX_KEY`. None if that is not set."""
    text = environ.get("MCPX_KEY")
    if not text:
        return None
    given = text.encode(errors="surrogateescape")
    return hashlib.scrypt(
        given, salt=b"mcpx audit log", dklen=32, maxmem=64 * 2**20, n=2**14, r=8, p=1
    )


def fingerprint(key: bytes | None) -> str:
    """An identifier of the key. Empty without a key."""
    return "" if key is None else hmac.digest(key, b"fingerprint", "sha256").hex()[:16]


class Chain:
    """Adds the rows of one process to its chain."""

    def __init__(self, writer: str, key: bytes | None) -> None:
        """`writer` is the name of the replica or machine."""
        self._writer = writer
        self._key = key
        self.restart()

    def restart(self) -> None:
        """Begin a new chain, because it is not known which of the last rows were written."""
        self._name = f"{self._writer}-{secrets.token_hex(4)}"
        self._number = 0
        self._mac = ""

    def open(self, time: str, previous: str, continued: str = "") -> bytes:
        """The row with which the chain begins in a file. `previous` is the MAC of the last row
        before it, if any. `continued` is the time of the chain's last row in an earlier file, if
        any."""
        row = {"time": time, "event": OPENED, "previous": previous, "key": fingerprint(self._key)}
        if self._number and continued:
            row["continued"] = continued
        return self.add(codec.dump(row) + b"\n")

    def proof_in(self, rows: Sequence[bytes]) -> str:
        return last_mac_in(rows)

    def add(self, row: bytes, after: str = "") -> bytes:
        """The row with its place in the chain.

        `row` is a JSON object and a newline. `after` is the MAC of the last row of the file, if
        another process wrote that row."""
        self._number += 1
        place: Json = {"chain": self._name, "number": self._number}
        if after:
            place["after"] = after
        body = row.removesuffix(b"\n")[:-1] + b"," + codec.dump(place)[1:-1]
        self._mac = _mac(self._key, self._mac, body)
        return body + b',"mac":"' + self._mac.encode() + b'"}\n'


def mac_of(line: bytes) -> str:
    """The MAC at the end of a row, or an empty text."""
    found = _MAC_MEMBER.search(line.rstrip(b"\n"))
    return "" if found is None else found[1].decode()


def last_mac_in(lines: Sequence[bytes]) -> str:
    """The MAC of the last row that has one, or an empty text. A crash leaves incomplete lines."""
    return next((mac for line in reversed(lines) if (mac := mac_of(line))), "")


def _mac(key: bytes | None, previous: str, body: bytes) -> str:
    data = previous.encode() + body
    digest = hashlib.sha256(data).digest() if key is None else hmac.digest(key, data, "sha256")
    return digest[:MAC_BYTES].hex()


# Check
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an audit log, and its place."""

    file: str
    number: int
    raw: bytes

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True, slots=True)
class Report:
    rows: int
    chains: int
    unprotected: int
    """Rows that a version without chains wrote before the first chained row."""
    has_earlier: bool
    """Whether rows before the oldest one are missing. Either retention or a program has deleted
    them."""
    problems: tuple[str, ...]
    more_problems: int
    """Problems that are not in `problems`."""


class _Check:
    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.rows = 0
        self.unprotected = 0
        self.began = ""
        """The time of the first row."""
        self.problems: list[str] = []
        self.problem_count = 0
        self.last: dict[str, tuple[int, str]] = {}
        """The last row of each chain."""
        self.has_earlier = False
        self._macs: set[str] = set()
        self._unreadable: set[str] = set()
        """Chains that were written with another key."""

    def report(self, line: Line, problem: str) -> None:
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{line.place}: {problem}")

    def row(self, line: Line) -> None:
        try:
            row = as_object(codec.load(line.raw))
        except codec.BadJson:
            return  # A crash cuts off a line. If it was a whole row, its number is missing.
        self.rows += 1
        self.began = self.began or str(row.get("time") or "")
        chain, number = row.get("chain"), row.get("number")
        mac = mac_of(line.raw)
        if not isinstance(chain, str) or not isinstance(number, int) or not mac:
            if self.last:
                self.report(line, "the row is in no chain: it was inserted or cut off")
            else:
                self.unprotected += 1
            return
        opens = row.get("event") == OPENED
        known = self.last.get(chain)
        if opens:
            self._note_key(line, chain, str(row.get("key")))
        self._link(line, chain, number, mac, opens=opens)
        if opens:
            self._follow(line, str(row.get("previous")))
        elif "after" in row and str(row["after"]) not in self._macs:
            self.report(line, "rows of another process before it are missing")
        if opens and known is None and str(row.get("continued") or "") > self.began:
            self.report(
                line, f"earlier rows of chain {chain} are missing: a file was removed or renamed"
            )
        self.last[chain] = (number, mac)
        self._macs.add(mac)

    def _note_key(self, line: Line, chain: str, written_with: str) -> None:
        if written_with == fingerprint(self.key):
            self._unreadable.discard(chain)
            return
        self._unreadable.add(chain)
        self.report(
            line,
            "the rows were written with another MCPX_KEY, or with none; set that key to check them",
        )

    def _link(self, line: Line, chain: str, number: int, mac: str, *, opens: bool) -> None:
        known = self.last.get(chain)
        if known is None and not opens:
            self.report(
                line,
                f"chain {chain} does not begin with its first row: earlier rows of the file are "
                "missing",
            )
            return
        if known is None:
            previous = (
                "" if number == 1 else None
            )  # An older file with the row before it is not kept.
        else:
            before, previous = known
            if number != before + 1:
                missing = number - before - 1
                gap = f"rows of chain {chain} are missing before it: {missing}"
                self.report(line, gap if missing > 0 else "the row is out of order")
                return
        if chain in self._unreadable:
            return
        body = _MAC_MEMBER.sub(b"", line.raw.rstrip(b"\n"))
        if previous is not None and _mac(self.key, previous, body) != mac:
            self.report(line, "the row was changed")

    def _follow(self, line: Line, previous: str) -> None:
        """`previous` is the MAC of the last row before the chain in its file."""
        if not previous and not self._macs:
            return
        if self.rows == 1:
            self.has_earlier = True
        elif previous not in self._macs:
            self.report(line, "the rows before it are missing")


def check(lines: Iterable[Line], key: bytes | None) -> Report:
    """Check all rows of an audit log, from the oldest to the newest."""
    checking = _Check(key)
    for line in lines:
        checking.row(line)
    problems = tuple(checking.problems)
    more = checking.problem_count - len(problems)
    return Report(
        checking.rows,
        len(checking.last),
        checking.unprotected,
        checking.has_earlier,
        problems,
        more,
    )


def numbered(file: str, lines: Iterable[bytes]) -> Iterator[Line]:
    for number, raw in enumerate(lines, 1):
        if raw.endswith(b"\n"):  # Otherwise it is being written.
            yield Line(file, number, raw)
