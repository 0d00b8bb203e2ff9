"""Configuration: text in, one frozen `Config` out, or every mistake at once with its place."""

from mcpx.catalog.naming import Naming
from mcpx.config.exposure import refuse_exposure
from mcpx.config.load import find, load
from mcpx.config.plan import Plan, plan
from mcpx.config.problems import Refused
from mcpx.config.schema import Config, Dialect, Global, Mode, Profile, Server, ToolProxy
from mcpx.config.sections import (
    ApiKey,
    AuthConfig,
    BasicAuth,
    BearerToken,
    Command,
    CustomHeader,
    FrontAuth,
    FrontServer,
    HttpRequest,
    OAuth2,
    Parameter,
    Script,
    Tls,
    Token,
)

__all__ = [
    "ApiKey",
    "AuthConfig",
    "BasicAuth",
    "BearerToken",
    "Command",
    "Config",
    "CustomHeader",
    "Dialect",
    "FrontAuth",
    "FrontServer",
    "Global",
    "HttpRequest",
    "Mode",
    "Naming",
    "OAuth2",
    "Parameter",
    "Plan",
    "Profile",
    "Refused",
    "Script",
    "Server",
    "Tls",
    "Token",
    "ToolProxy",
    "find",
    "load",
    "plan",
    "refuse_exposure",
]
