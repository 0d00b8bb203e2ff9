"""docs/rest.md: the admin API, from `src/mcpx/admin/openapi.json`, which is made of the program."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mcpx.formats.typescript import type_text

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("get", "post", "put", "patch", "delete")
ORDER = (
    "Session",
    "Watching",
    "MCP servers",
    "Tools",
    "Commands",
    "Auth configs",
    "Profiles and policy",
    "Tokens",
)
"""Groups that come first; the others follow as the document has them."""
COMMON = ("400", "401", "403", "413", "415", "422", "429")
"""Answers that any request may get."""
EVERYWHERE = ("x-mcpx-via", "x-mcpx-author", "if-match", "message", "dry_run", "force")
"""Parameters of every change, told once."""

INTRO = """\
# REST API

*Generated from the program's own OpenAPI document by `scripts/references.py`.*

What the [admin UI](admin.md) does, a program can do: the pages use nothing else. `mcpx --admin` serves it at
`http://127.0.0.1:8080/api`. The same as a document for tools: `GET /api/openapi.json`, and `src/mcpx/admin/openapi.json` in the repository.

```console
$ curl -s -H "Authorization: Bearer $MCPX_ADMIN_TOKEN" http://127.0.0.1:8080/api/mcp-servers
```

Every request shows a token (`Authorization: Bearer …`, from `MCPX_ADMIN_TOKEN` or `server.admin_token`) or a browser's session.
An error is `{"error": {"code", "message", "path", "hint"}}`, with `errors` where there are several.

Literal secrets of the configuration are shown as masks: `••••••••` and eight hexadecimal digits that name the secret. If a request
contains a mask, the stored secret is kept. `••••••••` alone keeps the value at the same place ([admin UI](admin.md)).
"""


def pages() -> Mapping[str, str]:
    document = json.loads(
        (ROOT / "src" / "mcpx" / "admin" / "openapi.json").read_text(encoding="utf-8")
    )
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    ]
    groups: dict[str, list[tuple[str, str, Any]]] = {name: [] for name in ORDER}
    for operation in sorted(operations, key=lambda each: (each[1], METHODS.index(each[0]))):
        groups.setdefault(operation[2]["tags"][0], []).append(operation)
    shared = _shared(operations)
    parts = [INTRO, *_answers(operations), *_changes(operations), *_index(groups)]
    for name, inside in groups.items():
        parts.append(f"## {name}\n")
        for method, path, operation in inside:
            parts += _operation(method, path, operation, document, shared)
    parts.append("## Shapes\n\nWhat several requests answer with.\n")
    for name in shared:
        shape = {"$ref": f"#/components/schemas/{name}"}
        parts.append(f"### {name}\n\n```ts\n{_folded(_type(shape, document))}\n```\n")
    return {"rest.md": "\n".join(parts).rstrip() + "\n"}


def _names(schema: Any) -> list[str]:
    """The shapes that an answer is one of; nothing where it is more than names."""
    options = schema.get("anyOf", [schema])
    return (
        [o["$ref"].rsplit("/", 1)[1] for o in options] if all("$ref" in o for o in options) else []
    )


def _shared(operations: list[tuple[str, str, Any]]) -> list[str]:
    """Shapes of answers that come more than once."""
    seen: list[str] = []
    for _, _, operation in operations:
        schemas = [
            a.get("content", {}).get("application/json", {}).get("schema")
            for s, a in operation["responses"].items()
            if s < "300"
        ]
        seen += {name for schema in schemas if schema for name in _names(schema)}
    return sorted({name for name in seen if seen.count(name) > 1})


def anchor(method: str, path: str) -> str:
    """What a heading's link is, the same in the repository and on the site."""
    return f"{method}-" + "".join(c for c in path.lower() if c.isalnum() or c in "-_")


def _answers(operations: list[tuple[str, str, Any]]) -> Iterator[str]:
    told: dict[str, str] = {}
    for _, _, operation in operations:
        for status, answer in operation["responses"].items():
            if status >= "300":
                told.setdefault(status, answer["description"])
    yield "| status | meaning |\n|---|---|"
    for status, meaning in sorted(told.items()):
        yield f"| {status} | {meaning} |"
    yield f"\nAny request may get {', '.join(COMMON)}; below stand the others.\n"


def _changes(operations: list[tuple[str, str, Any]]) -> Iterator[str]:
    yield (
        "Requests that change the configuration (marked ✎) take these as well:\n\n| in | name | "
        "meaning |\n|---|---|---|"
    )
    found = {
        p["name"]: p for _, _, operation in operations for p in operation.get("parameters", ())
    }
    for name in EVERYWHERE:
        if name in found:
            yield f"| {found[name]['in']} | `{name}` | {found[name].get('description', '')} |"
    yield ""


def _index(groups: Mapping[str, list[tuple[str, str, Any]]]) -> Iterator[str]:
    yield "| | request | what it does |\n|---|---|---|"
    for name, inside in groups.items():
        for at, (method, path, operation) in enumerate(inside):
            link = f"[`{method.upper()} {path}`](#{anchor(method, path)})"
            yield f"| {name if at == 0 else ''} | {link} | {_sentence(operation)} |"
    yield ""


def _sentence(operation: Any) -> str:
    return _told(operation).split("\n")[0].replace("|", "\\|")


def _told(operation: Any) -> str:
    return re.sub(r" \([A-Z]{3}-\d+\)", "", operation.get("description", operation["summary"]))


def _operation(
    method: str, path: str, operation: Any, document: Any, shared: list[str]
) -> Iterator[str]:
    parameters = [p for p in operation.get("parameters", ()) if p["name"] not in EVERYWHERE]
    changes = any(p["name"] == "if-match" for p in operation.get("parameters", ()))
    yield f"### {method.upper()} {path}\n"
    yield _told(operation) + (" ✎" if changes else "") + "\n"
    if parameters:
        yield "| in | name | type | meaning |\n|---|---|---|---|"
        for given in parameters:
            schema = given.get("schema", {})
            default = (
                f" Default `{schema['default']}`."
                if schema.get("default") not in (None, "")
                else ""
            )
            meaning = given.get("description", "") + default
            mark = "" if given.get("required") else "?"
            yield (
                f"| {given['in']} | `{given['name']}{mark}` | "
                f"{_inline(_type(schema, document))} | {meaning.strip()} |"
            )
        yield ""
    body = (
        operation.get("requestBody", {})
        .get("content", {})
        .get("application/json", {})
        .get("schema")
    )
    if body is not None:
        yield _body(body, document)
    statuses = operation["responses"]
    for status in sorted(s for s in statuses if s < "300"):
        content = statuses[status].get("content", {})
        schema = content.get("application/json", {}).get("schema")
        if schema and (names := _names(schema)) and all(name in shared for name in names):
            yield (
                f"Answer {status}: {' or '.join(f'[{name}](#{name.lower()})' for name in names)}.\n"
            )
        elif schema:
            yield f"Answer {status}:\n\n```ts\n{_folded(_type(schema, document))}\n```\n"
        else:
            kind = next(iter(content), None)
            yield f"Answer {status}: {f'`{kind}`' if kind else 'nothing'}.\n"
    others = [s for s in sorted(statuses) if s >= "300" and s not in COMMON]
    if others:
        yield f"Also: {', '.join(others)}.\n"


def _body(schema: Any, document: Any) -> str:
    resolved = (
        document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        if "$ref" in schema
        else schema
    )
    examples = schema.get("examples") or resolved.get("examples") or ()
    described = resolved.get("description", "")
    text = f"Body{': ' + described if described else ''}\n\n"
    if not examples:
        return text + f"```ts\n{_folded(_type(schema, document))}\n```\n"
    return (
        text
        + "\n\n".join(
            f"```json\n{json.dumps(e, indent=2, ensure_ascii=False)}\n```" for e in examples
        )
        + "\n"
    )


def _type(schema: Any, document: Any) -> str:
    definitions = {
        "$defs": {name: _bare(shape) for name, shape in document["components"]["schemas"].items()}
    }
    text = json.dumps({**schema, **definitions}).replace("#/components/schemas/", "#/$defs/")
    return type_text(json.loads(text), max_description_len=120)


def _bare(shape: Any) -> Any:
    """Without the codes of sentences, which any answer may have (docs/admin.md)."""
    fields = shape.get("properties", {})
    return (
        {**shape, "properties": {name: field for name, field in fields.items() if name != "said"}}
        if fields
        else shape
    )


def _inline(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"


def _folded(text: str) -> str:
    """One line a field: of the braces, the outer ones are opened."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += _opened(line, 0)
    return "\n".join(lines)


def _opened(line: str, depth: int) -> list[str]:
    begin = line.find("{")
    if len(line) + 2 * depth <= 100 or begin < 0 or depth > 4:
        return ["  " * depth + line]
    level, inside, pieces, at, in_text = 0, begin + 1, [], begin, ""
    end = len(line)
    while at < len(line):
        c = line[at]
        if in_text:
            if line.startswith(in_text, at):
                at += len(in_text) - 1
                in_text = ""
        elif line.startswith("/*", at):
            in_text, at = "*/", at + 1
        elif c == '"':
            in_text = '"'
        elif c in "{[(<":
            level += 1
        elif c in "}])" or (c == ">" and line[at - 1] != "="):
            level -= 1
            if level == 0:
                end = at
                break
        elif c == "," and level == 1:
            pieces.append(line[inside:at].strip())
            inside = at + 1
        at += 1
    pieces.append(line[inside:end].strip())
    lines = ["  " * depth + line[: begin + 1]]
    for piece in pieces:
        lines += _opened(piece, depth + 1)
    return [*lines, "  " * depth + line[end:]]
