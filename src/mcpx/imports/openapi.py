"""The operations of an OpenAPI document as HTTP commands (SRC-7).

Promised: every operation that is picked becomes a command or a reason; names are unique and safe
for clients; what is made fits into a configuration, with descriptions and schemas cut as far as
that needs.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from mcpx.imports.arguments import Arguments, Request, Skipped
from mcpx.imports.document import BadReference, Document
from mcpx.imports.made import Imported, Reference
from mcpx.imports.names import Unique, safe
from mcpx.imports.schemas import Detail, checkable
from mcpx.imports.security import Security
from mcpx.imports.servers import NoServer, address, checked, is_private
from mcpx.imports.texts import clean, joined, one_line
from mcpx.model.call import Json, as_list, as_object

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
NOT_SENT = ("trace",)
DETAILS = (
    Detail(8, 400, 1_200),
    Detail(5, 120, 600),
    Detail(3, 40, 300),
    Detail(2, 16, 160),
    Detail(1, 6, 50),
)
"""From as much as a model can use to the bare names and types."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, as the document has it."""

    id: str
    """`operationId`; empty without one."""
    name: str
    """What the command is called."""
    method: str
    path: str
    tags: tuple[str, ...]
    deprecated: bool
    summary: str
    raw: Json
    above: Json
    """The path item it stands in."""

    @property
    def title(self) -> str:
        return f"{self.method.upper()} {self.path}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which operations are wanted; what says nothing wants all."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    """Patterns of ids, of names and of `GET /path`."""
    tags: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    deprecated: bool = False

    def refusal(self, operation: Operation) -> str | None:
        """Why an operation is not wanted."""
        if self.only and not _matches(operation, self.only):
            return "not picked by --only"
        if self.tags and not any(_matches_tag(operation, tag) for tag in self.tags):
            return "not picked by --tag"
        if self.methods and operation.method not in [method.lower() for method in self.methods]:
            return "not picked by --method"
        if _matches(operation, self.skip):
            return "left out by --skip"
        if (
            operation.deprecated
            and not self.deprecated
            and not (self.only and operation.id in self.only)
        ):
            return "deprecated; --deprecated takes it too"
        return None


def _matches(operation: Operation, patterns: Sequence[str]) -> bool:
    told = [operation.id, operation.name, operation.title]
    return any(
        fnmatchcase(text.lower(), pattern.lower()) for pattern in patterns for text in told if text
    )


def _matches_tag(operation: Operation, tag: str) -> bool:
    return any(fnmatchcase(own.lower(), tag.lower()) for own in operation.tags)


@dataclass(frozen=True, slots=True)
class Wishes:
    """How the commands are to be."""

    choice: Choice = Choice()
    server: str | None = None
    """Instead of what the document says."""
    auth: str | None = None
    """Name of the user's own auth config, for all."""
    prefix: str = ""
    allow_private: bool = False


def operations(document: Document, prefix: str = "") -> list[Operation]:
    """All there are, in their order."""
    names = Unique()
    found: list[Operation] = []
    for path, item, method, raw in _raw(document):
        given = raw.get("operationId")
        own = given if isinstance(given, str) else ""
        name = safe(prefix + (safe(own) or safe(f"{method}_{path}") or method))
        tags = tuple(tag for tag in as_list(raw.get("tags"))[:50] if isinstance(tag, str))
        told = joined(raw.get("summary") or raw.get("description"), limit=200)
        gone = raw.get("deprecated") is True
        found.append(Operation(own, names.take(name), method, path, tags, gone, told, raw, item))
    return found


def _raw(document: Document) -> Iterator[tuple[str, Json, str, Json]]:
    for path, given in as_object(document.tree.get("paths")).items():
        try:
            item = {**document.resolved(given), **as_object(given)}
        except BadReference:
            continue
        for method in METHODS:
            if method in item and path.startswith("/"):
                yield path, item, method, as_object(item[method])


def import_openapi(
    document: Document, wishes: Wishes, fits: Callable[[Imported], bool]
) -> Imported:
    """`fits`: whether a configuration can hold it. Raises `NoServer` where `wishes.server` cannot
    be used."""
    server = None if wishes.server is None else checked(wishes.server)
    wanted: list[Operation] = []
    skipped: list[tuple[str, str]] = []
    for operation in operations(document, wishes.prefix):
        reason = wishes.choice.refusal(operation)
        if reason is None and operation.method in NOT_SENT:
            reason = f"mcpx does not send {operation.method.upper()}"
        if reason is None:
            wanted.append(operation)
        else:
            skipped.append((operation.title, reason))
    made = Imported()
    for detail in DETAILS:
        made = _Import(document, wishes, server, detail).run(wanted)
        made.shortened = detail is not DETAILS[0]
        if fits(made):
            break
    made.skipped[:0] = skipped
    return made


class _Import:
    def __init__(
        self, document: Document, wishes: Wishes, server: str | None, detail: Detail
    ) -> None:
        self._document, self._wishes, self._server, self._detail = document, wishes, server, detail
        self._made = Imported()
        self._arguments = Arguments(document, detail)
        self._security = Security(document, self._made, wishes.prefix)

    def run(self, wanted: Sequence[Operation]) -> Imported:
        private: set[str] = set()
        for operation in wanted:
            try:
                command = self._command(operation)
            except (Skipped, NoServer) as reason:
                self._made.skipped.append((operation.title, str(reason)))
                continue
            self._made.commands.append(command)
            if is_private(url := command["http"]["url"]):
                private.add("/".join(url.split("/")[:3]))
        if private and not self._wishes.allow_private:
            told = one_line(", ".join(sorted(private)), 100)
            self._made.notes.append(
                f"{told} is a private address: --allow-private lets its commands reach it"
            )
        return self._made

    def _command(self, operation: Operation) -> Json:
        raw, above = operation.raw, operation.above
        servers = (raw.get("servers"), above.get("servers"), self._document.tree.get("servers"))
        server = address(servers, self._document.url) if self._server is None else self._server
        request = Request(operation.path.partition("#")[0])
        self._arguments.parameters(request, above.get("parameters"), raw.get("parameters"))
        _fill_path(request)
        if operation.method != "head":
            self._arguments.body(request, raw)
        auth, reason = (
            (self._wishes.auth, None) if self._wishes.auth is not None else self._security.of(raw)
        )
        schema, less = checkable(request.schema) if request.properties else (None, None)
        notes = [*request.notes, *filter(None, (reason, less))]
        self._made.notes += [f"{operation.title}: {note}" for note in notes]
        http: Json = {"method": operation.method.upper(), "url": _url(server, request.path)}
        for key, value in (("params", request.params), ("headers", request.headers)):
            if value:
                http[key] = value
        if request.body is not None:
            http["body"] = request.body
        if request.body_format is not None:
            http["body_format"] = request.body_format
        if auth is not None:
            http["auth"] = {"ref": auth}
        if (answers := _response_format(self._document, raw)) != "json":
            http["response_format"] = answers
        if self._wishes.allow_private:
            http["allow_private"] = True
        told = joined(raw.get("summary"), raw.get("description"), limit=self._detail.text)
        return {
            "name": operation.name,
            "description": told or one_line(operation.title),
            "type": "http",
            "http": http,
            **({"input_schema": schema} if schema is not None else {}),
        }


def _fill_path(request: Request) -> None:
    """Whatever of a path is to be filled has an argument, told by the document or not."""
    for written in dict.fromkeys(re.findall(r"\{([^{}]*)\}", request.path)):
        if written not in request.properties:
            stands_for = request.take(written, "path", {"type": "string"}, True)
            request.path = request.path.replace(f"{{{written}}}", stands_for)
    left = re.sub(r"\{[^{}]+\}", "", request.path)
    if (
        "{" in left
        or "}" in left
        or clean(request.path) != request.path
        or re.search(r"\s", request.path)
    ):
        raise Skipped("its path cannot be understood")


def _url(server: str, path: str) -> str:
    url = f"{server}{path.replace('$', '$$') if isinstance(server, Reference) else path}"
    return Reference(url) if isinstance(server, Reference) else url


def _response_format(document: Document, operation: Json) -> str:
    """Of its good answers; JSON where nothing is told."""
    kinds: list[str] = []
    for status, given in as_object(operation.get("responses")).items():
        if status.startswith("2") or status == "default":
            try:
                kinds += as_object(document.resolved(given).get("content"))
            except BadReference:
                continue
    plain = [kind.partition(";")[0].strip().lower() for kind in kinds]
    if not plain or any("json" in kind or kind == "*/*" for kind in plain):
        return "json"
    return "xml" if any(kind.endswith(("/xml", "+xml")) for kind in plain) else "text"


def summary(operation: Operation) -> dict[str, Any]:
    """As `--list` tells it."""
    return {
        "name": operation.name,
        "method": operation.method.upper(),
        "path": operation.path,
        "operation_id": operation.id or None,
        "tags": list(operation.tags),
        "deprecated": operation.deprecated,
        "summary": one_line(operation.summary, 200),
    }
