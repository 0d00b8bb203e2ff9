"""A server's result as a compact mode passes it on: text made short, large text kept (SUR-7, SUR-8,
SUR-11).

Blocks stay in their order. Everything but text, `isError`, `_meta`, and unknown fields stay as they
are. Text is rendered anew only if it is data: JSON on one line, JSON that says the same as the
server's `structuredContent`, and JSON of several lines if `Rendering.compact_json` is set. Other
text of several lines may be a file that is going to be edited, so it stays as it is.

Small results are shaped at once, large ones in another process (`large.worker`). If that process is
busy or fails, the beginning of the result is shown with the reason.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from mcpx.model.call import Caller, Json, as_list, is_array
from mcpx.surfaces.large.kept import ResultStore
from mcpx.surfaces.large.measure import TIGHTEST, cut, own
from mcpx.surfaces.large.offload import Busy, Overrun
from mcpx.surfaces.large.preview import NOT_JSON, Preview, opening
from mcpx.surfaces.large.shaping import ALL, SPACE, Decision, Piece, decide, may_be_json
from mcpx.surfaces.large.worker import AT_ONCE, Worker
from mcpx.surfaces.settings import Rendering
from mcpx.wire import codec

CLAIMED = 100
"""Characters of a client's name that tell it from others."""
SHRINKS = 16
"""No text is rendered to less than this share of it."""
MOST_BLOCKS = 1_000
"""Blocks that are looked at one by one. Of more the texts stay as they are, or are kept as one."""


def owner_of(caller: Caller) -> str:
    """To whom a kept result belongs. Modern clients have no session: who they say they are is all
    there is."""
    if caller.session is not None:
        return caller.session
    claims = (str(caller.client.get(key, ""))[:CLAIMED] for key in ("name", "version"))
    return "\0".join((caller.profile or "", caller.principal, *claims))


def said(text: str) -> Json:
    return {"type": "text", "text": text}


class Shaper:
    """Shapes results for one owner."""

    __slots__ = ("go_on", "how", "kept", "owner", "worker")

    def __init__(
        self,
        how: Rendering,
        kept: ResultStore,
        worker: Worker,
        owner: str,
        go_on: Callable[[str, Preview], str],
    ) -> None:
        """`go_on` makes the line that says how a handle is read in this mode."""
        self.how = how
        self.kept = kept
        self.worker = worker
        self.owner = owner
        self.go_on = go_on

    async def shaped(self, result: Json) -> Json:
        content = result.get("content")
        own_value: Any = result.get("structuredContent")
        shown = {key: value for key, value in result.items() if key != "structuredContent"}
        structured: Json | None = None
        decision = Decision(())
        if is_array(content):
            parts = _Parts(content)
            for begin in range(0, len(content), MOST_BLOCKS):
                if begin:
                    await asyncio.sleep(0)
                parts.add(content[begin : begin + MOST_BLOCKS])
            try:
                decision = await self._decide(parts, own_value)
                shown["content"], structured = self._shown(parts, decision)
            except (Busy, Overrun) as error:
                shown["content"], structured = self._cut(parts, error)
        if not self.how.structured:
            return shown
        if structured is None and own_value is None:
            structured = self._derived(decision, content)
        elif structured is None:
            structured = await self._bounded(own_value, decision)
        if structured is not None:
            shown["structuredContent"] = structured
        return shown

    # Texts

    async def _decide(self, parts: "_Parts", own_value: Any) -> Decision:
        texts, alone, size = parts.texts, len(parts.blocks) == 1, sum(map(len, parts.texts))
        if len(parts.blocks) > MOST_BLOCKS:
            if size < self.how.result_limit // 4:  # UTF-8 has at most four bytes a character.
                return Decision(())
            texts, own_value = ["\n".join(texts)], None
        if size <= AT_ONCE:
            return decide(texts, own_value, self.how, alone=alone)
        raw = None
        if own_value is not None and size <= SHRINKS * self.how.result_limit:
            raw = codec.dump(own_value)
        return await self.worker.decide(self.owner, texts, raw, self.how, alone=alone)

    def _shown(self, parts: "_Parts", decision: Decision) -> tuple[Sequence[Any], Json | None]:
        piece, place = decision.piece, decision.place
        told, structured = "", None
        if piece is not None:
            told, structured = self._keep(piece)
            if place == ALL or len(parts.blocks) > MOST_BLOCKS:
                return parts.as_one(told), structured
        elif decision.shown.count(None) == len(decision.shown):
            return parts.blocks, None
        shown: list[Any] = []
        texts = enumerate(decision.shown)
        for block in parts.blocks:
            text = None
            if text_of(block) is not None:
                at, text = next(texts)
                if at == place:
                    text = told
            shown.append(block if text is None else {**block, "text": text})
        return shown, structured

    def _keep(self, piece: Piece) -> tuple[str, Json]:
        """What stands for a text that is kept: for the model, and for programs."""
        handle, begins = self.kept.keep(self.owner, piece.kept), piece.begins
        about = {
            "handle": handle,
            "total_bytes": piece.size,
            "shape": begins.shape,
            "preview": begins.text,
        }
        return f"{opening(piece.size, begins)}\n{begins.text}\n{self.go_on(handle, begins)}", about

    def _cut(self, parts: "_Parts", error: Exception) -> tuple[list[Any], Json]:
        """Only the beginning."""
        limit = self.how.result_limit
        head = "\n".join(text[:limit] for text in parts.texts[:MOST_BLOCKS])
        note = _lost(error)
        return parts.as_one(f"{cut(head, limit)}\n{own(note)}"), {"error": note}

    # For programs

    def _derived(self, decision: Decision, content: Any) -> Json | None:
        """The value of a result of one JSON text."""
        value = decision.value
        if value is NOT_JSON or decision.piece is not None:
            return None
        if decision.elsewhere:
            value = codec.load(content[0]["text"].encode(), strict=True)
        return cast(Json, value) if isinstance(value, dict) else {"result": value}

    async def _bounded(self, own_value: Any, decision: Decision) -> Any:
        """The server's own value, kept if it says more than a text could."""
        if decision.says_own:
            return own_value
        try:
            raw = codec.dump(own_value)
        except codec.Unencodable:
            return own_value  # Whoever sends it reports the mistake.
        if len(raw) <= TIGHTEST * self.how.result_limit:
            return own_value
        try:
            piece = await self.worker.keep(self.owner, raw, own_value, self.how)
        except (Busy, Overrun) as error:
            return {"error": _lost(error)}
        return self._keep(piece)[1]


class _Parts:
    """The blocks of a result, and their texts."""

    __slots__ = ("before", "blocks", "others", "texts")

    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = blocks
        self.texts: list[str] = []
        self.others: list[Any] = []
        self.before = 0
        """Other blocks before the first text."""

    def add(self, blocks: list[Any]) -> None:
        for block in blocks:
            text = text_of(block)
            if text is None:
                self.others.append(block)
                continue
            if not self.texts:
                self.before = len(self.others)
            self.texts.append(text)

    def as_one(self, text: str) -> list[Any]:
        """All texts as one, in the place of the first."""
        return [*self.others[: self.before], said(text), *self.others[self.before :]]


def _lost(error: Exception) -> str:
    why = "it took too much time or memory to work on"
    if isinstance(error, Busy):
        why = "too many large results are being worked on at this moment"
    return f"the rest of this large result is lost: {why}; ask the tool again, for less"


def text_of(block: Any) -> str | None:
    if isinstance(block, dict):
        fields = cast(Json, block)
        if fields.get("type") == "text" and isinstance(text := fields.get("text"), str):
            return text
    return None


def is_plain(result: Json, limit: int) -> bool:
    """One short text that is no data: what most tools say, and nothing is to be done with it."""
    content = result.get("content")
    if "structuredContent" in result or not is_array(content) or len(content) != 1:
        return False
    text = text_of(content[0])
    return text is not None and 4 * len(text) <= limit and not may_be_json(text.strip(SPACE))


def has_lines(result: Json) -> bool:
    """Whether a text may have several lines."""
    blocks = as_list(result.get("content"))
    if len(blocks) > MOST_BLOCKS:
        return True
    texts = (text_of(block) or "" for block in blocks)
    return any("\n" in text or "\r" in text for text in texts)
