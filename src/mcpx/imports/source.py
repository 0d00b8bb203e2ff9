"""Downloads, text, and names from third parties, limited in size and safe for terminals."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from mcpx.model.call import is_array, is_object
from mcpx.model.errors import ConfigError
from mcpx.model.redaction import words
from mcpx.wire.address import BadAddress, parse

if TYPE_CHECKING:
    from mcpx.wire.fetch import Answer

MAX_REDIRECTS = 5

MAX_NAME = 64
"""Characters of the name of a tool, an argument, or a variable."""
MAX_VALUE_DEPTH, MAX_VALUE_ITEMS, MAX_VALUE_TEXT = 4, 100, 300
"""Limits of a default, an example, or a choice."""

_UNSEEN = re.compile(
    # Control characters and surrogates.
    "[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
    # Characters without width, and marks that change the reading direction.
    "|[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069]"
)
_BREAK = re.compile("\r\n?|[\x85\u2028\u2029]")
_NOISE = words("api apis rest the openapi swagger spec specification reference v1 v2 v3")


class Unfit(ValueError):
    """A value that is too large to be repeated."""


def clean(text: str) -> str:
    """The text without invisible characters, with `\\n` as its only line break."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub("", _BREAK.sub("\n", text))


def one_line(text: str, limit: int = 100) -> str:
    return clip(" ".join(clean(text[: 10 * limit]).split()), limit)


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, cut between words where possible."""
    text = clean(text[: 4 * limit + 1_000]).strip()
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    at = max(cut.rfind(" "), cut.rfind("\n"))
    if at > limit // 2:
        cut = cut[:at]
    return cut.rstrip() + "…"


def joined(*texts: object, limit: int) -> str:
    """Several texts as one, without a text that another one contains."""
    kept: list[str] = []
    for text in texts:
        if not isinstance(text, str):
            continue
        cleaned = clip(text, limit)
        bare = cleaned.rstrip(".…").lower()
        if not bare or any(bare in other.lower() for other in kept):
            continue
        lowered = cleaned.lower()
        kept = [other for other in kept if not lowered.startswith(other.rstrip(".").lower())]
        kept.append(cleaned)
    return clip("\n\n".join(kept), limit)


def bounded(value: Any, depth: int = MAX_VALUE_DEPTH) -> Any:
    """A JSON value that may be repeated. Raises `Unfit`."""
    if isinstance(value, str):
        fits = len(value) <= MAX_VALUE_TEXT and clean(value) == value
    elif isinstance(value, int | float):
        fits = -(2**1000) < value < 2**1000
        if fits and abs(value) >= 2**63:
            value = float(value)
    elif is_object(value) or is_array(value):
        fits = depth > 0 and len(value) <= MAX_VALUE_ITEMS
    else:
        return value
    if not fits:
        raise Unfit
    if is_object(value):
        return {bounded(key): bounded(item, depth - 1) for key, item in value.items()}
    if is_array(value):
        return [bounded(item, depth - 1) for item in value]
    return value


# Names


def safe_name(text: str) -> str:
    """Letters, digits, `_`, and `-` only. The result may be empty."""
    name = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", text[:1_000]))
    return name.strip("_-")[:MAX_NAME].strip("_-")


def argument_name(text: str) -> str:
    """The text itself if clients accept it as an argument and `{…}` can hold it."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", text):
        return text
    return safe_name(text) or "value"


def slug(title: str) -> str:
    """The first words of a title that distinguish it from other APIs."""
    found = [word for word in re.findall(r"[a-z0-9]+", title[:200].lower()) if word not in _NOISE]
    return "_".join(found[:3])[:24].strip("_") or "api"


def snake(text: str) -> str:
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text[:200])
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")


def variable_name(*parts: str) -> str:
    """`PET_TOKEN` for "pet" and "token". A repeated word is written once."""
    made = ""
    for each in parts:
        part = snake(each).upper()
        if part and made != part and not made.endswith(f"_{part}"):
            made = f"{made}_{part}".lstrip("_")
    made = made[:MAX_NAME].strip("_") or "SECRET"
    if made[0].isdigit():
        made = f"_{made}"[:MAX_NAME]
    return made


class UniqueNames:
    """Adds numbers to repeated names: the second `list` becomes `list_2`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}

    def take(self, name: str) -> str:
        made = name
        while made in self._taken:
            number = self._last[name] = self._last.get(name, 1) + 1
            made = f"{name[: MAX_NAME - len(str(number)) - 1]}_{number}"
        self._taken.add(made)
        return made


# Downloads


async def download(
    url: str,
    environ: Mapping[str, str],
    *,
    what: str,
    limit: int,
    timeout: float = 30.0,
    trusted: bool = False,
    allow_private: bool = False,
) -> "Answer":
    """The response of an address. Raises ConfigError.

    `trusted`: the user named the host, so that it may be private. A redirect may not lead to a
    private address unless `allow_private` is set.
    """
    from mcpx.wire.fetch import Fetch, Fetcher, FetchFailed

    fetcher = Fetcher(environ)
    try:
        origin = _origin(url)
        for _ in range(MAX_REDIRECTS + 1):
            request = Fetch(
                url=url,
                headers=(("Accept", "application/json, application/yaml;q=0.9, */*;q=0.5"),),
                timeout=timeout,
                limit=limit,
                redirects=0,
                allow_private=allow_private or (trusted and _origin(url) == origin),
            )
            answer = await fetcher.fetch(request)
            location = answer.headers.first.get(b"location")
            if answer.status not in (301, 302, 303, 307, 308) or location is None:
                return answer
            url = urljoin(url, location.decode("utf-8", "replace").strip())
            if origin[0] == "https" and not url.lower().startswith("https:"):
                raise ConfigError([f"error: {what} redirects from https to something else"])
    except BadAddress as problem:
        raise ConfigError([f"error: {what}: its address: {problem}"]) from None
    except FetchFailed as error:
        hint = "; --allow-private lets it through" * (error.forbidden and not allow_private)
        raise ConfigError([f"error: {what} cannot be fetched: {error}{hint}"]) from None
    except ValueError as error:
        raise ConfigError([f"error: {what} cannot be fetched: {error}"]) from None
    finally:
        await fetcher.close()
    raise ConfigError([f"error: {what} cannot be fetched: more than {MAX_REDIRECTS} redirects"])


def decoded(body: bytes, what: str) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError([f"error: {what} is not UTF-8 text"]) from None


def _origin(url: str) -> tuple[str, str, int]:
    address = parse(url)
    return address.scheme, address.host, address.port
