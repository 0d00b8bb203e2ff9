"""The gateway itself: what it is, where it is found, and all there is to know for a report of a
problem."""

import os
import platform
import sys
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

from mcpx.admin.desk import Desk
from mcpx.admin.people import People
from mcpx.admin.shapes.watching import About, ReplicaRow, ReplicasTold
from mcpx.admin.wording import plain, quoted, told_at
from mcpx.model.call import Json
from mcpx.wire import descriptors

PACKAGES = (
    "mcpx-gateway",
    "pydantic",
    "orjson",
    "uvloop",
    "httptools",
)


def about(desk: Desk) -> About:
    told, config = desk.about(), desk.gateway.generation.config
    auth = config.server.auth
    return About(
        version=told.version,
        python=platform.python_version(),
        transport=told.transport,
        url=told.url,
        admin_url=told.admin_url or "",
        started=told_at(told.started),
        config=None if told.config is None else plain(str(told.config)),
        state=None if told.state is None else plain(str(told.state)),
        env=told.env,
        pid=os.getpid(),
        memory_mb=_memory(),
        mode=config.mode,
        auth="none" if auth is None else auth.type,
        links=_links(told.url, config.server.metrics),
    )


def replicas(desk: Desk) -> ReplicasTold:
    rows: list[ReplicaRow] = []
    for each in desk.store.replicas():
        etag, started = quoted(each["etag"]) if each["etag"] else "", told_at(each["started_at"])
        rows.append(ReplicaRow(**plain({**each, "etag": etag, "started_at": started})))
    return ReplicasTold(replicas=rows)


def _links(url: str | None, metrics: bool) -> dict[str, str]:
    if url is None:
        return {}
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    found = {"health": f"{base}/health", "ready": f"{base}/ready"}
    return {**found, "metrics": f"{base}/metrics"} if metrics else found


def _memory() -> float | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


async def diagnostics(desk: Desk, people: People) -> Json:
    """A report of the state, without the content of calls, secrets, values of environments, and
    arguments."""
    gateway = desk.gateway
    settings = gateway.generation.config.global_
    told: dict[str, Any] = {
        "about": about(desk).model_dump(),
        "platform": {
            "system": platform.platform(),
            "python": sys.version,
            "machine": platform.machine(),
            "processors": os.cpu_count(),
            "open_files_limit": descriptors.soft_limit(),
        },
        "packages": {name: _version(name) for name in PACKAGES},
        "status": await gateway.describe(),
        "health": gateway.health(),
        "figures": gateway.figures(),
        "refused": dict(gateway.refusals()),
        "replicas": desk.store.replicas(),
        "config": {**desk.store.status(), "files": await _files(desk)},
        "log": {
            "level": settings.log_level,
            "format": settings.log_format,
            "file": settings.log_file,
        },
        "clients": [row.model_dump() for row in people.rows()],
    }
    if desk.statistics is not None:
        _, points = desk.statistics.points("1h")
        told["calls_last_hour"] = sum(point.calls for point in points)
        told["errors_last_hour"] = desk.statistics.errors_last_hour()
    return plain(gateway.redactor.redact_values(told))


async def _files(desk: Desk) -> list[Json]:
    """The configuration without comments, values of environments, and arguments; other secrets are
    masked."""
    written = await desk.store.look()
    return [
        {
            "path": str(document.path),
            "format": document.format,
            "content": "(unreadable)" if tree is None else tree,
        }
        for document, tree in written.outlines()
    ]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
