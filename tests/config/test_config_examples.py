"""The example files of every dialect load to exactly this (CFG-1, CFG-2, SUR-6, NAM-2)."""

import shutil
from pathlib import Path

import pytest

from mcpx.auth.api_key import ApiKey
from mcpx.auth.oauth2 import OAuth2
from mcpx.commands.http import HttpRequest
from mcpx.commands.script import Script
from mcpx.config import (
    AuthConfig,
    Command,
    Config,
    Global,
    Naming,
    Parameter,
    Server,
    load,
)
from mcpx.transports import Http, Sse, Stdio

FILES = Path(__file__).parent / "files"
OURS = Path(__file__).parents[2] / "examples"


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    shutil.copytree(FILES, tmp_path / "examples")
    for file in (tmp_path / "examples").iterdir():
        file.chmod(0o700 if file.is_dir() else 0o600)
    return tmp_path / "examples"


def defaults(folder: Path) -> Global:
    return Global(script_paths=(str(folder),))


def test_the_native_example_loads_as_it_is_written(examples: Path) -> None:
    path = examples / "s4-mymcp.yaml"
    config = load(path, {"WEATHER_API_KEY": "sunny"})
    assert config == Config(
        mode="direct",
        commands=(
            Command(
                name="get_weather",
                description="获取天气信息",
                action=HttpRequest(
                    url="https://api.weather.com/v1/current",
                    headers={"User-Agent": "MCP-Client/1.0"},
                    params={"city": "{city}", "api_key": "{api_key}"},
                    auth="weather_api_auth",
                ),
                parameters=(
                    Parameter(name="city", required=True, description="城市名称"),
                    Parameter(name="api_key", description="API 密钥（可选）"),
                ),
            ),
            Command(
                name="word_count",
                description="Count words in a text",
                action=Script(
                    interpreter="python3",
                    path=str(examples / "scripts" / "word_count.py"),
                    args=("{text}",),
                    env={"API_KEY": "sunny"},
                    cwd=str(examples),
                ),
                parameters=(Parameter(name="text", required=True),),
            ),
        ),
        auth_configs=(
            AuthConfig(
                name="weather_api_auth",
                auth=ApiKey(location="query", name="api_key", value="sunny"),
            ),
            AuthConfig(
                name="machine",
                auth=OAuth2(
                    client_id="id",
                    client_secret="secret",
                    token_url="https://oauth.example.com/token",
                    scope="read write",
                ),
            ),
        ),
        mcp_servers=(
            Server(
                name="filesystem",
                description="文件系统操作服务",
                prefix="fs",
                connection=Stdio(
                    command="npx", args=("-y", "@modelcontextprotocol/server-filesystem", "/tmp")
                ),
            ),
            Server(
                name="remote",
                description="远程服务",
                enabled=False,
                prefix="rm",
                connection=Sse(url="https://mcp-server.example.com/sse"),
            ),
        ),
        global_=Global(log_file=str(examples / "mcp.log"), script_paths=(str(examples),)),
        dialect="native",
        path=path,
    )
    assert config.warnings == ()


def test_the_flat_example_loads_with_describe_as_its_mode(examples: Path) -> None:
    path = examples / "s1-mcpx.json"
    assert load(path, {}) == Config(
        mode="describe",
        mcp_servers=(
            Server(
                name="filesystem",
                connection=Stdio(
                    command="npx", args=("-y", "@modelcontextprotocol/server-filesystem", "/tmp")
                ),
            ),
            Server(
                name="http-server",
                connection=Http(
                    url="http://localhost:3000/mcp", headers={"Authorization": "Bearer xxx"}
                ),
            ),
        ),
        global_=defaults(examples),
        dialect="flat",
        path=path,
    )


def test_the_proxy_example_loads_with_its_double_colon_names(examples: Path) -> None:
    path = examples / "s3-proxy.json"
    assert load(path, {}) == Config(
        mode="direct",
        naming=Naming(separator="::", prefix="always"),
        mcp_servers=(
            Server(
                name="everything",
                connection=Stdio(
                    command="npx",
                    args=("-y", "@modelcontextprotocol/server-everything"),
                    env={"LOG_LEVEL": "info"},
                ),
                timeout=30.0,
            ),
            Server(
                name="memory",
                connection=Stdio(command="npx", args=("-y", "@modelcontextprotocol/server-memory")),
            ),
        ),
        global_=defaults(examples),
        dialect="proxy",
        path=path,
    )


def test_the_client_example_loads_with_auto_as_its_mode(examples: Path) -> None:
    path = examples / "clients-mcpServers.json"
    assert load(path, {"REMOTE_TOKEN": "t"}) == Config(
        mode="auto",
        naming=Naming(prefix="always"),
        mcp_servers=(
            Server(
                name="filesystem",
                connection=Stdio(
                    command="npx", args=("-y", "@modelcontextprotocol/server-filesystem", "/tmp")
                ),
            ),
            Server(name="git", connection=Stdio(command="uvx", args=("mcp-server-git",))),
            Server(
                name="remote",
                connection=Http(
                    url="http://localhost:3000/mcp", headers={"Authorization": "Bearer t"}
                ),
            ),
        ),
        global_=defaults(examples),
        dialect="mcpServers",
        path=path,
    )


@pytest.mark.parametrize("name", [file.name for file in FILES.iterdir() if file.is_file()])
def test_loading_twice_gives_equal_values(name: str, examples: Path) -> None:
    """CFG-5 stands on this: what did not change is equal and stays."""
    assert load(examples / name, {}) == load(examples / name, {})


@pytest.mark.parametrize("name", [file.name for file in FILES.iterdir() if file.is_file()])
def test_no_secret_stands_in_the_repr(name: str, examples: Path) -> None:
    """CFG-9."""
    text = repr(
        load(
            examples / name,
            {"REMOTE_TOKEN": "sesame", "WEATHER_API_KEY": "sesame", "CLIENT_SECRET": "sesame"},
        )
    )
    assert "sesame" not in text
    assert "Bearer" not in text


@pytest.mark.parametrize(
    "name", ["mcpx.yaml", *(f"clients/{file.name}" for file in (OURS / "clients").glob("*.[jt]*"))]
)
def test_every_example_of_the_repository_loads(name: str) -> None:
    """CFG-1, CFG-2."""
    config = load(OURS / name, {"REMOTE_TOKEN": "t", "TEAM": "red"})
    assert any(server.enabled for server in config.mcp_servers)
