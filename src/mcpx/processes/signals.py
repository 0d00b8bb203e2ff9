"""How this process hears that it is to end, or to read its file again: one function for each kind
of system.

`end` is called for Ctrl-C, SIGTERM and, on Windows, Ctrl-Break and a console window that is closed;
`hang_up` for SIGHUP, which Windows has not. Both are called in the loop. Windows' loop takes no
signal handlers, so Python's own are used, which only tell the loop.
"""

import asyncio
import signal
from collections.abc import Callable

from mcpx.base import PORTABLE

Heard = Callable[[], None]
_ENDS = ("SIGINT", "SIGTERM", "SIGBREAK")


def listen(end: Heard, hang_up: Heard) -> None:
    """For as long as the process lives."""
    (_by_python if PORTABLE else _by_loop)(end, hang_up)


def _by_loop(end: Heard, hang_up: Heard) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, hang_up)


def _by_python(end: Heard, hang_up: Heard) -> None:
    loop = asyncio.get_running_loop()

    def hears(what: Heard) -> Callable[[int, object], None]:
        def heard(number: int, frame: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(what)

        return heard

    for name, what in (*((name, end) for name in _ENDS), ("SIGHUP", hang_up)):
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, hears(what))
