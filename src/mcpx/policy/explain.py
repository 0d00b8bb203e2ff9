"""Predicts what happens to a call, without limits and questions to people.

The rules themselves decide, as they would for the call.
"""

from dataclasses import dataclass

from mcpx.base.aio import Pace
from mcpx.model.call import Call, Caller, Json
from mcpx.model.events import Passage
from mcpx.model.offer import Offer
from mcpx.policy.rules import Effect, Finding, Rule, Rules, declared_names, readings_of
from mcpx.policy.warden import Warden


@dataclass(frozen=True, slots=True)
class Verdict:
    seen: bool
    effect: Effect
    because: list[str]
    """One line for the profile, and one for each rule that matters."""
    rule: int | None = None
    """Number of the rule that decides, if any."""


def explain(warden: Warden | None, profile: str | None, principal: str, offer: Offer) -> Verdict:
    """Explain the calls of a tool, with any arguments."""
    if warden is None:
        return Verdict(True, "allow", ["nothing guards this configuration"])
    because: list[str] = []
    if profile is not None:
        seen, why = _through_profile(warden, profile, offer)
        because += why
        if not seen:
            return Verdict(False, "deny", because)
    rules = warden.rules
    if rules is None:
        return Verdict(True, "allow", because or ["there are no rules"])
    findings = [each for each in rules.findings(profile, principal, offer) if each.matches]
    deciding = _deciding(findings)
    seen = not rules.hidden(profile, principal, offer)
    because += [_line(each.rule, each.why) for each in findings]
    return Verdict(seen, deciding.effect, because, deciding.number or None)


async def explain_call(
    warden: Warden | None, profile: str | None, principal: str, offer: Offer, arguments: Json | None
) -> Verdict:
    """Explain one call. Without `arguments` like `explain`."""
    if arguments is None or warden is None or warden.rules is None:
        return explain(warden, profile, principal, offer)
    because: list[str] = []
    if profile is not None:
        seen, because = _through_profile(warden, profile, offer)
        if not seen:
            return Verdict(False, "deny", because)
    return await _with_arguments(
        warden.rules, Caller(principal, profile), offer, arguments, because
    )


def _through_profile(warden: Warden, profile: str, offer: Offer) -> tuple[bool, list[str]]:
    through = warden.sights.through(profile)
    if through is None:
        return True, []
    seen, why = through.explain(offer)
    return seen, [f"profile {profile}: {why}"]


def _deciding(findings: list[Finding]) -> Rule:
    """The last rule counts. If it denies what some arguments allow, the rule before counts."""
    last = findings[-1].rule
    if last.effect == "deny":
        for finding in reversed(findings):
            if finding.rule.effect != "deny":
                return finding.rule
    return last


async def _with_arguments(
    rules: Rules, caller: Caller, offer: Offer, arguments: Json, because: list[str]
) -> Verdict:
    params: Json = {"name": offer.name, "arguments": arguments}
    passage = Passage(offer.server, offer.name, offer, Call("tools/call", params, caller), params)
    left, pace = rules.left(passage), Pace()
    ways, declared = readings_of(passage), declared_names(passage)
    for rule in left.rules:
        names = ", ".join(rule.argument_names)
        if rule.holds(ways, declared):
            because.append(_line(rule, f"the arguments match: {names}"))
            return Verdict(not left.hidden, rule.effect, because, rule.number)
        because.append(f"{rule.label}: passed over, the arguments do not match: {names}")
        await pace.step()
    last, why = left.last, ""
    if not last.number:
        why = "no rule matches"
    because.append(_line(last, why))
    return Verdict(not left.hidden, last.effect, because, last.number or None)


def _line(rule: Rule, why: str) -> str:
    line = f"{rule.label}: {', '.join(filter(None, (rule.effect, why)))}"
    if rule.reason:
        line = f"{line} ({rule.reason})"
    return line
