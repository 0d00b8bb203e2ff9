"""SEC-2, SEC-5, SEC-7 over random policies and profiles, on every front, in both eras and every
mode.

Of what somebody must not see, no word is in any byte they receive: whatever they list, call, read,
search, complete or subscribe to, and whatever the servers say meanwhile. What is hidden reads as
what does not exist.
"""

import base64
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from attacks.hiding import Json, Sees, Thing, World
from behaviour.clients import FRONTS, AnsweringUser, Door, RawClient, RefusedError, raw_client
from behaviour.compact import MODES, Compact, meta_call
from kit.gateway import GatewayProcess
from kit.http_client import fetch
from kit.until import until, wait_until
from mcpx.catalog.naming import wrap_uri

BOUND = 60.0
LATE = 0.2
"""Seconds by which an answer about something hidden may differ from one about nothing at all."""
WRAPPED = re.compile(r"proxy://resource/([A-Za-z0-9_-]+)")
LISTS = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}
ASKED_WITH = {
    "inspect": ("inspect", "server_name"),
    "describe": ("describe", "method"),
    "search": ("mcp_search_tools", "query"),
}
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CHANGED = tuple(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))


@contextmanager
def running(
    world: World, folder: Path, profiles: list[Json], policy: Json
) -> Iterator[GatewayProcess]:
    """With everything come that comes, and the pinned server changed."""
    for server in world.servers:
        server.tell(folder, world.first_sight if server is world.pinned else server.things)
    config = {
        "global": {"startup_wait": 0.1, "first_start_wait": 0.1, "hot_reload_interval": 0.1},
        "server": {"metrics": True},
        "mcp_servers": [server.entry(folder) for server in world.servers],
        "profiles": profiles,
        "policy": policy,
    }
    with GatewayProcess(config) as gateway:
        lists = {method for method, _ in LISTS.values()}
        for server in world.servers[:4]:
            wait_until(lambda server=server: {*lists, "noise"} <= set(server.log(folder)))
        noises = world.pinned.log(folder).count("noise")
        world.pinned.tell(folder, world.pinned.things)
        wait_until(lambda: world.pinned.log(folder).count("noise") > noises)
        wait_until(lambda: lists <= set(_since_last_noise(world.pinned.log(folder))))
        yield gateway


def _since_last_noise(log: list[str]) -> list[str]:
    return log[len(log) - log[::-1].index("noise") :]


class Ear:
    """All that one client receives, and what of it must not be."""

    def __init__(self, client: RawClient, sees: Sees, where: str) -> None:
        self.client = client
        self.sees = sees
        self.where = where
        self.received: list[Json] = []
        self._canaries = re.compile("|".join(sorted(sees.canaries)) or "(?!)")
        carrier = client._carrier  # pyright: ignore[reportPrivateUsage]
        self._hear = carrier.hear
        carrier.hear = self._heard
        self.check("greeting", client.told)

    def _heard(self, message: Json) -> None:
        self.received.append(message)
        if "method" in message:
            self.check("unasked", message)
        self._hear(message)

    def check(self, what: object, told: object, sent: str = "") -> None:
        """`sent`: words of our own come back."""
        text = json.dumps(told)
        text += "".join(_decoded(found) for found in WRAPPED.findall(text))
        own = set(self._canaries.findall(sent))
        leaked = set(self._canaries.findall(text)) - own
        assert not leaked, f"{self.where}: {what} told {leaked} in {text[:1500]}"

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """The result, or the error as `{"error": …}`; nothing hidden is in it that was not in the
        question."""
        try:
            told = await self.client.request(method, params)
        except RefusedError as error:
            told = {"error": {**error.error, "data": _plain(error.error.get("data"))}}
        sent = json.dumps(params or {})
        self.check(
            (method, params),
            told,
            sent + "".join(_decoded(found) for found in WRAPPED.findall(sent)),
        )
        return told

    async def same_as_unknown(
        self, method: str, make: Callable[[Callable[[str], str]], Json]
    ) -> None:
        """`make` makes the params; what it is given turns what is hidden into what nobody has."""
        words = self.sees.world.words
        made: dict[str, str] = {}

        def other(text: str) -> str:
            return self._canaries.sub(lambda found: made.setdefault(found[0], words.new()), text)

        hidden, unknown = make(str), make(other)
        for _ in range(3):
            began = time.perf_counter()
            told = await self.ask(method, hidden)
            between = time.perf_counter()
            nothing = await self.ask(method, unknown)
            apart = abs((between - began) - (time.perf_counter() - between))
            if apart < LATE:
                break
        else:
            raise AssertionError(
                f"{self.where}: {method} {hidden} takes {apart:.2f} s more or less than {unknown}"
            )
        assert other(_first_words(told)) == _first_words(nothing), (
            self.where,
            method,
            hidden,
            told,
            nothing,
        )


def _plain(data: Any) -> Any:
    return (
        {key: value for key, value in data.items() if key != "request_id"}
        if isinstance(data, dict)
        else data
    )


def _decoded(wrapped: str) -> str:
    try:
        return base64.urlsafe_b64decode(wrapped + "=" * (-len(wrapped) % 4)).decode()
    except ValueError:
        return ""


def _first_words(told: Json) -> str:
    """What an answer says before it goes on to what there is instead."""
    if "error" in told:
        error = told["error"]
        return (
            f"{error['code']} "
            f"{WRAPPED.sub('W', error['message']).split('Did you')[0].split('. ')[0]}"
        )
    texts = [block.get("text", "") for block in told.get("content", [])]
    return (
        f"{told.get('isError')} {' '.join(texts).split('. ')[0]}"
        if texts
        else json.dumps(sorted(told))
    )


# ---- what a client tries


async def list_all(ear: Ear, mode: str) -> None:
    """Whole and page by page: exactly what is seen."""
    for kind, (method, key) in LISTS.items():
        if kind == "tools" and mode != "direct":
            await ear.ask(method)
            continue
        wanted = sorted(_public(one) for one in ear.sees.things if one.kind == kind)
        whole = (await ear.ask(method))[key]
        assert sorted(_key(one) for one in whole) == wanted, (ear.where, kind)
        paged: list[str] = []
        cursor: Json = {}
        while True:
            page = await ear.ask(method, {"limit": 2, **cursor})
            paged += [_key(one) for one in page[key]]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert sorted(paged) == wanted


def _key(one: Json) -> str:
    return one.get("uriTemplate") or one.get("uri") or one["name"]


def _public(one: Thing) -> str:
    if one.kind == "resources":
        return wrap_uri(one.server, one.name)
    return one.name if one.kind == "templates" else one.public


async def call_all(ear: Ear, mode: str) -> None:
    for one in [one for one in ear.sees.world.things if one.kind == "tools"]:
        seen = one in ear.sees.things
        if mode == "direct" and seen:
            await ear.ask(
                "tools/call",
                {"name": one.public, "arguments": {}, "_meta": {"progressToken": one.name}},
            )
        elif mode == "direct":
            for name in one.names:
                await ear.same_as_unknown(
                    "tools/call", lambda other, name=name: {"name": other(name), "arguments": {}}
                )
        elif seen:
            await ear.ask("tools/call", _call(one, cast(Compact, mode), str))
        else:
            await _call_hidden(ear, one, cast(Compact, mode))


def _call(one: Thing, mode: Compact, other: Callable[[str], str]) -> Json:
    name, arguments = meta_call(mode, other(one.server), other(one.name), {})
    return {"name": name, "arguments": arguments}


async def _call_hidden(ear: Ear, one: Thing, mode: Compact) -> None:
    """In the mode's own way, among several, and by its name."""

    def several(other: Callable[[str], str]) -> Json:
        made = _call(one, mode, other)
        return {**made, "arguments": {"calls": [made["arguments"]] * 2, "continue": True}}

    await ear.same_as_unknown("tools/call", lambda other: _call(one, mode, other))
    await ear.same_as_unknown("tools/call", several)
    await ear.same_as_unknown(
        "tools/call", lambda other: {"name": other(one.public), "arguments": {}}
    )


async def look_around(ear: Ear, mode: str) -> None:
    """The other tools of compact modes: with names, words, words of descriptions, and nothing."""
    hidden = [one for one in ear.sees.hidden if one.kind == "tools"]
    servers = [server for server in ear.sees.world.servers if server.name not in ear.sees.servers]
    words = [
        *(word for one in hidden[:3] for word in one.words),
        *(w for s in servers for w in (s.name, s.secret)),
        "",
    ]
    tool, key = ASKED_WITH[mode]
    for word in words:
        await ear.ask("tools/call", {"name": tool, "arguments": {key: word}})
    await ear.ask(
        "tools/call", {"name": tool, "arguments": {key: [server.name for server in servers]}}
    )
    for one in hidden[:3]:
        arguments = (
            {"server_name": one.server, "tool_name": one.name}
            if mode == "inspect"
            else {key: f"{one.server}.{one.name}"}
        )
        await ear.ask("tools/call", {"name": tool, "arguments": arguments})
    if mode == "search":
        for server in servers:
            await ear.ask(
                "tools/call", {"name": tool, "arguments": {"query": "", "service": server.name}}
            )
        listed = await ear.ask("tools/call", {"name": "mcp_list_services", "arguments": {}})
        counts = {one["name"]: one["tool_count"] for one in listed["structuredContent"]["services"]}
        for name, count in counts.items():
            assert count == sum(
                one.server == name and one.kind == "tools" for one in ear.sees.things
            )


async def read_all(ear: Ear) -> None:
    """Prompts, resources and templates: got, completed, read in every form, subscribed to."""
    world = ear.sees.world
    for one in world.things:
        if one.kind == "prompts":
            await _get(ear, one, seen=one in ear.sees.things)
        elif one.kind != "tools":
            await _read(ear, one, seen=one in ear.sees.things)
    for server in world.servers:
        if server.name not in ear.sees.servers:  # a URI that nobody lists, of one that nobody knows
            for method in (
                "resources/read",
                *(() if ear.client.modern else ("resources/subscribe",)),
            ):
                await ear.same_as_unknown(
                    method, lambda other, name=server.name: {"uri": wrap_uri(other(name), "x://y")}
                )


async def _get(ear: Ear, one: Thing, *, seen: bool) -> None:
    def completing(name: str) -> Json:
        return {
            "ref": {"type": "ref/prompt", "name": name},
            "argument": {"name": "about", "value": ""},
        }

    if seen:
        await ear.ask("prompts/get", {"name": one.public, "arguments": {}})
        await ear.ask("completion/complete", completing(one.public))
        return
    for name in one.names:
        await ear.same_as_unknown(
            "prompts/get", lambda other, name=name: {"name": other(name), "arguments": {}}
        )
        await ear.same_as_unknown(
            "completion/complete", lambda other, name=name: completing(other(name))
        )


async def _read(ear: Ear, one: Thing, *, seen: bool) -> None:
    uri = one.name.replace("{id}", "7")
    methods = [
        "resources/read",
        *([] if ear.client.modern else ["resources/subscribe", "resources/unsubscribe"]),
    ]
    argument = {"name": "id", "value": ""}
    for form in (lambda other: other(uri), lambda other: wrap_uri(other(one.server), other(uri))):
        for method in methods:
            if seen:
                await ear.ask(method, {"uri": form(str)})
            elif (
                one.server in ear.sees.servers
            ):  # which may know more URIs than it lists: it is asked about others
                assert "error" in await ear.ask(method, {"uri": form(str)})
            else:
                await ear.same_as_unknown(method, lambda other, form=form: {"uri": form(other)})
    if one.server not in ear.sees.servers:
        for form in (
            lambda other: other(one.name),
            lambda other: wrap_uri(other(one.server), other(one.name)),
        ):
            await ear.same_as_unknown(
                "completion/complete",
                lambda other, form=form: {
                    "ref": {"type": "ref/resource", "uri": form(other)},
                    "argument": argument,
                },
            )


@asynccontextmanager
async def listening(ear: Ear) -> Any:
    """To everything there is, whether it is seen or not."""
    uris = [
        one.name.replace("{id}", "7")
        for one in ear.sees.world.things
        if one.kind in ("resources", "templates")
    ]
    uris += [
        wrap_uri(one.server, one.name) for one in ear.sees.world.things if one.kind == "resources"
    ]
    if not ear.client.modern:
        for one in ear.sees.things:
            if one.kind == "resources":
                await ear.ask("resources/subscribe", {"uri": wrap_uri(one.server, one.name)})
        await ear.ask("logging/setLevel", {"level": "debug"})
        yield
        return
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    async with anyio.create_task_group() as group:
        params = {"notifications": {**wanted, "resourceSubscriptions": uris}}
        group.start_soon(ear.client.request, "subscriptions/listen", params)
        await until(lambda: any(m.get("method") == ACKNOWLEDGED for m in ear.received))
        yield
        group.cancel_scope.cancel()


async def hear_noise(ears: Iterable[Ear], world: World, folder: Path, mark: str) -> None:
    """Every server says all it can, at every client's gateway."""
    ears = list(ears)
    up = [server for server in world.servers if server.state == "up"]
    before = {server.name: server.log(folder).count("noise") for server in up}
    marks = [len(ear.received) for ear in ears]
    for server in up:
        server.tell(folder, server.things, mark=mark)
    gateways = 1 + sum("stdio" in ear.where for ear in ears)
    await until(lambda: all(s.log(folder).count("noise") >= before[s.name] + gateways for s in up))
    for _ in range(3):  # what was said is heard before the answers to what is asked now
        for ear in ears:
            await ear.ask("prompts/list")
        await anyio.sleep(0.1)
    for ear, since in zip(ears, marks, strict=True):
        for message in ear.received[since:] if ear.sees.limited else ():
            if message.get("method") in CHANGED:
                assert _on_own_link(ear.sees, message), (
                    f"{ear.where}: {message}, and nothing it sees has changed"
                )


def _on_own_link(sees: Sees, message: Json) -> bool:
    """A server with a connection for this client alone is taken at its word, if any of the kind is
    seen."""
    server = message.get("params", {}).get("_meta", {}).get("proxy", {}).get("server")
    kinds = (
        {"resources", "templates"}
        if "/resources/" in message["method"]
        else {message["method"].split("/")[1]}
    )
    return any(one.server == server and one.kind in kinds for one in sees.things)


def door(front: str, gateway: GatewayProcess, profile: str, folder: Path) -> Door:
    """`profile`: empty for none."""
    if front == "stdio":
        command = [*gateway.stdio_command, *(["--profile", profile] if profile else [])]
        return Door("stdio", command=command, env=gateway.env, stderr=folder / f"stderr-{profile}")
    scheme, path = {"http": ("http", "mcp"), "sse": ("http", "sse"), "websocket": ("ws", "ws")}.get(
        front, ("http", f"mcp/{front}")
    )
    kind = cast(Any, front if front in FRONTS else "http")
    return Door(
        kind, f"{scheme}://127.0.0.1:{gateway.port}{f'/p/{profile}' if profile else ''}/{path}"
    )


async def one_client(
    world: World, gateway: GatewayProcess, folder: Path, front: str, era: str, sees: Sees
) -> None:
    name = sees.profile.get("name", "")
    mode = front if front not in FRONTS else sees.profile.get("mode", "direct")
    async with raw_client(
        door(front, gateway, name, folder), AnsweringUser(f"{front}-{era}"), era == "modern"
    ) as client:
        ear = Ear(client, sees, f"{front} {era} {mode} {sees.profile}")
        mode = "direct" if mode == "auto" else mode  # there is little enough
        await list_all(ear, mode)
        await call_all(ear, mode)
        if mode in MODES:
            await look_around(ear, mode)
        await read_all(ear)
        async with listening(ear):
            await hear_noise([ear], world, folder, f"{front}{era}{name}")


def check_pages(gateway: GatewayProcess, all_seen: Sees) -> None:
    """Nobody is asked who they are here: what policy hides from them is hidden on pages too."""
    metrics, state = fetch(gateway.port, "/metrics"), fetch(gateway.port, "/health")
    for word in all_seen.canaries - {
        all_seen.world.quarantined.name
    }:  # that page is for who looks after it all
        assert word.encode() not in metrics.body, word
        assert word.encode() not in state.body, word


ROUNDS = int(os.environ.get("MCPX_HIDING_ROUNDS", "2"))
"""Configurations that are tried; each takes some ten seconds."""
PROFILES = 4


@settings(
    max_examples=ROUNDS,
    derandomize=bool(os.environ.get("CI")),
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_hidden_is_ever_told(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    random = Random(seed)
    folder = tmp_path_factory.mktemp("hidden")
    world = World(random)
    names = [f"p{number}" for number in range(PROFILES)]
    profiles = [world.profile(name) for name in names]
    policy = world.policy(names)
    fronts = random.sample(["stdio", "http", "sse", "websocket"], 4)
    modes = random.sample([*MODES, "auto"], 4)

    async def main(gateway: GatewayProcess) -> None:
        with anyio.fail_after(BOUND):
            for front, mode, profile in zip(fronts, modes, profiles, strict=True):
                sees = Sees(world, profile, policy)
                for era in ("older", "modern"):
                    await one_client(world, gateway, folder, front, era, sees)
                await one_client(
                    world, gateway, folder, mode, random.choice(("older", "modern")), sees
                )
            without = random.choice(["stdio", "http", "websocket", "search"])
            await one_client(world, gateway, folder, without, "older", Sees(world, None, policy))

    with running(world, folder, profiles, policy) as gateway:
        check_pages(gateway, Sees(world, None, policy))
        anyio.run(main, gateway)
