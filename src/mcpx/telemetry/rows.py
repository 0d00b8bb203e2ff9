"""A call as a row of the trail: one JSON object, made of parts that are remembered.

Who calls, what is called and the shape of its arguments come again and again. Each is put into words once, without what
must not be said, and is the same bytes from then on, until the redactor knows of other secrets. What is remembered is
bounded in number and in bytes; what is too long for it is worked out each time.

A row holds no result, no words of an error, no token and no session id (only what tells one session from another), and
of arguments what the configuration allows: nothing, names and types, or values. Of values those are left out that are
secret by their name or known to be secrets, and long ones.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Any, Final, Literal, TypeVar

from mcpx.model.call import Caller, Json, is_array, is_object
from mcpx.model.events import CallFinished, Outcome, Passage
from mcpx.model.redaction import is_secret_name
from mcpx.telemetry.targets import HIDDEN, LONGEST, session_mark, target_of
from mcpx.telemetry.trail import Redacts, redacted
from mcpx.wire import codec

LONGEST_VALUE = 1_000
"""Characters of one value; longer ones are told by their length."""
MOST_VALUES = 100
"""Names and values that are told of one call's arguments."""
DEEPEST = 5
LOOKED_THROUGH = 4 * LONGEST
"""Characters behind the end of what is told that are looked through for a secret that begins before it."""
REMEMBERED = 1_000
"""Parts of each kind."""
LONGEST_PART = 2_000
"""Bytes of a part that is remembered."""

_ENDINGS: Final[dict[Outcome, bytes]] = {
    outcome: b',"decision":"%b","outcome":"%b"' % (b"denied" if outcome == "denied" else b"allowed", outcome.encode())
    for outcome in ("ok", "tool_error", "error", "cancelled", "denied")
}

K = TypeVar("K", bound=Hashable)


class Parts(dict[K, bytes]):
    """Parts of rows by what they were made of."""

    def keep(self, key: K, part: bytes) -> bytes:
        if len(part) <= LONGEST_PART:
            if len(self) >= REMEMBERED:
                self.clear()
            self[key] = part
        return part


class Rows:
    def __init__(self, arguments: Literal["none", "shape", "values"], redactor: Redacts | None) -> None:
        self._arguments = arguments
        self._redactor = redactor
        self._edition = 0
        """Of the redactor, when the parts were made."""
        self._moment: int = 0
        self._second: int = 0
        self._now = self._date = b""
        self._callers: Parts[Hashable] = Parts()
        self._targets: Parts[tuple[str, str, str, bool]] = Parts()
        self._shapes: Parts[tuple[object, ...]] = Parts()
        self._rules: Parts[str] = Parts()

    def now(self) -> bytes:
        moment = int(time.time() * 1000)
        if moment != self._moment:
            second, rest = divmod(moment, 1000)
            if second != self._second:
                self._second = second
                self._date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
            self._moment, self._now = moment, b"%b.%03dZ" % (self._date, rest)
        return self._now

    def of(self, event: CallFinished, now: bytes) -> tuple[bytes, bool]:
        """The row of a call, and whether nothing in it must be left out."""
        if self._redactor is not None and self._redactor.edition != self._edition:
            self._forget(self._redactor.edition)
        passage = event.passage
        call = passage.call
        clean, id = True, b""
        if (request := call.request) is not None:
            id, clean = b',"id":"%b"' % request.id.encode(), not request.given
        caller = call.caller
        who = self._callers.get(caller.session) or self._who(caller)
        key = (call.method, passage.server, passage.name, passage.offer is None)
        what = self._targets.get(key) or self._what(passage, key)
        rule = b"" if passage.rule is None else self._rules.get(passage.rule) or self._rule(passage.rule)
        given = b""
        if self._arguments != "none" and "arguments" in passage.params:
            given, known = self._given(passage.params["arguments"])
            clean = clean and known
        code = b"" if event.code is None else b',"code":%d' % event.code
        took = b',"ms":%.1f}\n' % (event.seconds * 1000)
        outcome = _ENDINGS[event.outcome]
        return b"".join(
            (b'{"time":"', now, b'","event":"call"', id, who, what, given, rule, outcome, code, took)
        ), clean

    def _forget(self, edition: int) -> None:
        self._edition = edition
        for parts in (self._callers, self._targets, self._shapes, self._rules):
            parts.clear()

    def _cut(self, text: str, most: int = LONGEST) -> str:
        """As much of it as is told. Secrets go before that: half of one would not be found any more."""
        if len(text) > most and self._redactor is not None:
            text = self._redactor.redact(text[: most + LOOKED_THROUGH])
        return text[:most]

    def _said(self, value: object) -> str:
        if not isinstance(value, str):
            return ""
        return value if len(value) <= 100 else self._cut(value, 100)

    # Parts -------------------------------------------------------------------------------------------------------

    def _part(self, told: Json) -> bytes:
        """Members of the row, each with a comma before it."""
        line = codec.dump(told)
        return b"," + (line if self._redactor is None else redacted(line, self._redactor))[1:-1]

    def _who(self, caller: Caller) -> bytes:
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

    def _what(self, passage: Passage, key: tuple[str, str, str, bool]) -> bytes:
        told = {"method": passage.method, "server": passage.server, "name": target_of(passage, self._cut)}
        part = self._part(told)
        return self._targets.keep(key, part) if len(passage.name) <= LONGEST else part

    def _rule(self, rule: str) -> bytes:
        return self._rules.keep(rule, self._part({"rule": self._cut(rule)}))

    def _given(self, arguments: object) -> tuple[bytes, bool]:
        """What is told of arguments, and whether nothing in it must be left out."""
        if self._arguments == "values":
            return _unread({"arguments": _Values(self._cut).told(arguments)}), self._redactor is None
        if not is_object(arguments):
            return b',"arguments":"%b"' % _kind(arguments).encode(), True
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
        return {self._cut(name): _kind(value) for name, value in islice(arguments.items(), MOST_VALUES)}


def _unread(told: Json) -> bytes:
    try:
        return b"," + codec.dump(told)[1:-1]
    except codec.Unencodable:
        return b',"arguments":"unwritable"'


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
