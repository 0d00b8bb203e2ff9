"""The options of curl, as far as a request can be told from them.

Promised: every option is taken, known to change nothing here, or refused by name with the reason;
none is passed over.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote_plus

from mcpx.imports.texts import one_line
from mcpx.model.errors import ConfigError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHORT = {
    word[0]: word[2:]
    for word in _words(
        "X=request H=header d=data u=user A=user-agent e=referer b=cookie m=max-time G=get I=head "
        "k=insecure F=form "
        "T=upload-file K=config n=netrc E=cert o=output w=write-out D=dump-header c=cookie-jar "
        "x=proxy s=silent "
        "S=show-error v=verbose i=include f=fail L=location N=no-buffer #=progress-bar "
        "O=remote-name "
        "J=remote-header-name g=globoff 0=http1.0 q=disable 4=ipv4 6=ipv6 1=tlsv1 2=sslv2 "
        "Z=parallel :=next "
        "a=append r=range"
    )
}
_TAKEN = _words(
    "request header data data-ascii data-raw data-binary data-urlencode json user user-agent "
    "referer cookie max-time "
    "retry url url-query oauth2-bearer range"
)
"""With a value."""
_NOTHING = _words(
    "silent show-error verbose include show-headers fail fail-with-body location compressed "
    "no-buffer progress-bar "
    "remote-name remote-header-name globoff http1.0 http1.1 http2 http2-prior-knowledge http3 "
    "disable ipv4 ipv6 tlsv1 "
    "tlsv1.2 tlsv1.3 no-progress-meter path-as-is tcp-nodelay no-keepalive post301 post302 "
    "post303 raw basic "
    "location-trusted retry-all-errors retry-connrefused create-dirs ssl-reqd"
)
"""That say how curl works or what it shows, not what is asked for."""
_NOTHING_WITH_A_VALUE = _words(
    "output write-out dump-header cookie-jar connect-timeout max-redirs retry-delay "
    "retry-max-time limit-rate proxy "
    "stderr trace trace-ascii keepalive-time speed-limit speed-time output-dir proxy-user noproxy"
)
_REFUSED = {
    "insecure": "mcpx always checks certificates; leave it out",
    **dict.fromkeys(("form", "form-string"), "mcpx does not send files and forms of several parts"),
    **dict.fromkeys(
        ("upload-file", "config", "netrc", "netrc-file", "netrc-optional"), "it reads a file"
    ),
    **dict.fromkeys(
        ("digest", "ntlm", "negotiate", "anyauth", "aws-sigv4"),
        "mcpx does not have this way to sign in",
    ),
    **dict.fromkeys(
        ("cert", "key", "cacert", "capath", "pinnedpubkey", "cert-type"),
        "mcpx shows no certificates",
    ),
    **dict.fromkeys(
        ("resolve", "connect-to", "unix-socket", "interface"),
        "mcpx goes to the address that is named",
    ),
    **dict.fromkeys(("next", "parallel"), "one command line is one request here"),
    "append": "it is no request of HTTP",
}


@dataclass(slots=True)
class Line:
    """What a command line asks for."""

    url: str = ""
    method: str | None = None
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    query: list[str] = field(default_factory=list[str])
    """Of options, encoded."""
    data: list[str] = field(default_factory=list[str])
    is_json: bool = False
    as_query: bool = False
    user: str | None = None
    timeout: float | None = None
    retries: int | None = None
    notes: list[str] = field(default_factory=list[str])


def read(words: Sequence[str]) -> Line:
    """Raises `ConfigError`."""
    rest = deque(words)
    if rest and rest[0].rpartition("/")[2] in ("curl", "curl.exe"):
        rest.popleft()
    if not rest:
        raise ConfigError(["error: no curl command line: mcpx import curl 'curl https://…'"])
    line = Line()
    only_urls = False
    while rest:
        word = rest.popleft()
        if word == "--" and not only_urls:
            only_urls = True
        elif only_urls or not word.startswith("-") or word == "-":
            _take(line, "url", word, word)
        elif word.startswith("--"):
            name = word[2:]
            _option(
                line,
                name.removeprefix("no-") if name.removeprefix("no-") in _NOTHING else name,
                None,
                rest,
                word,
            )
        else:
            _cluster(line, word, rest)
    if not line.url:
        raise ConfigError(["error: the command line names no address"])
    return line


def _cluster(line: Line, word: str, rest: deque[str]) -> None:
    """`-sSLXPOST`: options of one letter, the last of them perhaps with its value."""
    for at, letter in enumerate(word[1:], 2):
        name = _SHORT.get(letter, letter)
        if _wants_value(name):
            _option(line, name, word[at:] or None, rest, f"-{letter}")
            return
        _option(line, name, None, rest, f"-{letter}")


def _wants_value(name: str) -> bool:
    return name in _TAKEN or name in _NOTHING_WITH_A_VALUE


def _option(line: Line, name: str, value: str | None, rest: deque[str], written: str) -> None:
    if name in _REFUSED:
        raise ConfigError(
            [f"error: the option {one_line(written, 40)} cannot be imported: {_REFUSED[name]}"]
        )
    if _wants_value(name):
        if value is None:
            if not rest:
                raise ConfigError([f"error: the option {one_line(written, 40)} has no value"])
            value = rest.popleft()
        if name in _TAKEN:
            _take(line, name, value, written)
        elif name == "proxy":
            line.notes.append(
                "the proxy is left out: mcpx takes it from the environment (HTTPS_PROXY)"
            )
    elif name == "get":
        line.as_query = True
    elif name == "head":
        line.method = "HEAD"
    elif name not in _NOTHING:
        raise ConfigError(
            [f"error: the option {one_line(written, 40)} is not known here: leave it out"]
        )


def _take(line: Line, name: str, value: str, written: str) -> None:
    match name:
        case "url":
            if line.url:
                raise ConfigError(
                    [
                        "error: two addresses in one command line, or a word too many: "
                        f"{one_line(value, 60)!r}"
                    ]
                )
            line.url = value
        case "request":
            line.method = value.upper()
        case "header":
            _header(line, value)
        case "user-agent" | "referer" | "range":
            known = {"user-agent": "User-Agent", "referer": "Referer", "range": "Range"}[name]
            line.headers.append((known, f"bytes={value}" if name == "range" else value))
        case "cookie":
            if "=" not in value:
                raise ConfigError(
                    [
                        f"error: the option {written} reads cookies from a file: give them as "
                        "name=value"
                    ]
                )
            line.headers.append(("Cookie", value))
        case "oauth2-bearer":
            line.headers.append(("Authorization", f"Bearer {value}"))
        case "user":
            line.user = value
        case "max-time" | "retry":
            _number(line, name, value, written)
        case "url-query":
            line.query.append(_encoded(value, written))
        case "data-urlencode":
            line.data.append(_encoded(value, written))
        case _:
            if value.startswith("@") and name != "data-raw":
                raise ConfigError(
                    [f"error: the option {written} reads a file: give the data itself"]
                )
            line.data.append(value)
            line.is_json = line.is_json or name == "json"


def _header(line: Line, text: str) -> None:
    if text.startswith("@"):
        raise ConfigError(["error: the option -H reads a file: give the headers themselves"])
    name, colon, value = text.partition(":")
    if colon and value.strip():
        line.headers.append((name.strip(), value.strip()))
    elif not colon and text.endswith(";"):
        line.headers.append((text[:-1].strip(), ""))
    elif not colon:
        raise ConfigError([f"error: a header without a colon: {one_line(name, 20)!r}…"])


def _number(line: Line, name: str, value: str, written: str) -> None:
    try:
        number = float(value)
        if not 0 < number < 1e6:
            raise ValueError
    except ValueError:
        raise ConfigError([f"error: the option {written} wants a number"]) from None
    if name == "max-time":
        line.timeout = number
    else:
        line.retries = int(number)


def _encoded(value: str, written: str) -> str:
    """`name=text`, `=text` or `text`, the text encoded."""
    name, equals, text = value.partition("=")
    if (not equals and "@" in value) or "@" in name:
        raise ConfigError([f"error: the option {written} reads a file: give the data itself"])
    if not equals:
        return quote_plus(value)
    return f"{name}={quote_plus(text)}" if name else quote_plus(text)
