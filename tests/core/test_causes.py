"""ADM-5: what usual programs say when they fail, in words that help."""

from pathlib import Path

import pytest

from mcpx.config import Server
from mcpx.core import causes
from mcpx.core.causes import args_with_version_1, cause_of
from mcpx.transports import Http, Stdio

ENDED = "the process exited with code 1: see the log"


def of_program(
    problem: str, *lines: str, command: str = "npx", path: str = "/nonexistent"
) -> causes.Cause:
    server = Server(name="s", connection=Stdio(command=command))
    found = cause_of(server, problem, lines, {"PATH": path})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("npm error 404  'no-such-package@latest' is not in this registry.", "no package "
                                                                             "no-such-package@latest"),
        ("npm ERR! code E404", "npm knows no package (404)"),
        ("Because no-such was not found in the package registry and you require it", "package no-such was not "
                                                                                     "found"),
        ("npm error code ENOTFOUND", "could not look up a name"),
        ("Error: connect ECONNREFUSED 127.0.0.1:5432", "refuses connections (127.0.0.1:5432)"),
        ("docker: Cannot connect to the Docker daemon at "
         "unix:///var/run/docker.sock.", "daemon cannot be "
                                                                                        "reached"),
        ("Error: Cannot find module '/srv/index.js'", "lacks a module: /srv/index.js"),
        ("Error: GITHUB_PERSONAL_ACCESS_TOKEN is required", "wants the variable "
                                                            "GITHUB_PERSONAL_ACCESS_TOKEN"),
        ("Error: listen EADDRINUSE: address already in use :::3000", "A port it wants is taken"),
        ("error: the following arguments are required: --repository", "an argument it needs. "
                                                                      "--repository"),
        ("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED]", "does not trust the "
                                                                           "certificate"),
    ],
)  # fmt: skip
def test_what_a_program_wrote_is_put_into_plain_words(line: str, cause: str) -> None:
    found = of_program(ENDED, "some banner", line, "    at Object.<anonymous> (x.js:1)")
    assert cause in found.cause and found.fix


@pytest.mark.parametrize(
    "line",
    [
        "AttributeError: 'Server' object has no attribute 'list_resources'",
        "ImportError: cannot import name 'McpError' from 'mcp.shared.exceptions' "
        "(/x/mcp/shared/exceptions.py)",
        "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, … or pin "
        "'mcp<2' to keep …",
    ],
)  # fmt: skip
def test_a_server_for_version_1_of_the_python_sdk_is_recognized(line: str) -> None:
    """ADM-5: the advice is a command line that works."""
    cases: dict[tuple[str, ...], list[str] | None] = {
        ("uvx", "some-server", "-v"): ["--with", "mcp<2", "some-server", "-v"],
        ("uv", "tool", "run", "some-server"): ["tool", "run", "--with", "mcp<2", "some-server"],
        ("uv", "run", "server.py"): ["run", "--with", "mcp<2", "server.py"],
        ("uvx", "--with", "mcp<2", "some-server"): None,
        ("python", "server.py"): None,
    }
    for (command, *args), repaired in cases.items():
        server = Server(name="s", connection=Stdio(command=command, args=tuple(args)))
        found = cause_of(server, ENDED, ["Traceback (most recent call last):", line], {})
        assert found is not None and "version 1 of the MCP Python SDK" in found.cause
        assert "--with 'mcp<2'" in found.fix
        assert (
            found.needs_python_sdk_1 and found.repair is None
        )  # The arguments here may have secrets in them.
        assert args_with_version_1(command, args) == repaired


def test_what_nobody_knows_is_told_by_its_last_line() -> None:
    assert "The last it wrote: boom" in of_program(ENDED, "boom").cause
    assert "wrote nothing" in of_program(ENDED).cause


def test_a_program_that_is_elsewhere_is_found_and_can_be_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for version in ("v18.0.0", "v24.1.0"):
        program = tmp_path / ".nvm/versions/node" / version / "bin/rare-npx"
        program.parent.mkdir(parents=True)
        program.write_text("")
        program.chmod(0o755)
    found = of_program("cannot start: command not found: 'rare-npx'", command="rare-npx")
    newest = str(tmp_path / ".nvm/versions/node/v24.1.0/bin/rare-npx")
    assert newest in found.cause and found.repair == {"connection.command": newest}


def test_one_that_installs_gets_more_time() -> None:
    assert of_program("did not complete the handshake within 30 s").repair == {"timeout": 120}


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        ("wants the gateway to sign in (HTTP 401)", "wants to know who asks"),
        ("no MCP endpoint at this address (HTTP 404)", "no MCP endpoint at this path (HTTP 404)"),
        (
            "redirects to https://other.example/mcp; put that address into the config",
            "on to https://other.example/mcp",
        ),
        (
            "cannot connect: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
            "is not trusted here",
        ),
        ("cannot connect: [SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS"),
        ("did not complete the handshake within 30 s", "did not answer in time"),
    ],
)
def test_what_an_address_answers_is_put_into_plain_words(problem: str, cause: str) -> None:
    server = Server(name="s", connection=Http(url="https://user:secret@api.example:8443/mcp"))
    found = cause_of(server, problem, (), {})
    assert found is not None and cause in found.cause and "secret" not in found.cause


def test_braces_and_long_lines_of_a_stranger_are_only_text() -> None:
    assert "{it}" in of_program(ENDED, "Cannot find module '{it}{0.__class__}'").cause
    assert of_program(ENDED, "x" * 200_000).fix
