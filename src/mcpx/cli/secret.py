"""`mcpx secret`: values for a config file that nobody can read there, and secrets in the system's
keyring.

A secret is read from standard input or typed unseen, never taken from the command line, which other
programs and the shell's history see.
"""

import argparse
import json
import os
import sys

from mcpx.cli.codes import FAILED
from mcpx.cli.output import Output
from mcpx.model.errors import ConfigError

LONGEST = 64 * 1024
"""Bytes of a secret."""

_NAMED = ("set", "remove")


def run(options: argparse.Namespace) -> int:
    from mcpx.auth import keychain, sealing

    action, name = str(options.action), str(options.name or "")
    if (not name) == (action in _NAMED):
        if not name:
            raise ConfigError([f"error: say: mcpx secret {action} NAME"])
        # It may be the secret itself: it is not said again.
        raise ConfigError(
            [f"error: 'mcpx secret {action}' takes no name; a secret is read from standard input"]
        )
    if name and not keychain.is_name(name):
        raise ConfigError(
            ["error: not a possible name: letters, digits and _ - . / make one, 'vault' is taken"]
        )
    try:
        match action:
            case "key":
                sys.stdout.write(f"{sealing.new_key()}\n")
                _tell(
                    "keep it where mcpx finds it as MCPX_KEY; it is not shown again, and nothing "
                    "replaces it"
                )
            case "encrypt":
                sys.stdout.write(f"{sealing.encrypt(_read(), os.environ)}\n")
            case "set":
                keychain.keep(name, _read())
                _tell(f"kept; a config refers to it by ${{keyring:{name}}}")
            case "remove":
                if not keychain.remove(name):
                    _tell(f"the keyring has no secret {name!r}")
                    return FAILED
            case _:
                names = list(keychain.names())
                told = (
                    json.dumps({"secrets": names}, indent=2) if options.json else "\n".join(names)
                )
                sys.stdout.write(f"{told}\n" if told else "")
    except (keychain.NoKeyring, sealing.NoKey) as error:
        how = (
            "\nmake one: export MCPX_KEY=$(mcpx secret key)"
            if isinstance(error, sealing.NoKey)
            else ""
        )
        word = "no_key" if how else "no_keyring"
        return Output(options.json).fail(word, f"{error}{how}", FAILED)
    return 0


def _read() -> str:
    """The secret, without the line break that `echo` puts behind it."""
    if sys.stdin.isatty():
        from getpass import getpass

        secret = getpass("secret: ")
    else:
        raw = sys.stdin.buffer.read(LONGEST + 1)
        if len(raw) > LONGEST:
            raise ConfigError([f"error: a secret has at most {LONGEST:,} bytes"])
        try:
            secret = raw.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ConfigError(["error: a secret is text (UTF-8)"]) from None
    if not secret:
        raise ConfigError(["error: there is nothing on standard input"])
    return secret


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
