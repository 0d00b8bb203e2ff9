"""Imports operations of an OpenAPI document as HTTP commands (SRC-7).

Every chosen operation becomes a command or is skipped with a reason. Command names are unique and
valid for clients. Descriptions and schemas are shortened until a configuration can hold them.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mcpx.imports.imported import Imported, config_value, fits, refuse_too_much
from mcpx.imports.openapi_document import (
    Document,
    NoServer,
    fetch_document,
    given_url,
    is_private,
    parse_document,
)
from mcpx.imports.openapi_request import Arguments, Request, Skipped
from mcpx.imports.openapi_schema import Detail, checkable
from mcpx.imports.openapi_security import Security
from mcpx.imports.source import UniqueNames, clean, joined, one_line, safe_name
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
READ_METHODS = ("get", "head", "options")
DETAILS = (
    Detail(8, 400, 1_200),
    Detail(5, 120, 600),
    Detail(3, 40, 300),
    Detail(2, 16, 160),
    Detail(1, 6, 50),
)
"""From full descriptions to names and types only."""


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    """`operationId`, or an empty text."""
    name: str
    """The name of the command."""
    method: str
    path: str
    tags: tuple[str, ...]
    deprecated: bool
    summary: str
    raw: Json
    path_item: Json

    @property
    def title(self) -> str:
        return f"{self.method.upper()} {self.path}"

    def row(self) -> Json:
        return {
            "name": self.name,
            "method": self.method.upper(),
            "path": self.path,
            "operation_id": self.id or None,
            "tags": list(self.tags),
            "deprecated": self.deprecated,
            "summary": one_line(self.summary, 200),
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """Chooses operations. Without patterns, all operations that are not deprecated."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    """Patterns of ids, of names, and of `GET /path`."""
    tags: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    deprecated: bool = False
    ids: frozenset[str] | None = None
    """Ids or titles. If set, exactly these operations are chosen."""

    def refusal(self, operation: Operation) -> str:
        """The reason why an operation is not chosen."""
        names = [name for name in (operation.id, operation.name, operation.title) if name]
        if self.ids is not None:
            return "" if self.ids.intersection(names) else "not picked"
        if self.only and not _matches(names, self.only):
            return "not picked by --only"
        if self.tags and not _matches(operation.tags, self.tags):
            return "not picked by --tag"
        if self.methods and not _matches([operation.method], self.methods):
            return "not picked by --method"
        if _matches(names, self.skip):
            return "left out by --skip"
        if operation.deprecated and not self.deprecated and operation.id not in self.only:
            return "deprecated; --deprecated takes it too"
        return ""


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns for name in names)


@dataclass(frozen=True, slots=True)
class OpenApiOptions:
    choice: Choice = Choice()
    server: str | None = None
    """Replaces the server of the document."""
    auth: str | None = None
    """Name of the user's auth config for all commands."""
    prefix: str = ""
    allow_private: bool = False


async def preview_openapi(
    *,
    text: str | None = None,
    url: str | None = None,
    environ: Mapping[str, str] | None = None,
    allow_private: bool = False,
    pick: Sequence[str] | None = None,
    prefix: str = "",
    server: str | None = None,
) -> Json:
    """The operations of a document, and the entries for the operations in `pick`."""
    if text is None and url is not None:
        document = await fetch_document(url, environ or {}, allow_private)
    else:
        document = await asyncio.to_thread(parse_document, text or "", Path("document"))
    choice = Choice(ids=frozenset(pick or ()))
    options = OpenApiOptions(choice, server, None, prefix, allow_private)
    found = operations(document, prefix)
    made = Imported()
    if pick is not None:
        made = await asyncio.to_thread(import_openapi, document, options)
    ids = Counter(each.id for each in found)
    rows: list[Json] = []
    for each in found:
        row = each.row()
        del row["name"], row["operation_id"], row["deprecated"]
        row["id"] = each.id if each.id and ids[each.id] == 1 else each.title
        row["read_only"] = each.method in READ_METHODS
        rows.append(row)
    title = one_line(document.title, 200)
    return {"title": title, "operations": rows, **made.preview(hidden="not picked")}


def operations(document: Document, prefix: str = "") -> list[Operation]:
    names = UniqueNames()
    found: list[Operation] = []
    for path, path_item, method, raw in _raw_operations(document):
        given = raw.get("operationId")
        id = given if isinstance(given, str) else ""
        base = safe_name(id) or safe_name(f"{method}_{path}") or method
        found.append(
            Operation(
                id=id,
                name=names.take(safe_name(prefix + base)),
                method=method,
                path=path,
                tags=tuple(tag for tag in as_list(raw.get("tags"))[:50] if isinstance(tag, str)),
                deprecated=raw.get("deprecated") is True,
                summary=joined(raw.get("summary") or raw.get("description"), limit=200),
                raw=raw,
                path_item=path_item,
            )
        )
    return found


def _raw_operations(document: Document) -> Iterator[tuple[str, Json, str, Json]]:
    for path, given in as_object(document.tree.get("paths")).items():
        path_item = {**document.resolved_or_empty(given), **as_object(given)}
        for method in METHODS:
            if method in path_item and path.startswith("/"):
                yield path, path_item, method, as_object(path_item[method])


def import_openapi(document: Document, options: OpenApiOptions) -> Imported:
    """Raises ConfigError if `options.server` cannot be used or the result is too large."""
    server = None
    if options.server is not None:
        try:
            server = given_url(options.server)
        except NoServer as reason:
            raise ConfigError([f"error: --server: {reason}"]) from None
    chosen: list[Operation] = []
    skipped: list[tuple[str, str]] = []
    for operation in operations(document, options.prefix):
        reason = options.choice.refusal(operation)
        if not reason and operation.method == "trace":
            reason = "mcpx does not send TRACE"
        if reason:
            skipped.append((operation.title, reason))
        else:
            chosen.append(operation)
    made = Imported()
    for detail in DETAILS:
        made = _OpenApiImport(document, options, server, detail).run(chosen)
        made.shortened = detail is not DETAILS[0]
        if fits(made):
            break
    else:
        refuse_too_much(made)
    made.skipped[:0] = skipped
    return made


class _OpenApiImport:
    def __init__(
        self, document: Document, options: OpenApiOptions, server: str | None, detail: Detail
    ) -> None:
        self._document, self._options = document, options
        self._server, self._detail = server, detail
        self._made = Imported()
        self._arguments = Arguments(document, detail)
        self._security = Security(document, self._made, options.prefix)

    def run(self, chosen: Sequence[Operation]) -> Imported:
        made = self._made
        private_origins: set[str] = set()
        for operation in chosen:
            try:
                command = self._command(operation)
            except (Skipped, NoServer) as reason:
                made.skipped.append((operation.title, str(reason)))
                continue
            url = command["http"]["url"]
            if is_private(url):
                private_origins.add("/".join(url.split("/")[:3]))
            made.commands.append(config_value(command))
        made.auths = config_value(made.auths)
        if private_origins and not self._options.allow_private:
            shown = one_line(", ".join(sorted(private_origins)), 100)
            note = f"{shown} is a private address: --allow-private lets its commands reach it"
            made.notes.append(note)
        return made

    def _command(self, operation: Operation) -> Json:
        raw = operation.raw
        request = self._request(operation)
        url = self._server
        if url is None:
            levels = (raw, operation.path_item, self._document.tree)
            url = self._document.server_url([level.get("servers") for level in levels])
        http: Json = {"method": operation.method.upper(), "url": url + request.path}
        http |= request.fields()
        auth, reason = self._options.auth, ""
        if auth is None:
            auth, reason = self._security.auth_of(raw)
        if auth is not None:
            http["auth"] = {"ref": auth}
        response_format = self._response_format(raw)
        if response_format != "json":
            http["response_format"] = response_format
        if self._options.allow_private:
            http["allow_private"] = True
        text = joined(raw.get("summary"), raw.get("description"), limit=self._detail.text)
        command: Json = {
            "name": operation.name,
            "description": text or one_line(operation.title),
            "type": "http",
            "http": http,
        }
        notes = [*request.notes, reason]
        if request.properties:
            command["input_schema"], note = checkable(request.schema)
            notes.append(note)
        self._made.notes += [f"{operation.title}: {note}" for note in notes if note]
        return command

    def _request(self, operation: Operation) -> Request:
        request = Request(operation.path.partition("#")[0])
        levels = (operation.path_item, operation.raw)
        self._arguments.add_parameters(request, *[each.get("parameters") for each in levels])
        for written in dict.fromkeys(re.findall(r"\{([^{}]*)\}", request.path)):
            if written not in request.properties:
                placeholder = request.take(written, "path", {"type": "string"}, True)
                request.path = request.path.replace(f"{{{written}}}", placeholder)
        rest = re.sub(r"\{[^{}]+\}", "", request.path)
        if re.search(r"[{}\s]", rest) or clean(request.path) != request.path:
            raise Skipped("its path cannot be understood")
        if operation.method != "head":
            self._arguments.add_body(request, operation.raw)
        return request

    def _response_format(self, operation: Json) -> str:
        """The format of the successful responses. JSON if the document does not name it."""
        kinds: list[str] = []
        for status, given in as_object(operation.get("responses")).items():
            if status.startswith("2") or status == "default":
                kinds += as_object(self._document.resolved_or_empty(given).get("content"))
        plain = [kind.partition(";")[0].strip().lower() for kind in kinds]
        if not plain or any("json" in kind or kind == "*/*" for kind in plain):
            return "json"
        if any(kind.endswith(("/xml", "+xml")) for kind in plain):
            return "xml"
        return "text"
