"""What must hold of the rules of a policy beyond their types: names that exist, patterns that can
match, expressions.

Promised: as `checks`. A rule that could never match, or that nothing can come to, is a mistake or a
warning: whoever wrote it believes to be guarded by it.
"""

from typing import Any

from mcpx.config.problems import Findings
from mcpx.config.tree import KeyPath, Tree, Unresolved, as_bool, as_list, as_map, maps_in

LONGEST = 1_000
"""Characters of an expression."""
LISTS = ("profiles", "principals", "servers", "tools")
_CONDITIONS = (*LISTS, "read_only", "destructive", "arguments")
MOST_COMPARED = 200
"""Rules that later ones are compared with."""
PADDED = "take them off: it is compared letter by letter"


def check_rules(policy: Tree, findings: Findings) -> list[str]:
    """Reports mistakes; gives warnings."""
    warnings: list[str] = []
    before: list[tuple[int, Tree]] = []
    for index, rule in maps_in(policy.get("rules")):
        path: KeyPath = ("policy", "rules", index)
        for key in LISTS:
            _patterns(rule.get(key), (*path, key), findings)
        if (arguments := as_map(rule.get("arguments"))) is not None:
            _arguments(arguments, (*path, "arguments"), findings)
        if as_bool(rule.get("read_only")) and as_bool(rule.get("destructive")):
            what = (
                f"rule {index + 1} of the policy can never hold: what is read-only destroys nothing"
            )
            warnings.append(f"{what}; two rules are needed where either is meant")
        if (cover := next((each for each in before if _covers(each[1], rule)), None)) is not None:
            whole = all(cover[1].get(key) is None for key in _CONDITIONS)
            calls = "every call" if whole else "every call that it could hold for"
            warnings.append(
                f"rule {index + 1} of the policy is never reached: rule {cover[0]} holds for "
                f"{calls}"
            )
        elif len(before) < MOST_COMPARED and rule.get("arguments") is None:
            before.append((index + 1, rule))
    return warnings


def _covers(earlier: Tree, later: Tree) -> bool:
    """Whether the earlier one holds wherever the later does: it asks for nothing else. What depends
    on arguments is not among the earlier ones. The gateway's own tools are concerned by rules only
    that name them."""
    own = "mcpx" in (as_list(later.get("servers")) or ()) and earlier.get("servers") is None
    return not own and all(earlier.get(key) in (None, later.get(key)) for key in _CONDITIONS)


def is_padded(pattern: object) -> bool:
    text = pattern if isinstance(pattern, str) and not isinstance(pattern, Unresolved) else ""
    return any(part != part.strip() for part in (text, text.removeprefix("!")))


def _patterns(given: Any, path: KeyPath, findings: Findings) -> None:
    patterns = as_list(given)
    if patterns is None:
        return
    if not patterns:
        findings.add(
            "must not be empty", path, hint="nothing matches it; leave it out where all are meant"
        )
    for position, pattern in enumerate(patterns):
        if (
            isinstance(pattern, str)
            and not isinstance(pattern, Unresolved)
            and not pattern.removeprefix("!")
        ):
            findings.add("an empty pattern matches nothing", (*path, position))
        elif is_padded(pattern):
            findings.add("a pattern with spaces around it", (*path, position), hint=PADDED)


def _arguments(arguments: Tree, path: KeyPath, findings: Findings) -> None:
    if not arguments:
        findings.add("must not be empty", path, hint="leave it out where any arguments are meant")
    for name, given in arguments.items():
        at = (*path, name)
        if not name or not all(name.split(".")):
            findings.add(
                "not a possible name of an argument",
                at,
                hint="dots lead inside: repo.owner",
                at="key",
            )
        if (table := as_map(given)) is not None:
            _expression(table, at, findings)
            continue
        patterns = as_list(given)
        if patterns == []:
            findings.add("must not be empty", at)
        for position, pattern in enumerate([given] if patterns is None else patterns):
            if not isinstance(pattern, str | int | float):
                hint = "a pattern, a number, true or false, a list of those, or {jmespath: …}"
                findings.add(
                    "not a pattern", at if patterns is None else (*at, position), hint=hint
                )


def _expression(table: Tree, path: KeyPath, findings: Findings) -> None:
    text: Any = table.get("jmespath")
    if set(table) != {"jmespath"} or not isinstance(text, str):
        findings.add(
            "not a pattern", path, hint="a pattern of texts, or {jmespath: …} with an expression"
        )
        return
    if isinstance(text, Unresolved):
        return
    if len(text) > LONGEST:
        findings.add(f"an expression has {LONGEST:,} characters at most", (*path, "jmespath"))
        return
    import jmespath  # only a file with such a rule pays for it
    from jmespath.exceptions import JMESPathError

    try:
        jmespath.compile(text)
    except (JMESPathError, RecursionError, ValueError) as error:
        why = (
            str(error)
            .partition("\n")[0][:200]
            .removeprefix("Invalid jmespath expression: ")
            .rstrip(":")
        )
        findings.add(f"not a JMESPath expression: {why}", (*path, "jmespath"))
