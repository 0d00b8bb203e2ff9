"""Figures of this process, under the names that every client library of Prometheus gives them."""

import os
import time

from mcpx.telemetry.prometheus import Text
from mcpx.wire import descriptors


def write(text: Text) -> None:
    """What cannot be known on this system is left out."""
    times = os.times()
    text.one(
        "process_cpu_seconds_total",
        "counter",
        "Processor time of the gateway itself.",
        times.user + times.system,
    )
    pages = _pages()
    if pages is not None:
        virtual, resident = pages
        text.one(
            "process_virtual_memory_bytes", "gauge", "Address space of the gateway itself.", virtual
        )
        text.one(
            "process_resident_memory_bytes", "gauge", "Memory of the gateway itself.", resident
        )
    text.one("process_open_fds", "gauge", "Files and sockets that are open.", _open())
    text.one("process_max_fds", "gauge", "How many may be open.", descriptors.soft_limit())
    text.one("process_start_time_seconds", "gauge", "When the gateway was started.", _started())


def _pages() -> tuple[int, int] | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = file.read().split()[:2]
    except OSError:
        return None
    size = os.sysconf("SC_PAGE_SIZE")
    return int(virtual) * size, int(resident) * size


def _open() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # the folder itself
    except OSError:
        return None


def _started() -> float | None:
    """By the kernel's own word: ticks since it booted, behind the name, which may hold anything."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return round(booted + ticks / os.sysconf("SC_CLK_TCK"), 1)
    except (OSError, ValueError, IndexError, AttributeError):
        return None
