"""SRC-3, SRC-4: the commands of the examples work as written, against stand-ins for the APIs on
this machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from behaviour.compact import Json, Visitor
from kit.gateway import Gateway
from kit.http_api import ApiRequest, ApiResponse, HttpApi

ROOT = Path(__file__).parents[2]
OURS = ROOT / "examples" / "commands.yaml"
DOCUMENT = ROOT / "tests" / "config" / "files" / "s4-mymcp.yaml"
"""As the document that asked for commands has it."""
SEARCH = """
commands:
  - name: "search_github"
    description: "搜索 GitHub 仓库"
    type: "http"
    http:
      method: "GET"
      url: "https://api.github.com/search/repositories"
      params:
        q: "{query}"
      auth:
        ref: "github_auth"
    parameters:
      - name: "query"
        type: "string"
        required: true

auth_configs:
  - name: "github_auth"
    type: "bearer_token"
    bearer_token:
      token: "${GITHUB_TOKEN}"
"""
SHORT = """
commands:
  - name: "get_weather"
    description: "获取天气信息"
    type: "http"
    http:
      method: "GET"
      url: "https://api.weather.com/v1/current"
      params:
        city: "{city}"
"""


def search(asked: ApiRequest) -> Any:
    if asked.get("authorization") != "Bearer gh-canary":
        return ApiResponse(b'{"message":"Bad credentials"}', 401)
    found = {
        "full_name": "a/b",
        "description": None,
        "stargazers_count": 3,
        "html_url": "https://x/a/b",
        "size": 1,
    }
    return {"total_count": 1, "items": [found], "asked": asked.pairs}


@pytest.fixture(scope="module")
def api() -> Iterator[HttpApi]:
    with HttpApi() as api:
        api.on(
            "GET",
            "/v1/current",
            lambda asked: {"temp": 20, "asked": asked.pairs, "agent": asked.get("user-agent")},
        )
        api.on("GET", "/search/repositories", search)
        api.on("PUT", "/user/starred/a%2Fb/c", lambda asked: ApiResponse(status=204))
        api.on(
            "POST",
            "/repos/o/r/issues",
            lambda asked: {"number": 7, "html_url": "https://x/7", "was": asked.json},
        )
        yield api


def at_home(text: str, api: HttpApi, *hosts: str) -> Json:
    """The same config for APIs on this machine: other hosts, and leave to reach them; its scripts
    are ours."""
    for host in hosts:
        assert f"https://{host}" in text
        text = text.replace(f"https://{host}", api.url)
    config = yaml.safe_load(text)
    for command in config["commands"]:
        if command["type"] == "http":
            command["http"]["allow_private"] = True
        else:
            command["script"]["path"] = str(OURS.parent / command["script"]["path"])
    config.setdefault("global", {})["script_paths"] = [str(OURS.parent)]
    config.pop("server", None)
    config.pop("mcp_servers", None)
    config["global"].pop("log_file", None)
    return config


def test_our_example_runs_against_other_addresses(api: HttpApi) -> None:
    """SRC-3, SRC-4, SRC-6."""
    env = {"WEATHER_URL": api.url, "GITHUB_URL": api.url, "GITHUB_TOKEN": "gh-canary"}
    with Gateway(at_home(OURS.read_text(encoding="utf-8"), api), env=env) as gateway:
        client = Visitor(gateway.port)
        assert client.names() == [
            "get_weather",
            "search_github",
            "star_repository",
            "create_issue",
            "word_count",
        ]
        told = client.use("get_weather", city="Zürich")["structuredContent"]
        assert told == {
            "temp": 20,
            "asked": [["city", "Zürich"], ["api_key", "demo"]],
            "agent": "MCP-Client/1.0",
        }
        told = client.use("get_weather", city="Zürich", api_key="mine")["structuredContent"]
        assert told["asked"] == [["city", "Zürich"], ["api_key", "mine"]]
        told = client.use("search_github", query="python mcp")["structuredContent"]
        assert told == {
            "result": [{"name": "a/b", "about": None, "stars": 3, "url": "https://x/a/b"}]
        }
        assert api.last.pairs == [("q", "python mcp"), ("per_page", "10")]
        assert "isError" not in client.use("star_repository", owner="a/b", repo="c")
        told = client.use("create_issue", owner="o", repo="r", title="T", labels=["x"])[
            "structuredContent"
        ]
        assert told == {"number": 7, "url": "https://x/7"} and api.last.json == {
            "title": "T",
            "labels": ["x"],
        }
        assert client.use("word_count", text="one two")["structuredContent"] == {
            "words": 2,
            "characters": 7,
        }
        assert "gh-canary" not in gateway.stderr() and "Traceback" not in gateway.stderr()


def test_the_weather_of_the_document_runs_as_written(api: HttpApi) -> None:
    """SRC-3, SRC-4."""
    config = at_home(DOCUMENT.read_text(encoding="utf-8"), api, "api.weather.com")
    with Gateway(config, env={"WEATHER_API_KEY": "w-canary"}) as gateway:
        client = Visitor(gateway.port)
        assert client.names() == ["get_weather", "word_count"]
        told = client.use("get_weather", city="北京")["structuredContent"]
        assert told == {
            "temp": 20,
            "asked": [["city", "北京"], ["api_key", "w-canary"]],
            "agent": "MCP-Client/1.0",
        }
        assert client.use("word_count", text="一 二")["structuredContent"] == {
            "words": 2,
            "characters": 3,
        }


def test_the_search_of_the_document_runs_as_written(api: HttpApi) -> None:
    """SRC-3: and a wrong token is told without it."""
    config = at_home(SEARCH, api, "api.github.com")
    with Gateway(config, env={"GITHUB_TOKEN": "gh-canary"}) as gateway:
        told = Visitor(gateway.port).use("search_github", query="python mcp")["structuredContent"]
        assert told["total_count"] == 1 and told["asked"] == [["q", "python mcp"]]
    with Gateway(config, env={"GITHUB_TOKEN": "another"}) as gateway:
        said = Visitor(gateway.port).use("search_github", query="python mcp")
        assert (
            said["isError"] is True
            and "401 Unauthorized" in json.dumps(said)
            and "another" not in json.dumps(said)
        )


def test_the_short_example_of_the_document_takes_its_arguments_from_its_placeholders(
    api: HttpApi,
) -> None:
    """SRC-3, SRC-5."""
    with Gateway(at_home(SHORT, api, "api.weather.com")) as gateway:
        client = Visitor(gateway.port)
        (tool,) = client.tools()
        assert tool["inputSchema"]["required"] == ["city"]
        assert client.use("get_weather", city="北京")["structuredContent"]["asked"] == [
            ["city", "北京"]
        ]
