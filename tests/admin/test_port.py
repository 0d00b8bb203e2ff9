"""ADM-1: the admin port, beside HTTP and beside stdio; and nothing of it for who does not ask."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.admin_api import session_headers
from kit.client import StdioClient
from kit.command import MCPX, mcpx, mcpx_process
from kit.gateway import Gateway, GatewayProcess, admin_address
from kit.http_client import fetch
from kit.process import START, Child, Output

FRAMEWORK = (
    "mcpx.admin",
    "fastapi",
    "starlette",
    "pydantic",
    "pydantic_core",
    "uvicorn",
    "anyio",
    "click",
)
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def written(folder: Path, **config: object) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps({"mcp_servers": [], **config}), encoding="utf-8")
    file.chmod(0o600)
    return str(file)


def test_nothing_of_it_is_imported_without_the_flag(tmp_path: Path) -> None:
    """A whole run over stdio, that ends because its client is gone."""
    program = (
        "import sys; from mcpx.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(code, *sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, written(tmp_path), "--transport", "stdio"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "MCPX_STATE_DIR": str(tmp_path / "state"),
        },
    )
    code, *loaded = done.stderr.split("\n")[-2].split()
    assert code == "0" and "mcpx.app" in loaded
    assert [name for name in loaded if name.startswith(FRAMEWORK)] == []


def test_a_log_without_a_terminal_does_not_show_the_login_url() -> None:
    """SEC-8: programs that collect the log could sign in with it. The log names the command that
    shows one."""
    with GatewayProcess({"mcp_servers": []}, admin=True) as gateway:
        assert f"Admin {gateway.admin_url}  (for a login URL: " in gateway.stderr()
        assert f"mcpx admin {gateway.file}" in gateway.stderr() and "token=" not in gateway.stderr()
        assert gateway.control("admin")["url"].startswith(f"{gateway.admin_url}/login?token=")


@pytest.mark.parametrize("environ", [{}, {"MCPX_ADMIN_TOKEN": "t" * 32}])
def test_the_demo_without_a_terminal_says_how_to_sign_in(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """ADM-1: a generated token is shown nowhere, and `mcpx admin` does not find the demo."""
    words = ["--transport", "http", "--port", "0", "--admin-port", "0"]
    advice = "sign in with the token in" if environ else "to sign in, set"
    with StdioClient(
        [*MCPX, *words], {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **environ}, tmp_path
    ) as demo:
        shown = demo.stderr.wait_for(rf"Admin +http://\S+  \({advice} MCPX_ADMIN_TOKEN", 20)
        assert shown is not None, demo.stderr.text
        demo.process.terminate()
        assert demo.wait() == 0


def test_it_runs_beside_stdio_and_writes_no_byte_to_stdout() -> None:
    with GatewayProcess({"mcp_servers": []}, admin=True, transport="stdio") as gateway:
        child = subprocess.Popen(
            gateway.stdio_command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=gateway.env,
        )
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        stderr = Output(child.stderr)
        try:
            url = admin_address(stderr)
            token = gateway.control("admin")["url"].partition("=")[2]
            session = session_headers(fetch(url, "/api/login", "POST", body={"token": token}))
            assert fetch(url, "/api/session", headers=session).json["signed_in"] is True
            child.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
            child.stdin.flush()
            first = json.loads(child.stdout.readline())
            assert first["id"] == 1 and "result" in first
            child.stdin.close()
            assert child.stdout.read() == b""
            assert child.wait(START) == 0
            with pytest.raises(OSError):
                fetch(url, "/api/session")
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
            stderr.close()


def test_a_client_over_stdio_does_not_wait_for_the_admin_ui() -> None:
    """Its framework takes a second to load; the client is answered before."""
    with GatewayProcess({"mcp_servers": []}, admin=True, transport="stdio") as gateway:
        done = subprocess.run(
            gateway.stdio_command,
            input=json.dumps(INITIALIZE).encode() + b"\n",
            capture_output=True,
            timeout=START,
            env=gateway.env,
        )
        assert done.returncode == 0 and json.loads(done.stdout)["id"] == 1
        assert b"Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told_and_nothing_starts(tmp_path: Path) -> None:
    with taken_port() as port:
        done = mcpx_process(
            tmp_path, written(tmp_path), "--port", "0", "--admin", "--admin-port", str(port)
        )
    assert done.returncode == 1
    assert done.stderr == (
        f"mcpx: the admin UI cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Another port: --admin-port 0 takes any free one.\n"
    )


def test_one_port_for_clients_and_the_admin_ui_is_refused_by_name(tmp_path: Path) -> None:
    """`mcpx --port 8080 --admin`: nothing else stands there, and "already in use" would send people
    looking for it."""
    done = mcpx(tmp_path, written(tmp_path), "--port", "8080", "--admin", "--host", "127.0.0.1")
    assert done.returncode == 2
    assert "clients and the admin UI would both listen on 127.0.0.1:8080" in done.stderr
    assert "--admin-port" in done.stderr


def test_over_stdio_the_tools_matter_more_than_the_port(tmp_path: Path) -> None:
    """A second window of an editor starts a second gateway with the same settings."""
    with taken_port() as port:
        args = (written(tmp_path), "--transport", "stdio", "--admin-port", str(port))
        done = mcpx_process(tmp_path, *args, stdin=json.dumps(INITIALIZE) + "\n")
    assert done.returncode == 0 and json.loads(done.stdout)["id"] == 1
    assert "Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("args", "environ"),
    [
        (["--admin"], {"MCPX_ADMIN_PORT": "0"}),
        ([], {"MCPX_ADMIN": "true", "MCPX_ADMIN_PORT": "0"}),
        (["--admin-port", "0"], {"MCPX_ADMIN_PORT": "1"}),
    ],
)
def test_flags_and_variables_say_the_same(
    tmp_path: Path, args: list[str], environ: dict[str, str]
) -> None:
    command = [
        sys.executable,
        "-m",
        "mcpx",
        written(tmp_path),
        "--transport",
        "http",
        "--port",
        "0",
        *args,
    ]
    with Child(
        command, {"MCPX_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path), **environ}
    ) as child:
        url = admin_address(child.stderr)
        assert fetch(url, "/api/session").json["signed_in"] is False


@pytest.mark.parametrize(
    ("args", "environ", "told"),
    [
        (["--admin-port", "http"], {}, "--admin-port"),
        (["--admin-port", "65536"], {}, "--admin-port"),
        (["--admin"], {"MCPX_ADMIN_PORT": "-1"}, "MCPX_ADMIN_PORT"),
        ([], {"MCPX_ADMIN": "yes please"}, "MCPX_ADMIN"),
    ],
)
def test_a_mistake_is_told_with_exit_code_2(
    tmp_path: Path, args: list[str], environ: dict[str, str], told: str
) -> None:
    done = mcpx(tmp_path, written(tmp_path), "--port", "0", *args, **environ)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {told} is ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway.example"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_other_machines_are_not_let_near_without_a_token_of_ones_own(
    tmp_path: Path, host: str, transport: str
) -> None:
    file = written(tmp_path, server={"admin": {"host": host}})
    done = mcpx(tmp_path, file, "--transport", transport, "--admin-port", "0")
    assert done.returncode == 2
    assert (
        host in done.stderr and "MCPX_ADMIN_TOKEN" in done.stderr and "Traceback" not in done.stderr
    )


def test_a_file_that_takes_the_token_away_is_refused_while_others_can_reach_it() -> None:

    config = {
        "mcp_servers": [],
        "server": {"admin": {"host": "0.0.0.0"}, "admin_token": "of-sufficient-length-for-it"},
    }
    with Gateway(config, admin=True, env={"MCPX_ADMIN_TOKEN": ""}) as gateway:
        answer = gateway.reload({"mcp_servers": [], "server": {"admin": {"host": "0.0.0.0"}}})
        assert answer["ok"] is False and "MCPX_ADMIN_TOKEN" in answer["problems"][0]
        bearer = {"Authorization": "Bearer of-sufficient-length-for-it"}
        assert fetch(gateway.admin_url, "/api/session", headers=bearer).json["by"] == "token"
        assert "without TLS" in gateway.stderr()


def test_it_ends_with_the_gateway_whatever_is_open() -> None:
    """Idle connections, half a head, half a body, an answer that nobody reads."""
    with Gateway({"mcp_servers": []}, admin=True) as ending:
        host, token = ending.admin_url.removeprefix("http://"), ending.admin_token
        address = host.rpartition(":")[0], int(host.rpartition(":")[2])
        head = f"Host: {host}\r\nAuthorization: Bearer {token}\r\n"
        sent = (
            "",
            "GET /api/ses",
            f"GET /api/session HTTP/1.1\r\n{head}\r\n",
            f"POST /api/config HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n",
            f"GET /api/openapi.json HTTP/1.1\r\n{head}\r\n" * 50,
        )
        opened = [socket.create_connection(address) for _ in sent]
        for sock, text in zip(opened, sent, strict=True):
            sock.sendall(text.encode())
        assert fetch(ending.admin_url, "/api/session").status == 200  # all of that has arrived
    for sock in opened:
        sock.close()
    assert "Traceback" not in ending.stderr() and "ERROR" not in ending.stderr()


def test_a_second_signal_cuts_it_short_while_events_are_watched() -> None:
    with GatewayProcess({"mcp_servers": []}, admin=True) as ending:
        host = ending.admin_url.removeprefix("http://")
        name, _, port = host.rpartition(":")
        with socket.create_connection((name, int(port)), START) as watching:
            head = (
                f"GET /api/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer "
                f"{ending.admin_token}\r\n\r\n"
            )
            watching.sendall(head.encode())
            assert watching.recv(100).startswith(b"HTTP/1.1 200 ")
            ending.process.send_signal(signal.SIGTERM)
            ending.process.send_signal(signal.SIGTERM)
            assert ending.process.wait(START) == 0
            while watching.recv(65536):
                pass
    assert "Traceback" not in ending.stderr()


def resident(pid: int) -> float:
    """Megabytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
        / 1024
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_it_takes_at_most_45_megabytes() -> None:
    plain, gateway = (
        GatewayProcess({"mcp_servers": []}),
        GatewayProcess({"mcp_servers": []}, admin=True, counted=False),
    )
    with plain, gateway:
        assert (
            fetch(gateway.admin_url, "/api/openapi.json", headers=gateway.admin_headers).status
            == 200
        )
        assert resident(gateway.process.pid) - resident(plain.process.pid) <= 45
