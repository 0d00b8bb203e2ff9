"""A curl command line as one HTTP command (SRC-7).

Promised: called without arguments the command asks what the line asked; query parameters and fields
of the body can be given otherwise. What proves the caller (a bearer token, a password, a header or
field that is a key by its name or its looks) is not written down: a variable stands in its place,
and is named.
"""

import base64
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from mcpx.imports import curl_options, words
from mcpx.imports.arguments import Request
from mcpx.imports.curl_options import Line
from mcpx.imports.made import Imported, Reference, variable
from mcpx.imports.names import constant, safe, snake
from mcpx.imports.secrets import is_secret, looks_secret
from mcpx.imports.servers import is_private
from mcpx.imports.texts import clean, one_line
from mcpx.model.call import Json, is_array, is_object
from mcpx.model.errors import ConfigError
from mcpx.wire import codec
from mcpx.wire.address import BadAddress, parse
from mcpx.wire.fields import FRAMING, HEADER_NAME

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
LONGEST = 512 * 1024
_LEFT_OUT = re.compile(rf"{FRAMING}|accept-encoding|sec-.*|priority|dnt|upgrade-insecure-requests")
_PLACEHOLDER = re.compile(r"\{[^{}]+\}")
_TYPES = (
    (bool, "boolean"),
    (int | float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


@dataclass(frozen=True, slots=True)
class Wishes:
    name: str | None = None
    auth: str | None = None
    """Name of the user's own auth config, instead of what the line shows."""
    params: tuple[str, ...] = ()
    """What becomes an argument; nothing said: every query parameter and every field of the body."""
    allow_private: bool = False


def import_curl(given: Sequence[str], wishes: Wishes) -> Imported:
    """One text, which is split as a shell does, or the words of a command line. Raises
    `ConfigError`."""
    after = ""
    if sum(map(len, given)) > LONGEST:
        raise ConfigError([f"error: the command line is longer than {LONGEST:,} characters"])
    if len(given) == 1:
        given, after = words.split(given[0])
    line = curl_options.read(given)
    if after:
        line.notes.append(f"left out: {one_line(after, 60)}")
    return _Import(line, wishes).run()


class _Import:
    def __init__(self, line: Line, wishes: Wishes) -> None:
        self._line, self._wishes = line, wishes
        self._made = Imported(notes=line.notes)
        self._request = Request("")
        self._offered: list[str] = []
        """Names that could be arguments."""
        self._api = "api"

    def run(self) -> Imported:
        line = self._line
        method = line.method or ("POST" if line.data and not line.as_query else "GET")
        if method not in METHODS:
            raise ConfigError([f"error: mcpx does not send {one_line(method, 20)!r} requests"])
        url, query = self._address()
        if line.as_query:
            query += [pair for text in line.data for pair in text.split("&")]
        name = safe(self._wishes.name or self._named(method, url))
        if not name:
            raise ConfigError(["error: not a possible name: letters, digits, _ and -"])
        auth = self._authenticate(name)
        self._query(query, auth, name)
        self._headers()
        if line.data and not line.as_query:
            self._body("&".join(line.data) if not line.is_json else "".join(line.data))
        if missing := [each for each in self._wishes.params if each not in self._offered]:
            told = one_line(", ".join(self._offered) or "nothing", 200)
            raise ConfigError(
                [
                    f"error: --param {one_line(missing[0], 40)}: there is no such name; there is "
                    f"{told}"
                ]
            )
        self._made.commands.append(self._command(name, method, url))
        if is_private(url) and not self._wishes.allow_private:
            self._made.notes.append(
                "this is a private address: --allow-private lets the command reach it"
            )
        return self._made

    def _command(self, name: str, method: str, url: str) -> Json:
        line, request = self._line, self._request
        http: Json = {"method": method, "url": self._text(url)}
        for key, value in (("params", request.params), ("headers", request.headers)):
            if value:
                http[key] = value
        if request.body is not None:
            http["body"] = request.body
        if request.body_format is not None:
            http["body_format"] = request.body_format
        auth = self._wishes.auth or (self._made.auths[0]["name"] if self._made.auths else None)
        if auth is not None:
            http["auth"] = {"ref": auth}
        if line.timeout is not None:
            http["timeout"] = line.timeout
        if line.retries is not None:
            http["max_retries"] = line.retries
        if "xml" in next((value for key, value in line.headers if key.lower() == "accept"), ""):
            http["response_format"] = "xml"
        if self._wishes.allow_private:
            http["allow_private"] = True
        path = words.VARIABLE.sub(r"\1", url.partition("://")[2])
        return {
            "name": name,
            "description": f"{method} {clean(path)}",
            "type": "http",
            "http": http,
            **({"input_schema": request.schema} if request.properties else {}),
        }

    # Where it goes
    # ----------------------------------------------------------------------------------------------

    def _address(self) -> tuple[str, list[str]]:
        """The address without its query, and the pairs of that."""
        url = self._line.url.partition("#")[0]
        if not re.match(r"(?i)https?://", url) and not url.startswith(words.BEGINS):
            if "://" in url:
                raise ConfigError(["error: only http and https addresses can be imported"])
            url = f"http://{url}"
        url, _, query = url.partition("?")
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        if "@" in host:
            userinfo, _, host = host.rpartition("@")
            self._line.user = self._line.user or unquote(userinfo)
        self._api = _api_of(host)
        url = f"{scheme}://{host}{slash}{self._path(path)}" if rest else url
        try:
            parse(_PLACEHOLDER.sub("x", words.VARIABLE.sub("x", url)) if rest else "http://x")
        except BadAddress as problem:
            raise ConfigError([f"error: the address: {problem}"]) from None
        return url, [*filter(None, query.split("&")), *self._line.query]

    def _path(self, path: str) -> str:
        """With its `{name}` as arguments, and a variable for what looks like a secret."""
        made: list[str] = []
        for segment in path.split("/"):
            if looks_secret(segment):
                made.append(
                    f"{words.BEGINS}{self._secret('key', 'the key in the address', segment)}{words.ENDS}"
                )
                continue
            for written in dict.fromkeys(_PLACEHOLDER.findall(segment)):
                stands_for = self._request.take(written[1:-1], "path", {"type": "string"}, True)
                segment = segment.replace(written, stands_for)
            left = _PLACEHOLDER.sub("", segment)
            made.append(
                segment if "{" not in left and "}" not in left else quote(segment, safe="%")
            )
        return "/".join(made)

    def _named(self, method: str, url: str) -> str:
        steps = [
            step
            for step in urlsplit(url).path.split("/")
            if re.fullmatch(r"[A-Za-z][\w.-]*", step, re.ASCII)
        ]
        return snake("_".join((method, self._api, *steps[-3:])))[:48]

    # What proves the caller
    # --------------------------------------------------------------------------------------

    def _authenticate(self, name: str) -> bool:
        """Takes secrets out of the headers; whether there is an auth config for them."""
        line = self._line
        shown = [(key, value) for key, value in line.headers if is_secret(key, value, header=True)]
        line.headers = [pair for pair in line.headers if pair not in shown]
        if self._wishes.auth is not None:
            if shown or line.user is not None:
                line.notes.append(
                    f"what proves you is left out of the request: {self._wishes.auth!r} does that"
                )
            return True
        if (
            line.user is None
            and len(shown) == 1
            and (found := re.fullmatch(r"(?i)basic\s+(\S+)", shown[0][1]))
        ):
            try:
                line.user = base64.b64decode(found[1], validate=True).decode()
                shown = []
            except ValueError:  # not what it says it is: taken as it stands
                pass
        if line.user is not None and not shown:
            section = self._basic(line.user)
            self._auth(name, "basic_auth", section)
        elif len(shown) == 1 and (found := re.fullmatch(r"(?i)bearer\s+(\S+)", shown[0][1])):
            token = self._secret("token", "the bearer token", found[1])
            self._auth(name, "bearer_token", {"token": variable(token)})
        elif len(shown) == 1:
            key, value = shown[0]
            self._auth(
                name,
                "api_key",
                {"location": "header", "name": key, "value": self._header_secret(key, value)},
            )
        elif shown:
            if line.user is not None:
                shown.append(
                    ("Authorization", f"Basic {base64.b64encode(line.user.encode()).decode()}")
                )
            headers = {key: self._header_secret(key, value) for key, value in shown}
            self._auth(name, "custom_header", {"headers": headers})
        else:
            return False
        return True

    def _auth(self, name: str, kind: str, section: Json) -> None:
        self._made.auths.append({"name": f"{name[:59]}_auth", "type": kind, kind: section})

    def _basic(self, user: str) -> Json:
        username, _, password = user.partition(":")
        section: Json = {
            "username": variable(self._secret("username", "the user name", username)),
            "password": "",
        }
        if password:
            section["password"] = variable(self._secret("password", "the password", password))
        return section

    def _header_secret(self, key: str, value: str) -> Reference:
        scheme, blank, rest = value.partition(" ")
        worded = bool(blank) and key.lower() == "authorization" and scheme.isalpha()
        name = "authorization" if key.lower() == "authorization" else snake(key).removeprefix("x_")
        what = f"the header {one_line(key, 40)}" + (f", what follows {scheme!r}" if worded else "")
        found = variable(self._secret(name, what, rest if worded else value))
        return Reference(f"{scheme} {found}") if worded else found

    def _secret(self, word: str, what: str, value: str = "") -> str:
        """The variable that stands for a secret: the one the line names itself, or a new one."""
        own = words.VARIABLE.fullmatch(value)
        name = own[1] if own else constant(self._api, word)
        self._made.variables[name] = what
        if value and words.BEGINS not in value:
            self._made.secrets[name] = value
        return name

    # What is sent
    # ----------------------------------------------------------------------------------------------

    def _query(self, pairs: Sequence[str], has_auth: bool, name: str) -> None:
        found: dict[str, list[str]] = {}
        for key, value in parse_qsl("&".join(pairs), keep_blank_values=True, max_num_fields=1_000):
            found.setdefault(clean(key), []).append(value)
        hidden = [key for key, values in found.items() if is_secret(key, values[0])]
        for key, values in found.items():
            if key not in hidden:
                self._request.params[key] = self._slot(
                    "query", key, values[0] if len(values) == 1 else values
                )
                continue
            stands_for = variable(
                self._secret(key, f"the query parameter {one_line(key, 40)}", values[0])
            )
            if len(hidden) == 1 and not has_auth:
                self._auth(name, "api_key", {"location": "query", "name": key, "value": stands_for})
            else:
                self._request.params[key] = stands_for

    def _headers(self) -> None:
        for key, value in self._line.headers:
            if _LEFT_OUT.fullmatch(key):
                if key.lower() == "host":
                    self._made.notes.append("the header Host is left out: mcpx sets it")
            elif not re.fullmatch(HEADER_NAME, key) or clean(value) != value or "\n" in value:
                raise ConfigError([f"error: the header {one_line(key, 40)!r} cannot be sent"])
            else:
                self._request.headers[key] = self._slot("header", key, value)

    def _content_type(self) -> str:
        found = next(
            (value for key, value in self._line.headers if key.lower() == "content-type"), ""
        )
        return found.partition(";")[0].strip().lower()

    def _drop_content_type(self) -> None:
        """What mcpx says itself."""
        for key in [key for key in self._request.headers if key.lower() == "content-type"]:
            del self._request.headers[key]

    def _body(self, text: str) -> None:
        kind, request = self._content_type(), self._request
        is_form = kind in ("", "application/x-www-form-urlencoded")
        value = _json(text) if kind.endswith("json") or self._line.is_json or is_form else None
        if is_object(value) or is_array(value):
            if kind in ("", "application/json", "application/x-www-form-urlencoded"):
                self._drop_content_type()
            if is_object(value) and value:
                request.body = {clean(key): self._field(key, item) for key, item in value.items()}
            else:
                request.body, request.body_format = self._whole(value), "json"
            return
        pairs = _form(text) if is_form and not self._line.is_json else None
        if pairs:
            self._drop_content_type()
            request.body_format = "form"
            request.body = {clean(key): self._field(key, item) for key, item in pairs.items()}
            return
        if not kind:
            request.headers["Content-Type"] = (
                "application/x-www-form-urlencoded"  # as curl says of anything
            )
        request.body, request.body_format = self._whole(text), "text"

    def _whole(self, value: Any) -> str:
        self._offered.append("body")
        schema = {
            **_schema(value),
            "description": "What is sent as the body.",
            "default": self._value(value),
        }
        return self._argument("body", "request", schema)

    def _field(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and is_secret(key, value):
            return variable(self._secret(key, f"the field {one_line(key, 40)} of the body", value))
        return self._slot("body", key, value)

    def _slot(self, place: str, name: str, value: Any) -> Any:
        """What stands in the request for a value: an argument that has it as its default, or the
        value itself."""
        self._offered.append(name)
        wanted = name in self._wishes.params if self._wishes.params or place == "header" else True
        # What would be taken for an argument of the command has to be the value of one.
        if not wanted and not any(map(_PLACEHOLDER.search, _texts(value))):
            return self._value(value)
        return self._argument(name, place, {**_schema(value), "default": self._value(value)})

    def _argument(self, name: str, place: str, schema: Json) -> str:
        default = schema.pop("default")
        stands_for = self._request.take(name, place, schema, False)
        self._request.properties[stands_for[1:-1]]["default"] = default
        return stands_for

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if is_object(value):
            return {clean(key): self._value(item) for key, item in value.items()}
        return [self._value(item) for item in value] if is_array(value) else value

    def _text(self, text: str) -> str:
        """With references for the variables that the line names."""
        if not (found := words.VARIABLE.findall(text)):
            return text
        for name in found:
            self._made.variables.setdefault(name, "named in the command line")
        return Reference(words.VARIABLE.sub(r"${\1}", clean_but_marks(text).replace("$", "$$")))


def clean_but_marks(text: str) -> str:
    """`clean` takes the marks of variables off, too."""
    return "".join(
        part if index % 2 == 0 else f"{words.BEGINS}{part}{words.ENDS}"
        for index, part in enumerate(clean(part) for part in words.VARIABLE.split(text))
    )


def _api_of(host: str) -> str:
    """The word of a host name that tells whose it is."""
    name = words.VARIABLE.sub(r"\1", host).partition(":")[0].lower()
    labels = [label for label in name.split(".") if label not in ("www", "api", "rest")]
    if re.fullmatch(r"[\d.]+|localhost|\[.*", name):
        return "local"
    return snake(labels[-2] if len(labels) > 1 else (labels or ["api"])[0]) or "api"


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return codec.load(text.encode("utf-8", "replace"), strict=True)
    except codec.BadJson:
        return None


def _form(text: str) -> Json | None:
    """The fields of a form; None for a text that is none."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=1_000)
    except ValueError:
        return None
    found: dict[str, Any] = {}
    for key, value in pairs:
        before = found.get(key)
        found[key] = (
            value if key not in found else [*(before if is_array(before) else [before]), value]
        )
    return found or None


def _schema(value: Any) -> Json:
    kind = next((name for types, name in _TYPES if isinstance(value, types)), None)
    return {} if kind is None else {"type": kind}


def _texts(value: Any) -> Collection[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if is_object(value) else value if is_array(value) else ()
    return [text for item in inner for text in _texts(item)]
