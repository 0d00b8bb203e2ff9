"""Imports a curl command line as one HTTP command (SRC-7).

Supported options: -X, -H, -d (also --data-raw and --json), -u, -G, -F, and --url. Other options are
reported by name. Without arguments, the command sends the request of the line. Secrets are replaced
by references to variables.
"""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from mcpx.imports.imported import (
    Imported,
    config_value,
    reference,
    references,
    without_marks,
)
from mcpx.imports.openapi_document import is_private
from mcpx.imports.openapi_request import Request
from mcpx.imports.shell_words import split_words
from mcpx.imports.source import clean, one_line, safe_name, snake, variable_name
from mcpx.model.call import Json, is_object
from mcpx.model.errors import ConfigError
from mcpx.model.redaction import words
from mcpx.model.secret_rules import map_texts, replace_secrets
from mcpx.wire import codec
from mcpx.wire.address import BadAddress, parse
from mcpx.wire.fields import FRAMING, HEADER_NAME

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
MAX_LINE = 512 * 1024
_SUPPORTED = {
    "request": "-X --request",
    "header": "-H --header",
    "data": "-d --data --data-ascii --data-binary",
    "data-raw": "--data-raw",
    "json": "--json",
    "user": "-u --user",
    "form": "-F --form",
    "url": "--url",
}
"""Options with a value."""
_OPTIONS = {option: name for name, options in _SUPPORTED.items() for option in options.split()}
_SHORT_WITH_VALUE = frozenset("AbcCDeEhKmoPQrtTUwxyYz")
_LONG_WITH_VALUE = words(
    "--aws-sigv4 --cacert --cert --cert-type --ciphers --config --connect-timeout --connect-to "
    "--cookie --cookie-jar --data-urlencode --dump-header --form-string --interface --key "
    "--limit-rate --max-redirs --max-time --netrc-file --noproxy --oauth2-bearer --output "
    "--output-dir --proxy --proxy-user --range --referer --resolve --retry --retry-delay "
    "--retry-max-time --speed-limit --speed-time --stderr --trace --trace-ascii --unix-socket "
    "--upload-file --url-query --user-agent --write-out"
)
_LEFT_OUT_HEADERS = re.compile(
    rf"{FRAMING}|accept-encoding|sec-.*|priority|dnt|upgrade-insecure-requests"
)
_PLACEHOLDER = re.compile(r"\{[^{}]+\}")
_TYPES = {
    "bool": "boolean",
    "int": "number",
    "float": "number",
    "str": "string",
    "list": "array",
    "dict": "object",
}
_PLACES = {"params": "query", "headers": "header", "body": "body"}


@dataclass(frozen=True, slots=True)
class CurlOptions:
    name: str | None = None
    auth: str | None = None
    """Name of the user's auth config, which replaces the credentials of the line."""
    params: tuple[str, ...] = ()
    """Names that become arguments. Empty: all query parameters and all fields of the body."""
    allow_private: bool = False


@dataclass(slots=True)
class CurlLine:
    url: str = ""
    method: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    data: list[str] = field(default_factory=list[str])
    form: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    is_json: bool = False
    data_as_query: bool = False
    user: str = ""
    ignored: list[str] = field(default_factory=list[str])
    """Options that are not supported."""


async def preview_curl(*, text: str, name: str | None = None, allow_private: bool = False) -> Json:
    options = CurlOptions(name, allow_private=allow_private)
    made = await asyncio.to_thread(import_curl, [text], options)
    return {"title": "curl", "operations": [], **made.preview()}


def import_curl(given: Sequence[str], options: CurlOptions) -> Imported:
    """`given`: one text, which is split as a shell does, or the words of a command line."""
    if sum(map(len, given)) > MAX_LINE:
        raise ConfigError([f"error: the command line is longer than {MAX_LINE:,} characters"])
    rest = ""
    if len(given) == 1:
        given, rest = split_words(given[0])
    line = read_options(given)
    made = _CurlImport(line, options).run()
    if line.ignored:
        names = ", ".join(dict.fromkeys(line.ignored))
        made.notes.append(f"left out: the options {one_line(names, 200)}")
    if rest:
        made.notes.append(f"left out: {one_line(rest, 60)}")
    return made


# Options


def read_options(line_words: Sequence[str]) -> CurlLine:
    pending = deque(line_words)
    if pending and pending[0].rpartition("/")[2] in ("curl", "curl.exe"):
        pending.popleft()
    if not pending:
        raise ConfigError(["error: no curl command line: mcpx import curl 'curl https://…'"])
    line = CurlLine()
    while pending:
        word = pending.popleft()
        if not word.startswith("-") or word == "-":
            _set_option(line, "url", "URL", word)
        elif word.startswith("--"):
            _read_option(line, word, "", pending)
        else:
            _read_letters(line, word, pending)
    if not line.url:
        raise ConfigError(["error: the command line has no address"])
    return line


def _read_letters(line: CurlLine, word: str, pending: deque[str]) -> None:
    """Read a word such as `-sSXPOST`: letters without value, and perhaps one with a value."""
    for at, letter in enumerate(word[1:], 2):
        option = f"-{letter}"
        has_value = option in _OPTIONS or letter in _SHORT_WITH_VALUE
        _read_option(line, option, word[at:] if has_value else "", pending)
        if has_value:
            return


def _read_option(line: CurlLine, option: str, value: str, pending: deque[str]) -> None:
    name = _OPTIONS.get(option)
    has_value = name or option in _LONG_WITH_VALUE or option[1:] in _SHORT_WITH_VALUE
    if has_value and not value:
        if not pending:
            raise ConfigError([f"error: the option {one_line(option, 40)} has no value"])
        value = pending.popleft()
    if name:
        _set_option(line, name, option, value)
    elif option in ("-G", "--get"):
        line.data_as_query = True
    elif option != "--":
        line.ignored.append(option)


def _set_option(line: CurlLine, name: str, option: str, value: str) -> None:
    match name:
        case "url":
            if line.url:
                problem = f"error: two addresses, or one word too many: {one_line(value, 60)!r}"
                raise ConfigError([problem])
            line.url = value
        case "request":
            line.method = value.upper()
        case "header":
            _set_header(line, value)
        case "user":
            line.user = value
        case "form":
            key, _, text = value.partition("=")
            _refuse_file(option, text[:1] in ("@", "<"))
            line.form.append((key, text))
        case _:
            _refuse_file(option, name != "data-raw" and value.startswith("@"))
            line.data.append(value)
            line.is_json = line.is_json or name == "json"


def _set_header(line: CurlLine, text: str) -> None:
    _refuse_file("-H", text.startswith("@"))
    name, colon, value = text.partition(":")
    if colon and value.strip():
        line.headers[name.strip()] = value.strip()
    elif not colon and text.endswith(";"):
        line.headers[text[:-1].strip()] = ""
    elif not colon:
        raise ConfigError([f"error: a header without a colon: {one_line(name, 20)!r}…"])


def _refuse_file(option: str, reads_file: bool) -> None:
    if reads_file:
        raise ConfigError([f"error: the option {option} reads a file: give its content instead"])


# Request


class _CurlImport:
    def __init__(self, line: CurlLine, options: CurlOptions) -> None:
        self._line, self._options = line, options
        self._made = Imported()
        self._request = Request("")
        self._possible_arguments: list[str] = []
        self._api = "api"

    def run(self) -> Imported:
        line, options, made = self._line, self._options, self._made
        sends_body = bool(line.form or line.data) and not line.data_as_query
        method = line.method or ("POST" if sends_body else "GET")
        if method not in METHODS:
            raise ConfigError([f"error: mcpx does not send {one_line(method, 20)!r} requests"])
        url, query = self._address()
        if line.data_as_query:
            query += line.data
        name = safe_name(options.name or _command_name(method, self._api, url))
        if not name:
            raise ConfigError(["error: not a possible name: letters, digits, _ and -"])
        headers = self._authenticate(f"{name[:59]}_auth")
        pairs = parse_qsl("&".join(query), keep_blank_values=True, max_num_fields=1_000)
        self._request.params = self._slots("params", _grouped(pairs), "the query parameter")
        self._set_headers(headers)
        if sends_body:
            self._set_body()
        possible = self._possible_arguments
        for param in options.params:
            if param not in possible:
                known = one_line(", ".join(possible) or "nothing", 200)
                problem = f"error: --param {one_line(param, 40)}: not found; there is {known}"
                raise ConfigError([problem])
        made.commands.append(config_value(self._command(name, method, url)))
        made.auths = config_value(made.auths)
        if is_private(url) and not options.allow_private:
            note = "this is a private address: --allow-private lets the command reach it"
            made.notes.append(note)
        return made

    def _command(self, name: str, method: str, url: str) -> Json:
        request, made = self._request, self._made
        http = {"method": method, "url": url, **request.fields()}
        auth = self._options.auth or next((each["name"] for each in made.auths), None)
        if auth:
            http["auth"] = {"ref": auth}
        accepted = [text for key, text in self._line.headers.items() if key.lower() == "accept"]
        if "xml" in "".join(accepted):
            http["response_format"] = "xml"
        if self._options.allow_private:
            http["allow_private"] = True
        for variable in references(repr((http, request.properties, made.auths))):
            made.variables.setdefault(variable, "named in the command line")
        path = without_marks(url.partition("://")[2])
        command: Json = {"name": name, "description": f"{method} {path}", "type": "http"}
        command["http"] = http
        if request.properties:
            command["input_schema"] = request.schema
        return command

    def _address(self) -> tuple[str, list[str]]:
        """The URL without its query, and the query."""
        url = self._line.url.partition("#")[0]
        is_reference = bool(references(url.partition("/")[0]))
        if "://" not in url and not is_reference:
            url = f"http://{url}"
        elif not is_reference and not re.match(r"(?i)https?://", url):
            raise ConfigError(["error: only http and https addresses can be imported"])
        url, _, query = url.partition("?")
        scheme, separator, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        user, _, host = host.rpartition("@")
        self._line.user = self._line.user or unquote(user)
        self._api = _api_name(host)
        if separator:
            segments = map(self._path_segment, path.split("/"))
            url = f"{scheme}://{host}{slash}{'/'.join(segments)}"
            try:
                parse(_PLACEHOLDER.sub("x", url))
            except BadAddress as problem:
                raise ConfigError([f"error: the address: {problem}"]) from None
        return url, [query] * bool(query)

    def _path_segment(self, segment: str) -> str:
        """The segment with arguments for `{name}`, and with references for secrets."""
        begin = "https://x/"
        hidden = self._hide(f"{begin}{segment}", ("url",), "key", "the key in the address")
        segment = hidden.removeprefix(begin)
        for written in dict.fromkeys(_PLACEHOLDER.findall(segment)):
            placeholder = self._request.take(written[1:-1], "path", {"type": "string"}, True)
            segment = segment.replace(written, placeholder)
        if re.search("[{}]", _PLACEHOLDER.sub("", segment)):
            return quote(segment, safe="%")
        return segment

    # Secrets

    def _authenticate(self, name: str) -> dict[str, str]:
        """The headers without secrets. Basic and bearer credentials become an auth config."""
        line, made = self._line, self._made
        headers: dict[str, str] = {}
        tokens: dict[str, str] = {}
        for key, value in line.headers.items():
            word = snake(key).removeprefix("x_").replace("authorization", "token")
            what = f"the header {one_line(key, 40)}"
            headers[key] = self._hide(value, ("headers", key), word, what)
            bearer = re.fullmatch(r"(?i)bearer\s+(\S+)", headers[key])
            if bearer and key.lower() == "authorization" and references(bearer[1]):
                tokens[key] = bearer[1]
        if self._options.auth is not None:
            kept = {k: v for k, v in headers.items() if v == line.headers[k] and k not in tokens}
            if len(kept) < len(headers) or line.user:
                note = f"the credentials are left out: {self._options.auth!r} replaces them"
                made.notes.append(note)
            made.variables.clear()
            made.secrets.clear()
            return kept
        section: Json = {}
        kind = "bearer_token"
        if line.user:
            username, _, password = line.user.partition(":")
            kind = "basic_auth"
            section["username"] = self._variable("username", "the user name", username)
            section["password"] = password and self._variable("password", "the password", password)
        elif tokens:
            key, section["token"] = tokens.popitem()
            del headers[key]
        if section:
            made.auths.append({"name": name, "type": kind, kind: section})
        return headers

    def _hide(self, value: Any, path: tuple[str, ...], word: str, what: str) -> Any:
        """The value with references instead of secrets."""

        def replace(secret: str, at: tuple[str | int, ...], presumed: bool) -> str:
            if presumed or _PLACEHOLDER.search(secret):
                return secret
            return self._variable(word, what, secret)

        return replace_secrets(value, path, replace)

    def _variable(self, word: str, what: str, value: str) -> str:
        """The value if it refers to a variable, or a reference to a new variable."""
        if references(value):
            return value
        made = self._made
        name = base = variable_name(self._api, word)
        number = 1
        while made.secrets.get(name, value) != value:
            number += 1
            name = f"{base}_{number}"
        made.variables[name] = what
        made.secrets[name] = value
        return reference(name)

    # Content

    def _set_headers(self, headers: dict[str, str]) -> None:
        kept: dict[str, str] = {}
        for key, value in headers.items():
            if _LEFT_OUT_HEADERS.fullmatch(key):
                if key.lower() == "host":
                    self._made.notes.append("the header Host is left out: mcpx sets it")
            elif not re.fullmatch(HEADER_NAME, key) or clean(value) != value or "\n" in value:
                raise ConfigError([f"error: the header {one_line(key, 40)!r} cannot be sent"])
            else:
                kept[key] = value
        self._request.headers = self._slots("headers", kept, "the header")

    def _set_body(self) -> None:
        line, request = self._line, self._request
        headers = request.headers
        type_key = next((key for key in headers if key.lower() == "content-type"), "")
        kind = str(headers.get(type_key, "")).partition(";")[0].strip().lower()
        is_form = kind in ("", "application/x-www-form-urlencoded")
        text = ("" if line.is_json else "&").join(line.data)
        value: Any = None
        if line.is_json or is_form or kind.endswith("json"):
            value = _json(text)
        form = line.form
        if form:
            self._made.notes.append("-F is sent as application/x-www-form-urlencoded")
        elif value is None and is_form and not line.is_json:
            form = _form_pairs(text)
        if form or is_form or kind == "application/json":
            headers.pop(type_key, None)  # mcpx sets it.
        if form:
            request.body = self._slots("body", _grouped(form), "the field of the body")
            request.body_format = "form"
        elif is_object(value) and value:
            request.body = self._slots("body", value, "the field of the body")
        else:
            if value is None and is_form:
                headers["Content-Type"] = kind or "application/x-www-form-urlencoded"
            request.body_format = "text" if value is None else "json"
            self._possible_arguments.append("body")
            whole = text if value is None else value
            schema = {**_schema(whole), "description": "The request body.", "default": whole}
            request.body = request.take("body", "request", schema, False)

    def _slots(self, section: str, values: dict[str, Any], what: str) -> Json:
        """The values of a part of the request. Most of them become arguments with a default."""
        made: Json = {}
        for name, value in values.items():
            path, name = (section, name), clean(name)
            made[name] = self._hide(value, path, name, f"{what} {one_line(name, 40)}")
            if made[name] != value or (section == "headers" and references(value)):
                continue
            self._possible_arguments.append(name)
            is_wanted = section != "headers"
            if self._options.params:
                is_wanted = name in self._options.params
            # A value with braces would be read as the name of an argument.
            if is_wanted or _has_placeholder(value):
                schema = {**_schema(value), "default": value}
                place = _PLACES[section]
                made[name] = self._request.take(name, place, schema, False)
        return made


def _command_name(method: str, api: str, url: str) -> str:
    steps = urlsplit(url).path.split("/")
    plain = [step for step in steps if re.fullmatch(r"[A-Za-z][\w.-]*", step, re.ASCII)]
    return snake("_".join((method, api, *plain[-3:])))[:48]


def _api_name(host: str) -> str:
    """The part of a host name that names its owner."""
    name = without_marks(host).partition(":")[0].lower()
    if re.fullmatch(r"[\d.]+|localhost|\[.*", name):
        return "local"
    labels = [label for label in name.split(".") if label not in ("www", "api", "rest")]
    owner = [*labels[-2:-1], *labels, "api"][0]
    return snake(owner) or "api"


def _has_placeholder(value: Any) -> bool:
    texts: list[str] = []
    map_texts(value, lambda text: texts.append(text) or text)
    return any(map(_PLACEHOLDER.search, texts))


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return codec.load(text.encode("utf-8", "replace"), strict=True)
    except codec.BadJson:
        return None


def _form_pairs(text: str) -> list[tuple[str, str]]:
    """The fields of a form, or an empty list for other text."""
    try:
        return parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=1_000)
    except ValueError:
        return []


def _grouped(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The values by key. A key with several values has a list."""
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


def _schema(value: Any) -> Json:
    name = _TYPES.get(type(value).__name__)
    return {"type": name} if name else {}
