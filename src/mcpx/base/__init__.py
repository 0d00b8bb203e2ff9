"""Mechanisms that every package uses. They know nothing of MCP and import nothing of mcpx.

`MCPX_SYSTEM=portable` makes Linux behave like Windows, so that the tests can run that code there.
"""

import os
import sys
from typing import Final

WINDOWS: Final = sys.platform == "win32"
SIMULATES_WINDOWS: Final = os.environ.get("MCPX_SYSTEM") == "portable"
PORTABLE: Final = WINDOWS or SIMULATES_WINDOWS
"""Without Unix sockets, and without signals and inherited pipes in the event loop."""
