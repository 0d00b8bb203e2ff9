"""`mcpx add io.github.owner/name`: servers of a registry, from a real HTTP server that answers as
the official one."""

import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from kit.http_api import ApiRequest, ApiResponse, HttpApi
from kit.servers import SHOP_SERVER
from kit.user import User
from mcpx.imports.launch import answers
from mcpx.imports.registry import Listed, choose_launch, launches, parse_listed

NAME = "io.github.example/weather-mcp"
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
SECRET = "very-secret-value-1234567"


def document(**more: Any) -> dict[str, Any]:
    return {"$schema": SCHEMA, "name": NAME, "description": "Weather", "version": "1.4.2", **more}


def npm(**more: Any) -> dict[str, Any]:
    return {
        "registryType": "npm",
        "identifier": "@example/weather-mcp",
        "version": "1.4.2",
        "transport": {"type": "stdio"},
        **more,
    }


def answer(told: dict[str, Any], status: str = "active") -> dict[str, Any]:
    about = {"status": status, "publishedAt": "2025-01-05T10:00:00Z", "isLatest": True}
    return {"server": told, "_meta": {"io.modelcontextprotocol.registry/official": about}}


def at(version: str = "latest", name: str = NAME) -> str:
    return f"/v0.1/servers/{quote(name, safe='')}/versions/{version}"


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def connection(user: User) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(user.user_config.read_text())["mcp_servers"][-1]
    return found["connection"]


def test_a_name_becomes_a_server_in_a_fixed_version(user: User) -> None:
    """SEC-5: with its publisher, how old it is, and its definitions pinned."""
    with HttpApi() as api:
        api.on("GET", at(), lambda _: answer(document(packages=[npm()])))
        done = user.run("add", NAME, "--no-test", MCPX_REGISTRY=f"{api.url}/")
    assert done.returncode == 0, done.stderr
    assert (
        f"{NAME} 1.4.2" in done.stdout
        and "publisher io.github.example, from 127.0.0.1" in done.stdout
    )
    assert "published " in done.stdout and " days ago" in done.stdout
    assert connection(user) == {
        "type": "stdio",
        "command": "npx",
        "args": ["-y", "@example/weather-mcp@1.4.2"],
    }
    entry = yaml.safe_load(user.user_config.read_text())["mcp_servers"][0]
    assert (entry["name"], entry["trust"], entry["description"]) == ("weather", "pin", "Weather")


def test_a_version_is_asked_for_by_its_number_and_registries_in_their_order(user: User) -> None:
    with HttpApi() as first, HttpApi() as second:
        second.on("GET", at("1.0.0"), lambda _: answer(document(packages=[npm(version="1.0.0")])))
        done = user.run(
            "add", f"{NAME}@1.0.0", "--no-test", MCPX_REGISTRY=f"{first.url},{second.url}"
        )
        assert done.returncode == 0 and len(first.seen) == 1, done.stderr
    assert connection(user)["args"][-1] == "@example/weather-mcp@1.0.0"


def test_a_registry_that_cannot_be_reached_is_said_with_what_else_there_is(user: User) -> None:
    with HttpApi() as api:
        gone = api.url
    done = user.run("add", NAME, MCPX_REGISTRY=gone)
    assert (
        done.returncode == 2
        and "cannot be fetched" in done.stderr
        and "mcpx add npx -y PACKAGE" in done.stderr
    )
    assert "Traceback" not in done.stderr and not user.user_config.exists()
    with HttpApi() as api:
        done = user.run("add", NAME, MCPX_REGISTRY=api.url)
        assert done.returncode == 2 and f"knows no {NAME}" in done.stderr
        api.on("GET", at(), lambda _: ApiResponse(b"no", 503))
        assert "answered with status 503" in user.run("add", NAME, MCPX_REGISTRY=api.url).stderr


HOSTILE: dict[str, tuple[Any, str]] = {
    "huge": (ApiResponse(b'{"server": {"name": "' + b"x" * 3_000_000 + b'"}}'), "error"),
    "no JSON": (ApiResponse(b"<html>"), "not valid JSON"),
    "deep": (ApiResponse(b"[" * 100_000), "not valid JSON"),
    "nothing in it": ({}, "no server.json"),
    "another": (
        answer({**document(packages=[npm()]), "name": "io.github.evil/weather-mcp"}),
        "another server",
    ),
    "deleted": (answer(document(packages=[npm()]), "deleted"), "was deleted"),
    "an option": (
        answer(document(packages=[npm(identifier="--eval=evil")])),
        "not a possible name",
    ),
    "a git address": (
        answer(document(packages=[npm(identifier="git+https://evil/x")])),
        "not a possible name",
    ),
    "no version": (answer(document(packages=[npm(version="latest")])), "not a fixed version"),
    "an option as version": (
        answer(document(packages=[npm(version="1 --x")])),
        "not a fixed version",
    ),
    "unknown kind": (
        answer(document(packages=[npm(registryType="cargo")])),
        "not a kind of package",
    ),
    "over http": (
        answer(document(packages=[npm(transport={"type": "sse"})])),
        "only stdio is started",
    ),
    "a bundle of no hash": (
        answer(
            document(packages=[npm(registryType="mcpb", identifier="https://h.example/x.mcpb")])
        ),
        "no sha256",
    ),
    "a file": (
        answer(document(remotes=[{"type": "streamable-http", "url": "file:///etc/passwd"}])),
        "not an address",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_hostile_registry_says_is_refused(user: User, name: str) -> None:
    said, told = HOSTILE[name]
    with HttpApi() as api:
        api.on("GET", at(), lambda _: said)
        done = user.run("add", NAME, "--yes", MCPX_REGISTRY=api.url)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done
    assert not user.user_config.exists()


def test_a_registry_may_be_at_home_but_not_send_us_to_somebody_elses(user: User) -> None:
    """SEC-4: where a redirect leads was named by nobody."""
    with HttpApi() as api, HttpApi() as inside:
        inside.on("GET", "/secret", lambda _: answer(document(packages=[npm()])))
        api.on("GET", at(), lambda _: ApiResponse(b"", 302, {"Location": f"{inside.url}/secret"}))
        done = user.run("add", NAME, "--no-test", MCPX_REGISTRY=api.url)
        assert done.returncode == 2 and "--allow-private" in done.stderr and inside.seen == [], done
        done = user.run("add", NAME, "--no-test", "--allow-private", MCPX_REGISTRY=api.url)
        assert done.returncode == 0 and len(inside.seen) == 1, done
        api.on("GET", at(), lambda _: ApiResponse(b"", 302, {"Location": at()}))
        assert (
            "redirects"
            in user.run("add", NAME, "--no-test", "--replace", MCPX_REGISTRY=api.url).stderr
        )


def test_texts_of_a_registry_steer_neither_terminal_nor_references(user: User) -> None:
    evil = "\x1b]0;owned\x07${HOME}"
    arguments = [{"type": "positional", "value": "${file:/etc/passwd}"}]
    variables = [{"name": "K", "description": evil, "value": "$HOME ${HOME}"}]
    told = document(packages=[npm(packageArguments=arguments, environmentVariables=variables)]) | {
        "description": evil
    }
    (user.folder / "server.json").write_text(json.dumps(told))
    done = user.run("add", "./server.json", "--no-test")
    assert done.returncode == 0 and all(
        c.isprintable() or c == "\n" for c in done.stdout + done.stderr
    ), done
    assert connection(user)["args"][-1] == "$${file:/etc/passwd}"
    assert connection(user)["env"] == {"K": "$$HOME $${HOME}"}


def test_what_is_required_is_asked_for_and_secrets_are_kept_elsewhere(user: User) -> None:
    variables = [
        {"name": "WEATHER_KEY", "isRequired": True, "isSecret": True, "description": "Your key"},
        {"name": "UNITS", "default": "metric", "choices": ["metric", "imperial"]},
        {"name": "UNSAID"},
    ]
    told = document(packages=[npm(environmentVariables=variables)])
    (user.folder / "server.json").write_text(json.dumps(told))
    done = user.run("add", "server.json", "--no-test")
    assert (
        done.returncode == 2
        and "--set 'WEATHER_KEY=${VARIABLE}'" in done.stderr
        and "Your key" in done.stderr
    )
    done = user.run(
        "add", "server.json", "--no-test", "--set", "WEATHER_KEY=x", "--set", "UNITS=odd"
    )
    assert "one of metric, imperial" in done.stderr
    done = user.run("add", "server.json", "--no-test", "--set", f"WEATHER_KEY={SECRET}")
    assert (
        done.returncode == 0
        and SECRET not in done.stdout + done.stderr + user.user_config.read_text()
    ), done
    assert connection(user)["env"] == {"WEATHER_KEY": "${WEATHER_KEY}", "UNITS": "metric"}
    assert f"WEATHER_KEY={SECRET}" in (user.user_config.parent / ".env").read_text()


def listed(**more: Any) -> Listed:
    return parse_listed(json.dumps(document(**more)), "a test")


def made(found: Listed, kind: str | None = None, **given: str) -> dict[str, Any]:
    launch = choose_launch(found, kind)
    told = answers(launch.inputs, {key: [value] for key, value in given.items()}, "w")
    connection: dict[str, Any] = launch.entry(told)["connection"]
    return connection


def test_each_kind_of_package_has_its_program() -> None:
    arguments = {
        "runtimeArguments": [
            {
                "type": "named",
                "name": "--mount",
                "value": "type=bind,src={from}",
                "variables": {"from": {}},
            }
        ],
        "packageArguments": [
            {"type": "positional", "value": "serve"},
            {"type": "named", "name": "--port=", "default": "9"},
        ],
        "environmentVariables": [{"name": "K", "value": "v"}],
    }
    pypi = npm(registryType="pypi", identifier="weather-mcp")
    assert made(listed(packages=[pypi])) == {
        "type": "stdio",
        "command": "uvx",
        "args": ["weather-mcp@1.4.2"],
    }
    nuget = npm(
        registryType="nuget",
        identifier="Weather.Mcp",
        packageArguments=arguments["packageArguments"],
    )
    assert made(listed(packages=[nuget]))["args"] == [
        "Weather.Mcp@1.4.2",
        "--yes",
        "--",
        "serve",
        "--port=9",
    ]
    oci = npm(registryType="oci", identifier="docker.io/example/weather", **arguments)
    docker = made(listed(packages=[oci]), **{"from": "/data"})
    assert docker["command"] == "docker" and docker["env"] == {"K": "v"}
    assert docker["args"] == [
        *("run", "-i", "--rm", "--mount", "type=bind,src=/data", "-e", "K"),
        *("docker.io/example/weather:1.4.2", "serve", "--port=9"),
    ]
    tagged = npm(registryType="oci", identifier="docker.io/example/weather:2")
    assert (
        made(listed(packages=[{**tagged, "version": None}]))["args"][-1]
        == "docker.io/example/weather:2"
    )


def test_an_address_comes_before_packages_and_another_way_can_be_chosen() -> None:
    headers = [
        {
            "name": "Authorization",
            "value": "Bearer {token}",
            "variables": {"token": {"isRequired": True, "isSecret": True}},
        }
    ]
    remote = {"type": "streamable-http", "url": "https://{host}.example/mcp", "headers": headers}
    remote["variables"] = {"host": {"default": "api"}}
    both = listed(
        packages=[npm()], remotes=[{"type": "sse", "url": "https://h.example/sse"}, remote]
    )
    assert [launch.kind for launch in launches(both)[0]] == ["remote", "remote", "npm"]
    assert made(both, token=SECRET) == {
        "type": "http",
        "url": "https://api.example/mcp",
        "headers": {"Authorization": "Bearer ${W_TOKEN}"},
    }
    assert made(both, "npm")["command"] == "npx"


def test_a_bundle_of_a_registry_is_known_by_its_hash_and_really_started(user: User) -> None:
    path = user.folder / "weather.mcpb"
    config = {"command": sys.executable, "args": ["${__dirname}/main.py"]}
    server = {"type": "python", "entry_point": "main.py", "mcp_config": config}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "manifest.json",
            json.dumps({"manifest_version": "0.3", "name": "weather", "server": server}),
        )
        archive.write(SHOP_SERVER, "main.py")
    data = path.read_bytes()
    path.unlink()
    package = npm(registryType="mcpb", identifier="", fileSha256=hashlib.sha256(data).hexdigest())
    with HttpApi() as api:

        def told(_: ApiRequest) -> Any:
            return answer(document(packages=[{**package, "identifier": f"{api.url}/weather.mcpb"}]))

        api.on("GET", at(), told)
        api.on("GET", "/weather.mcpb", lambda _: ApiResponse(data))
        words = ("add", NAME, "--allow-private")
        done = user.run(*words, MCPX_REGISTRY=api.url)
        assert done.returncode == 0 and "6 tools" in done.stdout, done
        api.on("GET", "/weather.mcpb", lambda _: ApiResponse(data + b"\n"))
        done = user.run(*words, "--name", "other", MCPX_REGISTRY=api.url)
        assert done.returncode == 2 and "not what was announced" in done.stderr, done
