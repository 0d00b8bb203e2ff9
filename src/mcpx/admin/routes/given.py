"""What several routes are given alike: names in paths, what comes with a change; and how a change
is made.

Promise: every write goes through `write`: it needs the `ETag` it was made to (428), is refused
where somebody else was quicker (412), only looks where it is asked to (`dry_run`), and tells
mistakes with their places (422).
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from fastapi import Depends, Header, Path, Query, Request
from pydantic import AfterValidator
from starlette.responses import Response

from mcpx.admin.asgi import SLASH
from mcpx.admin.desk import Desk, the_desk
from mcpx.admin.door import Objection, the_door, the_entry
from mcpx.admin.entries import NOUNS, unknown
from mcpx.admin.errors import ApiError, responses
from mcpx.admin.live import Live, the_live
from mcpx.admin.shapes.common import ONE_LINE, PlanTold, Preview, Problem, Written
from mcpx.admin.wording import quoted
from mcpx.config import Config, Plan, Refused
from mcpx.config.edits import Change as Edits
from mcpx.config.edits import EditError, NewText, PutEntry, RemoveEntry, SetFields
from mcpx.config.problems import Told
from mcpx.config.written import EntrySection
from mcpx.config.written import Written as Files
from mcpx.core.store import Committed, Stale, Unwritable, Via
from mcpx.core.store import Preview as Seen
from mcpx.model.errors import ConfigError

Objects = Callable[[Config], Objection | None]
"""What a configuration would do to whoever asks."""
AtDesk = Annotated[Desk, Depends(the_desk)]
AtLive = Annotated[Live, Depends(the_live)]
Name = Annotated[
    str, Path(min_length=1, max_length=200), AfterValidator(lambda name: name.replace(SLASH, "/"))
]

READS = responses(404)
"""What reading one of several may answer."""
WRITES = responses(404, 409, 412, 428)
"""What any write may answer."""
TRIALS = responses(404, 408, 409)
"""What trying something out may answer."""


@dataclass(frozen=True, slots=True)
class Change:
    """What comes with a write: against which state it was made, by whom, and whether it is meant
    yet."""

    if_match: str | None
    message: str
    dry_run: bool
    via: str
    author: str
    force: bool
    objection: Objects

    def agree(self, config: Config) -> None:
        """Raises ApiError where it would shut out whoever makes it, unless that is meant."""
        found = None if self.force else self.objection(config)
        if found is not None and found.shuts_out:
            hint = "send it with ?force=true if that is meant"
            raise ApiError(409, "would_lock_you_out", found.message, found.path, hint)


async def _objects(request: Request) -> Objects:
    door, entry = the_door(request), the_entry(request)
    return lambda config: door.objection(entry.request, config)


Objecting = Annotated[Objects, Depends(_objects)]


async def _change(
    objection: Objecting,
    if_match: Annotated[
        str | None,
        Header(
            description=(
                "The `ETag` of the configuration the change was made to; `*`: whatever it is."
            ),
            max_length=500,
        ),
    ] = None,
    message: Annotated[
        str, Query(max_length=500, pattern=ONE_LINE, description="For the history.")
    ] = "",
    dry_run: Annotated[
        bool, Query(description="Only tell what it would do: the answer is a preview.")
    ] = False,
    force: Annotated[
        bool, Query(description="Also if it shuts out whoever asks (409 `would_lock_you_out`).")
    ] = False,
    x_mcpx_via: Annotated[
        str, Header(pattern="^(ui|api|cli)$", description="Where it comes from.")
    ] = "api",
    x_mcpx_author: Annotated[
        str, Header(max_length=100, pattern=ONE_LINE, description="Who made it, for the history.")
    ] = "",
) -> Change:
    return Change(if_match, message, dry_run, x_mcpx_via, x_mcpx_author, force, objection)


Writing = Annotated[Change, Depends(_change)]


# Reading
# --------------------------------------------------------------------------------------------------


async def look(desk: Desk, response: Response) -> Files:
    """The configuration as it is written; the answer carries its `ETag`."""
    written = await desk.store.look()
    await prepare(written, response)
    return written


async def prepare(written: Files, response: Response) -> None:
    """Beside calls: hundreds of entries take their time the first time."""
    await asyncio.to_thread(lambda: [written.entries(section) for section in NOUNS])
    response.headers["ETag"] = quoted(written.etag)


# Writing
# --------------------------------------------------------------------------------------------------


async def put(
    desk: Desk,
    response: Response,
    given: Change,
    section: EntrySection,
    entry: dict[str, Any],
    name: str | None = None,
) -> Written | Preview:
    """Add an entry, or replace the one of that name."""
    return await write(desk, response, given, putting(section, entry, name))


def putting(section: EntrySection, entry: dict[str, Any], name: str | None = None) -> PutEntry:
    own = entry.get("name", name)
    if not isinstance(own, str) or not own:
        raise ApiError(
            422,
            "invalid",
            f"a {NOUNS[section]} has a name",
            "name",
            'put `"name": "…"` into the entry',
        )
    return PutEntry(section, name or own, {**entry, "name": own}, create=name is None)


async def remove(
    desk: Desk, response: Response, given: Change, section: EntrySection, name: str
) -> Written | Preview:
    return await write(desk, response, given, RemoveEntry(section, name))


async def toggle(
    desk: Desk,
    response: Response,
    given: Change,
    section: EntrySection,
    name: str,
    enabled: bool | None,
) -> Written | Preview:
    """Switch an entry on or off; None: the other one of the two."""
    if enabled is None:
        entry = (await desk.store.look()).entry(section, name)
        enabled = entry is not None and entry.value.get("enabled") is False
    return await write(desk, response, given, SetFields(section, name, {"enabled": enabled}))


async def write(desk: Desk, response: Response, given: Change, edit: Edits) -> Written | Preview:
    """Make a change, or tell what it would do."""
    if given.dry_run:
        return await preview(desk, response, edit, given.objection, given.if_match)
    if given.if_match is None:
        hint = "read the configuration first, and send the ETag of that answer as If-Match"
        raise ApiError(
            428, None, "a change needs If-Match: what it was made to", "header.if-match", hint
        )
    try:
        done = await desk.store.commit(
            edit,
            if_match=await _expected(desk, given.if_match),
            author=given.author,
            via=cast(Via, given.via),
            message=given.message,
            agree=given.agree,
        )
    except (Stale, Unwritable, EditError, ConfigError) as error:
        raise await refusal(desk, error, edit) from None
    response.headers["ETag"] = quoted(done.etag)
    return _written(done)


async def imagine(desk: Desk, edit: PutEntry) -> Config:
    """The configuration as it would be; nothing is written."""
    try:
        return await desk.store.imagine(edit)
    except (EditError, ConfigError) as error:
        raise await refusal(desk, error, edit) from None


async def _expected(desk: Desk, if_match: str) -> str | None:
    """What the store is to find: of several the one it has. None: whatever it is."""
    if if_match.strip() == "*":
        return None
    tags = re.findall(r'(?<!W/)"([^"]*)"', if_match) or [if_match.strip()]
    if len(tags) == 1:
        return tags[0]
    now = (await desk.store.look()).etag
    return now if now in tags else tags[0]


async def preview(
    desk: Desk, response: Response, edit: Edits, objection: Objects, if_match: str | None = None
) -> Preview:
    """What a change would do; nothing is changed."""
    try:
        seen = await desk.store.preview(edit)
        if if_match is not None and await _expected(desk, if_match) not in (None, seen.etag):
            raise Stale(seen.etag)
    except (Stale, EditError, ConfigError) as error:
        raise await refusal(desk, error, edit) from None
    response.status_code = 200
    response.headers["ETag"] = quoted(seen.etag)
    told = _previewed(seen, await _index_of(desk, edit))
    found = None if seen.config is None else objection(seen.config)
    if found is not None:
        told.problems.append(Problem(message=found.message, path=found.path, severity="warning"))
    return told


def _previewed(seen: Seen, at: "_Spot | None") -> Preview:
    first = seen.files[0] if seen.files else None
    told = [problem_of(each, at) for each in seen.told]
    return Preview(
        ok=seen.ok,
        text="" if first is None else first.text,
        file="" if first is None else str(first.path),
        diff="".join(each.diff for each in seen.files),
        plan=None if seen.plan is None else plan_told(seen.plan),
        problems=[
            *told,
            *(Problem(message=line, path=None, severity="warning") for line in seen.warnings),
        ],
    )


def _written(done: Committed) -> Written:
    failed = PlanTold(summary=done.error)
    return Written(
        revision=done.revision.number,
        etag=quoted(done.etag),
        file=str(done.files[0]) if done.files else "",
        plan=failed if done.plan is None else plan_told(done.plan),
        warnings=[*([done.error] if done.error else []), *done.warnings],
    )


def plan_told(plan: Plan) -> PlanTold:
    return PlanTold(
        summary=str(plan),
        kept=list(plan.kept),
        updated=list(plan.updated),
        started=list(plan.started),
        restarted=list(plan.restarted),
        stopped=list(plan.stopped),
        commands=[str(each) for each in plan.commands],
        settings=[str(each) for each in plan.settings],
        needs_restart=[str(each) for each in plan.needs_restart],
    )


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
            told, headers = (
                "the configuration was changed by somebody else meanwhile",
                {"ETag": quoted(error.etag)},
            )
            return ApiError(412, "stale", told, hint=hint, headers=headers)
        case Unwritable():
            return ApiError(409, "unwritable", str(error))
        case EditError():
            if error.code == "not_found" and isinstance(edit, PutEntry | SetFields | RemoveEntry):
                if edit.section == "mcp_servers" and edit.name in desk.gateway.generation.upstreams:
                    told = f"{edit.name} stands in no file, so nothing can be changed about it"
                    return ApiError(
                        409, "not_possible", told, hint="it goes with the first server of your own"
                    )
                names = [each.name for each in (await desk.store.look()).entries(edit.section)]
                return unknown(edit.section, edit.name, names)
            at = await _index_of(desk, edit)
            own = (
                error.path if at is None else re.sub(rf"^{at.section}\[\d+\]\.?", "", error.path)
            )  # it names no other
            path = "name" if error.code == "exists" else _relative(own, at) or None
            return ApiError(
                STATUSES[error.code], error.code, error.message, path, error.hint or None
            )
        case ConfigError():
            return await _there_before(desk, error, edit) or invalid(
                error, await _index_of(desk, edit)
            )
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
    where = (
        f"{os.path.basename(first.file)}:{first.line}"
        if first.file and first.line
        else "the config file"
    )
    told = f"nothing was written: {where} has a mistake already ({first.message})"
    hint = "; ".join(
        each for each in (first.hint, "mend it in the file or under Config, then try again") if each
    )
    errors = [problem_of(each, None).model_dump(exclude_none=True) for each in error.told]
    return ApiError(422, "invalid_config", told, first.path or None, hint, errors=errors)


def invalid(error: ConfigError, at: "_Spot | None" = None) -> ApiError:
    told: Sequence[Told] = error.told if isinstance(error, Refused) else ()
    problems = [problem_of(each, at) for each in told]
    problems = problems or [
        Problem(message=line.removeprefix("error: "), path=None) for line in error.problems
    ]
    first = (
        problems[0] if problems else Problem(message="the configuration is not valid", path=None)
    )
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
