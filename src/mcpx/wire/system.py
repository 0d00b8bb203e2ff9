"""Which ways this system has, for whoever knows two ways of doing something.

`PORTABLE` is True where nothing is to be had that Linux and macOS share: Unix sockets, signals and
inherited pipes in the event loop. So it is on Windows, and wherever `MCPX_SYSTEM=portable` asks for
it: then Linux goes the ways of the others (no /proc either), which is how they are tested here.
"""

import os
import sys

FORCED = os.environ.get("MCPX_SYSTEM") == "portable"
WINDOWS = sys.platform == "win32"
PORTABLE = WINDOWS or FORCED
