"""When a server that went away is tried again (LIF-4). Pure arithmetic: no clock, no task, no
connection of its own.

A *life* is one attempt to have a connection, from its start to its loss; one that never came up is
a life too.

* The first restart after a life that answered a call is immediate.
* After that the pause is `retry_delay` x 2^n with jitter, at most a minute; n falls back only after
  a life of a minute.
* After `max_retries` quick tries it is once a minute.
* A call may have a life begin before its time; that it failed does not put off the time. Else calls
  that come while
  a server is restarted would use up its quick tries within milliseconds.
* Five lives in a row without one answered call open the circuit: calls fail at once until the next
  try.
"""

import random
from dataclasses import dataclass

LONGEST_PAUSE = 60.0
STEADY_LIFE = 60.0
"""A life of so many seconds counts as recovered."""
BARREN_LIVES = 5
"""Lives in a row without an answered call that open the circuit."""


@dataclass(slots=True)
class Recovery:
    retry_delay: float
    max_retries: int
    failures: int = 0
    """Restarts since the last steady life."""
    barren: int = 0
    """Lives in a row that answered no call."""
    restarts: int = 0
    """Of all time, for people."""
    _began: float | None = None
    _due: float = 0.0
    """When the present life was to begin; earlier, if a call wanted it."""
    _served: bool = False

    def begin(self, now: float) -> None:
        """A life begins."""
        self._began = now
        self._served = False

    def served(self) -> None:
        """The present life answered a call."""
        self._served = True
        self.barren = 0

    def end(self, now: float) -> float:
        """The life is over; how long to wait before the next."""
        lasted = now - self._began if self._began is not None else 0.0
        early = self._began is not None and self._began < self._due
        served = self._served
        self._began, self._served = None, False
        self.restarts += 1
        if not served:
            self.barren += 1
            if early and now < self._due:
                return self._due - now
        if lasted >= STEADY_LIFE:
            self.failures = 0
        self.failures += 1
        pause = self._pause(served)
        self._due = now + pause
        return pause

    def _pause(self, served: bool) -> float:
        if served and self.failures == 1:
            return 0.0
        if self.failures > self.max_retries:
            return LONGEST_PAUSE
        pause = min(self.retry_delay * 2 ** (self.failures - 1), LONGEST_PAUSE)
        return pause * random.uniform(0.75, 1.25) if pause < LONGEST_PAUSE else LONGEST_PAUSE

    def rest(self) -> None:
        """The life ended on purpose: nothing to recover from."""
        self._began, self._served = None, False

    @property
    def circuit_open(self) -> bool:
        return self.barren >= BARREN_LIVES
