"""The admin API of a running gateway, as a script uses it: one request, one answer."""

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

from fixtures.gateway import Gateway

BOUND = 60.0


class Answer:
    def __init__(self, status: int, headers: dict[str, str], text: str) -> None:
        self.status, self.headers, self.text = status, headers, text

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def code(self) -> str:
        return self.error["code"]


class Api:
    def __init__(self, gateway: Gateway) -> None:
        self._at, self._headers = urlsplit(gateway.admin_url), gateway.admin_headers

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Words of a header are written with `_`."""
        connection = http.client.HTTPConnection(self._at.hostname or "", self._at.port, timeout=BOUND)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body)
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, quote(path, safe="/?=&%"), data, {**self._headers, **sent})
            reply = connection.getresponse()
            told = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, told, reply.read().decode())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, (answer.status, answer.text)
        return answer.json

    def post(self, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        answer = self.ask("POST", path, {} if body is None else body, **headers)
        assert answer.status == status, (answer.status, answer.text)
        return answer.json

    def refused(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        answer = self.ask(method, path, body, **headers)
        assert set(answer.error) >= {"code", "message", "path", "hint"} and answer.status < 500, answer.text
        return answer.status, answer.code

    @property
    def etag(self) -> str:
        return self.ask("GET", "/api/config").headers["etag"]
