"""Hints about definitions of servers, for the person who approves them.

`suspicious` finds hidden characters, letters of one alphabet that pass for another's, and phrases
of attacks on models. `grown` finds new permissions of a changed definition. `takeovers` finds
definitions that use the names of tools of other servers. A definition without hints may still be
malicious. `visible` writes text so that nothing in it is hidden.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, cast

from mcpx.model.call import Json, as_list, as_object
from mcpx.policy.pins.fingerprint import Item

MAX_SEARCHED: Final = 1 << 16
"""Characters of one definition, which take about ten milliseconds."""
MAX_HINTS: Final = 12
MAX_PLACE_DEPTH: Final = 12
MAX_SPELLED: Final = 400
MAX_NAME: Final = 80
MAX_TEXT_OF_TAKEOVER: Final = 20_000
MAX_TAKEOVERS: Final = 4
MIN_NAME: Final = 6
"""Characters from which a tool's name in a text counts as its mention."""

_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_RUN = re.compile(f"[{_UNSEEN}]+")
_TAGS = re.compile("[\U000e0020-\U000e007e]{2,}")

PHRASES: dict[str, str] = {
    "tells to ignore other instructions": (
        r"\b(?:ignor|disregard|forget|overrid)\w*\s(?:\w+\s){0,3}?"
        r"(?:previous|prior|above|earlier|other|all)\b"
    ),
    "asks to keep something from the user": (
        r"\b(?:do not|don['\u2019]t|never|without)\s(?:\w+\s){0,2}?"
        r"(?:tell|telling|mention|mentioning|inform|informing|show|showing|reveal|notify|notifying)"
        r"\s(?:\w+\s){0,3}?(?:user|human|anyone|anybody)\b"
    ),
    "has the form of an order to the model": (
        r"<\s*/?\s*(?:important|system|instructions?|secret|hidden|critical)\s*>"
    ),
    "speaks of the system prompt": r"\bsystem\s(?:prompt|message|instructions?)\b",
    "wants to come before or instead of other tools": (
        r"\b(?:before|instead of|prior to)\s(?:us|call|invok|runn)ing\s(?:\w+\s){0,2}?"
        r"(?:any|other|another|all)\b"
    ),
    "names keys or secrets of the user": (
        r"~/\.(?:ssh|aws|gnupg|kube|netrc|config)|\bid_(?:rsa|ed25519)\b|\.ssh/"
        r"|(?<![\w.])\.env\b|/etc/(?:passwd|shadow)"
        r"|\b(?:private|ssh|api)[ _-]keys?\b|\bmcp\.json\b"
    ),
    "wants something sent elsewhere": (
        r"\b(?:send|post|upload|forward|exfiltrat\w*|transmit)\s(?:\w+\s){0,6}?"
        r"(?:https?://|to\s(?:this|the)\s(?:url|address|server|endpoint))"
    ),
    "runs a command": r"\b(?:curl|wget|powershell|bash)\s+-\w|\brm\s-rf\b|\|\s*(?:ba|z)?sh\b",
}
"""Hints, and the patterns of their texts. All whitespace counts as one space."""

_PHRASES = [(hint, re.compile(pattern, re.IGNORECASE)) for hint, pattern in PHRASES.items()]
_BLOB = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{120,}={0,2}")
_SEPARATOR = "\n.\n"
"""Between texts that are searched together. No pattern matches it."""
_BLANKS = re.compile(r"\s+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NAME = re.compile(r"\w[\w.-]*\w")
_ALLOWED = "\n\t\ufe0e\ufe0f\u200d"

_ALIKE = str.maketrans(
    "аАвВеЕёкКмМНоОрРсСтТуУхХіІјЈѕЅһԁԛԜѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγικνορτυωа",
    "aAbBeEekKmMHoOpPcCtTyYxXiIjJsShdqWvABEZHIKMNOPTYXayikvoptuwa",
)


UNSEEN = ("has characters that cannot be seen", "has hidden text")
"""Beginnings of hints about hidden characters."""

HINTS: dict[str, tuple[bool, str]] = {
    "readOnlyHint": (False, "no longer says that it changes nothing"),
    "destructiveHint": (True, "says that it may destroy"),
    "openWorldHint": (True, "says that it reaches the outside world"),
    "idempotentHint": (False, "no longer says that it may be repeated without harm"),
}
"""The value that is a new permission, and its hint. An absent hint has this value (as in MCP)."""
FAR: Final = (
    *("path", "file", "dir", "folder", "url", "uri", "host"),
    *("command", "cmd", "shell", "script", "code", "sql", "exec"),
)
"""Parts of names of parameters that reach beyond the data of a tool."""

Elsewhere = Mapping[str, str]
"""Tools of other servers: `as_read` of their names, and the server."""

# Text


def visible(text: str) -> str:
    """Spell out invisible characters. Line breaks and tabs stay."""
    text = _TAGS.sub(_spelled_tags, text)
    shown = _RUN.sub(lambda run: _spelled(text, run), text)
    if shown.isprintable():
        return shown
    return "".join(map(_printable, shown))


def one_line(text: str) -> str:
    return " ".join(visible(text).split())


def folded(text: str) -> str:
    """Replace letters by those that look the same."""
    return unicodedata.normalize("NFKC", text).translate(_ALIKE)


def as_read(name: str) -> str:
    """The same for two names that a person or a model reads as the same."""
    return folded(name).casefold()


def _code(c: str) -> str:
    return f"<U+{ord(c):04X} {unicodedata.name(c, 'CONTROL CHARACTER')}>"


def _printable(c: str) -> str:
    if c.isprintable() or c in _ALLOWED:
        return c
    return _code(c)


def _spelled_tags(run: "re.Match[str]") -> str:
    text = "".join([chr(ord(c) - 0xE0000) for c in run[0][:MAX_SPELLED]])
    text += "…" * (len(run[0]) > MAX_SPELLED)
    return f'<{len(run[0])} TAG characters that read "{text}">'


def _spelled(text: str, run: "re.Match[str]") -> str:
    if _is_of_a_picture(text, run):
        return run[0]
    codes = "".join(map(_code, run[0][:MAX_SPELLED]))
    left_out = len(run[0]) - MAX_SPELLED
    if left_out <= 0:
        return codes
    return f"{codes}<and {left_out} more>"


def _is_of_a_picture(text: str, run: "re.Match[str]") -> bool:
    """A character that colors a sign, or joins two pictures, is as usual as the pictures."""
    before = text[run.start() - 1 : run.start()]
    if run[0] not in ("\ufe0f", "\ufe0e", "\u200d", "\ufe0f\u200d") or not before:
        return False
    return unicodedata.category(before) in ("So", "Sm", "Sk", "Po", "Nd")


# Signs of attacks


def suspicious(definition: Any) -> tuple[str, ...]:
    """Hints about the texts of a definition, each once."""
    texts = list(_strings(definition))
    found: dict[str, None] = {}
    if sum(map(len, texts)) >= MAX_SEARCHED:
        found[f"is very long: only {MAX_SEARCHED:,} characters were looked through"] = None
    # One search instead of many.
    for is_ascii in (True, False):
        text = _SEPARATOR.join([text for text in texts if text.isascii() is is_ascii])
        for hint in _signs(text):
            found[hint] = None
    return tuple(found)[:MAX_HINTS]


def place_of(hint: str, definition: Any) -> tuple[str, ...]:
    """Keys that lead to the text of a hint of `suspicious`."""
    keys: list[str] = []
    while isinstance(definition, dict) and len(keys) < MAX_PLACE_DEPTH:
        members = cast("dict[str, Any]", definition)
        key = next((key for key, value in members.items() if hint in suspicious(value)), None)
        if key is None:
            break
        keys.append(key)
        definition = members[key]
    return tuple(keys)


def _strings(definition: Any) -> Iterator[str]:
    """All texts and keys, up to a limit. Without recursion: a definition may be deep."""
    left, waiting = MAX_SEARCHED, [definition]
    while waiting and left > 0:
        value = waiting.pop()
        if isinstance(value, str):
            yield value[:left]
            left -= len(value)
        elif isinstance(value, dict):
            members = cast(dict[str, Any], value)
            waiting += [*members.keys(), *members.values()]
        elif isinstance(value, list):
            waiting += cast(list[Any], value)


def _signs(text: str) -> Iterator[str]:
    run = _RUN.search(text)
    if not text.isascii():
        yield from _odd_letters(text)
        text = unicodedata.normalize("NFKC", folded(_RUN.sub("", text)))
    elif run is not None:
        yield f"{UNSEEN[0]}: {_spelled(text, run)[:MAX_NAME]}"
    if len(text) < 5:
        return
    text = _BLANKS.sub(" ", text)
    for hint, pattern in _PHRASES:
        said = pattern.search(text)
        if said is not None:
            yield f"{hint}: “{one_line(said[0])[:MAX_NAME]}”"
    blob = _BLOB.search(text)
    if blob is not None:
        yield f"has {len(blob[0])} characters of what may be encoded text"


def _odd_letters(text: str) -> Iterator[str]:
    tags = _TAGS.search(text)
    if tags is not None:
        yield f"{UNSEEN[1]}: {visible(tags[0])[:120]}"
    for run in _RUN.finditer(text):
        if not _is_of_a_picture(text, run):
            yield f"{UNSEEN[0]}: {_spelled(text, run)[:MAX_NAME]}"
            break
    for word in _WORD.finditer(text):
        if not word[0].isascii() and _is_mixed(word[0]):
            letters = re.sub(r"[^\x00-\x7f]", lambda c: _code(c[0]), word[0][:60])
            yield f"has letters that pass for others: {letters}"
            break


def _is_mixed(word: str) -> bool:
    """Return whether letters that look Latin stand beside Latin ones, or are a variant of them."""
    names = [unicodedata.name(c, "") for c in word]
    for c, name in zip(word, names, strict=True):
        is_variant = ord(c) > 0x250 and unicodedata.normalize("NFKC", c) != c
        if name.startswith("MATHEMATICAL ") or ("LATIN" in name and is_variant):
            return True
    return any(name.startswith("LATIN") for name in names) and word.translate(_ALIKE) != word


# New permissions


def grown(before: Json | None, after: Json) -> tuple[str, ...]:
    """What a definition may do that the approved one may not."""
    hints = tuple(_new_permissions(before or {}, after))
    if before is None:
        return hints
    return (*hints, *_new_parameters(before, after))


def _new_permissions(before: Json, after: Json) -> Iterator[str]:
    was, now = as_object(before.get("annotations")), as_object(after.get("annotations"))
    for hint, (permission, words) in HINTS.items():
        old, new = was.get(hint), now.get(hint)
        if permission:
            is_new = (new is True and old is not True) or (old is False and new is not False)
        else:
            is_new = old is True and new is not True
        if is_new:
            yield words


def _new_parameters(before: Json, after: Json) -> Iterator[str]:
    was, now = as_object(before.get("inputSchema")), as_object(after.get("inputSchema"))
    old, new = as_object(was.get("properties")), as_object(now.get("properties"))
    required = as_list(now.get("required"))
    for name in [name for name in new if name not in old]:
        need = "optional"
        if name in required:
            need = "required"
        text = f"takes a new {need} parameter {one_line(name)[:MAX_NAME]!r}"
        if any(part in name.lower() for part in FAR):
            text = f"{text}, which may reach far"
        yield text
    if _is_closed(was) and not _is_closed(now):
        yield "takes parameters that are not named"
    for name in [name for name in old if name in new]:
        if _is_closed(old[name]) and not _is_closed(new[name]):
            yield f"takes anything in {one_line(name)[:MAX_NAME]!r}"


def _is_closed(schema: object) -> bool:
    return as_object(schema).get("additionalProperties") is False


# Names of other servers' tools


def takeovers(
    item: Item, own: Callable[[], Collection[str]], elsewhere: Elsewhere
) -> tuple[str, ...]:
    """`own`: names of the server's tools, as they read. Their mention is no takeover."""
    found = list(same_name(item, elsewhere))
    text = item.definition.get("description")
    if item.kind == "instructions":
        text = item.definition.get("instructions")
    if isinstance(text, str) and elsewhere:
        words = {as_read(word) for word in _NAME.findall(text[:MAX_TEXT_OF_TAKEOVER])}
        named = [word for word in words & elsewhere.keys() if _is_a_name(word)]
        if named:
            named = sorted(set(named) - set(own()))
        found += [
            f"speaks of the tool {one_line(word)!r} of {one_line(elsewhere[word])!r}"
            for word in named[:MAX_TAKEOVERS]
        ]
    return tuple(found)


def same_name(item: Item, elsewhere: Elsewhere) -> Iterator[str]:
    if item.kind == "tools" and elsewhere:
        other = elsewhere.get(as_read(item.name))
        if other is not None:
            yield f"has the name of a tool of {one_line(other)!r}"


def _is_a_name(word: str) -> bool:
    """`search` is a word of many texts, `search_mail` is not."""
    return len(word) >= MIN_NAME and any(mark in word for mark in "_-.")
