"""The parameters and the body of an operation as the arguments of a command, and the request they
go into.

Promised: every argument has a name that clients take and that stands for nothing else; what it is
called on the wire stays as it is. What cannot be sent is dropped with a note, or a reason for the
operation to be left out if it needs it.

A default of the document is told in words and not sent: the API has it anyway, and a change that
leaves a field out must not set it back.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from mcpx.imports.document import BadReference, Document
from mcpx.imports.names import LONGEST, argument
from mcpx.imports.schemas import Detail, Schemas
from mcpx.imports.texts import clean, clip, joined, one_line
from mcpx.model.call import Json, as_list, as_object
from mcpx.wire.fields import header_name_mistakes

MOST_FIELDS = 150
"""Fields of a body that become arguments of their own."""
_SEPARATORS = {"form": "commas", "spaceDelimited": "spaces", "pipeDelimited": "|"}
_TEXTUAL = ("/xml", "+xml", "/x-ndjson", "/yaml", "/x-yaml")
_NOT_PARAMETERS = ("accept", "content-type", "authorization")
"""Headers that a document describes elsewhere (OpenAPI says so)."""


class Skipped(Exception):
    """Why an operation is not made into a command."""


@dataclass(slots=True)
class Request:
    """A request as it is put together."""

    path: str
    params: Json = field(default_factory=dict[str, Any])
    headers: Json = field(default_factory=dict[str, Any])
    body: Any = None
    body_format: Literal["json", "form", "text"] | None = None
    properties: Json = field(default_factory=dict[str, Any])
    required: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    def take(self, wire: str, place: str, schema: Json, required: bool) -> str:
        """A new argument; gives the placeholder that stands for it."""
        name = argument(wire)
        if name in self.properties:
            name = argument(f"{place}_{name}"[:LONGEST])
        number = 1
        while name in self.properties:
            number += 1
            name = f"{name[: LONGEST - 4].removesuffix(f'_{number - 1}')}_{number}"
        schema = dict(schema)
        if "default" in schema:
            said = f"Default: {clip(json.dumps(schema.pop('default'), ensure_ascii=False), 100)}"
            schema["description"] = "\n".join(filter(None, (schema.get("description"), said)))
        self.properties[name] = schema
        if required:
            self.required.append(name)
        return f"{{{name}}}"

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
    """Fills requests with what operations of one document take."""

    def __init__(self, document: Document, detail: Detail) -> None:
        self._document = document
        self._schemas = Schemas(document)
        self._detail = detail

    def parameters(self, request: Request, *levels: Any) -> None:
        """`levels`: those of the path, those of the operation, which win."""
        found: dict[tuple[str, str], Json] = {}
        for level in levels:
            for each in as_list(level)[:500]:
                try:
                    parameter = self._document.resolved(each)
                except BadReference as reason:
                    raise Skipped(f"a parameter is {reason}") from None
                name = parameter.get("name")
                if isinstance(name, str) and name:
                    found[str(parameter.get("in")), name] = parameter
        for place in (
            "path",
            "query",
            "header",
            "cookie",
        ):  # the plain names go to those that cannot be left out
            for (its, name), parameter in found.items():
                if its == place:
                    self._parameter(request, place, name, parameter)

    def _parameter(self, request: Request, place: str, name: str, parameter: Json) -> None:
        required = parameter.get("required") is True or place == "path"
        said = f"the {place} parameter {one_line(name, 40)!r}"
        impossible = None
        if clean(name) != name or len(name) > 500:
            impossible = "has a name that cannot be sent"
        elif place == "query" and "{" in name:
            impossible = "has a name that reads as a placeholder"
        elif place == "cookie":
            impossible = "is a cookie, which mcpx does not send"
        elif place == "header" and name.lower() in _NOT_PARAMETERS:
            return
        elif place == "header" and any(header_name_mistakes(name)):
            impossible = "is a header that only mcpx sets"
        if impossible:
            if required:
                raise Skipped(f"{said}, which it needs, {impossible}")
            request.notes.append(f"{said} {impossible}; left out")
            return
        schema = self._schema(parameter)
        match place:
            case "path":
                self._in_path(request, name, schema, parameter)
            case "query":
                self._in_query(request, name, schema, parameter, required)
            case _:
                request.headers[name] = request.take(name, place, schema, required)

    def _schema(self, parameter: Json) -> Json:
        """Of its value, with all that is said about it."""
        contents = list(as_object(parameter.get("content")).values())
        holder = as_object(contents[0]) if contents else parameter
        made = self._schemas.of(holder.get("schema"), self._detail)
        told = joined(
            parameter.get("description"), made.get("description"), limit=self._detail.text // 2
        )
        return {**made, **({"description": told} if told else {})}

    def _in_path(self, request: Request, name: str, schema: Json, parameter: Json) -> None:
        written = f"{{{name}}}"
        if written not in request.path:
            request.notes.append(
                f"the path parameter {one_line(name, 40)!r} is not in the path; left out"
            )
            return
        before = {"label": ".", "matrix": f";{name}="}.get(str(parameter.get("style")), "")
        request.path = request.path.replace(
            written, before + request.take(name, "path", schema, True)
        )

    def _in_query(
        self, request: Request, name: str, schema: Json, parameter: Json, required: bool
    ) -> None:
        style = str(parameter.get("style") or "form")
        explode = parameter.get("explode", style == "form") is True
        types = schema.get("type")
        if types == "object" and "content" not in parameter and (style == "deepObject" or explode):
            fields = as_object(schema.get("properties"))
            for key, its in list(fields.items())[:MOST_FIELDS]:
                wire = f"{name}[{key}]" if style == "deepObject" else key
                must = required and key in as_list(schema.get("required"))
                request.params[wire] = request.take(wire, "query", as_object(its), must)
            if fields:
                return
        if types == "array" and not explode and style in _SEPARATORS:
            told = joined(
                schema.get("description"),
                f"Several values are separated by {_SEPARATORS[style]}.{_choices(schema)}",
                limit=self._detail.text,
            )
            schema = {"type": "string", "description": told}
        request.params[name] = request.take(name, "query", schema, required)

    def body(self, request: Request, operation: Json) -> None:
        try:
            given = self._document.resolved(operation.get("requestBody"))
        except BadReference as reason:
            raise Skipped(f"its body is {reason}") from None
        contents = {
            kind.partition(";")[0].strip().lower(): as_object(its) for kind, its in _contents(given)
        }
        if not contents:
            return
        kind = _chosen(contents)
        if kind is None:
            if given.get("required") is not True and "required" in given:
                request.notes.append(
                    f"its body can be left out, and is: {', '.join(contents)} cannot be sent"
                )
                return
            told = one_line(", ".join(contents), 80)
            what = (
                "files and forms of several parts"
                if "multipart/form-data" in contents
                else "such bodies"
            )
            raise Skipped(f"its body is {told}; mcpx does not send {what}")
        required = (
            given.get("required") is not False
        )  # whoever says nothing has mostly forgotten it
        self._fill_body(request, kind, contents[kind].get("schema"), given, required)

    def _fill_body(
        self, request: Request, kind: str, schema: Any, given: Json, required: bool
    ) -> None:
        if kind == "*/*" or (kind.endswith("/*") and kind != "text/*"):
            kind = "application/json"
        form = (
            "form"
            if kind.endswith("x-www-form-urlencoded")
            else "json"
            if _is_json(kind)
            else "text"
        )
        if kind != "application/json" and form != "form":
            request.headers["Content-Type"] = (
                "text/plain; charset=utf-8" if kind == "text/*" else kind
            )
        fields = self._schemas.fields(schema) if form != "text" else None
        listed = as_object((fields or {}).get("properties"))
        writable = {
            name: its for name, its in listed.items() if not self._schemas.is_read_only(its)
        }
        if (
            fields is None
            or not 0 < len(writable) <= MOST_FIELDS
            or any(clean(name) != name for name in writable)
        ):
            if form == "form":
                raise Skipped("the fields of its form are not told")
            whole = self._schemas.of(schema, self._detail) if form == "json" else {"type": "string"}
            told = joined(
                given.get("description"), whole.get("description"), limit=self._detail.text // 2
            )
            whole = {**whole, "description": told or "What is sent as the body."}
            request.body, request.body_format = (
                request.take("body", "request", whole, required),
                form,
            )
            return
        if "additionalProperties" in fields or "patternProperties" in fields:
            request.notes.append(
                "its body takes more fields than those that are named, which cannot be given"
            )
        request.body = {}
        request.body_format = "form" if form == "form" else None
        for name, its in writable.items():
            must = required and name in fields["required"]
            request.body[name] = request.take(
                name, "body", self._schemas.of(its, self._detail), must
            )


def _contents(given: Json) -> list[tuple[str, Any]]:
    return list(as_object(given.get("content")).items())[:20]


def _chosen(contents: Json) -> str | None:
    """The kind of body that mcpx sends best."""
    kinds = list(contents)
    best = (
        [kind for kind in kinds if kind == "application/json"],
        [kind for kind in kinds if _is_json(kind)],
        [kind for kind in kinds if kind.endswith("x-www-form-urlencoded")],
        [kind for kind in kinds if kind in ("*/*", "application/*")],
        [kind for kind in kinds if kind.startswith("text/") or kind.endswith(_TEXTUAL)],
    )
    return next((found[0] for found in best if found), None)


def _is_json(kind: str) -> bool:
    return kind.endswith(("/json", "+json"))


def _choices(schema: Json) -> str:
    choices = as_list(as_object(schema.get("items")).get("enum"))
    return f" Possible: {clip(', '.join(str(each) for each in choices), 300)}" if choices else ""
