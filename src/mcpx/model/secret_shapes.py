"""Finds the parts of a text that have the shape of a secret, whatever the text is for.

The shapes are PEM blocks, well-known forms of keys, credentials of an authorization scheme, and in
URLs the user information, secret query values, webhook paths, and random path segments.
`find_pairs` adds `name=value` text such as connection strings and cookies. All searches take linear
time for texts of the permitted size.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from mcpx.model.redaction import FORMS, is_secret_name, words

Span = tuple[int, int]

MIN_RANDOM = 16
"""Characters. A shorter text may be a word."""

KEY_FORMS = (
    rf"{FORMS}|tvly-[\w-]{{10,}}|fc-[0-9a-f]{{20,}}|lin_(?:api|oauth)_\w{{16,}}"
    rf"|ntn_\w{{20,}}|secret_\w{{30,}}|sbp_\w{{20,}}"
    r"|sntry[su]_[\w=/+-]{16,}|BSA[\w-]{20,}|pat[A-Za-z0-9]{14}\.[0-9a-f]{20,}"
    r"|figd_[\w-]{16,}|hf_[A-Za-z]{20,}"
    r"|r8_\w{20,}|gsk_\w{20,}|xai-\w{20,}|npm_\w{30,}|pypi-[\w-]{30,}|do[opr]_v1_\w{20,}"
    r"|shp(?:at|ss|ca|pa)_\w{16,}"
    r"|ATATT3[\w=-]{20,}|pplx-\w{20,}|whsec_\w{16,}|apify_api_\w{16,}|e2b_\w{16,}"
    r"|bb_(?:live|test)_[\w-]{16,}"
    r"|nvapi-[\w-]{20,}|dckr_pat_[\w-]{16,}|pscale_\w+_[\w-]{16,}|ops_[\w-]{30,}"
    r"|CFPAT-[\w-]{20,}|GOCSPX-[\w-]{16,}"
    r"|1//0[\w-]{20,}|ctx7sk-[\w-]{16,}|ph[xc]_\w{20,}|EAA[A-Za-z0-9]{30,}"
    r"|key-[0-9a-f]{20,}|rnd_\w{20,}|rpa_\w{20,}"
    r"|dapi[0-9a-f]{20,}|xapp-[\w-]{16,}|sl\.[\w-]{30,}|glsa_\w{20,}|r[kw]_(?:live"
    r"|test)_\w{16,}|nfp_\w{20,}"
)
"""Forms of keys and tokens in configurations. The redactor looks for fewer (`FORMS`) in each line
that it writes."""

_FORM = re.compile(rf"(?<![A-Za-z0-9])(?:{KEY_FORMS})")
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z "
    r"]{0,10}-----(?:(?!-----END)[\s\S])*+(?:-----END[A-Z0-9 ]{0,60}-----)?"
)
_SCHEME = re.compile(r"(?i)\b(?:bearer|basic)[ \t]+(?!\w+=)([\w.~+/=-]{8,})")
_URL = re.compile(r"""([A-Za-z][\w+.-]{0,30})?://([^\s"'<>\\`]*)""")
_WEBHOOK = re.compile(
    r"(?i)^(?:hooks\.slack\.com/(?:services|workflows|triggers)/"
    r"|(?:\w+\.)?discord(?:app)?\.com/api/webhooks/"
    r"|[\w.-]*webhook\.office\.com/|[\w.:-]+/(?:[^?#]*/)?(?:web)?hooks?(?:-test)?/(?:catch/)?)"
)
_TELEGRAM = re.compile(r"^bot\d{5,}:[\w-]{8,}$")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_PAIR = re.compile(
    r"""(?<![\w.-])(["']?)([A-Za-z_][\w.-]*+)\1([ \t]*+[:=][ \t]*+)"""
    r"""("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|(?:(?i:bearer|basic|token)[ \t]+)?[^\s,;&"'\[\]]+)"""
)
_AUTHORIZATION = re.compile(r"(?i)(?:bearer|basic|token)[ \t]+")
_FIELD = re.compile(r"""(?:^|;)\s*+([A-Za-z_][\w .-]*+)=([^;"'{]*|"[^"]*"|'[^']*'|\{[^}]*\})""")
_USER_SCHEMES = words(
    "amqp amqps clickhouse ftp git+ssh imap imaps mariadb mongodb mongodb+srv mysql postgres "
    "postgresql sftp smtp ssh"
)
"""Schemes with the name of a user before the host. In other URLs a single word there is a token."""
_HTTP = frozenset({"http", "https", "ws", "wss", ""})


def find_shapes(text: str) -> Iterator[Span]:
    for pem in _PEM.finditer(text):
        yield pem.span()
    for form in _FORM.finditer(text):
        yield form.span()
    for credentials in _SCHEME.finditer(text):
        word = credentials[1]
        if any(map(str.isdigit, word)) or is_random(word):
            yield credentials.span(1)
    for url in _URL.finditer(text):
        yield from _in_url((url[1] or "").lower(), url[2], url.start(2))


def find_pairs(text: str) -> Iterator[Span]:
    """The values of `name=value` and `name: value` whose name says that the value is secret."""
    for pair in _PAIR.finditer(text):
        if is_secret_name(pair[2]) and pair[4].strip("\"'"):
            start, end = _unquoted(pair.span(4), text)
            scheme = _AUTHORIZATION.match(text, start, end)
            yield (scheme.end() if scheme else start), end
    fields = list(_FIELD.finditer(text))
    if len(fields) < 2:
        return
    for field in fields:
        if field[2] and (is_secret_name(field[1]) or is_random(field[2])):
            yield _unquoted(field.span(2), text)


def is_random(text: str) -> bool:
    """Return True for a UUID, and for a text that is too irregular for a word, a path, or a
    version.

    Counts changes between lower case, upper case, and digits. Words that begin with a capital
    letter count as regular.
    """
    if _UUID.search(text):
        return True
    if len(text) < MIN_RANDOM or not any(map(str.isdigit, text)) or not any(map(str.isalpha, text)):
        return False
    changes = pairs = 0
    for one, other in pairwise(text):
        first, second = _class(one), _class(other)
        if first and second:
            pairs += 1
            changes += first != second and (first, second) != ("A", "a")
    return pairs >= MIN_RANDOM - 4 and changes >= 0.22 * pairs


def _class(letter: str) -> str:
    if not letter.isascii():
        return ""
    return "0" if letter.isdigit() else "a" if letter.islower() else "A" if letter.isupper() else ""


def _unquoted(span: Span, text: str) -> Span:
    start, end = span
    quoted = end - start >= 2 and text[start] in "\"'" and text[end - 1] == text[start]
    return (start + 1, end - 1) if quoted else span


def _in_url(scheme: str, rest: str, offset: int) -> Iterator[Span]:
    """`rest` is what follows `://`."""
    end = _end_of(rest, "/?#")
    at = rest.rfind("@", 0, end)
    if at < 0 and scheme not in _HTTP and ":" in rest[:512].rpartition("@")[0]:
        at = rest.rfind(
            "@", 0, 512
        )  # A password with "/", "?", or "#" that should have been encoded.
        end = at + 1 + _end_of(rest[at + 1 :], "/?#")
    if at >= 0:
        yield from _in_user_information(scheme, rest[:at], offset)
    query = end + _end_of(rest[end:], "?#")
    if not scheme.startswith("git"):
        yield from _in_path(rest[at + 1 : query], offset + at + 1)
    start = query + 1
    for pair in re.split(r"[&;#?]", rest[query + 1 :]):
        name, equals, value = pair.partition("=")
        if equals and value and (is_secret_name(name) or is_random(value)):
            yield offset + start + len(name) + 1, offset + start + len(pair)
        start += len(pair) + 1


def _end_of(text: str, marks: str) -> int:
    return min((at for mark in marks if (at := text.find(mark)) >= 0), default=len(text))


def _in_user_information(scheme: str, text: str, offset: int) -> Iterator[Span]:
    user, colon, password = text.partition(":")
    if password:
        yield offset + len(user) + 1, offset + len(text)
    is_token = not colon and user != "git" and scheme not in _USER_SCHEMES
    if user and (is_token or is_random(user) or _FORM.fullmatch(user)):
        yield offset, offset + len(user)


def _in_path(text: str, offset: int) -> Iterator[Span]:
    """`text` is the host and the path."""
    webhook = _WEBHOOK.match(text)
    secret_from = webhook.end() if webhook else len(text)
    start = 0
    for index, segment in enumerate(text.split("/")):
        is_secret = start >= secret_from or is_random(segment) or _TELEGRAM.match(segment)
        if index and segment and is_secret and not segment.startswith("@"):
            yield offset + start, offset + start + len(segment)
        start += len(segment) + 1
