"""The configuration as text, its mistakes, its history."""

from typing import Literal

from pydantic import Field

from mcpx.admin.shapes.common import Entry, Given, Message, PlanTold, Problem, Spoken, Told

Via = Literal["start", "file", "ui", "api", "cli", "signal"]


class ConfigFile(Spoken):
    SENTENCES = ("why_not",)

    path: str
    text: str
    """Secrets masked as `••••••••`; sent back like that they stay what they are."""
    format: Literal["yaml", "json", "toml"]
    writable: bool
    why_not: str | None = None


class LastReload(Spoken):
    SENTENCES = ("plan", "problems")

    at: str
    ok: bool
    plan: str | None = None
    problems: list[str] = []


class ConfigTold(Spoken):
    SENTENCES = ("warnings",)

    path: str | None = None
    """None: the built-in demo; the first change writes `would_be`."""
    would_be: str | None = None
    files: list[ConfigFile]
    etag: str
    revision: int
    loaded: str
    """When, RFC 3339."""
    dialect: str
    mode: str
    warnings: list[str] = []
    problems: list[Problem] = []
    """Of the file as it is now, if it was refused: the last good one runs."""
    last_reload: LastReload | None = None


class ConfigText(Given):
    text: str = Field(max_length=4_000_000)
    file: str | None = None
    """Absent: the main one."""
    message: Message = ""


class Checked(Told):
    ok: bool
    problems: list[Problem]


class RevisionRow(Spoken):
    SENTENCES = ("message", "plan")

    number: int
    at: str
    author: str = ""
    via: Via
    message: str = ""
    plan: str = ""
    restorable: bool = True


class History(Told):
    revisions: list[RevisionRow]
    """The latest first."""


class RevisionTold(RevisionRow):
    files: list[ConfigFile]


class DiffWanted(Given):
    before: int | None = Field(None, ge=0, le=10**8)
    """A revision; absent: what is there now."""
    after: int | None = Field(None, ge=0, le=10**8)
    """A revision; absent: what is there now."""


class DiffTold(Told):
    diff: str
    same: bool


class Rollback(Given):
    revision: int = Field(ge=0, le=10**8, strict=True)  # `true` is no number of a revision
    message: Message = ""


class ReloadResult(Spoken):
    SENTENCES = ("summary",)

    ok: bool
    changed: bool = False
    revision: int
    plan: PlanTold | None = None
    summary: str = ""
    problems: list[Problem] = []


class ConfigImport(Given):
    text: str = Field(max_length=4_000_000)
    pick: list[str] | None = None
    """Names of servers; absent: only tell what is there."""
    leave: list[str] = []
    """Names of auth configs to leave out; what refers to them comes without."""
    on_conflict: Literal["skip", "replace", "rename"] = "rename"
    message: Message = ""


class NewEntry(Given):
    section: Literal["mcp_servers", "commands", "auth_configs"]
    entry: Entry


class NewEntries(Given):
    entries: list[NewEntry] = Field(min_length=1, max_length=1_000)


class Exported(Spoken):
    SENTENCES = ("warnings",)

    format: Literal["yaml", "mcp-json"]
    name: str
    text: str
    placeholders: list[str] = []
    """Variables that stand in the place of secrets."""
    warnings: list[str] = []
    """What the format cannot say."""
