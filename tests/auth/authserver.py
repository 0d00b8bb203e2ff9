"""An authorization server and the MCP server it protects, on one real socket, in a thread of its
own.

    with AuthServer() as site:
        site.url        # the MCP server: POST JSON-RPC, 401 without a token
        site.issuer     # the authorization server: metadata, /register, /authorize, /token, /revoke
        site.seen       # every request, as it came
        site.scopes_supported = [...]; site.instead["/token"] = Reply(400, {"error":
        "invalid_grant"})

Attributes say how it behaves and may be changed while it runs; `instead` answers for a path
whatever it is. `/authorize` approves at once and redirects, as if a person had said yes. With two
of them, servers can be mixed up (`authorization_servers`). Import it as `auth.authserver`.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit
from urllib.request import urlopen

PRM = "/.well-known/oauth-protected-resource"
ASM = "/.well-known/oauth-authorization-server"
TOOL = {"name": "whoami", "inputSchema": {"type": "object"}}


@dataclass(frozen=True)
class Seen:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    form: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: Any = None
    """Bytes as they are, anything else as JSON."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    after: float = 0.0
    """Seconds of silence first; the end of the server ends them."""


@dataclass
class Grant:
    client: str
    redirect_uri: str
    challenge: str
    scope: str
    resource: str | None


class AuthServer:
    def __init__(self, host: str = "127.0.0.1", **behaviour: Any) -> None:
        self.prm_path: str | None = f"{PRM}/mcp"
        self.prm_in_challenge = True
        self.resource: str | None = None
        """What the metadata names; None: the URL of the MCP server."""
        self.authorization_servers: list[str] | None = None
        """None: this one."""
        self.resource_scopes: list[str] | None = None
        """`scopes_supported` of the resource."""
        self.challenge_scope: str | None = None
        self.needs: Callable[[str], str] = lambda method: ""
        """Scopes that a method needs of a token."""
        self.asm_path: str | None = ASM
        self.prefix = ""
        """Path of the issuer."""
        self.metadata_issuer: str | None = None
        self.scopes_supported: list[str] | None = None
        self.auth_methods: list[str] | None = ["none"]
        self.pkce: list[str] | None = ["S256"]
        self.cimd: bool | None = None
        self.registers = True
        self.registered_method: str | None = None
        """What a registration answers, whatever was asked for; None: what was asked for."""
        self.known_clients: dict[str, str] = {}
        """Ids and secrets; a client without one has an empty one."""
        self.iss_supported: bool | None = None
        self.iss: str | None = None
        """What the redirect says; None: nothing; "correct": its own."""
        self.expires_in: int | None = 3600
        self.refreshes = True
        self.rotates = True
        self.extra_metadata: dict[str, Any] = {}
        self.instead: dict[str, Reply] = {}
        self.slow: dict[str, float] = {}
        """Seconds of silence before the answer of a path."""
        for name, value in behaviour.items():
            if not hasattr(self, name):
                raise TypeError(name)
            setattr(self, name, value)
        self.seen: list[Seen] = []
        self.tokens: dict[str, str] = {}
        """Access tokens that are taken, with their scopes."""
        self.refresh_tokens: dict[str, Grant] = {}
        self.codes: dict[str, Grant] = {}
        self.grants: list[Grant] = []
        self.lock = threading.Lock()
        self.ended = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _any(self) -> None:
                site._handle(self)

            do_GET = do_POST = do_DELETE = do_HEAD = _any  # noqa: N815

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that hung up

        self._host = host
        self._server = Server((host, 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def __enter__(self) -> "AuthServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def origin(self) -> str:
        return f"http://{self._host}:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def issuer(self) -> str:
        return self.origin + self.prefix

    def asked(self, path: str, method: str | None = None) -> list[Seen]:
        return [one for one in self.seen if one.path == path and method in (None, one.method)]

    # Answers
    # ----------------------------------------------------------------------------------------------

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        is_form = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        form = dict(parse_qsl(body.decode(), keep_blank_values=True)) if is_form else {}
        method = handler.command
        one = Seen(method, parts.path, dict(parse_qsl(parts.query)), headers, form, body)
        with self.lock:
            self.seen.append(one)
            reply = self.instead.get(parts.path) or self._answer(one)
        after = reply.after or self.slow.get(parts.path, 0.0)
        if after and self.ended.wait(after):
            handler.close_connection = True
            return
        data = (
            reply.body
            if isinstance(reply.body, bytes)
            else b""
            if reply.body is None
            else _json(reply.body)
        )
        handler.send_response(reply.status)
        for name, value in {"content-type": "application/json", **reply.headers}.items():
            handler.send_header(name, value)
        if reply.status == 204:
            data = b""
        else:
            handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _answer(self, one: Seen) -> Reply:
        path, post = one.path, one.method == "POST"
        if path == self.prm_path:
            return Reply(body=self._resource_metadata())
        if path == self.asm_path:
            return Reply(body=self._metadata())
        match path.removeprefix(self.prefix) if self.prefix else path:
            case "/register" if post and self.registers:
                return self._register(one.json)
            case "/authorize":
                return self._authorize(one.query)
            case "/token" if post:
                return self._token(one)
            case "/revoke" if post:
                self.tokens.pop(one.form["token"], None)
                self.refresh_tokens.pop(one.form["token"], None)
                return Reply()
            case "/mcp":
                return self._mcp(one)
            case _:
                return Reply(404, {"error": "not_found"})

    def _resource_metadata(self) -> dict[str, Any]:
        servers = self.authorization_servers
        about: dict[str, Any] = {
            "resource": self.url if self.resource is None else self.resource,
            "authorization_servers": [self.issuer] if servers is None else servers,
        }
        if self.resource_scopes is not None:
            about["scopes_supported"] = self.resource_scopes
        return about

    def _metadata(self) -> dict[str, Any]:
        about: dict[str, Any] = {
            "issuer": self.issuer if self.metadata_issuer is None else self.metadata_issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
        }
        if self.registers:
            about["registration_endpoint"] = f"{self.issuer}/register"
        told = {
            "scopes_supported": self.scopes_supported,
            "token_endpoint_auth_methods_supported": self.auth_methods,
            "code_challenge_methods_supported": self.pkce,
            "client_id_metadata_document_supported": self.cimd,
            "authorization_response_iss_parameter_supported": self.iss_supported,
        }
        about.update({name: value for name, value in told.items() if value is not None})
        return {**about, **self.extra_metadata}

    def _register(self, wanted: dict[str, Any]) -> Reply:
        client = f"client-{secrets.token_hex(4)}"
        method = self.registered_method or wanted.get(
            "token_endpoint_auth_method", "client_secret_basic"
        )
        secret = "" if method == "none" else f"secret-{secrets.token_hex(8)}"
        self.known_clients[client] = secret
        known = {**wanted, "client_id": client, "token_endpoint_auth_method": method}
        return Reply(201, {**known, "client_secret": secret} if secret else known)

    def _authorize(self, query: dict[str, str]) -> Reply:
        client = query.get("client_id", "")
        if client not in self.known_clients and not (self.cimd and client.startswith("https://")):
            return Reply(400, b"<p>unknown client</p>", {"content-type": "text/html"})
        if query.get("response_type") != "code" or query.get("code_challenge_method") != "S256":
            return Reply(400, {"error": "invalid_request"})
        code = f"code-{secrets.token_hex(8)}"
        grant = Grant(
            client,
            query["redirect_uri"],
            query["code_challenge"],
            query.get("scope", ""),
            query.get("resource"),
        )
        self.codes[code] = grant
        self.grants.append(grant)
        back = {"code": code, "state": query.get("state", "")}
        if self.iss is not None:
            back["iss"] = self.issuer if self.iss == "correct" else self.iss
        return Reply(302, headers={"location": f"{query['redirect_uri']}?{urlencode(back)}"})

    def _token(self, one: Seen) -> Reply:
        form = one.form
        client, secret = form.get("client_id", ""), form.get("client_secret", "")
        if (basic := one.headers.get("authorization", "")).startswith("Basic "):
            pair = base64.b64decode(basic[6:]).decode()
            client, secret = (unquote(part) for part in pair.split(":", 1))
        is_document = self.cimd and client.startswith("https://")
        if not is_document and self.known_clients.get(client) != secret:
            return Reply(401, {"error": "invalid_client"})
        if form.get("grant_type") == "client_credentials":
            grant = Grant(client, "", "", form.get("scope", ""), form.get("resource"))
            self.grants.append(grant)
            return self._issue(grant, with_refresh=False)
        if form.get("grant_type") == "refresh_token":
            grant = self.refresh_tokens.get(form.get("refresh_token", ""))
            if grant is None or grant.client != client:
                return Reply(
                    400, {"error": "invalid_grant", "error_description": "unknown refresh token"}
                )
            if self.rotates:
                del self.refresh_tokens[form["refresh_token"]]
            return self._issue(grant, with_refresh=self.rotates)
        grant = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        proved = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            grant is None
            or grant.client != client
            or grant.challenge != proved
            or grant.redirect_uri != form.get("redirect_uri")
            or grant.resource != form.get("resource")
        ):
            return Reply(400, {"error": "invalid_grant"})
        return self._issue(grant, with_refresh=self.refreshes)

    def _issue(self, grant: Grant, *, with_refresh: bool) -> Reply:
        access = f"access-{secrets.token_hex(8)}"
        self.tokens[access] = grant.scope
        answer: dict[str, Any] = {"access_token": access, "token_type": "Bearer"}
        if grant.scope:
            answer["scope"] = grant.scope
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        if with_refresh:
            answer["refresh_token"] = f"refresh-{secrets.token_hex(8)}"
            self.refresh_tokens[answer["refresh_token"]] = grant
        return Reply(body=answer)

    def _challenge(self, *more: str) -> dict[str, str]:
        parts = list(more)
        if self.prm_in_challenge and self.prm_path is not None:
            parts.append(f'resource_metadata="{self.origin}{self.prm_path}"')
        if self.challenge_scope is not None:
            parts.append(f'scope="{self.challenge_scope}"')
        return {"www-authenticate": f"Bearer {', '.join(parts)}".strip()}

    def _mcp(self, one: Seen) -> Reply:
        token = one.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            said = ('error="invalid_token"',) if token else ()
            return Reply(401, {"error": "invalid_token"}, self._challenge(*said))
        if one.method != "POST":
            return Reply(405)
        message = one.json
        method, ident = message.get("method", ""), message.get("id")
        missing = set(self.needs(method).split()) - set(self.tokens[token].split())
        if missing:
            needed = f'scope="{" ".join(sorted(missing))}"'
            kept, self.challenge_scope = self.challenge_scope, None
            headers = self._challenge('error="insufficient_scope"', needed)
            self.challenge_scope = kept
            return Reply(403, {"error": "insufficient_scope"}, headers)
        if ident is None:
            return Reply(202)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "ping": {},
            "tools/list": {"tools": [TOOL]},
            "tools/call": {
                "content": [{"type": "text", "text": self.tokens[token] or "signed in"}]
            },
        }
        if method not in results:
            error = {"code": -32601, "message": "Method not found"}
            return Reply(404, {"jsonrpc": "2.0", "id": ident, "error": error})
        return Reply(body={"jsonrpc": "2.0", "id": ident, "result": results[method]})


def open_as_browser(url: str, seconds: float = 20.0) -> tuple[int, str]:
    """GET with redirects, as a browser does it; the last page. Blocks: in a coroutine use
    `asyncio.to_thread`."""
    from urllib.error import HTTPError

    try:
        with urlopen(url, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
