"""The configuration over the admin API: text, mistakes, history, and entries of other files."""

import asyncio
import os
from collections.abc import Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from mcpx.admin import pasting
from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, quoted, told_at
from mcpx.admin.routes import given
from mcpx.admin.routes.given import WRITES, Change
from mcpx.admin.shapes.common import Preview, Problem, Written
from mcpx.admin.shapes.config import (
    Checked,
    ConfigFile,
    ConfigImport,
    ConfigText,
    ConfigTold,
    DiffTold,
    DiffWanted,
    Exported,
    History,
    LastReload,
    NewEntries,
    ReloadResult,
    RevisionTold,
    Rollback,
)
from mcpx.admin.shapes.servers import Pasted, PasteResult
from mcpx.admin.watching import revision_row
from mcpx.config.edits import Edit, EditError, NewText, PutEntry, Restore
from mcpx.config.entries import RESERVED
from mcpx.config.json_schema import config_schema as made_schema
from mcpx.config.masking import without_texts
from mcpx.config.recognising import Names, Section, read
from mcpx.config.source import Source
from mcpx.config.written import Document
from mcpx.config.written import Written as Files
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError
from mcpx.model.redaction import is_worth_hiding

MOST = 200
"""Entries that are taken over at a time: each is a change of its own to the text."""


async def _tell(request: ApiRequest) -> ConfigTold:
    desk, written = request.desk, await given.look(request)
    config, status = desk.gateway.generation.config, as_object(desk.store.status()["last_reload"])
    path = config.path
    # The text of a file with mistakes may have the secrets of the running configuration in unusual
    # places.
    hidden = (
        [secret for secret in config.secrets if is_worth_hiding(secret)] if written.told else []
    )
    files = await asyncio.to_thread(
        lambda: [_file(document, hidden) for document in written.documents]
    )
    return ConfigTold(
        path=None if path is None else str(path),
        would_be=None
        if desk.store.files.destination is None
        else str(desk.store.files.destination),
        files=files,
        etag=quoted(written.etag),
        revision=desk.store.revision,
        loaded=_loaded(desk, status),
        dialect=config.dialect,
        mode=config.mode,
        warnings=list(config.warnings),
        problems=await _mistakes(desk, written, refused=status.get("ok") is False),
        last_reload=_last_reload(status),
    )


async def _mistakes(desk: Desk, written: Files, *, refused: bool) -> list[Problem]:
    """Of the files as they are; `refused`: they were read and judged, and not taken up."""
    if not refused or written.told or not written.documents:
        return [given.problem_of(told, None) for told in written.told]
    seen = await desk.store.preview([])  # no change: what is wrong with it as it is
    return [given.problem_of(told, None) for told in seen.told]


def _loaded(desk: Desk, status: Json) -> str:
    """When what runs was read: a file that was refused since does not count."""
    if status.get("ok"):
        return str(status["at"])
    latest = desk.store.revisions()[:1]
    return latest[0].at if latest else told_at(desk.about().started)


def _last_reload(status: Json) -> LastReload | None:
    if not status:
        return None
    problems = [str(problem) for problem in as_list(status.get("problems"))]
    plan = status.get("plan")
    return LastReload(
        at=str(status["at"]), ok=status["ok"] is True, plan=plan and str(plan), problems=problems
    )


def _file(document: Document, hidden: Collection[str]) -> ConfigFile:
    why_not = None
    if not document.editable:
        why_not = (
            "TOML is read, not written: edit it by hand, or start mcpx with a YAML or JSON file"
        )
    elif not os.access(document.path, os.W_OK) or not os.access(document.path.parent, os.W_OK):
        why_not = "this user may not write it"
    return ConfigFile(
        path=str(document.path),
        text=without_texts(document.text, hidden),
        format=document.format,
        writable=why_not is None,
        why_not=why_not,
    )


# Texts
# --------------------------------------------------------------------------------------------------


async def _new_text(desk: Desk, text: ConfigText) -> NewText:
    """Raises a 404 for a file that is none of the configuration's."""
    if text.file is None:
        return NewText(text.text)
    documents = (await desk.store.look()).documents
    for document in documents:
        if text.file in (str(document.path), document.name):
            return NewText(text.text, document.path)
    hint = f"there is {', '.join(str(document.path) for document in documents)}"[:500]
    raise ApiError(404, None, "this is no file of the configuration", "file", hint)


async def _check(desk: Desk, text: ConfigText) -> Checked:
    edit = await _new_text(desk, text)
    try:
        seen = await desk.store.preview(edit)
    except EditError as error:
        problem = Problem(message=error.message, path=error.path or None, hint=error.hint or None)
        return Checked(ok=False, problems=[problem])
    told = [given.problem_of(each, None) for each in seen.told]
    warnings = [Problem(message=line, path=None, severity="warning") for line in seen.warnings]
    return Checked(ok=seen.ok, problems=[*told, *warnings])


async def _reload(request: ApiRequest) -> ReloadResult:
    desk = request.desk
    answer = await desk.store.asked(via="api")
    if "error" in answer:
        raise ApiError(409, "not_possible", str(answer["error"]))
    written = await given.look(request)
    problems = [] if answer["ok"] else await _mistakes(desk, written, refused=True)
    return ReloadResult(
        ok=answer["ok"],
        changed=answer.get("changed") is True,
        revision=desk.store.revision,
        summary=str(answer.get("plan") or ""),
        problems=problems,
    )


# History
# --------------------------------------------------------------------------------------------------


async def _one_revision(desk: Desk, number: int) -> RevisionTold:
    revision = next((each for each in desk.store.revisions() if each.number == number), None)
    if revision is None:
        hint = "the history lists those there are"
        raise ApiError(404, None, "there is no such revision", "path.number", hint)
    try:
        texts = await desk.store.texts.revision_text(number)
    except (EditError, ConfigError) as error:
        raise await given.refusal(desk, error) from None
    files = [_kept(path, text) for path, text in texts.items()]
    return RevisionTold(**revision_row(desk, revision).model_dump(), files=files)


def _kept(path: str, text: str) -> ConfigFile:
    source = Source(Path(path), text)
    source.text = text
    return ConfigFile(
        path=path, text=text, format=source.form, writable=False, why_not="an earlier revision"
    )


# Taking over
# --------------------------------------------------------------------------------------------------


async def _take_over(
    request: ApiRequest, wanted: ConfigImport, change: Change
) -> Written | Preview:
    """Servers of another file, with the auth configs they refer to; without `pick` only what it
    would do."""
    desk = request.desk
    try:
        found = await asyncio.to_thread(read, wanted.text)
    except (EditError, ConfigError) as error:
        raise await given.refusal(desk, error) from None
    entries = _picked(_without(found.entries, set(wanted.leave)), wanted.pick)
    if len(entries) > MOST:
        hint = "pick some of them, and the rest afterwards"
        raise ApiError(422, "too_many", f"more than {MOST} entries at a time", "pick", hint)
    edits = _edits(entries, await desk.store.look(), wanted.on_conflict)
    dry = change.dry_run or wanted.pick is None
    change = replace(change, dry_run=dry)
    return await given.write(request, change, edits, wanted.message)


def _auths(entry: Json) -> Iterator[tuple[Json, str]]:
    """The references to auth configs: the objects that contain them, and their names."""
    for place in (entry, entry.get("http")):
        auth = as_object(place).get("auth")
        name = as_object(auth).get("ref", auth)
        if isinstance(name, str):
            yield as_object(place), name


def _without(entries: Sequence[tuple[Section, Json]], left: set[str]) -> list[tuple[Section, Json]]:
    """Remove these auth configs, and the references to them."""
    kept = [each for each in entries if each[0] != "auth_configs" or each[1]["name"] not in left]
    kept = deepcopy(kept)
    for _, entry in kept:
        for place, name in list(_auths(entry)):
            if name in left:
                del place["auth"]
    return kept


def _picked(
    entries: Sequence[tuple[Section, Json]], pick: list[str] | None
) -> list[tuple[Section, Json]]:
    if pick is None:
        return list(entries)
    there = {entry["name"] for section, entry in entries if section != "auth_configs"}
    if unknown := [name for name in pick if name not in there]:
        hint = f"there is {', '.join(sorted(there))}"[:500]
        raise ApiError(422, None, f"there is no {unknown[0][:80]!r} in it", "pick", hint)
    chosen = [
        (section, entry)
        for section, entry in entries
        if section != "auth_configs" and entry["name"] in pick
    ]
    needed = {name for _, entry in chosen for _, name in _auths(entry)}
    return [
        each
        for each in entries
        if each in chosen or (each[0] == "auth_configs" and each[1]["name"] in needed)
    ]


def _edits(
    entries: Sequence[tuple[Section, Json]],
    written: Files,
    on_conflict: Literal["skip", "replace", "rename"],
) -> list[Edit]:
    taken = {section: [entry.name for entry in written.entries(section)] for section, _ in entries}
    free = {section: Names([*names, *RESERVED]) for section, names in taken.items()}
    renamed: dict[str, str] = {}
    edits: list[Edit] = []
    for section, entry in entries:  # auth configs first: others refer to them
        name = str(entry["name"])
        if name in taken[section]:
            if on_conflict == "skip":
                continue
            if on_conflict == "rename":
                own, name = name, free[section].free(name)
                if section == "auth_configs":
                    renamed[own] = name
        for place, auth in _auths(entry):
            if auth in renamed:
                place["auth"] = {"ref": renamed[auth]}
        edits.append(PutEntry(section, name, {**entry, "name": name}))
    return edits


router = Router("/api", "Configuration")


@router.get("/config")
async def show_config(request: ApiRequest) -> ConfigTold:
    """The configuration as text, secrets masked, and how it is."""
    return await _tell(request)


@router.post("/config", *WRITES)
async def write_config(request: ApiRequest, text: ConfigText, change: Change) -> Written | Preview:
    """Replace the text of a file."""
    edit = await _new_text(request.desk, text)
    return await given.write(request, change, edit, text.message)


@router.post("/config/validate", 404, 409)
async def validate_config(request: ApiRequest, text: ConfigText) -> Checked:
    """Every mistake of a text, with its place."""
    return await _check(request.desk, text)


@router.post("/config/plan", 404, 409)
async def plan_config(request: ApiRequest, text: ConfigText) -> Preview:
    """What a text would change; nothing is changed."""
    return await given.preview(request, await _new_text(request.desk, text))


@router.post("/config/reload", 409)
async def reload_config(request: ApiRequest) -> ReloadResult:
    """Read the file again, as `mcpx reload` does."""
    return await _reload(request)


@router.get("/config/history")
async def show_history(
    request: ApiRequest, limit: Annotated[int, Field(ge=1, le=1000)] = 50
) -> History:
    """Who changed what and when."""
    revisions = request.desk.store.revisions()[:limit]
    return History(revisions=[revision_row(request.desk, each) for each in revisions])


@router.get("/config/history/{number}", 404)
async def show_revision(
    request: ApiRequest, number: Annotated[int, Field(ge=0, le=10**8)]
) -> RevisionTold:
    """One revision, with its text, secrets masked."""
    return await _one_revision(request.desk, number)


@router.post("/config/diff", 404)
async def diff_config(request: ApiRequest, wanted: DiffWanted) -> DiffTold:
    """Between two revisions, or one and what is there now."""
    try:
        diff = await request.desk.store.texts.diff(wanted.before, wanted.after)
    except (EditError, ConfigError) as error:
        raise await given.refusal(request.desk, error) from None
    return DiffTold(diff=diff, same=not diff)


@router.post("/config/rollback", *WRITES)
async def roll_back(request: ApiRequest, wanted: Rollback, change: Change) -> Written | Preview:
    """Make an earlier revision the present one, as a new revision."""
    message = wanted.message or change.message or f"restored revision {wanted.revision}"
    return await given.write(request, change, Restore(wanted.revision), message)


@router.post("/config/import", *WRITES)
async def import_config(
    request: ApiRequest, wanted: ConfigImport, change: Change
) -> Written | Preview:
    """Take servers over from a client's file."""
    return await _take_over(request, wanted, change)


@router.post("/config/entries", *WRITES, status=201)
async def add_entries(request: ApiRequest, new: NewEntries, change: Change) -> Written | Preview:
    """Add servers, commands and auth configs together: all of them in one revision, or none."""
    edits = [given.putting(each.section, each.entry) for each in new.entries]
    return await given.write(request, change, edits)


@router.get("/config/export", 409)
async def export_config(
    request: ApiRequest, format: Literal["yaml", "mcp-json"] = "yaml"
) -> Exported:
    """To take elsewhere; secrets are left out."""
    try:
        made = await request.desk.store.texts.export("yaml" if format == "yaml" else "mcpServers")
    except (EditError, ConfigError) as error:
        raise await given.refusal(request.desk, error) from None
    return Exported(
        format=format,
        name=made.file_name,
        text=made.text,
        placeholders=list(made.variables),
        warnings=list(made.warnings),
    )


@router.get("/schema")
async def config_schema(request: ApiRequest) -> dict[str, Any]:
    """The JSON Schema of the configuration, for editors."""
    return await asyncio.to_thread(made_schema)  # It loads all plug-ins.


@router.post("/paste")
async def recognise(request: ApiRequest, pasted: Pasted) -> PasteResult:
    """What a pasted text is, and the entries it makes; nothing is saved."""
    return await pasting.recognise(request.desk, pasted.text)
