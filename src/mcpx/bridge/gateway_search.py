"""Finds or starts the next gateway in a thread, while the bridge continues to serve its client."""

import socket
import time
from collections import deque
from collections.abc import Callable
from threading import Thread

from mcpx.bridge import gateways
from mcpx.bridge.gateways import Attachment, Refused, Wanted

RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
RESTART_SECONDS = 0.5
"""Time in which a gateway that a user started may be restarted, before one is started in the
background."""
FINAL_REASONS = ("start", "state", *gateways.SAID_SO)
"""Refusals that also hold for a gateway of this client alone."""


class GatewaySearch:
    def __init__(self, wanted: Wanted, log: Callable[[str], None], wake: socket.socket) -> None:
        """A byte is sent to `wake` when a search has ended."""
        self._wanted = wanted
        self._log = log
        self._wake = wake
        self._is_running = False
        self._failures = 0
        self._results: deque[Attachment | Refused] = deque()
        self.retry_at: float | None = None
        self.problem = "no gateway runs"

    def start(self, *, wait_for_restart: bool = False) -> None:
        if not self._is_running:
            self._is_running = True
            Thread(target=self._run, args=(wait_for_restart,), daemon=True).start()

    def start_if_due(self, now: float) -> None:
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at = None
            self.start()

    def result(self) -> Attachment | None:
        """Return the gateway that was found, if a search has ended and found one."""
        if not self._results:
            return None
        found = self._results.popleft()
        self._is_running = False
        if isinstance(found, Attachment):
            self._failures = 0
            self.retry_at = None
            return found
        self.problem = found.error
        if self._failures == 0:
            self._log(f"no gateway: {self.problem}")
        pause = RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        self._failures += 1
        self.retry_at = time.monotonic() + pause
        return None

    def _run(self, wait_for_restart: bool) -> None:
        try:
            found = self._search(wait_for_restart)
        except Exception as error:  # noqa: BLE001 - the client needs an answer in any case
            found = Refused("start", f"{type(error).__name__}: {error}")
        self._results.append(found)
        try:
            self._wake.send(b"\0")
        except BlockingIOError:
            pass

    def _search(self, wait_for_restart: bool) -> Attachment | Refused:
        deadline = time.monotonic()
        if wait_for_restart:
            deadline += RESTART_SECONDS
        found = gateways.find_running(self._wanted)
        while found is None and time.monotonic() < deadline:
            time.sleep(gateways.PAUSE)
            found = gateways.find_running(self._wanted)
        if found is None:
            found = gateways.find(self._wanted)
        if isinstance(found, Refused) and found.reason not in FINAL_REASONS:
            if self._failures == 0:
                self._log(f"{found.error}; this client gets a gateway of its own")
            return gateways.own(self._wanted)
        return found
