"""Lists of patterns: which names a profile or a rule means.

A pattern is a glob (`*`, `?`, `[...]`), letter by letter; a leading `!` leaves out. The last
pattern of a list that matches decides; a list of `!` patterns only means all but those. What was
asked before is remembered, within bounds.
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate

from mcpx.base.caching import Lru

REMEMBERED = 4_096
"""Cached answers of one list."""
LONGEST = 1_024
"""Characters of names of which an answer is kept: strangers choose them."""

_SPECIAL = re.compile(r"[*?\[]")


class Patterns:
    __slots__ = ("_answers", "_globs", "_last_resort", "_plain", "only", "texts")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.texts = tuple(patterns)
        bare = [text.removeprefix("!") for text in self.texts]
        self._plain = {text: index for index, text in enumerate(bare) if not _SPECIAL.search(text)}
        """Patterns without a star are names: looked up, however many there are."""
        self._globs = [
            (index, _matcher(text))
            for index, text in reversed(tuple(enumerate(bare)))
            if _SPECIAL.search(text)
        ]
        single = len(self.texts) == len(self._globs) == 1 and not self.texts[0].startswith("!")
        self.only: Callable[[str], object] | None = None
        """Matches a text, if there is only one pattern."""
        if single:
            self.only = self._globs[0][1]
        self._last_resort = bool(self.texts) and all(text.startswith("!") for text in self.texts)
        self._answers: Lru[tuple[str, ...], bool] = Lru(REMEMBERED)

    @property
    def weight(self) -> int:
        """How many of them may have to be tried."""
        return len(self._globs)

    def matches(self, *names: str) -> bool:
        """`names`: all that the one thing is called."""
        answer = self._answers.get(names)
        if answer is None:
            answer = self.decides(*names)[0]
            if sum(map(len, names)) <= LONGEST:
                self._answers[names] = answer
        return answer

    def decides(self, *names: str) -> tuple[bool, int | None]:
        """Whether they are meant, and by which pattern; None: by none of them. Nothing is
        remembered."""
        last = -1
        if self._plain:
            last = max([self._plain.get(name, -1) for name in names], default=-1)
        for index, match in self._globs:
            if index < last:
                break
            if any(map(match, names)):
                last = index
                break
        if last < 0:
            return self._last_resort, None
        return not self.texts[last].startswith("!"), last


def _matcher(glob: str) -> Callable[[str], object]:
    """A part of a name is looked for as such: the pattern would take many times as long with a long
    text."""
    part = glob.strip("*")
    if part and not _SPECIAL.search(part):
        if glob[0] != "*":
            return lambda text: text.startswith(part)
        if glob[-1] == "*":
            return lambda text: part in text
        return lambda text: text.endswith(part)
    return re.compile(translate(glob)).match
