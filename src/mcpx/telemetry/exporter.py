"""Sends records to a collector in batches, without making anything else wait.

Records that the collector does not take are kept within a bound and sent again. Records beyond the
bound are dropped and counted. An outage is logged once, and its end too.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from mcpx.base.aio import Tasks

if TYPE_CHECKING:
    from mcpx.wire.fetch import Fetcher

log = logging.getLogger(__name__)

BATCH_SECONDS: Final = 2.0
"""Time for which a record waits for others."""
BATCH_SIZE: Final = 512
"""Records of one batch. That many do not wait for more."""
MAX_RECORDS: Final = 4096
MAX_BYTES: Final = 4 << 20
"""Bounds of the queue."""
TIMEOUT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 1.5
"""Time to send the rest at the end."""
RETRY_SECONDS: Final = (2.0, 30.0)
"""The shortest and the longest pause between tries while the collector is down."""
RETRY_STATUSES: Final = (429, 502, 503, 504)


class Undelivered(Exception):
    """A batch was not taken. `is_final`: it never will be."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


Send = Callable[[Sequence[bytes], float], Awaitable[None]]
"""Sends a batch. The number is the time limit in seconds. Raises `Undelivered`."""


class Exporter:
    def __init__(self, subject: str, unit: str, send: Send) -> None:
        """`subject` and `unit` are for log messages: "traces", "spans"."""
        self._subject = subject
        self._unit = unit
        self._send = send
        self._records: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._has_records, self._has_batch, self._closing = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )
        self._tasks = Tasks(subject)
        self._task: asyncio.Task[None] | None = None
        self._is_down = False

    def start(self) -> None:
        self._task = self._tasks.start(self._run(), apart=True)

    def add(self, record: bytes) -> None:
        if len(self._records) >= MAX_RECORDS or self._size + len(record) > MAX_BYTES:
            self._dropped += 1
            return
        self._records.append(record)
        self._size += len(record)
        if len(self._records) == 1:
            self._has_records.set()
        elif len(self._records) == BATCH_SIZE:
            self._has_batch.set()

    async def close(self) -> None:
        """Send the rest, if the collector takes it at once."""
        for event in (self._closing, self._has_records, self._has_batch):
            event.set()
        if self._task is not None:
            # Not cancelled at once: a batch that is on its way would be sent twice.
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        await self._tasks.close()
        if lost := len(self._records) + self._dropped:
            log.warning("%d %s did not reach the collector", lost, self._unit)

    async def _run(self) -> None:
        pause = 0.0
        while True:
            await self._has_records.wait()
            await _wait(BATCH_SECONDS, self._has_batch)
            if not self._records:
                return  # Closing.
            if await self._send_batch():
                pause = 0.0
            elif self._closing.is_set():
                return
            else:
                pause = min(max(RETRY_SECONDS[0], pause * 2), RETRY_SECONDS[1])
                await _wait(pause, self._closing)

    async def _send_batch(self) -> bool:
        """Send the oldest records once. False: the collector took none, and they stay in the
        queue."""
        batch = [self._records[n] for n in range(min(BATCH_SIZE, len(self._records)))]
        try:
            await self._send(batch, TIMEOUT_SECONDS)
        except Undelivered as error:
            self._report_outage(str(error))
            if not error.is_final:
                return False
            self._dropped += len(batch)
        else:
            self._report_delivery()
        for record in batch:
            self._records.popleft()
            self._size -= len(record)
        if not self._closing.is_set():
            if not self._records:
                self._has_records.clear()
            if len(self._records) < BATCH_SIZE:
                self._has_batch.clear()
        return True

    def _report_delivery(self) -> None:
        if self._is_down or self._dropped:
            dropped, self._dropped = self._dropped, 0
            log.warning(
                "%s reach the collector again; %d %s were dropped",
                self._subject,
                dropped,
                self._unit,
            )
        self._is_down = False

    def _report_outage(self, why: str) -> None:
        if not self._is_down:
            self._is_down = True
            text = (
                "%s do not reach the collector: %s. They are kept for a while, and it is tried "
                "again"
            )
            log.warning(text, self._subject, why)


async def _wait(seconds: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def post(
    fetcher: "Fetcher", url: str, headers: Sequence[tuple[str, str]], body: bytes, timeout: float
) -> None:
    """POST a batch. Raises `Undelivered`."""
    from mcpx.wire.fetch import Fetch, FetchFailed

    wanted = Fetch(
        url=url,
        method="POST",
        headers=tuple(headers),
        body=body,
        timeout=timeout,
        limit=1 << 20,
        redirects=0,
        allow_private=True,
    )
    try:
        answer = await fetcher.fetch(wanted)
    except (FetchFailed, ValueError) as error:
        raise Undelivered(str(error)) from None
    if not 200 <= answer.status < 300:
        raise Undelivered(
            f"it answers {answer.status}", is_final=answer.status not in RETRY_STATUSES
        )


def otlp_url(base: str, path: str) -> str:
    """The address for OTLP over HTTP: `path` below the collector's address, unless the address has
    it already."""
    address, mark, query = base.partition("?")
    address = address.rstrip("/")
    return (address if address.endswith(path) else address + path) + mark + query
