"""`python -m mcpx`, and what the console script calls."""

import sys

from mcpx.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
