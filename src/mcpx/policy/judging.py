"""What would become of a call, for whoever asks beforehand: with its arguments, where they are
known.

Promised: the rules themselves decide, as they would of the call; nobody is asked, nothing is
counted or limited.
"""

from dataclasses import dataclass

from mcpx.model.call import Call, Caller, Json
from mcpx.model.events import Passage
from mcpx.model.offer import Offer
from mcpx.model.slices import Pace
from mcpx.policy.rules import Finding, Rules, declared_names, readings_of
from mcpx.policy.sights import Effect
from mcpx.policy.warden import Warden


@dataclass(frozen=True, slots=True)
class Judgement:
    seen: bool
    effect: Effect
    because: list[str]
    """What decided, a line each: of the profile, then of the rules."""
    rule: int | None
    """The number of the rule that decides; None: none of them does."""


async def judge(
    warden: Warden | None, profile: str | None, principal: str, offer: Offer, arguments: Json | None
) -> Judgement:
    """`arguments` None: whatever they are."""
    if warden is None:
        return Judgement(True, "allow", ["nothing guards this configuration"], None)
    verdict = warden.explain(profile, principal, offer)
    through = None if profile is None else warden.sights.through(profile)
    rules = warden.rules
    if rules is None or (through is not None and not through.offer(offer)):
        because = verdict.because or ["there are no rules"]
        return Judgement(verdict.seen, verdict.effect, because, None)
    if arguments is None:
        number = _number(rules.findings(profile, principal, offer), verdict.effect)
        return Judgement(verdict.seen, verdict.effect, verdict.because, number)
    lines = verdict.because[:1] if through is not None else []
    return await _with_arguments(rules, Caller(principal, profile), offer, arguments, lines)


def _number(findings: list[Finding], effect: Effect) -> int | None:
    """Of the last one that has that effect: the one that counts, or the way through before it."""
    return next(
        (
            each.number or None
            for each in reversed(findings)
            if each.matches and each.effect == effect
        ),
        None,
    )


async def _with_arguments(
    rules: Rules, caller: Caller, offer: Offer, arguments: Json, because: list[str]
) -> Judgement:
    params: Json = {"name": offer.name, "arguments": arguments}
    passage = Passage(offer.server, offer.name, offer, Call("tools/call", params, caller), params)
    left, pace = rules.left(passage), Pace()
    ways, declared = readings_of(passage), declared_names(passage)
    for rule in left.rules:
        names = ", ".join(rule.argument_names)
        if rule.holds(ways, declared):
            because.append(
                _line(rule.label, rule.effect, f"the arguments match: {names}", rule.reason)
            )
            return Judgement(not left.hidden, rule.effect, because, rule.number)
        because.append(f"{rule.label}: passed over, the arguments do not match: {names}")
        await pace.step()
    last = left.last
    because.append(
        _line(last.label, last.effect, "" if last.number else "no rule matches", last.reason)
    )
    return Judgement(not left.hidden, last.effect, because, last.number or None)


def _line(label: str, effect: Effect, why: str, reason: str) -> str:
    told = ", ".join(filter(None, (effect, why)))
    return f"{label}: {told} ({reason})" if reason else f"{label}: {told}"
