"""The published servers that stand behind mcpx here, and the small world they work in.

everything, filesystem, memory   from npm, on the TypeScript SDK: older revisions only
git, time, fetch                 from PyPI, on the Python SDK: both eras
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_server
from threading import Thread
from typing import Any, Literal

from kit.node import node, npm_bin
from kit.process import START, Child

Json = dict[str, Any]

TEXT = "First line.\nZweite Zeile: äöü ✓\n"
PAGE = (
    "<html><head><title>A page</title></head><body><h1>Hello</h1><p>from the "
    "<b>loopback</b>.</p></body></html>"
)
COMMITS = ("Begin", "Say more")
STATIC = "demo://resource/static/document/features.md"
"""A resource that the everything server lists."""


@dataclass(frozen=True)
class Peer:
    """One server: what a user writes into a config to have it."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def native(self) -> Json:
        """Its entry in `mcp_servers`, with a prefix (NAM-1)."""
        return {
            "name": self.name,
            "prefix": self.name,
            "connection": {"type": "stdio", **self.client},
        }

    @property
    def client(self) -> Json:
        """Its entry in a client's `mcpServers`."""
        return {"command": self.command[0], "args": list(self.command[1:]), "env": dict(self.env)}


@dataclass(frozen=True)
class World:
    """What the servers work on. Folders of programs that remember things are apart from each
    other."""

    folder: Path
    page: str
    """The address of a page on loopback."""

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    def peers(self, graph: str) -> dict[str, Peer]:
        """All six; `graph` names the file in which memory keeps what it is told."""
        without_programs = (
            self.folder / "empty"
        )  # with a Node in reach, fetch would install packages of its own
        python, javascript = sys.executable, node()
        all_six = (
            Peer("everything", [javascript, npm_bin("server-everything")]),
            Peer("filesystem", [javascript, npm_bin("server-filesystem"), str(self.files)]),
            Peer(
                "memory",
                [javascript, npm_bin("server-memory")],
                {"MEMORY_FILE_PATH": str(self.folder / graph)},
            ),
            Peer("git", [python, "-m", "mcp_server_git", "--repository", str(self.repository)]),
            Peer("time", [python, "-m", "mcp_server_time", "--local-timezone", "UTC"]),
            Peer(
                "fetch",
                [python, "-m", "mcp_server_fetch", "--allow-private-ips"],
                {"PATH": str(without_programs)},
            ),
        )
        return {peer.name: peer for peer in all_six}

    def marked(self, word: str) -> list[Peer]:
        """Three of them with a word in the command line by which their processes are found."""
        peers = self.peers("marked.jsonl")
        extra = {
            "everything": ["stdio", word],
            "filesystem": [word],
            "fetch": ["--user-agent", word],
        }
        return [
            replace(peers[name], command=[*peers[name].command, *words])
            for name, words in extra.items()
        ]


@contextmanager
def world(folder: Path) -> Iterator[World]:
    folder = folder.resolve()
    for name in ("files", "empty"):
        (folder / name).mkdir()
    (folder / "files" / "notes.txt").write_text(TEXT, encoding="utf-8")
    _make_repository(folder / "repository")
    with _page_served() as page:
        yield World(folder, page)


def _make_repository(folder: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-C", str(folder), *words], check=True, capture_output=True, timeout=20
        )

    folder.mkdir()
    git("init", "--quiet")
    for count, message in enumerate(COMMITS):
        (folder / "story.txt").write_text("line\n" * (count + 1), encoding="utf-8")
        git("add", "story.txt")
        git(
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=ada@example.org",
            "commit",
            "--quiet",
            "--message",
            message,
        )


class _Page(BaseHTTPRequestHandler):
    """One page at every path but /robots.txt, which is not there: everything is allowed."""

    def do_GET(self) -> None:
        found = self.path != "/robots.txt"
        body = PAGE.encode() if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _page_served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/page.html"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def everything_on(transport: Literal["streamableHttp", "sse"]) -> Iterator[str]:
    """The everything server on a port; yields its address.

    It takes its port from the environment and does not tell which one it got, so a free one is
    looked for first. Another program may take it in between: then another is tried.
    """
    for _ in range(5):
        with create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        command = [node(), npm_bin("server-everything"), transport]
        with Child(command, {"PORT": str(port)}) as child:
            if child.stderr.wait_for(rf"port {port}$", START) is not None:
                yield f"http://127.0.0.1:{port}/{'mcp' if transport == 'streamableHttp' else 'sse'}"
                return
    raise RuntimeError(f"the everything server does not start on {transport}:\n{child.stderr.text}")
