"""Configuration: text in, one frozen `Config` out, or every mistake at once with its place."""

from mcpx.catalog.naming import Naming
from mcpx.config.exposure import refuse_exposure
from mcpx.config.itself import without_itself
from mcpx.config.load import load
from mcpx.config.locate import find
from mcpx.config.plan import Plan, plan
from mcpx.config.problems import Refused
from mcpx.config.programs import program_warnings
from mcpx.config.schema import Config, Dialect, Global, Mode, Profile, Server, ToolProxy
from mcpx.config.sections import (
    ApiKey,
    AuthConfig,
    BasicAuth,
    BearerToken,
    Command,
    CustomHeader,
    FrontAuth,
    FrontLimits,
    FrontServer,
    HttpRequest,
    Limits,
    OAuth2,
    Parameter,
    Policy,
    PolicyRule,
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
    "FrontLimits",
    "FrontServer",
    "Global",
    "HttpRequest",
    "Limits",
    "Mode",
    "Naming",
    "OAuth2",
    "Parameter",
    "Plan",
    "Policy",
    "PolicyRule",
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
    "program_warnings",
    "refuse_exposure",
    "without_itself",
]
