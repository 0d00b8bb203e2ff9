"""The rules of each protocol revision: what it stamps on a message, what it adds to a result, what
it drops.

Two eras. *Older* (2024-11-05 … 2025-11-25): a handshake, sessions, questions pushed to the client.
*Modern* (2026-07-28): no session; every request carries its own envelope, a question is a result
(`input_required`). Pure functions on raw JSON; no I/O.
"""

import base64
import binascii
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, cast

from mcpx.model.call import Json, as_object
from mcpx.model.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    RpcError,
)
from mcpx.wire import jsonrpc

OLDER = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_OLDER = OLDER[-1]
MODERN = ("2026-07-28",)
LATEST_MODERN = MODERN[-1]

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
ENVELOPE = (VERSION_KEY, CLIENT_KEY, CAPABILITIES_KEY, LEVEL_KEY)

REMOVED = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "shutdown",
    }
)
"""Methods the modern era no longer has."""

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

CACHEABLE = frozenset(
    {
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "server/discover",
    }
)

NAME_PARAM = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose `Mcp-Name` header mirrors a param, and which one."""

MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods whose result may be a question (`input_required`); the others have an answer or an
error."""

HTTP_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""Modern era: the HTTP status a JSON-RPC error travels under, whoever made it; all others are
200."""


def is_modern_header(version: str | None) -> bool:
    """Era of an HTTP request by its `MCP-Protocol-Version`: nonsense is modern, whose ladder
    refuses it."""
    return version is not None and version not in OLDER


def is_modern_message(message: Json) -> bool:
    """Era of a message on a stream, where there are no headers."""
    if message.get("method") == "server/discover":
        return True
    meta = meta_of(message.get("params"))
    return VERSION_KEY in meta


def meta_of(params: Any) -> Mapping[str, Any]:
    """`params._meta` if there is a usable one; whatever else stands there counts as none."""
    return as_object(as_object(params).get("_meta"))


def negotiate(requested: Any) -> str:
    """The revision to answer an `initialize` with: the one asked for if we speak it, else our
    newest older one."""
    return requested if requested in OLDER else LATEST_OLDER


def admits(level: str | None, message_level: Any) -> bool:
    """Whether a log message of `message_level` passes a threshold; no threshold lets nothing
    through."""
    if level not in LOG_LEVELS:
        return False
    return message_level not in LOG_LEVELS or LOG_LEVELS.index(
        cast(str, message_level)
    ) >= LOG_LEVELS.index(level)


# Modern requests: the ladder
# ------------------------------------------------------------------------------


def check_envelope(message: Json, headers: Mapping[str, str | None] | None) -> None:
    """Rungs 1 to 3 of the modern ladder; the first failure is raised. `headers` is None where there
    are none."""
    meta = jsonrpc.params_of(message).get("_meta")
    if not isinstance(meta, dict):
        raise RpcError(
            INVALID_PARAMS,
            f"params._meta must be an object with {VERSION_KEY} and {CAPABILITIES_KEY}",
        )
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise RpcError(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version: Any = as_object(meta)[VERSION_KEY]
    if headers is not None:
        _check_headers(message, version, headers)
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"{VERSION_KEY} must be a string")
    if version not in MODERN:
        raise unsupported_version(version)


def unsupported_version(requested: str) -> RpcError:
    return RpcError(
        UNSUPPORTED_VERSION,
        f"Unsupported protocol version: {requested}",
        {"supported": list(MODERN), "requested": requested},
    )


def _check_headers(message: Json, version: Any, headers: Mapping[str, str | None]) -> None:
    if headers.get("mcp-protocol-version") is None or headers["mcp-protocol-version"] != version:
        raise RpcError(HEADER_MISMATCH, "MCP-Protocol-Version does not match params._meta")
    method = message["method"]
    if headers.get("mcp-method") != method:
        raise RpcError(HEADER_MISMATCH, f"Mcp-Method does not match the method {method!r}")
    key = NAME_PARAM.get(method)
    if key is not None:
        named = message["params"].get(key)
        if named is not None and decode_header(headers.get("mcp-name")) != named:
            raise RpcError(HEADER_MISMATCH, f"Mcp-Name does not match params.{key}")


# Header values
# ---------------------------------------------------------------------------------------------

_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")
_PLAIN = re.compile(r"[\x20-\x7e]*")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL = re.compile(r"-?[0-9]+(\.0+)?")


def encode_header(value: str) -> str:
    """A value as it survives an HTTP header: plain printable ASCII as it is, everything else
    wrapped in base64."""
    if _PLAIN.fullmatch(value) and value == value.strip() and not _WRAPPED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode()}?="


def decode_header(value: str | None) -> str | None:
    """Inverse of `encode_header`; None for a malformed wrapper, so that it never equals
    anything."""
    if value is None:
        return None
    wrapped = _WRAPPED.fullmatch(value)
    if wrapped is None:
        return value
    try:
        raw = base64.b64decode(wrapped[1], validate=True)
        if base64.b64encode(raw).decode() != wrapped[1]:  # only the canonical spelling counts
            return None
        return raw.decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        return None


ParamHeaders = Mapping[tuple[str, ...], tuple[str, str]]
"""Path of a property in a tool's arguments -> (header token, JSON type)."""

_SINGLE = frozenset(
    (
        *(
            "items",
            "contains",
            "unevaluatedItems",
            "additionalProperties",
            "propertyNames",
            "unevaluatedProperties",
        ),
        *("not", "if", "then", "else", "contentSchema"),
    )
)
_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))


_Chain = tuple[Any, str] | tuple[()] | None
"""A path as (the path before, last name): a tuple of names for each position would be quadratic in
a deep schema."""

_MOST_HEADERS = 100
_LONGEST_TOKEN = 256
"""Fields a request may have with common servers, and characters of a name; a tool that asks for
more could not be called anyway."""
LONGEST_VALUE = 8192
MOST_IN_HEADERS = 32768
"""Bytes of a call that are repeated in its headers, of one value and of all: common servers take no
more."""


def _positions(root: Any) -> Iterator[tuple[_Chain, Json]]:
    """Every schema position with its pure `properties` path, or None once another keyword was
    crossed."""
    stack: list[tuple[_Chain, Any]] = [((), root)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, dict):
            continue
        schema = cast(Json, node)
        yield path, schema
        for keyword, value in schema.items():
            if keyword == "properties" and isinstance(value, dict):
                for name, sub in cast(Json, value).items():
                    stack.append(((path, name) if path is not None else None, sub))
            elif keyword in _SINGLE:
                stack.append((None, value))
            elif keyword in _LISTS and isinstance(value, list):
                stack.extend((None, sub) for sub in cast(list[Any], value))
            elif keyword in _MAPS and isinstance(value, dict):
                stack.extend((None, sub) for sub in cast(Json, value).values())


def _names(chain: _Chain) -> tuple[str, ...]:
    names: list[str] = []
    while chain:
        chain, name = chain
        names.append(name)
    return tuple(reversed(names))


def param_headers(schema: Any) -> ParamHeaders | None:
    """The `x-mcp-header` annotations of a tool's input schema; None when one is invalid (the tool
    is then dropped)."""
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    seen: set[str] = set()
    for path, position in _positions(schema):
        if "x-mcp-header" not in position:
            continue
        token, kind = position["x-mcp-header"], position.get("type")
        if (
            not path
            or not isinstance(token, str)
            or len(token) > _LONGEST_TOKEN
            or not _TOKEN.fullmatch(token)
        ):
            return None
        if (
            kind not in ("string", "integer", "boolean")
            or token.lower() in seen
            or len(seen) == _MOST_HEADERS
        ):
            return None
        seen.add(token.lower())
        found[_names(path)] = (token, cast(str, kind))
    return found


def _argument(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(arguments, dict):
            return None
        arguments = cast(Json, arguments).get(key)
    return arguments


def _as_header(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def headers_for(annotations: ParamHeaders, arguments: Any) -> list[tuple[str, str]]:
    """The `Mcp-Param-*` headers a call sends along. What is too long for one is refused."""
    pairs: list[tuple[str, str]] = []
    size = 0
    for path, (token, _) in annotations.items():
        text = _as_header(_argument(arguments, path))
        if text is not None:
            where = ".".join(path)[:200]
            value = bounded_header(text, where)
            size += len(token) + len(value)
            if size > MOST_IN_HEADERS:
                what = (
                    f"with the argument {where!r} the arguments that this server wants as headers"
                )
                raise RpcError(INVALID_PARAMS, f"{what} are more than {MOST_IN_HEADERS:,} bytes")
            pairs.append((f"Mcp-Param-{token}", value))
    return pairs


def bounded_header(text: str, what: str) -> str:
    """A value of a request as a header repeats it, all of it printable ASCII; `what` is its
    name."""
    value = encode_header(text) if len(text) <= LONGEST_VALUE else text
    if len(value) > LONGEST_VALUE:
        text = (
            f"{what!r} has to travel as a header too, and takes more than {LONGEST_VALUE:,} "
            "bytes there"
        )
        raise RpcError(INVALID_PARAMS, text)
    return value


def check_param_headers(
    annotations: ParamHeaders, arguments: Any, headers: Mapping[str, list[str]]
) -> None:
    """Rung 4: header and argument are both there and equal, or both absent. `headers` by lower-case
    name."""
    for path, (token, kind) in annotations.items():
        given = headers.get(f"mcp-param-{token.lower()}", [])
        value = _argument(arguments, path)
        where = ".".join(path)
        if len(given) > 1:
            raise RpcError(HEADER_MISMATCH, f"Mcp-Param-{token} appears more than once")
        rendered = None if value is None else _as_header(value)
        if rendered is None:
            if given:
                raise RpcError(
                    HEADER_MISMATCH, f"Mcp-Param-{token} is present, the argument {where!r} is not"
                )
            continue
        if not given:
            raise RpcError(
                HEADER_MISMATCH, f"Mcp-Param-{token} is missing, the argument {where!r} is present"
            )
        decoded = decode_header(given[0])
        if decoded is None or not _same(kind, value, rendered, decoded):
            raise RpcError(
                HEADER_MISMATCH, f"Mcp-Param-{token} does not match the argument {where!r}"
            )


def _same(kind: str, value: Any, rendered: str, decoded: str) -> bool:
    if decoded == rendered:
        return True
    whole = (
        value.is_integer()
        if isinstance(value, float)
        else isinstance(value, int) and not isinstance(value, bool)
    )
    # 42 and 42.0 are the same integer; compared without a float in between.
    if kind != "integer" or not whole or len(decoded) >= 4000 or not _DECIMAL.fullmatch(decoded):
        return False
    return int(decoded.split(".")[0]) == int(value)


# Results and requests from one era to the other
# -------------------------------------------------------------


def stamped(
    params: Json, client: Mapping[str, Any], capabilities: Mapping[str, Any], level: str | None
) -> Json:
    """`params` with the modern envelope of one request; whatever else `_meta` holds stays."""
    meta: Json = {
        **meta_of(params),
        VERSION_KEY: LATEST_MODERN,
        CLIENT_KEY: client,
        CAPABILITIES_KEY: capabilities,
    }
    if level is not None:
        meta[LEVEL_KEY] = level
    return {**params, "_meta": meta}


def unstamped(params: Json) -> Json:
    """`params` without the modern envelope, for a server that speaks the older era."""
    meta = meta_of(params)
    if not any(key in meta for key in ENVELOPE):
        return params
    rest = {key: value for key, value in meta.items() if key not in ENVELOPE}
    bare = {key: value for key, value in params.items() if key != "_meta"}
    return {**bare, "_meta": rest} if rest else bare


def as_modern(method: str, result: Json) -> Json:
    """Add the fields that results of the modern era need. Without hints for caches, a result must
    not be cached."""
    if "resultType" in result and (
        method not in CACHEABLE or ("ttlMs" in result and "cacheScope" in result)
    ):
        return result
    added: Json = {"resultType": "complete"}
    if method in CACHEABLE and result.get("resultType", "complete") == "complete":
        added["ttlMs"] = 0
        added["cacheScope"] = "private"
    return {**added, **result}


def question_for_older(method: str, params: Any) -> Any:
    """A modern server's question as an older client takes it: a URL elicitation had an id, which
    the modern lacks."""
    fields = as_object(params)
    if (
        method == "elicitation/create"
        and fields.get("mode") == "url"
        and "elicitationId" not in fields
    ):
        return {**fields, "elicitationId": secrets.token_hex(8)}
    return params


def as_older(result: Json) -> Json:
    """A modern server's result for an older client: the three modern fields go, all others stay."""
    if "resultType" in result or "ttlMs" in result or "cacheScope" in result:
        return {k: v for k, v in result.items() if k not in ("resultType", "ttlMs", "cacheScope")}
    return result
