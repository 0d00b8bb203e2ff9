"""ADM-2: whatever goes wrong, one shape; never a traceback, never what was sent."""

import asyncio
import json
import logging
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from kit.admin_api import bare_desk
from kit.http_client import fetch
from mcpx.admin import application
from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.errors import ApiError
from mcpx.admin.server import AdminServer
from mcpx.config import Config
from mcpx.model.errors import SERVER_DOWN, ConfigError, Unavailable


class Part(BaseModel):
    name: str
    port: int


class Whole(BaseModel):
    parts: list[Part]


def deep(level: int = 0) -> int:
    return deep(level + 1)


def routes() -> Router:
    router = Router("/api/test", "Test")

    @router.post("/whole")
    async def whole(
        request: ApiRequest, whole: Whole, size: Annotated[int, Field(ge=1)] = 1
    ) -> str:
        return "good"

    @router.get("/raise/{what}")
    async def raises(request: ApiRequest, what: str) -> str:
        raise {
            "own": ApiError(
                409, "exists", "one has that name already", "mcp_servers.x", "name it otherwise"
            ),
            "half": ApiError(404, None, "there is no \ud800"),
            "config": ConfigError(["first mistake", "second mistake"]),
            "down": Unavailable("files", SERVER_DOWN, "is down"),
            "bug": ValueError("sesame"),
        }[what]

    @router.get("/deep")
    async def goes_deep(request: ApiRequest) -> int:
        return deep()

    return router


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "ROUTERS", [routes()])


def ask(app: None, method: str, path: str, json: Any = b"") -> tuple[int, dict[str, Any]]:
    async def asked() -> Any:
        server = AdminServer("127.0.0.1", 0, "token", Config())
        server.bind()
        try:
            await server.start(bare_desk)
            bearer = {"Authorization": "Bearer token"}
            return await asyncio.to_thread(fetch, server.url, path, method, bearer, json)
        finally:
            await server.close()

    answer = asyncio.run(asked())
    assert set(answer.json) == {"error"}
    return answer.status, answer.json["error"]


def test_mistakes_in_what_was_sent_are_all_told_with_their_places(app: None) -> None:
    body = {"parts": [{"name": "a", "port": 1}, {"name": 5, "port": "sesame"}]}
    status, error = ask(app, "POST", "/api/test/whole?size=0", json=body)
    assert (status, error["code"]) == (422, "invalid")
    assert [each["path"] for each in error["errors"]] == [
        "query.size",
        "parts[1].name",
        "parts[1].port",
    ]
    assert error["path"] == "query.size" and error["message"] == error["errors"][0]["message"]
    assert "sesame" not in str(error)


def test_an_error_of_a_route_is_told_as_it_is(app: None) -> None:
    assert ask(app, "GET", "/api/test/raise/own") == (
        409,
        {
            "code": "exists",
            "message": "one has that name already",
            "path": "mcp_servers.x",
            "hint": "name it otherwise",
        },
    )
    assert ask(app, "GET", "/api/test/raise/half")[1]["message"] == "there is no ?"


def test_what_is_wrong_with_a_configuration_is_told_as_its_reader_said_it(app: None) -> None:
    status, error = ask(app, "GET", "/api/test/raise/config")
    assert (status, error["code"], error["message"]) == (422, "invalid_config", "first mistake")
    assert [each["message"] for each in error["errors"]] == ["first mistake", "second mistake"]


def test_a_server_that_is_down_is_not_our_mistake(app: None) -> None:
    status, error = ask(app, "GET", "/api/test/raise/down")
    assert (status, error["code"]) == (502, "server_unavailable") and "files" in error["message"]


def test_unknown_paths_and_methods_have_the_same_shape(app: None) -> None:
    assert ask(app, "GET", "/api/no-such")[1]["code"] == "not_found"
    assert ask(app, "DELETE", "/api/test/whole")[1]["code"] == "method_not_allowed"


def test_what_nobody_expected_has_an_id_that_stands_in_the_log(
    app: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        status, error = ask(app, "GET", "/api/test/raise/bug")
    id = error["message"].partition("[")[2].partition("]")[0]
    assert (status, error["code"]) == (500, "internal") and "sesame" not in str(error)
    assert len(id) == 8 and id in caplog.text and "Traceback" in caplog.text


def test_what_is_nested_too_deeply_is_the_senders_mistake(app: None) -> None:
    assert ask(app, "GET", "/api/test/deep")[1]["code"] == "too_deep"


def test_every_route_documents_the_errors_of_the_door() -> None:
    document = json.loads(application.DOCUMENT.read_bytes())
    missing = [
        (verb, path, status)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
        for status in ("400", "401", "403", "413", "415", "422", "429")
        if status not in operation["responses"]
    ]
    assert missing == []
    shape = document["paths"]["/api/session"]["get"]["responses"]["401"]["content"][
        "application/json"
    ]["schema"]
    assert shape == {"$ref": "#/components/schemas/ErrorAnswer"}
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_route_is_documented() -> None:
    document = json.loads(application.DOCUMENT.read_bytes())
    documented = {
        (verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs
    }
    routes = [route for router in application.ROUTERS for route in router.routes]
    assert {(route.method, route.path) for route in routes} == documented
