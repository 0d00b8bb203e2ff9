"""ADM-6: who comes in, and who does not, whatever they send."""

from urllib.parse import quote

import pytest

from kit.admin_api import browser_session
from kit.gateway import Gateway
from kit.http_client import fetch, send_bytes

WANTED = (
    "x-content-type-options",
    "referrer-policy",
    "cross-origin-opener-policy",
    "permissions-policy",
    "x-frame-options",
    "content-security-policy",
    "cache-control",
)


def port_of(gateway: Gateway) -> str:
    return gateway.admin_url.rpartition(":")[2]


def test_nothing_of_the_api_is_told_without_a_token(gateway: Gateway) -> None:
    document = fetch(gateway.admin_url, "/api/openapi.json", headers=gateway.admin_headers).json
    public = {("/api/login", "post"), ("/api/session", "get")}
    told: list[tuple[str, str]] = []
    for path, verbs in document["paths"].items():
        for verb in verbs:
            answer = fetch(gateway.admin_url, path.replace("{", "").replace("}", ""), verb.upper())
            if (path, verb) not in public and answer.status != 401:
                told.append((verb, path))
    assert told == []
    for path in ("/api/openapi.json", "/api", "/api/", "/api/no-such", "/api/docs"):
        assert fetch(gateway.admin_url, path).status == 401


@pytest.mark.parametrize(
    "given",
    [
        [("Authorization", "Bearer wrong")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("Authorization", "Basic {token}")],
        [("Authorization", "{token}")],
        [("Authorization", "Bearer {token}x")],
        [("Authorization", "Bearer wrong"), ("Authorization", "Bearer {token}")],
        [("Authorization", "Bearer {token}"), ("Authorization", "Bearer wrong")],
        [("Cookie", "mcpx-admin={token}")],
    ],
)
def test_what_is_not_the_token_to_the_letter_is_refused(
    gateway: Gateway, given: list[tuple[str, str]]
) -> None:
    headers = [(name, value.replace("{token}", gateway.admin_token)) for name, value in given]
    answer = fetch(gateway.admin_url, "/api/about", headers=headers)
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert gateway.admin_token.encode() not in answer.body


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost.evil.example:{port}",
        "127.0.0.1.evil.example",
        "0.0.0.0:{port}",
        "127.0.0.2:{port}",
        "127.1:{port}",
        "2130706433:{port}",
    ],
)
@pytest.mark.parametrize(
    "path", ["/", "/login", "/api/session", "/api/events", "/api/login", "/assets/x.js"]
)
def test_a_name_that_was_pointed_at_this_machine_gets_nothing(
    gateway: Gateway, host: str, path: str
) -> None:
    """DNS rebinding: the browser says the attacker's name."""
    headers = {**gateway.admin_headers, "Host": host.replace("{port}", port_of(gateway))}
    answer = fetch(gateway.admin_url, path, headers=headers)
    assert (answer.status, answer.code) == (403, "forbidden_host")


@pytest.mark.parametrize(
    "host", ["", "a b", "127.0.0.1:{port}:1", "127.0.0.1:{port}/", "user@127.0.0.1:{port}", "[::1"]
)
def test_what_is_no_host_at_all_is_a_bad_request(gateway: Gateway, host: str) -> None:
    answer = fetch(
        gateway.admin_url,
        "/api/session",
        headers={"Host": host.replace("{port}", port_of(gateway))},
    )
    assert answer.status == 400


def test_two_hosts_or_none_are_refused(gateway: Gateway) -> None:
    ours = gateway.admin_url.removeprefix("http://").encode()
    for lines in (
        b"Host: %s\r\nHost: evil.example\r\n" % ours,
        b"Host: %s\r\nhost: %s\r\n" % (ours, ours),
        b"",
    ):
        answer = send_bytes(
            gateway.admin_url,
            b"GET /api/session HTTP/1.1\r\n" + lines + b"Connection: close\r\n\r\n",
        )
        assert answer.startswith(b"HTTP/1.1 400 ") and b"x-content-type-options: nosniff" in answer


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_names_of_this_machine_are_ours_at_any_port(gateway: Gateway, name: str) -> None:
    """A tunnel has another port than the one it leads to."""
    for host in (name, f"{name}:{port_of(gateway)}", f"{name}:9999"):
        assert fetch(gateway.admin_url, "/api/session", headers={"Host": host}).status == 200
    headers = {"Host": f"{name}:9999", "Origin": f"http://{name.lower()}:9999"}
    assert fetch(gateway.admin_url, "/api/session", headers=headers).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://127.0.0.1:9999",
        "http://127.0.0.1",
        "http://localhost:{port}",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:{port}@evil.example",
        "http://127.0.0.1:{port}.evil.example",
        "file://",
        "chrome-extension://abcdef",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/session", "/api/events", "/api/about"])
def test_a_page_of_anybody_else_gets_nothing_even_with_the_token(
    gateway: Gateway, origin: str, path: str
) -> None:
    headers = {**gateway.admin_headers, "Origin": origin.replace("{port}", port_of(gateway))}
    answer = fetch(gateway.admin_url, path, headers=headers)
    assert (answer.status, answer.code) == (403, "forbidden_origin")
    assert answer.headers["access-control-allow-origin"] is None


def test_two_origins_are_refused(gateway: Gateway) -> None:
    headers = [
        ("Origin", gateway.admin_url),
        ("Origin", gateway.admin_url),
        *gateway.admin_headers.items(),
    ]
    assert fetch(gateway.admin_url, "/api/session", headers=headers).code == "forbidden_origin"


@pytest.mark.parametrize("said", ["cross-site", "same-site", "anything"])
def test_what_a_browser_calls_another_site_is_refused_without_an_origin_too(
    gateway: Gateway, session: dict[str, str], said: str
) -> None:
    """An image of another port of this machine: the cookie comes along, an Origin does not."""
    headers = {**session, "Sec-Fetch-Site": said}
    assert fetch(gateway.admin_url, "/api/session", headers=headers).code == "cross_site"
    twice = [*session.items(), ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", said)]
    assert fetch(gateway.admin_url, "/api/session", headers=twice).code == "cross_site"
    for ours in ("same-origin", "none"):
        assert (
            fetch(
                gateway.admin_url, "/api/session", headers={**headers, "Sec-Fetch-Site": ours}
            ).status
            == 200
        )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/about"),
        ("GET", "/api/config"),
        ("GET", "/api/events"),
        ("POST", "/api/mcp-servers/x"),
        ("PUT", "/api/mcp-servers/x"),
        ("PATCH", "/api/mcp-servers/x"),
        ("DELETE", "/api/mcp-servers/x"),
        ("POST", "/api/logout"),
    ],
)
def test_a_cookie_alone_does_nothing(
    gateway: Gateway, session: dict[str, str], method: str, path: str
) -> None:
    """SEC-8: a listener on another port of this host receives the cookie, and replays it."""
    cookie = session["Cookie"]
    of_another = browser_session(gateway)["X-Mcpx-Session"]
    own = session["X-Mcpx-Session"]
    guesses: list[list[tuple[str, str]]] = [
        [],
        [("X-Mcpx-Csrf", "1")],
        [("X-Mcpx-Session", "1")],
        [("X-Mcpx-Session", "")],
        [("X-Mcpx-Session", cookie.partition("=")[2])],
        [("X-Mcpx-Session", of_another)],
        [("X-Mcpx-Session", own), ("X-Mcpx-Session", own)],
    ]
    body: object = b"" if method == "GET" else {}
    for guess in guesses:
        answer = fetch(gateway.admin_url, path, method, [("Cookie", cookie), *guess], body)
        assert (answer.status, answer.code) == (401, "unauthorized"), guess
    told = fetch(
        gateway.admin_url, "/api/session", headers={"Cookie": cookie, "X-Mcpx-Csrf": "1"}
    ).json
    assert told == {"signed_in": False, "by": None, "version": None}
    assert fetch(gateway.admin_url, "/api/session", headers=session).json["signed_in"]


def test_one_credential_of_a_session_is_no_token() -> None:
    """SEC-8"""
    with Gateway({"mcp_servers": []}, admin=True) as gateway:
        session = browser_session(gateway)
        secret, id = session["X-Mcpx-Session"], session["Cookie"].partition("=")[2]
        alone: list[dict[str, str]] = [
            {"X-Mcpx-Session": secret},
            {"Authorization": f"Bearer {secret}"},
            {"Authorization": f"Bearer {id}"},
        ]
        assert [
            fetch(gateway.admin_url, "/api/about", headers=headers).status for headers in alone
        ] == [401] * 3


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_what_a_form_of_another_page_could_send_is_not_taken(gateway: Gateway, kind: str) -> None:
    headers = {**gateway.admin_headers, "Content-Type": kind}
    answer = fetch(
        gateway.admin_url, "/api/config/reload", "POST", headers=headers, body=b'{"a": 1}'
    )
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


def test_cors_is_off(gateway: Gateway) -> None:
    headers = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    answer = fetch(gateway.admin_url, "/api/config", "OPTIONS", headers=headers)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "PROPFIND", "HEAD"])
@pytest.mark.parametrize("path", ["/api/config", "/", "/login"])
def test_other_methods_change_nothing_and_need_the_token_too(
    gateway: Gateway, method: str, path: str
) -> None:
    ours = gateway.admin_url.removeprefix("http://").encode()
    head = (
        f"{method} {path} HTTP/1.1\r\n".encode() + b"Host: %s\r\nConnection: close\r\n\r\n" % ours
    )
    status = int(send_bytes(gateway.admin_url, head).split()[1])
    assert status in ((401, 400, 405) if path == "/api/config" else (204, 400, 404, 405, 200))


@pytest.mark.parametrize(
    "path",
    [
        "//api/about",
        "/api//about",
        "/./api/about",
        "/x/../api/about",
        "/%2e%2e/api/about",
        "/api/%2e%2e/api/about",
        "/API/about",
        "/api%2fabout",
        "/api/about%00",
        "/api/about/",
        "/api;/about",
        "/%61pi/about",
        "/login/../api/about",
        "/assets/../../../../etc/passwd",
        "/assets/%2e%2e/%2e%2e/keys.py",
        "/..%5c..%5ckeys.py",
        "/%00",
        "/assets/%ff%fe",
        "/index.html%00.js",
        "/" + "a" * 5000,
    ],
)
def test_no_spelling_of_a_path_leads_past_the_door(gateway: Gateway, path: str) -> None:
    answer = fetch(gateway.admin_url, path)
    assert answer.status in (400, 401, 404)
    assert answer.code in ("bad_request", "unauthorized", "not_found")


def test_a_target_with_another_host_in_it_is_no_way_in(gateway: Gateway) -> None:
    ours = gateway.admin_url.removeprefix("http://").encode()
    for target in (
        b"http://evil.example/api/about",
        b"http://evil.example",
        b"*",
        b"evil.example:80",
    ):
        answer = send_bytes(
            gateway.admin_url,
            b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, ours),
        )
        assert int(answer.split()[1]) in (400, 401, 403, 404)


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/session", "GET"),
        ("/api/about", "GET"),
        ("/", "GET"),
        ("/no-such", "GET"),
        ("/", "POST"),
        ("/login", "GET"),
    ],
)
def test_every_answer_says_what_browsers_may_not_do(
    gateway: Gateway, path: str, method: str
) -> None:
    answer = fetch(gateway.admin_url, path, method)
    assert [name for name in WANTED if answer.headers[name] is None] == []
    assert len(answer.headers.get_all("x-frame-options") or ()) == 1
    if path.startswith("/api"):
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET\r\n\r\n",
        b"\x00" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_http_is_told_so_in_the_same_shape(gateway: Gateway, junk: bytes) -> None:
    answer = send_bytes(gateway.admin_url, junk)
    assert (
        answer.startswith(b"HTTP/1.1 400 ")
        and b'"bad_request"' in answer
        and b"x-frame-options: DENY" in answer
    )


def test_a_websocket_is_a_request_like_any_other(gateway: Gateway) -> None:
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    assert fetch(gateway.admin_url, "/api/events", headers=headers).status == 401


def test_a_cookie_of_another_gateway_is_no_cookie_here(gateway: Gateway) -> None:
    """Cookies know no ports: the browser sends both, each finds its own."""
    with Gateway({"mcp_servers": []}, admin=True) as other:
        at_other, here = browser_session(other), browser_session(gateway)
        theirs, ours = at_other["Cookie"], here["Cookie"]
        assert theirs.partition("=")[0] != ours.partition("=")[0]
        both = f"{theirs}; {ours}"
        assert (
            fetch(gateway.admin_url, "/api/session", headers={**here, "Cookie": both}).json[
                "signed_in"
            ]
            is True
        )
        assert (
            fetch(other.admin_url, "/api/session", headers={**at_other, "Cookie": both}).json[
                "signed_in"
            ]
            is True
        )
        stolen = {**at_other, "Cookie": f"{ours.partition('=')[0]}={theirs.partition('=')[2]}"}
        assert fetch(gateway.admin_url, "/api/session", headers=stolen).json["signed_in"] is False


def test_a_second_cookie_of_the_same_name_does_not_hide_the_valid_one(
    gateway: Gateway, session: dict[str, str]
) -> None:
    """SEC-8: another port of this host can set a cookie with the same name."""
    cookie = session["Cookie"]
    planted = f"{cookie.partition('=')[0]}=planted"
    for both in (f"{planted}; {cookie}", f"{cookie}; {planted}", f"{planted}; {planted}; {cookie}"):
        assert (
            fetch(gateway.admin_url, "/api/about", headers={**session, "Cookie": both}).status
            == 200
        )
    separate = [("Cookie", planted), *session.items()]
    assert fetch(gateway.admin_url, "/api/about", headers=separate).status == 200


@pytest.mark.parametrize(
    "to", ["http://127.0.0.1:9999/authorize?a=1&b=%20x", "https://example.com/"]
)
def test_a_link_to_a_third_party_leaves_from_a_sandboxed_document(
    gateway: Gateway, to: str
) -> None:
    answer = fetch(
        gateway.admin_url,
        f"/leave?to={quote(to, safe='')}",
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    assert (answer.status, answer.headers["refresh"]) == (200, f"0;url={to}")
    assert answer.headers["content-security-policy"].startswith(
        "sandbox allow-scripts; default-src 'none'"
    )
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?to=",
        "?to=javascript:alert(1)",
        "?to=data:text/html,x",
        "?to=//example.com",
        "?to=file:///etc/passwd",
        "?to=http://",
        "?to=http://a%0d%0aset-cookie:%20b",
        "?to=http://[",
        "?to=http://a/&to=http://b/",
    ],
)
def test_only_a_web_address_is_left_for(gateway: Gateway, query: str) -> None:
    answer = fetch(gateway.admin_url, f"/leave{query}")
    assert (answer.status, answer.headers["refresh"]) == (400, None)


def test_a_page_of_another_site_cannot_send_a_browser_elsewhere(gateway: Gateway) -> None:
    answer = fetch(
        gateway.admin_url, "/leave?to=http://example.com/", headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert (answer.status, answer.code) == (403, "cross_site")
    assert fetch(gateway.admin_url, "/leave?to=http://example.com/", "POST").status == 405


def test_nothing_of_it_stands_in_the_log(gateway: Gateway, session: dict[str, str]) -> None:
    fetch(gateway.admin_url, "/login?token=sesame-from-a-query")
    fetch(gateway.admin_url, "/api/about", headers={"Authorization": "Bearer sesame-as-a-guess"})
    fetch(gateway.admin_url, "/api/login", "POST", body={"token": "sesame-in-a-body"})
    said = gateway.stderr()
    assert "sesame" not in said and gateway.admin_token not in said
    assert session["Cookie"].partition("=")[2] not in said and session["X-Mcpx-Session"] not in said
    assert "a wrong token from 127.0.0.1" in said
