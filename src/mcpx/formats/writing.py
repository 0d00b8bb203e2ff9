"""The formats at work: a writer for each that the config chose, made once.

Promised: a writer always has a text. Where a format has none for something, or fails, it is JSON; a
failure is logged once. Our own formats are trusted to have a text, and cost nothing more than a
call.
"""

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from mcpx.formats import SCHEMA_FORMATS, VALUE_FORMATS
from mcpx.formats.json import Json, as_json
from mcpx.model.family import Family

log = logging.getLogger(__name__)

JSON = "json"
OURS = frozenset((JSON, "toon"))
"""Value formats that write nothing but what is shorter than JSON."""
NO_NOTES: Mapping[str, str] = MappingProxyType({})


class ValueWriter:
    """Values in one format."""

    __slots__ = ("_ours", "_write")

    def __init__(self, write: Callable[[object], str | None], *, ours: bool) -> None:
        self._write, self._ours = write, ours

    def __call__(self, value: object) -> str:
        text = self._write(value)
        return as_json(value) if text is None else text

    def better(self, value: object, than: str) -> str | None:
        """The value as it is to be shown in the place of a text that says it; None: the text is as
        good.

        JSON and TOON must be shorter. Another format was chosen for how it looks, and says itself
        where it is not."""
        text = self._write(value)
        if text is not None and not self._ours:
            return text
        text = as_json(value) if text is None else text
        return text if len(text) < len(than) else None


class SchemaWriter:
    """Schemas in one format."""

    __slots__ = ("_signature", "_write", "takes_notes")

    def __init__(self, part: Any, name: str) -> None:
        self._write = _careful(name, part.schema)
        self.takes_notes = hasattr(part, "signature")
        """Whether it tells in a signature what is known of parameters beside their schemas."""
        self._signature = _careful(name, part.signature) if self.takes_notes else None

    def signature(self, name: str, schema: object, notes: Mapping[str, str] = NO_NOTES) -> str:
        """How a tool is called."""
        if (
            self._signature is not None
            and (whole := self._signature(name, schema, notes)) is not None
        ):
            return whole
        text = self._write(schema)
        return f"{name} {as_json(schema) if text is None else text}"


@lru_cache(maxsize=64)
def value_writer(name: str, min_size: int = 3) -> ValueWriter:
    part = _made(VALUE_FORMATS, name, min_size=min_size)
    ours = name in OURS
    return ValueWriter(part.value if ours else _careful(name, part.value), ours=ours)


@lru_cache(maxsize=64)
def schema_writer(name: str, max_description_len: int | None = None) -> SchemaWriter:
    return SchemaWriter(_made(SCHEMA_FORMATS, name, max_description_len=max_description_len), name)


def _made(formats: Family[Any], name: str, **wishes: object) -> Any:
    """A format, with what the config says of those fields that it has."""
    try:
        part = formats[name]
        fields = getattr(part, "__dataclass_fields__", {})
        return part(**{wish: value for wish, value in wishes.items() if wish in fields})
    except Exception as error:  # noqa: BLE001 - somebody else's format
        log.warning(
            "format %r cannot be used, JSON is shown instead: %s", name, type(error).__name__
        )
        return Json()


def _careful(name: str, write: Callable[..., Any]) -> Callable[..., str | None]:
    told = False

    def careful(*given: object) -> str | None:
        nonlocal told
        try:
            text = write(*given)
            if text is None or isinstance(text, str):
                return text
            problem = f"it gave {type(text).__name__}, not text"
        except Exception as error:  # noqa: BLE001 - a third-party format; its message may hold data
            problem = type(error).__name__
        if not told:
            told = True
            log.warning("format %r failed, JSON is shown instead: %s", name, problem)
        return None

    return careful
