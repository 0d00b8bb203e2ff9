"""Configuration: text in, one frozen `Config` out, or every mistake at once with its place."""

from mcpx.catalog.naming import Naming
from mcpx.commands.parameters import Parameter
from mcpx.config.fields import is_loopback
from mcpx.config.guard_checks import refuse_admin_exposure, refuse_exposure
from mcpx.config.itself import without_itself
from mcpx.config.load import load
from mcpx.config.locate import find
from mcpx.config.plan import Plan, plan
from mcpx.config.problems import Refused
from mcpx.config.programs import program_warnings
from mcpx.config.schema import Config, Dialect, Global, Mode, Profile, Server, ToolProxy
from mcpx.config.sections import (
    Admin,
    Audit,
    AuthConfig,
    Command,
    FrontAuth,
    FrontLimits,
    FrontServer,
    Limits,
    Policy,
    PolicyRule,
    Tls,
    Token,
    Traces,
)

__all__ = [
    "Admin",
    "Audit",
    "AuthConfig",
    "Command",
    "Config",
    "Dialect",
    "FrontAuth",
    "FrontLimits",
    "FrontServer",
    "Global",
    "Limits",
    "Mode",
    "Naming",
    "Parameter",
    "Plan",
    "Policy",
    "PolicyRule",
    "Profile",
    "Refused",
    "Server",
    "Tls",
    "Token",
    "ToolProxy",
    "Traces",
    "find",
    "is_loopback",
    "load",
    "plan",
    "program_warnings",
    "refuse_admin_exposure",
    "refuse_exposure",
    "without_itself",
]
