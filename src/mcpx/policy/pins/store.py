"""All pinned servers of a gateway, by name, and what is kept of them on disk."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from mcpx.policy.pins.kept import Kept, PinFile, Unreadable
from mcpx.policy.pins.pinned import Pinned, Trust
from mcpx.policy.pins.takeovers import Elsewhere

log = logging.getLogger(__name__)

FOLDER = "pins"


class Pins:
    def __init__(self, folder: Path | None) -> None:
        """`folder`: where state is kept; None keeps nothing."""
        self.folder = None if folder is None else folder / FOLDER
        self.changed: Callable[[str], None] = lambda _: None
        """Told of a server of which something is to be kept."""
        self.elsewhere: Callable[[str], Elsewhere] = lambda _: {}
        """What servers other than this one have."""
        self._servers: dict[str, Pinned] = {}
        self._warned = False

    @property
    def servers(self) -> Mapping[str, Pinned]:
        """Those that were needed by now."""
        return self._servers

    def of(self, server: str, trust: Trust | None = None) -> Pinned:
        """The same object as long as the process lives: what was approved counts, whatever is
        configured meanwhile."""
        found = self._servers.get(server)
        if found is None:
            kept, broken = self._read(server)
            found = self._servers[server] = Pinned(
                server,
                kept or Kept(),
                lambda: self.changed(server),
                lambda: self.elsewhere(server),
                broken,
                lambda: self._read_again(server),
            )
            if broken is not None:
                log.error("[%s] all of it is held back: %s", server, broken)
        if trust is not None:
            found.mode(trust)
        return found

    def _read(self, server: str) -> tuple[Kept | None, str | None]:
        if self.folder is None:
            if not self._warned:
                self._warned = True
                log.warning(
                    "there is no state folder: what is pinned is forgotten when this process ends"
                )
            return None, None
        try:
            return PinFile(self.folder, server).load(), None
        except Unreadable as problem:
            return None, str(problem)

    def _read_again(self, server: str) -> Kept | None:
        """What is on disk by now; what cannot be read holds everything back, as it does from the
        beginning."""
        kept, broken = self._read(server)
        if broken is not None:
            self._servers[server].broken = broken
            log.error("[%s] all of it is held back: %s", server, broken)
        return kept

    def mark(self, server: str) -> tuple[int, int] | None:
        """What tells one state of a file from another."""
        if self.folder is None:
            return None
        try:
            about = PinFile(self.folder, server).path.stat()
        except OSError:
            return None
        return about.st_mtime_ns, about.st_ino

    def read(self, server: str) -> Kept | None:
        """As it is on disk now; None where nothing is, or nothing that can be read."""
        try:
            return None if self.folder is None else PinFile(self.folder, server).load()
        except Unreadable as problem:
            log.warning("[%s] %s", server, problem)
            return None

    def believes(self, server: str) -> bool:
        """Whether what the definitions of a server say of themselves counts: of one that is not
        pinned, as the user trusts it; of a pinned one, as only approved definitions are let
        through."""
        found = self._servers.get(server)
        return found is None or found.broken is None

    def write(self, server: str, kept: Kept, *, mend: bool) -> Kept | None:
        """Keep it, as others may have it by now; for a thread. None: there is nothing to keep it
        in."""
        return None if self.folder is None else PinFile(self.folder, server).save(kept, mend=mend)
