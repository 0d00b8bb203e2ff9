"""Is this URI an expansion of that URI template? (RFC 6570, levels 1 to 3, as MCP servers use
them.)

Promised: nothing backtracks; the time is at worst the length of the template times that of the URI
divided by 64, whatever both contain. A template that is malformed, too long or uses an unknown
operator matches nothing. Not promised: which variable got what (the server finds that out itself),
and strictness: `{x}` takes any character but `/ ? #`, encoded or not, because servers do; a prefix
length (`{x:3}`) is read and not enforced; literals are compared as they stand, not percent-encoded.

How: a set of positions in the URI is one integer, with bit *i* for "all before character *i* is
matched". Each step of the template turns one such set into the next with a few shifts, so that all
ways to match are followed at once. The closure over a run of characters is the carry of an addition
(`_run`).
"""

import re
from collections.abc import Callable

LONGEST_TEMPLATE = 1_024
"""Longer templates are listed and match nothing."""
LONGEST_EXPANSION = 8_192
"""Longer URIs are the expansion of nothing."""

_VARIABLE = r"[\w%][\w.%-]*+(?:\*|:\d{1,4})?"
_PART = re.compile(rf"([^{{}}]+)|\{{([+#./;?&]?)({_VARIABLE}(?:,{_VARIABLE})*+)\}}")


class Positions:
    """One URI, indexed once, for all the templates it is held against."""

    __slots__ = ("_at", "every", "uri")

    def __init__(self, uri: str) -> None:
        self.uri = uri
        at: dict[str, int] = {}
        for position, character in enumerate(uri):
            at[character] = at.get(character, 0) | 1 << position
        self._at = at
        self.every = (1 << len(uri)) - 1

    def of(self, characters: str) -> int:
        """Where any of these characters stands."""
        found = 0
        for character in characters:
            found |= self._at.get(character, 0)
        return found

    def but(self, characters: str) -> int:
        return self.every & ~self.of(characters)

    def after(self, here: int, text: str) -> int:
        """Past `text`, for those positions it begins at."""
        for character in text:
            here = (here & self._at.get(character, 0)) << 1
            if not here:
                break
        return here


Step = Callable[[Positions, int], int]


class Template:
    """A compiled template. Compile once, match often."""

    __slots__ = ("_head", "_steps", "usable")

    def __init__(self, template: str) -> None:
        steps = _compile(template) if len(template) <= LONGEST_TEMPLATE else None
        self.usable = steps is not None
        self._head = template.partition("{")[0]
        self._steps = steps or []

    def may_match(self, uri: str) -> bool:
        """The cheap part: nearly every template is ruled out by how it begins."""
        return self.usable and len(uri) <= LONGEST_EXPANSION and uri.startswith(self._head)

    def matches(self, at: Positions) -> bool:
        if not self.may_match(at.uri):
            return False
        here = 1 << len(self._head)
        for step in self._steps:
            here = step(at, here)
            if not here:
                return False
        return bool(here >> len(at.uri))


def _compile(template: str) -> list[Step] | None:
    """The steps after the leading literal, or None for what is not a template."""
    steps: list[Step] = []
    end = 0
    while end < len(template):
        part = _PART.match(template, end)
        if part is None:
            return None
        literal, operator, variables = part.groups()
        if literal is None:
            steps.append(_expression(operator, variables.split(",")))
        elif end:
            steps.append(_literal(literal))
        end = part.end()
    return steps


def _expression(operator: str, variables: list[str]) -> Step:
    exploded = any(variable.endswith("*") for variable in variables)
    if operator in ("?", "&"):
        return _query(
            operator, None if exploded else [variable.partition(":")[0] for variable in variables]
        )
    if operator in ("+", "#"):
        refused = ""
    elif operator == "/" and (exploded or len(variables) > 1):
        refused = "?#"
    else:
        refused = "/?#"
    if operator in ("", "+"):
        return lambda at, here: _run(here, at.but(refused))
    # The others put their own character first, and nothing at all when no variable has a value.
    return lambda at, here: here | _run(at.after(here, operator), at.but(refused))


def _literal(text: str) -> Step:
    return lambda at, here: at.after(here, text)


def _query(operator: str, names: list[str] | None) -> Step:
    """`{?x,y}` and `{&x,y}`: nothing, or parameters in any order, all of them named in the
    template.

    `names` is None when a variable is exploded: then the names are the client's.
    """

    def step(at: Positions, here: int) -> int:
        start = at.after(here, operator)
        if not start:
            return here
        if names is None:
            return here | _run(start, at.but("#"))
        ampersands = at.of("&")
        in_name = at.but("=&#")
        candidates = start | ampersands << 1
        # A name counts where it begins a parameter and is all of its name.
        known = 0
        for name in names:
            known |= (at.after(candidates, name) & ~in_name) >> len(name)
        # Run on over every parameter that is known; stop before the `&` of one that is not.
        reached = _run(start & known, at.but("#") & ~(ampersands & ~(known >> 1)))
        # One cannot stop in the middle of a name.
        return here | reached & ~(_run(known, in_name) & in_name)

    return step


def _run(here: int, allowed: int) -> int:
    """`here`, and every position reached from there over allowed characters only.

    Added to a run of ones, a start bit carries to just past the run and clears what it passed; `^`
    shows all that changed. (A start bit that a carry comes by sets its own place again: `| here`
    puts that back.)
    """
    return (((here & allowed) + allowed) ^ allowed) | here
