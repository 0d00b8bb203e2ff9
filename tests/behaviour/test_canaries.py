"""SEC, OBS-1, CFG-9: secrets of every kind go through the program, and come out nowhere.

Every secret holds `ROOT`. The servers, APIs and scripts here say back all they are given.
`COLLECTORS` are the places where anything of the gateway can be read: whoever adds such a place
adds a line there.
"""

import asyncio
import base64
import json
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kit.client import post
from kit.command import MCPX
from kit.gateway import GatewayProcess
from kit.http_client import Reply, fetch
from kit.messages import Json, modern_headers, modern_request
from kit.process import FIXTURES
from kit.process_tree import descendants
from kit.protected_server import ProtectedServer
from kit.replicas import RedisServer, ready
from kit.until import wait_until
from mcpx.auth import sealing
from mcpx.auth.flow.clients import Client
from mcpx.auth.flow.grant import Grant
from mcpx.auth.flow.tokens import Tokens
from mcpx.auth.vault import Vault
from mcpx.config import load
from mcpx.front.control import ask as ask_control
from mcpx.front.control import socket_path

ROOT = "zq7canary"
KINDS = (
    *(
        "client_token",
        "other_token",
        "admin_token",
        "store",
        "api_header",
        "api_query",
        "api_body",
        "bearer",
        "basic",
    ),
    *(
        "custom",
        "client_secret",
        "access",
        "refresh",
        "env",
        "script",
        "file",
        "enc",
        "keyring",
        "variable",
        "argument",
    ),
    *("proxy", "in_query"),
)
CANARIES = {kind: f"{ROOT}-{kind}-8f3e51d0" for kind in KINDS}
JWT = f"eyJhbGciOiJIUzI1NiJ9.{base64.urlsafe_b64encode(json.dumps({'sub': ROOT}).encode()).decode()}.{ROOT}x1"
KEY = sealing.new_key()
TELLTALE = str(Path(__file__).parent / "telltale_server.py")


def spelled() -> list[str]:
    """The root, plainly and as it stands in any base64."""
    raw, found = ROOT.encode(), [ROOT]
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        found.append(coded[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6])
    return found


@dataclass
class Scene:
    """A running gateway with all those secrets, and what its clients were told."""

    gateway: GatewayProcess
    store: RedisServer
    told: list[str] = field(default_factory=list)
    stored: str = ""
    """What was in the store before it went away."""

    def ask(
        self, method: str, params: Json | None = None, token: str = CANARIES["client_token"]
    ) -> Json:
        message = modern_request(method, params or {})
        reply = post(
            self.gateway.port,
            message,
            {**modern_headers(message), "Authorization": f"Bearer {token}"},
        )
        self.told.append(f"{reply}")
        return reply.json if reply.status == 200 else {}

    def call(self, tool: str, **arguments: Any) -> Json:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def page(self, path: str) -> Reply:
        return fetch(
            self.gateway.port,
            path,
            "GET",
            [("Authorization", f"Bearer {CANARIES['client_token']}")],
        )

    def run(self, *words: str) -> str:
        """What a command says to whoever types it."""
        done = subprocess.run(
            [*MCPX, *words],
            env=self.gateway.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            input="",
        )
        return done.stdout + done.stderr

    def reload(self, text: str) -> None:
        self.gateway.file.write_text(text)
        self.told.append(self.run("reload", str(self.gateway.file)))

    @property
    def state(self) -> Path:
        return Path(self.gateway.env["MCPX_STATE_DIR"])


def what_clients_were_told(scene: Scene) -> str:
    return "\n".join(scene.told)


def console(scene: Scene) -> str:
    return scene.gateway.stderr()


def log_file(scene: Scene) -> str:
    return (scene.gateway.folder / "mcpx.log").read_text(encoding="utf-8")


def pages(scene: Scene) -> str:
    return "\n".join(
        str(scene.page(path)) for path in ("/health", "/ready", "/metrics", "/", "/.well-known/x")
    )


def commands(scene: Scene) -> str:
    """What people ask for; of those that are not there yet, that they are not."""
    file = str(scene.gateway.file)
    asked = [
        *(
            ["servers", file],
            ["servers", "--json", "--links", file],
            ["check", file],
            ["auth", "status", "--json", file],
        ),
        *(
            ["token", "list"],
            ["pins", file],
            ["approvals", file],
            ["audit", file],
            ["secret", "list"],
        ),
    ]
    with ThreadPoolExecutor(4) as pool:
        return "\n".join(pool.map(lambda words: scene.run(*words), asked))


def control(scene: Scene) -> str:
    path = socket_path(scene.state, scene.gateway.file, None)
    return json.dumps([asyncio.run(ask_control(path, verb)) for verb in ("status", "nonsense")])


def state_files(scene: Scene) -> str:
    """But for the vault, which is there to keep them, and the history, which has what the config
    file has: for its owner alone."""
    files = [file for file in scene.state.rglob("*") if file.is_file()]
    kept = [
        file for file in files if {"auth", "history"} & set(file.relative_to(scene.state).parts)
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}
    files = [file for file in files if file not in kept]
    return "\n".join(f"{file} {file.read_bytes().decode('utf-8', 'replace')}" for file in files)


def contents_of_the_store(scene: Scene) -> str:
    return scene.stored


def process_listing(scene: Scene) -> str:
    """The command lines; what a config itself puts there (`args`) is its owner's choice."""
    told = ""
    for pid in (scene.gateway.process.pid, *descendants(scene.gateway.process.pid)):
        try:
            told += Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
    return told.replace(CANARIES["argument"], "").replace(CANARIES["variable"], "")


def representations(scene: Scene) -> str:
    return repr(load(scene.gateway.file, scene.gateway.env))


COLLECTORS: list[Callable[[Scene], str]] = [
    what_clients_were_told,
    console,
    log_file,
    pages,
    commands,
    control,
    state_files,
    contents_of_the_store,
    process_listing,
    representations,
]


def clean(text: str) -> str:
    """The first place where a secret stands in a text, if it does."""
    at = next((text.index(each) for each in spelled() if each in text), None)
    return "" if at is None else text[max(0, at - 200) : at + 100]


def config(guarded: ProtectedServer, log_format: str, store: RedisServer) -> Json:
    """Every field that can hold a secret holds one."""
    secret = CANARIES

    def remote(name: str, auth: str | None = None, **connection: Any) -> Json:
        entry: Json = {
            "name": name,
            "prefix": name,
            "connection": {"type": "http", "url": guarded.url("http"), **connection},
        }
        return {**entry, "timeout": 5, **({"auth": {"ref": auth}} if auth else {})}

    auths: Json = {
        "api_header": {
            "type": "api_key",
            "api_key": {"name": "X-Key", "value": secret["api_header"]},
        },
        "api_query": {
            "type": "api_key",
            "api_key": {"location": "query", "name": "key", "value": secret["api_query"]},
        },
        "api_body": {
            "type": "api_key",
            "api_key": {"location": "body", "name": "key", "value": secret["api_body"]},
        },
        "bearer": {"type": "bearer_token", "bearer_token": {"token": secret["bearer"]}},
        "basic": {
            "type": "basic_auth",
            "basic_auth": {"username": "user", "password": secret["basic"]},
        },
        "custom": {
            "type": "custom_header",
            "custom_header": {"headers": {"X-Any": secret["custom"]}},
        },
        "oauth2": {
            "type": "oauth2",
            "oauth2": {
                "client_id": "client",
                "client_secret": secret["client_secret"],
                "token_url": guarded.token_url,
            },
        },
        "signed": {"type": "oauth", "oauth": {}},
    }
    env = {
        "A_TOKEN": secret["env"],
        "ENC": sealing.encrypt(secret["enc"], {"MCPX_KEY": KEY}),
        "KEPT": "${keyring:kept}",
        "FROM_FILE": "${file:held}",
    }
    args = [TELLTALE, "--api-key", secret["argument"], "${CANARY_TOKEN}"]
    telltale = {"type": "stdio", "command": sys.executable, "args": args, "env": env}
    api = f"http://127.0.0.1:{guarded.port}/api"
    return {
        "server": {
            "store": store.url,
            "drain": 0,
            "admin_token": secret["admin_token"],
            "auth": {
                "type": "bearer",
                "tokens": [
                    {"name": "one", "token": secret["client_token"]},
                    {"name": "two", "token": secret["other_token"]},
                ],
            },
        },
        "global": {
            "log_level": "DEBUG",
            "log_format": log_format,
            "log_file": "mcpx.log",
            "hot_reload": False,
            "startup_wait": 5,
            "first_start_wait": 5,
            "script_paths": [str(Path(TELLTALE).parent)],
            "audit": {"arguments": "values"},
        },
        "mcp_servers": [
            {"name": "telltale", "prefix": "t", "connection": telltale},
            {
                "name": "dead",
                "connection": {**telltale, "args": [*args, "--once"]},
                "retry_on_failure": False,
            },
            remote(
                "plain",
                headers={"X-File": "${file:held}", "Authorization": "Bearer ${CANARY_TOKEN}"},
            ),
            remote("in_query", url=f"{guarded.url('http')}?token={secret['in_query']}"),
            *(remote(name, name) for name in auths if name != "api_body"),
        ],
        "commands": [
            {
                "name": f"call_{name}",
                "type": "http",
                "http": {
                    "method": "POST",
                    "url": api,
                    "body": {"x": 1},
                    "auth": {"ref": name},
                    "allow_private": True,
                },
            }
            for name in (
                "api_header",
                "api_query",
                "api_body",
                "bearer",
                "basic",
                "custom",
                "oauth2",
            )
        ]
        + [
            {
                "name": "script",
                "type": "script",
                "script": {
                    "path": TELLTALE,
                    "interpreter": sys.executable,
                    "args": ["--once"],
                    "env": {"SCRIPT_TOKEN": secret["script"], "KEPT": "${keyring:kept}"},
                },
            }
        ],
        "auth_configs": [{"name": name, **auth} for name, auth in auths.items()],
    }


@contextmanager
def scene(log_format: str, folder: Path) -> Iterator[tuple[Scene, ProtectedServer]]:
    ring = folder / "ring.json"
    ring.write_text(json.dumps({"mcpx kept": CANARIES["keyring"]}))
    state = folder / "state"
    with ExitStack() as stack:
        guarded = stack.enter_context(ProtectedServer(lambda headers, query: False))
        guarded.secret, guarded.token_mark = CANARIES["client_secret"], f"-{CANARIES['access']}"

        def echo(headers: dict[str, str], query: dict[str, str]) -> bool:
            """Refuses everybody, and says back what it was shown."""
            said = json.dumps([headers, query])
            guarded.refusal = (
                401,
                [("WWW-Authenticate", f'Bearer error="{said[:200]}"')],
                f"not {said}".encode(),
            )
            return False

        guarded.admits = echo
        url = guarded.url("http")
        tokens = Tokens(CANARIES["access"], CANARIES["refresh"], "", 4e9, 4e9)
        client = Client("client", CANARIES["client_secret"], "client_secret_post", registered=True)
        grant = Grant(
            f"http://127.0.0.1:{guarded.port}",
            url,
            guarded.token_url,
            None,
            "http://h/cb",
            client,
            "",
            tokens,
        )
        Vault(state, {"MCPX_KEY": KEY}).write(f"grant signed {url}", grant.to_json())
        env = {
            "MCPX_KEY": KEY,
            "MCPX_STATE_DIR": str(state),
            "CANARY_TOKEN": CANARIES["variable"],
            "PYTHONPATH": str(FIXTURES / "rings"),
            "KEYRING_FILE": str(ring),
            "FTP_PROXY": f"http://user:{CANARIES['proxy']}@127.0.0.1:9",
        }
        store = stack.enter_context(RedisServer(password=CANARIES["store"]))
        gateway = stack.enter_context(_Held(config(guarded, log_format, store), env=env))
        wait_until(lambda: ready(gateway), what="it has joined")
        yield Scene(gateway, store), guarded


class _Held(GatewayProcess):
    """With a file beside its config."""

    def _start(self) -> None:
        (self.folder / "held").write_text(CANARIES["file"] + "\n")
        super()._start()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_comes_out_anywhere(log_format: str, tmp_path: Path) -> None:
    """OBS-1, CFG-9."""
    with scene(log_format, tmp_path) as (made, guarded):
        listed = made.ask("tools/list")
        names = [tool["name"] for tool in listed["result"]["tools"]]
        assert {"script", "call_basic", "t_die"} <= set(names)
        for name in names:
            made.call(name)
        states = wait_until(lambda: _settled(made))
        assert {"needs_auth", "disconnected"} <= set(states.values()), states
        for name in states:
            made.call(f"{name}_echo", text="x")
        shown = json.dumps([[seen.headers, seen.query] for seen in guarded.seen])
        for kind in (
            "api_header",
            "api_query",
            "bearer",
            "custom",
            "access",
            "variable",
            "file",
            "in_query",
        ):
            assert CANARIES[kind] in shown, f"{kind} was not sent anywhere"
        # Strangers, with tokens nobody knows; and a call that names a secret as its tool.
        for token in (JWT, f"{ROOT}-wrong-123"):
            made.ask("tools/list", token=token)
        # A file that is wrong right beside its secrets, in its form and in what it says.
        good = made.gateway.file.read_text()
        made.reload(good.replace('"tokens"', '"tokenz"').replace('"A_TOKEN": ', '"A_TOKEN": 1 '))
        assert "Nothing was changed" in made.told[-1]
        made.reload(good.replace("enc:v1:", "enc:v1:A").replace('"tokens"', '"tokenz"'))
        made.reload(good)
        made.stored = made.store.contents()
        assert "{mcpx}:config" in made.stored and "{mcpx}:files:file:auth/" in made.stored
        made.store.kill()  # which is said, with its address
        wait_until(lambda: "went away" in log_file(made))
        found = {collect.__name__: hit for collect in COLLECTORS if (hit := clean(collect(made)))}
        assert not found, "\n\n".join(f"{where}: {hit}" for where, hit in found.items())
        assert "***" in log_file(made)  # it was there to be found
        for collect in (console, log_file, commands):
            assert "\x1b" not in collect(made)  # LIF-7: nothing there steers a terminal


def _settled(made: Scene) -> dict[str, str] | None:
    servers: Json = json.loads(made.page("/health").body)["servers"]
    states = {name: server["status"] for name, server in servers.items()}
    return None if "connecting" in states.values() else states
