"""`mcpx auth`: sign in to servers, sign out, and see who is signed in where."""

import argparse
import os

from mcpx.cli import where
from mcpx.model.errors import ConfigError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("status", "login", "logout"), help="what to do")
    parser.add_argument("words", metavar="NAME", nargs="*", help="the server; then the config file")
    where.config_options(parser, positional=False)
    parser.add_argument(
        "--json", action="store_true", help="status: one JSON object instead of a table"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="login: only say where to sign in"
    )


def run(options: argparse.Namespace) -> int:
    from mcpx.cli import auth

    action, words = options.action, list[str](options.words)
    name = words.pop(0) if action != "status" and words else ""
    if (action != "status" and not name) or len(words) > 1:
        wanted = "[CONFIG]" if action == "status" else "NAME [CONFIG]"
        raise ConfigError([f"error: say: mcpx auth {action} {wanted}"])
    options.config_file = words[0] if words else None
    path = where.required(options, f"auth {action} {name}".rstrip())
    desk = auth.Where(path, lambda: where.load(path, options), os.environ, where.overlay(options))
    if action == "status":
        return auth.status(desk, options.json)
    return (
        auth.login(desk, name, not options.no_browser)
        if action == "login"
        else auth.logout(desk, name)
    )
