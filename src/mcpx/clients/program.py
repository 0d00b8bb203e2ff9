"""The shape of what is known of a client program, and how its snippets are written."""

import base64
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import quote

Json = dict[str, Any]
Language = Literal["json", "toml", "yaml", "shell", "text", "url"]

NAME = "mcpx"
"""What the gateway is called in clients: short, since some put it before every tool's name."""
TOKEN = "MCPX_TOKEN"
"""The variable that holds the token, where a client can read one."""
PLACEHOLDER = "PUT-YOUR-TOKEN-HERE"
"""Where it cannot."""


@dataclass(frozen=True, slots=True)
class Snippet:
    label: str
    language: Language
    text: str
    path: str | None = None
    """Of the file it belongs into."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the gateway is found."""

    url: str | None
    """Over HTTP; None: it is not."""
    command: Sequence[str]
    """What starts one over stdio."""
    token: bool
    """Whether one has to be shown over HTTP."""

    def headers(self, token: str) -> Json:
        """`token`: as the client writes a variable."""
        return {"headers": {"Authorization": f"Bearer {token}"}} if self.token else {}

    def stdio(self) -> Json:
        return {"command": self.command[0], "args": list(self.command[1:])}


@dataclass(frozen=True, slots=True)
class Made:
    """What is pasted for one place."""

    snippets: Sequence[Snippet]
    deeplink: str | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """One client program, as it was when somebody last looked."""

    id: str
    name: str
    called: tuple[str, ...]
    """What it says of itself in `clientInfo.name`; `*` stands for anything, case does not matter."""
    over_http: Callable[[Place], Made] | None
    over_stdio: Callable[[Place], Made] | None
    why_stdio: str = "the gateway is not served over HTTP now"
    """Why stdio, where that is what is shown."""
    why_http: str = "all clients share one gateway and its servers"
    verified: str = "2026-11"


@dataclass(frozen=True, slots=True)
class Program:
    """One client program, with what to paste for a place."""

    id: str
    name: str
    transport: Literal["http", "stdio"]
    why: str
    snippets: Sequence[Snippet]
    deeplink: str | None
    notes: Sequence[str]
    called: tuple[str, ...]

    def is_called(self, name: str) -> bool:
        return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in self.called)


OWN_GATEWAY = (
    "Over stdio the program joins the gateway that runs on this configuration,"
    " or starts one that all such programs share."
)


def made_for(known: Known, place: Place) -> Program | None:
    """None: it cannot be connected to such a gateway."""
    transport: Literal["http", "stdio"]
    if known.over_http is not None and place.url is not None:
        made, transport, why = known.over_http(place), "http", known.why_http
    elif known.over_stdio is not None:
        made, transport, why = known.over_stdio(place), "stdio", known.why_stdio
    else:
        return None
    notes = (*made.notes, OWN_GATEWAY) if transport == "stdio" else made.notes
    return Program(known.id, known.name, transport, why, made.snippets, made.deeplink, notes, known.called)


# How snippets are written --------------------------------------------------------------------------------------------


def as_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def shell(*words: str) -> str:
    return shlex.join(words)


def toml(value: str | Sequence[str]) -> str:
    """A string or a list of them: what JSON writes is TOML too."""
    return json.dumps(value, ensure_ascii=False)


def in_base64(value: Mapping[str, Any]) -> str:
    return quote(base64.b64encode(compact(value).encode()).decode(), safe="")


def here(mac: str, linux: str, windows: str) -> str:
    """The path on a system like the gateway's own."""
    return {"darwin": mac, "win32": windows}.get(sys.platform, linux)
