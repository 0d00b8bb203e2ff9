"""Converts the parameters and the body of an operation to arguments of a command.

Argument names are valid for clients and unique. The names in the request stay unchanged. A
parameter that cannot be sent is left out with a note. If it is required, `Skipped` is raised.

A default of the document becomes part of the description. It is not sent, because an update must
not reset a field that the caller leaves out.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from mcpx.imports.openapi_document import BadReference, Document
from mcpx.imports.openapi_schema import Detail, ObjectFields, Schemas
from mcpx.imports.source import MAX_NAME, argument_name, clean, clip, joined, one_line
from mcpx.model.call import Json, as_list, as_object
from mcpx.wire.fields import header_name_mistakes

MAX_FIELDS = 150
"""Fields of a body that become separate arguments."""
_SEPARATORS = {"form": "commas", "spaceDelimited": "spaces", "pipeDelimited": "|"}
_TEXT_TYPES = ("/xml", "+xml", "/x-ndjson", "/yaml", "/x-yaml")
_NOT_PARAMETERS = ("accept", "content-type", "authorization")
"""Headers that OpenAPI describes elsewhere."""


class Skipped(Exception):
    """An operation cannot become a command."""


@dataclass(slots=True)
class Request:
    path: str
    params: Json = field(default_factory=dict[str, Any])
    headers: Json = field(default_factory=dict[str, Any])
    body: Any = None
    body_format: Literal["json", "form", "text"] | None = None
    properties: Json = field(default_factory=dict[str, Any])
    required: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    def take(self, name: str, place: str, schema: Json, required: bool) -> str:
        """Add an argument, and return its placeholder."""
        made = argument_name(name)
        if made in self.properties:
            made = argument_name(f"{place}_{made}"[:MAX_NAME])
        base, number = made, 1
        while made in self.properties:
            number += 1
            made = f"{base[: MAX_NAME - 4]}_{number}"
        self.properties[made] = schema
        if required:
            self.required.append(made)
        return f"{{{made}}}"

    def fields(self) -> Json:
        """The keys of an HTTP command except its method and URL."""
        made: Json = {"params": self.params, "headers": self.headers, "body": self.body}
        made["body_format"] = self.body_format
        return {key: value for key, value in made.items() if value not in (None, {})}

    @property
    def schema(self) -> Json:
        made: Json = {
            "type": "object",
            "properties": self.properties,
            "additionalProperties": False,
        }
        if self.required:
            made["required"] = self.required
        return made


class Arguments:
    def __init__(self, document: Document, detail: Detail) -> None:
        self._document = document
        self._schemas = Schemas(document)
        self._detail = detail

    def add_parameters(self, request: Request, *levels: Any) -> None:
        """`levels`: the parameters of the path, then those of the operation, which win."""
        found: dict[tuple[str, str], Json] = {}
        for parameter in [each for level in levels for each in as_list(level)[:500]]:
            try:
                resolved = self._document.resolved(parameter)
            except BadReference as reason:
                raise Skipped(f"a parameter is {reason}") from None
            name = resolved.get("name")
            if isinstance(name, str) and name:
                found[str(resolved.get("in")), name] = resolved
        # Path parameters keep their names, because they cannot be left out.
        for place in ("path", "query", "header", "cookie"):
            for (its_place, name), parameter in found.items():
                if its_place == place:
                    self._add_parameter(request, place, name, parameter)

    def _add_parameter(self, request: Request, place: str, name: str, parameter: Json) -> None:
        if place == "header" and name.lower() in _NOT_PARAMETERS:
            return
        required = parameter.get("required") is True or place == "path"
        problem = _parameter_problem(place, name)
        if problem:
            shown = f"the {place} parameter {one_line(name, 40)!r}"
            if required:
                raise Skipped(f"{shown}, which it needs, {problem}")
            request.notes.append(f"{shown} {problem}; left out")
            return
        schema = self._parameter_schema(parameter)
        if place == "header":
            request.headers[name] = _take(request, name, place, schema, required)
        elif place == "query":
            self._add_query(request, name, schema, parameter, required)
        else:
            self._add_to_path(request, name, schema, parameter)

    def _parameter_schema(self, parameter: Json) -> Json:
        contents = [*as_object(parameter.get("content")).values(), parameter]
        made = self._schemas.convert(as_object(contents[0]).get("schema"), self._detail)
        return self._described(made, parameter)

    def _described(self, schema: Json, holder: Json, default: str = "") -> Json:
        """The schema with the description of the parameter or the body that has it."""
        texts = holder.get("description"), schema.get("description")
        text = joined(*texts, limit=self._detail.text // 2) or default
        return {**schema, "description": text} if text else schema

    def _add_to_path(self, request: Request, name: str, schema: Json, parameter: Json) -> None:
        written = f"{{{name}}}"
        if written not in request.path:
            shown = one_line(name, 40)
            request.notes.append(f"the path parameter {shown!r} is not in the path; left out")
            return
        prefixes = {"label": ".", "matrix": f";{name}="}
        prefix = prefixes.get(str(parameter.get("style")), "")
        placeholder = _take(request, name, "path", schema, True)
        request.path = request.path.replace(written, prefix + placeholder)

    def _add_query(
        self, request: Request, name: str, schema: Json, parameter: Json, required: bool
    ) -> None:
        style = str(parameter.get("style") or "form")
        explode = parameter.get("explode", style == "form") is True
        kind = schema.get("type")
        fields = as_object(schema.get("properties"))
        is_split = style == "deepObject" or explode
        if kind == "object" and "content" not in parameter and is_split and fields:
            for key, its_schema in list(fields.items())[:MAX_FIELDS]:
                written = f"{name}[{key}]" if style == "deepObject" else key
                must = required and key in as_list(schema.get("required"))
                placeholder = _take(request, written, "query", as_object(its_schema), must)
                request.params[written] = placeholder
            return
        if kind == "array" and not explode and style in _SEPARATORS:
            text = f"Several values are separated by {_SEPARATORS[style]}.{_choices(schema)}"
            text = joined(schema.get("description"), text, limit=self._detail.text)
            schema = {"type": "string", "description": text}
        request.params[name] = _take(request, name, "query", schema, required)

    def add_body(self, request: Request, operation: Json) -> None:
        try:
            body = self._document.resolved(operation.get("requestBody"))
        except BadReference as reason:
            raise Skipped(f"its body is {reason}") from None
        contents = _media_types(body)
        if not contents:
            return
        media_type = _best_media_type(list(contents))
        if media_type is None:
            kinds = one_line(", ".join(contents), 80)
            if body.get("required", True) is not True:
                request.notes.append(f"its body is left out: {kinds} cannot be sent")
                return
            what = "such bodies"
            if "multipart/form-data" in contents:
                what = "files and forms of several parts"
            raise Skipped(f"its body is {kinds}; mcpx does not send {what}")
        schema = as_object(contents[media_type]).get("schema")
        if media_type.endswith("/*") and media_type != "text/*":
            media_type = "application/json"
        self._fill_body(request, media_type, schema, body)

    def _fill_body(self, request: Request, media_type: str, schema: Any, body: Json) -> None:
        # Documents that do not state `required` usually mean that the body is required.
        required = body.get("required") is not False
        body_format = _body_format(media_type)
        if media_type != "application/json" and body_format != "form":
            content_type = media_type.replace("text/*", "text/plain; charset=utf-8")
            request.headers["Content-Type"] = content_type
        fields = None
        if body_format != "text":
            fields = self._writable_fields(schema)
        if fields is not None:
            self._fill_fields(request, fields, required)
            if body_format == "form":
                request.body_format = "form"
            return
        if body_format == "form":
            raise Skipped("its form has no known fields")
        whole: Json = {"type": "string"}
        if body_format == "json":
            whole = self._schemas.convert(schema, self._detail)
        whole = self._described(whole, body, "The request body.")
        request.body = _take(request, "body", "request", whole, required)
        request.body_format = body_format

    def _writable_fields(self, schema: Any) -> ObjectFields | None:
        """The fields of the body, or None if they cannot become separate arguments."""
        fields = self._schemas.object_fields(schema)
        if fields is None:
            return None
        fields.properties = {
            name: its_schema
            for name, its_schema in fields.properties.items()
            if not self._schemas.is_read_only(its_schema)
        }
        names = fields.properties
        if not 0 < len(names) <= MAX_FIELDS or any(clean(name) != name for name in names):
            return None
        return fields

    def _fill_fields(self, request: Request, fields: ObjectFields, required: bool) -> None:
        if fields.is_open:
            note = "its body takes more fields than those that are named, which cannot be given"
            request.notes.append(note)
        request.body = {}
        for name, its_schema in fields.properties.items():
            must = required and name in fields.required
            schema = self._schemas.convert(its_schema, self._detail)
            request.body[name] = _take(request, name, "body", schema, must)


def _take(request: Request, name: str, place: str, schema: Json, required: bool) -> str:
    """Add an argument whose description has the default of the schema."""
    if "default" in schema:
        schema = dict(schema)
        default = clip(json.dumps(schema.pop("default"), ensure_ascii=False), 100)
        texts = filter(None, (schema.get("description"), f"Default: {default}"))
        schema["description"] = "\n".join(texts)
    return request.take(name, place, schema, required)


def _parameter_problem(place: str, name: str) -> str:
    """The reason why a parameter cannot be sent."""
    if clean(name) != name or len(name) > 500:
        return "has a name that cannot be sent"
    if place == "query" and "{" in name:
        return "has a name that reads as a placeholder"
    if place == "cookie":
        return "is a cookie, which mcpx does not send"
    if place == "header" and any(header_name_mistakes(name)):
        return "is a header that only mcpx sets"
    return ""


def _media_types(body: Json) -> Json:
    contents = list(as_object(body.get("content")).items())[:20]
    return {kind.partition(";")[0].strip().lower(): media for kind, media in contents}


def _best_media_type(kinds: list[str]) -> str | None:
    """The media type that mcpx sends best."""

    def rank(kind: str) -> int:
        if kind == "application/json":
            return 0
        if _body_format(kind) != "text":
            return 1 + (_body_format(kind) == "form")
        if kind in ("*/*", "application/*"):
            return 3
        return 4

    known = [
        kind
        for kind in kinds
        if rank(kind) < 4 or kind.startswith("text/") or kind.endswith(_TEXT_TYPES)
    ]
    return min(known, key=rank, default=None)


def _body_format(kind: str) -> Literal["json", "form", "text"]:
    if kind.endswith("x-www-form-urlencoded"):
        return "form"
    if kind.endswith(("/json", "+json")):
        return "json"
    return "text"


def _choices(schema: Json) -> str:
    choices = as_list(as_object(schema.get("items")).get("enum"))
    if not choices:
        return ""
    return f" Possible: {clip(', '.join(map(str, choices)), 300)}"
