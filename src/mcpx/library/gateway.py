"""One gateway inside a program: opened on a configuration, closed with everything it started
(RUN-7).

Promised: the catalog, names, rules, limits, audit trail and formats of the gateway that is served;
nothing is bound, no signal is taken, no logging is set up, and any number of gateways may be open
in one loop. Leaving the block ends every process that was started for it. A tool that fails gives a
`Result` that says so; an exception says that there is no result: `ConfigError` (a mistake in the
configuration), `NotFound`, `Denied`, `Unavailable` and any other `RpcError` (what the server itself
refuses), and `TimeoutError` for a `timeout` of the caller's own. No promise: more than one event
loop at a time in one process.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcpx import __version__
from mcpx.config import Config, find, load
from mcpx.core.gateway import Gateway as Core
from mcpx.core.view import search
from mcpx.library.asking import Elicit, OnProgress, Roots, Sample, Voice, capabilities
from mcpx.library.values import (
    Change,
    Content,
    Description,
    Found,
    Health,
    Message,
    Prompt,
    Resource,
    Result,
    Tool,
)
from mcpx.model.call import LOCAL, Call, Caller, Json, as_list, as_object
from mcpx.model.errors import ConfigError, McpxError, NotFound
from mcpx.model.events import OffersChanged, UpstreamChanged
from mcpx.model.offer import Offer
from mcpx.model.requests import REQUEST
from mcpx.model.state import state_folder
from mcpx.processes import process
from mcpx.processes.environment import mark_of, running_inside
from mcpx.surfaces import SURFACES
from mcpx.telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from mcpx.surfaces.checking.arguments import Checked
    from mcpx.surfaces.compact import Compact
    from mcpx.telemetry.request_tracker import Tracker

logging.getLogger("mcpx").addHandler(
    logging.NullHandler()
)  # what is logged is the program's own to show

CARRIER = "library"
"""What a trail says where others have `stdio` or `http`."""
DEFAULT_STATE = "default"

OnChange = Callable[[Change], None]


class Gateway:
    """`async with Gateway.open("config.yaml") as gateway:`"""

    def __init__(self, opening: "_Opening") -> None:
        """By `open`."""
        self._opening = opening
        self._core: Core | None = None
        self._telemetry: Telemetry | None = None
        self._tracker: Tracker | None = None
        self._caller = Caller()
        self._closed = False

    @classmethod
    def open(
        cls,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        mode: str | None = None,
        profile: str | None = None,
        env: str | None = None,
        environ: Mapping[str, str] | None = None,
        state: str | os.PathLike[str] | None = DEFAULT_STATE,
        servers: Iterable[str] | None = None,
        wait: float | None = None,
        elicit: Elicit | None = None,
        sample: Sample | None = None,
        roots: Roots = (),
        on_change: OnChange | None = None,
        client: str = "mcpx library",
    ) -> Self:
        """`config`: a file, a folder of files, what such a file would hold, or None: the file that
        `mcpx` itself would find, else the built-in demo. `mode`: what `menu` shows; None: what the
        configuration says. `profile`: see and call only what that profile may. `env`: the overlays
        of an environment. `environ`: in the place of the process's own. `state`: the folder for
        what is not configuration; None keeps nothing. `servers`: only these are started. `wait`:
        seconds that lists wait for servers that are starting; None: until each has come or failed.
        `elicit`, `sample`, `roots`: who answers what servers ask. `on_change` hears when a list or
        a server is not what it was. `client`: the name servers are told."""
        environ = os.environ if environ is None else environ
        folder = (
            state_folder(environ)
            if state == DEFAULT_STATE
            else None
            if state is None
            else Path(state).absolute()
        )
        only = None if servers is None else frozenset(servers)
        return cls(
            _Opening(
                config,
                mode,
                profile,
                env,
                environ,
                folder,
                only,
                wait,
                elicit,
                sample,
                roots,
                on_change,
                client,
            )
        )

    # Life
    # ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        opening = self._opening
        if self._core is not None or self._closed:
            raise RuntimeError("a gateway is opened once; call Gateway.open again")
        config = await asyncio.to_thread(opening.read)
        itself = mark_of(config.path, opening.env)
        if itself in running_inside(opening.environ):
            raise ConfigError(
                [f"error: this program was started by an mcpx that runs on {config.path} already"]
            )
        state = (
            None if opening.config is None and config.path is None else opening.state
        )  # the demo writes nothing
        core = Core(config, opening.environ, state, itself=itself)
        self._telemetry = Telemetry(
            core,
            state=state,
            set_tracker=self._set_tracker,
            env=opening.env,
            redactor=core.redactor,
            environ=opening.environ,
        )
        self._core = core
        try:
            self._telemetry.take_up(config)
            core.bus.subscribe(self._heard, OffersChanged, UpstreamChanged)
            asked = capabilities(opening.elicit, opening.sample, opening.roots)
            self._caller = Caller(
                principal=LOCAL,
                profile=opening.profile,
                client={"name": opening.client, "version": __version__},
                mode="direct",
                session=CARRIER,
                solo=True,
                capabilities=asked,
                voice=self._voice(None),
                since=time.monotonic(),
            )
            core.start(self._caller)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything. More than once is once."""
        core, self._core, self._closed = self._core, None, True
        if core is None:
            return
        core.wind_down()
        core.bus.unsubscribe(self._heard)
        try:
            await core.close()
        finally:
            if self._telemetry is not None:
                await self._telemetry.close()
            await process.let_go()

    async def reload(self) -> str:
        """Read the configuration again, and say what changed. Raises `ConfigError`, and then
        nothing has."""
        core = self._open_core()
        config = await asyncio.to_thread(self._opening.read)
        plan = await core.apply(config)
        if self._telemetry is not None:
            self._telemetry.take_up(config)
        return str(plan)

    async def ready(self) -> list[str]:
        """Wait until every server has come or failed, at most as long as `wait` says; the names of
        those still starting."""
        core, news = self._open_core(), asyncio.Event()

        def heard(_: UpstreamChanged) -> None:
            news.set()

        core.bus.subscribe(heard, UpstreamChanged)
        try:
            async with asyncio.timeout(self._opening.wait):
                while self.starting:
                    await news.wait()
                    news.clear()
        except TimeoutError:
            pass
        finally:
            core.bus.unsubscribe(heard)
        return self.starting

    @property
    def starting(self) -> list[str]:
        """Servers that have neither come nor failed yet."""
        upstreams = self._open_core().generation.upstreams
        states = {
            name: upstream.status for name, upstream in upstreams.items() if self._knows(name)
        }
        return [
            name
            for name, status in states.items()
            if status.state == "connecting" and status.last_error is None
        ]

    # What there is
    # -------------------------------------------------------------------------------------------

    async def tools(self, server: str | None = None) -> list[Tool]:
        """Every tool, or those of one server, under the names they are called by; whatever `mode`
        says."""
        await self.ready()
        self._known(server)
        found = [
            Tool.of(as_object(raw))
            for raw in as_list((await self.request("tools/list")).get("tools"))
        ]
        return [tool for tool in found if server in (None, tool.server)]

    async def menu(self) -> list[Tool]:
        """The tools as a client is shown them in `mode`: all of them, or the few of a compact mode.
        `call` takes their names."""
        await self.ready()
        listed = await self.request("tools/list", surface=True)
        return [Tool.of(as_object(raw)) for raw in as_list(listed.get("tools"))]

    async def search(self, query: str, limit: int = 20) -> list[Found]:
        """The best matches first; English or Chinese."""
        return (await self.search_all(query, limit))[0]

    async def search_all(
        self, query: str, limit: int = 20, *, wait: bool = True
    ) -> tuple[list[Found], int]:
        """The same, and how many match in all. `wait`: for servers that are starting."""
        if wait:
            await self.ready()
        matches, total = await search(self._open_core(), self._caller, query, limit)
        return [
            Found(Tool.of(match.offer.definition), match.score, match.strong) for match in matches
        ], total

    async def missing(self, name: str) -> Json | None:
        """Why a server, or a tool by `SERVER.TOOL` or its name, is not offered: `reason`, `server`,
        `message`, `hint`.

        None if it is offered, or if it does not exist.
        """
        from mcpx.core.missing import why_missing

        core = self._open_core()
        await core.catalogs.ready()
        found = why_missing(core, name, self._opening.profile, self._caller.principal)
        return None if found is None else core.redactor.redact_values(found.told())

    async def describe(self, name: str) -> Description:
        """A tool as a model is told of it."""
        core, offer = self._open_core(), await self._tool(name)
        from mcpx.surfaces.text import told

        surface = core.generation.surfaces.of("describe")
        signature = _compact(surface).signature(offer)
        about = told(offer)
        return Description(
            Tool.of(offer.definition), signature, f"{signature}\n{about}" if about else signature
        )

    async def resources(self, *, templates: bool = False) -> list[Resource]:
        """Every resource; with `templates` every template of some."""
        await self.ready()
        method, key = (
            ("resources/templates/list", "resourceTemplates")
            if templates
            else ("resources/list", "resources")
        )
        listed = as_list((await self.request(method)).get(key))
        return [Resource.of(as_object(raw), template=templates) for raw in listed]

    async def prompts(self) -> list[Prompt]:
        await self.ready()
        return [
            Prompt.of(as_object(raw))
            for raw in as_list((await self.request("prompts/list")).get("prompts"))
        ]

    async def servers(self) -> list[Health]:
        """Every server and how it is at this moment."""
        core = self._open_core()
        told: Json = core.redactor.redact_values(await core.describe())
        found = [Health.of(as_object(raw)) for raw in as_list(told.get("servers"))]
        return [server for server in found if self._knows(server.name)]

    async def health(self, name: str) -> Health:
        """How one server is."""
        self._known(name)
        for server in await self.servers():
            if server.name == name:
                return server
        raise NotFound("server", name)

    # What can be done
    # ----------------------------------------------------------------------------------------

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Call a tool by its public name or as `SERVER.TOOL`. Cancelling it, or `timeout` seconds,
        cancel it at its server. What a tool itself says went wrong is a result, with `is_error`."""
        given = {} if arguments is None else dict(arguments)
        compact = await self._is_of_menu(name)
        public = name if compact else (await self._tool(name)).public
        params: Json = {"name": public, "arguments": given}
        return Result.of(
            await self.request(
                "tools/call", params, on_progress=on_progress, timeout=timeout, surface=compact
            )
        )

    async def check(self, name: str, arguments: object) -> "Checked":
        """Arguments against a tool's schema, as compact modes do it before a call: what to send,
        what was repaired, and what is wrong with them. Nothing is called."""
        from mcpx.surfaces.checking.arguments import Checker

        offer = await self._tool(name)
        return Checker().check(offer.definition.get("inputSchema"), arguments)

    async def read(self, uri: str, *, timeout: float | None = None) -> list[Content]:
        """A resource by the URI it is listed under, its own, or one that a template makes."""
        await self.ready()
        read = await self.request("resources/read", {"uri": uri}, timeout=timeout)
        return [
            Content.of({"type": "resource", "resource": as_object(raw)})
            for raw in as_list(read.get("contents"))
        ]

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> list[Message]:
        """A prompt, filled in."""
        await self.ready()
        params: Json = {"name": self._prompt(name), "arguments": dict(arguments or {})}
        got = await self.request("prompts/get", params, timeout=timeout)
        return [Message.of(as_object(raw)) for raw in as_list(got.get("messages"))]

    async def request(
        self,
        method: str,
        params: Json | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
        surface: bool = False,
    ) -> Json:
        """Any method of MCP that a client may send, raw; everything above is made of this.
        `surface`: as a client finds it in `mode`; else every tool stands under its own name."""
        core, caller = self._open_core(), self._caller
        if surface:
            caller = replace(caller, mode=self._opening.mode)
        given = {} if params is None else params
        if on_progress is not None:
            given = {
                **given,
                "_meta": {**as_object(given.get("_meta")), "progressToken": id(on_progress)},
            }

        async def work() -> Json:
            request = REQUEST.get() if self._tracker is not None else None
            if request is not None:
                request.caller = caller
            return await core.handle(Call(method, given, caller, self._voice(on_progress), request))

        async with asyncio.timeout(timeout):
            if self._tracker is None:
                return await work()
            return await self._tracker.follow(
                {"method": method, "params": given}, None, CARRIER, work()
            )

    # Inside
    # ----------------------------------------------------------------------------------------------

    def _open_core(self) -> Core:
        if self._core is None:
            raise McpxError(
                "the gateway is closed"
                if self._closed
                else "the gateway is not open: use `async with`"
            )
        return self._core

    def _voice(self, on_progress: OnProgress | None) -> Voice:
        opening = self._opening
        return Voice(opening.elicit, opening.sample, opening.roots, on_progress)

    def _set_tracker(self, tracker: "Tracker | None") -> None:
        self._tracker = tracker

    def _heard(self, event: OffersChanged | UpstreamChanged) -> None:
        if (on_change := self._opening.on_change) is None:
            return
        if isinstance(event, UpstreamChanged):
            if self._knows(event.server):
                on_change(Change("server", event.server))
            return
        kinds = {"resources" if kind == "templates" else kind for kind in event.kinds}
        for kind in ("tools", "prompts", "resources"):
            if kind in kinds:
                on_change(Change(kind, event.server))

    def _knows(self, server: str) -> bool:
        core = self._open_core()
        upstream = core.generation.upstreams.get(server)
        only = self._opening.servers
        return (upstream is None or only is None or server in only) and core.access.knows(
            self._caller, server
        )

    def _known(self, server: str | None) -> None:
        core = self._open_core()
        if server is not None and (
            core.generation.source(server) is None or not self._knows(server)
        ):
            raise NotFound("server", server)

    async def _is_of_menu(self, name: str) -> bool:
        """Whether a compact mode has a tool of this name."""
        mode = self._opening.mode
        if mode in (None, "direct"):
            return False
        listed = await self.request("tools/list", surface=True)
        return any(as_object(raw).get("name") == name for raw in as_list(listed.get("tools")))

    async def _tool(self, name: str) -> Offer:
        """By its public name, or as `SERVER.TOOL` after the longest name of a server."""
        core = self._open_core()
        view = core.view(self._caller)
        if (offer := view.catalog.find("tools", name)) is not None:
            return offer
        for server in self._servers_before(name):
            if (offer := await view.pick(server, name[len(server) + 1 :])) is not None:
                return offer
        await self.ready()
        return await view.find("tools", name)

    def _prompt(self, name: str) -> str:
        catalog = self._open_core().catalogs.of(self._caller)
        if catalog.find("prompts", name) is None:
            for server in self._servers_before(name):
                if (
                    offer := catalog.native("prompts", server, name[len(server) + 1 :])
                ) is not None:
                    return offer.public
        return name

    def _servers_before(self, name: str) -> list[str]:
        """Whose names it begins with, the longest first."""
        names = [source.name for source in self._open_core().generation.sources]
        return sorted(
            (each for each in names if name.startswith(f"{each}.")), key=len, reverse=True
        )


class _Opening:
    """What a gateway is opened with."""

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None,
        mode: str | None,
        profile: str | None,
        env: str | None,
        environ: Mapping[str, str],
        state: Path | None,
        servers: frozenset[str] | None,
        wait: float | None,
        elicit: Elicit | None,
        sample: Sample | None,
        roots: Roots,
        on_change: OnChange | None,
        client: str,
    ) -> None:
        self.config, self.mode, self.profile = config, mode, profile
        self.env = env or environ.get("MCPX_ENV") or None
        self.environ, self.state, self.servers, self.wait = environ, state, servers, wait
        self.elicit, self.sample, self.roots = elicit, sample, roots
        self.on_change, self.client = on_change, client

    def read(self) -> Config:
        """Raises `ConfigError`."""
        config = self._read()
        if self.mode is not None and self.mode not in SURFACES:
            raise ConfigError(
                [f"error: there is no mode {self.mode!r}; there is {', '.join(SURFACES)}"]
            )
        profiles = [profile.name for profile in config.profiles]
        if self.profile is not None and self.profile not in profiles:
            there = ", ".join(map(repr, profiles)) or "none"
            raise ConfigError([f"error: no profile is named {self.profile!r}; there is {there}"])
        if self.servers is None:
            return config
        names = [server.name for server in config.mcp_servers]
        if unknown := sorted(
            self.servers - {*names, *([] if not config.commands else ["commands"])}
        ):
            raise ConfigError(
                [f"error: no server is named {unknown[0]!r}; there is {', '.join(names) or 'none'}"]
            )
        kept = [
            s if s.name in self.servers else replace(s, enabled=False) for s in config.mcp_servers
        ]
        return replace(config, mcp_servers=tuple(kept))

    def _read(self) -> Config:
        config, environ = self.config, self.environ
        if isinstance(config, Config):
            return config
        if isinstance(config, Mapping):
            return _of_mapping(config, environ, self.env)
        path = find(None if config is None else os.fspath(config), environ, Path.cwd())
        if path is not None:
            return load(path, environ, self.env)
        from mcpx import demo

        return demo.config()


def _of_mapping(config: Mapping[str, Any], environ: Mapping[str, str], env: str | None) -> Config:
    """As if it stood in a file in the working folder."""
    try:
        text = json.dumps(config)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"error: the configuration is not what JSON can say: {error}"]) from None
    if env is not None and environ.get("MCPX_ENV") != env:
        raise ConfigError(
            ["error: env lays files over a file; a configuration that is given whole has none"]
        )
    path = Path.cwd() / "given.json"
    plain = {name: value for name, value in environ.items() if name != "MCPX_ENV"}
    return load(path, plain, texts={path: text})


def _compact(surface: object) -> "Compact":
    from mcpx.surfaces.compact import Compact

    assert isinstance(surface, Compact)
    return surface
