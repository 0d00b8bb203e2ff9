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
from mcpx.model.call import Json, is_array, is_object
from mcpx.model.errors import ConfigError
from mcpx.model.redaction import words
from mcpx.model.secret_rules import replace_secrets
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
_TYPES: tuple[tuple[Any, str], ...] = (
    (bool, "boolean"),
    (int | float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


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
        method = line.method or "GET"
        if not line.method and (line.form or (line.data and not line.data_as_query)):
            method = "POST"
        if method not in METHODS:
            raise ConfigError([f"error: mcpx does not send {one_line(method, 20)!r} requests"])
        url, query = self._address()
        if line.data_as_query:
            query += line.data
        name = safe_name(options.name or _command_name(method, self._api, url))
        if not name:
            raise ConfigError(["error: not a possible name: letters, digits, _ and -"])
        self._authenticate(f"{name[:59]}_auth")
        self._set_query("&".join(query))
        self._set_headers()
        if line.form:
            self._set_form(line.form)
            made.notes.append("-F is sent as application/x-www-form-urlencoded")
        elif line.data and not line.data_as_query:
            self._set_body()
        self._refuse_unknown_params()
        command = self._command(name, method, url)
        made.commands.append(config_value(command))
        made.auths = config_value(made.auths)
        if is_private(url) and not options.allow_private:
            made.notes.append(
                "this is a private address: --allow-private lets the command reach it"
            )
        return made

    def _refuse_unknown_params(self) -> None:
        possible = self._possible_arguments
        for name in self._options.params:
            if name not in possible:
                known = one_line(", ".join(possible) or "nothing", 200)
                problem = f"error: --param {one_line(name, 40)}: not found; there is {known}"
                raise ConfigError([problem])

    def _command(self, name: str, method: str, url: str) -> Json:
        request = self._request
        http = {"method": method, "url": url, **request.fields()}
        if self._options.auth:
            http["auth"] = {"ref": self._options.auth}
        elif self._made.auths:
            http["auth"] = {"ref": self._made.auths[0]["name"]}
        accept = next((v for k, v in self._line.headers.items() if k.lower() == "accept"), "")
        if "xml" in accept:
            http["response_format"] = "xml"
        if self._options.allow_private:
            http["allow_private"] = True
        for variable in references(repr((http, request.properties, self._made.auths))):
            self._made.variables.setdefault(variable, "named in the command line")
        path = without_marks(url.partition("://")[2])
        command = {
            "name": name,
            "description": f"{method} {clean(path)}",
            "type": "http",
            "http": http,
        }
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
            url = f"{scheme}://{host}{slash}{self._path(path)}"
            try:
                parse(_PLACEHOLDER.sub("x", url))
            except BadAddress as problem:
                raise ConfigError([f"error: the address: {problem}"]) from None
        return url, [query] if query else []

    def _path(self, path: str) -> str:
        """The path with arguments for `{name}`, and with references for secrets."""
        segments: list[str] = []
        for segment in path.split("/"):
            hidden = self._without_secrets(f"https://x/{segment}", ("url",), "key", "the address")
            segment = hidden.removeprefix("https://x/")
            for written in dict.fromkeys(_PLACEHOLDER.findall(segment)):
                placeholder = self._request.take(written[1:-1], "path", {"type": "string"}, True)
                segment = segment.replace(written, placeholder)
            rest = _PLACEHOLDER.sub("", segment)
            if "{" in rest or "}" in rest:
                segment = quote(segment, safe="%")
            segments.append(segment)
        return "/".join(segments)

    # Secrets

    def _authenticate(self, name: str) -> None:
        """Replace secrets in the headers. Basic and bearer credentials become an auth config."""
        line = self._line
        headers = {
            key: self._without_secrets(
                value, ("headers", key), _header_word(key), f"the header {one_line(key, 40)}"
            )
            for key, value in line.headers.items()
        }
        bearers = [key for key, value in headers.items() if _bearer(key, value)]
        if self._options.auth is not None:
            kept = {k: v for k, v in headers.items() if v == line.headers[k] and k not in bearers}
            if len(kept) < len(headers) or line.user:
                note = f"the credentials are left out: {self._options.auth!r} replaces them"
                self._made.notes.append(note)
            line.headers = kept
            self._made.variables.clear()
            self._made.secrets.clear()
            return
        if line.user:
            username, _, password = line.user.partition(":")
            section = {"username": self._variable("username", "the user name", username)}
            section["password"] = ""
            if password:
                section["password"] = self._variable("password", "the password", password)
            self._made.auths.append({"name": name, "type": "basic_auth", "basic_auth": section})
        elif bearers:
            token = _bearer(bearers[0], headers.pop(bearers[0]))
            section = {"token": token}
            self._made.auths.append({"name": name, "type": "bearer_token", "bearer_token": section})
        line.headers = headers

    def _without_secrets(self, value: Any, path: tuple[str, ...], word: str, what: str) -> Any:
        def replace(secret: str, at: tuple[str | int, ...], presumed: bool) -> str:
            if presumed or references(secret) or _PLACEHOLDER.search(secret):
                return secret
            return self._variable(word, what, secret)

        return replace_secrets(value, path, replace)

    def _variable(self, word: str, what: str, value: str) -> str:
        """A reference to the variable that the value names, or to a new variable."""
        named = references(value)
        if named:
            return value
        name = base = variable_name(self._api, word)
        number = 1
        while self._made.secrets.get(name, value) != value:
            number += 1
            name = f"{base}_{number}"
        self._made.variables[name] = what
        self._made.secrets[name] = value
        return reference(name)

    # Content

    def _set_query(self, query: str) -> None:
        found = _grouped(parse_qsl(query, keep_blank_values=True, max_num_fields=1_000))
        for key, value in found.items():
            what = f"the query parameter {one_line(key, 40)}"
            self._request.params[key] = self._slot("query", ("params", key), value, what)

    def _set_headers(self) -> None:
        for key, value in self._line.headers.items():
            if _LEFT_OUT_HEADERS.fullmatch(key):
                if key.lower() == "host":
                    self._made.notes.append("the header Host is left out: mcpx sets it")
            elif not re.fullmatch(HEADER_NAME, key) or clean(value) != value or "\n" in value:
                raise ConfigError([f"error: the header {one_line(key, 40)!r} cannot be sent"])
            else:
                self._request.headers[key] = self._slot("header", ("headers", key), value, "")

    def _set_form(self, pairs: list[tuple[str, str]]) -> None:
        self._request.body = self._fields(_grouped(pairs))
        self._request.body_format = "form"

    def _fields(self, fields: dict[str, Any]) -> Json:
        return {
            clean(key): self._slot(
                "body", ("body", key), value, f"the field {one_line(key, 40)} of the body"
            )
            for key, value in fields.items()
        }

    def _set_body(self) -> None:
        line, request = self._line, self._request
        headers = request.headers
        type_key = next((key for key in headers if key.lower() == "content-type"), "")
        kind = str(headers.get(type_key, "")).partition(";")[0].strip().lower()
        is_form = kind in ("", "application/x-www-form-urlencoded")
        text = ("" if line.is_json else "&").join(line.data)
        value = None
        if line.is_json or is_form or kind.endswith("json"):
            value = _json(text)
        pairs: list[tuple[str, str]] = []
        if value is None and is_form and not line.is_json:
            pairs = _form_pairs(text)
        if (value is not None and kind in ("", "application/json")) or is_form:
            headers.pop(type_key, None)  # mcpx sets it.
        if pairs:
            self._set_form(pairs)
        elif is_object(value) and value:
            request.body = self._fields(value)
        elif value is not None:
            request.body, request.body_format = self._whole_body(value), "json"
        else:
            if is_form:
                headers["Content-Type"] = kind or "application/x-www-form-urlencoded"
            request.body, request.body_format = self._whole_body(text), "text"

    def _whole_body(self, value: Any) -> str:
        self._possible_arguments.append("body")
        schema = {**_schema(value), "description": "The request body."}
        return self._argument("body", "request", schema, value)

    def _slot(self, place: str, path: tuple[str, str], value: Any, what: str) -> Any:
        """The value in the request: an argument with the value as its default, or the value."""
        name = path[1]
        if what:
            hidden = self._without_secrets(value, path, name, what)
            if hidden != value:
                return hidden
        self._possible_arguments.append(name)
        wanted = place != "header"
        if self._options.params:
            wanted = name in self._options.params
        # A value with braces would be read as the name of an argument.
        if not wanted and not _has_placeholder(value):
            return value
        return self._argument(name, place, _schema(value), value)

    def _argument(self, name: str, place: str, schema: Json, default: Any) -> str:
        return self._request.take(name, place, {**schema, "default": default}, False)


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


def _header_word(name: str) -> str:
    if name.lower() == "authorization":
        return "token"
    return snake(name).removeprefix("x_")


def _bearer(name: str, value: str) -> str:
    """The token if the header is `Authorization: Bearer` with a reference."""
    found = re.fullmatch(r"(?i)bearer\s+(\S+)", value)
    if found is None or name.lower() != "authorization" or not references(found[1]):
        return ""
    return found[1]


def _has_placeholder(value: Any) -> bool:
    if is_object(value):
        return any(map(_has_placeholder, value.values()))
    if is_array(value):
        return any(map(_has_placeholder, value))
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


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
        found.setdefault(clean(key), []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


def _schema(value: Any) -> Json:
    for types, name in _TYPES:
        if isinstance(value, types):
            return {"type": name}
    return {}
