"""The system's keyring, as far as mcpx uses it: texts under names of our own (the optional extra
`keyring`).

Promised: whatever a backend does, a name is answered within `PATIENCE` or `NoKeyring` says why not;
nothing of a value is in an error. Not promised: that other programs of this user cannot read them.
"""

import json
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from mcpx.model.call import as_list
from mcpx.model.errors import McpxError

T = TypeVar("T")

OURS = "mcpx"
"""What all entries of ours stand under."""
VAULT = "vault"
"""The entry that sign-ins and `enc:` values are encrypted with."""
_NAMES = ".names"
"""The entry that lists the others: keyrings cannot."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,99}")
PATIENCE = 3.0
"""Seconds a keyring may take: one that is locked asks a person, and everybody else waits
meanwhile."""


class NoKeyring(McpxError):
    """There is no keyring that can be used; says why."""

    def __init__(self, reason: str, *, absent: bool = False, slow: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent
        """There is none at all, so nobody expects it to be used."""
        self.slow = slow
        """It did not answer: asking again would take as long."""


def is_name(name: str) -> bool:
    """Whether a secret may be called so."""
    return name != VAULT and _NAME.fullmatch(name) is not None


def look_up(name: str) -> str | None:
    """What is kept under it, if anything. Raises `NoKeyring`, as do all here."""
    return _asked(lambda ring: ring.get_password(OURS, name))


def keep(name: str, value: str) -> None:
    def work(ring: Any) -> None:
        ring.set_password(OURS, name, value)
        names = _names(ring)
        if name not in names:
            ring.set_password(OURS, _NAMES, json.dumps(sorted([*names, name])))

    _asked(work, 60.0)


def remove(name: str) -> bool:
    """Whether there was one."""

    def work(ring: Any) -> bool:
        there = ring.get_password(OURS, name) is not None
        if there:
            ring.delete_password(OURS, name)
        names = _names(ring)
        if name in names:
            ring.set_password(OURS, _NAMES, json.dumps([each for each in names if each != name]))
        return there

    return _asked(work, 60.0)


def names() -> list[str]:
    """Those that `keep` was given."""
    return _asked(_names, 60.0)


def of_our_own(make: Callable[[], str]) -> str | None:
    """The key that mcpx itself encrypts with; made when it is not there."""

    def work(ring: Any) -> str | None:
        held = ring.get_password(OURS, VAULT)
        if held is None:
            ring.set_password(OURS, VAULT, make())
            held = ring.get_password(OURS, VAULT)  # as it was kept, should two have been at it
        return None if held is None else str(held)

    return _asked(work)


def _names(ring: Any) -> list[str]:
    try:
        listed: Any = json.loads(ring.get_password(OURS, _NAMES) or "[]")
    except ValueError:
        return []
    return list(map(str, as_list(listed)))


def _asked(work: Callable[[Any], T], patience: float | None = None) -> T:
    from importlib.util import find_spec

    if find_spec("keyring") is None:
        from mcpx.auth.keyring_advice import install_advice

        raise NoKeyring(f"the library 'keyring' is not installed ({install_advice()})", absent=True)
    from mcpx.auth.keyring_advice import usage_advice

    found: list[T] = []
    why: list[NoKeyring] = []

    def look() -> None:
        import keyring  # pyright: ignore[reportMissingImports]

        ring: Any = keyring
        try:
            if ring.get_keyring().priority <= 0:
                # This is the backend that refuses everything.
                why.append(NoKeyring(f"there is no keyring here ({usage_advice()})", absent=True))
            else:
                found.append(work(ring))
        except Exception as error:  # noqa: BLE001 - its text may contain secrets
            why.append(
                NoKeyring(f"the keyring cannot be used: {type(error).__name__} ({usage_advice()})")
            )

    worker = threading.Thread(target=look, name="keyring", daemon=True)
    worker.start()
    worker.join(PATIENCE if patience is None else patience)
    if found:
        return found[0]
    if worker.is_alive():
        raise NoKeyring(f"the keyring does not answer ({usage_advice()})", slow=True)
    raise why[0] if why else NoKeyring("the keyring cannot be used")
