"""SUR-7, SUR-8, SUR-11: what becomes of a result, whatever its size and whatever becomes of the
process beside us."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from kit.loop import run
from mcpx.formats.writing import ValueWriter
from mcpx.model.call import Json
from mcpx.surfaces.large import shaping
from mcpx.surfaces.large.kept import ResultStore
from mcpx.surfaces.large.measure import TIGHTEST
from mcpx.surfaces.large.offload import Busy, Overrun
from mcpx.surfaces.large.shaping import Decision, Piece, decide, piece_of
from mcpx.surfaces.large.worker import Worker
from mcpx.surfaces.results import MOST_BLOCKS, Shaper, said
from mcpx.surfaces.settings import Rendering

IMAGE: Json = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


class Elsewhere(Worker):
    """Decides here what would be decided in another process, and remembers what it was asked."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.asked: list[Sequence[str] | bytes] = []
        self.failure = failure

    async def decide(
        self, owner: str, texts: Sequence[str], own: bytes | None, how: Rendering, *, alone: bool
    ) -> Decision:
        self.asked.append(texts)
        if self.failure is not None:
            raise self.failure
        return decide(texts, None if own is None else json.loads(own), how, alone=alone)

    async def keep(self, owner: str, raw: bytes, value: object, how: Rendering) -> Piece:
        self.asked.append(raw)
        if self.failure is not None:
            raise self.failure
        return piece_of(raw.decode(), json.loads(raw), how)


def shaped(result: Json, worker: Worker | None = None, **how: Any) -> Json:
    shaper = Shaper(
        Rendering(**how),
        ResultStore(),
        worker or Elsewhere(),
        "ann",
        lambda handle, _: f"go on {handle}",
    )

    async def main() -> Json:
        return await shaper.shaped(result)

    return run(main())


def test_a_small_result_is_shaped_without_giving_way() -> None:
    """SUR-7: no process, and not one turn of the loop."""
    small = [
        {"content": [said("a word")]},
        {"content": [said('{"a":   [1, 2]}')]},
        {"content": [said('{"a": 1}'), IMAGE, said("b")], "structuredContent": {"a": 1}},
        {
            "content": [said("in words")],
            "structuredContent": {"rows": [{"id": n} for n in range(100)]},
        },
        {"content": [said("x" * 100_000)]},
    ]
    worker = Elsewhere()
    for result in small:
        coroutine = Shaper(Rendering(), ResultStore(), worker, "ann", lambda *_: "").shaped(result)
        with pytest.raises(StopIteration):
            coroutine.send(None)
    assert worker.asked == []


def test_a_text_is_rendered_once_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """SUR-11: not to find out that it does not fit."""
    rendered: list[object] = []
    writer = ValueWriter(lambda value: rendered.append(value) or json.dumps(value), ours=True)
    monkeypatch.setattr(shaping, "value_writer", lambda *_: writer)
    rows = [{"id": number, "name": f"row {number}"} for number in range(10_000)]
    assert "handle" in shaped({"content": [said(json.dumps(rows))]})["structuredContent"]
    assert rows not in rendered  # only the beginning that is shown of it
    rendered.clear()
    assert shaped({"content": [said(json.dumps(rows[:10]))]})["structuredContent"] == {
        "result": rows[:10]
    }
    assert rendered == [rows[:10]]


@pytest.mark.parametrize("failure", [Busy(), Overrun("died")], ids=["busy", "died"])
def test_without_the_process_the_beginning_is_shown_and_why(failure: Exception) -> None:
    """SUR-11: the tool did what it did, so its result is no error."""
    result = {"content": [IMAGE, said("line\n" * 100_000), IMAGE, said("end")], "_meta": {"x": 1}}
    shown = shaped(result, Elsewhere(failure))
    first, cut, last = shown["content"]
    assert (first, last, shown["_meta"], shown.get("isError")) == (IMAGE, IMAGE, {"x": 1}, None)
    assert cut["text"].startswith("line\nline\n") and len(cut["text"]) < 16_300
    assert "\n[mcpx: the rest of this large result is lost" in cut["text"]
    assert shown["structuredContent"]["error"] in cut["text"]


def test_without_the_process_a_large_structured_content_is_replaced_by_why() -> None:
    """SUR-11"""
    result = {"content": [said("see there")], "structuredContent": {"rows": ["x" * 1_000] * 1_000}}
    shown = shaped(result, Elsewhere(Busy()))
    assert shown["content"] == [said("see there")]
    assert shown["structuredContent"].keys() == {"error"}


def test_a_structured_content_is_bounded_by_what_a_text_could_say() -> None:
    """SUR-11: so many times `result_limit`, for no rendering is smaller by more; said by the text
    too, it stays."""
    limit = TIGHTEST * 16_000
    for size, whole in ((limit - 100, True), (limit + 100, False)):
        own = {"text": "x" * size}
        shown = shaped({"content": [said("see there")], "structuredContent": own})
        assert (shown["structuredContent"] == own) is whole
    kept = shown["structuredContent"]
    assert kept.keys() == {"handle", "total_bytes", "shape", "preview"}
    assert "structuredContent" not in shaped(
        {"content": [], "structuredContent": own}, structured=False
    )


def test_the_servers_own_is_not_even_written_where_a_large_text_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SUR-11: it gives way to the handle, so nobody needs it."""
    rows = [{"id": number, "name": f"row {number}"} for number in range(20_000)]
    worker = Elsewhere()
    result = {"content": [said(json.dumps(rows))], "structuredContent": {"result": rows}}
    assert "handle" in shaped(result, worker)["structuredContent"]
    assert [len(texts) for texts in worker.asked] == [1]


@pytest.mark.parametrize("block", [said("a"), said(""), IMAGE, {"type": "text"}, None], ids=str)
def test_very_many_blocks_give_way(block: Any) -> None:
    """SUR-8: texts become one where they are too long; all else stays, in order."""
    count = 40 * MOST_BLOCKS
    result = {"content": [block] * count}
    shaper = Shaper(Rendering(), ResultStore(), Elsewhere(), "ann", lambda *_: "")

    async def main() -> tuple[Json, int]:
        task = asyncio.create_task(shaper.shaped(result))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return task.result(), turns

    shown, turns = run(main())
    assert turns >= 39
    if block == said("a"):
        (only,) = shown["content"]
        assert "\na\na\n" in only["text"] and "handle" in shown["structuredContent"]
    else:
        assert shown["content"] == result["content"]
