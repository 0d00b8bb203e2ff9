"""The sections of the configuration that stand on their own: the front, local commands, auth
towards others.

The same promises as `schema`, which puts them together with the servers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from mcpx.auth import AUTHS, Auth
from mcpx.commands import COMMANDS, Action
from mcpx.commands.parameters import Parameter, schema_of
from mcpx.config.fields import (
    Headers,
    HostPattern,
    HttpUrl,
    KeySourceUrl,
    Network,
    OriginText,
    ProfileName,
    RuleArguments,
    RulePatterns,
    RuleProfiles,
    RuleServers,
    Scopes,
    SinkUrl,
    TokenText,
)
from mcpx.model.call import Json, as_object
from mcpx.model.family import Part
from mcpx.model.kinds import (
    NOT_IN_FILE,
    Count,
    Mistake,
    Moment,
    NonEmpty,
    OfType,
    Pause,
    Port,
    Rule,
    Seconds,
    Size,
)


def _is_store(text: str) -> bool:
    from mcpx.replicas.address import parse  # who has none does without
    from mcpx.wire.address import BadAddress

    try:
        parse(text)
    except BadAddress:
        return False
    return True


StoreUrl = Annotated[
    str,
    Rule(
        _is_store,
        "must be the address of a store: redis://host:6379/0, rediss://…, "
        "redis+sentinel://host,host/service or "
        "redis+cluster://host,host",
    ),
]


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
    """Sessions at a time, of all clients; of each replica where there are several."""
    without_store: Literal["open", "closed"] = "open"
    """With replicas, while their store is away: each counts for itself, or calls that a limit
    concerns are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One bearer token a client may show."""

    name: str
    """Who it stands for in logs and policy."""
    token: TokenText = field(repr=False)
    """The token itself."""
    profile: ProfileName | None = None
    """The profile its bearer gets; beside it only those whose `tokens` name it. Absent: the one of
    the path."""
    expires: Moment | None = None
    """Date, or date and time, from which it is refused; absent: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontAuth:
    """What clients must show."""

    type: Literal["bearer", "jwt"] = "bearer"
    """Tokens that stand here, or those an authorization server signs."""
    tokens: tuple[Token, ...] = ()
    """With `type: bearer`: tokens that are let in."""
    issuer: KeySourceUrl | None = None
    """With `type: jwt`: whose tokens are let in; an https address, or http for loopback."""
    audience: str | None = None
    """With `type: jwt`: whom they must be meant for; absent: this gateway's own address."""
    jwks_url: KeySourceUrl | None = None
    """With `type: jwt`: where the issuer's keys are; https, or http for loopback; absent: where its
    metadata says."""
    scopes: Scopes | None = None
    """With `type: jwt`: the profile that a scope of the token gives; absent: `profile:NAME` gives
    that of the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificate the front shows."""

    cert: str
    """File of the certificate chain."""
    key: str
    """File of its private key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """Where the admin UI and API are found, and who may come there."""

    host: NonEmpty | None = None
    """Address to bind; absent: `server.host` if that is this machine's own (loopback), else
    `127.0.0.1`."""
    tls: Tls | None = None
    """Absent: plain HTTP."""
    allowed_hosts: tuple[HostPattern, ...] = ()
    """Names it may be called by, beside the address it is bound to and those of this machine."""
    allowed_ips: tuple[Network, ...] = ()
    """Addresses or networks that may come in; absent: all that reach it."""
    cors_origins: tuple[OriginText, ...] = ()
    """Origins of other web pages that may use the API, with the token:
    `https://app.example:8443`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """Where other replicas of the same store reach this one."""

    host: NonEmpty | None = None
    """Address to bind, and to be found at; absent: the one that it reaches the store from."""
    port: Port = 0
    """Port to bind; 0 is any free one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontServer:
    """Where clients find the gateway over HTTP."""

    host: str = "127.0.0.1"
    """Address to bind."""
    port: Port = 8000
    """Port to bind; 0 is any free one."""
    admin_port: Port = 8080
    """Port of the admin UI and API, which `--admin` starts; 0 is any free one."""
    admin_token: NonEmpty | None = field(default=None, repr=False)
    """Token of the admin UI and API; absent: generated at start. `MCPX_ADMIN_TOKEN` wins over
    it."""
    admin: Admin | None = None
    """Where else the admin UI and API are found, and who may come there; absent: this machine
    only."""
    auth: FrontAuth | None = None
    """What clients must show; absent: nothing, and only loopback may be bound."""
    tls: Tls | None = None
    """Absent: plain HTTP."""
    allowed_hosts: tuple[HostPattern, ...] = ()
    """Names clients may call it by, beside the address it is bound to."""
    allowed_origins: tuple[OriginText, ...] = ()
    """Origins of web pages that may use it beside its own: `https://app.example:8443`."""
    trusted_proxies: tuple[Network, ...] = ()
    """Addresses or networks whose word on a client's address is taken."""
    limits: FrontLimits | None = None
    """How much one client may use at a time; absent: the built-in limits."""
    metrics: bool = True
    """Whether `/metrics` tells figures in the form of Prometheus."""
    store: StoreUrl | None = field(default=None, repr=False)
    """Address of the store that replicas share (`redis://…`); absent: everything is in one process.
    `MCPX_STORE` wins over it. Counts from the next start on."""
    replica: Replica | None = None
    """Where other replicas reach this one; absent: where it reaches the store from, at any free
    port."""
    drain: Pause | None = None
    """Seconds for which the gateway keeps serving after SIGTERM. `/ready` answers 404 from then on,
    and the load balancer sends no new requests. The default is 5 with a store and 0 without."""


FILES_KEPT = 7
"""Full files of the audit log that are kept, if the configuration does not have a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The trail of who called what, one JSON object a line."""

    file: str | None = None
    """Where, relative to the config's folder; absent: under the state folder."""
    arguments: Literal["none", "shape", "values"] = "shape"
    """What is written of arguments: nothing, their names and types, or their values without what is
    secret."""
    begins: bool = True
    """Write a row before each call of a tool that is not read-only, too. It shows calls that a
    crash has cut off."""
    max_bytes: Size = 64 * 1024 * 1024
    """Size from which a new file is begun."""
    keep: Count | None = None
    """Full files that are kept. The default is 7, or `days` + 7."""
    days: Size | None = None
    """Begin a new file each day (UTC), and delete files after this number of days. By default, only
    the size counts."""
    sink: SinkUrl | None = None
    """Where rows are sent, too: `http://collector:4318` (OTLP logs), `syslog://host:514` (UDP),
    `syslog+tcp://host:601`, or `syslog+unix:///dev/log`."""
    sink_headers: Headers = field(default_factory=dict[str, str], repr=False)
    """Sent with OTLP logs, for collectors that require a key."""

    @property
    def kept_files(self) -> int:
        if self.keep is not None:
            return self.keep
        return FILES_KEPT + (self.days or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Where traces of calls go, in the form of OpenTelemetry."""

    endpoint: HttpUrl
    """Of the collector, OTLP over HTTP: `http://localhost:4318`; `/v1/traces` is added where it is
    missing."""
    headers: Headers = field(default_factory=dict[str, str], repr=False)
    """Sent along, for collectors that want a key."""
    sample: Annotated[
        float,
        Rule(
            lambda share: 0 <= share <= 1, "must be between 0 and 1", {"minimum": 0, "maximum": 1}
        ),
    ] = 1.0
    """Share of the calls that are traced when the client does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """What is done with a call for which everything here holds; what is absent holds for all."""

    effect: Literal["allow", "deny", "ask"]
    """Let it through, refuse it, or have a person decide."""
    profiles: RuleProfiles | None = None
    """Profiles it comes through."""
    principals: RulePatterns | None = None
    """Patterns of who calls."""
    servers: RuleServers | None = None
    """Patterns of servers."""
    tools: RulePatterns | None = None
    """Patterns of tools: their public name, their own, or `server.name`."""
    read_only: bool | None = None
    """Whether the tool says that it changes nothing."""
    destructive: bool | None = None
    """Whether the tool may destroy something; one that does not say may."""
    arguments: RuleArguments | None = None
    """By argument (`repo.owner` is inside another, `*` is any): patterns of its value, or
    `{jmespath: …}`, which is to be true of it. What is absent does not match; what cannot be judged
    matches unless the effect is `allow`."""
    reason: str = ""
    """What the caller is told. A `deny` without one, and without `arguments`, hides what it
    concerns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules over callers and tools; the first that matches counts."""

    default: Literal["allow", "deny"] = "allow"
    """What is done when no rule matches."""
    rules: tuple[PolicyRule, ...] = ()
    """The rules, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A local tool."""

    name: str
    """The tool's name; unique."""
    description: str = ""
    """What it does; shown to people and models."""
    action: Annotated[Action, OfType(COMMANDS)]
    """What it does; the section of that name says how."""
    enabled: bool = True
    """A disabled command is not listed, and its variables are not looked up."""
    parameters: tuple[Parameter, ...] = ()
    """Its arguments."""
    input_schema: Mapping[str, Any] | None = None
    """The same as a JSON Schema, instead."""
    read_only: bool | None = None
    """Whether it changes nothing; absent: known of HTTP requests by their method, not so of
    scripts."""
    cache_ttl: Seconds | None = None
    """Seconds a result may be answered again, if it changes nothing; absent: never."""
    switched_off: str | None = field(default=None, metadata=NOT_IN_FILE)
    """Why it is disabled though its file has it on: an unset variable, say, with its place."""

    @property
    def changes_nothing(self) -> bool:
        return self.action.reads_only if self.read_only is None else self.read_only

    @property
    def auth(self) -> str | None:
        """Name of the auth config its action uses."""
        return getattr(self.action, "auth", None)

    @property
    def schema(self) -> Json:
        """Of its arguments."""
        if self.input_schema is not None:
            return dict(self.input_schema)
        # One that declares none takes what its placeholders name: a text each.
        if self.parameters:
            return schema_of(self.parameters)
        named: tuple[str, ...] = getattr(self.action, "placeholders", ())
        return schema_of(tuple(Parameter(name=name, required=True) for name in named))

    def mistakes(self) -> Iterator[Mistake]:
        for index, parameter in enumerate(self.parameters):
            yield from (wrong.below("parameters", index) for wrong in parameter.mistakes())
        names: dict[str, bool] | None = {
            p.name: not p.required and p.default is None for p in self.parameters
        }
        if self.input_schema is not None:
            if self.parameters:
                hint = "describe the arguments in one of them"
                yield Mistake(
                    "'parameters' and 'input_schema' exclude each other",
                    ("input_schema",),
                    hint,
                    "key",
                )
            if self.input_schema.get("type", "object") != "object":
                yield Mistake("the arguments of a tool are an object", ("input_schema", "type"))
            listed = as_object(self.input_schema.get("properties"))
            closed = self.input_schema.get("additionalProperties") is False
            names = (
                {name: _may_be_missing(self.input_schema, name) for name in listed}
                if closed
                else None
            )
        yield from self._schema_mistakes()
        yield from _told(self.action, lambda: self.action.mistakes(names))

    def _schema_mistakes(self) -> Iterator[Mistake]:
        """Of rules that are written freely: what cannot be checked would not be, and a `pattern` is
        there to guard."""
        schemas: list[tuple[tuple[str | int, ...], Json]] = [
            (
                ("parameters", index),
                {"type": "object", "properties": {parameter.name: parameter.schema}},
            )
            for index, parameter in enumerate(self.parameters)
            if parameter.is_free
        ]
        if self.input_schema is not None and self.input_schema.get("type", "object") == "object":
            schemas.append((("input_schema",), dict(self.input_schema)))
        for path, schema in schemas:
            from mcpx.surfaces.checking.schemas import holds, unjudged

            if (why := unjudged(schema)) is not None:
                yield Mistake(f"the schema {why}", path)
                continue
            for name, its in (
                as_object(schema.get("properties")).items() if self.input_schema is None else ()
            ):
                if "default" in its and not holds(schema, 2020, {name: its["default"]}):
                    yield Mistake("the default is not what the parameter takes", (*path, "default"))


def _told(part: Part, mistakes: Callable[[], Iterable[Mistake]]) -> list[Mistake]:
    """What a part says is wrong with it; that of another package may not be able to."""
    try:
        return [wrong.below(part.type) for wrong in mistakes()]
    except Exception as error:  # noqa: BLE001 - Its message may contain a secret of the file.
        what = (
            f"whether this is right cannot be told: {type(error).__name__} in "
            f"{type(part).__module__}"
        )
        return [Mistake(what, (part.type,), "whoever made that part should know")]


def _may_be_missing(schema: Mapping[str, Any], name: str) -> bool:
    required = schema.get("required")
    its = as_object(as_object(schema.get("properties")).get(name))
    return name not in (required if isinstance(required, list) else ()) and "default" not in its


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """How the gateway proves itself to a server or an API; referred to by name."""

    name: str
    """What `auth: {ref: …}` says; unique."""
    auth: Annotated[Auth, OfType(AUTHS)]
    """How; the section of that name holds the rest."""

    def mistakes(self) -> Iterator[Mistake]:
        yield from _told(self.auth, getattr(self.auth, "mistakes", tuple))
