"""Runs the commands of a page as its reader would: one folder, one home, one after the other; what
serves goes on.

Other people's servers (`npx …`, `uvx …`) are the real ones, from the packages the tests install;
ports are free ones, put in the place of 8000 and 8080.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from docs.blocks import ROOT, Block, Command

SERVES = re.compile(
    r"^(?:\S+=\S+ )*mcpx(?: serve)?(?: (?![a-z]+\b(?!\.|/))\S+)*(?: --[\w-]+(?: "
    r"\S+)?)*\s*(?:&\s*)?(?:#.*)?$"
)
"""`mcpx`, `mcpx FILE --admin`, `mcpx serve …`: goes on until it is ended."""
LISTENS = re.compile(r"http://127\.0\.0\.1:(\d+)/mcp")
ADMIN = re.compile(r"Admin +http://127\.0\.0\.1:(\d+)")
SAME = (("bash scripts/demo", "mcpx"), ("uv run --no-dev mcpx", "mcpx"))
"""What a reader types before anything is installed, and what it comes to here."""
PACKAGES = {
    "@modelcontextprotocol/server-filesystem": "mcp-server-filesystem",
    "@modelcontextprotocol/server-memory": "mcp-server-memory",
    "@modelcontextprotocol/server-everything": "mcp-server-everything",
}
TOKEN = "a-token-for-the-pages-of-the-docs"
LONGEST = 120
"""Seconds that the commands of a block take."""
END = "\x1e"


class Session:
    """One page's reader: what they have on disk and what runs for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        self.ports: dict[str, str] = {}
        self._serving: subprocess.Popen[bytes] | None = None
        home = folder / "home"
        home.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        self._stand_ins(programs)
        self.environ = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "MCPX_STATE_DIR": str(home / "state"),
            "MCPX_PORT": "0",
            "MCPX_ADMIN_PORT": "0",
            "MCPX_ADMIN_TOKEN": TOKEN,
            "SECRET": "what nobody should see",
            "BROWSER": "true",
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
        }

    def _stand_ins(self, programs: Path) -> None:
        """`npx` and `uvx` without a network: they run what is installed."""
        binaries = ROOT / "tests" / "npm" / "node_modules" / ".bin"
        cases = "".join(
            f'  {name}) shift; exec "{binaries}/{program}" "$@";;\n'
            for name, program in PACKAGES.items()
        )
        other = '  *) echo "npx: $1 is not here" >&2; exit 1;;\n'
        npx = f'#!/bin/sh\n[ "$1" = -y ] && shift\ncase "$1" in\n{cases}{other}esac\n'
        uvx = f'#!/bin/sh\nprogram=$1; shift; exec "{Path(sys.executable).parent}/$program" "$@"\n'
        for name, text in (("npx", npx), ("uvx", uvx)):
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(0o755)

    # What is done
    # ----------------------------------------------------------------------------------------------

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, block: Block, commands: list[Command]) -> None:
        """All of them, in one shell as far as nothing has to stay."""
        at: list[Command] = []
        for command in commands:
            if SERVES.match(self._here(command.text)):
                self._together(block, at, last=False)
                at = []
                self.serve(block, command)
            else:
                at.append(command)
        self._together(block, at, last=True)

    def _here(self, text: str) -> str:
        for pattern, instead in SAME:
            text = re.sub(pattern, instead, text)
        text = re.sub(r"--(admin-)?port \d+", r"--\1port 0", text)
        for told, port in self.ports.items():
            text = text.replace(f"127.0.0.1:{told}", f"127.0.0.1:{port}")
        return text

    def _together(self, block: Block, commands: list[Command], *, last: bool) -> None:
        if not commands:
            return
        script = "".join(
            f"{self._here(command.text)}\nprintf '{END}%d\\n' $?\n" for command in commands
        )
        running = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            said = running.communicate(timeout=LONGEST)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said = (
                running.communicate()[0].decode(errors="replace") + f"\nnot over after {LONGEST} s"
            )
        outputs = re.findall(rf"(.*?){END}(\d+)\n", said, re.DOTALL)
        assert len(outputs) == len(commands), f"{block.place}: {said}"
        for command, (output, code) in zip(commands, outputs, strict=True):
            wished = block.wishes.get("exit", "0") if last and command is commands[-1] else "0"
            assert code == wished, (
                f"{block.place}: {command.text}\nended with {code}, not {wished}:\n{output}"
            )
            if block.wishes.get("output") != "free":
                compare(block, command, output)

    def serve(self, block: Block, command: Command) -> None:
        """Start it and wait until it says where it listens; what served before is ended."""
        self.end()
        self._serving = subprocess.Popen(
            ["bash", "-c", f"exec {self._here(command.text).partition('#')[0].rstrip(' &')}"],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        wanted = {"8000": LISTENS, **({"8080": ADMIN} if "--admin" in command.text else {})}
        said: list[str] = []
        stderr = self._serving.stderr
        assert stderr is not None
        for raw in stderr:
            line = raw.decode(errors="replace")
            said.append(line)
            self.ports |= {
                told: found[1] for told, where in wanted.items() if (found := where.search(line))
            }
            if wanted.keys() <= self.ports.keys() and sum(map(bool, map(str.strip, said))) >= len(
                command.shown
            ):
                break
        else:
            serving, self._serving = self._serving, None
            serving.wait(30)
            stderr.close()
            raise AssertionError(f"{block.place}: {command.text}\ndid not serve:\n{''.join(said)}")
        self._reader = threading.Thread(
            target=lambda: [None for _ in stderr], daemon=True
        )  # so that it can go on talking
        self._reader.start()
        if block.wishes.get("output") != "free":
            compare(block, command, "".join(said))
        self._settle()

    def _settle(self) -> None:
        """Until no server is connecting any more: a reader types more slowly than we do."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.ports['8000']}/health", timeout=10
            ) as answer:
                servers = json.load(answer).get("servers", {})
            if all(server["status"] != "connecting" for server in servers.values()):
                return
            time.sleep(0.05)  # no event tells it to strangers

    def end(self) -> None:
        """As Ctrl-C does."""
        serving, self._serving, self.ports = self._serving, None, {}
        if serving is not None:
            serving.send_signal(signal.SIGINT)
            code = serving.wait(30)
            self._reader.join(30)
            assert serving.stderr is not None
            serving.stderr.close()
            assert code == 0


def compare(block: Block, command: Command, output: str) -> None:
    """Each line that the page shows comes, in this order; `…` stands for anything, any number for
    any other."""
    lines = iter(output.split("\n"))
    for shown in command.shown:
        wanted = re.compile(pattern_of(shown.strip()))
        assert any(wanted.fullmatch(line.strip()) for line in lines), (
            f"{block.place}: {command.text}\nshows {shown!r}, but said:\n{output}"
        )


def pattern_of(shown: str) -> str:
    parts = re.split(r"(…|\d+|\s+)", shown)
    kinds = {"…": ".*"}
    return "".join(
        kinds.get(part, r"\d+" if part.isdigit() else r"\s+" if part.isspace() else re.escape(part))
        for part in parts
        if part
    )
