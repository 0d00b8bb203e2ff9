"""What must not be said, and texts without it: for every log line, error of ours, status, trail and
label.

Promised: a secret that is known (from the configuration, or got at run time) is not in what
`redact` gives back, nor percent-encoded, in base64, or with the escapes of JSON; nor is what looks
like a credential, known or not. What is too short or too common to be blotted out everywhere is
left. The work is done when a secret comes or goes and when a text is written, never per call. No
promise: that a secret is found which a peer took to pieces or encoded in another way.
"""

import base64
import json
import re
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any, cast
from urllib.parse import quote, quote_plus

from mcpx.base.text import one_line

MARK = "***"
SHORTEST = 6
"""Characters; what is shorter stands in many a word by chance."""
FORMER = 3
"""Sets of secrets that were replaced and are still kept secret: what began before may end after
several reloads."""
DEEPEST = 64
"""Levels of a value that are looked into; what is below is not shown."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMMON = words(
    "true false none null default localhost 127.0.0.1 0.0.0.0 password passwd secret secrets "
    "token bearer basic "
    "public private production development staging testing enabled disabled string object number "
    "boolean server "
    "client gateway changeme example example.com application/json text/plain application unknown "
    "stdio utf-8 "
    "content version administrator anonymous username postgres postgresql mysql mariadb mongodb "
    "redis neo4j elastic "
    "rabbitmq minioadmin oracle sqlserver github gitlab docker warning verbose readonly "
    "streamable-http"
)
"""Known to everybody, and part of many a sentence."""

_SECRET_WORDS = words(
    "token tokens secret secrets password passwords passwd pwd pass passphrase apikey key keys "
    "auth authorization "
    "cookie cookies credential credentials dsn jwt pat signature sig bearer session otp pin sid "
    "sas pgpass appid"
)
_SECRET_ENDS = (
    *(
        "token",
        "secret",
        "password",
        "passwd",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "credentials",
    ),
    *("passphrase", "sessionid", "sessid", "cookie"),
)
HARMLESS_LAST = words(
    "file path url uri dir folder id name type header endpoint host port ttl timeout expiry "
    "expires limit count "
    "size method mode scheme server issuer audience scope scopes provider algorithm length version"
)
"""Last words of names that tell where, how or how long, not what."""
_HARMLESS_BEFORE = words(
    "page next previous continuation sync cursor idempotency sort partition primary foreign "
    "public max min total "
    "input output prompt completion used saved"
)
"""Before `token` or `key`: nobody's secret."""
_PARTS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"

FORMS = (
    r"[spr]k_(?:live|test)_\w{8,}|sk-[\w-]{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{8,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ(?:(?!-eyJ)[\w-]){10,}\.[\w-]{4,}\.[\w-]*|mcpxkey-[\w-]{20,}"
)
"""Well-known forms of keys and tokens, to be looked for at the beginnings of words: that takes
linear time, whatever the text (where `-eyJ` stands, the next one may begin)."""
_LOOKS = (
    rf"(?P<form>\b(?:{FORMS}))"
    r"|(?P<scheme>(?i:\b(?:bearer|basic))[ \t]+)(?!\w+=)(?=[^\s\d]{0,400}\d)[\w.~+/=-]{8,}"
    r"|(?P<address>://)[^\s/@\"'<>?#]{1,512}@"
    r"|(?P<field>(?i:[?&](?:access_token|refresh_token|id_token|token|api[-_]?key"
    r"|client_secret|password|secret|"
    r"signature|sig)=))[^&\s\"'<>]+"
)

_MARKS = {
    "?": ("?",),
    "&": ("&",),
    "/": ("://",),
    "-": ("glpat-",),
    "_": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "9": ("ya29.",),
    "A": ("AKIA", "ASIA", "AIza"),
    "G": ("SG.",),
    "J": ("eyJ",),
    "k": ("k_live_", "k_test_", "sk-", "mcpxkey-"),
    "x": ("xox",),
}
"""By a letter of theirs: one of them stands in everything that looks so, but for what follows
`bearer` and `basic`."""


def name_words(name: str) -> list[str]:
    """`["api", "key"]` for `apiKey`, `API_KEY`, and `api-key`."""
    return [word.lower() for word in re.findall(_PARTS, name)]


def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is a secret: a header, a variable, a field."""
    words = name_words(name)
    if words[-2:] in (["session", "id"], ["secret", "id"]):
        return True
    if not words or words[-1] in HARMLESS_LAST:
        return False
    for at, word in enumerate(words):
        if (word in _SECRET_WORDS or word.endswith(_SECRET_ENDS)) and not (
            at and words[at - 1] in _HARMLESS_BEFORE
        ):
            return True
    return False


def is_worth_hiding(text: str, shortest: int = SHORTEST) -> bool:
    """Return True if a secret is so long and so rare that replacing it changes no ordinary text."""
    bare = text.strip()
    return len(bare) >= shortest and bare.lower() not in _COMMON and len(set(bare)) > 2


def spellings(secrets: Iterable[str], shortest: int = SHORTEST) -> tuple[str, ...]:
    """These secrets as they may be said back; of two that overlap, the one that holds the other
    comes first. `shortest`: fewer characters will do where the text is known to be said by whom
    they were sent to."""
    bare: set[str] = set()
    for secret in secrets:
        bare |= {
            secret,
            secret.strip(),
            *map(str.strip, secret.splitlines()),
        }  # a key of several lines comes in lines
        scheme, _, rest = secret.strip().partition(" ")
        if rest and " " not in rest and scheme.isalpha():
            bare.add(rest)  # `Bearer x` may be said back as x
            if scheme.lower() == "basic":
                bare |= _pair_in(rest)
    bare = {secret for secret in bare if is_worth_hiding(secret, shortest)}
    found = {spelled for secret in bare for spelled in _spelled(secret)}
    return tuple(sorted((each for each in found if len(each) >= shortest), key=len, reverse=True))


def _pair_in(encoded: str) -> set[str]:
    try:
        pair = base64.b64decode(encoded).decode()
    except ValueError:
        return set()
    return {pair, pair.partition(":")[2]}


def _spelled(secret: str) -> set[str]:
    percent = {quote(secret, safe="", errors="replace"), quote(secret, errors="replace")}
    percent.add(quote_plus(secret, errors="replace"))
    lower = {re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), each) for each in percent}
    escaped = {
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
    }
    escaped |= {each.replace("/", "\\/") for each in escaped}
    in_markup = (
        secret.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
    )
    return {secret, in_markup, *percent, *lower, *escaped, *_in_base64(secret)}


def _in_base64(secret: str) -> Iterable[str]:
    """What of it is the same in base64 whatever stands before and behind it, as in `Basic
    user:password`."""
    raw = secret.encode("utf-8", "replace")
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        stands = coded[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        if len(stands) > SHORTEST:
            yield stands
            yield stands.replace("+", "-").replace("/", "_")


def blotted(text: str, spelled: Iterable[str], mark: str = MARK) -> str:
    """To be done before a text is cut: half a secret is not found any more."""
    for secret in spelled:
        if secret in text:
            text = text.replace(secret, mark)
    return text


def _without_beginnings(text: str, spelled: Iterable[str]) -> str:
    """Without those of which a text that somebody has cut (`…`) holds the beginning."""
    for secret in spelled:
        at = text.find(secret[:SHORTEST])
        while at >= 0:
            end = at + SHORTEST
            while text[end : end + 1] == secret[end - at : end - at + 1] != "":
                end += 1
            if text.startswith("…", end) or text.startswith(" …", end):
                text = text[:at] + MARK + text[end:]
            at = text.find(secret[:SHORTEST], at + 1)
    return text


def without_forms(text: str) -> str:
    """Without what looks like a credential."""
    return _looks().sub(_mark, text) if _may_look(text) else text


def _may_look(text: str) -> bool:
    """Whether anything in it could: nearly never. Looking for a few fixed texts, and first for
    single letters that few texts have, takes a tenth of the pattern's time, during which no other
    thread runs."""
    for letter, marks in _MARKS.items():
        if letter in text:
            for mark in marks:
                if mark in text:
                    return True
    small = text.lower()
    if not text.isascii():
        small = small.replace("\u017f", "s").replace(
            "\u0131", "i"
        )  # what a pattern without case takes for s and i
    return "bearer" in small or "basic" in small


@cache
def _looks() -> re.Pattern[str]:
    return re.compile(_LOOKS)  # some milliseconds, which a start need not take


def _mark(found: re.Match[str]) -> str:
    if (address := found["address"]) is not None:
        return f"{address}{MARK}@"
    return (found["scheme"] or found["field"] or "") + MARK


class Redactor:
    """All that one gateway must not say."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[frozenset[str], ...]] = {}
        """By whose they are: those of now, then those before them, which what runs may still
        say."""
        self._spelled: tuple[str, ...] | None = ()
        """None: to be made anew."""
        self.edition = 0
        """Another one when other secrets are known."""

    def __repr__(self) -> str:
        return f"Redactor({len(self._known)})"

    def learn(self, owner: Hashable, secrets: Iterable[str]) -> None:
        """From now on these are the secrets of `owner`; those it had before stay secret for a few
        times more."""
        fresh = frozenset(filter(is_worth_hiding, secrets))
        known = self._known.get(owner, ())
        if fresh != (known[0] if known else frozenset[str]()):
            self._known[owner] = (fresh, *known[:FORMER])
            self._spelled = None
            self.edition += 1

    def forget(self, owner: Hashable) -> None:
        if self._known.pop(owner, None) is not None:
            self._spelled = None
            self.edition += 1

    def redact(self, text: str) -> str:
        """The text without what must not be said."""
        spelled = self._spelled
        if spelled is None:
            # Anybody may ask, from any thread: at worst it is made twice.
            known = list(self._known.values())
            self._spelled = spelled = spellings(
                {secret for sets in known for each in sets for secret in each}
            )
        text = blotted(text, spelled)
        return without_forms(_without_beginnings(text, spelled) if "…" in text else text)

    def redact_json(self, value: Any, deepest: int = DEEPEST) -> Any:
        """A JSON value without secrets: known ones, and whatever stands under a name that says so.
        Never the same object where anything was left out; keys are kept, redacted too."""
        if isinstance(value, str):
            return self.redact(value)
        if deepest <= 0 and isinstance(value, dict | list | tuple):
            return MARK
        if isinstance(value, dict):
            table = cast(dict[Any, Any], value)
            return {
                self.redact(str(key)): MARK
                if is_secret_name(str(key)[:200]) and _may_be_secret(item)
                else self.redact_json(item, deepest - 1)
                for key, item in table.items()
            }
        if isinstance(value, list | tuple):
            return [self.redact_json(item, deepest - 1) for item in cast("list[Any]", value)]
        return value

    def redact_values(self, value: Any) -> Any:
        """The same for what is ours: by known values only, whatever the names."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {
                key: self.redact_values(item) for key, item in cast(dict[Any, Any], value).items()
            }
        if isinstance(value, list | tuple):
            return [self.redact_values(item) for item in cast("list[Any]", value)]
        return value


def _may_be_secret(value: object) -> bool:
    """Not what is empty or a yes or no; a number may be a PIN."""
    return value is not None and not isinstance(value, bool) and value not in ("", [], {})


# Texts of other programs

MAX_EXCERPT_BYTES = 200
"""Size of an excerpt of a message that cannot be used."""
MAX_REDACTED_BYTES = 4096
"""More than an excerpt has, so that no secret is cut before it is redacted."""


def without(secrets: Iterable[str], text: str) -> str:
    """Remove secrets from a text. Cut the text afterwards: half a secret would not be found."""
    return blotted(text, spellings(secrets))


def excerpt(raw: bytes | bytearray, redact: Callable[[str], str]) -> str:
    """Return the first bytes of a message that cannot be used, redacted, as one printable line."""
    decoded = bytes(raw[:MAX_REDACTED_BYTES]).decode("utf-8", "replace")
    encoded = without_forms(redact(decoded)).encode("utf-8", "replace")
    line = one_line(encoded[:MAX_EXCERPT_BYTES].decode("utf-8", "ignore"))
    if len(encoded) > MAX_EXCERPT_BYTES:
        line += "…"
    return line
