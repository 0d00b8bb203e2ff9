"""Every command there is, in the order of the help. Each is a light module of `mcpx.cli.commands`
with `options(parser)` and `run(options)`; it imports what it needs when it runs, so `--help` starts
no gateway."""

import argparse
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from mcpx.cli.parsing import Parser


class Module(Protocol):
    """What a command's module has."""

    def options(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, options: argparse.Namespace) -> int: ...


class Command(
    NamedTuple
):  # no dataclass: that brings two megabytes along, and a bridge to a gateway has few
    name: str
    arguments: str
    summary: str

    def module(self) -> Module:
        name = f"{self.name}_" if self.name == "import" else self.name  # a word of Python's own
        return cast(Module, import_module(f"mcpx.cli.commands.{name}"))

    def parser(self) -> Parser:
        module = self.module()
        parser = Parser(
            prog="mcpx" if self.name == "serve" else f"mcpx {self.name}",
            description=self.summary,
            epilog=getattr(module, "EPILOG", None),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.options(parser)
        return parser


GROUPS: Mapping[str, tuple[Command, ...]] = {
    "run": (
        Command(
            "serve",
            "[CONFIG]",
            "One MCP gateway in front of many MCP servers; what 'mcpx [CONFIG]' does.",
        ),
        Command(
            "status",
            "[CONFIG]",
            "Whether a gateway runs on this config, since when, and how it is.",
        ),
        Command("reload", "[CONFIG]", "Have the gateway that runs on this config read it again."),
        Command("logs", "[SERVER] [CONFIG]", "What servers and the gateway have printed."),
        Command(
            "admin",
            "[CONFIG]",
            "Open the admin UI of the gateway that runs: a login URL that is good once.",
        ),
    ),
    "servers": (
        Command(
            "servers",
            "[CONFIG]",
            "Every server and how it is; without a running gateway they are connected to.",
        ),
        Command(
            "add",
            "ANYTHING",
            "Add a server: a command line, a URL, JSON, OpenAPI, curl, .mcpb, a registry name.",
        ),
        Command("remove", "NAME", "Take a server or command out of the config."),
        Command("enable", "NAME", "Switch a server or command on."),
        Command("disable", "NAME", "Switch a server or command off; it stays in the config."),
        Command(
            "import",
            "[CLIENT | FILE]",
            "Take over the servers of your client programs, OpenAPI or curl.",
        ),
        Command("export", "[CONFIG]", "The configuration for somebody else, without its secrets."),
        Command(
            "auth", "ACTION [NAME]", "Sign in to servers, sign out, and see who is signed in where."
        ),
    ),
    "tools": (
        Command("tools", "[SERVER]", "Every tool, or those of a server, with what they take."),
        Command("search", "WORDS", "Find tools by words, English or Chinese."),
        Command("call", "SERVER.TOOL [key=value]", "Call a tool and print its result."),
        Command("read", "URI", "Read a resource; without one, list them."),
        Command("prompt", "NAME [key=value]", "Get a prompt; without one, list them."),
    ),
    "client programs": (
        Command(
            "connect", "[CLIENT]", "Write mcpx into client programs: a diff, a backup, a way back."
        ),
        Command("disconnect", "[CLIENT]", "Take it out again."),
        Command("doctor", "[SERVER]", "Find what breaks first runs, and say how to mend it."),
    ),
    "config": (
        Command("check", "[CONFIG]", "Validate a config file and say what it holds."),
        Command("migrate", "[CONFIG]", "Turn any config into the native shape."),
        Command(
            "config",
            "ACTION",
            "What the config said before, and back to it; push FILE: that of all replicas.",
        ),
        Command(
            "secret",
            "ACTION",
            "Encrypt values of a config file, and keep secrets in the system's keyring.",
        ),
    ),
    "guard": (
        Command(
            "token",
            "ACTION [NAME]",
            "Tokens that clients over the network show (server.auth: {type: bearer}).",
        ),
        Command(
            "approve",
            "[WHAT]",
            "See what waits for approval, definitions and calls, and approve it.",
        ),
        Command(
            "pins",
            "[SERVER]",
            "What was approved of pinned servers, and what of them is held back.",
        ),
        Command(
            "explain",
            "PROFILE TOOL",
            "Whether a tool is seen and may be called through a profile, and why.",
        ),
        Command(
            "audit", "[CONFIG]", "Who called what, when, and what came of it; the latest last."
        ),
    ),
    "more": (
        Command("completion", "SHELL", "Completion for bash, zsh, fish or PowerShell."),
        Command("version", "", "Which mcpx this is, and on what it runs."),
    ),
}

COMMANDS: Mapping[str, Command] = {
    command.name: command for group in GROUPS.values() for command in group
}
