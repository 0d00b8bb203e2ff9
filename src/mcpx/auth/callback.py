"""Where a browser comes back to after somebody has signed in: a listener on loopback, open while
anybody is expected.

Promised: only `GET /callback`, only under the loopback's own name, one answer for each sign-in;
what a stranger sends is bounded and told nothing. The same port again where possible, for some
authorization servers hold a client to the exact address it was registered with. The page is text:
no script, nothing loaded, its address handed on to nobody.
"""

import asyncio
import html
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from mcpx.auth.vault import Vault
from mcpx.base.aio import Tasks
from mcpx.model.call import as_list
from mcpx.model.errors import Unproved
from mcpx.wire.exchange import Exchange
from mcpx.wire.http_server import HttpServer, Limits

log = logging.getLogger(__name__)

Finish = Callable[[Mapping[str, str]], Awaitable[str]]
"""What is done with the parameters of the redirect; gives the words for the page, or raises
`Unproved`."""

PORTS = "callback"
"""What the ports are kept under."""
MOST_PORTS = 4
"""Several gateways may share a state folder; each finds its port again."""
MOST_EXPECTED = 1024
FIELDS = 32
IDLE = 300.0
"""Seconds it stays open after the last one came."""
LIMITS = Limits(
    header_bytes=16384,
    body_bytes=1024,
    head_timeout=5,
    body_timeout=5,
    keep_alive=5,
    connections=32,
    write_timeout=5,
)
HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
)
UNKNOWN = (
    "This sign-in is not expected: it is over, or was begun anew. Ask mcpx for a fresh address."
)


class Callback:
    def __init__(self, vault: Callable[[], Vault]) -> None:
        self._vault = vault
        self._server: HttpServer | None = None
        self._port = 0
        self._opening = asyncio.Lock()
        self._expected: dict[str, Finish] = {}
        self._tasks = Tasks("callback")
        self._timer: asyncio.TimerHandle | None = None

    async def redirect_uri(self) -> str:
        """Where to come back to; somebody listens there from now on. Raises `Unproved` when nobody
        can."""
        async with self._opening:
            if self._server is None:
                await self._open()
        self._idle_from_now()
        return f"http://127.0.0.1:{self._port}/callback"

    def expect(self, state: str, finish: Finish) -> None:
        """Somebody will come back with this `state`."""
        while len(self._expected) >= MOST_EXPECTED:
            del self._expected[next(iter(self._expected))]
        self._expected[state] = finish
        if self._server is None:
            self._tasks.start(self._reopen())
        self._idle_from_now()

    def forget(self, state: str) -> None:
        self._expected.pop(state, None)
        self._idle_from_now()

    async def redirected(self, url: str) -> str:
        """The same for an address that somebody brought here by other means, from a browser on
        another machine."""
        try:
            query = urlsplit(url.strip()).query
        except ValueError:
            query = ""
        found = _fields(query) or {}
        finish = self._expected.pop(found.get("state", ""), None)
        if finish is None:
            raise Unproved(
                "this is not the address that the browser was sent back to, or it was used already"
            )
        try:
            return await finish(found)
        finally:
            self._idle_from_now()

    async def close(self) -> None:
        self._expected.clear()
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()
        async with self._opening:
            await self._shut()

    # The listener
    # ----------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        kept: Any = (self._vault().read(PORTS) or {}).get("ports")
        ports = [port for port in as_list(kept) if isinstance(port, int) and 1024 <= port < 65536]
        if self._port and self._port not in ports:
            ports.insert(0, self._port)
        server = HttpServer(self._asked, LIMITS)
        for port in (*ports, 0):
            try:
                self._port = await server.start("127.0.0.1", port)
                break
            except OSError as error:
                if port == 0:
                    raise Unproved(
                        f"nothing can listen on loopback for the end of a sign-in: {error}"
                    ) from None
        self._server = server
        if self._port not in ports:
            self._vault().write(PORTS, {"ports": [self._port, *ports][:MOST_PORTS]})

    async def _reopen(self) -> None:
        try:
            await self.redirect_uri()
        except Unproved as error:
            log.warning("%s", error.reason)

    async def _shut(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close(0.5)

    def _idle_from_now(self) -> None:
        """Nothing listens for long where nobody is expected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._expected and self._server is not None:
            self._timer = asyncio.get_running_loop().call_later(IDLE, self._end_idle)

    def _end_idle(self) -> None:
        self._tasks.start(self._shut_if_idle())

    async def _shut_if_idle(self) -> None:
        async with self._opening:
            if not self._expected:
                await self._shut()

    # Requests
    # ----------------------------------------------------------------------------------------------

    def _asked(self, exchange: Exchange) -> None:
        if exchange.host not in (f"127.0.0.1:{self._port}", f"localhost:{self._port}"):
            exchange.reply(421, b"Misdirected Request", "text/plain", HEADERS)
        elif exchange.path != "/callback":
            exchange.reply(404, b"Not Found", "text/plain", HEADERS)
        elif exchange.method != "GET":
            exchange.reply(405, b"Method Not Allowed", "text/plain", (*HEADERS, ("allow", "GET")))
        else:
            found = _fields(exchange.query)
            finish = None if found is None else self._expected.pop(found.get("state", ""), None)
            if found is None or finish is None:
                _show(exchange, 400, "Not signed in", UNKNOWN)
            else:
                self._tasks.start(self._finish(exchange, finish, found))

    async def _finish(self, exchange: Exchange, finish: Finish, found: Mapping[str, str]) -> None:
        """Goes on to its end though the browser may be gone: the code can be used once."""
        try:
            said = await finish(found)
        except Unproved as error:
            _show(exchange, 400, "Not signed in", error.reason)
        except Exception as error:  # noqa: BLE001  its words may hold what nobody is to see
            log.error("a sign-in could not be finished: %s", type(error).__name__)
            _show(
                exchange, 500, "Not signed in", "Something went wrong in mcpx; its log says when."
            )
        else:
            _show(exchange, 200, "Signed in", said)
        finally:
            self._idle_from_now()


def _fields(query: str) -> dict[str, str] | None:
    """The parameters of a redirect; None where one comes twice (RFC 6749, 3.1), or there are too
    many."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=FIELDS)
    except ValueError:
        return None
    found = dict(pairs)
    return found if len(found) == len(pairs) else None


def _show(exchange: Exchange, status: int, title: str, text: str) -> None:
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>mcpx: '
        f"{html.escape(title)}</title>"
        f"<h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></html>\n"
    )
    exchange.reply(status, page.encode("utf-8", "replace"), "text/html; charset=utf-8", HEADERS)
