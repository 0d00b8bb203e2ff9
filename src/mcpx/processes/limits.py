"""Resource limits of a child, imposed by its parent right after it was started.

Promise: what a child may use at most is lowered, soft and hard, so that it cannot raise it again;
its descendants inherit it. No `preexec_fn`, which would cost a fork of all our memory and is unsafe
beside threads. No promise: between the start of the program and this there are some ten
microseconds, in which an interpreter is still being loaded, or as long as a busy machine lets us
wait; and no limit outside Linux, or for a program that runs as another user.
"""

import logging
from collections.abc import Mapping

_log = logging.getLogger("mcpx.process")


def impose(pid: int, limits: Mapping[int, int]) -> None:
    """Lower these limits (`resource.RLIMIT_…`) of a child that was just started; what is lower
    already stays."""
    if not limits:
        return
    import resource

    prlimit = getattr(resource, "prlimit", None)
    if prlimit is None:
        return
    none = resource.RLIM_INFINITY
    for which, most in limits.items():
        try:
            soft, hard = prlimit(pid, which)
            hard = most if hard == none else min(most, hard)
            prlimit(pid, which, (hard if soft == none else min(soft, hard), hard))
        except ProcessLookupError:
            return
        except (OSError, ValueError) as error:
            _log.debug("no limit %d for %d: %s", which, pid, error)
