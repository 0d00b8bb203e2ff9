"""LIF-10: which commands may download the program they run, how they are ended, and what npm must
not keep of them."""

import asyncio
import contextlib
import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from kit.until import until
from mcpx.processes import child as ending
from mcpx.processes import npx_cache, process
from mcpx.processes.downloaders import downloads_itself
from mcpx.processes.process import Child, Spawn, spawn

COMMANDS = {
    True: """
        npx -y mcp-server-kubernetes
        /usr/local/bin/npx some-server
        npm exec -- some-server
        npm --yes exec some-server
        npm x some-server
        pnpm dlx some-server
        pnpm --silent dlx some-server
        pnpx some-server
        yarn dlx some-server
        bunx some-server
        bun x some-server
        uvx mcp-server-time@2026
        uv tool run mcp-server-time
        uv --directory /srv/app run server.py
        uv run --with mcp server.py
        pipx run mcp-server-time
        docker run -i --rm mcp/time
        docker --context desktop run -i mcp/time
        docker container run -i mcp/time
        podman run -i mcp/time
        deno run -A npm:some-server
        go run example.com/server@latest
        dnx Some.Server
        cmd /c npx -y some-server
        cmd.exe /d /s /c npx -y some-server
        cmd /c "npx -y some-server"
        'C:\\Program Files\\nodejs\\npx.cmd' -y some-server
        UVX.EXE mcp-server-time
        NPX some-server
    """,
    False: """
        node server.js
        python -m server run
        uv pip install server
        npm run server
        npm start
        pnpm run server
        yarn run server
        bun run server.ts
        docker exec -i box server run
        docker start -ai box
        docker compose run server
        podman exec -i box server
        go version
        pipx list
        my-npx some-server
        npx-server
        cmd /c node server.js
        cmd /c
        cmd
    """,
}


@pytest.mark.parametrize("downloads", COMMANDS)
def test_programs_that_download_themselves_are_recognized_by_their_words(downloads: bool) -> None:
    """LIF-10: the whole list, also as full paths, with the endings of Windows, and behind `cmd
    /c`."""
    for line in filter(None, map(str.strip, COMMANDS[downloads].splitlines())):
        command, *args = shlex.split(line)
        assert downloads_itself(command, args) is downloads, line


# --- how they are ended

PROGRAM = """
import os, signal, sys, threading, time
def note(word):
    print(word, file=sys.stderr, flush=True)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: note(signal.Signals(number).name))
if "prints" in sys.argv:
    print("out", flush=True)
note("ready")
def read():
    sys.stdin.read()
    note("EOF")
threading.Thread(target=read, daemon=True).start()
while True:
    time.sleep(60)
"""
"""Writes what it receives to standard error, and ends only by SIGKILL."""


async def start(heard: list[str], *words: str, downloads: bool = True) -> Child:
    spec = Spawn(
        command=sys.executable,
        args=("-c", PROGRAM, *words),
        env=dict(os.environ),
        cwd=None,
        downloads=downloads,
    )
    child: Child | None = None
    output = asyncio.Event()
    child = await spawn(
        spec,
        on_stdout=lambda data: output.set(),
        on_stderr=lambda data: heard.extend(data.decode().split()),
        on_exit=lambda code: heard.append(f"exit {code}"),
    )
    await until(lambda: "ready" in heard)
    if "prints" in words:
        await output.wait()
        child.is_downloading = False
    return child


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "EOF_GRACE", 0.3)
    monkeypatch.setattr(ending, "INTERRUPT_GRACE", 0.3)
    monkeypatch.setattr(ending, "DOWNLOADER_GRACE", 1.5)


def test_a_program_that_downloads_itself_has_ten_seconds_before_it_is_killed() -> None:
    """LIF-7: the limits themselves; the tests below shorten them."""
    assert ending.DOWNLOADER_GRACE >= 10.0
    assert ending.INTERRUPT_GRACE + ending.EOF_GRACE + ending.TERM_GRACE < ending.DOWNLOADER_GRACE


@pytest.mark.needs("signals")
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["ready", "SIGINT", "EOF", "SIGTERM", "exit -9"]),
        (("prints",), ["ready", "EOF", "SIGTERM", "exit -9"]),
    ],
)
def test_sigint_comes_first_during_the_download_and_sigkill_last(
    words: tuple[str, ...], expected: list[str]
) -> None:
    """LIF-7: SIGINT, end of input, SIGTERM, and SIGKILL not before its time. Without SIGINT after
    the download."""
    heard: list[str] = []

    async def main() -> float:
        child = await start(heard, *words)
        began = time.monotonic()
        await child.end()
        took = time.monotonic() - began
        await process.end_all()
        return took

    took = asyncio.run(main())
    assert heard == expected
    assert took >= 1.5


@pytest.mark.needs("signals")
@pytest.mark.usefixtures("quick")
def test_other_children_do_not_wait_for_a_program_that_downloads_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIF-7"""
    monkeypatch.setattr(ending, "DOWNLOADER_GRACE", 600.0)

    async def main() -> None:
        slow = await start([])
        other = await start([], downloads=False)
        ends = asyncio.ensure_future(process.end_all())
        async with asyncio.timeout(60):
            await other.exited
        assert not slow.exited.done()
        os.kill(slow.pid, 9)
        async with asyncio.timeout(60):
            await ends

    asyncio.run(main())


# --- what npm keeps

HOME = {"HOME": "/home/ada"}


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("npx -y drip-server", "0a058c544279a335"),
        ("npx drip-server --port 1", "0a058c544279a335"),
        ("/usr/bin/npx -y -- drip-server", "0a058c544279a335"),
        ("npm exec --yes drip-server", "0a058c544279a335"),
        ("cmd /c npx -y drip-server", "0a058c544279a335"),
        ("npx -p drip-server other", "0a058c544279a335"),
        ("npx --package=drip-server other", "0a058c544279a335"),
        ("npx --unknown drip-server", None),
        ("npx ./drip-server", None),
        ("npx", None),
        ("uvx drip-server", None),
    ],
)
def test_the_folder_of_an_npx_installation_is_named_by_its_packages(
    line: str, folder: str | None
) -> None:
    """LIF-10: the same name that npm gives it, which `tests/e2e/test_npx.py` proves with the real
    one."""
    command, *args = shlex.split(line)
    found = npx_cache.install_folder(command, args, {"npm_config_cache": "/cache"})
    assert found == (None if folder is None else Path("/cache/_npx") / folder)


def test_the_cache_is_where_npm_is_configured_to_have_it(tmp_path: Path) -> None:
    """LIF-10"""

    def cache(env: dict[str, str]) -> Path:
        found = npx_cache.install_folder("npx", ["drip-server"], env)
        assert found is not None
        return found.parents[1]

    home = {"HOME": str(tmp_path)}
    if os.name == "posix":
        assert cache(home) == tmp_path / ".npm"
    (tmp_path / ".npmrc").write_text("fund = false\ncache = /elsewhere\n", encoding="utf-8")
    assert cache(home) == Path("/elsewhere")
    assert cache({**home, "NPM_CONFIG_CACHE": "/first"}) == Path("/first")


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(
    ("state", "removed"),
    [
        ("complete", {True: False, False: False}),
        ("without a lock", {True: True, False: False}),
        ("old, without a lock", {True: True, False: True}),
        ("with an old lock", {True: True, False: True}),
        ("with a lock in use", {True: False, False: False}),
    ],
)
def test_only_what_no_npm_will_complete_is_removed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    removed: dict[bool, bool],
    ours: bool,
) -> None:
    """LIF-10"""
    monkeypatch.setattr(npx_cache, "LOCK_IS_TOUCHED_WITHIN", 0.2)
    package, lock = tmp_path / "node_modules" / "half", tmp_path / "concurrency.lock"
    package.mkdir(parents=True)
    if "lock" in state and "without" not in state:
        lock.mkdir()
    if state == "complete":
        (tmp_path / "node_modules" / ".package-lock.json").touch()
    if "old" in state:
        for path in filter(Path.exists, (package, package.parent, lock)):
            os.utime(path, (1, 1))

    async def main() -> bool:
        touching = asyncio.ensure_future(_touch(lock)) if state == "with a lock in use" else None
        found = await npx_cache.remove_half_written(tmp_path, ours=ours)
        if touching is not None:
            touching.cancel()
        return found

    assert asyncio.run(main()) is removed[ours]
    assert (tmp_path / "node_modules").exists() is not removed[ours]
    assert lock.exists() is (state == "with a lock in use")


async def _touch(lock: Path) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            os.utime(lock)
            await asyncio.sleep(0.02)
