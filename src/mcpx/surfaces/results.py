"""A server's result as a compact surface passes it on: text made short, large text kept back
(SUR-7, SUR-8, SUR-11).

Promised: blocks stay in their order, everything but text is untouched, `isError`, `_meta` and
unknown fields stay. Text is rendered anew only where it is data: JSON on one line, JSON that says
the same as the server's own `structuredContent`, and JSON of several lines where
`Rendering.compact_json` says so. Else a text of several lines may be a file that somebody wants to
edit; it stays as it is.

What is small is shaped at once. What is large is shaped in another process (`large.worker`), and
what is done with it here is done a slice at a time; should the process be busy or fail, the
beginning is shown, and why.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from mcpx.model.call import Caller, Json
from mcpx.model.slices import Pace
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
SLICE = 500
"""Items of a list that are written as JSON in one go."""


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
    """How results are shaped for one owner."""

    __slots__ = ("go_on", "how", "kept", "owner", "worker")

    def __init__(
        self,
        how: Rendering,
        kept: ResultStore,
        worker: Worker,
        owner: str,
        go_on: Callable[[str, Preview], str],
    ) -> None:
        """`go_on` says how a handle is read through this surface, in a line."""
        self.how = how
        self.kept = kept
        self.worker = worker
        self.owner = owner
        self.go_on = go_on

    async def shaped(self, result: Json) -> Json:
        content: Any = result.get("content")
        own: Any = result.get("structuredContent")
        shown = {key: value for key, value in result.items() if key != "structuredContent"}
        structured: Json | None = None
        decision = Decision(())
        if isinstance(content, list):
            blocks = cast(list[Any], content)
            parted = (
                _parted(blocks) if len(blocks) <= MOST_BLOCKS else await _parted_in_turns(blocks)
            )
            try:
                decision = await self._decide(parted, own)
                shown["content"], structured = self._shown(parted, decision)
            except (Busy, Overrun) as error:
                shown["content"], structured = self._cut(parted, error)
            if structured is not None and (own is not None or len(blocks) > MOST_BLOCKS):
                _let_go([*_large_lists(own), *_large_lists(blocks)])
        if not self.how.structured:
            return shown
        if structured is None:
            structured = (
                self._derived(decision, content)
                if own is None
                else await self._bounded(own, decision)
            )
        if structured is not None:
            shown["structuredContent"] = structured
        return shown

    # Texts
    # ----------------------------------------------------------------------------------------------

    async def _decide(self, parted: "_Parted", own: Any) -> Decision:
        texts, alone, size = parted.texts, len(parted.blocks) == 1, sum(map(len, parted.texts))
        if len(parted.blocks) > MOST_BLOCKS:
            if size < self.how.result_limit // 4:  # whatever its letters are
                return Decision(())
            texts, own = ["\n".join(texts)], None
        if size <= AT_ONCE:
            return decide(texts, own, self.how, alone=alone)
        raw = None
        if own is not None and size <= SHRINKS * self.how.result_limit:
            raw = await _written(own)
        return await self.worker.decide(self.owner, texts, raw, self.how, alone=alone)

    def _shown(self, parted: "_Parted", decision: Decision) -> tuple[Sequence[Any], Json | None]:
        piece, place = decision.piece, decision.place
        told, structured = ("", None) if piece is None else self._keep(piece)
        if piece is not None and (place == ALL or len(parted.blocks) > MOST_BLOCKS):
            return parted.as_one(told), structured
        if piece is None and decision.shown.count(None) == len(decision.shown):
            return parted.blocks, None
        shown: list[Any] = []
        at = 0
        for block in parted.blocks:
            if text_of(block) is None:
                shown.append(block)
                continue
            text = told if at == place else decision.shown[at]
            shown.append(block if text is None else {**block, "text": text})
            at += 1
        return shown, structured

    def _keep(self, piece: Piece) -> tuple[str, Json]:
        """What is said in place of a text that is kept back, to models and to programs."""
        handle, begins = self.kept.keep(self.owner, piece.kept), piece.begins
        about = {
            "handle": handle,
            "total_bytes": piece.size,
            "shape": begins.shape,
            "preview": begins.text,
        }
        return f"{opening(piece.size, begins)}\n{begins.text}\n{self.go_on(handle, begins)}", about

    def _cut(self, parted: "_Parted", error: Exception) -> tuple[list[Any], Json]:
        """Only the beginning: this was too much, or there is too much to do at this moment."""
        limit = self.how.result_limit
        begins = cut("\n".join(text[:limit] for text in parted.texts[:MOST_BLOCKS])[:limit], limit)
        note = _lost(error)
        return parted.as_one(f"{begins}\n{own(note)}"), {"error": note}

    # For programs
    # ----------------------------------------------------------------------------------------------

    def _derived(self, decision: Decision, content: Any) -> Json | None:
        """What a result of one JSON text says."""
        value = decision.value
        if value is NOT_JSON or decision.piece is not None:
            return None
        if decision.elsewhere:
            value = codec.load(content[0]["text"].encode(), strict=True)
        return cast(Json, value) if isinstance(value, dict) else {"result": value}

    async def _bounded(self, own: Any, decision: Decision) -> Any:
        """The server's own, kept back where it says more than a text could."""
        if decision.says_own:
            return own  # and so does the text, which is within its limit
        try:
            raw = await _written(own)
            if len(raw) <= TIGHTEST * self.how.result_limit:
                return own
            value = own if len(raw) <= AT_ONCE else None
            _, about = self._keep(await self.worker.keep(self.owner, raw, value, self.how))
        except codec.Unencodable:
            return own  # whoever sends it says what is wrong
        except (Busy, Overrun) as error:
            return {"error": _lost(error)}
        _let_go(_large_lists(own))
        return about


class _Parted:
    """The blocks of a result, and what of them is text."""

    __slots__ = ("blocks", "first", "others", "texts")

    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = blocks
        self.texts: list[str] = []
        self.others: list[Any] = []
        self.first: int | None = None
        """How many others stand before the first text."""

    def look(self, some: Iterable[Any]) -> None:
        for block in some:
            text = text_of(block)
            if text is None:
                self.others.append(block)
            else:
                self.first = len(self.others) if self.first is None else self.first
                self.texts.append(text)

    def as_one(self, text: str) -> list[Any]:
        """All texts as one, where the first of them stood."""
        first = self.first or 0
        return [*self.others[:first], said(text), *self.others[first:]]


def _parted(blocks: list[Any]) -> _Parted:
    parted = _Parted(blocks)
    parted.look(blocks)
    return parted


async def _parted_in_turns(blocks: list[Any]) -> _Parted:
    """So many blocks that only looking at each takes a while."""
    parted = _Parted(blocks)
    for begin in range(0, len(blocks), MOST_BLOCKS):
        parted.look(blocks[begin : begin + MOST_BLOCKS])
        await asyncio.sleep(0)
    return parted


async def _written(value: Any) -> bytes:
    """As JSON; of long lists a slice at a time."""
    if next(_large_lists(value), None) is None:
        return codec.dump(value)
    parts: list[bytes] = []
    pace = Pace()
    for part in _slices(value):
        parts.append(part)
        await pace.step()
    return b"".join(parts)


def _lost(error: Exception) -> str:
    why = (
        "too many large results are being worked on at this moment"
        if isinstance(error, Busy)
        else "it took too much time or memory to work on"
    )
    return f"the rest of this large result is lost: {why}; ask the tool again, for less"


def text_of(block: Any) -> str | None:
    if isinstance(block, dict):
        fields = cast(Json, block)
        if fields.get("type") == "text" and isinstance(text := fields.get("text"), str):
            return text
    return None


def is_plain(result: Json, limit: int) -> bool:
    """One short text that is no data: what most tools say, and nothing is to be done with it."""
    content: Any = result.get("content")
    if (
        "structuredContent" in result
        or not isinstance(content, list)
        or len(cast(list[Any], content)) != 1
    ):
        return False
    text = text_of(content[0])
    return text is not None and 4 * len(text) <= limit and not may_be_json(text.strip(SPACE))


def _is_lines(text: str) -> bool:
    return "\n" in text or "\r" in text


def has_lines(result: Json) -> bool:
    """Whether a text of it may have several lines."""
    content: Any = result.get("content")
    if not isinstance(content, list):
        return False
    blocks = cast(list[Any], content)
    return len(blocks) > MOST_BLOCKS or any(_is_lines(text_of(block) or "") for block in blocks)


def _large_lists(value: object, levels: int = 3) -> Iterator[list[Any]]:
    """The long lists on the first levels of a value: where it is large, that is nearly always
    where."""
    if isinstance(value, list):
        if len(cast(list[Any], value)) > SLICE:
            yield cast(list[Any], value)
    elif isinstance(value, dict) and levels and len(cast(Json, value)) <= SLICE:
        for each in cast(Json, value).values():
            yield from _large_lists(each, levels - 1)


def _slices(value: object, levels: int = 3) -> Iterator[bytes]:
    if isinstance(value, list) and len(rows := cast(list[Any], value)) > SLICE:
        for begin in range(0, len(rows), SLICE):
            yield (b"," if begin else b"[") + codec.dump(rows[begin : begin + SLICE])[1:-1]
        yield b"]"
    elif isinstance(value, dict) and levels and len(fields := cast(Json, value)) <= SLICE:
        yield b"{"
        for at, (key, each) in enumerate(fields.items()):
            yield (b"," if at else b"") + codec.dump(key) + b":"
            yield from _slices(each, levels - 1)
        yield b"}"
    else:
        yield codec.dump(value)


def _let_go(lists: Iterable[list[Any]]) -> None:
    """See that what long lists hold is freed over several turns, not all at once with whoever holds
    them."""
    slices = [
        rows[begin : begin + SLICE * 4]
        for rows in lists
        for begin in range(0, len(rows), SLICE * 4)
    ]
    if not slices:
        return
    loop = asyncio.get_running_loop()

    def some() -> None:
        slices.pop()
        if slices:
            loop.call_soon(some)

    loop.call_soon(some)
