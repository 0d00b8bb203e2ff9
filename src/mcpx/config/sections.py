"""The sections of the configuration that stand on their own: the front, local commands, auth towards others.

The same promises as `schema`, which puts them together with the servers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mcpx.config.kinds import NOT_APPLIED, NOT_IN_FILE, AuthRef, Count, Moment, NonEmpty, Pause, Port, Seconds, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be used at a time; absent: as much as there is."""

    in_flight: Size | None = None
    """Calls at a time."""
    per_minute: Size | None = None
    """Calls a minute."""
    queue: Count | None = None
    """Calls that may wait for their turn; more are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits(Limits):
    """How much one client may use at a time, and all of them together."""

    sessions: Size | None = None
    """Sessions at a time, of all clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One bearer token a client may show."""

    name: str
    """Who it stands for in logs and policy."""
    token: NonEmpty = field(repr=False)
    """The token itself."""
    profile: str | None = field(default=None, metadata=NOT_APPLIED)
    """The view its bearer gets; absent: the one of the path."""
    expires: Moment | None = field(default=None, metadata=NOT_APPLIED)
    """Date, or date and time, from which it is refused; absent: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontAuth:
    """What clients must show."""

    type: Literal["bearer", "jwt"] = "bearer"
    """Tokens that stand here, or those an authorization server signs."""
    tokens: tuple[Token, ...] = ()
    """With `type: bearer`: tokens that are let in."""
    issuer: str | None = field(default=None, metadata=NOT_APPLIED)
    """With `type: jwt`: whose tokens are let in."""
    audience: str | None = field(default=None, metadata=NOT_APPLIED)
    """With `type: jwt`: whom they must be meant for; absent: this gateway's own address."""
    jwks_url: str | None = field(default=None, metadata=NOT_APPLIED)
    """With `type: jwt`: where the issuer's keys are; absent: where its metadata says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificate the front shows."""

    cert: str
    """File of the certificate chain."""
    key: str
    """File of its private key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontServer:
    """Where clients find the gateway over HTTP."""

    host: str = "127.0.0.1"
    """Address to bind."""
    port: Port = 8000
    """Port to bind; 0 is any free one."""
    admin_port: Port = field(default=8080, metadata=NOT_APPLIED)
    """Port of the admin UI and API."""
    admin_token: NonEmpty | None = field(default=None, repr=False, metadata=NOT_APPLIED)
    """Token of the admin UI and API; absent: generated at start."""
    auth: FrontAuth | None = None
    """What clients must show; absent: nothing, and only loopback may be bound."""
    tls: Tls | None = None
    """Absent: plain HTTP."""
    allowed_hosts: tuple[str, ...] = field(default=(), metadata=NOT_APPLIED)
    """Names clients may call it by, beside the address it is bound to."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use it beside its own: `https://app.example:8443`."""
    trusted_proxies: tuple[str, ...] = field(default=(), metadata=NOT_APPLIED)
    """Addresses or networks whose word on a client's address is taken."""
    limits: FrontLimits | None = field(default=None, metadata=NOT_APPLIED)
    """How much one client may use at a time; absent: the built-in limits."""
    store: str | None = field(default=None, repr=False, metadata=NOT_APPLIED)
    """Address of the store replicas share (`redis://…`); absent: everything is in one process."""
    drain: Pause | None = field(default=None, metadata=NOT_APPLIED)
    """Seconds it goes on serving after it was told to end, so that a load balancer notices; absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """What is done with a call for which everything here holds; what is absent holds for all."""

    effect: Literal["allow", "deny", "ask"]
    """Let it through, refuse it, or have a person decide."""
    profiles: tuple[str, ...] | None = None
    """Profiles it comes through."""
    principals: tuple[str, ...] | None = None
    """Patterns of who calls."""
    servers: tuple[str, ...] | None = None
    """Patterns of servers."""
    tools: tuple[str, ...] | None = None
    """Patterns of tools."""
    read_only: bool | None = None
    """Whether the tool says that it changes nothing."""
    destructive: bool | None = None
    """Whether the tool may destroy something; one that does not say may."""
    arguments: Mapping[str, Any] | None = None
    """Patterns of values, by argument."""
    reason: str = ""
    """What the caller is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules over callers and tools; the first that matches counts."""

    default: Literal["allow", "deny"] = "allow"
    """What is done when no rule matches."""
    rules: tuple[PolicyRule, ...] = ()
    """The rules, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a command."""

    name: str
    """As callers write it, and as `{name}` in the command."""
    type: Literal["string", "number", "integer", "boolean", "array", "object"] = "string"
    """Its JSON type."""
    required: bool = False
    """Whether a call without it is refused."""
    default: Any = None
    """Used when a call leaves it out."""
    description: str = ""
    """What it is for."""
    enum: tuple[Any, ...] | None = None
    """The only values allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """The request of an HTTP command; `{name}` stands for an argument."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] = "GET"
    """HTTP method."""
    url: str
    """Address; its scheme and host are fixed."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers to send."""
    params: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Query parameters."""
    body: Any = field(default=None, repr=False)
    """JSON to send, or text."""
    auth: AuthRef | None = None
    """Name of the auth config used."""
    timeout: Seconds = 30.0
    """Seconds the request may take; `global.default_timeout` where it says nothing."""
    response_format: Literal["json", "xml", "text"] = "json"
    """How the response is read."""
    allow_private: bool = False
    """Whether private, loopback and metadata addresses may be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The program of a script command; `{name}` stands for an argument."""

    interpreter: str | None = None
    """Program that runs it (`python3`, `bash`, `node`, …); absent: the script itself is run."""
    path: NonEmpty
    """The script; relative to the config's folder in the file, absolute here."""
    args: tuple[str, ...] = ()
    """Its arguments, one element each, never parsed by a shell."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Its environment, beside the small one every child gets."""
    cwd: str | None = None
    """Working folder; relative to the config's folder in the file, absolute here."""
    timeout: Seconds = 30.0
    """Seconds it may take; `global.default_timeout` where it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A local tool: an HTTP request or a script."""

    name: str
    """The tool's name; unique."""
    description: str = ""
    """What it does; shown to people and models."""
    type: Literal["http", "script"]
    """Which of the two sections below it has."""
    enabled: bool = True
    """A disabled command is not listed, and its variables are not looked up."""
    http: HttpRequest | None = None
    """With `type: http`."""
    script: Script | None = None
    """With `type: script`."""
    parameters: tuple[Parameter, ...] = ()
    """Its arguments."""
    switched_off: str | None = field(default=None, metadata=NOT_IN_FILE)
    """Why it is disabled though its file has it on: an unset variable, say, with its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One secret under a name."""

    location: Literal["header", "query", "body"] = "header"
    """Where it is sent."""
    name: str
    """Name of the header or field."""
    value: NonEmpty = field(repr=False)
    """The key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """`Authorization: Bearer …`"""

    token: NonEmpty = field(repr=False)
    """The token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicAuth:
    """`Authorization: Basic …`"""

    username: str
    """User name."""
    password: str = field(repr=False)
    """Password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """Client credentials; the token is fetched, kept and renewed."""

    client_id: str
    """Client id."""
    client_secret: NonEmpty = field(repr=False)
    """Client secret."""
    token_url: str
    """Where tokens are issued."""
    scope: str = ""
    """Scopes asked for, separated by spaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomHeader:
    """Headers of the user's own."""

    headers: Mapping[str, str] = field(repr=False)
    """Headers to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """How the gateway proves itself to a server or an API; referred to by name."""

    name: str
    """What `auth: {ref: …}` says; unique."""
    type: Literal["api_key", "bearer_token", "basic_auth", "oauth2", "custom_header"]
    """Which of the sections below it has."""
    api_key: ApiKey | None = None
    """With `type: api_key`."""
    bearer_token: BearerToken | None = None
    """With `type: bearer_token`."""
    basic_auth: BasicAuth | None = None
    """With `type: basic_auth`."""
    oauth2: OAuth2 | None = None
    """With `type: oauth2`."""
    custom_header: CustomHeader | None = None
    """With `type: custom_header`."""
