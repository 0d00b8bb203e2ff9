"""Clients of the compact surfaces: each knows how its mode lists, describes and calls the tools of
servers.

    visitor = Visitor(gateway.port, "describe")
    visitor.run("files", "read", {"path": "a"})     # call(method="files.read", arguments={"path": "a"})

`Visitor` speaks HTTP in either era, one message at a time, and shows results as they came.
`meta_call` is the same knowledge for the clients of `behaviour.clients`.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from kit.client import ACCEPT_BOTH, WAIT_SECONDS, Stream, post
from kit.command import run_command
from kit.gateway import Gateway, GatewayProcess
from kit.messages import META, MODERN, Json, modern_headers, notification, request
from kit.process import FIXTURES
from kit.servers import stdio_server

Compact = Literal["inspect", "describe", "search"]
MODES: tuple[Compact, ...] = ("inspect", "describe", "search")
ERAS = ("older", "modern")
CALLER: dict[str, str] = {"inspect": "exec", "describe": "call", "search": "mcp_execute_tool"}


def meta_call(mode: Compact, server: str, tool: str, arguments: Any) -> tuple[str, Json]:
    """The surface's own tool, and its arguments, for a call of a server's tool."""
    given = {"arguments": arguments}
    match mode:
        case "inspect":
            return "exec", {"server_name": server, "tool_name": tool, **given}
        case "describe":
            return "call", {"method": f"{server}.{tool}", **given}
        case "search":
            # The built-in server has one spelling only; of the others the display name is what a
            # search gives.
            return "mcp_execute_tool", {
                "tool_name": f"{server}{'.' if server == 'mcpx' else '_'}{tool}",
                **given,
            }


def told(
    name: str, folder: Path | None = None, offers: Json | None = None, *flags: str, **keys: Any
) -> Json:
    """A server that returns what it is told; `offers` is what it says of itself."""
    more = list(flags)
    if offers is not None:
        assert folder is not None
        file = folder / f"{name}.offers.json"
        file.write_text(json.dumps(offers), encoding="utf-8")
        more += ["--offers", str(file)]
    return stdio_server(
        name, [sys.executable, "-I", "-S", str(FIXTURES / "told_server.py"), *more], **keys
    )


def held_up(server: Json, while_there_is: Path, *, exits: bool = False) -> Json:
    """The same server, whose program waits (or ends at once) as long as a file is there."""
    program = (
        "import os, runpy, sys, time\n"
        f"while os.path.exists({str(while_there_is)!r}):\n"
        f"    {'sys.exit(7)' if exits else 'time.sleep(0.02)'}\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    connection = server["connection"]
    isolated, arguments = connection["args"][:2], connection["args"][2:]
    assert isolated == ["-I", "-S"], "a fixture on the standard library alone"
    return {**server, "connection": {**connection, "args": [*isolated, "-c", program, *arguments]}}


def config(*servers: Json, **more: Any) -> Json:
    """A native config whose first list has everything."""
    return {
        "global": {"startup_wait": 15, "first_start_wait": 15, **more.pop("global", {})},
        "mcp_servers": list(servers),
        **more,
    }


class Visitor:
    """A client on the path of one mode (or the default one), in one of the eras."""

    def __init__(
        self,
        port: int,
        mode: str = "",
        era: str = "older",
        *,
        name: str = "visitor",
        path: str | None = None,
    ) -> None:
        self.port = port
        self.mode = mode
        self.modern = era == "modern"
        self.info = {"name": name, "version": "1"}
        self.path = path or (f"/mcp/{mode}" if mode else "/mcp")
        self._count = 0
        self.headers: dict[str, str] = {}
        if not self.modern:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": self.info}
            greeting = post(port, request("initialize", hello, 0), path=self.path)
            assert greeting.status == 200, greeting
            session = greeting.get("mcp-session-id") or ""
            self.headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
            assert (
                post(
                    port, notification("notifications/initialized"), self.headers, self.path
                ).status
                == 202
            )

    def ask(self, method: str, params: Json | None = None) -> Json:
        """The whole response: a result or an error."""
        self._count += 1
        message = self._message(method, params or {}, self._count)
        headers = modern_headers(message) if self.modern else self.headers
        answer = post(self.port, message, headers, self.path).message
        assert answer["id"] == self._count, answer
        if self.modern and "result" in answer:
            assert answer["result"].pop("resultType") == "complete"
        return answer

    def _message(self, method: str, params: Json, id: Any) -> Json:
        if not self.modern:
            return request(method, params, id)
        meta = {
            META + "protocolVersion": MODERN,
            META + "clientCapabilities": {},
            META + "clientInfo": self.info,
        }
        return request(method, {**params, "_meta": {**params.get("_meta", {}), **meta}}, id)

    def result(self, method: str, params: Json | None = None) -> Json:
        answer = self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def tools(self) -> list[Json]:
        return self.result("tools/list")["tools"]

    def names(self) -> list[str]:
        return [tool["name"] for tool in self.tools()]

    def menu(self) -> str:
        """The description of the surface's first tool."""
        return self.tools()[0]["description"]

    def use(self, tool: str, /, **arguments: Any) -> Json:
        """The result of one of the surface's own tools."""
        return self.result("tools/call", {"name": tool, "arguments": arguments})

    def _meta(self, server: str, tool: str, arguments: Any) -> Json:
        assert self.mode in MODES
        name, given = meta_call(self.mode, server, tool, arguments)
        return {"name": name, "arguments": given}

    def run(self, server: str, tool: str, arguments: Any = None) -> Json:
        """The result of a server's tool, called the way of this mode."""
        return self.result(
            "tools/call", self._meta(server, tool, {} if arguments is None else arguments)
        )

    def run_raw(self, server: str, tool: str, arguments: Any) -> Json:
        """The same, and the whole response."""
        return self.ask("tools/call", self._meta(server, tool, arguments))

    @contextmanager
    def listening(self) -> Iterator[Stream]:
        """The stream on which this client hears of changed tools; it is open."""
        if self.modern:
            message = self._message(
                "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "ear"
            )
            headers = [
                ("Content-Type", "application/json"),
                ("Accept", ACCEPT_BOTH),
                *modern_headers(message).items(),
            ]
            with Stream(
                self.port, "POST", self.path, headers, json.dumps(message).encode()
            ) as stream:
                assert next_notice(stream) == "notifications/subscriptions/acknowledged"
                yield stream
        else:
            headers = [("Accept", "text/event-stream"), *self.headers.items()]
            with Stream(self.port, "GET", self.path, headers) as stream:
                stream.comment()
                yield stream

    def structured(self, result: Json) -> Any:
        """What the mode tells programs of a server's result: `search` puts it into S2's shape."""
        if self.mode != "search":
            return result.get("structuredContent")
        shape = result["structuredContent"]
        assert shape.keys() == {"success", "result", "error"}, shape
        return shape["result"]

    def error(self, result: Json) -> str:
        """The text of a tool error, which must be told to programs as well (SUR-7)."""
        assert result["isError"] is True, result
        text = result["content"][0]["text"]
        told = (
            {"success": False, "result": None, "error": text}
            if self.mode == "search"
            else {"error": text}
        )
        assert result["structuredContent"] == told
        return text


def next_notice(stream: Stream) -> str:
    """The method of the next notification."""
    too_late = threading.Timer(
        WAIT_SECONDS, stream.cut
    )  # signs of life keep a stream from ever timing out
    too_late.start()
    try:
        while (event := stream.event()) is not None:
            if isinstance(event.get("data"), dict):
                return event["data"]["method"]
    except (OSError, ValueError, AttributeError):  # it was cut
        pass
    finally:
        too_late.cancel()
    raise AssertionError(f"no notification within {WAIT_SECONDS:g} s")


def replace(gateway: Gateway | GatewayProcess, to: Json) -> None:
    """Another config in the place of the one that is being served, the way editors do it."""
    new = gateway.file.with_suffix(".new")
    new.write_text(json.dumps(to), encoding="utf-8")
    new.chmod(0o600)
    os.replace(new, gateway.file)


def command(gateway: Gateway | GatewayProcess, *words: str) -> str:
    """What a command of mcpx says about the gateway that runs on this config."""
    done = run_command([*words, str(gateway.file)], gateway.folder, gateway.env)
    assert done.returncode in (0, 4), done.stderr
    return done.stdout


def texts(result: Json) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def text(result: Json) -> str:
    (only,) = texts(result)
    return only


def tokens(value: Any) -> int:
    """SUR-10's estimate for a value as compact JSON: ASCII characters / 4 + all others."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    plain = sum(character.isascii() for character in written)
    return -(-plain // 4) + len(written) - plain
