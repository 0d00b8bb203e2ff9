"""What the compact surfaces share: find the tool that is meant, check its arguments, call it, make
its result short.

Policy, limits and metrics below see the real tool, never the meta-tool. A model's mistake comes
back as a tool error that lets it correct itself (SUR-9); an error the server itself sent stays as
it is (PRO-6).
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from mcpx.base.aio import in_slices
from mcpx.catalog.catalog import Catalog
from mcpx.formats.writing import NO_NOTES, schema_writer
from mcpx.model.call import Call, Caller, Json, is_object
from mcpx.model.errors import INVALID_PARAMS, Denied, RpcError, Unavailable
from mcpx.model.offer import Offer
from mcpx.surfaces.batch import Batch, Made, asked_for
from mcpx.surfaces.files import reads_files
from mcpx.surfaces.large import reading
from mcpx.surfaces.large.preview import NOT_JSON, Preview, closing
from mcpx.surfaces.large.reading import BUILT_IN, READER
from mcpx.surfaces.menu import Menu, abouts, describe_server, tools_by_server
from mcpx.surfaces.mistakes import LONGEST_SIGNATURE, Guide, Mistake, Unknown, nearest
from mcpx.surfaces.results import Shaper, has_lines, is_plain, owner_of, said
from mcpx.surfaces.settings import Rendering
from mcpx.surfaces.surface import PerCatalog, Surface, Surfaces
from mcpx.surfaces.text import cut, notes_of, one_line, quoted, starting
from mcpx.surfaces.tool_search import Finder, Manner
from mcpx.surfaces.view import Service, View, for_models
from mcpx.wire import codec

__all__ = ["BUILT_IN", "READER", "Compact", "Mistake", "Unknown"]

SIGNED = 0.75
"""Of what is shown at once: so much goes to the signatures of one server's tools, the rest to
names."""
REMEMBERED = 1_000_000
"""Characters of signatures that are kept."""
LONGEST_NAME = 256
"""Characters in which a dot may end the name of a server."""
NAMING = ("server_name", "service_name", "server", "method", "tool_name", "tool", "name")
"""Arguments by which the call tools of one surface or another name a tool, the server before its
tool."""


class Compact(Surface):
    """Base of the compact surfaces. Each brings its tools, and the words in which they are
    called."""

    naming: ClassVar[tuple[str, ...]] = ()
    """The arguments of its call tool that name the tool to call."""
    manner = Manner()
    """How it speaks of searching."""

    def __init__(self, surfaces: Surfaces) -> None:
        super().__init__(surfaces)
        self._lasting = surfaces.lasting
        self._kept = surfaces.lasting.kept
        self._worker = surfaces.lasting.worker
        self._checker = surfaces.lasting.checker
        self._menus: PerCatalog[list[Json]] = PerCatalog()
        self._contents: PerCatalog[Menu] = PerCatalog()
        self._signatures: dict[int, tuple[Offer, str]] = {}
        """By the identity of the offer: of some schemas writing one takes 15 ms."""
        self._signed = 0
        self._listing = asyncio.Lock()
        """One at a time: each listing gives way to everybody else, twenty at once would not."""
        self.finder = Finder(self)
        self.guide = Guide(self, surfaces.lasting.meanings)

    @property
    def ending(self) -> bool:
        return self._lasting.ending

    # For the subclass to say
    # -----------------------------------------------------------------------------------

    @abstractmethod
    def definitions(self, menu: Menu) -> list[Json]:
        """The tools of this surface."""

    @abstractmethod
    async def answer(self, view: View, call: Call, name: str, arguments: Json) -> Json | None:
        """Serve one of its tools; None: there is no such tool here."""

    @abstractmethod
    async def target(self, view: View, arguments: Json) -> Offer:
        """The tool that the arguments of its call tool name."""

    @abstractmethod
    def spelled(self, offer: Offer) -> str:
        """How a model names this tool here."""

    @abstractmethod
    def how_to_call(self, offer: Offer, arguments: str) -> str:
        """The whole call, as text."""

    def by_name(self, caller: Caller) -> bool:
        return False

    # The surface
    # ----------------------------------------------------------------------------------------------

    async def list_tools(self, view: View, call: Call) -> Json:
        view = for_models(view)
        catalog, menu = await self.contents(view)
        tools = self._menus.of(catalog, (menu,))
        if tools is None:
            tools = self._menus.keep(catalog, self.definitions(menu), (menu,))
        if (note := starting(view)) and tools:
            tools = [
                {**tools[0], "description": f"{tools[0].get('description', '')}\n{note}"},
                *tools[1:],
            ]
        return {"tools": tools}

    async def contents(self, view: View) -> tuple[Catalog, Menu]:
        """What there is to tell of, the same until something is different."""
        catalog = await view.prepare()
        services = view.services()
        edition = [(s.name, s.description, s.instructions) for s in services]
        menu = self._contents.of(catalog, edition)
        if menu is None:
            tools = tools_by_server(services, catalog.offers["tools"])
            told = await in_slices(abouts(catalog.offers["tools"], self.settings.menu_budget))
            menu = self._contents.keep(catalog, Menu(services, tools, told), edition)
        return catalog, menu

    async def call_tool(self, view: View, call: Call) -> Json:
        name = call.params.get("name")
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "the name of the tool must be a string")
        view = for_models(view)
        try:
            answer = await self.answer(view, call, name, _object(call.params.get("arguments")))
            if answer is None:
                raise await self.guide.no_tool(
                    await view.prepare(), name
                )  # a server that starts may have it (LIF-1)
        except Mistake as mistake:
            return self.failure(await self.guide.explained(view, mistake))
        except (Unavailable, Denied) as error:
            return self.failure(error.message)
        return answer

    # Answers
    # ----------------------------------------------------------------------------------------------

    def reply(self, text: str, structured: Json) -> Json:
        """An answer of our own, in both forms (SUR-7)."""
        result: Json = {"content": [said(text)]}
        if self.settings.common.structured:
            result["structuredContent"] = structured
        return result

    def failure(self, text: str) -> Json:
        return {**self.reply(text, {"error": text}), "isError": True}

    async def bounded(
        self,
        call: Call,
        result: Json,
        how: Rendering | None = None,
        is_data: Callable[[], bool] | None = None,
    ) -> Json:
        """An answer that may be large. `is_data` says whether it is no file: asked only where that
        matters."""
        how = how or self.settings.common
        if is_plain(result, how.result_limit):
            return result
        if how.compact_json and has_lines(result) and not (is_data and is_data()):
            how = replace(how, compact_json=False)
        return await Shaper(
            how, self._kept, self._worker, owner_of(call.caller), self._go_on
        ).shaped(result)

    async def told(
        self, view: View, service: Service, offers: list[Offer], room: int | None = None
    ) -> Json:
        """What a server is and offers, within what is shown at once; of one with many tools the
        rest by name."""
        room = int(SIGNED * self.settings.common.result_limit) if room is None else room
        async with self._listing:
            return await describe_server(self, service, offers, room, view.starting())

    def finished(self, result: Json, how: Rendering) -> Json:
        """What a surface puts around the result of a tool."""
        return result

    def entry(self, value: object, error: str | None) -> Json:
        """One of several calls as programs are told of it."""
        return {"ok": True, "result": value} if error is None else {"ok": False, "error": error}

    def entries(self, entries: list[Json], failed: int) -> Json:
        """All of them."""
        return {"results": entries}

    # Tools of servers
    # ----------------------------------------------------------------------------------------------

    async def execute(self, view: View, call: Call, arguments: Json) -> Json:
        """The call tool: one call, or several."""
        if arguments.get("calls") is not None:
            self.only(arguments, "calls", "continue", *self.naming, "arguments")
            return await Batch(self, view, call, asked_for(arguments)).run()
        self.only(arguments, *self.naming, "arguments", "calls", "continue")
        offer = await self.target(view, arguments)
        return await self.run(view, call, offer, arguments.get("arguments"))

    async def run(self, view: View, call: Call, offer: Offer, arguments: object) -> Json:
        """Call a server's tool, or our own."""
        made = await self.called(view, call, offer, arguments)
        if made.result.get("resultType") == "input_required":
            return made.result
        how = self.settings.of(offer.server)
        shown = self.finished(await self.shown(call, offer, made, how), how)
        return _noted(shown, made.repairs)

    async def called(self, view: View, call: Call, offer: Offer, arguments: object) -> Made:
        """Check the arguments, and make the call."""
        checked = self._checker.check(offer.definition.get("inputSchema"), arguments)
        if checked.problems:
            raise Mistake(
                f"{'; '.join(checked.problems)}\n{cut(self.signature(offer), LONGEST_SIGNATURE)}"
            )
        if offer is READER:
            result = await view.own(READER.name, call, lambda: self._read(call, checked.arguments))
        else:
            params = {**call.params, "name": offer.name, "arguments": checked.arguments}
            result = await view.call(offer, call, params)
        return Made(result, checked.arguments, checked.repairs)

    async def shown(self, call: Call, offer: Offer, made: Made, how: Rendering) -> Json:
        """A tool's result as this surface shows it. What was read from a kept one fits already."""
        if offer is READER and how.result_limit >= self.settings.common.result_limit:
            return made.result
        shown = await self.bounded(
            call, made.result, how, lambda: not reads_files(offer, made.arguments)
        )
        if (heard := self._lasting.on_shaped) is not None:
            heard(made.result, shown)
        return shown

    async def _read(self, call: Call, arguments: Json) -> Json:
        how = self.settings.common
        owner = owner_of(call.caller)
        kept = await self._kept.find(owner, str(arguments.get("handle")))
        if kept is None:
            raise Mistake(
                "This handle is not known: results are kept for 15 minutes. Call the tool again."
            )
        try:
            page = await self._worker.read(owner, kept, arguments, how)
        except reading.BadReading as error:
            raise Mistake(str(error)) from None
        result: Json = {"content": [said(page.text)]}
        if how.structured and page.value is not NOT_JSON and codec.is_writable(page.value):
            result["structuredContent"] = (
                page.value if is_object(page.value) else {"result": page.value}
            )
        return result

    def _go_on(self, handle: str, begins: Preview) -> str:
        by_offset = self.settings.common.result_limit >= reading.ROOMY
        return closing(
            handle, begins, lambda given: self.how_to_call(READER, given), by_offset=by_offset
        )

    def signature(self, offer: Offer) -> str:
        known = self._signatures.get(id(offer))
        if known is not None:
            return known[1]
        how = self.settings.of(offer.server)
        name, schema = one_line(self.spelled(offer)), offer.definition.get("inputSchema")
        writer = schema_writer(how.schema_format, how.max_description_len)
        text = writer.signature(name, schema, notes_of(offer) if writer.takes_notes else NO_NOTES)
        self._signed += len(text)
        if self._signed > REMEMBERED:
            self._signatures.clear()
            self._signed = len(text)
        self._signatures[id(offer)] = (offer, text)
        return text

    # Finding what is meant
    # -----------------------------------------------------------------------------------------

    def service(self, view: View, name: str, tool: str = "") -> Service:
        """`tool`: what is wanted of it."""
        service = view.service(name)
        if service is None:
            names = [service.name for service in view.services()]
            meant = (name, f"{name}.{tool}") if tool else (name,)
            raise Unknown(f"Unknown server {quoted(name)}.", *meant, among=names, noun="servers")
        return service

    async def tool(self, view: View, server: str, tool: str) -> Offer:
        offer = view.catalog.native("tools", server, tool)
        if offer is not None:
            return offer
        if server == BUILT_IN:
            if tool == READER.name:
                return READER
            raise Unknown(f"The built-in server has one tool, {quoted(READER.name)}.", tool)
        self.service(view, server, tool)
        offer = await view.pick(server, tool) or _public_on(view.catalog, server, tool)
        if offer is None:
            service = self.service(view, server)
            if service.last_error is not None and view.catalog.count(server, "tools") == 0:
                raise Mistake(f"Server {quoted(server)} is {service.status}: {service.reason}")
            names = [offer.name for offer in view.catalog.offers["tools"] if offer.server == server]
            said = f"Unknown tool {quoted(tool)} of server {quoted(server)}."
            raise Unknown(said, tool, f"{server}.{tool}", among=names, server=server)
        return offer

    async def dotted(self, view: View, method: str) -> Offer | None:
        """The tool meant by `server.tool`, split after the longest known server name: both may hold
        dots."""
        at = method.rfind(".", 0, LONGEST_NAME)
        while at > 0:
            server = method[:at]
            if server == BUILT_IN or view.service(server) is not None:
                return await self.tool(view, server, method[at + 1 :])
            at = method.rfind(".", 0, at)
        return None

    def text(self, arguments: Json, name: str, *, needed: bool = True) -> str:
        """One string among a meta-tool's own arguments; an optional one that is absent is empty."""
        value: Any = arguments.get(name)
        if isinstance(value, str) and (value.strip() or not needed):
            return value.strip()
        if value is None and not needed:
            return ""
        if value == "":
            raise Mistake(f"{name} must not be empty")
        raise Mistake(
            f"{name} must be a string{'' if value is None else f', not {cut(_json(value), 60)}'}"
        )

    def only(self, arguments: Json, *names: str) -> None:
        """A misspelt argument of a meta-tool is not passed over in silence."""
        for name in arguments:
            if name not in names:
                said = f"Unknown argument {quoted(name)}."
                if "arguments" in names and name in NAMING:
                    meant = [
                        value
                        for key in NAMING
                        if isinstance(value := arguments.get(key), str) and value
                    ]
                    raise Unknown(said, ".".join(meant), *meant[::-1]) if meant else Mistake(said)
                hint = nearest(name, names, "arguments")
                if "arguments" in names and "arguments" not in arguments:
                    hint = 'What the tool itself takes goes into "arguments", an object.'
                raise Mistake(f"{said} {hint}")


def _public_on(catalog: Catalog, server: str, tool: str) -> Offer | None:
    """A model may have taken the public name from another surface."""
    offer = catalog.find("tools", tool)
    return offer if offer is not None and offer.server == server else None


def _object(arguments: object) -> Json:
    if arguments is None:
        return {}
    if isinstance(arguments, dict):
        return cast(Json, arguments)
    raise Mistake(f"arguments must be an object, not {cut(_json(arguments), 60)}")


def _noted(shown: Json, repairs: Sequence[str]) -> Json:
    if not repairs or not isinstance(shown.get("content"), list):
        return shown
    return {**shown, "content": [*shown["content"], said(f"Note: {'; '.join(repairs)}")]}


def _json(value: object) -> str:
    try:
        return codec.dump(value).decode()
    except codec.Unencodable:
        return type(value).__name__
