"""What several routes share: names in paths, the parameters of a change, and how a change is made.

Every write goes through `write`: it needs the `ETag` of the configuration that it changes (428), is
refused if that configuration has changed (412), only reports its effect with `dry_run`, and reports
mistakes with their places (422).
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field

from mcpx.admin.api import BODY, HEADER, ApiRequest, Router
from mcpx.admin.desk import Desk
from mcpx.admin.door import Objection
from mcpx.admin.errors import ApiError, moment, quoted
from mcpx.admin.shapes.common import (
    ONE_LINE,
    Entry,
    Place,
    PlanTold,
    Preview,
    Problem,
    Toggle,
    Written,
)
from mcpx.config import Config, Plan, Refused
from mcpx.config.edits import Change as Edits
from mcpx.config.edits import EditError, NewText, PutEntry, RemoveEntry, SetFields
from mcpx.config.emit import Manner, item_of
from mcpx.config.problems import Told, nearest
from mcpx.config.written import Entry as Found
from mcpx.config.written import EntrySection
from mcpx.config.written import Written as Files
from mcpx.core.store import Committed, Stale, Unwritable, Via
from mcpx.core.store import Preview as Seen
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

Name = Annotated[str, Field(min_length=1, max_length=200)]
EntryBody = Annotated[Entry, BODY]
Text = Annotated[str | None, Field(max_length=200)]
Profile = Annotated[
    str | None, Field(max_length=200, description="Through which view; absent: everything.")
]

WRITES: Final = (404, 409, 412, 428)
"""Statuses of errors of any write."""
TRIALS: Final = (404, 408, 409)
"""Statuses of errors of a trial."""


@dataclass(frozen=True, slots=True)
class Change:
    """The parameters of a write."""

    if_match: Annotated[str | None, HEADER, Field(max_length=500)] = None
    """The `ETag` of the configuration the change was made to; `*`: whatever it is."""
    message: Annotated[str, Field(max_length=500, pattern=ONE_LINE)] = ""
    """For the history."""
    dry_run: bool = False
    """Only tell what it would do: the answer is a preview."""
    force: bool = False
    """Also if it shuts out whoever asks (409 `would_lock_you_out`)."""
    x_mcpx_via: Annotated[str, HEADER, Field(pattern="^(ui|api|cli)$")] = "api"
    """Where it comes from."""
    x_mcpx_author: Annotated[str, HEADER, Field(max_length=100, pattern=ONE_LINE)] = ""
    """Who made it, for the history."""


# Reading
# --------------------------------------------------------------------------------------------------


async def look(request: ApiRequest) -> Files:
    """The configuration as it is written. The response carries its `ETag`."""
    written = await request.desk.store.look()
    await prepare(written, request)
    return written


async def prepare(written: Files, request: ApiRequest) -> None:
    """Parse all entries in a thread: hundreds of them take a while."""
    await asyncio.to_thread(lambda: [written.entries(section) for section in NOUNS])
    request.headers["etag"] = quoted(written.etag)


# Writing
# --------------------------------------------------------------------------------------------------


def add_entry_routes(
    router: Router,
    path: str,
    section: EntrySection,
    noun: str,
    *,
    documented: Sequence[str],
    check_removal: Callable[[Files, str], None] | None = None,
) -> None:
    """Routes that add, replace, remove, and toggle the entries of a section.

    `documented` has their descriptions; without the last one, entries cannot be toggled.
    `check_removal` raises ApiError for an entry that has to stay.
    """

    async def add(request: ApiRequest, entry: EntryBody, change: Change) -> Written | Preview:
        return await write(request, change, putting(section, entry))

    async def replace(
        request: ApiRequest, name: Name, entry: EntryBody, change: Change
    ) -> Written | Preview:
        return await write(request, change, putting(section, entry, name))

    async def remove(request: ApiRequest, name: Name, change: Change) -> Written | Preview:
        if check_removal is not None:
            check_removal(await request.desk.store.look(), name)
        return await write(request, change, RemoveEntry(section, name))

    async def switch(
        request: ApiRequest, name: Name, change: Change, toggle: Toggle | None = None
    ) -> Written | Preview:
        enabled = None
        if toggle is not None:
            enabled = toggle.enabled
        if enabled is None:
            entry = (await request.desk.store.look()).entry(section, name)
            enabled = entry is not None and entry.value.get("enabled") is False
        return await write(request, change, SetFields(section, name, {"enabled": enabled}))

    one = f"{path}/{{name}}"
    routes = [
        ("POST", path, 201, add, "add"),
        ("PUT", one, 200, replace, "change"),
        ("DELETE", one, 200, remove, "remove"),
        ("PATCH", f"{one}/toggle", 200, switch, "toggle"),
    ]
    for (method, place, status, handler, verb), text in zip(routes, documented, strict=False):
        handler.__name__ = f"{verb}_{noun}"
        handler.__doc__ = text
        router.add(method, place, *WRITES, status=status)(handler)


def putting(section: EntrySection, entry: dict[str, Any], name: str | None = None) -> PutEntry:
    own = entry.get("name", name)
    if not isinstance(own, str) or not own:
        hint = 'put `"name": "…"` into the entry'
        raise ApiError(422, "invalid", f"a {NOUNS[section]} has a name", "name", hint)
    return PutEntry(section, name or own, {**entry, "name": own}, create=name is None)


async def write(
    request: ApiRequest, change: Change, edit: Edits, message: str = ""
) -> Written | Preview:
    """Make a change, or report its effect. `message` takes precedence over that of `change`."""
    desk = request.desk
    if change.dry_run:
        return await preview(request, edit, change.if_match)
    if change.if_match is None:
        hint = "read the configuration first, and send the ETag of that answer as If-Match"
        told = "a change needs If-Match: what it was made to"
        raise ApiError(428, None, told, "header.if-match", hint)

    def agree(config: Config) -> None:
        """Refuse a configuration that shuts out the sender, unless that is intended."""
        found = _objection(request, config)
        if found is not None and found.shuts_out and not change.force:
            hint = "send it with ?force=true if that is meant"
            raise ApiError(409, "would_lock_you_out", found.message, found.path, hint)

    try:
        done = await desk.store.commit(
            edit,
            if_match=await _expected(desk, change.if_match),
            author=change.x_mcpx_author,
            via=cast(Via, change.x_mcpx_via),
            message=message or change.message,
            agree=agree,
        )
    except (Stale, Unwritable, EditError, ConfigError) as error:
        raise await refusal(desk, error, edit) from None
    request.headers["etag"] = quoted(done.etag)
    return _written(done)


def _objection(request: ApiRequest, config: Config) -> Objection | None:
    return request.door.objection(request.entry.request, config)


async def imagine(desk: Desk, edit: PutEntry) -> Config:
    """The configuration after a change. Nothing is written."""
    try:
        return await desk.store.imagine(edit)
    except (EditError, ConfigError) as error:
        raise await refusal(desk, error, edit) from None


async def _expected(desk: Desk, if_match: str) -> str | None:
    """The etag that the store must have; of several, the current one. None: any."""
    if if_match.strip() == "*":
        return None
    tags = re.findall(r'(?<!W/)"([^"]*)"', if_match) or [if_match.strip()]
    if len(tags) > 1:
        now = (await desk.store.look()).etag
        if now in tags:
            return now
    return tags[0]


async def preview(request: ApiRequest, edit: Edits, if_match: str | None = None) -> Preview:
    """The effect of a change. Nothing is changed."""
    desk = request.desk
    try:
        seen = await desk.store.preview(edit)
        if if_match is not None and await _expected(desk, if_match) not in (None, seen.etag):
            raise Stale(seen.etag)
    except (Stale, EditError, ConfigError) as error:
        raise await refusal(desk, error, edit) from None
    request.status = 200
    request.headers["etag"] = quoted(seen.etag)
    told = _previewed(seen, await _index_of(desk, edit))
    found = seen.config and _objection(request, seen.config)
    if found is not None:
        told.problems.append(Problem(message=found.message, path=found.path, severity="warning"))
    return told


def _previewed(seen: Seen, at: "_Spot | None") -> Preview:
    told = Preview(ok=seen.ok, text="", file="", diff="".join(each.diff for each in seen.files))
    if seen.files:
        told.text, told.file = seen.files[0].text, str(seen.files[0].path)
    if seen.plan is not None:
        told.plan = plan_told(seen.plan)
    told.problems = [problem_of(each, at) for each in seen.told]
    told.problems += [Problem(message=line, severity="warning") for line in seen.warnings]
    return told


def _written(done: Committed) -> Written:
    told = Written(
        revision=done.revision.number,
        etag=quoted(done.etag),
        file=str(next(iter(done.files), "")),
        plan=PlanTold(summary=done.error),
        warnings=[*filter(None, [done.error]), *done.warnings],
    )
    if done.plan is not None:
        told.plan = plan_told(done.plan)
    return told


def plan_told(plan: Plan) -> PlanTold:
    names = PlanTold.model_fields.keys() - {"summary", "said"}
    lists: dict[str, Any] = {name: list(getattr(plan, name)) for name in names}
    return PlanTold(summary=str(plan), **lists)


# Refusing
# --------------------------------------------------------------------------------------------------

STATUSES: dict[str, Literal[404, 409, 422]] = {
    "not_found": 404,
    "exists": 409,
    "invalid": 422,
    "not_possible": 409,
}


async def refusal(desk: Desk, error: Exception, edit: Edits | None = None) -> ApiError:
    """What a change that was not made is answered with."""
    match error:
        case Stale():
            hint = "read it again, look at what is different, and save once more"
            told = "the configuration was changed by somebody else meanwhile"
            headers = {"etag": quoted(error.etag)}
            return ApiError(412, "stale", told, hint=hint, headers=headers)
        case Unwritable():
            return ApiError(409, "unwritable", str(error))
        case EditError():
            if error.code == "not_found" and isinstance(edit, PutEntry | SetFields | RemoveEntry):
                if edit.section == "mcp_servers" and edit.name in desk.gateway.generation.upstreams:
                    told = f"{edit.name} stands in no file, so nothing can be changed about it"
                    hint = "it goes with the first server of your own"
                    return ApiError(409, "not_possible", told, hint=hint)
                names = [each.name for each in (await desk.store.look()).entries(edit.section)]
                return unknown(edit.section, edit.name, names)
            at, path = await _index_of(desk, edit), error.path
            if at is not None:  # The path of an entry names no other entry.
                path = _relative(re.sub(rf"^{at.section}\[\d+\]\.?", "", path), at)
            if error.code == "exists":
                path = "name"
            status = STATUSES[error.code]
            return ApiError(status, error.code, error.message, path or None, error.hint or None)
        case ConfigError():
            before = await _there_before(desk, error, edit)
            return before or invalid(error, await _index_of(desk, edit))
        case _:
            raise error


async def _there_before(desk: Desk, error: ConfigError, edit: Edits | None) -> ApiError | None:
    """A mistake of the file itself, which whoever changes another entry cannot know of."""
    if not isinstance(error, Refused) or not error.told or isinstance(edit, NewText):
        return None
    first = error.told[0]
    there = (await desk.store.preview([])).told
    if not any((each.message, each.path) == (first.message, first.path) for each in there):
        return None
    where = "the config file"
    if first.file and first.line:
        where = f"{os.path.basename(first.file)}:{first.line}"
    told = f"nothing was written: {where} has a mistake already ({first.message})"
    advice = "mend it in the file or under Config, then try again"
    hint = "; ".join(filter(None, (first.hint, advice)))
    errors = [problem_of(each, None).model_dump(exclude_none=True) for each in error.told]
    return ApiError(422, "invalid_config", told, first.path or None, hint, errors=errors)


def invalid(error: ConfigError, at: "_Spot | None" = None) -> ApiError:
    problems = [Problem(message=line.removeprefix("error: ")) for line in error.problems]
    if isinstance(error, Refused) and error.told:
        problems = [problem_of(each, at) for each in error.told]
    problems = problems or [Problem(message="the configuration is not valid")]
    first = problems[0]
    errors = [each.model_dump(exclude_none=True) for each in problems]
    return ApiError(422, "invalid_config", first.message, first.path, first.hint, errors=errors)


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where the entry that is changed stands."""

    section: EntrySection
    index: int
    name: str


async def _index_of(desk: Desk, edit: Edits | None) -> _Spot | None:
    if not isinstance(edit, PutEntry | SetFields):
        return None
    names = [each.name for each in (await desk.store.look()).entries(edit.section)]
    index = names.index(edit.name) if edit.name in names else len(names)
    own = edit.entry.get("name") if isinstance(edit, PutEntry) else edit.name
    return _Spot(edit.section, index, str(own))


def problem_of(told: Told, at: _Spot | None) -> Problem:
    return Problem(
        message=told.message,
        path=_relative(told.path, at) or None,
        file=told.file or None,
        line=told.line,
        column=told.column,
        hint=told.hint or None,
    )


def _relative(path: str, at: _Spot | None) -> str:
    """From the entry down, if it stands there; in a client's file entries stand below their
    names."""
    if at is None:
        return path
    for begin in (
        f"{at.section}[{at.index}]",
        f"mcpServers.{at.name}",
        f"servers.{at.name}",
        f"{at.section}.{at.name}",
    ):
        if path == begin:
            return ""
        if path.startswith(f"{begin}."):
            return path[len(begin) + 1 :]
    return path.removeprefix(f"{at.section}.")


NOUNS: dict[EntrySection, str] = {
    "mcp_servers": "server",
    "commands": "command",
    "auth_configs": "auth config",
    "profiles": "profile",
}

NOT_TAKEN_UP = "stands in the file, but is not taken up: reload the configuration"


def place_of(entry: Found | None) -> Place | None:
    return None if entry is None else Place(file=str(entry.file), line=entry.line)


def entry_of(written: Files, section: EntrySection, name: str) -> Found:
    """Raises an ApiError that suggests a similar name."""
    found = written.entry(section, name)
    if found is None:
        names = [entry.name for entry in written.entries(section)]
        raise unknown(section, name, names)
    return found


def unknown(section: EntrySection, name: str, names: list[str]) -> ApiError:
    noun = NOUNS[section]
    hint = f"there is no {noun} yet"
    if meant := nearest(name, names):
        hint = f"did you mean {meant!r}?"
    elif names:
        hint = f"there is {', '.join(names[:10])}"
    return ApiError(404, "not_found", f"there is no {noun} named {name[:100]!r}", "name", hint)


def yaml_of(entry: Json) -> str:
    """As it would stand in a file, below the key of its section."""
    return f"{item_of(entry, '', Manner('yaml'))}\n"


def figures_of(desk: Desk, server: str, tool: str | None = None) -> Json:
    """How calls of it went, as rows have it."""
    counted = desk.statistics
    if counted is None:
        return {}
    found = counted.server(server) if tool is None else counted.tool(server, tool)
    if found is None:
        return {}
    return {**found._asdict(), "last_call": moment(found.last_call or None)}
