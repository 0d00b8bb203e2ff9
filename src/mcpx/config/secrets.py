"""What in a configuration must not be said to anybody: for the `Redactor` of the gateway that runs on it.

Promised: the values of fields that `repr` leaves out, as far as their names say that they are secret; user and password
in addresses; what follows an option such as `--token`. Not done here: what came by reference (`environment` notes it).
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from mcpx.model.redaction import is_secret_name, words

PLAIN_HEADERS = words(
    "accept accept-encoding accept-language cache-control content-type host origin referer user-agent x-request- "
    "id mcp-protocol-version"
)
"""Headers that hold no secret, even where all others may."""

ADDRESSES = ("url", "store")
"""Fields that may hold a secret, and are none themselves."""


def secrets_in(value: object) -> Iterator[str]:
    """Of a configuration, or a part of one."""
    if is_dataclass(value):
        for field in fields(value):
            item = getattr(value, field.name)
            if isinstance(item, str) and not field.repr and field.name not in ADDRESSES:
                yield item
            if isinstance(item, Mapping):
                whole = getattr(value, "type", None) == "custom_header"
                yield from _of_table(cast("Mapping[str, Any]", item), whole=whole)
            elif field.name == "args" and isinstance(item, tuple):
                yield from _of_line(cast("tuple[str, ...]", item))
            else:
                yield from secrets_in(item)
    elif isinstance(value, tuple | list):
        for item in cast("tuple[Any, ...]", value):
            yield from secrets_in(item)
    elif isinstance(value, str):
        yield from _of_address(value)
    elif isinstance(value, Mapping):
        yield from _of_table(cast("Mapping[str, Any]", value))


def secrets_of(environ: Mapping[str, str]) -> Iterator[str]:
    """What of the process's own environment is mcpx's: its key, and how it proves itself to proxies."""
    for name, value in environ.items():
        if name == "MCPX_KEY":
            yield value
        elif name.lower().endswith("_proxy"):
            yield from _of_address(value)


def _of_table(table: Mapping[str, Any], *, whole: bool = False) -> Iterator[str]:
    """`whole`: everything in it is there to prove who we are."""
    for name, item in table.items():
        if isinstance(item, str):
            if is_secret_name(str(name)) or (whole and str(name).lower() not in PLAIN_HEADERS):
                yield item
            yield from _of_address(item)
        else:
            yield from secrets_in(item)


def _of_line(line: tuple[str, ...]) -> Iterator[str]:
    """What a command line shows to everybody on the machine need not be in the log as well."""
    for at, word in enumerate(line):
        option, equals, value = word.partition("=")
        if option.startswith("-") and is_secret_name(option):
            if equals:
                yield value
            elif at + 1 < len(line) and not line[at + 1].startswith("-"):
                yield line[at + 1]
        yield from _of_address(word)


def _of_address(text: str) -> Iterator[str]:
    if "://" not in text or len(text) > 10_000:
        return
    try:
        parts = urlsplit(text)
        user, password = parts.username, parts.password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password), f"{unquote(user or '')}:{unquote(password)}")
    elif user:
        yield from (user, unquote(user))  # a token, as in `https://token@host`
    for name, value in parse_qsl(parts.query, max_num_fields=None):
        if is_secret_name(name) and not value.startswith("{"):
            yield value
