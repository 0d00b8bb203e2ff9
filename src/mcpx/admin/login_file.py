"""`LoginFile`: an HTML file that leads a browser to a login URL.

All users of a machine can read the arguments of a browser program. A login URL therefore does not
go to the browser as an argument. The browser gets the path of this file instead, which only its
owner can read.
"""

import asyncio
from html import escape
from pathlib import Path

from mcpx.admin.keys import PASS_LIFE
from mcpx.wire.folders import replace_private

PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}">
<title>mcpx</title>
<p><a href="{url}">Open the admin UI of mcpx</a></p>
"""


class LoginFile:
    """At most one file for each admin port. It is deleted when its token expires, and when the
    gateway ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._expiry: asyncio.TimerHandle | None = None

    async def write(self, login_url: str) -> Path:
        """Replace the previous file. Raises OSError."""
        content = PAGE.format(url=escape(login_url)).encode()
        await asyncio.to_thread(replace_private, self._path, content)
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(PASS_LIFE, self._delete)
        return self._path

    def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._delete()

    def _delete(self) -> None:
        self._expiry = None
        self._path.unlink(missing_ok=True)
