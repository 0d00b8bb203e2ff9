"""`NpmRegistry`: an npm registry on loopback with one MCP server, whose download can be held in the
middle.

    with NpmRegistry() as registry:
        registry.hold()
        ...                     # `npx -y drip-server` with `registry.environ(folder)`
        registry.half_sent.wait(START)
        registry.release()

The package `drip-server` needs all files of the package `drip-data`, so that it does not run with
half of them.
"""

import base64
import hashlib
import io
import json
import random
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from kit.node import NODE_BIN

FILES = 20
NPX = NODE_BIN.parent / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"
"""The wheel's own `bin/npx` does not find npm."""
_SERVER = """#!/usr/bin/env node
if (require('drip-data') !== 'whole') throw new Error('half a package');
const answers = {
  initialize: (params) => ({
    protocolVersion: params.protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: 'drip', version: '1.0.0' },
  }),
  'tools/list': () => ({ tools: [{ name: 'drop', inputSchema: { type: 'object' } }] }),
  'tools/call': () => ({ content: [{ type: 'text', text: 'plop' }] }),
};
const lines = require('readline').createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const found = answers[method];
  const outcome = found ? { result: found(params) } : { error: { code: -32601, message: 'unknown method' } };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...outcome }) + '\\n');
});
"""
_DATA = f"""
for (let i = 0; i < {FILES}; i++) require('fs').readFileSync(`${{__dirname}}/data${{i}}.txt`);
module.exports = 'whole';
"""


def _package(manifest: dict[str, object], files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in {"package.json": json.dumps(manifest), **files}.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _random_text(seed: int) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnop", k=20_000))


_MANIFESTS: dict[str, dict[str, object]] = {
    "drip-server": {
        "name": "drip-server",
        "version": "1.0.0",
        "bin": {"drip-server": "server.js"},
        "dependencies": {"drip-data": "1.0.0"},
    },
    "drip-data": {"name": "drip-data", "version": "1.0.0", "main": "index.js"},
}
_FILES = {
    "drip-server": {"server.js": _SERVER},
    "drip-data": {
        "index.js": _DATA,
        **{f"data{number}.txt": _random_text(number) for number in range(FILES)},
    },
}


class NpmRegistry:
    def __init__(self) -> None:
        self.half_sent = threading.Event()
        """Set when half of `drip-data` was sent."""
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._packages = {name: _package(_MANIFESTS[name], _FILES[name]) for name in _MANIFESTS}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def environ(self, folder: Path) -> dict[str, str]:
        """The `env` of a server that installs from here into a cache in `folder`."""
        programs = folder / "programs"
        if not programs.exists():
            programs.mkdir()
            (programs / "npx").symlink_to(NPX)
        return {
            "PATH": f"{programs}:{NODE_BIN}:/usr/bin:/bin",
            "HOME": str(folder),
            "npm_config_registry": self.url,
            "npm_config_cache": str(folder / "npm-cache"),
            "npm_config_audit": "false",
            "npm_config_update_notifier": "false",
        }

    def hold(self) -> None:
        """Stop each download of `drip-data` in its middle until `release`."""
        self.half_sent.clear()
        self._may_go_on.clear()

    def release(self) -> None:
        self._may_go_on.set()

    def document(self, name: str) -> bytes:
        packed = self._packages[name]
        digest = base64.b64encode(hashlib.sha512(packed).digest()).decode()
        dist = {"tarball": f"{self.url}{name}/-/{name}-1.0.0.tgz", "integrity": f"sha512-{digest}"}
        version = {**_MANIFESTS[name], "dist": dist}
        return json.dumps(
            {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        ).encode()

    def send_package(self, name: str, output: io.BufferedIOBase) -> None:
        packed = self._packages[name]
        half = len(packed) // 2 if name == "drip-data" else len(packed)
        output.write(packed[:half])
        output.flush()
        if name == "drip-data":
            self.half_sent.set()
            self._may_go_on.wait()
            output.write(packed[half:])

    def knows(self, name: str) -> bool:
        return name in self._packages

    def size(self, name: str) -> int:
        return len(self._packages[name])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()


def _handler(registry: NpmRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name = self.path.strip("/").partition("/")[0]
            if not registry.knows(name):
                self.send_error(404)
                return
            is_package = self.path.endswith(".tgz")
            document = b"" if is_package else registry.document(name)
            self.send_response(200)
            self.send_header(
                "Content-Type", "application/octet-stream" if is_package else "application/json"
            )
            self.send_header(
                "Content-Length", str(registry.size(name) if is_package else len(document))
            )
            self.end_headers()
            try:
                if is_package:
                    registry.send_package(name, self.wfile)
                else:
                    self.wfile.write(document)
            except OSError:
                self.close_connection = True  # The client was interrupted.

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    return Handler
