"""What a client that opens the bundle runs, in an environment that uv has made of the bundle's
pyproject.toml."""

import sys

from mcpx.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
