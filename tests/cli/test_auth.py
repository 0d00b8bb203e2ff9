"""Section 6: `mcpx auth`, as it is typed; with a gateway that runs on the config, and without
one."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import pytest

from auth.authserver import AuthServer, open_as_browser
from kit.command import run_command
from kit.gateway import Gateway
from kit.process import Output
from kit.until import wait_until

BROWSER = """\
import sys
from urllib.request import urlopen
urlopen(sys.argv[1], timeout=20).read()
"""


class Typed:
    """One command line, and what it says while it runs."""

    def __init__(
        self, where: "Place", *words: str, stdin: Any = subprocess.DEVNULL, **env: str
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mcpx", *words],
            env={**where.env, **env},
            cwd=where.folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.stdout, self.stderr = Output(self.process.stdout), Output(self.process.stderr)

    def url(self) -> str:
        found = self.stdout.wait_for(r"http://\S+/authorize\?\S+", 20)
        assert found is not None, self.stdout.text + self.stderr.text
        return found[0]

    def __enter__(self) -> "Typed":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        self.stdout.close()
        self.stderr.close()

    def code(self) -> int:
        return self.process.wait(30)


class Place:
    """A folder with a config, and a state folder."""

    def __init__(self, folder: Path, site: AuthServer, *servers: dict[str, Any]) -> None:
        self.folder = folder
        self.file = folder / "mcpx.yaml"
        entry = {"name": "guarded", "connection": {"type": "http", "url": site.url}}
        self.config = {"mcp_servers": [entry, *servers]}
        self.file.write_text(json.dumps(self.config))
        self.file.chmod(0o600)
        self.env = {**os.environ, "MCPX_STATE_DIR": str(folder / "state")}

    def run(self, *words: str, **env: str) -> tuple[int, str, str]:
        done = run_command(words, self.folder, {**self.env, **env})
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def site() -> Iterator[AuthServer]:
    with AuthServer() as site:
        yield site


@pytest.fixture
def place(tmp_path: Path, site: AuthServer) -> Place:
    program = {
        "name": "program",
        "timeout": 1,
        "connection": {"type": "stdio", "command": "not-to-be-started"},
    }
    return Place(tmp_path, site, program)


def location(url: str) -> str:
    """Where a browser would be sent back to, which it cannot reach from its own machine."""

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    try:
        build_opener(Stay).open(url, timeout=20)
    except HTTPError as answer:
        with answer:
            return answer.headers["location"]
    raise AssertionError("no redirect")


def test_a_sign_in_without_a_gateway_is_kept_for_the_next_start(
    place: Place, site: AuthServer
) -> None:
    """Login, status, servers and logout; the browser is the one that `BROWSER` names."""
    browser = place.folder / "browser.py"
    browser.write_text(BROWSER)
    code, out, _ = place.run("auth", "status")
    assert code == 5 and "sign-in needed" in out and "not needed" in out
    assert not site.asked("/register")  # who only looks asks nobody
    code, out, err = place.run("auth", "login", "guarded", BROWSER=f"{sys.executable} {browser} %s")
    assert (code, err) == (0, "") and out.endswith("guarded: signed in, 1 tool\n")
    code, out, _ = place.run("auth", "status", "--json", str(place.file))
    guarded, program = json.loads(out)["servers"]
    assert (code, guarded["state"], program["state"]) == (0, "signed_in", "not_needed")
    assert json.loads(out)["store"] == {"kept": True, "encrypted_by": None}
    assert not [token for token in (*site.tokens, *site.refresh_tokens) if token in out]
    code, out, _ = place.run("servers", "--json")
    server = json.loads(out)["servers"][0]
    assert (server["status"], server["tools"], server["auth_url"]) == ("connected", 1, None)
    assert place.run("auth", "login", "guarded")[:2] == (0, "guarded: signed in, 1 tool\n")
    assert place.run("auth", "logout", "guarded", "--config", str(place.file))[:2] == (
        0,
        "guarded: signed out\n",
    )
    assert not site.tokens and not site.refresh_tokens
    assert place.run("auth", "status")[0] == 5
    assert place.run("auth", "logout", "guarded")[:2] == (0, "guarded: nobody was signed in\n")


def test_with_a_running_gateway_that_one_is_signed_in(site: AuthServer) -> None:
    config = {"mcp_servers": [{"name": "guarded", "connection": {"type": "http", "url": site.url}}]}
    with Gateway(config) as gateway:
        place = Place(gateway.folder, site)
        place.file, place.env = gateway.file, gateway.env
        file = str(gateway.file)
        with Typed(place, "auth", "login", "guarded", "--no-browser", file) as login:
            url = login.url()
            assert open_as_browser(url)[0] == 200
            assert login.stdout.wait_for("guarded: signed in, 1 tool", 30)
            assert login.code() == 0
        assert place.run("servers", file)[0] == 0
        code, out, _ = place.run("auth", "status", file)
        assert code == 0 and site.issuer in out and "signed in" in out
        assert place.run("auth", "logout", "guarded", file)[0] == 0
        wait_until(lambda: place.run("servers", file)[0] == 4)
        assert "sign in at http://" in place.run("servers", file)[1]


def test_the_address_can_be_pasted_where_the_browser_is_on_another_machine(
    place: Place, site: AuthServer
) -> None:
    ours, theirs = pty.openpty()
    try:
        with Typed(place, "auth", "login", "--no-browser", "guarded", stdin=theirs) as login:
            url = login.url()
            assert login.stdout.wait_for("paste", 20)
            os.write(ours, b"http://127.0.0.1/callback?state=no\n")
            assert login.stderr.wait_for("not the address", 20)
            os.write(ours, location(url).encode() + b"\n")
            assert login.stdout.wait_for("guarded: signed in, 1 tool", 30)
            assert login.code() == 0
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_sign_in_that_is_refused_is_exit_code_5(place: Place, site: AuthServer) -> None:
    with Typed(place, "auth", "login", "guarded", "--no-browser") as login:
        back = parse_qs(urlsplit(login.url()).query)
        refused = f"{back['redirect_uri'][0]}?error=access_denied&state={back['state'][0]}"
        assert open_as_browser(refused)[0] == 400
        assert login.stderr.wait_for("not signed in: .*access_denied", 30)
        assert login.code() == 5


def test_a_server_that_nobody_can_sign_in_to_is_exit_code_5(place: Place, site: AuthServer) -> None:
    site.registers = False
    code, out, err = place.run("auth", "login", "guarded", "--no-browser")
    assert (code, out) == (5, "") and "client_id" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("login", "guardd"), 2, "did you mean 'guarded'?"),
        (("login", "xyz"), 2, "there is: guarded, program"),
        (("logout", "guardd"), 2, "did you mean 'guarded'?"),
        (("login",), 2, "mcpx auth login NAME [CONFIG]"),
        (("status", "a", "b"), 2, "mcpx auth status [CONFIG]"),
        (("login", "guarded", "no-such.yaml"), 2, "no-such.yaml"),
        (("login", "program"), 0, "nothing to do"),
        (("logout", "program"), 1, "nobody signs in to it"),
        (("lgin",), 2, "invalid choice"),
    ],
)
def test_what_cannot_be_done_says_why(
    place: Place, words: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = place.run("auth", *words)
    assert (found, said in out + err, "Traceback" in err) == (code, True, False), out + err


def test_interrupting_a_login_ends_it(place: Place, site: AuthServer) -> None:
    with Typed(place, "auth", "login", "guarded", "--no-browser") as login:
        login.url()
        login.process.send_signal(signal.SIGINT)
        assert login.code() == 130
        assert "Traceback" not in login.stderr.text
