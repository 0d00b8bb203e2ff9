"""Removes the report that old Python servers print about the `server/discover` probe.

Servers with version 1 of the Python SDK answer the probe with an error, as they should, and write a
validation report of some 90 lines to standard error. It tells nothing about the server, so it does
not get into the log, the last lines of the server, or the reason of an error. Reports about other
requests pass.
"""

import logging
import re

_log = logging.getLogger("mcpx.server")

_FIRST_LINE = re.compile(rb"[^\n]*Failed to validate request: \d+ validation error[^\n]*\n")
_METHOD = b"server/discover"
_PART = re.compile(rb"\s|$|\w+(?:Request|Notification|Result|Params)\b[^\s:]*\s*$")
"""A line of a report: an indented one, or the name of a type and a field."""
MAX_REPORT_BYTES = 64 * 1024
MAX_LINE_BYTES = 8 * 1024


class DiscoveryReportFilter:
    """Feed it the bytes of standard error; it returns what to pass on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = 0
        """Bytes that the current report may still have; 0 outside of a report."""
        self._partial = b""

    def passed(self, data: bytes) -> bytes:
        if not self._left:
            found = _FIRST_LINE.search(data) if _METHOD in data else None
            if found is None:
                return data
            _log.debug(
                "[%s] reports that it does not know server/discover: it has version 1 of the SDK",
                self._name,
            )
            self._left = MAX_REPORT_BYTES
            return data[: found.start()] + self._rest(data[found.end() :])
        return self._rest(data)

    def end(self) -> bytes:
        """The unfinished line of a report at the end of the output."""
        rest, self._partial = self._partial, b""
        return b"" if _PART.match(rest) else rest

    def _rest(self, data: bytes) -> bytes:
        """The text after the report. Empty while the report continues."""
        lines = (self._partial + data).splitlines(keepends=True)
        self._partial = b""
        for index, line in enumerate(lines):
            if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
                self._partial = line
                return b""
            self._left -= len(line)
            if self._left <= 0 or not _PART.match(line):
                self._left = 0
                return self.passed(b"".join(lines[index:]))
        return b""
