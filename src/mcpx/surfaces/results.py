"""A server's result as a compact surface passes it on: text made short, large text kept back (SUR-7, SUR-8, SUR-11).

Promised: blocks stay in their order, everything but text is untouched, `isError`, `_meta` and unknown fields stay.
Text is rendered anew only where it certainly is data: JSON on one line, or JSON that says the same as the server's own
`structuredContent`. A text of several lines may be a file that somebody wants to edit; it stays as it is.
"""

import re
from collections.abc import Callable
from typing import Any, cast

import orjson

from mcpx.formats.values import render
from mcpx.model.call import Caller, Json, as_object
from mcpx.surfaces.large.kept import KeptResults
from mcpx.surfaces.large.preview import NOT_JSON, Preview, preview
from mcpx.surfaces.settings import Rendering
from mcpx.wire import codec

PREVIEW_BYTES = 2_000
CLAIMED = 100
"""Characters of a client's name that tell it from others."""
DEEPEST = 250
"""Levels of nesting up to which a text is taken for data: what is deeper can hardly be written again."""
_SPACE = " \t\r\n"
_ENDS = {"{": "}", "[": "]", '"': '"'}
_SCALAR = re.compile(r"true|false|null|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def owner_of(caller: Caller) -> str:
    """To whom a kept result belongs. Modern clients have no session: who they say they are is all there is."""
    if caller.session is not None:
        return caller.session
    claims = (str(caller.client.get(key, ""))[:CLAIMED] for key in ("name", "version"))
    return "\0".join((caller.principal, *claims))


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def shaped(result: Json, how: Rendering, kept: KeptResults, owner: str, go_on: Callable[[str, Preview], str]) -> Json:
    """`go_on` says how a handle is read through this surface."""
    content: Any = result.get("content")
    own = result.get("structuredContent")
    if "structuredContent" not in result and _is_plain(content, how.result_limit):
        return result
    shape = _Shaping(how, kept, owner, go_on)
    shown = {key: value for key, value in result.items() if key != "structuredContent"}
    if isinstance(content, list):
        shown["content"] = shape.blocks(cast(list[Any], content), own)
    structured = shape.kept_back or (shape.derived if own is None else own)
    if structured is not None and how.structured:
        shown["structuredContent"] = structured
    return shown


class _Text:
    """One text block: as it came, as it is shown, and its value if it is JSON."""

    __slots__ = ("raw", "rendered", "size", "value")

    def __init__(self, raw: str, rendered: str, value: object) -> None:
        self.raw = raw
        self.rendered = rendered
        self.value = value
        self.size = _size(rendered)


class _Shaping:
    """The work on one result."""

    __slots__ = ("_go_on", "_how", "_kept", "_owner", "derived", "kept_back")

    def __init__(self, how: Rendering, kept: KeptResults, owner: str, go_on: Callable[[str, Preview], str]) -> None:
        self._how = how
        self._kept = kept
        self._owner = owner
        self._go_on = go_on
        self.derived: Json | None = None
        """What a result of one JSON text says, for programs."""
        self.kept_back: Json | None = None
        """Handle, size, shape and preview of what was kept back."""

    def blocks(self, content: list[Any], own: Any) -> list[Any]:
        limit = self._how.result_limit
        texts: list[_Text | None] = []
        for block in content:
            text = _text_of(block)
            texts.append(None if text is None else self._rendered(text, own, alone=len(content) == 1))
        sizes = [text.size for text in texts if text is not None]
        large = [size for size in sizes if size > limit]
        if len(large) > 1 or sum(sizes) - sum(large) > limit:
            return self._joined(content)
        return [block if text is None else self._shown(block, text) for block, text in zip(content, texts, strict=True)]

    def _shown(self, block: Json, text: "_Text") -> Json:
        if text.size > self._how.result_limit:
            return {**block, "text": self._keep(text.raw, text.value)}
        return block if text.rendered is text.raw else {**block, "text": text.rendered}

    def _rendered(self, text: str, own: Any, *, alone: bool) -> "_Text":
        plain = _Text(text, text, NOT_JSON)
        bare = text.strip(_SPACE)
        if not _may_be_json(bare):
            return plain
        one_line = "\n" not in bare
        if not one_line and not alone and own is None:
            return plain
        try:
            value = codec.load(text.encode(), strict=True)
        except (codec.BadJson, UnicodeEncodeError):
            return plain
        if text.count("[") + text.count("{") > DEEPEST and _too_deep(value):
            return plain
        if alone and own is None:
            self.derived = cast(Json, value) if isinstance(value, dict) else {"result": value}
        if not isinstance(value, (dict, list)) or not (one_line or value == own or as_object(own) == {"result": value}):
            return _Text(text, text, cast(object, value))
        rendered = render(cast(object, value), toon=self._how.toon, min_size=self._how.toon_min_size)
        return _Text(text, rendered if len(rendered) < len(text) else text, cast(object, value))

    def _joined(self, content: list[Any]) -> list[Any]:
        """Many texts, all together too long: they are kept as one, where the first one stood."""
        texts = [text for block in content if (text := _text_of(block)) is not None]
        first = next(index for index, block in enumerate(content) if _text_of(block) is not None)
        others = [block for block in content if _text_of(block) is None]
        return [*others[:first], said(self._keep("\n".join(texts), NOT_JSON)), *others[first:]]

    def _keep(self, text: str, value: object) -> str:
        how = self._how
        raw = text.encode("utf-8", "replace")
        handle = self._kept.keep(self._owner, raw)
        at_most = min(PREVIEW_BYTES, how.result_limit)
        begins = preview(text, value, max_bytes=at_most, toon=how.toon, min_size=how.toon_min_size)
        if self.kept_back is None:
            self.kept_back = {
                "handle": handle,
                "total_bytes": len(raw),
                "shape": begins.shape,
                "preview": begins.text,
            }
        return f"{begins.text}\n\n[cut: {len(raw):,} bytes in all, {begins.shape}. {self._go_on(handle, begins)}]"


def _text_of(block: Any) -> str | None:
    if isinstance(block, dict):
        fields = cast(Json, block)
        if fields.get("type") == "text" and isinstance(text := fields.get("text"), str):
            return text
    return None


def _is_plain(content: Any, limit: int) -> bool:
    """One short text that is no data: what most tools say, and nothing is to be done with it."""
    if not isinstance(content, list) or len(cast(list[Any], content)) != 1:
        return False
    text = _text_of(content[0])
    return text is not None and 4 * len(text) <= limit and not _may_be_json(text.strip(_SPACE))


def _may_be_json(bare: str) -> bool:
    """A look at its two ends: most texts are none, and to find that out by parsing takes as long as the rest."""
    end = _ENDS.get(bare[:1])
    return bare.endswith(end) if end is not None else _SCALAR.fullmatch(bare) is not None


def _size(text: str) -> int:
    """Bytes, at most: exact where it could matter."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _too_deep(value: object) -> bool:
    try:
        orjson.dumps(value)
    except TypeError as error:
        return "ecursion" in str(error)
    return False
