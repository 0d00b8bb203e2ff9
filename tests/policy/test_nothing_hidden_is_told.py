"""SEC-2, over random profiles, all modes and both eras: what a profile hides is never listed,
found, described, completed, read, subscribed to, counted or called, nor does any error tell of it.

Each thing has a word of its own that stands nowhere else, in its name and in its description. What
is hidden is decided here a second time, by the words of the promise and not by the code that keeps
it.
"""

import json
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kit.callers import modern_caller, older_caller
from kit.loop import run
from kit.server import ScriptedConnection, ScriptedServer
from mcpx.catalog.naming import wrap_uri
from mcpx.config import Config, Global, Naming, Profile
from mcpx.core.gateway import Gateway
from mcpx.front.dispatch import Dispatcher
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import RpcError

SERVERS = ("amber", "basalt", "cobalt")
KINDS = ("tools", "prompts", "resources", "templates")
MODES = ("direct", "inspect", "describe", "search", "auto")
COMMON = "gadget"
"""A word that every description has."""


@dataclass(frozen=True)
class Thing:
    kind: str
    server: str
    word: str
    reads: bool = False

    @property
    def name(self) -> str:
        match self.kind:
            case "tools":
                return f"do_{self.word}"
            case "prompts":
                return f"say_{self.word}"
            case "resources":
                return f"{self.server}://{self.word}"
            case _:
                return f"{self.server}://{self.word}/{{id}}"

    @property
    def public(self) -> str:
        return f"{self.server}_{self.name}" if self.kind in ("tools", "prompts") else self.name

    @property
    def definition(self) -> Json:
        about = {"description": f"A {COMMON} for {self.word}"}
        match self.kind:
            case "tools":
                return {
                    "name": self.name,
                    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
                    **({"annotations": {"readOnlyHint": True}} if self.reads else {}),
                    **about,
                }
            case "prompts":
                return {"name": self.name, **about}
            case "resources":
                return {"uri": self.name, "name": self.word, **about}
            case _:
                return {"uriTemplate": self.name, "name": self.word, **about}


LETTERS = "qxzjvkwy"
THINGS = [
    Thing(
        kind,
        server,
        f"{LETTERS[place]}{'tprm'[at]}{LETTERS[number]}{server[0]}oo",
        reads=number % 2 == 0,
    )
    for place, server in enumerate(SERVERS)
    for at, kind in enumerate(KINDS)
    for number in range(3)
]


def toy(server: str) -> ScriptedServer:
    own = [thing for thing in THINGS if thing.server == server]

    def lists(kind: str, key: str) -> Any:
        async def answer(line: ScriptedConnection, params: Json) -> Json:
            return {key: [thing.definition for thing in own if thing.kind == kind]}

        return answer

    async def read(line: ScriptedConnection, params: Json) -> Json:
        return {"contents": [{"uri": params["uri"], "text": "read"}]}

    async def prompt(line: ScriptedConnection, params: Json) -> Json:
        return {"messages": []}

    async def complete(line: ScriptedConnection, params: Json) -> Json:
        return {"completion": {"values": []}}

    async def subscribe(line: ScriptedConnection, params: Json) -> Json:
        return {}

    return ScriptedServer(
        "older",
        tools=[thing.name for thing in own if thing.kind == "tools"],
        capabilities={
            "tools": {},
            "prompts": {},
            "resources": {"subscribe": True},
            "completions": {},
        },
        answers={
            "tools/list": lists("tools", "tools"),
            "prompts/list": lists("prompts", "prompts"),
            "resources/list": lists("resources", "resources"),
            "resources/templates/list": lists("templates", "resourceTemplates"),
            "resources/read": read,
            "resources/subscribe": subscribe,
            "resources/unsubscribe": subscribe,
            "prompts/get": prompt,
            "completion/complete": complete,
        },
    )


# --- what is hidden, by the words of the promise


def meant(patterns: tuple[str, ...] | None, *names: str) -> bool:
    if patterns is None:
        return True
    outcome = bool(patterns) and all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        if any(fnmatchcase(name, pattern.removeprefix("!")) for name in names):
            outcome = not pattern.startswith("!")
    return outcome


def is_seen(profile: Profile, thing: Thing) -> bool:
    if not meant(profile.servers, thing.server):
        return False
    if thing.kind == "tools":
        if profile.read_only and not thing.reads:
            return False
        return meant(profile.tools, thing.name, thing.public, f"{thing.server}.{thing.name}")
    if thing.kind == "prompts":
        return meant(profile.prompts, thing.name, thing.public, f"{thing.server}.{thing.name}")
    return meant(profile.resources, thing.name)


def patterns(*texts: str) -> st.SearchStrategy[tuple[str, ...] | None]:
    pattern = st.builds(
        lambda leaves_out, text: ("!" if leaves_out else "") + text,
        st.booleans(),
        st.sampled_from(texts),
    )
    return st.none() | st.lists(pattern, max_size=4).map(tuple)


def texts_of(kind: str) -> list[str]:
    own = [thing for thing in THINGS if thing.kind == kind]
    return [
        "*",
        *(thing.name for thing in own),
        *(thing.public for thing in own),
        *(f"{s}[._:]*" for s in SERVERS),
    ]


PROFILES = st.builds(
    Profile,
    name=st.just("p"),
    servers=patterns("*", *SERVERS, "?a*", "[ab]*"),
    tools=patterns(*texts_of("tools")),
    prompts=patterns(*texts_of("prompts")),
    resources=patterns(*texts_of("resources"), *texts_of("templates")),
    read_only=st.booleans(),
)


# --- what is tried


def expansion(thing: Thing) -> str:
    return thing.name.replace("{id}", "7") if thing.kind == "templates" else thing.name


def direct_probes(thing: Thing) -> Iterator[tuple[str, Json]]:
    uri = expansion(thing)
    match thing.kind:
        case "tools":
            for name in (thing.public, thing.name, f"{thing.server}.{thing.name}"):
                yield "tools/call", {"name": name, "arguments": {}}
        case "prompts":
            yield "prompts/get", {"name": thing.public}
            argument = {"name": "x", "value": ""}
            yield (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": thing.public}, "argument": argument},
            )
        case _:
            for form in (
                uri,
                wrap_uri(thing.server, uri),
                wrap_uri(thing.server, thing.name),
                thing.name,
            ):
                yield "resources/read", {"uri": form}
                yield "resources/subscribe", {"uri": form}
                yield "resources/unsubscribe", {"uri": form}
                ref = {"type": "ref/resource", "uri": form}
                yield "completion/complete", {"ref": ref, "argument": {"name": "id", "value": ""}}


def compact_probes(mode: str, thing: Thing) -> Iterator[Json]:
    server, name, uri = thing.server, thing.name, expansion(thing)
    words = f"{COMMON} {thing.word}"
    match mode:
        case "inspect":
            yield {"name": "inspect", "arguments": {"server_name": server}}
            yield {"name": "inspect", "arguments": {"server_name": words}}
            yield {"name": "inspect", "arguments": {"server_name": server, "tool_name": name}}
            yield {
                "name": "exec",
                "arguments": {"server_name": server, "tool_name": name, "arguments": {}},
            }
        case "describe":
            yield {"name": "describe", "arguments": {"method": server}}
            yield {"name": "describe", "arguments": {"method": words}}
            yield {"name": "describe", "arguments": {"method": f"{server}.{name}"}}
            yield {"name": "call", "arguments": {"method": f"{server}.{name}", "arguments": {}}}
            yield {"name": "resources", "arguments": {}}
            yield {"name": "resources", "arguments": {"server_name": server}}
            if thing.kind in (
                "resources",
                "templates",
            ):  # whatever else is a URI to nobody but its server
                yield {"name": "resources", "arguments": {"server_name": server, "uri": uri}}
                yield {"name": "resources", "arguments": {"uri": uri}}
        case "search":
            yield {"name": "mcp_search_tools", "arguments": {"query": words}}
            yield {"name": "mcp_search_tools", "arguments": {"query": "", "service_name": server}}
            yield {"name": "mcp_search_tools", "arguments": {"query": name}}
            yield {
                "name": "mcp_execute_tool",
                "arguments": {"tool_name": thing.public, "arguments": {}},
            }
            yield {
                "name": "mcp_execute_tool",
                "arguments": {"tool_name": f"{server}.{name}", "arguments": {}},
            }
            yield {"name": "mcp_list_services", "arguments": {}}
        case _:
            return
    yield {"name": thing.public, "arguments": {}}


async def answered(work: Awaitable[Json]) -> tuple[bool, str]:
    """Whether it went well, and every word that was said."""
    try:
        result = await work
        return result.get("isError") is not True, json.dumps(result)
    except RpcError as error:
        return False, json.dumps([error.code, error.message, error.data])


class HiddenOffersCheck:
    """One gateway for all examples: each takes up its own profile, as a reload does."""

    def __init__(self) -> None:
        self.toys = {server: toy(server) for server in SERVERS}
        servers = tuple(each.server(name, prefix=name) for name, each in self.toys.items())
        self.config = Config(
            mcp_servers=servers,
            global_=Global(startup_wait=0.0, first_start_wait=10.0),
            naming=Naming(prefix="always"),
        )
        self.gateway = Gateway(self.config, {})
        self.dispatcher = Dispatcher(self.gateway)

    async def check(self, profile: Profile) -> None:
        await self.gateway.apply(replace(self.config, profiles=(profile,)))
        seen = {thing for thing in THINGS if is_seen(profile, thing)}
        hidden = [thing for thing in THINGS if thing not in seen]
        for each in self.toys.values():
            for line in each.lines:
                line.heard.clear()
        for caller in (older_caller(profile="p"), modern_caller(profile="p")):
            await self.lists(caller, seen)
            assert_silent(json.dumps(self.dispatcher.discover(caller)), hidden, profile)
            await self.probes(caller, hidden[:: max(1, len(hidden) // 6)], hidden, profile)
            await self.counts(caller, seen)
        self.nothing_was_asked(hidden)

    async def ask(self, caller: Caller, method: str, params: Json) -> tuple[bool, str]:
        async def work() -> Json:
            return await self.gateway.handle(Call(method, params, caller))

        return await answered(work())

    async def lists(self, caller: Caller, seen: set[Thing]) -> None:
        direct = replace(caller, mode="direct")
        for kind, method, key in (
            ("tools", "tools/list", "tools"),
            ("prompts", "prompts/list", "prompts"),
            ("resources", "resources/list", "resources"),
            ("templates", "resources/templates/list", "resourceTemplates"),
        ):
            listed = (await self.gateway.handle(Call(method, {}, direct)))[key]
            expected = [thing for thing in THINGS if thing.kind == kind and thing in seen]
            words = [
                next(t.word for t in THINGS if t.word in json.dumps(entry)) for entry in listed
            ]
            assert words == [thing.word for thing in expected]

    async def probes(
        self, caller: Caller, some: list[Thing], hidden: list[Thing], profile: Profile
    ) -> None:
        for mode in MODES:
            who = replace(caller, mode=mode)
            well, said = await self.ask(who, "tools/list", {})
            assert well
            assert_silent(said, hidden, profile)
            for thing in some:
                asked = [("tools/call", params) for params in compact_probes(mode, thing)]
                for method, params in [
                    *asked,
                    *(direct_probes(thing) if mode in ("direct", "auto") else ()),
                ]:
                    well, said = await self.ask(who, method, params)
                    if mode == "direct":
                        assert not well, (method, params, said)
                    assert_silent(
                        said,
                        [t for t in hidden if t is not thing],
                        profile,
                        asked=json.dumps(params),
                    )
                    # Its own name is said back to whoever said it, and what it is for is not.
                    assert f"{COMMON} for {thing.word}" not in said, (mode, params, said)

    async def counts(self, caller: Caller, seen: set[Thing]) -> None:
        who = replace(caller, mode="search")
        tools = [thing for thing in seen if thing.kind == "tools"]
        for query in ("", COMMON):
            params = {"name": "mcp_search_tools", "arguments": {"query": query}}
            result = await self.gateway.handle(Call("tools/call", params, who))
            if query or tools:
                assert result["structuredContent"]["total"] == len(tools)
        params = {"name": "mcp_list_services", "arguments": {}}
        listed = (await self.gateway.handle(Call("tools/call", params, who)))["structuredContent"][
            "services"
        ]
        assert {entry["name"] for entry in listed} == {thing.server for thing in seen}
        for entry in listed:
            assert entry["tool_count"] == sum(thing.server == entry["name"] for thing in tools)

    def nothing_was_asked(self, hidden: list[Thing]) -> None:
        for name, each in self.toys.items():
            for line in each.lines:
                said = json.dumps([message for message in line.heard if "list" not in message[0]])
                assert [t for t in hidden if t.server == name and t.word in said] == [], said


def assert_silent(said: str, hidden: list[Thing], profile: Profile, asked: str = "") -> None:
    told = [thing for thing in hidden if thing.word in said and thing.word not in asked]
    assert told == [], (profile, asked, said)
    for server in SERVERS:
        if not meant(profile.servers, server) and server not in asked:
            assert server not in said, (profile, asked, said)


@settings(max_examples=8, derandomize=True, phases=[Phase.generate])
@given(st.lists(PROFILES, min_size=4, max_size=4))
def test_what_a_profile_hides_is_told_in_no_way(profiles: list[Profile]) -> None:
    async def main() -> None:
        check = HiddenOffersCheck()
        check.gateway.start()
        try:
            for profile in profiles:
                await check.check(profile)
        finally:
            await check.gateway.close()

    run(main())
