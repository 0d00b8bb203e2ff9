"""Profiles, policy, approvals and tokens."""

from typing import Any, Literal

from pydantic import Field

from mcpx.admin.shapes.common import Entry, Given, Place, Spoken, Told


class ProfileRow(Told):
    name: str
    path: str
    url: str | None = None
    """Over HTTP."""
    mode: str | None = None
    servers: int
    """That are seen through it."""
    tools: int
    tokens: list[str] | None = None
    entry: Entry
    source: Place | None = None


class Profiles(Told):
    profiles: list[ProfileRow]
    default: ProfileRow | None = None
    """What is seen without a profile."""


class RuleTold(Told):
    number: int
    effect: Literal["allow", "deny", "ask"]
    entry: Entry
    source: Place | None = None


class PolicyTold(Told):
    default: Literal["allow", "deny"]
    rules: list[RuleTold]
    entry: Entry


class PolicyGiven(Given):
    entry: Entry


class Question(Given):
    """Whether somebody could call something."""

    profile: str | None = None
    principal: str = "anonymous"
    tool: str
    """Public name or `server.tool`."""
    arguments: dict[str, Any] | None = None
    policy: Entry | None = None
    """Instead of the one that is saved."""


class Verdict(Spoken):
    SENTENCES = ("because", "outside")

    server: str
    tool: str
    name: str
    seen: bool
    effect: Literal["allow", "deny", "ask"]
    because: list[str]
    rule: int | None = None
    """The number of the rule that decided."""
    source: Place | None = None
    outside: str | None = None
    """Why this caller never comes there over HTTP, as far as tokens tell."""


class PendingCall(Spoken):
    SENTENCES = ("rule",)

    id: str
    server: str
    name: str
    principal: str
    profile: str | None = None
    client: str | None = None
    rule: str = ""
    reason: str = ""
    arguments: Any = None
    """Shortened, without secrets."""
    asked: str
    expires: str


class Mark(Spoken):
    """Something in a definition worth a second look."""

    SENTENCES = ("text",)

    kind: Literal["invisible", "phrase", "destructive", "open_world", "other"]
    where: str
    text: str


class HeldDefinition(Told):
    server: str
    kind: Literal["tool", "prompt", "instructions", "server"]
    name: str
    change: Literal["new", "changed", "gone"]
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    diff: str = ""
    """Unified, of the definitions as text; nothing in it is unseen."""
    marks: list[Mark] = []
    fingerprint: str = ""
    """Of exactly this definition, to approve it by; empty: a server."""
    for_some: bool = False
    """Only some clients are offered it."""


class Approvals(Told):
    calls: list[PendingCall]
    definitions: list[HeldDefinition]
    pending: int


class Decision(Given):
    allow: bool


class DefinitionDecision(Given):
    server: str
    names: list[str] | None = None
    """Of tools and prompts; absent: all that is held of the server."""
    fingerprints: list[str] | None = None
    """Exactly these, as they were shown: what has changed since is not approved."""


class TokenRow(Told):
    name: str
    profile: str | None = None
    expires: str | None = None
    created: str | None = None
    kept_in: Literal["state", "config"]
    expired: bool = False


class Tokens(Told):
    tokens: list[TokenRow]
    required: bool
    """Whether clients over HTTP must show one."""
    type: Literal["none", "bearer", "jwt"] = "none"


class NewToken(Given):
    name: str = Field(min_length=1, max_length=200)
    profile: str | None = None
    expires_in_days: float | None = Field(None, gt=0, le=36500)


class MadeToken(Told):
    name: str
    token: str
    """Shown this once."""
