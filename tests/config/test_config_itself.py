"""A gateway that stands in its own configuration leaves itself out, and says so: it would start
itself for ever."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpx.config import Config, Server, load, without_itself
from mcpx.transports import Http, Sse, Transport, Websocket

Loaded = Callable[..., Config]

OTHER = {"command": "echo"}


def names(config: Config) -> list[str]:
    return [server.name for server in config.mcp_servers]


def stdio(*words: str, **beside: Any) -> dict[str, Any]:
    return {"command": words[0], "args": list(words[1:]), **beside}


OWN = {
    "by its name": stdio("mcpx", "mcp.json"),
    "by an absolute path": stdio("/opt/venv/bin/mcpx", "mcp.json"),
    "as a Windows program": stdio("mcpx.exe", "mcp.json"),
    "with --config": stdio("mcpx", "--transport", "stdio", "--config", "mcp.json"),
    "with --config=": stdio("mcpx", "--mode", "search", "--config=./mcp.json"),
    "with options around the file": stdio(
        "mcpx", "--log-level", "DEBUG", "mcp.json", "--mode", "search"
    ),
    "with --config after a word": stdio("mcpx", "serve", "--config", "mcp.json"),
    "by a variable": stdio("mcpx", env={"MCPX_CONFIG": "mcp.json"}),
    "in a folder of its own": stdio("mcpx", "../mcp.json", cwd="sub"),
    "by the python it is installed in": stdio("python3", "-m", "mcpx", "mcp.json"),
    "by python with options": stdio(
        "/usr/bin/python3.12", "-u", "-X", "dev", "-m", "mcpx", "--config", "mcp.json"
    ),
    "by uv run of a module": stdio("uv", "run", "-m", "mcpx", "mcp.json"),
    "by uvx": stdio("uvx", "--from", "mcpx-gateway", "mcpx", "mcp.json"),
    "by uvx with a version": stdio("uvx", "--from", "git+https://h/x", "mcpx@1.2", "mcp.json"),
}

ANOTHER = {
    "on another file": stdio("mcpx", "other.json"),
    "on another file by --config": stdio("mcpx", "--config", "other.json", "--env", "mcp.json"),
    "on a file that is not there": stdio("mcpx", "nope.json"),
    "on the demo": stdio("mcpx", "--mode", "search"),
    "on another file by a variable": stdio("mcpx", env={"MCPX_CONFIG": "other.json"}),
    "only to check it": stdio("mcpx", "check", "mcp.json"),
    "a program that is given its name": stdio("npx", "mcpx", "mcp.json"),
    "a package of that name": stdio("uvx", "--with", "mcpx", "some-server", "mcp.json"),
    "a module of another name": stdio("python", "-m", "server", "mcpx", "mcp.json"),
    "a module that only begins so": stdio("python", "-m", "mcpx_tools", "mcp.json"),
    "a script": stdio("sh", "mcpx", "mcp.json"),
    "uv without run": stdio("uv", "sync", "mcpx", "mcp.json"),
    "switched off": stdio("mcpx", "mcp.json", disabled=True),
    "behind a shell, which is left to the started gateway": stdio("sh", "-c", "mcpx mcp.json"),
}


@pytest.mark.parametrize("case", OWN)
def test_an_entry_that_runs_mcpx_on_the_same_file_is_left_out(
    case: str, loaded: Loaded, folder: Path
) -> None:
    (folder / "sub").mkdir()
    config = loaded(json.dumps({"mcpServers": {"gateway": OWN[case], "b": OTHER}}), "mcp.json")
    assert names(config) == ["b"]
    assert config.warnings == (
        "server 'gateway' is left out, it is this gateway itself: it runs mcpx on this file",
    )


@pytest.mark.parametrize("case", ANOTHER)
def test_an_entry_that_is_something_else_stays(case: str, loaded: Loaded, folder: Path) -> None:
    (folder / "other.json").write_text("{}")
    config = loaded(json.dumps({"mcpServers": {"gateway": ANOTHER[case], "b": OTHER}}), "mcp.json")
    assert names(config) == ["gateway", "b"]
    assert config.warnings == ()


def test_one_that_names_no_file_is_itself_where_it_would_find_this_one(
    loaded: Loaded, folder: Path
) -> None:
    """RUN-2: as the child would look for it. `MCPX_CONFIG` of the gateway does not reach a child
    (LIF-7)."""
    text = json.dumps({"mcpServers": {"gateway": stdio("mcpx")}})
    assert names(loaded(text, "mcp.json", MCPX_CONFIG="mcp.json")) == ["gateway"]
    assert names(loaded(text, "config.json")) == []
    home = folder / "xdg" / "mcpx" / "config.yaml"
    (folder / "config.json").unlink()
    assert names(loaded(text, str(home), XDG_CONFIG_HOME=str(folder / "xdg"))) == []


def test_it_is_recognised_through_links_in_folders_and_in_every_shape(
    loaded: Loaded, folder: Path
) -> None:
    loaded(
        "mcp_servers: [{name: a, connection: {type: stdio, command: mcpx, args: [link.yaml]}}]",
        "real.yaml",
    )
    (folder / "link.yaml").symlink_to("real.yaml")
    assert names(load(folder / "real.yaml", {})) == []
    loaded(
        "mcp_servers: [{name: a, connection: {type: stdio, command: mcpx, args: [conf]}}]",
        "conf/a.yaml",
    )
    assert names(load(folder / "conf", {})) == []
    loaded("servers: [{id: a, command: [mcpx, proxy.yaml]}]", "proxy.yaml")
    assert names(load(folder / "proxy.yaml", {})) == []


def test_an_entry_of_a_reserved_name_that_is_left_out_is_told_of_once(loaded: Loaded) -> None:
    """What clients' files usually say: nobody has to hear that it was renamed, too."""
    config = loaded(json.dumps({"mcpServers": {"mcpx": OWN["by uvx"]}}), "mcp.json")
    (warning,) = config.warnings
    assert warning.startswith("server 'mcpx' is left out")


@pytest.mark.parametrize(
    ("connection", "host", "port"),
    [
        (Http(url="http://127.0.0.1:8000/mcp"), "127.0.0.1", 8000),
        (Http(url="http://localhost:8000/mcp/"), "127.0.0.1", 8000),
        (Http(url="HTTP://LOCALHOST:8000/mcp/search?a=b"), "127.0.0.1", 8000),
        (Http(url="http://127.0.0.1:8000/search/mcp"), "127.0.0.1", 8000),
        (Http(url="http://127.0.0.1:8000/p/mine/mcp"), "127.0.0.1", 8000),
        (Http(url="http://[::1]:8000/mcp"), "localhost", 8000),
        (Http(url="http://0.0.0.0:8000/mcp"), "::", 8000),
        (Http(url="http://127.0.0.1:8000/mcp"), "0.0.0.0", 8000),
        (Http(url="https://tools.example.com/mcp"), "tools.example.com", 443),
        (Http(url="http://10.0.0.5/mcp"), "10.0.0.5", 80),
        (Sse(url="http://localhost:8000/sse"), "127.0.0.1", 8000),
        (Websocket(url="ws://localhost:8000/ws"), "127.0.0.1", 8000),
    ],
)
def test_an_entry_whose_url_is_where_the_gateway_listens_is_left_out(
    connection: Transport, host: str, port: int
) -> None:
    config = Config(mcp_servers=(Server(name="a", connection=connection),), warnings=("first",))
    found = without_itself(config, host, port)
    assert names(found) == []
    told = "server 'a' is left out, it is this gateway itself: its URL is where mcpx listens"
    assert found.warnings == ("first", told)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://127.0.0.1:8001/mcp", "127.0.0.1", 8000),
        ("http://127.0.0.1:8000/other", "127.0.0.1", 8000),
        ("http://example.com:8000/mcp", "127.0.0.1", 8000),
        ("http://127.0.0.1:8000/mcp", "10.0.0.5", 8000),
        ("http://127.0.0.1/mcp", "127.0.0.1", 443),
        ("http://127.0.0.1:99999/mcp", "127.0.0.1", 8000),
        ("http://[bad/mcp", "127.0.0.1", 8000),
    ],
)
def test_an_entry_at_another_address_stays(url: str, host: str, port: int) -> None:
    config = Config(mcp_servers=(Server(name="a", connection=Http(url=url)),))
    assert without_itself(config, host, port) is config
    off = Config(
        mcp_servers=(Server(name="a", enabled=False, connection=Http(url="http://h:80/mcp")),)
    )
    assert without_itself(off, "h", 80) is off
