"""The configuration as one frozen value: every key of the native shape, its type, its default, its
meaning.

Promised: what stands here is what a file may say, no more; `==` tells whether two configurations
are the same; secrets stay out of `repr`. Values are effective: a server carries what `global` says
where it says nothing itself, and paths are absolute. Not done here: reading (`load`), judging
(`validate`, `checks`).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from mcpx.catalog.naming import Naming
from mcpx.config.fields import Pattern, ServerPattern
from mcpx.config.sections import Audit, AuthConfig, Command, FrontServer, Limits, Policy, Traces
from mcpx.formats import SchemaFormatName, ValueFormatName
from mcpx.model.kinds import NOT_IN_FILE, AuthRef, Count, Pause, Seconds, Size, Tagged
from mcpx.surfaces import Mode
from mcpx.surfaces.settings import AutoRule
from mcpx.transports import TRANSPORTS, Transport, downloads_itself, starts_process

Dialect = Literal[
    "native", "flat", "proxy", "mcpServers", "gemini", "vscode", "codex", "opencode", "zed", "goose"
]


DOWNLOAD_SECONDS = 300.0
"""Default of `start_timeout` for programs that may download themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerServer:
    """Keys of `global` that may also stand at a server and then count for that server."""

    call_timeout: Seconds = 300.0
    """Seconds a call may take; progress starts them anew."""
    max_retries: Count = 3
    """Quick tries to reconnect before it is tried once a minute."""
    retry_delay: Pause = 1.0
    """Seconds before the first of those tries; doubled each time."""
    health_check_enabled: bool = True
    """Whether an idle connection is probed."""
    health_check_interval: Seconds = 30.0
    """Seconds between two probes."""
    link_idle: Seconds = 60.0
    """Seconds a connection beside the first one of a server is kept without a call; ten times as
    long if a session has its own there."""
    max_message: Size = 16 * 1024 * 1024
    """Largest message taken from a server, in bytes."""
    schema_format: SchemaFormatName | None = None
    """How compact surfaces show schemas; absent: as `schema_compression_enabled` says."""
    schema_compression_enabled: bool = True
    """Whether compact surfaces show schemas as TypeScript."""
    max_description_len: Count | None = None
    """Characters of a parameter's description kept in a compact schema; 0: none; absent: as many as
    are useful."""
    value_format: ValueFormatName | None = None
    """How compact surfaces show JSON values; absent: as `toon_compression_enabled` says."""
    toon_compression_enabled: bool = True
    """Whether compact surfaces show values as TOON where that is smaller."""
    toon_compression_min_size: Count = 3
    """Rows or keys from which TOON is tried."""
    json_compression_enabled: bool = True
    """Whether compact surfaces also shorten JSON of several lines, unless it comes from a tool that
    reads files."""
    structured_content: Literal["include", "omit"] = "include"
    """Whether compact surfaces send `structuredContent` beside the text."""
    result_limit: Size = 16_000
    """Bytes of text from which a result is kept back and replaced by a preview and a handle."""
    trust: Literal["open", "pin", "quarantine"] = "open"
    """Definitions are taken as they come, held back once they change, or held back until somebody
    approves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(PerServer):
    """One upstream MCP server."""

    name: str
    """What it is called in menus, errors and names; unique."""
    description: str = ""
    """What it is for; shown to people and models."""
    enabled: bool = True
    """A disabled server is neither started nor listed, and its variables are not looked up."""
    prefix: str | None = None
    """Put before the names of its tools and prompts."""
    connection: Annotated[Transport, Tagged(TRANSPORTS)]
    """How it is reached."""
    timeout: Seconds = 30.0
    """Seconds to connect and to list; `global.default_timeout` where it says nothing."""
    start_timeout: Seconds | None = None
    """Seconds from the start of its process to the first byte on standard output; absent: 300 for a
    program that may download itself (npx, uvx, docker run, ...), `timeout` for all others."""
    isolation: Literal["shared", "per_session", "per_call"] = "shared"
    """Who shares a connection."""
    max_links: Size = 32
    """Most connections held at a time."""
    lazy: bool = False
    """Started at the first call, asleep after `idle_timeout`."""
    idle_timeout: Seconds = 300.0
    """Seconds without a call after which a lazy server sleeps."""
    auto_reconnect: bool = True
    """Whether a lost connection is made again without being asked."""
    retry_on_failure: bool = True
    """Whether a failed start is tried again."""
    max_age: Seconds | None = None
    """Seconds after which a connection is replaced once it is idle; absent: never."""
    max_memory: Size | None = None
    """Bytes of memory from which its process is replaced once it is idle; absent: never."""
    cache_ttl: Seconds | None = None
    """Seconds a result of a read-only tool may be answered again; absent: never."""
    auth: AuthRef | None = None
    """Name of the auth config used towards it."""
    limits: Limits | None = None
    """How much of it may be used at a time; absent: no more limits than everywhere."""
    switched_off: str | None = field(default=None, metadata=NOT_IN_FILE)
    """Why it is disabled though its file has it on: an unset variable, say, with its place."""

    @property
    def start_limit(self) -> float:
        """Seconds from the start of its process to the first byte of output; without a process,
        `timeout`."""
        if not starts_process(self.connection):
            return self.timeout
        if self.start_timeout is not None:
            return self.start_timeout
        if downloads_itself(self.connection):
            return max(self.timeout, DOWNLOAD_SECONDS)
        return self.timeout

    @property
    def connect_limit(self) -> float:
        """Seconds that a call waits until the server is connected."""
        return max(self.timeout, self.start_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named view at its own path."""

    name: str
    """Its name and path; unique."""
    servers: tuple[ServerPattern, ...] | None = None
    """Patterns of servers that are seen, `!` before one leaves out; absent: all."""
    tools: tuple[Pattern, ...] | None = None
    """Patterns of tools that are seen, `!` before one leaves out; absent: all."""
    read_only: bool = False
    """Only tools are seen that say of themselves that they change nothing."""
    prompts: tuple[Pattern, ...] | None = None
    """Patterns of prompts that are seen, `!` before one leaves out; absent: all."""
    resources: tuple[Pattern, ...] | None = None
    """Patterns of resource URIs that are seen, `!` before one leaves out; absent: all."""
    mode: Mode | None = None
    """How it is shown; absent: as everywhere."""
    tokens: tuple[str, ...] | None = None
    """Names of tokens that are let in; absent: all that are bound to no other profile."""
    limits: Limits | None = None
    """How much its callers may use at a time; absent: no more limits than everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProxy:
    """The three tools of the `search` surface."""

    enable_search: bool = True
    """Offer `mcp_search_tools`."""
    enable_execute: bool = True
    """Offer `mcp_execute_tool`."""
    enable_list_services: bool = True
    """Offer `mcp_list_services`."""
    search_limit: Size = 20
    """Hits a search gives when it does not say how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Global(PerServer):
    """What counts for the whole gateway, and for servers that say nothing themselves."""

    default_timeout: Seconds = 30.0
    """`timeout` of servers and commands that name none."""
    startup_wait: Pause = 0.5
    """Most seconds a list waits for a server that lists differently by client and did not list in
    time before."""
    first_start_wait: Pause = 6.0
    """Most seconds a first list waits for servers that have not listed; a third of it after the
    last that listed."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    """Least serious log line that is written."""
    log_format: Literal["text", "json"] = "text"
    """How log lines are written: for people, or one JSON object each."""
    log_file: str | None = None
    """File for the log, relative to the config's folder; stderr keeps the warnings."""
    hot_reload: bool = True
    """Whether a changed file is taken up while running."""
    hot_reload_interval: Seconds = 2.0
    """Seconds between two looks at the file."""
    tool_proxy_mode: bool = False
    """Makes `search` the default mode."""
    tool_proxy: ToolProxy = ToolProxy()
    """The three tools of the `search` surface."""
    menu_budget: Count = 2_000
    """Tokens the generated menus of compact surfaces may take."""
    auto_budget: Count = 10_000
    """Tokens up to which `auto` shows every tool."""
    auto_direct_limit: Count = 25_000
    """Tokens above which `auto` shows no client every tool, also if a rule or its name says
    `direct`."""
    auto_rules: tuple[AutoRule, ...] = ()
    """What `auto` shows to clients of a name; they come before the built-in rules."""
    max_request: Size = 4 * 1024 * 1024
    """Largest request taken from a client, in bytes."""
    script_paths: tuple[str, ...] = ()
    """Folders scripts may stand in; the config's own where it says nothing."""
    audit: Audit | None = None
    """The trail of who called what; absent: none is kept."""
    traces: Traces | None = None
    """Where traces of calls go (OpenTelemetry); absent: none are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One whole configuration."""

    mode: Mode = "direct"
    """What clients see by default."""
    naming: Naming = field(default_factory=Naming)
    """How public names are made."""
    server: FrontServer = field(default_factory=FrontServer)
    """Where clients find the gateway over HTTP."""
    mcp_servers: tuple[Server, ...] = ()
    """Upstream MCP servers, in the order of their tools."""
    commands: tuple[Command, ...] = ()
    """Local tools."""
    auth_configs: tuple[AuthConfig, ...] = ()
    """How the gateway proves itself, by name."""
    profiles: tuple[Profile, ...] = ()
    """Named views."""
    policy: Policy = field(default_factory=Policy)
    """Rules over callers and tools."""
    global_: Global = Global()
    """What counts for the whole gateway, and for servers that say nothing themselves."""
    dialect: Dialect = field(default="native", metadata=NOT_IN_FILE)
    """The shape the file had."""
    path: Path | None = field(default=None, metadata=NOT_IN_FILE)
    """The file or folder, absolute; None when there is none."""
    sources: tuple[Path, ...] = field(default=(), compare=False, metadata=NOT_IN_FILE)
    """Files and folders, absolute, that were read or looked for: a change there may change the
    outcome."""
    warnings: tuple[str, ...] = field(default=(), compare=False, metadata=NOT_IN_FILE)
    """What is odd but not wrong, ready to print."""
    secrets: frozenset[str] = field(
        default=frozenset(), repr=False, compare=False, metadata=NOT_IN_FILE
    )
    """What in it must not be said to anybody, wherever it came from."""

    variables: frozenset[str] = field(default=frozenset(), compare=False, metadata=NOT_IN_FILE)
    """Variables of the environment that were looked up in reading it: with other values it is
    another configuration."""

    @property
    def guarded(self) -> bool:
        """Whether anything stands between callers and what is offered: a profile, a rule, a limit,
        a pin."""
        if self.profiles or self.policy != Policy() or self.server.limits is not None:
            return True
        servers = self.mcp_servers
        return any(each.limits is not None or each.trust != "open" for each in servers)

    @property
    def tells_apart(self) -> bool:
        """Whether there may be several clients that are not to learn of each other."""
        return self.server.auth is not None or bool(self.profiles)
