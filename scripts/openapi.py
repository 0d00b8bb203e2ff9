"""Writes the document of the admin API, which the gateway serves and the typed client is made of.

uv run python scripts/openapi.py [--check]

FastAPI, a development dependency, writes the document from the routes of `mcpx.admin.application`.
Descriptions of fields are the docstrings below them, which only this script reads.
"""

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import fastapi
from fastapi import FastAPI
from openapi_examples import BODIES, FIELDS
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import models_json_schema

from mcpx.admin.api import ApiRequest, Route, source_of
from mcpx.admin.application import DOCUMENT, ROUTERS
from mcpx.admin.errors import CODES
from mcpx.admin.shapes.common import ErrorAnswer, Preview
from mcpx.admin.streaming import EventStream

SCHEMA = "#/components/schemas/{model}"
ALWAYS = (400, 401, 403, 413, 415, 422, 429)
"""Statuses of errors of any route."""
SOURCES = {
    "path": fastapi.Path,
    "query": fastapi.Query,
    "header": fastapi.Header,
    "body": fastapi.Body,
}


def main() -> int:
    models = [each for each in _models(BaseModel) if each.__module__.startswith("mcpx.admin")]
    for model in models:
        _describe(model)
    for model in models * 3:  # A model contains the schemas of its parts.
        model.model_rebuild(force=True)
    app = FastAPI(title="mcpx admin API", version="0", openapi_url=None)
    for router in ROUTERS:
        for route in router.routes:
            _add(app, route)
    document = app.openapi()
    _complete(document)
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_text(text, encoding="utf-8")
    elif not DOCUMENT.exists() or DOCUMENT.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{DOCUMENT.name} is not what the routes say: run scripts/openapi.py\n")
        return 1
    return 0


# Models
# --------------------------------------------------------------------------------------------------


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _describe(model: type[BaseModel]) -> None:
    described = {name: text for each in model.__mro__[::-1] for name, text in _docs(each).items()}
    for name, info in model.model_fields.items():
        if name in described and info.description is None:
            info.description = described[name]
        owners = [each for each in model.__mro__ if name in vars(each).get("__annotations__", {})]
        info.examples = FIELDS.get(f"{owners[0].__name__}.{name}")


def _docs(owner: type) -> dict[str, str]:
    """The docstrings below the fields of a class, or below the aliases that they use."""
    if not owner.__module__.startswith("mcpx.admin"):
        return {}
    module = inspect.getmodule(owner)
    assert module is not None
    tree = ast.parse(inspect.getsource(module))
    aliases = _texts(ast.parse(inspect.getsource(sys.modules["mcpx.admin.shapes.common"])))
    aliases |= _texts(tree)
    (node,) = (
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef) and each.name == owner.__name__
    )
    found = _texts(node)
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            words = {part.id for part in ast.walk(each.annotation) if isinstance(part, ast.Name)}
            for alias in ("Entry", "Message", "Replica"):
                if alias in words and alias in aliases:
                    found.setdefault(ast.unparse(each.target), aliases[alias])
    return found


def _texts(node: ast.Module | ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for target, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            if isinstance(target, ast.AnnAssign):
                found[ast.unparse(target.target)] = inspect.cleandoc(str(text.value.value))
            elif isinstance(target, ast.Assign):
                found[ast.unparse(target.targets[0])] = inspect.cleandoc(str(text.value.value))
    return {name: " ".join(text.split("\n")) for name, text in found.items()}


# Routes
# --------------------------------------------------------------------------------------------------


def _add(app: FastAPI, route: Route) -> None:
    returned = get_type_hints(route.handler)["return"]
    answers: dict[int | str, dict[str, Any]] = {
        status: {
            "description": CODES[status][1],
            "content": {
                "application/json": {"schema": {"$ref": SCHEMA.format(model="ErrorAnswer")}}
            },
        }
        for status in (*ALWAYS, *route.errors)
    }
    if route.status == 201 and Preview in get_args(returned):
        answers[200] = {"model": Preview, "description": "A dry run."}
    if route.events is not None:
        model, description = route.events
        schema = {"$ref": SCHEMA.format(model=model.__name__)}
        content = {EventStream.media_type: {"schema": schema}}
        answers[200] = {"description": description, "content": content}

    async def endpoint(**_: Any) -> None: ...

    endpoint.__doc__ = route.handler.__doc__
    endpoint.__signature__ = inspect.Signature(list(_parameters(route)))  # pyright: ignore[reportFunctionMemberAccess]
    model = route.model or (None if returned in (EventStream, type(None)) else returned)
    app.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=route.handler.__name__,
        tags=[route.tag],
        status_code=route.status,
        response_model=model,
        responses=answers,
    )


def _parameters(route: Route) -> Iterator[inspect.Parameter]:
    signature = inspect.signature(route.handler)
    hints = get_type_hints(route.handler, include_extras=True)
    for parameter in signature.parameters.values():
        hint = hints[parameter.name]
        if hint is ApiRequest:
            continue
        if not is_dataclass(hint):
            yield _parameter(route, parameter.name, hint, parameter.default, None)
            continue
        inner = get_type_hints(hint, include_extras=True)
        docs = _docs(hint)  # pyright: ignore[reportArgumentType]
        for each in fields(hint):
            yield _parameter(route, each.name, inner[each.name], each.default, docs[each.name])


def _parameter(
    route: Route, name: str, hint: Any, default: Any, description: str | None
) -> inspect.Parameter:
    source, alias = source_of(name, hint, route.path)
    more: dict[str, Any] = {} if description is None else {"description": description}
    kind, constraints = hint, list[Any]()
    if get_origin(hint) is Annotated:
        kind, *metadata = get_args(hint)
        for info in [each for each in metadata if isinstance(each, FieldInfo)]:
            constraints += info.metadata
            if info.description is not None:
                more["description"] = info.description
    if source == "query" and alias != name:
        more["alias"] = alias
    if source == "body" and route.path in BODIES:
        more["examples"] = BODIES[route.path]
    if source == "body" and kind == dict[str, Any]:
        texts = _texts(ast.parse(inspect.getsource(sys.modules["mcpx.admin.shapes.common"])))
        more["description"] = texts["Entry"]
    elif source == "body":
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
        )
    make: Callable[..., Any] = SOURCES[source]
    annotation = Annotated[(kind, *constraints, make(**more))]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _complete(document: dict[str, Any]) -> None:
    """Add the shapes of events and errors, which no route returns."""
    events = [route.events for router in ROUTERS for route in router.routes]
    shapes = [ErrorAnswer, *[each[0] for each in events if each is not None]]
    _, found = models_json_schema(
        [(shape, "serialization") for shape in shapes], ref_template=SCHEMA
    )
    schemas = document["components"]["schemas"]
    for name, schema in found["$defs"].items():
        for field in schema.get("properties", {}).values():
            if field.get("default", ...) is None:
                del field["default"]  # FastAPI omits it, too.
        schemas.setdefault(name, schema)
    operations = [each for path in document["paths"].values() for each in path.values()]
    for operation in operations:
        content = operation["responses"].get("200", {}).get("content", {})
        if EventStream.media_type in content and content.get("application/json") == {"schema": {}}:
            del content["application/json"]  # The route sends only events.


if __name__ == "__main__":
    sys.exit(main())
