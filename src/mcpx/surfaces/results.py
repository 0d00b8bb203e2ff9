"""A server's result as a compact surface passes it on: text made short, large text kept back (SUR-7, SUR-8, SUR-11).

Promised: blocks stay in their order, everything but text is untouched, `isError`, `_meta` and unknown fields stay.
Text is rendered anew only where it certainly is data: JSON on one line, or JSON that says the same as the server's own
`structuredContent`. A text of several lines may be a file that somebody wants to edit; it stays as it is.
"""

from collections.abc import Callable
from typing import Any, cast

from mcpx.formats.values import render
from mcpx.model.call import Caller, Json, as_object
from mcpx.surfaces.large.kept import KeptResults
from mcpx.surfaces.large.preview import NOT_JSON, preview
from mcpx.surfaces.settings import Rendering
from mcpx.wire import codec

PREVIEW_BYTES = 2_000
_JSON_BEGINS = frozenset('{["-0123456789tfn')


def owner_of(caller: Caller) -> str:
    """To whom a kept result belongs. Modern clients have no session: who they say they are is all there is."""
    if caller.session is not None:
        return f"{caller.principal}\0{caller.session}"
    return f"{caller.principal}\0\0{caller.client.get('name', '')}\0{caller.client.get('version', '')}"


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def shaped(
    result: Json, how: Rendering, kept: KeptResults, owner: str, go_on: Callable[[str], str], notes: tuple[str, ...]
) -> Json:
    """`go_on` says how a handle is read through this surface; `notes` become a last text block."""
    content: Any = result.get("content")
    if not isinstance(content, list):
        return result
    own = result.get("structuredContent")
    shape = _Shaping(how, kept, owner, go_on)
    blocks = shape.blocks(cast(list[Any], content), own)
    if notes:
        blocks.append(said("Note: " + "; ".join(notes)))
    shown = {key: value for key, value in result.items() if key != "structuredContent"}
    shown["content"] = blocks
    structured = shape.kept_back or own or shape.derived
    if structured is not None and how.structured:
        shown["structuredContent"] = structured
    return shown


class _Shaping:
    """The work on one result."""

    __slots__ = ("_go_on", "_how", "_kept", "_owner", "derived", "kept_back")

    def __init__(self, how: Rendering, kept: KeptResults, owner: str, go_on: Callable[[str], str]) -> None:
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
        shown: list[Any] = []
        total = 0
        for block in content:
            text = _text_of(block)
            if text is None:
                shown.append(block)
                continue
            rendered, value = self._rendered(text, own, alone=len(content) == 1)
            size = _size(rendered)
            if size > limit:
                rendered = self._keep(text, value)
                size = 0  # a preview is short
            total += size
            shown.append(block if rendered is text else {**block, "text": rendered})
        return self._joined(content, shown) if total > limit else shown

    def _rendered(self, text: str, own: Any, *, alone: bool) -> tuple[str, object]:
        if not text or text.lstrip(" \t\r\n")[:1] not in _JSON_BEGINS:
            return text, NOT_JSON
        one_line = "\n" not in text.strip()
        if not one_line and not alone and own is None:
            return text, NOT_JSON
        try:
            value = codec.load(text.encode())
        except (codec.BadJson, UnicodeEncodeError):
            return text, NOT_JSON
        if alone and own is None:
            self.derived = cast(Json, value) if isinstance(value, dict) else {"result": value}
        if not isinstance(value, (dict, list)) or not (one_line or value == own or as_object(own) == {"result": value}):
            return text, cast(object, value)
        rendered = render(cast(object, value), toon=self._how.toon, min_size=self._how.toon_min_size)
        return (rendered if len(rendered) < len(text) else text), cast(object, value)

    def _joined(self, content: list[Any], shown: list[Any]) -> list[Any]:
        """Many texts, each short enough, all together too long: they are kept as one, where the first one stood."""
        texts = [text for block in content if (text := _text_of(block)) is not None]
        note = said(self._keep("\n".join(texts), NOT_JSON))
        others = [block for block in shown if _text_of(block) is None]
        first = next(index for index, block in enumerate(shown) if _text_of(block) is not None)
        return [*others[:first], note, *others[first:]]

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
        return f"{begins.text}\n\n[cut: {len(raw):,} bytes in all, {begins.shape}. {self._go_on(handle)}]"


def _text_of(block: Any) -> str | None:
    if isinstance(block, dict):
        fields = cast(Json, block)
        if fields.get("type") == "text" and isinstance(text := fields.get("text"), str):
            return text
    return None


def _size(text: str) -> int:
    """Bytes, at most: exact where it could matter."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
