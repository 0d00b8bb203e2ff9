"""What a server, or one of its tools, is: as text for a model, as raw definitions for a program."""

from collections.abc import Sequence
from typing import Protocol

from mcpx.model.call import Json, as_object
from mcpx.model.offer import Offer
from mcpx.model.slices import Pace
from mcpx.surfaces.large.preview import counted
from mcpx.surfaces.menu import INSTRUCTIONS, LONGEST_NAME
from mcpx.surfaces.phrases import cut, one_line
from mcpx.surfaces.view import Service


class Describer(Protocol):
    def reply(self, text: str, structured: Json) -> Json: ...

    def signature(self, offer: Offer) -> str: ...


def describe_tool(surface: Describer, offer: Offer) -> Json:
    """All there is to know of one tool."""
    about = offer.definition.get("description")
    text = surface.signature(offer)
    return surface.reply(f"{text}\n{about.strip()}" if isinstance(about, str) else text, raw(offer))


def how_many(tools: int, server: str, starting: Sequence[str]) -> str:
    """The number of a server's tools. None is not said of one that is starting and has not told yet (LIF-1)."""
    return "tools not known yet" if not tools and server in starting else counted(tools, "tool")


async def describe_server(
    surface: Describer, service: Service, offers: list[Offer], room: int, starting: Sequence[str] = ()
) -> Json:
    """A server and all its tools: signatures for `room` characters, then names."""
    about = cut(one_line(service.instructions or service.description), INSTRUCTIONS)
    count = how_many(len(offers), service.name, starting)
    lines = [f"{service.name} ({service.status}, {count}){f': {about}' if about else ''}"]
    if service.status == "disconnected" and service.reason:
        lines.append(f"It is down: {cut(one_line(service.reason), INSTRUCTIONS)}")
    pace = Pace()  # there may be thousands of them
    tools: list[Json] = []
    for offer in offers:
        await pace.step()
        tools.append(raw(offer))
        if room < 0:
            lines.append(f"- {cut(one_line(offer.name), LONGEST_NAME)}")
            continue
        said = one_line(offer.definition.get("description"))
        lines.append(f"- {surface.signature(offer)}{f': {said}' if said else ''}")
        room -= len(lines[-1])
    structured: Json = {
        "server": service.name,
        "description": service.description,
        "instructions": service.instructions,
        "status": service.status,
        "tools": tools,
    }
    return surface.reply("\n".join(lines), structured)


def raw(offer: Offer, key: str = "name") -> Json:
    """The definition as the server gave it, under the server's own name for it; `key` is where that stands."""
    definition = {**offer.definition, key: offer.name, "server": offer.server}
    meta = {key: value for key, value in as_object(definition.pop("_meta", None)).items() if key != "proxy"}
    return {**definition, "_meta": meta} if meta else definition
