"""SEC-3, SRC-4: callers and scripts that mean harm, through the program."""

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attacks.harness import Program
from kit.client import WAIT_SECONDS, Session, health
from kit.gateway import GatewayProcess
from kit.process_tree import ProcessWatch
from kit.until import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

Json = dict[str, Any]

HOSTILE = [
    *(
        "; touch hacked",
        "$(touch hacked)",
        "`touch hacked`",
        "| touch hacked",
        "&& touch hacked",
        "> hacked",
        "' \" \\",
    ),
    *(
        "a\nb\r\n",
        "*",
        "~",
        "%s%n",
        "{text}",
        "{{text}}",
        "${HOME}",
        "$HOME",
        "\u202e\u0007\x1b[2J",
        "城市",
        "\U0001f600",
    ),
    *("", " ", "@/etc/passwd", "../../etc/passwd", "a=b", "x" * 100_000),
]
OPTIONS = ["-rf", "--help", "-", "--", "-c import os", "--config=/etc/passwd", "-\n"]


def command(name: str, script: Json, *parameters: str, **keys: Any) -> Json:
    declared = [{"name": parameter, **keys} for parameter in parameters]
    return {"name": name, "type": "script", "script": script, "parameters": declared}


class ScriptGateway:
    """One gateway, with the scripts that a test gives it in the folder of its config."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.session = Session(program.port)

    def call(self, tool: str, **arguments: Any) -> Json:
        reply = self.session.call(tool, **arguments)
        assert "result" in reply, reply
        return reply["result"]

    def text(self, tool: str, **arguments: Any) -> str:
        return self.call(tool, **arguments)["content"][0]["text"]


@contextlib.contextmanager
def script_gateway(
    commands: list[Json], scripts: dict[str, str], *args: str, **settings: Any
) -> Iterator[ScriptGateway]:
    with Program({"commands": commands, "global": settings}, *args) as program:
        for name, code in scripts.items():
            file = program.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code)
        yield ScriptGateway(program)


# ---- arguments


def test_values_reach_a_script_as_they_are_and_never_as_options() -> None:
    """SEC-3: no shell, no parser, no option; a NUL and what is too long are refused in words."""
    show = (
        "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ.get('TEXT'), "
        "sys.stdin.read()]))"
    )
    script = {
        "interpreter": sys.executable,
        "path": "show.py",
        "env": {"TEXT": "{text}"},
        "stdin": "{text}",
    }
    free = {**script, "args": ["-v", "--", "{text}", "--t={text}"]}
    bare = {"interpreter": sys.executable, "path": "show.py", "args": ["{text}"]}
    commands = [command("free", free, "text"), command("bare", bare, "text")]
    with script_gateway(commands, {"show.py": show}) as it:
        for text in (*HOSTILE, *OPTIONS):
            seen = it.call("free", text=text)["structuredContent"]["result"]
            assert seen == [["-v", "--", text, f"--t={text}"], text, text]
        for text in OPTIONS:
            refused = it.call("bare", text=text)
            assert refused["isError"] and "must not begin with '-'" in refused["content"][0]["text"]
        for text, words in (("a\0b", "NUL"), ("x" * 200_000, "too long")):
            refused = it.call("bare", text=text)
            assert refused["isError"] and words in refused["content"][0]["text"]
        assert not list(it.program.folder.rglob("hacked"))


# ---- places


def test_scripts_outside_of_the_allowed_folders_are_refused() -> None:
    """SEC-3: by `..`, by a sibling that shares a prefix, by a link of the file or of a folder; an
    allowed folder may be reached through a link."""
    paths = {
        "good": "scripts/good.sh",
        "through_link": "linked/good.sh",
        "parent": "scripts/../outside.sh",
        "sibling": "scripts-evil/evil.sh",
        "link": "scripts/link.sh",
        "folder": "scripts/folder/evil.sh",
        "device": "scripts/device",
        "absent": "scripts/absent.sh",
        "itself": "scripts",
    }
    commands = [
        command(name, {"interpreter": "bash", "path": path}) for name, path in paths.items()
    ]
    scripts = dict.fromkeys(("scripts/good.sh", "outside.sh", "scripts-evil/evil.sh"), "echo ran")
    with script_gateway(commands, scripts, script_paths=["scripts"]) as it:
        folder = it.program.folder
        (folder / "linked").symlink_to("scripts")
        (folder / "scripts/link.sh").symlink_to("../outside.sh")
        (folder / "scripts/folder").symlink_to("../scripts-evil")
        os.mkfifo(folder / "scripts/device")
        assert it.text("good") == it.text("through_link") == "ran"
        for name in ("parent", "sibling", "link", "folder", "itself"):
            refused = it.call(name)
            assert refused["isError"] and "global.script_paths" in refused["content"][0]["text"]
        assert "is not a file" in it.text("device")
        assert "No such file" in it.text("absent")


def test_a_link_that_changes_all_the_time_never_leads_out() -> None:
    """SEC-3: what was looked at is what is run."""
    commands = [command("turning", {"interpreter": "bash", "path": "scripts/link.sh"})]
    scripts = {"scripts/good.sh": "echo inside", "outside.sh": "echo outside"}
    with script_gateway(commands, scripts, script_paths=["scripts"]) as it:
        link, over = it.program.folder / "scripts/link.sh", threading.Event()

        def turn() -> None:
            for number in range(10**9):
                if over.is_set():
                    return
                fresh = link.with_name("fresh")
                fresh.symlink_to("../outside.sh" if number % 2 else "good.sh")
                fresh.rename(link)

        turning = threading.Thread(target=turn)
        turning.start()
        try:
            wait_until(link.is_symlink)
            said = [it.text("turning") for _ in range(60)]
        finally:
            over.set()
            turning.join()
        assert all(text == "inside" or "global.script_paths" in text for text in said)


# ---- floods

FLOOD = """
import os, sys
pipe, line = int(sys.argv[1]), sys.argv[2].encode() + b"\\n"
block = line * (65536 // len(line) + 1)
written = 0
while written < 100 * 2**20:
    written += os.write(pipe, block)
print("done")
"""


@pytest.mark.parametrize(
    ("pipe", "line", "outcome"),
    [
        (1, "y" * 80, "printed more than"),
        (2, "y", "done"),
        (2, "::progress 5/10 words", "done"),
    ],
)
def test_a_flood_costs_little_memory_and_holds_nobody_up(
    pipe: int, line: str, outcome: str
) -> None:
    """SEC-3: a hundred megabytes on either stream."""
    flood = {
        "interpreter": sys.executable,
        "path": "flood.py",
        "args": [str(pipe), "{line}"],
        "timeout": 60,
    }
    with (
        script_gateway([command("flood", flood, "line")], {"flood.py": FLOOD}) as it,
        it.program.peak() as peak,
    ):
        said: list[str] = []
        calling = threading.Thread(target=lambda: said.append(it.text("flood", line=line)))
        calling.start()
        slowest = 0.0
        while calling.is_alive():
            began = time.monotonic()
            health(it.program.port)
            slowest = max(slowest, time.monotonic() - began)
            calling.join(0.005)
        assert outcome in said[0]
        assert len(said[0]) < 5000
        assert peak() < 30
        assert slowest < 1


# ---- what stays behind

DAEMONS = """
import os, sys, time

def note(name):
    with open(name + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(name + ".part", name)

def daemon(name, *, session, closed, bare):
    if os.fork():
        return
    if session:
        os.setsid()
    if os.fork():
        os._exit(0)
    if closed:
        os.closerange(0, 3)
    note(name)
    if bare:
        os.execve(sys.executable, ["sleeper", "-c", "import time; time.sleep(300)"], {})
    time.sleep(300)

daemon("held", session=False, closed=False, bare=False)
daemon("closed", session=False, closed=True, bare=False)
daemon("session", session=True, closed=True, bare=False)
daemon("bare", session=True, closed=True, bare=True)
while not all(map(os.path.exists, ("held", "closed", "session", "bare"))):
    time.sleep(0.01)
print("done")
"""


def test_what_a_script_leaves_in_the_background_goes_with_it() -> None:
    """SEC-3, LIF-7: `sleep & disown`, a session of its own, closed streams, an empty
    environment."""
    with script_gateway(
        [command("daemons", {"interpreter": sys.executable, "path": "daemons.py"})],
        {"daemons.py": DAEMONS},
    ) as it:
        began = time.monotonic()
        result = it.call("daemons")
        assert time.monotonic() - began < WAIT_SECONDS / 2
        assert result["content"][0]["text"] == "done"
        names = ("held", "closed", "session", "bare")
        with ProcessWatch(int((it.program.folder / name).read_text()) for name in names) as watch:
            assert watch.left(WAIT_SECONDS) == []


RESPAWNS = """
import os, time
open("began", "w").close()
while True:
    if os.fork():
        time.sleep(0.002)
        os._exit(0)
    os.setsid()
    open("alive", "w").close()
"""


def test_a_script_that_runs_away_from_its_own_end_is_ended() -> None:
    """SEC-3, LIF-7: each process lives for two milliseconds, in a session of its own."""
    runaway = {"interpreter": sys.executable, "path": "runaway.py", "timeout": 2}
    with script_gateway([command("runaway", runaway)], {"runaway.py": RESPAWNS}) as it:
        it.call("runaway")
        alive = it.program.folder / "alive"

        def quiet() -> bool:
            alive.unlink(missing_ok=True)
            time.sleep(0.2)
            return not alive.exists()

        wait_until(quiet)


def test_two_hundred_runs_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-3: no zombie, no descriptor, no temporary folder, whatever way they end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # Other tests run scripts at the same time.
    commands = [
        command(
            "ends",
            {"interpreter": "bash", "path": "ends.sh", "args": ["{how}"], "timeout": 0.3},
            "how",
        ),
        command(
            "held",
            {"interpreter": "bash", "path": "ends.sh", "writable": [], "stdin": "{how}"},
            "how",
        ),
        command("absent", {"interpreter": "no-such-program", "path": "ends.sh"}),
    ]
    code = (
        'case "$1" in fail) exit 3 ;; flood) exec yes ;; hang) sleep 60 & wait ;; esac; echo fine'
    )
    with script_gateway(commands, {"ends.sh": code}) as it:
        it.text("ends", how="well")
        it.text("held", how="well")
        pid = it.program.process.pid
        before = it.program.descriptors()

        def calls() -> None:
            session = Session(it.program.port)
            for number in range(50):
                how = ("well", "fail", "well", "flood")[number % 4] if number % 20 else "hang"
                session.call("ends", how=how)
                if number % 5 == 0:
                    session.call("held", how="x" * 100_000)
                    session.call("absent")

        threads = [threading.Thread(target=calls) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        def children() -> list[str]:
            return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

        wait_until(lambda: len(children()) == 1)  # the keeper
        wait_until(lambda: it.program.descriptors() <= before + 4)
        assert list(tmp_path.glob("mcpx-script-*")) == []


# ---- secrets


def test_no_secret_of_the_gateway_reaches_a_script_and_none_of_a_script_reaches_logs_or_listings() -> (
    None
):
    """SEC-3, SEC-6: also at debug, also when it fails and prints its own environment."""
    own, declared, caller = "canary-of-the-gateway", "canary-of-the-script", "canary-of-the-caller"
    code = (
        "import os, sys, time\n"
        "print(sorted(os.environ.items()), file=sys.stderr)\n"
        "open('lines', 'wb').write(open(f'/proc/{os.getpid()}/cmdline', 'rb').read())\n"
        "sys.exit(1)\n"
    )
    script = {
        "interpreter": sys.executable,
        "path": "leaks.py",
        "stdin": "{text}",
        "env": {"API_TOKEN": "${SCRIPT_TOKEN}", "TEXT": "x"},
    }
    config = {"commands": [command("leaks", script, "text")], "global": {"log_level": "DEBUG"}}
    secrets = {"OPENAI_API_KEY": own, "MCPX_ADMIN_TOKEN": own, "SCRIPT_TOKEN": declared}
    with GatewayProcess(config, env=secrets) as gateway:
        (gateway.folder / "leaks.py").write_text(code)
        result = Session(gateway.port).call("leaks", text=caller)["result"]
        told = result["content"][0]["text"]
        assert result["isError"] and "API_TOKEN" in told
        assert re.findall("canary-[a-z-]*", told) == []
        assert b"canary" not in (gateway.folder / "lines").read_bytes()
        said = gateway.stderr()
        assert "API_TOKEN" in said  # what it prints is logged
    assert "canary" not in said
    assert "canary" not in json.dumps(result)
