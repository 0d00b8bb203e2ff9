"""The document of the API, with what the framework does not write by itself: the shapes of events
and errors."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from mcpx.admin.shapes.errors import ErrorAnswer
from mcpx.admin.shapes.events import EventShapes
from mcpx.admin.shapes.tools import CallEvents

STREAM = "text/event-stream"
_JSON = "application/json"
_PLACE = "#/components/schemas/{model}"


def streams(
    shapes: type[EventShapes] | type[CallEvents], description: str
) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route that answers with events: their data, by their names."""
    schema = {"$ref": _PLACE.format(model=shapes.__name__)}
    return {200: {"description": description, "content": {STREAM: {"schema": schema}}}}


def install(app: FastAPI) -> None:
    write = app.openapi

    def written() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(write())
        return write()

    app.openapi = written


def _complete(document: dict[str, Any]) -> None:
    shapes: list[type[BaseModel]] = [EventShapes, CallEvents, ErrorAnswer]
    _, found = models_json_schema(
        [(shape, "serialization") for shape in shapes], ref_template=_PLACE
    )
    schemas = document["components"]["schemas"]
    for name, schema in found["$defs"].items():
        for field in schema.get("properties", {}).values():
            if field.get("default", ...) is None:
                del field["default"]  # as the framework does: it may be left out
        schemas.setdefault(name, schema)
    for path in document["paths"].values():
        for operation in path.values():
            content = operation["responses"].get("200", {}).get("content", {})
            if STREAM in content and content.get(_JSON) == {"schema": {}}:
                del content[_JSON]  # it answers with nothing else
