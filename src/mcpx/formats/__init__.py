"""How schemas and values are written for a model to read: short, exact, bounded. One class per way.

A format is made without arguments; one that has fields `min_size` or `max_description_len` gets
what the config says of them. It writes values, schemas, or both, and knows nothing of servers and
surfaces.
"""

from typing import Annotated, Protocol

from mcpx.model.family import Family, Part


class ValueFormat(Part, Protocol):
    def value(self, value: object) -> str | None:
        """A JSON value as text; None: not for this one, JSON is as good."""
        ...


class SchemaFormat(Part, Protocol):
    """May also have `signature(name, schema, notes)`: how a tool of that name is called, `notes`
    describing parameters in the place of their schemas. Else the name and the schema stand side by
    side."""

    def schema(self, schema: object) -> str | None:
        """A JSON Schema as text; None: not for this one."""
        ...


FORMATS: Family[Part] = Family(
    "mcpx.formats",
    "mcpx.formats",
    beside=("comments", "refs", "tokens", "writing"),
    needs=("value|schema",),
)
VALUE_FORMATS: Family[ValueFormat] = FORMATS.having("value")
SCHEMA_FORMATS: Family[SchemaFormat] = FORMATS.having("schema")

ValueFormatName = Annotated[str, VALUE_FORMATS]
SchemaFormatName = Annotated[str, SCHEMA_FORMATS]
"""The name of one of them."""

__all__ = [
    "FORMATS",
    "SCHEMA_FORMATS",
    "VALUE_FORMATS",
    "SchemaFormat",
    "SchemaFormatName",
    "ValueFormat",
    "ValueFormatName",
]
