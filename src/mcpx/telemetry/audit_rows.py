"""A call as a row of the audit log: one JSON object.

A row has no result, no error text, no token, and no session id. The configuration decides whether
it has the arguments, only their names and types, or neither. Values of secret parameters and known
secrets are left out, and long values are replaced by their length.

Callers, targets, and shapes of arguments recur. Their encoded and redacted parts are cached until
the redactor learns another secret.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Any, Final, Literal, TypeVar

from mcpx.base.caching import Lru
from mcpx.base.jsonl_file import redact_row
from mcpx.model.call import Caller, Json, Value, is_array, is_object
from mcpx.model.events import CallFinished, Outcome, Passage
from mcpx.model.redaction import Redactor, is_secret_name
from mcpx.telemetry.targets import HIDDEN, LONGEST, session_mark, target_of
from mcpx.wire import codec

BEGINS: Final = "begins"
"""The event of the row that is written before a call is sent."""
MAX_VALUE_CHARACTERS: Final = 1_000
MAX_VALUES: Final = 100
MAX_DEPTH: Final = 5
MAX_CLIENT_CHARACTERS: Final = 100
REDACTION_LOOKAHEAD: Final = 4 * LONGEST  # Characters after a cut that may complete a secret.
MAX_CACHED_PARTS: Final = 1_000
MAX_CACHED_CHARACTERS: Final = 2_000

_Target = tuple[str, str, str, bool]  # Method, server, name, whether it is a URI.
_Ending = tuple[str | None, Outcome, int | None]  # Rule, outcome, code.

K = TypeVar("K", bound=Hashable)


class AuditRows:
    def __init__(
        self, arguments: Literal["none", "shape", "values"], redactor: Redactor | None
    ) -> None:
        self._arguments = arguments
        self._redactor = redactor or Redactor()
        self._edition = 0
        """The edition of the redactor for which the cached parts are valid."""
        self._second = 0
        self._date = ""
        self._callers: Lru[Hashable, str] = Lru(MAX_CACHED_PARTS)
        self._targets: Lru[_Target, str] = Lru(MAX_CACHED_PARTS)
        self._shapes: Lru[tuple[object, ...], str] = Lru(MAX_CACHED_PARTS)
        self._endings: Lru[_Ending, str] = Lru(MAX_CACHED_PARTS)

    def now(self) -> str:
        second, milliseconds = divmod(int(time.time() * 1000), 1000)
        if second != self._second:
            self._second = second
            self._date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._date}.{milliseconds:03d}Z"

    def finished(self, event: CallFinished) -> tuple[bytes, bool]:
        """Return the row of a call, and whether it is redacted."""
        passage, seconds, outcome, code = event
        head, is_redacted = self._head(passage)
        key = (passage.rule, outcome, code)
        ending = self._endings.get(key) or self._ending(key)
        row = f'{{"time":"{self.now()}","event":"call"{head}{ending},"ms":{seconds * 1000:.1f}}}\n'
        return row.encode(), is_redacted

    def begins(self, passage: Passage) -> tuple[bytes, bool]:
        """Return the row of a call that is about to be sent, and whether it is redacted."""
        head, is_redacted = self._head(passage)
        return f'{{"time":"{self.now()}","event":"{BEGINS}"{head}}}\n'.encode(), is_redacted

    def _head(self, passage: Passage) -> tuple[str, bool]:
        """Return the ids, the caller, the target, and the arguments."""
        if self._redactor.edition != self._edition:
            self._forget_parts()
        call = passage.call
        is_redacted = True
        ids = ""
        if call.request is not None:
            is_redacted = not call.request.given
            ids = f',"id":"{call.request.id}"'
        if passage.audit_id:
            ids += f',"call":"{passage.audit_id}"'
        caller = self._callers.get(call.caller.session) or self._caller(call.caller)
        key = (call.method, passage.server, passage.name, passage.offer is None)
        target = self._targets.get(key) or self._target(passage, key)
        arguments = ""
        if self._arguments != "none" and "arguments" in passage.params:
            arguments, is_known = self._arguments_part(passage.params["arguments"])
            is_redacted = is_redacted and is_known
        return f"{ids}{caller}{target}{arguments}", is_redacted

    def _forget_parts(self) -> None:
        self._edition = self._redactor.edition
        for parts in (self._callers, self._targets, self._shapes, self._endings):
            parts.clear()

    # Parts: members of the row, each with a comma before it
    # ----------------------------------------------------------------------------------------------

    def _part(self, members: Json) -> str:
        line = redact_row(codec.dump(members), self._redactor)
        return f",{line[1:-1].decode()}"

    def _cut(self, text: str, limit: int = LONGEST) -> str:
        """Redact a long text before it is cut, because half of a secret is not recognized."""
        if len(text) > limit:
            text = self._redactor.redact(text[: limit + REDACTION_LOOKAHEAD])
        return text[:limit]

    def _client_text(self, value: object) -> str:
        return self._cut(value, MAX_CLIENT_CHARACTERS) if isinstance(value, str) else ""

    def _caller(self, caller: Caller) -> str:
        name = self._client_text(caller.client.get("name"))
        version = self._client_text(caller.client.get("version"))
        client = f"{name} {version}".strip()
        principal = self._cut(caller.principal)
        key: Hashable = caller.session
        if key is None:
            key = (principal, caller.profile, caller.address, client)
            known = self._callers.get(key)
            if known is not None:
                return known
        members: Json = {"principal": principal}
        if caller.profile is not None:
            members["profile"] = caller.profile
        if client:
            members["client"] = client
        if caller.address:
            members["address"] = caller.address
        if caller.session is not None:
            members["session"] = session_mark(caller.session)
        return _cache(self._callers, key, self._part(members))

    def _target(self, passage: Passage, key: _Target) -> str:
        name = target_of(passage, self._cut)
        part = self._part({"method": passage.method, "server": passage.server, "name": name})
        if len(passage.name) > LONGEST:
            return part
        return _cache(self._targets, key, part)

    def _ending(self, key: _Ending) -> str:
        rule, outcome, code = key
        members: Json = {}
        if rule is not None:
            members["rule"] = self._cut(rule)
        members["decision"] = "denied" if outcome == "denied" else "allowed"
        members["outcome"] = outcome
        if code is not None:
            members["code"] = code
        return _cache(self._endings, key, self._part(members))

    def _arguments_part(self, arguments: Value) -> tuple[str, bool]:
        """Return the part for the arguments, and whether it is redacted."""
        if self._arguments == "values":
            return _unredacted_part(_Values(self._cut).shorten(arguments)), False
        if not isinstance(arguments, dict):
            return f',"arguments":"{_type_name(arguments)}"', True
        if len(arguments) > MAX_VALUES:
            return _unredacted_part(self._shape(arguments)), False
        key = (*arguments, *map(type, arguments.values()))
        part = self._shapes.get(key)
        if part is None:
            part = self._part({"arguments": self._shape(arguments)})
            if sum(map(len, arguments)) <= MAX_CACHED_CHARACTERS:
                _cache(self._shapes, key, part)
        return part, True

    def _shape(self, arguments: Mapping[str, object]) -> Json:
        shown = islice(arguments.items(), MAX_VALUES)
        return {self._cut(name): _type_name(value) for name, value in shown}


def _cache(parts: Lru[K, str], key: K, part: str) -> str:
    if len(part) <= MAX_CACHED_CHARACTERS:
        parts[key] = part
    return part


def _unredacted_part(arguments: Any) -> str:
    try:
        return f",{codec.dump({'arguments': arguments})[1:-1].decode()}"
    except codec.Unencodable:
        return ',"arguments":"unwritable"'


class _Values:
    """Shortens the arguments of one call."""

    def __init__(self, cut: Callable[[str], str]) -> None:
        self._cut = cut
        self._remaining = MAX_VALUES

    def shorten(self, value: object, depth: int = 0) -> Any:
        self._remaining -= 1
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARACTERS:
            return f"[{len(value):,} characters]"
        if is_object(value):
            return self._members(value, depth)
        if is_array(value):
            return self._items(value, depth)
        return value

    def _items(self, items: list[Any], depth: int) -> Any:
        if depth >= MAX_DEPTH:
            return "[array]"
        shown: list[Any] = []
        for item in items:
            if self._remaining <= 0:
                shown.append(f"[{len(items) - len(shown)} more]")
                break
            shown.append(self.shorten(item, depth + 1))
        return shown

    def _members(self, members: Mapping[str, object], depth: int) -> Any:
        if depth >= MAX_DEPTH:
            return "[object]"
        shown: Json = {}
        for name, value in members.items():
            if self._remaining <= 0:
                shown["…"] = f"{len(members) - len(shown)} more"
                break
            if is_secret_name(name):
                shown[self._cut(name)] = HIDDEN
            else:
                shown[self._cut(name)] = self.shorten(value, depth + 1)
        return shown


_TYPE_NAMES: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def _type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), "number")
