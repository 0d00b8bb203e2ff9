"""Types of configuration fields with rules beyond their type.

`validate` applies the rules and reports the mistakes with their positions. In disabled entries and
for references that are not replaced, they are not applied.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Annotated, Any

from mcpx.config.tree import Tree, Unresolved, is_list, is_map
from mcpx.model.kinds import Check, Mistake, RefTo, Rule
from mcpx.model.origin import Origin
from mcpx.wire.address import BadAddress, parse, proxy_for
from mcpx.wire.fields import OURS, headers_mistakes

MAX_EXPRESSION_LENGTH = 1_000
HTTP = ("http", "https")
_SINK_SCHEMES = (*HTTP, "syslog", "syslog+tcp")
_HOST_NAME = re.compile(r"(?i)(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[?[0-9a-f:.]*:[0-9a-f:.]*\]?")
_TOKEN = re.compile(r"(?! )[^\x00-\x1f\x7f\ud800-\udfff]+(?<! )")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_PADDED = "take them off: it is compared letter by letter"

Environ = Mapping[str, str]


def _origin(text: str, environ: Environ) -> Iterator[Mistake]:
    if Origin.parse(text) is None:
        example = "http:// or https://, a name, a port where it is not the usual one"
        yield Mistake("not the origin of a web page", hint=f"{example}: https://app.example:8443")


def _host(text: str, environ: Environ) -> Iterator[Mistake]:
    if not _HOST_NAME.fullmatch(text):
        hint = (
            "a name or address without scheme, port or path; '*.' before a name stands for all "
            "below it"
        )
        yield Mistake("not the name of a host", hint=hint)


def _network(text: str, environ: Environ) -> Iterator[Mistake]:
    try:
        ip_network(text.strip(), strict=False)
    except ValueError:
        hint = "as in 10.0.0.7, 172.16.0.0/12 or fd00::/8"
        yield Mistake("not an address or network", hint=hint)


def address_mistakes(
    text: str, environ: Environ, *, schemes: tuple[str, ...] = HTTP, hint: str = ""
) -> Iterator[Mistake]:
    """Also check the proxy that the environment has for the address."""
    try:
        found = parse(text, schemes)
        if found.scheme in HTTP:  # WebSockets do not use a proxy.
            proxy_for(found, environ)
    except BadAddress as problem:
        yield Mistake(problem.what, hint=problem.hint or hint)


def _sink(text: str, environ: Environ) -> Iterator[Mistake]:
    if not text.startswith("syslog+unix:///"):
        yield from address_mistakes(text, environ, schemes=_SINK_SCHEMES)


def _key_source(text: str, environ: Environ) -> Iterator[Mistake]:
    """Over http, another program on the way could replace the keys."""
    yield from address_mistakes(text, {})
    try:
        found = parse(text)
    except BadAddress:
        return
    if found.scheme == "http" and not is_loopback(found.host):
        hint = "http is possible for loopback addresses only (127.0.0.1, ::1, localhost)"
        yield Mistake("must begin with https://: keys that come over http can be forged", hint=hint)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def texts_of(table: Tree) -> dict[str, str]:
    """The texts of a map, without references that are not replaced."""
    return {
        key: value
        for key, value in table.items()
        if isinstance(value, str) and not isinstance(value, Unresolved)
    }


def header_mistakes(headers: Tree, environ: Environ) -> Iterator[Mistake]:
    return headers_mistakes(texts_of(headers), ours=OURS)


def _token(text: str, environ: Environ) -> Iterator[Mistake]:
    if re.search(r"\s", text):
        hint = ""
        if text.lower().startswith("bearer "):
            hint = "it is the token alone, without 'Bearer'"
        yield Mistake("a token has no spaces", hint=hint)
    if text and not _TOKEN.fullmatch(text):
        hint = "no line breaks or other control characters, no spaces around"
        yield Mistake("no client could show this token", hint=hint)


def _scopes(scopes: Tree, environ: Environ) -> Iterator[Mistake]:
    hint = "visible ASCII characters, no spaces, quotes or backslashes (RFC 6749)"
    for scope in scopes:
        if not _SCOPE.fullmatch(scope):
            yield Mistake("not a possible scope", (scope,), hint, "key")


def _pattern(text: str, environ: Environ) -> Iterator[Mistake]:
    bare = text.removeprefix("!")
    if not bare:
        yield Mistake("not a pattern: it matches nothing", hint="'*' is all")
    elif text != text.strip() or bare != bare.strip():
        yield Mistake("a pattern with spaces around it", hint=_PADDED)


def _arguments(arguments: Tree, environ: Environ) -> Iterator[Mistake]:
    if not arguments:
        yield Mistake("must not be empty", hint="leave it out where any arguments are meant")
    for name, given in arguments.items():
        if not all(name.split(".")):
            hint = "dots lead inside: repo.owner"
            yield Mistake("not a possible name of an argument", (name,), hint, "key")
        for wrong in _argument(given):
            yield wrong.below(name)


def _argument(given: Any) -> Iterator[Mistake]:
    if is_map(given):
        yield from _expression(given)
        return
    if given == []:
        yield Mistake("must not be empty")
    hint = "a pattern, a number, true or false, a list of those, or {jmespath: …}"
    if not is_list(given):
        if not isinstance(given, str | int | float):
            yield Mistake("not a pattern", hint=hint)
        return
    for position, pattern in enumerate(given):
        if not isinstance(pattern, str | int | float):
            yield Mistake("not a pattern", (position,), hint)


def _expression(table: Tree) -> Iterator[Mistake]:
    text = table.get("jmespath")
    if set(table) != {"jmespath"} or not isinstance(text, str):
        hint = "a pattern of texts, or {jmespath: …} with an expression"
        yield Mistake("not a pattern", hint=hint)
    elif isinstance(text, Unresolved):
        return
    elif len(text) > MAX_EXPRESSION_LENGTH:
        what = f"an expression has {MAX_EXPRESSION_LENGTH:,} characters at most"
        yield Mistake(what, ("jmespath",))
    elif (why := _jmespath_error(text)) is not None:
        yield Mistake(f"not a JMESPath expression: {why}", ("jmespath",))


def _jmespath_error(text: str) -> str | None:
    import jmespath  # Only a file with such a rule needs it.
    from jmespath.exceptions import JMESPathError

    try:
        jmespath.compile(text)
    except (JMESPathError, RecursionError, ValueError) as error:
        line = str(error).partition("\n")[0][:200]
        return line.removeprefix("Invalid jmespath expression: ").rstrip(":")
    return None


OriginText = Annotated[str, Check(_origin)]
HostPattern = Annotated[str, Check(_host)]
Network = Annotated[str, Check(_network)]
HttpUrl = Annotated[str, Check(address_mistakes)]
SinkUrl = Annotated[str, Check(_sink)]
KeySourceUrl = Annotated[str, Check(_key_source)]
TokenText = Annotated[str, Rule(bool, "must not be empty", {"minLength": 1}), Check(_token)]
Pattern = Annotated[str, Check(_pattern)]
ProfileName = Annotated[str, RefTo("profiles", "profile")]
_ServerName = partial(RefTo, "mcp_servers", "server", is_pattern=True)
ServerPattern = Annotated[str, Check(_pattern), _ServerName(also=("commands",))]
RuleServerPattern = Annotated[str, Check(_pattern), _ServerName(also=("commands", "mcpx"))]
_SOME = Rule(bool, "must not be empty: leave it out where all are meant")
RulePatterns = Annotated[tuple[Pattern, ...], _SOME]
RuleProfiles = Annotated[tuple[Annotated[ProfileName, Check(_pattern)], ...], _SOME]
RuleServers = Annotated[tuple[RuleServerPattern, ...], _SOME]
Headers = Annotated[Mapping[str, str], Check(header_mistakes)]
Scopes = Annotated[Mapping[str, ProfileName], Check(_scopes)]
RuleArguments = Annotated[Mapping[str, Any], Check(_arguments)]
