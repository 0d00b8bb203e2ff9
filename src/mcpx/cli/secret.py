"""`mcpx secret`: values for a config file that nobody can read there, and secrets in the system's
keyring.

A secret is read from standard input or typed unseen, never taken from the command line, which other
programs and the shell's history see.
"""

import argparse
import os
import sys

from mcpx.cli.codes import FAILED
from mcpx.cli.output import Output
from mcpx.cli.running import mistake, warn

LONGEST = 64 * 1024
"""Bytes of a secret."""

_NAMED = ("set", "remove")


def run(options: argparse.Namespace) -> int:
    from mcpx.auth import keychain, sealing

    action, name = str(options.action), str(options.name or "")
    out = Output(options.json)
    if action in _NAMED and not name:
        raise mistake(f"say: mcpx secret {action} NAME")
    if action not in _NAMED and name:  # The word may be a secret, so the message omits it.
        hint = "a secret is read from standard input"
        raise mistake(f"'mcpx secret {action}' takes no name; {hint}")
    if name and not keychain.is_name(name):
        hint = "letters, digits and _ - . / make one, 'vault' is taken"
        raise mistake(f"not a possible name: {hint}")
    try:
        match action:
            case "key":
                sys.stdout.write(f"{sealing.new_key()}\n")
                hint = "it is not shown again, and nothing replaces it"
                warn(f"keep it where mcpx finds it as MCPX_KEY; {hint}")
            case "encrypt":
                sys.stdout.write(f"{sealing.encrypt(_read(), os.environ)}\n")
            case "set":
                keychain.keep(name, _read())
                warn(f"kept; a config refers to it by ${{keyring:{name}}}")
            case "remove":
                if not keychain.remove(name):
                    warn(f"the keyring has no secret {name!r}")
                    return FAILED
            case _:
                names = list(keychain.names())
                out.result({"secrets": names}, *names)
    except (keychain.NoKeyring, sealing.NoKey) as error:
        if isinstance(error, sealing.NoKey):
            hint = "make one: export MCPX_KEY=$(mcpx secret key)"
            return out.fail("no_key", f"{error}\n{hint}", FAILED)
        return out.fail("no_keyring", str(error), FAILED)
    return 0


def _read() -> str:
    """The secret, without the line break that `echo` puts behind it."""
    if sys.stdin.isatty():
        from getpass import getpass

        secret = getpass("secret: ")
    else:
        raw = sys.stdin.buffer.read(LONGEST + 1)
        if len(raw) > LONGEST:
            raise mistake(f"a secret has at most {LONGEST:,} bytes")
        try:
            secret = raw.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise mistake("a secret is text (UTF-8)") from None
    if not secret:
        raise mistake("there is nothing on standard input")
    return secret
