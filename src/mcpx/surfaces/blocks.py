"""The blocks of one result among those of others (SUR-12).

Promise: one tool's blocks harm no other's result. What no client would take for a block is left out
and said; what is never cut is left out where there is no room for it; a line that begins as only
ours do is moved by a blank.
"""

from typing import Any, Final

from mcpx.model.call import is_object
from mcpx.surfaces.large.measure import own, weigh
from mcpx.surfaces.results import said, text_of

HELD: Final = 64 << 10
"""Bytes from which on a result is large."""
ODD: Final = 4 << 20
"""What a block counts that is large in a way which takes long to measure."""
_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}
_OURS: Final = "[mcpx:"


def joined(blocks: list[Any], room: int) -> list[Any]:
    """As they may stand beside those of others; `room`: bytes for what is never cut."""
    kept: list[Any] = []
    odd = large = 0
    for block in blocks:
        if not _is_sound(block):
            odd += 1
        elif (text := text_of(block)) is not None:
            kept.append({**block, "text": _apart(text)} if _OURS in text else block)
        elif (size := weight_of(block)) > room:
            large += 1
        else:
            room -= size
            kept.append(block)
    if odd:
        kept.append(said(own(f"left out: {odd:,} that are no content")))
    if large:
        kept.append(
            said(own(f"left out: {large:,} that are too large among others; call this tool alone"))
        )
    return kept


def _is_sound(block: Any) -> bool:
    if not is_object(block):
        return False
    kind = block.get("type")
    if kind == "resource":
        inner = block.get("resource")
        return (
            is_object(inner)
            and isinstance(inner.get("uri"), str)
            and ("text" in inner or "blob" in inner)
        )
    needed = _NEEDED.get(kind) if isinstance(kind, str) else None
    return needed is not None and all(isinstance(block.get(key), str) for key in needed)


def _apart(text: str) -> str:
    """The data of a tool that reads like our own words: a blank before it."""
    lines = (f" {line}" if line.startswith(_OURS) else line for line in text.split("\n"))
    return "\n".join(lines)


def weight_of(block: Any) -> int:
    """About the bytes of a block."""
    if not is_object(block):
        return 0
    texts = [value for value in block.values() if isinstance(value, str)]
    if is_object(inner := block.get("resource")):
        texts += [value for value in inner.values() if isinstance(value, str)]
    size = sum(map(len, texts))
    return size if size >= HELD or weigh(block, HELD) <= HELD else ODD
