"""What the library hands out: frozen values, each with the raw JSON it was made of.

Made of messages of MCP alone, so that whoever speaks to a running gateway makes the same ones.
Nothing is validated: what a server sent wrongly reads as absent, and stands in `raw` as it came.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mcpx.model.call import Json, as_list, as_object

COMMANDS = "commands"
"""The server that local commands belong to: they carry no mark, for they come from no server
(NAM-3)."""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    """The public name, by which it is called."""
    server: str
    tool: str
    """What its server itself calls it; `SERVER.TOOL` names it too."""
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    read_only: bool | None
    """What the server says of it; None: nothing."""
    destructive: bool | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> "Tool":
        hints, (server, own) = as_object(raw.get("annotations")), _origin(raw, "name")
        output = raw.get("outputSchema")
        return cls(
            name=_text(raw.get("name")),
            server=server,
            tool=own,
            title=_text(raw.get("title")) or _text(hints.get("title")),
            description=_text(raw.get("description")),
            input_schema=as_object(raw.get("inputSchema")),
            output_schema=as_object(output) if isinstance(output, dict) else None,
            read_only=_flag(hints.get("readOnlyHint")),
            destructive=_flag(hints.get("destructiveHint")),
            raw=raw,
        )

    @property
    def path(self) -> str:
        """As people write it: `SERVER.TOOL`."""
        return f"{self.server}.{self.tool}"


@dataclass(frozen=True, slots=True)
class Found:
    """A tool that a search has found."""

    tool: Tool
    score: float
    strong: bool
    """It says what was asked for; else it only shares some words with it."""


@dataclass(frozen=True, slots=True)
class Description:
    """A tool as a model is told of it."""

    tool: Tool
    signature: str
    """How it is called, in TypeScript: `fs.read({path: string, head?: number})`."""
    text: str
    """Signature and description."""


@dataclass(frozen=True, slots=True)
class Content:
    """One block of a result."""

    type: str
    """`text`, `image`, `audio`, `resource`, `resource_link`, or what comes to be."""
    text: str
    """Of a text, and of a resource that is one; else empty."""
    data: bytes
    """Of an image, of audio, and of a resource that is no text; else empty."""
    mime_type: str
    uri: str
    """Of a resource and of a link to one."""
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> "Content":
        kind = _text(raw.get("type"))
        inner = as_object(raw.get("resource")) if kind == "resource" else raw
        data = inner.get("blob") if kind == "resource" else inner.get("data")
        return cls(
            type=kind,
            text=_text(inner.get("text")),
            data=_bytes(data),
            mime_type=_text(inner.get("mimeType")),
            uri=_text(inner.get("uri")),
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What a call came to. A tool that failed has answered, too: `is_error` says so, and no
    exception is raised."""

    content: Sequence[Content]
    structured: Any
    """`structuredContent`, where the tool has sent some; else None."""
    is_error: bool
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> "Result":
        content = tuple(Content.of(as_object(block)) for block in as_list(raw.get("content")))
        return cls(content, raw.get("structuredContent"), raw.get("isError") is True, raw)

    @property
    def text(self) -> str:
        """All texts in it, one below the other."""
        return "\n".join(block.text for block in self.content if block.text)

    @property
    def value(self) -> Any:
        """What a program wants: structured content, else the JSON that a single text holds, else
        the text."""
        if self.structured is not None:
            return self.structured
        text = self.text
        if text[:1] in ("{", "["):
            try:
                return json.loads(text)
            except ValueError:
                pass
        return text


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, or a template of many: then `uri` has parts in braces."""

    uri: str
    """By which it is read here."""
    server: str
    own_uri: str
    """What its server itself calls it."""
    name: str
    description: str
    mime_type: str
    size: int | None
    is_template: bool
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: Json, *, template: bool = False) -> "Resource":
        key = "uriTemplate" if template else "uri"
        uri, size = _text(raw.get(key)), raw.get("size")
        server, own = _origin(raw, key, "originalUri")
        return cls(
            uri=uri,
            server=server,
            own_uri=own,
            name=_text(raw.get("title")) or _text(raw.get("name")),
            description=_text(raw.get("description")),
            mime_type=_text(raw.get("mimeType")),
            size=size if isinstance(size, int) else None,
            is_template=template,
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    server: str
    prompt: str
    """What its server itself calls it."""
    description: str
    arguments: Sequence["PromptArgument"]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> "Prompt":
        server, own = _origin(raw, "name")
        arguments = [as_object(each) for each in as_list(raw.get("arguments"))]
        return cls(
            name=_text(raw.get("name")),
            server=server,
            prompt=own,
            description=_text(raw.get("description")),
            arguments=tuple(
                PromptArgument(
                    _text(each.get("name")),
                    _text(each.get("description")),
                    each.get("required") is True,
                )
                for each in arguments
            ),
            raw=raw,
        )

    @property
    def path(self) -> str:
        return f"{self.server}.{self.prompt}"


@dataclass(frozen=True, slots=True)
class PromptArgument:
    name: str
    description: str
    required: bool


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt that was filled in."""

    role: str
    content: Content

    @classmethod
    def of(cls, raw: Json) -> "Message":
        return cls(_text(raw.get("role")), Content.of(as_object(raw.get("content"))))


@dataclass(frozen=True, slots=True)
class Health:
    """How a server is."""

    name: str
    status: str
    """`connected`, `connecting`, `degraded`, `sleeping`, `disconnected`, `needs_auth` or
    `disabled`."""
    since: str
    """In UTC; of one that fails: since when it does."""
    last_error: str | None
    tools: int
    latency_ms: float | None
    restarts: int
    auth_url: str | None
    """Where somebody has to sign in."""
    description: str
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: Json) -> "Health":
        latency = raw.get("latency_ms")
        return cls(
            name=_text(raw.get("name")),
            status=_text(raw.get("status")),
            since=_text(raw.get("since")),
            last_error=_text(raw.get("last_error")) or None,
            tools=int(raw.get("tools") or 0),
            latency_ms=float(latency) if isinstance(latency, int | float) else None,
            restarts=int(raw.get("restarts") or 0),
            auth_url=_text(raw.get("auth_url")) or None,
            description=_text(raw.get("description")),
            raw=raw,
        )

    @property
    def healthy(self) -> bool:
        """It answers, or would if somebody called it."""
        return self.status in ("connected", "sleeping")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is."""

    progress: float
    total: float | None
    message: str

    @classmethod
    def of(cls, params: Json) -> "Progress":
        done, total = params.get("progress"), params.get("total")
        return cls(
            float(done) if isinstance(done, int | float) else 0.0,
            float(total) if isinstance(total, int | float) else None,
            _text(params.get("message")),
        )


@dataclass(frozen=True, slots=True)
class Question:
    """What a server asks while a call runs: `sampling/createMessage` or `elicitation/create`."""

    server: str
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """Something is not what it was: a list, or how a server is."""

    what: Literal["tools", "prompts", "resources", "server"]
    server: str | None
    """None: several, or nobody in particular."""


def _origin(raw: Json, key: str, own: str = "name") -> tuple[str, str]:
    """Whose it is, and what that server calls it (NAM-3)."""
    proxy = as_object(as_object(raw.get("_meta")).get("proxy"))
    return _text(proxy.get("server")) or COMMANDS, _text(proxy.get(own)) or _text(raw.get(key))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _bytes(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=False) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""
