"""The gateway that a bridge starts for itself and for whoever comes after it (`bridge.gateways`).

Promise: it is nobody's child, so that it does not end with the client that happened to be first;
its standard error is the log it was given. It says `ready` on standard output once clients can
come, and nothing if they cannot.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    if hasattr(os, "fork") and os.fork():
        os._exit(0)  # whoever ends all descendants of a client finds nothing below this
    from mcpx.cli import codes
    from mcpx.cli.parsing import tell_mistakes
    from mcpx.cli.table import COMMANDS
    from mcpx.cli.where import found, overlay
    from mcpx.model.errors import ConfigError

    parser = COMMANDS["serve"].parser()
    parser.add_argument("--log-file", required=True)
    parser.add_argument("--lock", type=int)
    try:
        options = parser.read(list(sys.argv[1:] if argv is None else argv))
        from mcpx.cli.serve import Background, serve
        from mcpx.cli.state import state_folder

        def started() -> None:
            os.write(1, b"ready\n")
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.close(null)
            if options.lock is not None:
                os.close(options.lock)

        background = Background(float(options.linger), Path(options.log_file), started)
        return serve(
            found(options),
            options,
            os.environ,
            overlay(options),
            state_folder(os.environ),
            background,
        )
    except ConfigError as error:
        tell_mistakes(error, False)
        return codes.MISTAKE


if __name__ == "__main__":
    sys.exit(main())
