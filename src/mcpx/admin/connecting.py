"""How client programs are connected to this gateway, as it is found now."""

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from mcpx.admin.desk import About, Desk
from mcpx.admin.errors import ApiError
from mcpx.admin.people import People
from mcpx.admin.shapes.watching import ClientProgram, ClientPrograms, Snippet
from mcpx.admin.watched import Program, Programs
from mcpx.admin.wording import plain


def programs(desk: Desk, people: People, profile: str | None) -> ClientPrograms:
    config, about = desk.gateway.generation.config, desk.about()
    names = [known.name for known in config.profiles]
    if profile is not None and profile not in names:
        raise ApiError(404, None, f"there is no profile {plain(profile)!r}", "query.profile")
    url = about.url
    if url is not None and profile is not None:
        url = f"{url.removesuffix('/mcp')}/p/{quote(profile, safe='')}/mcp"
    came = people.names()
    made: Programs = desk.programs or _none
    found = made(
        url=url, command=command_line(about, profile), token=config.server.auth is not None
    )
    return ClientPrograms(
        clients=[
            ClientProgram(
                id=program.id,
                name=program.name,
                transport=program.transport,
                why=program.why,
                snippets=[
                    Snippet(
                        label=each.label,
                        language=each.language,
                        text=plain(each.text),
                        path=each.path,
                    )
                    for each in program.snippets
                ],
                deeplink=program.deeplink,
                notes=list(program.notes),
                seen=any(map(program.is_called, came)),
            )
            for program in found
        ],
        url=url,
        profiles=names,
    )


def _none(*, url: str | None, command: Sequence[str], token: bool) -> Iterable[Program]:
    return ()


def command_line(about: About, profile: str | None) -> list[str]:
    """What starts a gateway with this configuration over stdio, whatever the folder it is started
    in."""
    words = list(about.launcher)
    if about.config is not None:
        words.append(str(about.config.absolute()))
    words += ["--transport", "stdio"]
    if about.env is not None:
        words += ["--env", about.env]
    return words if profile is None else [*words, "--profile", profile]
