"""Templates and URIs are hostile input: right on small cases, and never slow on large ones."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.cost import count_steps
from mcpx.catalog.templates import LONGEST_EXPANSION, LONGEST_TEMPLATE, Positions, Template

# How long a busy machine takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def template_matches(template: str, uri: str) -> bool:
    compiled = Template(template)
    return compiled.may_match(uri) and compiled.matches(Positions(uri))


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("info://now", "info://now"),
        ("users://{id}/profile", "users://42/profile"),
        ("users://{id}/profile", "users:///profile"),
        ("users://{id}", "users://a%2Fb"),
        ("users://{id}", "users://naïve name"),
        ("geo://{lat,lon}", "geo://1.5,2"),
        ("list://{x*}", "list://a=1,b=2"),
        ("cut://{x:3}", "cut://abc"),
        ("file:///{+path}", "file:///a/b/c.txt?x#y"),
        ("repo://{owner}/{repo}/contents{/path*}", "repo://o/r/contents/src/a.py"),
        ("repo://{owner}/{repo}/contents{/path*}", "repo://o/r/contents"),
        ("a{/x,y}", "a/1/2"),
        ("a{/x}", "a/1"),
        ("page{#part}", "page#one/two?three"),
        ("page{#part}", "page"),
        ("file{.ext}", "file.tar.gz"),
        ("m{;x,y}", "m;x=1;y"),
        ("s://q{?a,b}", "s://q"),
        ("s://q{?a,b}", "s://q?a=1&b=2"),
        ("s://q{?a,b}", "s://q?b=2"),
        ("s://q{?a,b}", "s://q?b=2&a="),
        ("s://q{?a}{&b}", "s://q?a=1&b=2"),
        ("s://q?fixed=1{&a}", "s://q?fixed=1&a=%26"),
        ("s://q{?a*}", "s://q?any=1&other=2"),
        ("{+all}", ""),
        ("{a}{b}{c}", "xyz"),
        ("{a}-{b}", "1-2-3"),
    ],
)
def test_an_expansion_matches_its_template(template: str, uri: str) -> None:
    """NAM-4"""
    assert template_matches(template, uri)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("info://now", "info://now/"),
        ("info://now", "info://no"),
        ("users://{id}/profile", "users://4/2/profile"),
        ("users://{id}", "users://42?x=1"),
        ("users://{id}", "users://42#x"),
        ("users://{id}", "USERS://42"),
        ("a{/x}", "a/1/2"),
        ("a{/x}", "ab"),
        ("page{#part}", "pageone"),
        ("file{.ext}", "file/a"),
        ("s://q{?a,b}", "s://q?"),
        ("s://q{?a,b}", "s://q?c=1"),
        ("s://q{?a,b}", "s://q?a=1&c=1"),
        ("s://q{?a,b}", "s://q?aa=1"),
        ("s://q{?aa}", "s://q?a=1"),
        ("s://q{?a}", "s://q?a=1#x"),
        ("s://q{?ab}", "s://q?a"),
        # One cannot leave a parameter in the middle of its name.
        ("{?ab}b=1", "?ab=1"),
    ],
)
def test_what_is_no_expansion_does_not_match(template: str, uri: str) -> None:
    """NAM-4"""
    assert not template_matches(template, uri)
    assert not Template(template).matches(Positions(uri))


@pytest.mark.parametrize(
    "template",
    [
        "{",
        "}",
        "a{",
        "{}",
        "{x",
        "x}",
        "{{x}}",
        "{=x}",
        "{!x}",
        "{|x}",
        "{ x }",
        "{x,}",
        "{.}",
        "{x*y}",
    ],
)
def test_a_malformed_template_matches_nothing(template: str) -> None:
    """NAM-4"""
    for uri in ("", "a", "x", template, "{x}"):
        assert not template_matches(template, uri)


def reference(template: str) -> re.Pattern[str]:
    """The same meaning as a backtracking pattern: short to read, and of no use against an enemy."""

    def expression(match: re.Match[str]) -> str:
        operator, variables = match[1], match[2].split(",")
        exploded = match[2].find("*") >= 0
        if operator in ("?", "&"):
            if exploded:
                return rf"(?:\{operator}[^#]*)?"
            one = "(?:" + "|".join(variables) + r")(?=[=&#]|\Z)(?:=[^&#]*)?"
            return rf"(?:\{operator}{one}(?:&{one})*)?"
        run = ".*" if operator in ("+", "#") else "[^/?#]*"
        if operator == "/" and (exploded or len(variables) > 1):
            run = "[^?#]*"
        return run if operator in ("", "+") else rf"(?:\{operator}{run})?"

    parts = re.split(r"(\{[^}]*\})", template)
    return re.compile(
        "".join(
            re.sub(r"\{([+#./;?&]?)([^}]*)\}", expression, part)
            if part.startswith("{")
            else re.escape(part)
            for part in parts
        ),
        re.DOTALL,
    )


EXPRESSIONS = st.builds(
    lambda operator, names, star: "{" + operator + ",".join(names) + star + "}",
    st.sampled_from(["", "+", "#", ".", "/", ";", "?", "&"]),
    st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=2),
    st.sampled_from(["", "", "*"]),
)
TEMPLATES = st.lists(
    st.one_of(EXPRESSIONS, st.text("ab/?&=#.", min_size=1, max_size=2)), max_size=5
).map("".join)


@calmly
@given(TEMPLATES, st.text("ab/?&=#.;,", max_size=14))
def test_the_matcher_agrees_with_a_naive_reference(template: str, uri: str) -> None:
    """NAM-4"""
    assert template_matches(template, uri) == bool(reference(template).fullmatch(uri)), (
        template,
        uri,
    )


@calmly
@given(TEMPLATES, st.data())
def test_the_matcher_agrees_with_a_naive_reference_on_what_matches(
    template: str, data: st.DataObject
) -> None:
    """NAM-4"""
    pattern = reference(template)
    uri = data.draw(st.from_regex(pattern, fullmatch=True, alphabet="ab/?&=#.;,"))
    # Hypothesis does not look ahead, so not all that it draws does match.
    assert template_matches(template, uri) == bool(pattern.fullmatch(uri)), (template, uri)


@calmly
@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_makes_the_matcher_raise(template: str, uri: str) -> None:
    """NAM-4"""
    template_matches(template, uri)


@pytest.mark.parametrize(
    "template",
    [
        "".join(f"{{v{n}}}" for n in range(160)) + "!",
        "".join(f"{{+v{n}}}a" for n in range(120)) + "!",
        "".join(f"{{/v{n}*}}" for n in range(120)) + "!",
        "{?" + ",".join("a" * n for n in range(1, 40)) + "}!",
        "{+x}" + "a" * 1_000 + "!",
        "{x" + ",x" * 500 + "!",
        "{" * LONGEST_TEMPLATE,
    ],
    ids=range(7),
)
@pytest.mark.parametrize("text", ["a", "?a", "/a", "&aa", "?aaa=a&"], ids=range(5))
def test_nothing_a_server_and_a_client_make_up_together_is_slow(template: str, text: str) -> None:
    """NAM-4: a few steps for each character of either; a backtracking matcher would not come back
    at all."""
    uri = (text * LONGEST_EXPANSION)[:LONGEST_EXPANSION]
    assert not template_matches(template, uri)
    assert count_steps(lambda: template_matches(template, uri), 10 * (len(template) + len(uri)))


def test_what_is_longer_than_the_limits_matches_nothing() -> None:
    """NAM-4"""
    assert template_matches("{+x}", "a" * LONGEST_EXPANSION)
    assert not template_matches("{+x}", "a" * (LONGEST_EXPANSION + 1))
    assert not template_matches("a" * (LONGEST_TEMPLATE + 1), "a" * (LONGEST_TEMPLATE + 1))
