"""What the fuzzer sends: values, messages, requests and frames that are nearly right, each made
from a seeded `Random`.

Standard library only, for the servers that fuzz from behind import it too. Nothing here keeps
anything: the same random numbers give the same bytes.
"""

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Json = dict[str, Any]

MODERN = "2026-07-28"
VERSIONS = (
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    MODERN,
    "2099-01-01",
    "",
    "1",
    "²",
)
META = "io.modelcontextprotocol/"

TOKENS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"\x80",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\xbd",
    ),
    *(
        b"0",
        b"-1",
        b"1e400",
        b"99999999999999999999",
        b"0x10",
        "²".encode(),
        b"null",
        b"NaN",
        b"true",
        b"[]",
        b"{}",
    ),
    *(
        b'"',
        b"\\",
        b"\\u0000",
        b"\\ud83d",
        b"[[[[[[[[",
        b"}}}}",
        b'{"a":',
        b"HTTP/1.1",
        b"Content-Length: 5\r\n",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"data: ",
        b"id: ",
        b"retry: 0\n",
        b"event: endpoint\n",
        b"\n\n",
    ),
)

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        2**53,
        2**64,
        -(2**63),
        1.5,
        1e308,
        "",
        " ",
        "x",
        "²",
        "\0",
        "\n",
        "é✓😀",
    ),
    *(
        "a" * 5000,
        [],
        {},
        [[]],
        [None],
        {"": ""},
        {"a": {"b": {"c": []}}},
        "\ud83d",
        "../..",
        "%00",
        "\x1b[31m",
        "{}",
    ),
    *(
        MODERN,
        "2025-11-25",
        "notifications/cancelled",
        "tools/call",
        "file:///etc/passwd",
        "mcpx://x",
        "id",
        "1",
    ),
)

METHODS = (
    *(
        "initialize",
        "ping",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/read",
        "resources/subscribe",
    ),
    *(
        "resources/templates/list",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
    ),
    *(
        "server/discover",
        "subscriptions/listen",
        "notifications/initialized",
        "notifications/cancelled",
    ),
    *(
        "notifications/progress",
        "notifications/roots/list_changed",
        "sampling/createMessage",
        "roots/list",
        "",
        "x" * 300,
    ),
)
"""Not `shutdown`: it ends what it is sent to."""


# ---- texts that belong to one call


def nonce(name: str) -> str:
    """A text that a change of any of its letters spoils: one that is whole was sent by somebody."""
    return f"<{name}#{zlib.crc32(name.encode()):08x}>"


def nonces(text: str) -> set[str]:
    """The whole ones in a text."""
    found: set[str] = set()
    for part in text.split("<")[1:]:
        name, _, rest = part.partition("#")
        if rest[8:9] == ">" and rest[:8] == f"{zlib.crc32(name.encode(errors='replace')):08x}":
            found.add(f"<{name}#{rest[:8]}>")
    return found


# ---- bytes


def mutated(rng: Random, data: bytes, most: int = 4) -> bytes:
    """The same bytes with up to so many changes, mostly few."""
    changed = bytearray(data)
    for _ in range(min(rng.randrange(most + 1), rng.randrange(most + 1))):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice((1, 1, 2, 4, 16, 200)))
        match rng.randrange(7):
            case 0 if changed:
                changed[at % len(changed)] = rng.randrange(256)
            case 1:
                del changed[at:end]
            case 2:
                changed[at:at] = changed[at:end] * rng.choice((1, 2, 30))
            case 3 | 4:
                changed[at:at] = rng.choice(TOKENS)
            case 5:
                del changed[at:]
            case _:
                changed[at:end] = rng.choice(TOKENS)
    return bytes(changed)


def pieces(rng: Random, data: bytes) -> list[bytes]:
    """The same bytes in as many sends as chance has it."""
    if rng.random() < 0.6:
        return [data]
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 6)))
    return [
        piece
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)
        if (piece := data[start:end])
    ]


# ---- JSON-RPC


def bent(rng: Random, value: Any, chance: float = 0.15) -> Any:
    """The same value with some of its parts replaced, left out or made twice as deep."""
    if rng.random() < chance / 3:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        items = {
            key: bent(rng, part, chance) for key, part in value.items() if rng.random() > chance / 4
        }
        if rng.random() < chance / 2:
            items[rng.choice(("_meta", "id", "method", "params", "result", "error", "x", ""))] = (
                rng.choice(VALUES)
            )
        return items
    if isinstance(value, list):
        return [bent(rng, part, chance) for part in value] * (2 if rng.random() < chance / 4 else 1)
    if rng.random() < chance / 6:
        return deep(value, rng.choice((10, 200, 300, 1100)))
    return value


def deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def encoded(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except RecursionError:  # deeper than we can write it ourselves
        return (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 5000 + b"]" * 5000 + b"}"
        )


def request(rng: Random, tools: Sequence[str], modern: bool | None = None) -> Json:
    """A request, a notification or a reply, right in form; what is asked may be nonsense."""
    method = rng.choice(METHODS) if rng.random() < 0.6 else "tools/call"
    params: Json = {}
    match method:
        case "tools/call":
            params = {"name": rng.choice(tools), "arguments": {"text": rng.choice(VALUES)}}
        case "initialize":
            client = {"name": "fuzz", "version": "1"}
            able = rng.choice(
                ({}, {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}})
            )
            params = {
                "protocolVersion": rng.choice(VERSIONS),
                "capabilities": able,
                "clientInfo": client,
            }
        case "resources/read" | "resources/subscribe":
            params = {"uri": rng.choice(("file:///x", "mcpx://a/b", "", "x" * 3000))}
        case "notifications/cancelled":
            params = {"requestId": rng.choice((1, 2, 3, "x", None))}
        case "notifications/progress":
            params = {"progressToken": rng.choice((1, "x", None)), "progress": rng.choice(VALUES)}
        case "logging/setLevel":
            params = {"level": rng.choice(("debug", "error", "loud", 1))}
        case "subscriptions/listen":
            params = {
                "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["file:///x"]}
            }
        case _:
            params = {"cursor": rng.choice(VALUES)} if rng.random() < 0.2 else {}
    if modern if modern is not None else rng.random() < 0.3:
        params["_meta"] = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
    elif rng.random() < 0.2:
        params["_meta"] = {"progressToken": rng.choice((1, "t", None, 1.5))}
    message: Json = {"jsonrpc": "2.0", "method": method, "params": params}
    if not method.startswith("notifications/"):
        message["id"] = rng.choice(
            (rng.randrange(1000), rng.randrange(1000), f"i{rng.randrange(99)}", None, 1.5, True)
        )
    if rng.random() < 0.05:
        message = {
            "jsonrpc": "2.0",
            "id": rng.randrange(20),
            rng.choice(("result", "error")): rng.choice(VALUES),
        }
    return message


def message(rng: Random, tools: Sequence[str], modern: bool | None = None) -> bytes:
    """One message: right, bent, or broken in its bytes."""
    value: Any = request(rng, tools, modern)
    if rng.random() < 0.05:
        value = [value] * rng.choice((0, 1, 2, 50))
    match rng.randrange(6):
        case 0 | 1 | 2:
            return encoded(value)
        case 3 | 4:
            return encoded(bent(rng, value))
        case _:
            return mutated(rng, encoded(value))


# ---- HTTP


def chunks(rng: Random, body: bytes) -> bytes:
    """Chunked, mostly rightly."""
    made, left = b"", body
    while left:
        size = rng.choice((1, 5, 50, len(left)))
        part, left = left[:size], left[size:]
        extension = rng.choice((b"", b"", b"", b";a=b", b" ", b";" + b"x" * 500))
        made += b"%x%b\r\n%b\r\n" % (len(part), extension, part)
        if rng.random() < 0.05:
            made += rng.choice(
                (b"-1\r\n", b"ffffffffffffffff\r\n", b"\r\n", b"zz\r\n", b"5\r\nab\r\n")
            )
    trailer = rng.choice((b"", b"", b"", b"a: b\r\n", b"content-length: 3\r\n", b"host: x\r\n"))
    return made + rng.choice((b"0\r\n%b\r\n" % trailer,) * 9 + (b"0\r\n", b""))


def http(
    rng: Random, port: int, tools: Sequence[str], session: str, paths: Sequence[str] = ()
) -> bytes:
    """One request on the wire; about half of them are wrong in their message only."""
    host = f"127.0.0.1:{port}"
    if rng.random() < 0.5:
        return tame(rng, host, tools, session)
    method = rng.choice(
        ("POST",) * 12 + ("GET", "GET", "DELETE", "OPTIONS", "HEAD", "PUT", "CONNECT", "G\0T", "")
    )
    target = rng.choice(
        ("/mcp",) * 10 + ("/health", "/sse", "/ws", "/mcp/search", "/mcp/x", "*", "/", *paths)
    )
    match rng.randrange(30):
        case 0:
            target = f"http://{rng.choice((host, 'evil.example', '', host + '@x', '[::1]', '127.1:'))}{target}"
        case 1:
            target += rng.choice(
                ("?", "?a=b", "#x", "%00", "%", "//", "/../mcp", " x", "x" * 9000, "é")
            )
        case _:
            pass
    modern = rng.random() < 0.3
    body = message(rng, tools, modern)
    headers: list[tuple[str, str]] = [
        (
            "Host",
            host
            if rng.random() < 0.95
            else rng.choice(("evil.example", "", "localhost", "127.0.0.1:x", "a b")),
        ),
        (
            "Content-Type",
            rng.choice(
                ("application/json",) * 9 + ("text/plain", "", "application/json; charset=utf-16")
            ),
        ),
        (
            "Accept",
            rng.choice(
                ("application/json, text/event-stream",) * 9 + ("*/*", "text/html", "", "," * 500)
            ),
        ),
    ]
    if session and not modern and rng.random() < 0.8:
        headers += [
            ("Mcp-Session-Id", session),
            ("MCP-Protocol-Version", rng.choice(VERSIONS[2:4] * 20 + VERSIONS)),
        ]
    if modern:
        value = _method_of(body)
        headers += [
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", value),
            ("Mcp-Name", rng.choice(tools)),
        ]
    if rng.random() < 0.3:
        headers.append(rng.choice(_odd_headers(rng)))
    framed = _framed(rng, method, body, headers)
    head = (
        f"{method} {target} "
        f"{rng.choice(('HTTP/1.1',) * 20 + ('HTTP/1.0', 'HTTP/2.0', 'HTTP/9', ''))}\r\n"
    )
    head += "".join(f"{name}: {value}\r\n" for name, value in headers)
    whole = head.encode("utf-8", "replace") + b"\r\n" + framed
    return mutated(rng, whole) if rng.random() < 0.1 else whole


def tame(rng: Random, host: str, tools: Sequence[str], session: str) -> bytes:
    """A request that gets as far as its message is read."""
    modern = not session or rng.random() < 0.3
    body = message(rng, tools, modern)
    headers = [
        ("Host", host),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ]
    if modern:
        headers += [("MCP-Protocol-Version", MODERN), ("Mcp-Method", _method_of(body))]
        if name := _name_of(body):
            headers.append(("Mcp-Name", name))
    else:
        headers += [
            ("Mcp-Session-Id", session),
            ("MCP-Protocol-Version", rng.choice(VERSIONS[1:4])),
        ]
    if rng.random() < 0.2:
        framed = chunks(rng, body)
        headers.append(("Transfer-Encoding", "chunked"))
    else:
        framed = body
        headers.append(("Content-Length", str(len(body))))
    head = "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers)
    return head.encode("utf-8", "replace") + b"\r\n" + framed


def _name_of(body: bytes) -> str:
    try:
        params = json.loads(body)["params"]
        return (
            str(params.get("name", params.get("uri", "")))[:300].replace("\r", "").replace("\n", "")
        )
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return ""


def _method_of(body: bytes) -> str:
    try:
        value = json.loads(body)
        return str(value.get("method", "x"))[:100].replace("\r", "").replace("\n", "")
    except (ValueError, AttributeError, RecursionError):
        return "tools/call"


def _odd_headers(rng: Random) -> list[tuple[str, str]]:
    return [
        (
            "Origin",
            rng.choice(
                ("null", "http://localhost:1", "http://evil.example", "http://127.0.0.1", "")
            ),
        ),
        ("Last-Event-ID", rng.choice(("0", "²", "x-1", "-1", "1" * 2000, "", "a-b-c", "0-0"))),
        ("Expect", rng.choice(("100-continue", "x"))),
        ("Connection", rng.choice(("close", "keep-alive", "Upgrade", "x", ""))),
        ("Upgrade", rng.choice(("websocket", "h2c", ""))),
        ("Authorization", rng.choice(("Bearer x", "Basic eDp4", "", "Bearer " + "x" * 8000))),
        ("Mcp-Param-Region", rng.choice(("x", "=?base64?eA==?=", "=?base64?!?=", "x" * 8000))),
        ("Content-Encoding", rng.choice(("gzip", "identity", "x"))),
        ("X", "y" * rng.choice((10, 1000, 70_000))),
        ("X-\u00e9", "z"),
        ("Cookie", "a=b"),
        ("Mcp-Session-Id", rng.choice(("x", "", "²", "x" * 3000))),
    ]


def _framed(rng: Random, method: str, body: bytes, headers: list[tuple[str, str]]) -> bytes:
    if method in ("GET", "DELETE", "HEAD") and rng.random() < 0.8:
        return b""
    match rng.randrange(20):
        case 0:
            headers.append(
                (
                    "Content-Length",
                    rng.choice(("0", "-1", "+3", "x", "99999999999999999999", "1, 1", "²")),
                )
            )
        case 1:
            length = str(len(body))
            headers += [("Content-Length", length), ("Content-Length", rng.choice((length, "3")))]
        case 2:
            headers += [("Content-Length", str(len(body))), ("Transfer-Encoding", "chunked")]
        case 3 | 4 | 5:
            headers.append(
                (
                    "Transfer-Encoding",
                    rng.choice(("chunked",) * 5 + ("Chunked", "gzip, chunked", "x", "chunked, x")),
                )
            )
            return chunks(rng, body)
        case 6:
            pass
        case _:
            headers.append(("Content-Length", str(len(body))))
    return body


# ---- WebSocket


def frame(
    payload: bytes, opcode: int = 1, fin: bool = True, mask: bytes | None = b"abcd", rsv: int = 0
) -> bytes:
    first = opcode | (0x80 if fin else 0) | rsv << 4
    masked = 0x80 if mask is not None else 0
    if len(payload) < 126:
        head = struct.pack("!BB", first, masked | len(payload))
    elif len(payload) < 65536:
        head = struct.pack("!BBH", first, masked | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first, masked | 127, len(payload))
    if mask is None:
        return head + payload
    cycle = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return head + mask + bytes(a ^ b for a, b in zip(payload, cycle, strict=True))


def frames(rng: Random, payload: bytes, masked: bool) -> bytes:
    """A message as frames: whole, in fragments with something between them, or none that a peer may
    send."""
    mask = rng.randbytes(4) if masked else None
    match rng.randrange(12):
        case 0:
            parts = pieces(rng, payload) or [b""]
            between = frame(b"x", rng.choice((9, 10)), True, mask)
            made = [
                frame(part, 1 if at == 0 else 0, at == len(parts) - 1, mask)
                for at, part in enumerate(parts)
            ]
            return between.join(made)
        case 1:
            return frame(rng.randbytes(rng.choice((0, 1, 125))), rng.choice((9, 10)), True, mask)
        case 2:
            return frame(payload, 2, True, mask)
        case 3:
            return frame(b"", rng.choice((0, 1, 2)), rng.random() < 0.5, mask)
        case 4 if rng.random() < 0.3:
            return rng.choice(_bad_frames(rng, payload, mask))
        case 5 if rng.random() < 0.3:
            return mutated(rng, frame(payload, 1, True, mask))
        case _:
            return frame(payload, 1, True, mask)


def _bad_frames(rng: Random, payload: bytes, mask: bytes | None) -> list[bytes]:
    return [
        frame(payload, rng.choice((3, 7, 11, 15)), True, mask),
        frame(payload, 1, True, mask, rsv=rng.randrange(1, 8)),
        frame(payload, 1, True, None if mask else b"abcd"),
        frame(b"x" * 200, 9, True, mask),
        frame(b"x", 9, False, mask),
        frame(b"x", 0, True, mask),
        struct.pack("!BBQ", 0x81, 0xFF if mask else 0x7F, rng.choice((2**63, 2**62, 2**20, 0)))
        + (mask or b""),
        frame(
            rng.choice((b"", b"\x03", b"\x03\xe8", b"\x00\x00x", b"\x03\xe8\xff\xfe")),
            8,
            True,
            mask,
        ),
        frame(b"\xff\xfe\xed\xa0\xbd", 1, True, mask),
    ]


def handshake(rng: Random, port: int) -> bytes:
    """Of a client; mostly right."""
    headers = [("Host", f"127.0.0.1:{port}"), ("Upgrade", "websocket"), ("Connection", "Upgrade")]
    headers += [("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="), ("Sec-WebSocket-Version", "13")]
    headers += [("Sec-WebSocket-Protocol", "mcp")]
    if rng.random() < 0.15:
        at = rng.randrange(len(headers))
        headers[at] = (
            headers[at][0],
            rng.choice(("", "x", "13, 13", "²", "x" * 3000, "evil.example")),
        )
    if rng.random() < 0.1:
        headers.append(
            ("Sec-WebSocket-Extensions", rng.choice(("permessage-deflate", "x; y=", "")))
        )
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    whole = f"GET /ws HTTP/1.1\r\n{head}\r\n".encode()
    return mutated(rng, whole) if rng.random() < 0.1 else whole


# ---- pipes and event streams


def line(rng: Random, body: bytes) -> bytes:
    """Of a client on standard input: always one whole line, whatever is in it."""
    noise = rng.choice(
        (b"", b"", b"", b"\n", b"\r\n", b"   \n", b"\xff\xfe\n", b"x" * 5000 + b"\n")
    )
    text = body.replace(b"\n", b" ")
    return (
        noise + (text if not text[:20].lower().lstrip().startswith(b"content-") else b"{}") + b"\n"
    )


def block(rng: Random, body: bytes) -> bytes:
    """A message with a header, mostly rightly counted."""
    length = len(body) if rng.random() < 0.95 else rng.choice((0, 3, len(body) + 1, -1, 10**12))
    extra = rng.choice((b"", b"", b"Content-Type: application/json\r\n", b"x\r\n"))
    return b"%bContent-Length: %d\r\n\r\n%b" % (extra, length, body)


def event(rng: Random, data: bytes) -> bytes:
    """A server-sent event, with what may stand around it."""
    before = rng.choice(
        (
            b"",
            b"",
            b":\n",
            b": ping\n\n",
            b"id: 1\n",
            b"id: \xc2\xb2\n",
            b"retry: 0\n",
            b"retry: \xc2\xb2\n",
        )
    )
    before += rng.choice(
        (b"", b"", b"event: message\n", b"event: x\n", b"id\n", b"id: " + b"i" * 3000 + b"\n")
    )
    end = rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    if rng.random() < 0.1:
        data = data.replace(b",", b"," + end + b"data: ")
    return before + b"data: " + data + end + end


Maker = Callable[[Random], bytes]
