"""RUN-6: the socket by which people look after a gateway."""

import asyncio
import contextlib
import os
import stat
from pathlib import Path

import pytest

from kit.loop import run
from mcpx.front import control
from mcpx.front.control import Control, ask, socket_path
from mcpx.model.call import Json


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def there(path: Path) -> bool:
    return path.exists()


async def status(request: Json) -> Json:
    return {"ok": True, "servers": []}


async def broken(request: Json) -> Json:
    raise RuntimeError("a secret")


def test_each_config_and_environment_has_a_socket_of_its_own(tmp_path: Path) -> None:
    """RUN-6, CFG-7."""
    paths = {
        socket_path(tmp_path, Path(file), env)
        for file in ("/a", "/b")
        for env in (None, "prod", "dev")
    }
    assert len(paths) == 6
    assert all(path.parent == tmp_path / "control" for path in paths)


def test_a_verb_is_answered_and_the_socket_is_gone_at_the_end(tmp_path: Path) -> None:
    """RUN-6: also through a path that is too long for a socket."""

    async def main(path: Path) -> None:
        assert await ask(path, "status") is None
        it = Control(path, {"status": status, "broken": broken})
        await it.start()
        assert mode(path) == 0o600
        assert mode(path.parent) == 0o700
        assert await ask(path, "status") == {"ok": True, "servers": []}
        assert await ask(path, "nonsense") == {"ok": False, "error": "say one of broken, status"}
        assert await ask(path, "broken") == {"ok": False, "error": "RuntimeError"}
        await it.close()
        assert not there(path)
        assert await ask(path, "status") is None

    run(main(tmp_path / "control" / "a.sock"))
    run(main(tmp_path / ("x" * 120) / "control" / "a.sock"))


def test_the_place_of_another_is_neither_taken_nor_cleared(tmp_path: Path) -> None:
    """RUN-6: the second leaves the first alone; one whose place was taken leaves the taker
    alone."""

    async def main() -> None:
        path = tmp_path / "control" / "a.sock"
        first, second = Control(path, {"status": status}), Control(path, {"status": broken})
        await first.start()
        await second.start()
        await second.close()
        assert await ask(path, "status") == {"ok": True, "servers": []}
        path.unlink()
        taker = Control(path, {"status": status})
        await taker.start()
        await first.close()
        assert await ask(path, "status") == {"ok": True, "servers": []}
        await taker.close()
        assert not there(path)

    run(main())


def test_one_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """RUN-6, LIF-1: nobody's start hangs on another's."""

    async def main() -> None:
        path = tmp_path / "control" / "a.sock"
        path.parent.mkdir(mode=0o700)
        left = asyncio.Event()

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            left.set()

        mute = await asyncio.start_unix_server(hear, str(path))
        patience, control.PATIENCE = control.PATIENCE, 0.05
        try:
            it = Control(path, {"status": status})
            await it.start()
            assert await ask(path, "status") == {"ok": True, "servers": []}
            await it.close()
            await left.wait()
        finally:
            control.PATIENCE = patience
            mute.close()

    run(main())


def test_who_waits_on_the_socket_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """LIF-8: neither one who says nothing nor one whose verb is still running."""

    async def main() -> None:
        path = tmp_path / "control" / "a.sock"
        begun = asyncio.Event()

        async def forever(request: Json) -> Json:
            begun.set()
            return await asyncio.get_running_loop().create_future()

        it = Control(path, {"status": status, "forever": forever})
        await it.start()
        _, writer = await asyncio.open_unix_connection(str(path))
        asking = asyncio.create_task(ask(path, "forever"))
        await begun.wait()
        await it.close()
        assert await asking is None
        writer.close()

    run(main())


def test_a_line_that_is_too_long_is_hung_up_on(tmp_path: Path) -> None:
    """RUN-6."""

    async def main() -> None:
        path = tmp_path / "control" / "a.sock"
        it = Control(path, {"status": status})
        await it.start()
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"x" * (2 * control.LONGEST))
        with contextlib.suppress(ConnectionError):  # it may be gone before all of it was said
            assert await reader.read() == b""
        writer.close()
        assert await ask(path, "status") is not None
        await it.close()

    run(main())


def test_a_folder_that_cannot_be_made_costs_the_socket_only(tmp_path: Path) -> None:
    """RUN-6: losing state costs comfort, never function."""
    (tmp_path / "file").write_text("x")

    async def main() -> None:
        it = Control(tmp_path / "file" / "control" / "a.sock", {"status": status})
        await it.start()
        await it.close()

    run(main())
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", ["link", "group", "world"])
def test_a_folder_that_others_can_write_is_neither_listened_in_nor_asked(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-6: who can write there could answer in our place."""
    folder = tmp_path / "control"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o770 if kind == "group" else 0o707)
    path = folder / "a.sock"

    async def main() -> None:
        it = Control(path, {"status": status})
        await it.start()
        assert not there(path)
        assert await ask(path, "status") is None
        await it.close()

    run(main())
    assert "no control socket: " in caplog.text
    assert "no running gateway is asked: " in caplog.text


def test_the_umask_is_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RUN-6: it belongs to every thread, and to whoever writes a file while we wait."""
    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "umask", None)

        async def main() -> None:
            it = Control(tmp_path / "new" / "control" / "a.sock", {"status": status})
            await it.start()
            assert mode(tmp_path / "new" / "control" / "a.sock") == 0o600
            assert mode(tmp_path / "new" / "control") == mode(tmp_path / "new") == 0o700
            await it.close()

        run(main())
    finally:
        monkeypatch.undo()
        os.umask(before)
