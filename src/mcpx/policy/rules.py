"""The rules of a configuration: what is done with a call, and what is not even shown. The first
that matches counts.

A rule with `tools`, `read_only`, `destructive` or `arguments` concerns tools only; one without any
of these concerns all that its servers offer. What the gateway answers itself (server `mcpx`) is
concerned only where a rule names it.

A `deny` without a reason that holds whatever the arguments are *hides*: what it concerns reads as
unknown. So does `default: deny`. With a reason it is shown, and refused with that reason. Where a
tool may be called with some arguments it is never hidden.

Most of a rule is known before a call comes. For each kind of caller and each tool the rules that
may still match are worked out once: those that depend on arguments, up to the first that does not.
That is a pure function of what it is remembered by, so it is never wrong, only forgotten: all at
once, when there are too many, or with the configuration.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final, Literal, NamedTuple

from mcpx.base.aio import Pace
from mcpx.base.caching import Lru
from mcpx.config import Policy, PolicyRule
from mcpx.model.call import Json, Value, as_object
from mcpx.model.events import Passage
from mcpx.model.offer import Offer
from mcpx.policy.arguments import (
    SpelledNames,
    TooManySpellings,
    Unjudged,
    conditions_of,
    is_much,
    readings,
)
from mcpx.policy.patterns import Patterns

OURS: Final = "mcpx"
"""The server that the gateway's own tools belong to."""
COMMANDS: Final = "commands"
"""The service of the local commands."""
REMEMBERED = 20_000
"""Pairs of caller and tool whose rules are remembered."""
PRINCIPALS = 10_000
"""Callers of whom it is remembered which rules may concern them."""
LONGEST = 1_024
"""Characters of a name with which something is remembered: a principal's, and those of a tool."""

Effect = Literal["allow", "deny", "ask"]


class Thing(NamedTuple):
    """What a call is aimed at, as far as rules look at it."""

    server: str
    name: str | None = None
    """A tool, as its server calls it; None: a prompt, a resource, anything that is no tool."""
    public: str = ""
    read_only: bool = False
    destructive: bool = True

    @property
    def is_tool(self) -> bool:
        return self.name is not None


class Left(NamedTuple):
    """What may still be decided about a tool when all but the arguments is known."""

    rules: "tuple[Rule, ...]"
    """Those that depend on the arguments, in order."""
    last: "Rule"
    """What counts if none of them matches."""
    hidden: bool
    """It should read as unknown."""

    def takes_long(self, passage: Passage) -> bool:
        """Whether so many rules have so much to look at that others should have their turns
        meanwhile."""
        return len(self.rules) > 1 and is_much(passage.params.get("arguments"))

    def decide(self, passage: Passage) -> "Rule":
        """The rule that counts for a call."""
        if self.rules:
            ways, declared = readings_of(passage), declared_names(passage)
            for rule in self.rules:
                if rule.holds(ways, declared):
                    return rule
        return self.last

    async def decide_in_turns(self, passage: Passage) -> "Rule":
        """The same as `decide`."""
        ways, declared, pace = readings_of(passage), declared_names(passage), Pace()
        for rule in self.rules:
            if rule.holds(ways, declared):
                return rule
            await pace.step()
        return self.last


class Finding(NamedTuple):
    """What one rule does with a tool."""

    rule: "Rule"
    matches: bool
    why: str
    """Why it does not match, or on which arguments it depends."""


_READ_ONLY: Final = {
    True: "the tool is not known to be read-only",
    False: "the tool is read-only",
}
_DESTRUCTIVE: Final = {
    True: "the tool does not destroy anything",
    False: "the tool may destroy something",
}
"""Why a rule does not match, by its value."""


class Rule:
    """One rule, ready to be held against calls."""

    def __init__(self, index: int, rule: PolicyRule) -> None:
        self.number = index
        """By which people know it, from 1; 0: what counts where no rule matches."""
        self.label = f"rule {index}"
        self.effect: Effect = rule.effect
        self._allows = rule.effect == "allow"
        self.reason = rule.reason
        arguments = rule.arguments or {}
        self.conditions = conditions_of(arguments)
        self.argument_names = tuple(arguments)
        self._spelled = SpelledNames(self.argument_names)
        self._profiles = rule.profiles
        self.principals = _patterns(rule.principals)
        self._servers = _patterns(rule.servers)
        self._names_us = OURS in (rule.servers or ())
        self._tools = _patterns(rule.tools)
        self._read_only = rule.read_only
        self._destructive = rule.destructive
        self.looks_at_hints = rule.read_only is not None or rule.destructive is not None
        self.tools_only = (
            rule.tools is not None or self.looks_at_hints or rule.arguments is not None
        )

    def concerns(self, profile: str | None, server: str) -> bool:
        """Whether anything of that server, reached that way, may be meant; who calls is not looked
        at."""
        if server == OURS and not self._names_us:
            return False
        return (self._profiles is None or profile in self._profiles) and (
            self._servers is None or self._servers.matches(server)
        )

    def means(self, thing: Thing) -> bool:
        """Of what `concerns` said yes to: whether this is meant, with one or other arguments."""
        return not self.tools_only or (thing.name is not None and self._what_not(thing) is None)

    def _what_not(self, thing: Thing) -> str | None:
        if self._tools is not None and not self._tools.matches(*names_of(thing)):
            return "tools does not match"
        if self._read_only is not None and self._read_only != thing.read_only:
            return _READ_ONLY[self._read_only]
        if self._destructive is not None and self._destructive != thing.destructive:
            return _DESTRUCTIVE[self._destructive]
        return None

    def holds(self, readings: tuple[Value, ...], declared: Collection[str] = ()) -> bool:
        """Whether the conditions hold for the arguments.

        The arguments may be read in several ways. One reading is enough to forbid; to allow, all
        readings must match. Arguments that cannot be judged count against the call. `declared`: the
        names in the schema of the tool.
        """
        allows = self._allows
        for arguments in readings:
            if self._judge(arguments) is not allows:
                return not allows
            if not isinstance(arguments, dict):
                continue
            try:
                for spelled in self._spelled.readings(arguments, declared):
                    if self._judge(spelled) is not allows:
                        return not allows
            except TooManySpellings:
                return not allows
        return allows

    def _judge(self, arguments: Value) -> bool:
        held = not self._allows
        if isinstance(arguments, dict):
            for condition in self.conditions:
                try:
                    held = condition.holds(arguments, self._allows)
                except (Unjudged, RecursionError):
                    held = not self._allows
                if not held:
                    break
        return held

    def why_not(self, profile: str | None, principal: str, thing: Thing) -> str | None:
        """Why it does not concern that tool, in words; None if it does."""
        if thing.server == OURS and not self._names_us:
            return f"servers does not name {OURS}"
        if self._profiles is not None and profile not in self._profiles:
            return "profiles does not match"
        if self.principals is not None and not self.principals.matches(principal):
            return "principals does not match"
        if self._servers is not None and not self._servers.matches(thing.server):
            return "servers does not match"
        if self.tools_only and not thing.is_tool:
            return "it concerns tools only"
        if not self.tools_only:
            return None
        return self._what_not(thing)


def _patterns(texts: Iterable[str] | None) -> Patterns | None:
    if texts is None:
        return None
    return Patterns(texts)


class Rules:
    def __init__(self, policy: Policy, believes: Callable[[str], bool]) -> None:
        """`believes`: whether what tools of a server say of themselves is taken at its word."""
        self._rules = tuple(Rule(index, rule) for index, rule in enumerate(policy.rules, 1))
        self._default = _otherwise(policy.default)
        self._ours = _otherwise("allow")
        self._believes = believes
        self._looks_at_hints = any(rule.looks_at_hints for rule in self._rules)
        self._about_principals = [
            (1 << at, r.principals) for at, r in enumerate(self._rules) if r.principals
        ]
        self._classes: Lru[str, int] = Lru(PRINCIPALS)
        self._left: Lru[tuple[str | None, int, Thing], Left] = Lru(REMEMBERED)
        self._met: Lru[tuple[str | None, str, str, str, str, str], Left] = Lru(REMEMBERED)
        """The same by all that a caller and an offer bring with them, where hints are not looked
        at."""

    # Calls
    # ----------------------------------------------------------------------------------------------

    def left(self, passage: Passage) -> Left:
        """What may still be decided about a call."""
        caller, offer = passage.call.caller, passage.offer
        if offer is None or self._looks_at_hints:
            return self._for(passage)
        key = (caller.profile, caller.principal, offer.kind, offer.server, offer.name, offer.public)
        left = self._met.get(key)
        if left is None:
            left = self._for(passage)
            if len(caller.principal) <= LONGEST and len(offer.name) + len(offer.public) <= LONGEST:
                self._met[key] = left
        return left

    # What is not shown
    # ---------------------------------------------------------------------------------------------

    def hidden(self, profile: str | None, principal: str, offer: Offer) -> bool:
        """Whether a tool, prompt, resource or template reads as unknown."""
        return self._of(profile, principal, self._thing(offer.server, offer.name, offer)).hidden

    def hidden_resource(self, profile: str | None, principal: str, server: str, uri: str) -> bool:
        """The same of a resource by its URI, listed or not: no rule looks at that, only at whose it
        is."""
        return self._of(profile, principal, Thing(server)).hidden

    def hidden_server(self, profile: str | None, principal: str, server: str) -> bool:
        """Whether nothing of a server can be shown, whatever it offers."""
        mask = self._class(principal)
        for at, rule in enumerate(self._rules):
            if not self._may_concern(at, rule, profile, mask, server):
                continue
            if rule.effect != "deny" or (rule.reason and not rule.conditions):
                return False
            if not rule.tools_only:
                return True
        return server != OURS and self._default.effect == "deny"

    def principal_class(self, principal: str) -> Hashable:
        """Callers of the same class are the same to all rules."""
        return self._class(principal)

    def findings(self, profile: str | None, principal: str, offer: Offer) -> list[Finding]:
        """All rules up to the first that matches whatever the arguments are."""
        thing = self._thing(offer.server, offer.name, offer)
        findings: list[Finding] = []
        for rule in self._rules:
            why = rule.why_not(profile, principal, thing)
            if why is None and not rule.conditions:
                return [*findings, Finding(rule, True, "")]
            if why is None:
                names = ", ".join(rule.argument_names)
                findings.append(Finding(rule, True, f"if the arguments match: {names}"))
            else:
                findings.append(Finding(rule, False, why))
        return [*findings, Finding(self._otherwise(thing), True, "no rule matches")]

    # Inside
    # ----------------------------------------------------------------------------------------------

    def _thing(self, server: str, name: str, offer: Offer | None) -> Thing:
        if offer is None and server == OURS:
            return Thing(server, name, "", True, False)
        if offer is None or offer.kind != "tools":
            return Thing(server)
        if not self._looks_at_hints or not self._believes(server):
            return Thing(server, offer.name, offer.public)
        read_only, destructive = hints_of(offer.definition)
        return Thing(server, offer.name, offer.public, read_only, destructive)

    def _otherwise(self, thing: Thing) -> Rule:
        """What counts if no rule matches."""
        if thing.server == OURS:
            return self._ours
        return self._default

    def _for(self, passage: Passage) -> Left:
        caller = passage.caller
        return self._of(
            caller.profile,
            caller.principal,
            self._thing(passage.server, passage.name, passage.offer),
        )

    def _of(self, profile: str | None, principal: str, thing: Thing) -> Left:
        mask = self._class(principal)
        key = (profile, mask, thing)
        left = self._left.get(key)
        if left is None:
            left = self._worked_out(profile, mask, thing)
            if len(thing.name or "") + len(thing.public) <= LONGEST:
                self._left[key] = left
        return left

    def _worked_out(self, profile: str | None, mask: int, thing: Thing) -> Left:
        depending: list[Rule] = []
        last = self._otherwise(thing)
        for at, rule in enumerate(self._rules):
            if self._may_concern(at, rule, profile, mask, thing.server) and rule.means(thing):
                if not rule.conditions:
                    last = rule
                    break
                depending.append(rule)
        hidden = not last.reason and all(rule.effect == "deny" for rule in (*depending, last))
        return Left(tuple(depending), last, hidden)

    def _may_concern(
        self, at: int, rule: Rule, profile: str | None, mask: int, server: str
    ) -> bool:
        return (rule.principals is None or bool(mask >> at & 1)) and rule.concerns(profile, server)

    def _class(self, principal: str) -> int:
        """One bit for each rule that looks at who calls, and means this one."""
        if not self._about_principals:
            return 0
        mask = self._classes.get(principal)
        if mask is None:
            mask = sum(
                bit for bit, patterns in self._about_principals if patterns.matches(principal)
            )
            if len(principal) <= LONGEST:
                self._classes[principal] = mask
        return mask


def arguments_of(passage: Passage) -> Value:
    """The arguments as they will be acted on: a local command fills in its defaults after it was
    let through."""
    given = passage.params.get("arguments")
    if passage.server != COMMANDS or passage.offer is None:
        return given
    from mcpx.commands.parameters import with_defaults

    if given is not None and not isinstance(given, dict):
        return given
    return with_defaults(as_object(passage.offer.definition.get("inputSchema")), as_object(given))


def readings_of(passage: Passage) -> tuple[Value, ...]:
    """The arguments as whoever is called may read them; a local command takes them as they are."""
    if passage.server == COMMANDS or passage.offer is None:
        given = arguments_of(passage)
        if given is None:
            given = {}
        return (given,)
    return readings(passage.params.get("arguments"), passage.offer.definition)


def declared_names(passage: Passage) -> Collection[str]:
    """The names of arguments in the schema of the tool."""
    if passage.offer is None:
        return ()
    schema = as_object(passage.offer.definition.get("inputSchema"))
    return as_object(schema.get("properties")).keys()


def hints_of(definition: Json) -> tuple[bool, bool]:
    """Whether a tool says that it changes nothing, and whether it may destroy something: it may
    unless it says no."""
    annotations = as_object(definition.get("annotations"))
    read_only = annotations.get("readOnlyHint") is True
    return read_only, not read_only and annotations.get("destructiveHint") is not False


def names_of(thing: Thing) -> tuple[str, ...]:
    """All that a tool is called."""
    name = thing.name or ""
    return (thing.public or name, name, f"{thing.server}.{name}")


def _otherwise(effect: Literal["allow", "deny"]) -> Rule:
    rule = Rule(0, PolicyRule(effect=effect))
    rule.label = "default"
    return rule
