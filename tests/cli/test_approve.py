"""SEC-5, SEC-7: `mcpx approve` and `mcpx pins`, as they are typed; with a gateway that runs, and
without one."""

import asyncio
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.command import run_command
from mcpx.cli.approve import call_lines
from mcpx.front.control import Control, socket_path
from mcpx.policy.pins.pinned import Pins

Json = dict[str, Any]
ALL = ("tools", "prompts", "resources", "templates")


def tool(name: str, description: str = "Does it", **more: Any) -> Json:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


class Place:
    """A folder with a config, and what a gateway left there that saw `before` and then `after`."""

    def __init__(
        self, folder: Path, before: list[Json], after: list[Json], trust: str = "pin"
    ) -> None:
        self.folder, self.state = folder, folder / "state"
        self.file = folder / "config.json"
        entry = {"name": "box", "connection": {"type": "stdio", "command": "true"}, "trust": trust}
        plain = {"name": "plain", "connection": {"type": "stdio", "command": "true"}}
        self.file.write_text(json.dumps({"mcp_servers": [entry, plain]}))
        self.file.chmod(0o600)
        self.env = {**os.environ, "MCPX_STATE_DIR": str(self.state)}
        self.state.mkdir(mode=0o700)
        pins = Pins(self.state)
        pinned = pins.of("box", "quarantine" if trust == "quarantine" else "pin")
        for tools in (before, after):
            pinned.look({"tools": tools, "prompts": [], "resources": [], "templates": []}, "", ALL)
        pins.write("box", pinned.kept, mend=False)

    def run(self, *words: str) -> tuple[int, str, str]:
        done = run_command(words, self.folder, self.env)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def held(self) -> int:
        return Pins(self.state).of("box").held


@contextmanager
def answering(place: Place, calls: list[Json], decided: list[Json]) -> Iterator[None]:
    """A gateway's control socket on which calls wait."""

    async def approvals(request: Json) -> Json:
        return {"ok": True, "calls": calls}

    async def decide(request: Json) -> Json:
        decided.append(request)
        return {"ok": True}

    async def waiting(request: Json) -> Json:
        known = request.get("server") in (None, "box")
        unknown = {
            "ok": False,
            "unknown": True,
            "error": "no server is called that",
            "names": ["box"],
        }
        return {"ok": True, "servers": []} if known else unknown

    async def status(request: Json) -> Json:
        return {"ok": True}

    verbs = {"approvals": approvals, "decide": decide, "pins.waiting": waiting, "status": status}
    ready, ending = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        control = Control(socket_path(place.state, place.file, None), verbs)
        await control.start()
        ready.set()
        await ending.wait()
        await control.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(10)
        loop.close()


def test_without_words_everything_that_waits_is_listed_and_the_exit_code_tells(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, [tool("read")], [tool("read", "Other"), tool("new")])
    code, out, _ = place.run("approve")
    assert code == 6 and "box: 2 definitions held back" in out
    assert "tool read, changed" in out and "tool new, new" in out
    assert place.run("approve", "box", "--yes")[0] == 0
    assert place.run("approve")[:2] == (0, "nothing waits\n")


def test_without_a_terminal_it_only_shows_and_says_how(tmp_path: Path) -> None:
    place = Place(tmp_path, [tool("read")], [tool("read", "Other")])
    code, out, _ = place.run("approve", "box.read", str(place.file))
    assert code == 6 and "+ description: Other" in out and "mcpx approve box.read --yes" in out
    assert place.held() == 1


@pytest.mark.parametrize(("said", "held"), [("y", 0), ("n", 1), ("", 1)])
def test_on_a_terminal_it_asks(tmp_path: Path, said: str, held: int) -> None:
    place = Place(tmp_path, [tool("read")], [tool("read", "Other")])
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "mcpx", "approve", "box"]
    env = {name: value for name, value in place.env.items() if name != "CI"}
    with subprocess.Popen(
        words, env=env, cwd=place.folder, stdin=theirs, stdout=theirs, stderr=theirs
    ) as typed:
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, f"{said}\n".encode())
        assert typed.wait(30) == (6 if held else 0)
    os.close(ours)
    assert b"Approve 1 definition of box as shown?" in shown and place.held() == held


def test_nothing_a_server_says_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\u200b\r\x9b31m\U000e0041\ud800"
    bad = tool(f"t{evil}", f"Other {evil}\n{evil}", title=evil, **{evil: {evil: [evil]}})
    bad["inputSchema"] = {"type": "object", "properties": {evil: {"description": evil}}}
    place = Place(tmp_path, [tool("read")], [tool("read"), bad])
    for words in (["approve"], ["approve", "box"], ["pins"], ["pins", "box"], ["pins", "--json"]):
        code, out, err = place.run(*words)
        assert code == 6, (out, err)
        assert all(c.isprintable() or c == "\n" for c in out + err), words
    assert "<U+202E RIGHT-TO-LEFT OVERRIDE>" in place.run("approve", "box")[1]


def test_pins_tells_what_is_approved_and_held_and_since_when(tmp_path: Path) -> None:
    place = Place(
        tmp_path,
        [tool("read"), tool("write", "<IMPORTANT>")],
        [tool("read", "Other"), tool("write")],
    )
    code, out, _ = place.run("pins")
    assert code == 6 and "box: pinned · 2 approved since 20" in out and "2 held back" in out
    assert "held      tool read, changed, since 20" in out
    _, out, _ = place.run("pins", "box", str(place.file))
    assert "by first sight" in out and "! has the form of an order to the model" in out
    told = json.loads(place.run("pins", "box", "--json")[1])["servers"][0]
    assert told["state"] == "pinned" and {one["name"] for one in told["held"]} == {"read", "write"}
    assert place.run("pins", "plain")[:2] == (0, "plain is trusted as it comes; `trust: pin` of a "
                                                 "server, or of"
                                                 " `global`, pins it\n")  # fmt: skip


def test_a_server_in_quarantine_is_approved_as_a_whole(tmp_path: Path) -> None:
    place = Place(tmp_path, [], [tool("read"), tool("write")], trust="quarantine")
    assert place.run("pins")[0] == 6
    code, _, err = place.run("approve", "box.read", "--yes")
    assert code == 2 and "as a whole: mcpx approve box" in err
    code, out, _ = place.run("approve", "box", "--yes")
    assert code == 0 and "2 definitions approved, out of quarantine" in out
    assert Pins(place.state).of("box", "quarantine").shown


def test_a_name_that_nobody_has_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    place = Place(tmp_path, [tool("read")], [tool("read", "Other")])
    for command in ("approve", "pins"):
        code, _, err = place.run(command, "bux")
        assert code == 2 and "did you mean 'box'?" in err, err
    assert place.run("approve", "box.nothing")[:2] == (0, "box.nothing: nothing waits\n")
    assert place.run("approve", "--deny")[0] == 2
    assert place.run("approve", "box", "--deny")[0] == 2
    assert place.run("approve", "plain")[:2] == (
        0,
        "plain is trusted as it comes: nothing of it is held back\n",
    )


def test_a_call_that_waits_is_shown_and_decided_by_its_id(tmp_path: Path) -> None:
    """SEC-7."""
    place = Place(tmp_path, [tool("read")], [tool("read")])
    call = {
        "id": "k3x9",
        "server": "box",
        "tool": "wipe",
        "principal": "ada",
        "arguments": {"path": "/\u202e\x1b[2J"},
        "reason": "destroys",
        "expires_at": 1_900_000_000,
    }
    decided: list[Json] = []
    with answering(place, [call], decided):
        code, out, _ = place.run("approve")
        assert code == 6 and "call k3x9: ada wants box.wipe (destroys)" in out and "\x1b" not in out
        assert place.run("approve", "k3x9")[0] == 6 and decided == []
        code, out, _ = place.run("approve", "k3x9", "--yes")
        assert code == 0 and "may be made once" in out
        code, out, _ = place.run("approve", "k3x9", "--deny")
        assert code == 0 and "denied" in out
        assert place.run("approve", "gone", "--deny")[0] == 2
    assert [(one["id"], one["allow"], one["by"]) for one in decided] == [
        ("k3x9", True, "command line"),
        ("k3x9", False, "command line"),
    ]


def test_an_id_that_no_call_has_any_more_is_told_as_one(tmp_path: Path) -> None:
    """SEC-7: whoever was slow to approve a call has not misspelt a server."""
    place = Place(tmp_path, [tool("a")], [tool("a")])
    code, _, said = place.run("approve", "0f3383ab")
    assert code == 2 and "no call 0f3383ab waits" in said and "box" not in said


def test_nothing_of_a_call_is_hidden_behind_padding(tmp_path: Path) -> None:
    """SEC-7: what the gateway shows of the arguments is shown to its end."""
    place = Place(tmp_path, [tool("read")], [tool("read")])
    arguments = f'{{"note": "{"x" * 3_900}", "command": "rm -rf /"}}\n\x1b[2J'
    call = {
        "id": "k3x9",
        "server": "box",
        "tool": "run",
        "principal": "ada",
        "arguments": arguments,
    }
    with answering(place, [call], []):
        out = place.run("approve", "k3x9")[1]
    assert '"command": "rm -rf /"}<U+000A><U+001B' in out and "\x1b" not in out


def test_the_arguments_of_a_call_are_shown_as_the_gateway_has_them() -> None:
    """SEC-7: one line of JSON, not quoted once more."""
    call = {"id": "0f3383ab", "server": "s", "tool": "t", "principal": "bob"}
    assert list(call_lines({**call, "arguments": '{"a": "b"}'}))[1] == '  {"a": "b"}'
