"""The gateway that a bridge starts for its client and for later ones (`bridge.gateways`).

The gateway is no child of the bridge, so it does not end with the first client. Its standard error
is the given log file. It writes `ready` to standard output once clients can connect, and nothing if
they cannot.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    if hasattr(os, "fork") and os.fork():
        os._exit(0)  # A program that ends all descendants of a client does not find the gateway.
    from mcpx.cli import codes
    from mcpx.cli.command_table import COMMANDS
    from mcpx.cli.parsing import parser_of
    from mcpx.cli.running import print_mistakes
    from mcpx.cli.target import found
    from mcpx.model.errors import ConfigError

    parser = parser_of(COMMANDS["serve"])
    parser.add_argument("--log-file", required=True)
    parser.add_argument("--lock", type=int)
    try:
        options = parser.read(list(sys.argv[1:] if argv is None else argv))
        from mcpx.cli.serve import Background, serve

        def started() -> None:
            os.write(1, b"ready\n")
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.close(null)
            if options.lock is not None:
                os.close(options.lock)

        background = Background(float(options.linger), Path(options.log_file), started)
        return serve(found(options), options, os.environ, background)
    except ConfigError as error:
        print_mistakes(error, False)
        return codes.MISTAKE


if __name__ == "__main__":
    sys.exit(main())
