"""A call as a row of the trail: one JSON object, made of parts that are remembered.

Who calls, what is called and the shape of its arguments come again and again. Each is put into
words once, without what must not be said, and is the same bytes from then on, until the redactor
knows of other secrets. What is remembered is bounded in number and in bytes; what is too long for
it is worked out each time.

A row holds no result, no words of an error, no token and no session id (only what tells one session
from another), and of arguments what the configuration allows: nothing, names and types, or values.
Of values those are left out that are secret by their name or known to be secrets, and long ones.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Any, Literal, TypeVar

from mcpx.base.jsonl_file import redact_row
from mcpx.model.call import Caller, Json, Value, is_array, is_object
from mcpx.model.events import CallFinished, Outcome, Passage
from mcpx.model.redaction import Redactor, is_secret_name
from mcpx.telemetry.targets import HIDDEN, LONGEST, session_mark, target_of
from mcpx.wire import codec

BEGINS = "begins"
"""The event of the first of a call's two rows."""
LONGEST_VALUE = 1_000
"""Characters of one value; longer ones are told by their length."""
MOST_VALUES = 100
"""Names and values that are told of one call's arguments."""
DEEPEST = 5
LOOKED_THROUGH = 4 * LONGEST
"""Characters behind the end of what is told that are looked through for a secret that begins before
it."""
REMEMBERED = 1_000
"""Parts of each kind."""
LONGEST_PART = 2_000
"""Characters of a part that is remembered."""

_Ending = tuple[str | None, Outcome, int | None]
"""Rule, outcome, code."""

K = TypeVar("K", bound=Hashable)


class Parts(dict[K, str]):
    """Parts of rows by what they were made of."""

    def keep(self, key: K, part: str) -> str:
        if len(part) <= LONGEST_PART:
            if len(self) >= REMEMBERED:
                self.clear()
            self[key] = part
        return part


class Rows:
    def __init__(
        self, arguments: Literal["none", "shape", "values"], redactor: Redactor | None
    ) -> None:
        self._arguments = arguments
        self._redactor = redactor
        self._edition = 0
        """Of the redactor, when the parts were made."""
        self._moment: int = 0
        self._second: int = 0
        self._now = self._date = ""
        self._callers: Parts[Hashable] = Parts()
        self._targets: Parts[tuple[str, str, str, bool]] = Parts()
        self._shapes: Parts[tuple[object, ...]] = Parts()
        self._endings: Parts[_Ending] = Parts()

    def now(self) -> str:
        moment = int(time.time() * 1000)
        if moment != self._moment:
            second, rest = divmod(moment, 1000)
            if second != self._second:
                self._second = second
                self._date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._moment, self._now = moment, f"{self._date}.{rest:03d}Z"
        return self._now

    def of(self, event: CallFinished) -> tuple[bytes, bool]:
        """The row of a call, and whether nothing in it must be left out."""
        passage, seconds, outcome, code = event
        head, clean = self._head(passage)
        end = (passage.rule, outcome, code)
        ending = self._endings.get(end) or self._end(end)
        row = f'{{"time":"{self.now()}","event":"call"{head}{ending},"ms":{seconds * 1000:.1f}}}\n'
        return row.encode(), clean

    def begins(self, passage: Passage) -> tuple[bytes, bool]:
        """The row of a call that is about to be sent, and whether nothing in it must be left
        out."""
        head, clean = self._head(passage)
        return f'{{"time":"{self.now()}","event":"{BEGINS}"{head}}}\n'.encode(), clean

    def _head(self, passage: Passage) -> tuple[str, bool]:
        """Who calls, what, and with which arguments."""
        if self._redactor is not None and self._redactor.edition != self._edition:
            self._forget(self._redactor.edition)
        call = passage.call
        clean, id = True, ""
        if (request := call.request) is not None:
            clean, id = not request.given, f',"id":"{request.id}"'
        if passage.audit_id:
            id += f',"call":"{passage.audit_id}"'
        caller = call.caller
        who = self._callers.get(caller.session) or self._who(caller)
        key = (call.method, passage.server, passage.name, passage.offer is None)
        what = self._targets.get(key) or self._what(passage, key)
        given = ""
        if self._arguments != "none" and "arguments" in passage.params:
            given, known = self._given(passage.params["arguments"])
            clean = clean and known
        return f"{id}{who}{what}{given}", clean

    def _forget(self, edition: int) -> None:
        self._edition = edition
        for parts in (self._callers, self._targets, self._shapes, self._endings):
            parts.clear()

    def _cut(self, text: str, most: int = LONGEST) -> str:
        """As much of it as is told. Secrets go before that: half of one would not be found any
        more."""
        if len(text) > most and self._redactor is not None:
            text = self._redactor.redact(text[: most + LOOKED_THROUGH])
        return text[:most]

    def _said(self, value: object) -> str:
        if not isinstance(value, str):
            return ""
        return value if len(value) <= 100 else self._cut(value, 100)

    # Parts
    # ----------------------------------------------------------------------------------------------

    def _part(self, told: Json) -> str:
        """Members of the row, each with a comma before it."""
        line = codec.dump(told)
        return (
            ","
            + (line if self._redactor is None else redact_row(line, self._redactor))[1:-1].decode()
        )

    def _who(self, caller: Caller) -> str:
        key: Hashable = caller.session
        name, version = caller.client.get("name"), caller.client.get("version")
        client = f"{self._said(name)} {self._said(version)}".strip()
        principal = self._cut(caller.principal)
        if key is None:
            key = (principal, caller.profile, caller.address, client)
            if (known := self._callers.get(key)) is not None:
                return known
        told: Json = {"principal": principal}
        if caller.profile is not None:
            told["profile"] = caller.profile
        if client:
            told["client"] = client
        if caller.address:
            told["address"] = caller.address
        if caller.session is not None:
            told["session"] = session_mark(caller.session)
        return self._callers.keep(key, self._part(told))

    def _what(self, passage: Passage, key: tuple[str, str, str, bool]) -> str:
        told = {
            "method": passage.method,
            "server": passage.server,
            "name": target_of(passage, self._cut),
        }
        part = self._part(told)
        return self._targets.keep(key, part) if len(passage.name) <= LONGEST else part

    def _end(self, end: "_Ending") -> str:
        rule, outcome, code = end
        told: Json = {} if rule is None else {"rule": self._cut(rule)}
        told |= {"decision": "denied" if outcome == "denied" else "allowed", "outcome": outcome}
        return self._endings.keep(end, self._part(told if code is None else {**told, "code": code}))

    def _given(self, arguments: Value) -> tuple[str, bool]:
        """What is told of arguments, and whether nothing in it must be left out."""
        if self._arguments == "values":
            return _unread(
                {"arguments": _Values(self._cut).told(arguments)}
            ), self._redactor is None
        if not isinstance(arguments, dict):
            return f',"arguments":"{_kind(arguments)}"', True
        if len(arguments) > MOST_VALUES:
            return _unread({"arguments": self._shape(arguments)}), self._redactor is None
        key = (*arguments, *map(type, arguments.values()))
        part = self._shapes.get(key)
        if part is None:
            part = self._part({"arguments": self._shape(arguments)})
            if sum(map(len, arguments)) <= LONGEST_PART:
                self._shapes.keep(key, part)
        return part, True

    def _shape(self, arguments: Mapping[str, object]) -> Json:
        return {
            self._cut(name): _kind(value) for name, value in islice(arguments.items(), MOST_VALUES)
        }


def _unread(told: Json) -> str:
    try:
        return "," + codec.dump(told)[1:-1].decode()
    except codec.Unencodable:
        return ',"arguments":"unwritable"'


class _Values:
    """The values of one call's arguments, as far as they are told."""

    def __init__(self, cut: Callable[[str], str]) -> None:
        self._cut = cut
        self._left = MOST_VALUES

    def told(self, value: object, depth: int = 0) -> Any:
        self._left -= 1
        if isinstance(value, str):
            return value if len(value) <= LONGEST_VALUE else f"[{len(value):,} characters]"
        if is_object(value):
            return self._members(value, depth) if depth < DEEPEST else "[object]"
        if is_array(value):
            return self._items(value, depth) if depth < DEEPEST else "[array]"
        return value

    def _items(self, value: list[Any], depth: int) -> list[Any]:
        told: list[Any] = []
        for each in value:
            if self._left <= 0:
                told.append(f"[{len(value) - len(told)} more]")
                break
            told.append(self.told(each, depth + 1))
        return told

    def _members(self, value: Mapping[str, object], depth: int) -> Json:
        told: Json = {}
        for name, its in value.items():
            if self._left <= 0:
                told["…"] = f"{len(value) - len(told)} more"
                break
            told[self._cut(name)] = HIDDEN if is_secret_name(name) else self.told(its, depth + 1)
        return told


_KINDS: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "null" if value is None else "number")
